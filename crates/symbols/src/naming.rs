//! What to call the objects of an allocation site.
//!
//! The first *user* frame of the allocating stack counts: frames of the C and C++ libraries, of allocators, of the standard
//! libraries' templates and generics, and of thin wrappers that are named like one (`xmalloc`, `my_malloc`, `safe_calloc`) are passed over.
//! The name is, in this order: the variable that the source line assigns to; the container with its element type, from the
//! passed-over frames (`vector<Point>`); the function.

use crate::source::SourceCache;

/// One frame of a stack, with its binary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteFrame<'a> {
    /// Demangled name, or empty.
    pub function: &'a str,
    /// Source file, or empty.
    pub file: &'a str,
    /// Line, or 0.
    pub line: u32,
    /// Binary's path, or empty.
    pub module: &'a str,
}

/// Name and place of an allocation site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteName {
    /// What to call its objects.
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

/// Names the site of an allocation made under `frames`, innermost first with inlined frames expanded.
pub fn name_site(frames: &[SiteFrame<'_>], sources: &mut SourceCache) -> SiteName {
    let user = frames.iter().position(|frame| !is_machinery(frame));
    let fallback = || frames.iter().rposition(|frame| !is_library(frame.module)).unwrap_or(0);
    let Some(frame) = frames.get(user.unwrap_or_else(fallback)) else {
        return SiteName { name: "(unknown site)".to_owned(), ..SiteName::default() };
    };
    let passed_over = &frames[..user.unwrap_or(0)];
    let callee = passed_over.last().map(|frame| frame.function).filter(|name| !name.contains(['<', ' ']));
    let name = sources
        .assigned_name(frame.file, frame.line, callee)
        .or_else(|| passed_over.iter().rev().find_map(|frame| container(frame.function)))
        .unwrap_or_else(|| if frame.function.is_empty() { "(unknown)".to_owned() } else { frame.function.to_owned() });
    SiteName {
        name,
        function: frame.function.to_owned(),
        file: frame.file.to_owned(),
        line: frame.line,
        module: frame.module.to_owned(),
    }
}

/// Libraries whose frames are never the user's allocation site.
fn is_library(module: &str) -> bool {
    const LIBRARIES: [&str; 18] = [
        "libc.so",
        "libc-",
        "libstdc++",
        "libc++",
        "libgcc",
        "ld-linux",
        "libnumapilot",
        "libtcmalloc",
        "libjemalloc",
        "libmimalloc",
        "libgomp",
        "libomp",
        "libiomp",
        "libgfortran",
        "libnuma.so",
        "libm.so",
        "libpthread",
        "libdl.so",
    ];
    let base = module.rsplit('/').next().unwrap_or("");
    LIBRARIES.iter().any(|library| base.starts_with(library))
}

fn is_machinery(frame: &SiteFrame<'_>) -> bool {
    if is_library(frame.module) || is_system_header(frame.file) {
        return true;
    }
    const PREFIXES: [&str; 16] = [
        "std::",
        "__gnu_cxx::",
        "operator new",
        "alloc::",
        "core::",
        "<alloc::",
        "<core::",
        "<std::",
        "hashbrown::",
        "<hashbrown::",
        "__rust",
        "__rdl_",
        "__rg_",
        "boost::container::",
        "__gthread",
        "_alloc",
    ];
    PREFIXES.iter().any(|prefix| frame.function.starts_with(prefix)) || is_wrapper(frame.function)
}

/// Headers of the standard libraries: templates and generics that were compiled into the program.
fn is_system_header(file: &str) -> bool {
    file.contains("/include/c++/")
        || file.starts_with("/rustc/")
        || file.contains("/library/alloc/src/")
        || file.contains("/library/core/src/")
        || file.contains("/library/std/src/")
}

/// Named like an allocation function: `malloc`, `xmalloc`, `my_calloc`, `safe_malloc`, `checked_realloc`, `mem_alloc`.
fn is_wrapper(function: &str) -> bool {
    const ENDINGS: [&str; 10] = [
        "malloc",
        "calloc",
        "realloc",
        "zalloc",
        "memalign",
        "aligned_alloc",
        "valloc",
        "reallocarray",
        "strdup",
        "malloc0",
    ];
    const WRAPPERS: [&str; 8] = [
        "xalloc",
        "my_alloc",
        "safe_alloc",
        "checked_alloc",
        "mem_alloc",
        "do_alloc",
        "alloc_or_die",
        "numa_alloc_onnode",
    ];
    if function.contains("::") {
        return false;
    }
    let name = function.trim_start_matches('_').to_ascii_lowercase();
    let allocates = ENDINGS.iter().any(|ending| name.ends_with(ending)) || WRAPPERS.contains(&name.as_str());
    allocates || name.starts_with("numa_alloc")
}

/// `vector<Point>` out of `std::vector<Point, std::allocator<Point> >::vector`; the element's own arguments are kept.
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
    let start = CONTAINERS.iter().find_map(|prefix| function.find(prefix).map(|at| (at, *prefix)))?;
    let (at, prefix) = start;
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
        let site = name_site(&frames, &mut SourceCache::new());
        assert_eq!((site.name.as_str(), site.function.as_str()), ("vector<Point>", "pgain"));
        let site = name_site(&[frame("xmalloc", "/p"), frame("read_all", "/p")], &mut SourceCache::new());
        assert_eq!(site.name, "read_all");
    }

    #[test]
    fn a_stack_of_nothing_but_wrappers_names_the_outermost() {
        let site = name_site(
            &[frame("xmalloc", "/p"), frame("my_malloc", "/p"), frame("start", "/lib/libc.so.6")],
            &mut SourceCache::new(),
        );
        assert_eq!(site.function, "my_malloc");
        assert_eq!(name_site(&[], &mut SourceCache::new()).name, "(unknown site)");
    }

    #[test]
    fn element_types() {
        assert_eq!(
            container("std::vector<std::pair<int, char>, A>::push_back").as_deref(),
            Some("vector<std::pair<int, char>>")
        );
        assert_eq!(container("std::allocator<Node>::allocate").as_deref(), Some("Node[]"));
        assert_eq!(container("std::vector<"), None);
    }
}
