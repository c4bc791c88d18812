//! Names the objects of an allocation site.
//!
//! The first *user* frame of the allocating stack is the site: frames of the C and C++ libraries, of allocators, of the standard
//! libraries' templates and generics, and of functions that allocate for others ([`crate::wrappers`]) are skipped.
//! The name is, in this order: the variable that the source line assigns to; the container with its element type, from the skipped
//! frames (`vector<Point>`); the function. If the line allocates for several variables, and neither column nor machine code shows which
//! one is meant, the name lists all of them (`u or v`).

use std::collections::BTreeSet;

use regex_lite::Regex;

use crate::calls::CallOrders;
use crate::cpp_libraries;
use crate::hotspot;
use crate::mariadb;
use crate::source::{Assigned, CallPlace, SourceCache};
use crate::wrappers;

/// Most characters of a name that lists several variables.
const NAMES_CHARS_MAX: usize = 60;

/// One frame of a stack, with its binary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteFrame<'a> {
    /// Demangled name, or empty.
    pub function: &'a str,
    /// Source file, or empty.
    pub file: &'a str,
    /// Line, or 0.
    pub line: u32,
    /// Column in bytes, from 1; 0 where unknown.
    pub column: u32,
    /// Binary's path, or empty.
    pub module: &'a str,
    /// Offset of the code in the binary: the last byte of the call.
    pub offset: u64,
}

/// Name and place of an allocation site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteName {
    /// Name of its objects.
    pub name: String,
    /// Function that allocates.
    pub function: String,
    /// Its source file, or empty.
    pub file: String,
    /// Line, or 0.
    pub line: u32,
    /// Its binary, or empty.
    pub module: String,
}

/// The module of functions of a Python interpreter.
pub const PYTHON: &str = "[python]";
/// The module of methods of a Java virtual machine.
pub const JAVA: &str = "[java]";

/// Functions in a row that pass on a block.
const WRAPPERS_MAX: usize = 8;

/// A regular expression that must match a whole name.
///
/// # Errors
/// It is none.
pub fn wrapper(pattern: &str) -> Result<Regex, regex_lite::Error> {
    Regex::new(&format!("^(?:{pattern})$"))
}

/// Names allocation sites; keeps the sources and binaries that it has read.
#[derive(Debug, Default)]
pub struct SiteNamer {
    sources: SourceCache,
    calls: CallOrders,
    /// Functions that the user named as allocating for others.
    wrappers: Vec<Regex>,
}

impl SiteNamer {
    /// A namer that skips functions whose whole names match one of these regular expressions, too; what is none is left out.
    #[must_use]
    pub fn with_wrappers(patterns: &[String]) -> SiteNamer {
        SiteNamer {
            wrappers: patterns.iter().filter_map(|pattern| wrapper(pattern).ok()).collect(),
            ..SiteNamer::default()
        }
    }

    /// Source files that gave no names, because they were changed after the binary was made.
    #[must_use]
    pub fn changed_sources(&self) -> &BTreeSet<String> {
        self.sources.changed()
    }

    /// Names the site of an allocation made under `frames`, innermost first with inlined frames expanded.
    pub fn name(&mut self, frames: &[SiteFrame<'_>]) -> SiteName {
        self.name_from(frames, 0)
    }

    /// Names the site of a block of a pool that the program carries itself. The function that reports it (whose `np_pool_alloc` of `numapilot_pool.h` is a
    /// frame of its own where it is known) is the pool's allocator; its caller is the site.
    pub fn name_pooled(&mut self, frames: &[SiteFrame<'_>]) -> SiteName {
        // The virtual machine makes what Java allocates: there is no function between the two.
        if let Some(at) = self.first_of_java(frames) {
            return site_at(&frames[at], None);
        }
        let is_report = |frame: &SiteFrame<'_>| frame.function.split('(').next() == Some("np_pool_alloc");
        let allocator = usize::from(frames.first().is_some_and(is_report));
        let outer = frames.get(allocator + 1..).unwrap_or_default();
        let has_caller = self.first_user(outer).is_some_and(|at| outer[at].function != "_start");
        self.name_from(frames, if has_caller { allocator + 1 } else { allocator })
    }

    /// Names the site of an allocation for which the frame at `least`, or one further out, is responsible.
    fn name_from(&mut self, frames: &[SiteFrame<'_>], least: usize) -> SiteName {
        let outer = frames.get(least..).unwrap_or_default();
        let python = self.first_of_python(outer).map(|at| least + at);
        let user = python.or_else(|| self.first_user(outer).map(|at| self.beyond_wrappers(frames, least + at)));
        let fallback = || frames.iter().rposition(|frame| !is_library(frame.module)).unwrap_or(0);
        let at = user.unwrap_or_else(fallback);
        let Some(frame) = frames.get(at) else {
            return SiteName { name: "(unknown site)".to_owned(), ..SiteName::default() };
        };
        let passed_over = &frames[..user.unwrap_or(0)];
        let callee = passed_over.last().map(|frame| frame.function).filter(|name| !name.contains(['<', ' ']));
        let name = self
            .assigned_name(&frames[at..], callee)
            .or_else(|| passed_over.iter().rev().find_map(|frame| container(frame.function)));
        site_at(frame, name)
    }

    /// The innermost method of the user's own Java code, for which Java's library allocates; else that of any Java code.
    fn first_of_java(&self, frames: &[SiteFrame<'_>]) -> Option<usize> {
        let is_named = |function: &str| self.wrappers.iter().any(|wrapper| wrapper.is_match(function));
        let is_java = |frame: &SiteFrame<'_>| frame.module == JAVA;
        let is_own =
            |frame: &SiteFrame<'_>| is_java(frame) && !is_java_library(frame.function) && !is_named(frame.function);
        frames.iter().position(is_own).or_else(|| frames.iter().position(is_java))
    }

    /// The innermost function of the user's own Python code, for which extensions and the interpreter allocate; else that of any Python code.
    fn first_of_python(&self, frames: &[SiteFrame<'_>]) -> Option<usize> {
        let is_named = |function: &str| self.wrappers.iter().any(|wrapper| wrapper.is_match(function));
        let is_python = |frame: &SiteFrame<'_>| frame.module == PYTHON && !is_named(frame.function);
        let is_own = |frame: &SiteFrame<'_>| is_python(frame) && !is_python_library(frame.file);
        frames.iter().position(is_own).or_else(|| frames.iter().position(is_python))
    }

    fn first_user(&self, frames: &[SiteFrame<'_>]) -> Option<usize> {
        let is_named = |function: &str| self.wrappers.iter().any(|wrapper| wrapper.is_match(function));
        let is_own = |frame: &SiteFrame<'_>| !is_machinery(frame.module, frame.file, frame.function);
        let is_of_container = |at: usize| {
            let caller = frames.get(at + 1).map_or("", |caller| caller.function);
            cpp_libraries::is_allocator_of_container(frames[at].function, caller)
        };
        let is_user = |at: &usize| is_own(&frames[*at]) && !is_named(frames[*at].function) && !is_of_container(*at);
        (0..frames.len()).find(is_user)
    }

    /// The frame from `at` outwards whose function does not only pass the block on; `at` itself where nothing but such functions is known.
    fn beyond_wrappers(&mut self, frames: &[SiteFrame<'_>], at: usize) -> usize {
        let mut site = at;
        for _ in 0..WRAPPERS_MAX {
            let frame = &frames[site];
            let callee =
                site.checked_sub(1).map(|inner| frames[inner].function).filter(|name| !name.contains(['<', ' ']));
            let place = CallPlace { line: frame.line, column: frame.column, callee };
            if !self.sources.passes_on(frame.file, frame.module, &place) {
                return site;
            }
            let Some(next) = self.first_user(&frames[site + 1..]) else { return at };
            site += 1 + next;
        }
        site
    }

    /// The variable that takes the allocation made by the first of `frames`.
    fn assigned_name(&mut self, frames: &[SiteFrame<'_>], callee: Option<&str>) -> Option<String> {
        let frame = frames.first()?;
        let place = CallPlace { line: frame.line, column: frame.column, callee };
        let Assigned { names, is_in_call_order } = self.sources.assigned(frame.file, frame.module, &place)?;
        if let [only] = names.as_slice() {
            return only.clone();
        }
        if is_in_call_order && !names.is_empty() {
            let same_call = |other: &&SiteFrame<'_>| (other.module, other.offset) == (frame.module, frame.offset);
            let own = frames.iter().take_while(same_call).count();
            let order = self.calls.order(frame.module, frame.offset, own);
            if let Some(order) = order.filter(|order| order.count == names.len()) {
                return names[order.index].clone();
            }
        }
        any_of(names)
    }
}

/// The site at a frame; without a name of its own it has the function's.
fn site_at(frame: &SiteFrame<'_>, name: Option<String>) -> SiteName {
    let or_function = || if frame.function.is_empty() { "(unknown)".to_owned() } else { frame.function.to_owned() };
    SiteName {
        name: name.unwrap_or_else(or_function),
        function: frame.function.to_owned(),
        file: frame.file.to_owned(),
        line: frame.line,
        module: frame.module.to_owned(),
    }
}

/// Packages that come with Java, and with other languages of its virtual machine. The class that the machine makes of a reference to a constructor
/// (`Cell::new`) allocates by itself, for what calls it, and has no lines.
fn is_java_library(function: &str) -> bool {
    const PACKAGES: [&str; 11] = [
        "java.",
        "javax.",
        "jdk.",
        "sun.",
        "com.sun.",
        "kotlin.",
        "kotlinx.",
        "scala.",
        "groovy.",
        "org.codehaus.groovy.",
        "clojure.",
    ];
    const MADE: &str = "$$Lambda.";
    PACKAGES.iter().any(|package| function.starts_with(package)) || function.contains(MADE)
}

/// The names joined as `u or v`; `None` if one is missing, or the result is too long.
fn any_of(names: Vec<Option<String>>) -> Option<String> {
    let mut names = names.into_iter().collect::<Option<Vec<String>>>()?;
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    Some(names.join(" or ")).filter(|name| !name.is_empty() && name.chars().count() <= NAMES_CHARS_MAX)
}

/// Whether a mapping made under `frames` is one of those in which a Python interpreter keeps its small objects (`Objects/obmalloc.c`): what lies in it is
/// of no one line. Of a stripped interpreter, every mapping that its own code makes, none of an extension's.
#[must_use]
pub fn is_python_arena(frames: &[SiteFrame<'_>]) -> bool {
    let Some(frame) = frames.iter().find(|frame| !is_library(frame.module)) else { return false };
    let base = frame.module.rsplit('/').next().unwrap_or("");
    let is_interpreter = base.starts_with("python3") || base.starts_with("libpython3");
    let is_unnamed = frame.function.is_empty() || frame.function.starts_with(&format!("{base}+0x"));
    let is_arena = frame.function.contains("ArenaMmap") || frame.function.contains("ArenaAlloc");
    is_arena || (is_interpreter && is_unnamed)
}

/// Packages that were installed, and what comes with Python.
fn is_python_library(file: &str) -> bool {
    const FOLDERS: [&str; 4] = ["/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3"];
    // What numpy up to 1.24 (around its own functions) and the package decorator compile when they are imported.
    const GENERATED: [&str; 3] = ["<frozen ", "<__array_function__ ", "<decorator-gen-"];
    GENERATED.iter().any(|name| file.starts_with(name)) || FOLDERS.iter().any(|folder| file.contains(folder))
}

/// Libraries whose frames are never the user's allocation site.
fn is_library(module: &str) -> bool {
    // Files of the C library before 2.34 have its version in their names.
    const LIBRARIES: [&str; 33] = [
        "libc.so",
        "libc-2.",
        "ld-2.",
        "libm-2.",
        "libdl-2.",
        "libstdc++",
        "libc++",
        "libstd-",
        "libgcc",
        "ld-linux",
        "libnumapilot",
        "libtcmalloc",
        "libjemalloc",
        "libmimalloc",
        "libtbbmalloc",
        "libsnmalloc",
        "librpmalloc",
        "libhoard.so",
        "libmemkind.so",
        "libhwloc.so",
        "libgomp",
        "libomp",
        "libiomp",
        "libgfortran",
        "libifcore",
        "libifport",
        "libflang",
        "libFortranRuntime",
        "libnvf.so",
        "libnuma.so",
        "libm.so",
        "libpthread",
        "libdl.so",
    ];
    let base = module.rsplit('/').next().unwrap_or("");
    LIBRARIES.iter().any(|library| base.starts_with(library))
}

/// Whether a function belongs to what programs are built on (the C library, allocators, containers of C++ and Rust, Go's runtime, wrappers of these), and so
/// does what its caller wants. `module` is the binary's path, `file` the source file or empty.
#[must_use]
pub fn is_machinery(module: &str, file: &str, function: &str) -> bool {
    let is_of_program = hotspot::takes_memory(module, function) || mariadb::allocates_for_callers(module, function);
    if is_library(module) || is_system_header(file) || is_of_program {
        return true;
    }
    // Those of the run-time libraries of Fortran (Intel's, LLVM's, NVIDIA's) are in programs, too, which are often linked to them statically.
    const PREFIXES: [&str; 29] = [
        "runtime.",
        "internal/runtime/",
        "reflect.unsafe_New",
        "std::",
        "__gnu_cxx::",
        "operator new",
        "hashbrown::",
        "<hashbrown::",
        "indexmap::",
        "<indexmap::",
        "smallvec::",
        "<smallvec::",
        "bumpalo::",
        "<bumpalo::",
        "__rust",
        "__rdl_",
        "__rg_",
        "__gthread",
        "for_alloc",
        "for_realloc_lhs",
        "for__get_vm",
        "_FortranA",
        "Fortran::runtime::",
        "f90_alloc",
        "f90_ptr_alloc",
        "f90_auto_alloc",
        "__alloc0",
        "__fort_",
        "Eigen::",
    ];
    let is_known = PREFIXES.iter().any(|prefix| function.starts_with(prefix));
    let is_known = is_known || cpp_libraries::allocates_for_callers(function) || is_rust_allocator(function);
    is_known || (file.is_empty() && is_rust_library(function)) || wrappers::is_named_like_one(function)
}

/// Whether a function is named like one of Rust's own libraries. Namespaces of C++ have such names, too (`core::Grid::load`), and programs implement traits
/// for the libraries' types (`<alloc::vec::Vec<T> as core::convert::From<app::Grid>>::from`): where a file is known, it tells.
fn is_rust_library(function: &str) -> bool {
    const PREFIXES: [&str; 5] = ["alloc::", "core::", "<alloc::", "<core::", "<std::"];
    PREFIXES.iter().any(|prefix| function.starts_with(prefix)) || is_of_basic_type(function)
}

/// Whether a function implements one of Rust's traits for allocators (`<tikv_jemallocator::Jemalloc as core::alloc::global::GlobalAlloc>::alloc`).
fn is_rust_allocator(function: &str) -> bool {
    const TRAITS: [&str; 3] = [
        " as core::alloc::global::GlobalAlloc>::",
        " as core::alloc::Allocator>::",
        " as allocator_api2::stable::alloc::Allocator>::",
    ];
    function.starts_with('<') && TRAITS.iter().any(|of| function.contains(of))
}

/// Whether a function implements a trait of Rust's library `alloc` for a basic type or any type, as no other library may:
/// `<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem`, `<T as alloc::string::ToString>::to_string`.
fn is_of_basic_type(function: &str) -> bool {
    const BASIC: [&str; 17] = [
        "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128", "usize", "f32", "f64", "bool",
        "char", "str",
    ];
    let Some((own, of)) = function.strip_prefix('<').and_then(|rest| rest.split_once(" as ")) else { return false };
    let own = own.trim_start_matches(['&', '[']).trim_end_matches(']');
    let is_any = own.len() == 1 && own.bytes().all(|byte| byte.is_ascii_uppercase());
    of.starts_with("alloc::") && (is_any || BASIC.contains(&own))
}

/// Headers of the standard libraries: templates and generics that were compiled into the program.
fn is_system_header(file: &str) -> bool {
    file.contains("/include/c++/")
        || file.starts_with("/rustc/")
        || file.contains("/rustlib/src/rust/")
        || file.contains("/library/alloc/src/")
        || file.contains("/library/core/src/")
        || file.contains("/library/std/src/")
}

/// The container of a member function: `std::vector<Point, std::allocator<Point> >::vector` gives `vector<Point>`; the element's own arguments are kept.
fn container(function: &str) -> Option<String> {
    const CONTAINERS: [&str; 16] = [
        "std::vector<",
        "std::deque<",
        "std::list<",
        "std::map<",
        "std::set<",
        "std::unordered_map<",
        "std::unordered_set<",
        "std::make_unique<",
        "std::make_shared<",
        "std::unique_ptr<",
        "std::shared_ptr<",
        "std::allocator<",
        "__gnu_cxx::new_allocator<",
        "std::__new_allocator<",
        "alloc::vec::Vec<",
        "std::basic_string<",
    ];
    // Without the namespaces that the binary interfaces of libstdc++ and libc++ put in between.
    let function = function.replace("std::__cxx11::", "std::").replace("std::__1::", "std::");
    // Containers in a template's arguments are others: `std::map<int, std::vector<int> >::operator[]`.
    let own = CONTAINERS.into_iter().find_map(|prefix| {
        let is_own = |at: &usize| prefix.starts_with("alloc::") || !function[..*at].contains('<');
        Some((function.find(prefix).filter(is_own)?, prefix))
    });
    // A single allocator in them is the template's own: `std::_Vector_base<int, std::allocator<int> >::_M_allocate`.
    let by_allocator = || {
        const ALLOCATOR: &str = "std::allocator<";
        let at = function.find(ALLOCATOR)?;
        (function.matches(ALLOCATOR).count() == 1).then_some((at, ALLOCATOR))
    };
    let (at, prefix) = own.or_else(by_allocator)?;
    let word = prefix.trim_end_matches('<').rsplit("::").next()?;
    let element = first_argument(&function[at + prefix.len()..])?;
    match word {
        "basic_string" => Some("string".to_owned()),
        "allocator" | "new_allocator" | "__new_allocator" => Some(format!("{element}[]")),
        "make_unique" | "make_shared" | "unique_ptr" | "shared_ptr" => Some(element.to_owned()),
        _ => Some(format!("{word}<{element}>")),
    }
    .filter(|name| name.chars().count() <= 60)
}

/// The first template argument of `text`, which begins right after the "<".
fn first_argument(text: &str) -> Option<&str> {
    let mut depth = 0i32;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'<' | b'(' => depth += 1,
            b'>' | b',' if depth == 0 => return Some(text[..index].trim()).filter(|argument| !argument.is_empty()),
            b'>' | b')' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame<'a>(function: &'a str, module: &'a str) -> SiteFrame<'a> {
        SiteFrame { function, module, ..SiteFrame::default() }
    }

    #[test]
    fn allocators_libraries_and_wrappers_are_passed_over() {
        let frames = [
            frame("malloc", "/usr/lib/libnumapilot-track.so"),
            frame("operator new", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"),
            frame("std::__new_allocator<Point>::allocate", "/home/u/prog"),
            frame("std::vector<Point, std::allocator<Point> >::vector", "/home/u/prog"),
            frame("pgain", "/home/u/prog"),
            frame("main", "/home/u/prog"),
        ];
        let site = SiteNamer::default().name(&frames);
        assert_eq!((site.name.as_str(), site.function.as_str()), ("vector<Point>", "pgain"));
        let site = SiteNamer::default().name(&[frame("xmalloc", "/p"), frame("read_all", "/p")]);
        assert_eq!(site.name, "read_all");
        let loaded =
            [frame("_dl_new_object", "/lib/ld-2.31.so"), frame("dlopen", "/lib/libdl-2.31.so"), frame("main", "/p")];
        assert_eq!(SiteNamer::default().name(&loaded).name, "main");
        let mail = [frame("calloc", "/lib/libc-2.31.so"), frame("mail_open", "/usr/lib/libc-client.so.2007e")];
        assert_eq!(SiteNamer::default().name(&mail).name, "mail_open", "no C library");
    }

    #[test]
    fn allocators_of_fortrans_run_time_libraries_of_eigen_and_of_v8_are_passed_over() {
        let site = |inner: &[&str]| {
            let functions = inner.iter().copied().chain(["alloc_space", "main"]);
            let frames: Vec<SiteFrame<'_>> = functions.map(|function| frame(function, "/home/u/prog")).collect();
            SiteNamer::default().name(&frames).function
        };
        assert_eq!(site(&["for__get_vm", "for_alloc_allocatable"]), "alloc_space", "Intel's");
        assert_eq!(site(&["Fortran::runtime::Descriptor::Allocate", "_FortranAAllocatableAllocate"]), "alloc_space");
        assert_eq!(site(&["__fort_malloc_without_abort", "__alloc04_i8", "f90_alloc04_chka_i8"]), "alloc_space");
        let eigen = ["Eigen::internal::aligned_malloc", "Eigen::DenseStorage<double, -1, -1, -1, 0>::resize"];
        assert_eq!(site(&eigen), "alloc_space");
        assert_eq!(site(&["v8::internal::AllocAtLeastWithRetry"]), "alloc_space");
    }

    #[test]
    fn allocators_of_cpp_programs_and_of_their_containers_are_passed_over() {
        let site_in = |module: &str, inner: &[&str]| {
            let functions = inner.iter().copied().chain(["fill", "main"]);
            let frames: Vec<SiteFrame<'_>> = functions.map(|function| frame(function, module)).collect();
            let site = SiteNamer::default().name(&frames);
            (site.function, site.name)
        };
        let site = |inner: &[&str]| site_in("/home/u/prog", inner);
        let fill = |name: &str| ("fill".to_owned(), name.to_owned());
        let root = ["my_malloc", "root_alloc", "alloc_root", "Sql_alloc::operator new"];
        assert_eq!(site_in("/usr/sbin/mariadbd", &root), fill("fill"));
        let heap = ["ut_allocator<unsigned char, true>::allocate", "mem_heap_create_block_func", "mem_heap_add_block"];
        assert_eq!(site(&[&heap[..], &["mem_heap_alloc"]].concat()), fill("fill"));
        let arena = ["operator new[]", "rocksdb::Arena::AllocateNewBlock", "rocksdb::Arena::AllocateFallback"];
        assert_eq!(site(&arena), fill("fill"));
        let own = ["mine::Huge<double>::allocate", "std::allocator_traits<mine::Huge<double> >::allocate"];
        let vector = "std::vector<double, mine::Huge<double> >::reserve";
        assert_eq!(site(&[&own[..], &[vector]].concat()), fill("vector<double>"));
        // By a similar name alone, none is passed over.
        for similar in ["Grid::allocate", "Arena::AllocateRows", "numa_allocate_grid", "alloc_root", "mem_heap_create"]
        {
            assert_eq!(site(&[similar, "Grid::Grid"]).0, similar);
        }
    }

    /// Heap, code cache and tables of a Java virtual machine were one row, `os::pd_commit_memory`.
    #[test]
    fn memory_of_a_java_virtual_machine_is_named_after_what_it_is_for() {
        let at = |functions: &[&str]| {
            let library = "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so";
            let inner = [frame("mmap", "/lib/libc.so.6"), frame("os::pd_commit_memory", library)];
            let outer = functions.iter().map(|function| frame(function, library));
            let frames: Vec<SiteFrame<'_>> = inner.into_iter().chain(outer).collect();
            SiteNamer::default().name(&frames).function
        };
        let commit = ["os::commit_memory", "PSVirtualSpace::expand_by"];
        for generation in ["PSYoungGen::initialize_virtual_space", "PSOldGen::initialize_virtual_space"] {
            assert_eq!(at(&[&commit[..], &[generation, "PSOldGen::initialize"]].concat()), generation);
        }
        let serial =
            ["os::commit_memory", "VirtualSpace::expand_by", "VirtualSpace::initialize", "Generation::Generation"];
        for generation in ["DefNewGeneration::DefNewGeneration", "TenuredGeneration::TenuredGeneration"] {
            assert_eq!(at(&[&serial[..], &[generation, "SerialHeap::initialize"]].concat()), generation);
        }
        let regions = ["G1PageBasedVirtualSpace::commit", "G1RegionsLargerThanCommitSizeMapper::commit_regions"];
        assert_eq!(
            at(&[&regions[..], &["HeapRegionManager::commit_regions"]].concat()),
            "HeapRegionManager::commit_regions"
        );
        // Explicit huge pages are committed when they are reserved, with every collector.
        let reserved = ["os::reserve_memory_special", "ReservedSpace::initialize", "ReservedHeapSpace::try_reserve"];
        let newer = ["MemoryReserver::reserve_memory_special", "MemoryReserver::reserve", "HeapReserver::reserve"];
        for layers in [reserved, newer] {
            let user = "Universe::reserve_heap";
            assert_eq!(at(&[&layers[..], &[user, "G1CollectedHeap::initialize"]].concat()), user);
        }
        for shenandoah in
            ["ShenandoahHeap::initialize", "ShenandoahHeapRegion::do_commit", "ShenandoahHeap::commit_bitmap_slice"]
        {
            assert_eq!(at(&["os::commit_memory_or_exit", shenandoah, "ShenandoahHeap::allocate_memory"]), shenandoah);
        }
        assert_eq!(at(&["os::commit_memory", "VirtualSpace::expand_by", "CodeHeap::reserve"]), "CodeHeap::reserve");
        assert_eq!(
            at(&["os::commit_memory", "PSVirtualSpace::expand_by"]),
            "PSVirtualSpace::expand_by",
            "all that is known"
        );
    }

    #[test]
    fn libraries_of_allocators_and_hwloc_are_passed_over() {
        for library in ["libtbbmalloc.so.2", "libhwloc.so.15", "libmemkind.so.0", "libsnmallocshim.so"] {
            let inner = format!("{library}+0x1234");
            let path = format!("/usr/lib/x86_64-linux-gnu/{library}");
            let frames = [frame("mmap", "/lib/libc.so.6"), frame(&inner, &path), frame("main", "/p")];
            assert_eq!(SiteNamer::default().name(&frames).function, "main", "{library}");
        }
    }

    /// They were taken for Rust's libraries, and their callers for the sites of what they allocate.
    #[test]
    fn functions_that_are_named_like_rusts_libraries_have_a_file_of_their_own() {
        let at = |function, file| {
            let frames = [SiteFrame { file, ..frame(function, "/p") }, frame("main", "/p")];
            SiteNamer::default().name(&frames).function
        };
        let from = "<alloc::vec::Vec<f64> as core::convert::From<app::Grid>>::from";
        for own in ["core::Grid::load", "alloc::nodes", from] {
            assert_eq!(at(own, "/srv/grid"), own);
            assert_eq!(at(own, ""), "main", "nothing but the name is known");
        }
        assert_eq!(at("core::iter::adapters::map", "/rustc/abc/library/core/src/iter/adapters/map.rs"), "main");
        let installed =
            "/root/.rustup/toolchains/stable/lib/rustlib/src/rust/library/stdarch/crates/core_arch/src/x86/avx.rs";
        assert_eq!(at("core::core_arch::x86::avx::_mm256_loadu_pd", installed), "main");
        assert_eq!(at("_alloc_node", ""), "_alloc_node", "a constructor");
    }

    #[test]
    fn what_rusts_library_implements_for_basic_types_allocates_for_the_program() {
        let at = |function| SiteNamer::default().name(&[frame(function, "/p"), frame("app::main", "/p")]).function;
        for library in [
            "<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem",
            "<T as alloc::slice::hack::ConvertVec>::to_vec",
            "<[T] as alloc::borrow::ToOwned>::to_owned",
            "<str as alloc::string::ToString>::to_string",
        ] {
            assert_eq!(at(library), "app::main");
        }
        for own in ["<app::Grid as alloc::borrow::ToOwned>::to_owned", "<u64 as app::Cells>::of", "<T"] {
            assert_eq!(at(own), own);
        }
    }

    /// All that a program with a global allocator of its own allocates was one site.
    #[test]
    fn allocators_of_rust_allocate_for_their_callers() {
        let at = |function: &str, file: &str| {
            let inner = [frame("_rjem_malloc", "/p"), SiteFrame { file, ..frame(function, "/p") }];
            let outer = [frame("__rg_alloc", "/p"), frame("app::load", "/p")];
            SiteNamer::default().name(&[inner, outer].concat()).function
        };
        let global = "<tikv_jemallocator::Jemalloc as core::alloc::global::GlobalAlloc>::alloc";
        for (function, file) in [
            (global, "/root/.cargo/registry/src/tikv-jemallocator-0.6.0/src/lib.rs"),
            ("<app::Counting as core::alloc::global::GlobalAlloc>::realloc", "/srv/app/src/main.rs"),
            ("<&app::Arena as core::alloc::Allocator>::allocate", ""),
            ("smallvec::SmallVec<A>::try_grow", ""),
        ] {
            assert_eq!(at(function, file), "app::load", "{function}");
        }
        for own in ["<app::Grid as app::GlobalAlloc>::alloc", "app::GlobalAlloc::fill"] {
            assert_eq!(at(own, ""), own);
        }
    }

    #[test]
    fn the_caller_of_a_pools_allocator_is_the_site() {
        let of = |frames: &[SiteFrame<'_>]| SiteNamer::default().name_pooled(frames).function;
        let (report, taken) = (frame("np_pool_alloc", "/p"), frame("take_from_region", "/p"));
        let (user, main, libc) =
            (frame("parse", "/p"), frame("main", "/p"), frame("__libc_start_main", "/lib/libc.so.6"));
        assert_eq!(of(&[report, taken, user, main]), "parse");
        assert_eq!(of(&[taken, user, main]), "parse", "inlined, and not known");
        let cpp = frame("np_pool_alloc(unsigned int, void const*, unsigned long)", "/p");
        assert_eq!(of(&[cpp, taken, frame("std::vector<int>::reserve", "/p"), user]), "parse");
        assert_eq!(of(&[report, main, libc, frame("_start", "/p")]), "main", "nobody calls it who could be meant");
        assert_eq!(of(&[]), "");
    }

    #[test]
    fn what_is_allocated_for_python_belongs_to_the_users_line() {
        let at = |function, file, line| SiteFrame { file, line, ..frame(function, PYTHON) };
        let numpy = frame("array_new", "/usr/lib/numpy/core/_multiarray_umath.so");
        let layer = at("ones", "/usr/lib/python3/dist-packages/numpy/core/numeric.py", 191);
        let own = at("Grid.fill", "/srv/grid.py", 12);
        let frames = [frame("malloc", "/lib/libc.so.6"), numpy, layer, own, frame("main", "/usr/bin/python3")];
        let site = SiteNamer::default().name(&frames);
        assert_eq!((site.name.as_str(), site.function.as_str(), site.line), ("Grid.fill", "Grid.fill", 12));
        let site = SiteNamer::default().name(&[numpy, layer]);
        assert_eq!((site.function.as_str(), site.line), ("ones", 191));
        // The innermost function of Python is one that numpy has made, and that the C function of its name is called through.
        let made = at("concatenate", "<__array_function__ internals>", 200);
        let standard = at("repeat", "/usr/lib64/python3.12/itertools.py", 7);
        let decorated = at("fill", "<decorator-gen-7>", 2);
        assert_eq!(SiteNamer::default().name(&[numpy, made, standard, decorated, own]).line, 12);
        let namer = |pattern: &str| SiteNamer::with_wrappers(&[pattern.to_owned()]);
        let outer = at("main", "/srv/grid.py", 30);
        assert_eq!(namer("Grid\\..*").name(&[numpy, own, outer]).line, 30);
    }

    #[test]
    fn what_is_allocated_for_java_belongs_to_the_users_method() {
        let at = |function, file, line| SiteFrame { file, line, ..frame(function, JAVA) };
        let library = at("java.util.HashMap.resize", "java/util/HashMap.java", 702);
        let (own, main) = (at("acme.Cache.put", "acme/Cache.java", 31), at("acme.Main.main", "acme/Main.java", 9));
        let name = |frames: &[SiteFrame<'_>], wrappers: &[String]| {
            let site = SiteNamer::with_wrappers(wrappers).name_pooled(frames);
            (site.function, site.line, site.module)
        };
        let named = |function: &str, line| (function.to_owned(), line, JAVA.to_owned());
        assert_eq!(name(&[own, main], &[]), named("acme.Cache.put", 31), "the innermost, which allocates by itself");
        assert_eq!(name(&[library, own, main], &[]), named("acme.Cache.put", 31));
        assert_eq!(name(&[library, own, main], &["acme\\.Cache\\..*".to_owned()]), named("acme.Main.main", 9));
        for other in
            ["kotlin.collections.ArraysKt.copyOf", "scala.collection.mutable.ArrayBuffer.grow", "clojure.lang.RT.cons"]
        {
            assert_eq!(name(&[at(other, "Library.java", 5), own, main], &[]), named("acme.Cache.put", 31), "{other}");
        }
        let reference = at("acme.Cache$$Lambda.get", "", 0);
        let stream = at("java.util.stream.Streams.generate", "java/util/stream/Streams.java", 5);
        assert_eq!(name(&[reference, stream, own, main], &[]), named("acme.Cache.put", 31), "Cell::new");
        let body = at("acme.Cache.lambda$put$0", "acme/Cache.java", 40);
        assert_eq!(name(&[body, reference, own, main], &[]), named("acme.Cache.lambda$put$0", 40));
        assert_eq!(name(&[at("scalable.Grid.fill", "Grid.java", 5), main], &[]), named("scalable.Grid.fill", 5));
        assert_eq!(name(&[library], &[]), named("java.util.HashMap.resize", 702), "the virtual machine's own threads");
    }

    #[test]
    fn what_gos_runtime_allocates_belongs_to_the_program() {
        let at = |functions: &[&str]| {
            let frames: Vec<SiteFrame<'_>> = functions.iter().map(|function| frame(function, "/srv/table")).collect();
            SiteNamer::default().name_pooled(&frames).function
        };
        assert_eq!(at(&["runtime.makeslice", "main.fill", "main.main", "runtime.main"]), "main.fill");
        assert_eq!(at(&["runtime.rawstring", "runtime.concatstrings", "main.join", "runtime.main"]), "main.join");
        assert_eq!(at(&["runtime.newobject", "runtime.main"]), "runtime.main", "the runtime's own");
        let map = ["runtime.newarray", "internal/runtime/maps.newGroups", "internal/runtime/maps.(*table).grow"];
        assert_eq!(at(&[&map[..], &["runtime.mapassign_fast64", "main.count"]].concat()), "main.count");
        assert_eq!(at(&["runtime.newarray", "reflect.unsafe_NewArray", "main.fill"]), "main.fill");
    }

    #[test]
    fn memory_for_pythons_small_objects_is_of_no_line() {
        let below = [frame("mmap", "/lib/libnumapilot-track.so")];
        let under = |function, module| is_python_arena(&[below[0], frame(function, module), frame("fill", PYTHON)]);
        assert!(under("python3.11+0x62d098", "/usr/bin/python3.11") && under("_PyObject_ArenaMmap", "/opt/blender"));
        assert!(under("libpython3.9.so.1.0+0x62d098", "/usr/lib/libpython3.9.so.1.0"));
        assert!(
            !under("new_mmap_object", "/usr/bin/python3.11") && !under("", "/usr/lib/numpy/core/_multiarray_umath.so")
        );
        assert!(!is_python_arena(&below) && !is_python_arena(&[frame("fill", PYTHON)]));
    }

    #[test]
    fn functions_that_the_user_names_are_passed_over() {
        let frames = [
            frame("malloc", "/lib/libc.so.6"),
            frame("pool_take", "/p"),
            frame("node_new", "/p"),
            frame("insert", "/p"),
        ];
        let named = |patterns: &[&str]| {
            let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
            SiteNamer::with_wrappers(&patterns).name(&frames).function
        };
        assert_eq!(named(&[]), "pool_take");
        assert_eq!(named(&["pool_.*"]), "node_new");
        assert_eq!(named(&["pool_.*", "node_new"]), "insert");
        assert_eq!(named(&["pool|node"]), "pool_take", "whole names only");
        assert_eq!(named(&["("]), "pool_take", "no regular expression");
        assert_eq!(named(&[".*"]), "insert", "where all are named, the outermost");
    }

    #[test]
    fn a_stack_of_nothing_but_wrappers_names_the_outermost() {
        let frames = [frame("xmalloc", "/p"), frame("my_malloc", "/p"), frame("start", "/lib/libc.so.6")];
        let site = SiteNamer::default().name(&frames);
        assert_eq!(site.function, "my_malloc");
        assert_eq!(SiteNamer::default().name(&[]).name, "(unknown site)");
    }

    #[test]
    fn element_types() {
        assert_eq!(
            container("std::vector<std::pair<int, char>, A>::push_back").as_deref(),
            Some("vector<std::pair<int, char>>")
        );
        assert_eq!(container("std::allocator<Node>::allocate").as_deref(), Some("Node[]"));
        assert_eq!(container("std::vector<"), None);
        let vector = "std::vector<double, std::allocator<double> >";
        let map = format!("std::map<int, {vector}, std::less<int> >::operator[]");
        assert_eq!(container(&map).as_deref(), Some("map<int>"), "not what it holds");
        let pair = format!("std::pair<int const, {vector} >");
        let tree = format!("std::_Rb_tree<int, {pair}, std::less<int>, std::allocator<{pair} > >::_M_create_node");
        assert_eq!(container(&tree), None);
        for (function, name) in [
            ("std::_Vector_base<double, std::allocator<double> >::_M_allocate", "double[]"),
            ("std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::_M_create", "string"),
            ("std::__1::vector<Point, std::__1::allocator<Point> >::reserve", "vector<Point>"),
            ("<alloc::vec::Vec<u64> as core::clone::Clone>::clone", "Vec<u64>"),
        ] {
            assert_eq!(container(function).as_deref(), Some(name));
        }
    }
}
