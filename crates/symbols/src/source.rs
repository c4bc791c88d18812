//! Which variable a source line assigns an allocation to.
//!
//! No compiler front end: the statement around the line is cut out, comments and strings are blanked, and the target of the
//! assignment (or declaration, method call, field) that holds the allocation is read off. What does not look like one of the known
//! forms gives no name. Sources are untrusted: files over 8 MiB, lines over 4096 bytes and anything that is no regular file are left alone.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::demangle::tidy;

const FILE_BYTES_MAX: u64 = 8 << 20;
const LINE_BYTES_MAX: usize = 4096;
const NAME_CHARS_MAX: usize = 60;
/// Lines looked at before and after for the rest of a statement.
const LINES_BEFORE: usize = 4;
const LINES_AFTER: usize = 6;

/// Words that allocate, in C, C++ and Rust. A statement's assignment counts when one of them (or the named callee) follows it.
const ALLOCATING: [&str; 20] = [
    "malloc",
    "calloc",
    "realloc",
    "memalign",
    "alloc",
    "valloc",
    "strdup",
    "mmap",
    "new",
    "make_unique",
    "make_shared",
    "vec!",
    "with_capacity",
    "collect",
    "to_vec",
    "clone",
    "Box::new",
    "Vec::from",
    "sbrk",
    "shmat",
];
/// Methods that make a container allocate: the container is the object.
const GROWING: [&str; 14] = [
    ".resize",
    ".reserve",
    ".push_back",
    ".emplace_back",
    ".assign",
    ".insert",
    ".emplace",
    ".push",
    ".extend",
    ".append",
    ".push_str",
    ".reset",
    ".emplace_hint",
    ".try_emplace",
];

/// Source files that were read, by path.
#[derive(Debug, Default)]
pub struct SourceCache {
    files: HashMap<String, Option<Arc<Vec<String>>>>,
}

impl SourceCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> SourceCache {
        SourceCache::default()
    }

    fn lines(&mut self, path: &str) -> Option<Arc<Vec<String>>> {
        if let Some(lines) = self.files.get(path) {
            return lines.clone();
        }
        let lines = read_lines(path).map(Arc::new);
        self.files.insert(path.to_owned(), lines.clone());
        lines
    }

    /// The variable, member or element that takes the allocation made at `line` (from 1) of `path`; `callee` is the function called
    /// there, if known. `None` where the file cannot be read or the statement is of no known form.
    pub fn assigned_name(&mut self, path: &str, line: u32, callee: Option<&str>) -> Option<String> {
        let lines = self.lines(path)?;
        let index = (line as usize).checked_sub(1).filter(|&index| index < lines.len())?;
        let statement = statement_around(&lines, index);
        let extension = path.rsplit('.').next().unwrap_or("");
        name_in_statement(&statement, extension, callee)
    }
}

fn read_lines(path: &str) -> Option<Vec<String>> {
    let metadata = std::fs::metadata(Path::new(path)).ok()?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    Some(text.lines().map(|line| if line.len() > LINE_BYTES_MAX { String::new() } else { line.to_owned() }).collect())
}

/// The statement that holds line `index`, on one line, without comments and the contents of strings.
fn statement_around(lines: &[String], index: usize) -> String {
    let code = |index: usize| strip_comments(&lines[index]);
    let ends = |text: &str| text.is_empty() || text.starts_with('#') || text.ends_with([';', '{', '}']);
    let mut first = index;
    while first > 0 && index - first < LINES_BEFORE && !ends(code(first - 1).trim()) {
        first -= 1;
    }
    let mut statement = String::new();
    for line in first..lines.len().min(index + LINES_AFTER) {
        let text = code(line);
        statement.push_str(text.trim());
        statement.push(' ');
        if line >= index && (text.contains(';') || text.trim_end().ends_with(['{', '}'])) {
            break;
        }
    }
    // Of several statements on the line, the one that allocates.
    let parts: Vec<&str> = statement.split(';').collect();
    let allocates = |part: &&&str| ALLOCATING.iter().any(|word| position_of(part, word).is_some());
    let chosen = parts.iter().find(allocates).or_else(|| parts.iter().find(|part| !part.trim().is_empty()));
    chosen.map(|part| part.trim().to_owned()).unwrap_or_default()
}

fn strip_comments(line: &str) -> String {
    let mut code = String::with_capacity(line.len());
    let mut rest = line.chars().peekable();
    let mut quote = None;
    while let Some(character) = rest.next() {
        match (quote, character) {
            (Some(_), '\\') => {
                rest.next();
            }
            (Some(open), close) if open == close => {
                quote = None;
                code.push(close);
            }
            (Some(_), _) => {}
            (None, '"') => {
                quote = Some('"');
                code.push('"');
            }
            (None, '/') if rest.peek() == Some(&'/') => break,
            (None, '/') if rest.peek() == Some(&'*') => {
                let mut star = false;
                rest.next();
                for inside in rest.by_ref() {
                    if star && inside == '/' {
                        break;
                    }
                    star = inside == '*';
                }
            }
            (None, other) => code.push(other),
        }
    }
    code
}

fn name_in_statement(statement: &str, extension: &str, callee: Option<&str>) -> Option<String> {
    let name = match extension.to_ascii_lowercase().as_str() {
        "f" | "f77" | "f90" | "f95" | "f03" | "f08" | "for" => fortran_name(statement),
        "rs" => rust_name(statement, callee),
        _ => c_name(statement, callee),
    }?;
    let name = tidy(name.trim());
    let shown = !name.is_empty() && name.chars().count() <= NAME_CHARS_MAX && name.chars().any(char::is_alphabetic);
    shown.then_some(name)
}

/// Position of `word` as a word (or the end of a longer name, as in `xmalloc`).
fn position_of(text: &str, word: &str) -> Option<usize> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = text.as_bytes();
    let whole_word = word == "new" || word == "clone";
    text.match_indices(word).map(|(at, _)| at).find(|&at| {
        let after = bytes.get(at + word.len()).is_none_or(|&byte| !is_name(byte));
        let before = at == 0 || !is_name(bytes[at - 1]);
        after && (before || !whole_word)
    })
}

fn allocation_position(statement: &str, callee: Option<&str>) -> Option<usize> {
    let callee = callee.map(|name| name.rsplit("::").next().unwrap_or(name)).filter(|name| !name.is_empty());
    let by_callee = callee.and_then(|name| position_of(statement, name));
    by_callee.or_else(|| ALLOCATING.iter().filter_map(|word| position_of(statement, word)).min())
}

/// The last plain `=` before `limit`.
fn assignment_before(statement: &str, limit: usize) -> Option<usize> {
    let bytes = statement.as_bytes();
    (0..limit.min(bytes.len())).rev().find(|&at| {
        let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
        let after = bytes.get(at + 1).copied().unwrap_or(b' ');
        bytes[at] == b'=' && after != b'=' && !b"=!<>+-*/%&|^".contains(&before)
    })
}

fn c_name(statement: &str, callee: Option<&str>) -> Option<String> {
    let allocation = allocation_position(statement, callee);
    if let Some(equals) = assignment_before(statement, allocation.unwrap_or(statement.len())) {
        return target_before(&statement[..equals]);
    }
    if statement.trim_start().starts_with("return") {
        return None;
    }
    if let Some(at) = GROWING.iter().filter_map(|method| position_of(statement, method)).min() {
        return target_before(&statement[..at]);
    }
    posix_memalign_target(statement).or_else(|| declared_name(statement))
}

/// `posix_memalign((void **)&block, ...)`: its first argument is the target.
fn posix_memalign_target(statement: &str) -> Option<String> {
    let arguments = &statement[position_of(statement, "posix_memalign")? + "posix_memalign".len()..];
    let first = arguments.split(',').next()?;
    let target = first.rsplit('&').next().filter(|_| first.contains('&'))?;
    target_before(target.trim_end_matches(')'))
}

/// The postfix expression at the end of `text`: `float *block ` gives `block`, `p->coord[i] ` the whole.
fn target_before(text: &str) -> Option<String> {
    let text = text.trim_end();
    let bytes = text.as_bytes();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let mut start = text.len();
    while start > 0 {
        let byte = bytes[start - 1];
        let arrow = start >= 2 && &bytes[start - 2..start] == b"->";
        let scope = start >= 2 && &bytes[start - 2..start] == b"::";
        if byte == b']' {
            start = matching_open(bytes, start - 1)?;
        } else if is_name(byte) || byte == b'.' {
            start -= 1;
        } else if arrow || scope {
            start -= 2;
        } else {
            break;
        }
    }
    let name = &text[start..];
    let pointed_to = text[..start].trim_end();
    let is_dereference = pointed_to.ends_with('*')
        && pointed_to
            .trim_end_matches('*')
            .trim_end()
            .rsplit([';', '{', '}', '(', ','])
            .next()
            .is_some_and(str::is_empty);
    Some(if is_dereference && !name.is_empty() { format!("*{name}") } else { name.to_owned() })
        .filter(|n| !n.is_empty())
}

fn matching_open(bytes: &[u8], close: usize) -> Option<usize> {
    let mut depth = 0usize;
    for at in (0..=close).rev() {
        match bytes[at] {
            b']' => depth += 1,
            b'[' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// `std::vector<Point> points(n)`, `Matrix a{n, m}`: a declaration has a type right before the name.
fn declared_name(statement: &str) -> Option<String> {
    let end = bracket_after_templates(statement).unwrap_or(statement.len());
    let head = statement[..end].trim_end();
    let name = target_before(head)?;
    let before = head[..head.len() - name.len()].trim_end();
    let has_type = before.ends_with(['>', '*', '&'])
        || before.chars().next_back().is_some_and(|last| last.is_alphanumeric() || last == '_');
    let keyword = ["return", "new", "delete", "throw", "else", "case", "goto"];
    let is_plain = !name.contains(['.', '[', '>', ':']);
    let last_word = before.rsplit(char::is_whitespace).next().unwrap_or("");
    (has_type && !keyword.contains(&last_word) && is_plain).then_some(name)
}

/// The first `(` or `{` outside `<...>`.
fn bracket_after_templates(statement: &str) -> Option<usize> {
    let mut depth = 0i32;
    for (index, byte) in statement.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' => depth -= 1,
            b'(' | b'{' if depth <= 0 => return Some(index),
            _ => {}
        }
    }
    None
}

fn rust_name(statement: &str, callee: Option<&str>) -> Option<String> {
    if let Some(at) = position_of(statement, "let").filter(|_| statement.contains('=')) {
        let pattern = statement[at + 3..].split('=').next()?.split(':').next()?;
        let name = pattern.trim().trim_start_matches("mut ").trim();
        return name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_').then(|| name.to_owned());
    }
    let allocation = allocation_position(statement, callee);
    if let Some(equals) = assignment_before(statement, allocation.unwrap_or(statement.len())) {
        return target_before(&statement[..equals]);
    }
    if let Some(at) = GROWING.iter().filter_map(|method| position_of(statement, method)).min() {
        return target_before(&statement[..at]);
    }
    // A field of a literal: `data: vec![0; n],`.
    let before = statement[..allocation?].trim_end();
    let field = before.strip_suffix(':').filter(|field| !field.ends_with(':'))?;
    target_before(field)
}

fn fortran_name(statement: &str) -> Option<String> {
    let lower = statement.to_ascii_lowercase();
    let arguments = &statement[position_of(&lower, "allocate")? + "allocate".len()..];
    let arguments = arguments.trim_start().strip_prefix('(')?;
    // A type given first ends in two colons.
    let arguments = arguments.rsplit_once("::").map_or(arguments, |(_, names)| names);
    let name = arguments.split(['(', ',', ')']).next()?.trim();
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'%';
    (!name.is_empty() && name.bytes().all(sound)).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(statement: &str, extension: &str) -> Option<String> {
        let lines: Vec<String> = statement.lines().map(str::to_owned).collect();
        name_in_statement(&statement_around(&lines, lines.len() - 1), extension, None)
    }

    #[test]
    fn c_and_cpp_assignments() {
        for (statement, expected) in [
            ("block = (float*)malloc( chunksize*dim*sizeof(float) );", "block"),
            ("float *block = (float *) malloc(n * sizeof(float)); // = x", "block"),
            ("p->coord[i] = new double[n];", "p->coord[i]"),
            ("points.p[a[i]].coord = &block[i]; q = new T;", "q"),
            ("auto x = std::make_unique<T>(1);", "x"),
            ("if ((buffer = malloc(10)) == NULL) {", "buffer"),
            ("*out = calloc(n, 1);", "*out"),
            ("this->data_ = static_cast<T*>(operator new(n));", "this->data_"),
            ("double *a = xmalloc(n), *b = NULL;", "a"),
            ("std::vector<Point, my<int>> points(n);", "points"),
            ("Matrix a{n, m};", "a"),
            ("table[h].entries.push_back(e);", "table[h].entries"),
            ("posix_memalign((void **)&grid, 64, n);", "grid"),
            ("static int *counts\n    = (int *)\n    calloc(n, 4);", "counts"),
            ("char *s = strdup(\"a = b; c\");", "s"),
        ] {
            assert_eq!(name(statement, "cpp").as_deref(), Some(expected), "{statement}");
        }
    }

    #[test]
    fn statements_of_no_known_form_have_no_name() {
        for statement in [
            "return new double[n];",
            "return malloc(n);",
            "f(malloc(10));",
            "x == y",
            "",
            "= = = [",
            "]]]] = malloc(1)",
        ] {
            assert_eq!(name(&format!(" {statement}"), "cpp"), None, "{statement}");
        }
    }

    #[test]
    fn rust_and_fortran() {
        assert_eq!(name("let mut v: Vec<f64> = vec![0.0; n];", "rs").as_deref(), Some("v"));
        assert_eq!(name("self.rows = Vec::with_capacity(n);", "rs").as_deref(), Some("self.rows"));
        assert_eq!(name("Grid {\n    cells: vec![0; n],", "rs").as_deref(), Some("cells"));
        assert_eq!(name("allocate(a(n), stat=ierr)", "f90").as_deref(), Some("a"));
        assert_eq!(name("ALLOCATE ( grid%cells(n,m) )", "F90").as_deref(), Some("grid%cells"));
    }

    #[test]
    fn hostile_sources_are_left_alone() {
        let mut cache = SourceCache::new();
        assert_eq!(cache.assigned_name("/dev/zero", 1, None), None);
        assert_eq!(cache.assigned_name("/proc/self/mem", 1, None), None);
        assert_eq!(cache.assigned_name("/nonexistent/x.c", 1, None), None);
        let long = format!("{} = malloc(1);", "a".repeat(100_000));
        assert_eq!(name(&long, "c"), None);
    }
}
