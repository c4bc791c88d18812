//! Which functions pass on what an allocator returned: the objects are those of their callers.
//!
//! Known by their names (`xmalloc`, `zmalloc`, `palloc`, `g_malloc0_n`, `sqlite3DbMallocRawNN`), or in C and C++ by what the source shows: the function
//! allocates as many bytes as it is told, and returns the block. A constructor (`malloc(sizeof(struct node))`) is none: its objects have a type, and
//! belong together.

use crate::demangle::without_arguments;
use crate::enclosing::Enclosing;
use crate::statement::Statement;

/// Ends of the names of functions that allocate; the last two are cgo's, which make C's copies of what Go has.
const ENDINGS: [&str; 19] = [
    "malloc",
    "calloc",
    "realloc",
    "zalloc",
    "palloc",
    "pnalloc",
    "memalign",
    "aligned_alloc",
    "valloc",
    "mallocz",
    "reallocarray",
    "strdup",
    "strndup",
    "memdup",
    "memdupz",
    "asprintf",
    "psprintf",
    "._cfunc_cstring",
    "._cfunc_cbytes",
];
/// An end of names that is none of these (`fs_prealloc`): what allocates in advance does so for a purpose of its own.
const IN_ADVANCE: &str = "prealloc";
/// Samba's and HAProxy's, without the underscores names that programs give to constructors of their own.
const UNDERSCORED: [&str; 3] = ["_talloc", "__talloc", "__pool_alloc"];
/// Names of general use, and those of PostgreSQL, GLib, SQLite, nginx, Apache, FFmpeg, PHP, CPython, gnulib, Samba's talloc, MariaDB, HAProxy, OpenMP, libnuma
/// and hwloc that no ending tells. What makes a pool or a memory context is one of them: its first block is for what its caller has in it.
const NAMES: [&str; 64] = [
    "xalloc",
    "xcharalloc",
    "my_alloc",
    "safe_alloc",
    "checked_alloc",
    "mem_alloc",
    "do_alloc",
    "alloc_or_die",
    "memorycontextalloc",
    "allocsetalloc",
    "generationalloc",
    "slaballoc",
    "bumpalloc",
    "allocsetcontextcreateinternal",
    "generationcontextcreate",
    "slabcontextcreate",
    "bumpcontextcreate",
    "ngx_create_pool",
    "apr_pool_create_ex",
    "mem_heap_create_func",
    "g_slice_alloc",
    "g_strdup_printf",
    "g_strdup_vprintf",
    "pcache1alloc",
    "ngx_alloc",
    "ngx_palloc_small",
    "ngx_palloc_block",
    "allocator_alloc",
    "apr_allocator_alloc",
    "apr_pvsprintf",
    "av_buffer_alloc",
    "zend_mm_alloc",
    "pytype_genericalloc",
    "talloc_named",
    "talloc_zero",
    "talloc_array",
    "talloc_pooled_object",
    "talloc_with_prefix",
    "multi_alloc_root",
    "strdup_root",
    "strmake_root",
    "memdup_root",
    "safe_lexcstrdup_root",
    "mem_heap_alloc",
    "mem_heap_dup",
    "mem_heap_strcat",
    "mem_heap_printf",
    "mem_heap_add_block",
    "mem_heap_create_block",
    "mem_heap_create_block_func",
    "pool_alloc_area",
    "pool_alloc_nocache",
    "pool_get_from_os_noinc",
    "omp_alloc",
    "gomp_alloc",
    "kmpc_alloc",
    "numa_alloc",
    "numa_alloc_onnode",
    "numa_alloc_local",
    "numa_alloc_interleaved",
    "numa_alloc_interleaved_subset",
    "hwloc_alloc",
    "hwloc_alloc_membind",
    "hwloc_alloc_membind_policy",
];
/// The namespace of what only one file of C++ has.
const NAMELESS: &str = "(anonymous namespace)::";
/// What makes objects of a type, whose size nobody tells.
const TYPED: [&str; 3] = ["new", "make_unique", "make_shared"];
/// What variants of such functions add to the name, and compilers to that of a part that hardly ever runs.
const SUFFIXES: [&str; 31] = [
    ".cold",
    "_usable",
    "_internal",
    "_impl",
    "_array",
    "_aligned",
    "_extended",
    "_nothrow",
    "_debug",
    "_large",
    "_zero",
    "_const",
    "_n",
    "_x",
    "fromnewblock",
    "chunkfromblock",
    "withalarm",
    "orfree",
    "finish",
    "extended",
    "aligned",
    "large",
    "huge",
    "zero",
    "rawnn",
    "raw",
    "nn",
    "64",
    "0",
    "2",
    "_",
];

/// Whether a function is named like one that allocates for others.
pub(crate) fn is_named_like_one(function: &str) -> bool {
    let function = without_arguments(function);
    let function = function.strip_prefix(NAMELESS).unwrap_or(&function);
    if function.contains("::") {
        return false;
    }
    if UNDERSCORED.contains(&function) {
        return true;
    }
    let function = function.trim_start_matches('_');
    let lower = function.to_ascii_lowercase();
    let is_in_advance = |name: &str| {
        let begins_there = |before: &str| function.get(before.len()..).is_some_and(|word| word.starts_with("Pr"));
        let before = name.strip_suffix(IN_ADVANCE);
        before.is_some_and(|before| before.is_empty() || before.ends_with(['_', '.']) || begins_there(before))
    };
    let has_ending = |name: &str| ENDINGS.iter().any(|ending| name.ends_with(ending)) && !is_in_advance(name);
    let allocates = |name: &str| has_ending(name) || NAMES.contains(&name);
    let mut name = lower.as_str();
    loop {
        if allocates(name) {
            return true;
        }
        match SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)) {
            Some(rest) if !rest.is_empty() => name = rest,
            _ => return false,
        }
    }
}

/// Whether the function around the statement passes on the block that is allocated at `allocation` of it, in as many bytes as it was told. `target`: the
/// variable that takes the block; `index`: the statement's line.
pub(crate) fn passes_on(
    lines: &[String],
    index: usize,
    statement: &Statement,
    allocation: usize,
    target: Option<&str>,
) -> bool {
    let Some(arguments) = statement.text.get(allocation..).and_then(arguments) else { return false };
    if words(arguments).any(|word| word == "sizeof") || !words(arguments).any(|word| word.contains(char::is_lowercase))
    {
        return false;
    }
    let start = statement.text[..allocation].rfind([';', '{', '}']).map_or(0, |end| end + 1);
    let (before, is_operator) = unqualified(statement.text[start..allocation].trim());
    // Brackets behind a type have the arguments of a constructor, or numbers of elements.
    if !is_operator && words(&statement.text[allocation..]).next().is_some_and(|word| TYPED.contains(&word)) {
        return false;
    }
    // As if the call were a name: `return (void *) BLOCK`.
    const BLOCK: &str = "block_";
    if let Some(value) = returned(&format!("{before} {BLOCK}")) {
        return value == BLOCK;
    }
    let Some(target) = target.filter(|name| words(name).eq([*name])) else { return false };
    let column = allocation.checked_sub(statement.line_start).filter(|_| allocation < statement.line_end);
    let function = Enclosing::find(lines, index, column.unwrap_or(0));
    let is_returned = |line: &str| {
        line.split(';').filter_map(returned).any(|value| words(value).next() == Some(target) && is_sum(value, target))
    };
    let above = (index + 1).saturating_sub(function.first);
    function.lines(lines, index).any(is_returned)
        && function.lines(lines, function.first).take(above).any(|line| declares(line, target))
}

/// What stands before a call without the namespaces before the called name, and whether that name is an operator's: `return ` of `return std::malloc(n)` and of
/// `return ::operator new(n)`.
fn unqualified(before: &str) -> (&str, bool) {
    let operator = before.strip_suffix("operator");
    let mut before = operator.unwrap_or(before).trim_end();
    while let Some(rest) = before.strip_suffix("::") {
        before = rest.trim_end_matches(|character: char| character.is_alphanumeric() || character == '_');
    }
    (before, operator.is_some())
}

/// What stands between the brackets that follow the called name.
fn arguments(call: &str) -> Option<&str> {
    let open = call.find('(')?;
    if call[..open].contains([';', ',', ')', '=']) {
        return None;
    }
    let mut depth = 0_u32;
    for (at, byte) in call.bytes().enumerate().skip(open) {
        match byte {
            b'(' => depth += 1,
            b')' if depth == 1 => return call.get(open + 1..at),
            b')' => depth -= 1,
            _ => {}
        }
    }
    call.get(open + 1..)
}

/// The value of a `return`, without casts and brackets around it.
fn returned(text: &str) -> Option<&str> {
    let at = words(text).find(|word| *word == "return").map(|word| word.as_ptr() as usize - text.as_ptr() as usize)?;
    let rest = text[at + "return".len()..].trim();
    let cast = ["static_cast<", "reinterpret_cast<"].into_iter().find_map(|cast| rest.strip_prefix(cast));
    let mut rest = cast.and_then(|cast| cast.split_once(">(")).map_or(rest, |(_, inner)| inner.trim_start());
    while let Some(inner) = rest.strip_prefix('(') {
        let is_cast =
            |close: usize| inner[..close].bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_ *:<>".contains(&byte));
        rest = match inner.find(')') {
            Some(close) if is_cast(close) && !inner[close + 1..].trim().is_empty() => inner[close + 1..].trim_start(),
            Some(close) if is_cast(close) => inner[..close].trim(),
            // The bracket of a call's argument list that was cut off, or of a cast that is not understood.
            _ => inner.trim_start(),
        };
    }
    Some(rest)
}

/// Whether a value is a name, or that and a number of bytes: not what it points to.
fn is_sum(value: &str, name: &str) -> bool {
    let rest = value.strip_prefix(name).unwrap_or(value).trim_start_matches(')').trim_start();
    rest.is_empty() || rest.starts_with('+') || rest.starts_with('?')
}

/// Whether a line declares a local variable: a type stands before its name.
fn declares(line: &str, name: &str) -> bool {
    let first = words(line).next();
    if first.is_none_or(|word| ["static", "extern", "return", "else", "goto", "case"].contains(&word)) {
        return false;
    }
    words(line).filter(|word| *word == name).any(|word| {
        let at = word.as_ptr() as usize - line.as_ptr() as usize;
        let before = line[..at].trim_end();
        let is_type = |last: char| last.is_alphanumeric() || last == '_' || last == '*' || last == '>';
        let has_type = !before.is_empty() && before.ends_with(is_type);
        // `char *p, *q = NULL;`
        let pointers = before.trim_end_matches(['*', ' ']);
        has_type && !before.ends_with("return") || before.ends_with('*') && pointers.ends_with(',')
    })
}

/// The words of C in a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    text.split(move |character| !is_name(character)).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::around;

    #[test]
    fn names_of_real_wrappers() {
        for function in [
            "malloc",
            "xmalloc",
            "zmalloc",
            "zmalloc_usable",
            "ztrymalloc_usable_internal",
            "zcalloc",
            "zrealloc_usable",
            "palloc0",
            "palloc_extended",
            "MemoryContextAlloc",
            "MemoryContextAllocZeroAligned",
            "MemoryContextAllocHuge",
            "MemoryContextAllocExtended",
            "AllocSetAlloc",
            "pstrdup",
            "g_malloc0_n",
            "g_slice_alloc0",
            "g_memdup",
            "sqlite3Malloc",
            "sqlite3MallocZero",
            "sqlite3DbMallocRawNN",
            "sqlite3DbMallocZero",
            "sqlite3_malloc64",
            "sqlite3MemMalloc",
            "sqlite3DbStrDup",
            "ngx_pcalloc",
            "ngx_pnalloc",
            "ngx_palloc_block",
            "apr_palloc",
            "av_mallocz",
            "av_malloc_array",
            "CRYPTO_malloc",
            "CRYPTO_zalloc",
            "PyObject_Malloc",
            "_PyObject_Malloc",
            "PyMem_RawMalloc",
            "je_malloc",
            "mi_malloc_aligned",
            "numa_alloc_onnode",
            "safe_emalloc",
        ] {
            assert!(is_named_like_one(function), "{function}");
        }
    }

    #[test]
    fn names_of_real_wrappers_of_libraries_and_servers() {
        for function in [
            // The allocators behind those of PostgreSQL 17, SQLite and Apache, and Samba's, gnulib's, git's and GLib's.
            "AllocSetAllocLarge",
            "GenerationAllocFromNewBlock",
            "BumpAllocChunkFromBlock",
            "psprintf",
            "dbMallocRawFinish",
            "mallocWithAlarm",
            "sqlite3DbReallocOrFree",
            "allocator_alloc",
            "apr_pvsprintf",
            "__talloc_with_prefix",
            "_talloc",
            "_talloc_zero_array",
            "talloc_named_const",
            "talloc_asprintf",
            "xcharalloc",
            "xmemdupz",
            "g_memdup2",
            "g_strdup_vprintf",
            // Of MariaDB, HAProxy, OpenMP's libraries, libnuma, hwloc and cgo.
            "my_malloc",
            "multi_alloc_root",
            "mem_heap_alloc",
            "mem_heap_zalloc",
            "mem_heap_create_block_func",
            "mem_heap_create_func",
            "AllocSetContextCreateInternal",
            "ngx_create_pool",
            "__pool_alloc",
            "pool_alloc_nocache",
            "pool_get_from_os_noinc",
            "omp_alloc",
            "omp_aligned_alloc",
            "GOMP_alloc",
            "__kmpc_alloc",
            "numa_alloc_interleaved_subset",
            "hwloc_alloc_membind",
            "scalable_aligned_malloc",
            "_cgo_1fa32b7c5d1e_Cfunc__Cmalloc",
            "main._Cfunc_CString",
            // Templates, functions of one file, and parts that hardly ever run.
            "xmalloc<ns::Node>",
            "(anonymous namespace)::xmalloc",
            "(anonymous namespace)::checked_alloc<std::pair<int, int> >",
            "xmalloc.cold",
        ] {
            assert!(is_named_like_one(function), "{function}");
        }
    }

    #[test]
    fn names_of_functions_that_allocate_for_themselves() {
        for function in [
            "main",
            "alloc_graph",
            "matrix_new",
            "std::vector<int>::reserve",
            "",
            "allocator_init",
            "dictAddRaw",
            "sdsnewlen",
            "_",
            "0",
            "reallocate_all",
            "prealloc",
            "grid_prealloc",
            "main.(*Grid).prealloc",
            "main.gridPrealloc",
            "gridPrealloc0",
            // A constructor of tree nodes in a well-known book.
            "talloc",
            "create_pool",
            "TableContextCreate",
            "numa_allocate_grid",
            "numa_alloc_table",
            "pool_alloc",
            "alloc_root",
            "root_alloc",
            "mem_heap_create",
            "grid_alloc_root_cells",
            "ns::xmalloc<int>",
            "(anonymous namespace)::Grid::xmalloc",
            "grid_new<xmalloc>",
            "<T as app::Pool>::malloc",
            "main.cold",
            ".cold",
        ] {
            assert!(!is_named_like_one(function), "{function}");
        }
    }

    /// The function's text, and what stands at the allocation.
    fn passed_on(text: &str, call: &str, target: Option<&str>) -> bool {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let index = lines.iter().position(|line| line.contains(call)).unwrap();
        let statement = around(&lines, index).into_iter().next().unwrap();
        let allocation = statement.text.find(call).unwrap();
        passes_on(&lines, index, &statement, allocation, target)
    }

    #[test]
    fn a_block_of_as_many_bytes_as_told_that_is_returned_is_the_callers() {
        let prefix = "void *get(size_t size) {
    if (size > MAX) return NULL;
    void *ptr = grab(size + PREFIX);
    if (!ptr) return NULL;
    *(size_t *)ptr = size;
    return (char*)ptr + PREFIX;
}
";
        assert!(passed_on(prefix, "grab(", Some("ptr")));
        let plain = "void *get(size_t size) {\n    return (void *) grab(size);\n}\n";
        assert!(passed_on(plain, "grab(", None));
        let later = "char *get(int n)\n{\n  char *p, *q = NULL;\n  q = grab(n + 1);\n  check(q);\n  return(q);\n}\n";
        assert!(passed_on(later, "grab(", Some("q")));
    }

    #[test]
    fn constructors_fields_and_statics_keep_their_objects() {
        let constructor = "node *node_new(int key) {\n  node *n = grab(sizeof(node) + key);\n  return n;\n}\n";
        assert!(!passed_on(constructor, "grab(", Some("n")));
        let fixed = "char *page(void) {\n  char *p = grab(PAGE_SIZE);\n  return p;\n}\n";
        assert!(!passed_on(fixed, "grab(", Some("p")));
        let field = "grid *make(int n) {\n  grid *g = base();\n  g->cells = grab(n);\n  return g;\n}\n";
        assert!(!passed_on(field, "grab(", Some("g->cells")));
        let held = "static char *cache;\nchar *get(int n) {\n  if (!cache) cache = grab(n);\n  return cache;\n}\n";
        assert!(!passed_on(held, "grab(", Some("cache")));
        let value = "int sum(int n) {\n  int *all = grab(n);\n  fill(all);\n  return all[0];\n}\n";
        assert!(!passed_on(value, "grab(", Some("all")));
        let other =
            "int *f(int n) {\n  int *all = grab(n);\n  return other(all);\n}\nint *g(int *all) {\n  return all;\n}\n";
        assert!(!passed_on(other, "grab(", Some("all")));
        let used = "int f(int n) {\n  return sum(grab(n));\n}\n";
        assert!(!passed_on(used, "grab(", None));
    }

    /// The arguments of constructors were taken for numbers of bytes.
    #[test]
    fn functions_that_make_objects_of_a_type_keep_them() {
        let returned = "Node *node_new(int key) {\n  return new Node(key);\n}\n";
        assert!(!passed_on(returned, "new Node", None));
        let kept = "Node *node_new(int key) {\n  Node *n = new ns::Node(key, 3);\n  return n;\n}\n";
        assert!(!passed_on(kept, "new ns", Some("n")));
        let owned = "auto node_new(int key) {\n  auto n = std::make_unique<Node>(key);\n  return n;\n}\n";
        assert!(!passed_on(owned, "make_unique", Some("n")));
        let operator = "void *get(size_t n) {\n  return ::operator new(n);\n}\n";
        assert!(passed_on(operator, "new(", None));
    }

    #[test]
    fn namespaces_and_casts_of_cpp_do_not_hide_the_block() {
        let plain = "void *get(size_t n) {\n  return std::malloc(n);\n}\n";
        assert!(passed_on(plain, "malloc(", None));
        let cast = "char *get(size_t n) {\n  return static_cast<char *>(std::malloc(n));\n}\n";
        assert!(passed_on(cast, "malloc(", None));
        let later =
            "char *get(size_t n) {\n  void *p = std::malloc(n);\n  return reinterpret_cast<char*>(p) + 16;\n}\n";
        assert!(passed_on(later, "malloc(", Some("p")));
        let used = "int get(size_t n) {\n  return sum(std::malloc(n));\n}\n";
        assert!(!passed_on(used, "malloc(", None));
        let value = "long get(size_t n) {\n  void *p = std::malloc(n);\n  return static_cast<long>(sum(p));\n}\n";
        assert!(!passed_on(value, "malloc(", Some("p")));
    }

    /// The end of a function was the next bracket at the margin, so that methods within a class were one function.
    #[test]
    fn another_method_of_the_class_returns_another_block() {
        let text = "class Buffer {
    void fill(size_t n) {
        char *data = grab(n);
        use(data);
    }
    char *other(char *data) {
        return data;
    }
};
";
        assert!(!passed_on(text, "grab(", Some("data")));
        let member = "struct Cache {
    void set(char *data) { keep(data); }
    char *get(size_t n) {
        if (!data) data = grab(n);
        return data;
    }
};
";
        assert!(!passed_on(member, "grab(", Some("data")));
        let method = "class Pool {
    char *take(size_t n) {
        char *data;
        if (n > 8) {
            data = grab(n);
        } else {
            data = small;
        }
        return data;
    }
};
";
        assert!(passed_on(method, "grab(", Some("data")));
    }

    #[test]
    fn hostile_texts_are_none() {
        for text in ["return (((((", "return", ") = grab(", "grab(n", "((((grab(n)))))", "é = grab(é) return é"] {
            let _ = passed_on(&format!("{text} grab(x"), "grab(", Some("é"));
        }
    }
}
