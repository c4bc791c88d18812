//! Allocators that a binary carries itself, by the names of their functions.
//!
//! A library in a program that is called directly cannot be intercepted, so its blocks are missing from recordings. Engine `emulate` follows these functions
//! in the emulator (`crates/emulator/c/allocator_names.c`, which has all of their names).

use std::path::Path;

use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use crate::blocks;
use crate::go_table::{self, GoTable};
use crate::separate::DebugFolders;
use crate::unresolved::{Unresolved, check_build_id, check_path};

/// A function of each allocator by which it is known.
const NAMES: [&[u8]; 7] = [
    b"je_malloc",
    b"_rjem_malloc",
    b"rjem_malloc",
    b"duckdb_je_malloc",
    b"jemalloc_malloc",
    b"tc_malloc",
    b"mi_malloc",
];
/// The C library's function.
const STANDARD: &[u8] = b"malloc";
/// The function of Go's heap.
const GO: &str = "runtime.mallocgc";

/// The allocation function by which the binary at `path` is known to carry an allocator that is called directly: a name of its own (`je_malloc`), `malloc` of a
/// program, or Go's `runtime.mallocgc` of one into which a library can be loaded. `None` if there is none, also of a library that replaces `malloc`: what
/// calls `malloc` reaches it through the loader.
///
/// # Errors
/// If the file does not exist, is no ELF file, or is not the recorded binary.
pub fn own_allocator(path: &str, build_id: &[u8], is_program: bool) -> Result<Option<String>, Unresolved> {
    check_path(path)?;
    let cache = blocks::open(path).map_err(|_| Unresolved::NoFile)?;
    let file = object::File::parse(&cache).map_err(|_| Unresolved::NotElf)?;
    check_build_id(file.build_id().ok().flatten(), build_id)?;
    let mut names = names_in(&file);
    if names == Names::default() && file.symbols().next().is_none() {
        names = names_in_debug_file(path);
    }
    if names.has_malloc {
        return Ok(is_program.then(|| "malloc".to_owned()));
    }
    Ok(names.own.or_else(|| has_go_heap(&file).then(|| GO.to_owned())))
}

/// What the symbols of a file tell.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    /// It replaces the C library's function.
    has_malloc: bool,
    own: Option<String>,
}

fn names_in<'d>(file: &impl Object<'d>) -> Names {
    let mut names = Names::default();
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        if symbol.kind() != SymbolKind::Text || !symbol.is_definition() {
            continue;
        }
        let Ok(name) = symbol.name_bytes() else { continue };
        names.has_malloc |= name == STANDARD && symbol.is_global();
        if names.own.is_none() && NAMES.contains(&name) {
            names.own = Some(String::from_utf8_lossy(name).into_owned());
        }
    }
    names
}

fn names_in_debug_file(path: &str) -> Names {
    let Some(debug) = DebugFolders::default().find(Path::new(path)).file else { return Names::default() };
    let Ok(cache) = blocks::open(debug) else { return Names::default() };
    object::File::parse(&cache).map(|file| names_in(&file)).unwrap_or_default()
}

fn has_go_heap<'d>(file: &impl Object<'d>) -> bool {
    // What imports nothing has no C library (`-buildmode=pie` without cgo), so that a library would be loaded and never called.
    let is_dynamic = file.section_by_name(".interp").is_some() && file.dynamic_symbols().any(|one| one.is_undefined());
    let table = go_table::SECTIONS.iter().find_map(|name| file.section_by_name(name));
    is_dynamic && table.and_then(|table| table.data().ok()).is_some_and(GoTable::is_recent)
}

/// Whether the binary at `path` has a symbol table of its own, in which an allocator would be found.
///
/// # Errors
/// If the file does not exist, is no ELF file, or is not the recorded binary.
pub fn has_symbols(path: &str, build_id: &[u8]) -> Result<bool, Unresolved> {
    check_path(path)?;
    let cache = blocks::open(path).map_err(|_| Unresolved::NoFile)?;
    let file = object::File::parse(&cache).map_err(|_| Unresolved::NotElf)?;
    check_build_id(file.build_id().ok().flatten(), build_id)?;
    Ok(file.symbols().next().is_some())
}
