//! Resolves code offsets of a binary to functions and lines, including inlined functions.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Reason, Sym, Symbolized};
use object::{Object, ObjectSection, ObjectSegment, SegmentFlags};

use crate::blocks;
use crate::demangle::{short_function, tidy};
use crate::go_module;
use crate::go_table::{self, GoFunction, GoTable};
use crate::separate::{DebugFolders, has_plausible_sizes};
use crate::unresolved::{Unresolved, check_build_id, check_path};

/// Upper limit on code offsets: no binary has code beyond it, and the symbol library overflows on such addresses.
const OFFSET_END: u64 = 1 << 48;

/// `PF_X` of elf(5): the loader makes a segment executable, in whole pages.
const EXECUTABLE: u32 = 1;
const PAGE_BYTES: u64 = 4096;

/// One function at a code address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedFrame {
    /// Demangled name without parameters.
    pub function: String,
    /// Source file, or empty.
    pub file: String,
    /// Line, or 0.
    pub line: u32,
    /// Column in bytes, from 1; 0 where the compiler wrote none.
    pub column: u32,
    /// Whether it was inlined into the next frame.
    pub inlined: bool,
}

/// The result for a code address: its frames, innermost inlined one first, or why there are none.
pub type Resolved = Result<Vec<ResolvedFrame>, Unresolved>;

/// Resolves code addresses to functions and lines.
pub trait Symbolizer {
    /// Resolves offsets (addresses minus load bias) in the binary at `path`; the answers are in the same order. `build_id` is the
    /// recorded one, or empty. Offsets must lie within the instruction in question: callers subtract 1 from return addresses.
    fn resolve(&mut self, path: &str, build_id: &[u8], offsets: &[u64]) -> Vec<Resolved>;
}

/// Offsets at which a binary can have code; none where it does not say.
type Code = Arc<[Range<u64>]>;

/// A [`Symbolizer`] that reads ELF symbol tables and DWARF from the binaries on this machine and from their separate debug files.
#[derive(Debug)]
pub struct ElfSymbolizer {
    inner: blazesym::symbolize::Symbolizer,
    folders: DebugFolders,
    files: HashMap<(String, Vec<u8>), Result<Code, Unresolved>>,
    cache: HashMap<String, HashMap<u64, Resolved>>,
}

impl Default for ElfSymbolizer {
    fn default() -> Self {
        Self::new()
    }
}

impl ElfSymbolizer {
    /// A symbolizer with empty caches.
    #[must_use]
    pub fn new() -> ElfSymbolizer {
        ElfSymbolizer::with(DebugFolders::of_system())
    }

    /// A symbolizer with empty caches, which searches these folders for separate debug files.
    #[must_use]
    pub fn with(folders: DebugFolders) -> ElfSymbolizer {
        let inner = blazesym::symbolize::Symbolizer::builder()
            .enable_code_info(true)
            .enable_inlined_fns(true)
            // Ours does: where the language is unknown this one takes any name for a mangled one, and a Fortran program `f` for C++'s `float`.
            .enable_demangling(false)
            .enable_auto_reload(false)
            // Ours are checked. It looks itself only for what `dwz` took out of them, and checks that.
            .set_debug_dirs(Some(folders.folders()))
            .build();
        ElfSymbolizer { inner, folders, files: HashMap::new(), cache: HashMap::new() }
    }

    fn check(&mut self, path: &str, build_id: &[u8]) -> Result<Code, Unresolved> {
        let key = (path.to_owned(), build_id.to_vec());
        self.files.entry(key).or_insert_with(|| check_file(path, build_id)).clone()
    }

    fn look_up(&mut self, path: &str, offsets: &[u64]) {
        let found = self.folders.find(Path::new(path));
        let mut resolved = match &found.file {
            Some(file) => self.ask(file, true, offsets),
            None => self.ask(Path::new(path), found.has_debug, offsets),
        };
        // Of what the debug file lacks, the binary may have its dynamic symbols.
        let nameless: Vec<usize> = (0..offsets.len()).filter(|&index| resolved[index].is_err()).collect();
        if found.file.is_some() && !nameless.is_empty() {
            let left: Vec<u64> = nameless.iter().map(|&index| offsets[index]).collect();
            for (index, again) in nameless.into_iter().zip(self.ask(Path::new(path), false, &left)) {
                resolved[index] = again;
            }
        }
        if resolved.iter().any(Result::is_err) {
            add_go_functions(path, offsets, &mut resolved);
        }
        let known = self.cache.entry(path.to_owned()).or_default();
        known.extend(offsets.iter().copied().zip(resolved));
    }

    /// Resolves from one file. If its debug information cannot be read, it uses the symbol table, which has only the functions.
    fn ask(&self, file: &Path, has_debug: bool, offsets: &[u64]) -> Vec<Resolved> {
        let ask = |debug_syms, offsets: &[u64]| {
            let mut elf = Elf::new(file);
            elf.debug_syms = debug_syms;
            let source = Source::Elf(elf);
            let results = self.inner.symbolize(&source, Input::VirtOffset(offsets)).ok()?;
            Some(results.iter().map(frames).collect::<Vec<Resolved>>())
        };
        let Some(mut resolved) = Some(has_debug).filter(|&has| has).and_then(|has| ask(has, offsets)) else {
            return ask(false, offsets).unwrap_or_else(|| vec![Err(Unresolved::NoSymbol); offsets.len()]);
        };
        name_by_symbols(&mut resolved, offsets, |left| ask(false, left));
        resolved
    }
}

impl Symbolizer for ElfSymbolizer {
    fn resolve(&mut self, path: &str, build_id: &[u8], offsets: &[u64]) -> Vec<Resolved> {
        let code = match self.check(path, build_id) {
            Ok(code) => code,
            Err(reason) => return vec![Err(reason); offsets.len()],
        };
        let is_code = |offset: u64| code.is_empty() || code.iter().any(|range| range.contains(&offset));
        let known = self.cache.entry(path.to_owned()).or_default();
        let plausible = |offset: &u64| *offset < OFFSET_END && is_code(*offset) && !known.contains_key(offset);
        let mut missing: Vec<u64> = offsets.iter().copied().filter(plausible).collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            self.look_up(path, &missing);
        }
        let known = self.cache.get(path);
        let found = |&offset: &u64| match known.and_then(|known| known.get(&offset)) {
            Some(resolved) => resolved.clone(),
            None if offset < OFFSET_END && !is_code(offset) => Err(Unresolved::NotCode),
            None => Err(Unresolved::NoSymbol),
        };
        offsets.iter().map(found).collect()
    }
}

/// Fills what is missing from the table that Go's runtime keeps in the binary.
fn add_go_functions(path: &str, offsets: &[u64], resolved: &mut [Resolved]) -> Option<()> {
    let cache = blocks::open(path).ok()?;
    let file = object::File::parse(&cache).ok()?;
    let section = go_table::SECTIONS.iter().find_map(|name| file.section_by_name(name))?;
    let data = section.data().ok()?;
    let table = go_module::text(&file, section.address()).and_then(|text| GoTable::read_at(data, text));
    let from_text = || GoTable::read(data, file.section_by_name(".text")?.address(), file.entry());
    let table = table.or_else(from_text)?;
    let functions_data = go_module::functions_data(&file, (section.address(), section.size()), &table);
    let memory = |address, bytes| file.segments().find_map(|part| part.data_range(address, bytes).ok().flatten());
    for (offset, resolved) in offsets.iter().zip(resolved).filter(|(_, resolved)| resolved.is_err()) {
        let frames = table.frames(*offset, functions_data, memory);
        let outer = frames.len().saturating_sub(1);
        if !frames.is_empty() {
            *resolved = Ok(frames.iter().enumerate().map(|(at, found)| go_frame(found, at < outer)).collect());
        }
    }
    Some(())
}

fn go_frame(found: &GoFunction, inlined: bool) -> ResolvedFrame {
    let (function, file) = (tidy(short_function(&found.name)), tidy(&found.file));
    ResolvedFrame { function, file, line: found.line, inlined, ..ResolvedFrame::default() }
}

fn check_file(path: &str, build_id: &[u8]) -> Result<Code, Unresolved> {
    check_path(path)?;
    if !std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return Err(Unresolved::NoFile);
    }
    let cache = blocks::open(path).map_err(|_| Unresolved::NoFile)?;
    let file = object::File::parse(&cache).map_err(|_| Unresolved::NotElf)?;
    if !has_plausible_sizes(&file) {
        return Err(Unresolved::NotElf);
    }
    check_build_id(file.build_id().ok().flatten(), build_id)?;
    Ok(code_of(&file))
}

/// Where a binary can have code: its executable segments.
fn code_of<'d>(file: &impl Object<'d>) -> Code {
    let is_code = |flags: SegmentFlags| matches!(flags, SegmentFlags::Elf { p_flags } if p_flags & EXECUTABLE != 0);
    let segments = file.segments().filter(|segment| is_code(segment.flags()));
    let pages = segments.map(|segment| {
        let (start, end) = (segment.address(), segment.address().saturating_add(segment.size()));
        start & !(PAGE_BYTES - 1)..end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX)
    });
    pages.collect()
}

fn frames(symbolized: &Symbolized<'_>) -> Resolved {
    match symbolized {
        Symbolized::Sym(symbol) => Ok(frames_of(symbol)),
        Symbolized::Unknown(Reason::InvalidFileOffset | Reason::UnknownAddr | Reason::MissingSyms) => {
            Err(Unresolved::NoSymbol)
        }
        Symbolized::Unknown(_) => Err(Unresolved::NoSymbol),
    }
}

/// Gives functions without a name that of the symbol table. The symbol library reads no name that `dwz` moved to a shared file.
fn name_by_symbols(resolved: &mut [Resolved], offsets: &[u64], symbols: impl Fn(&[u64]) -> Option<Vec<Resolved>>) {
    let is_nameless = |found: &Resolved| {
        found.as_ref().is_ok_and(|frames| frames.last().is_some_and(|outer| outer.function.is_empty()))
    };
    let nameless: Vec<usize> =
        (0..offsets.len().min(resolved.len())).filter(|&at| is_nameless(&resolved[at])).collect();
    if nameless.is_empty() {
        return;
    }
    let left: Vec<u64> = nameless.iter().map(|&at| offsets[at]).collect();
    for (at, named) in nameless.into_iter().zip(symbols(&left).unwrap_or_default()) {
        let symbol = named.ok().and_then(|mut frames| frames.pop());
        let outer = resolved[at].as_mut().ok().and_then(|frames| frames.last_mut());
        if let (Some(outer), Some(symbol)) = (outer, symbol) {
            outer.function = symbol.function;
        }
    }
}

/// The frames of a symbol, innermost first; the symbol library lists them outermost first.
fn frames_of(symbol: &Sym<'_>) -> Vec<ResolvedFrame> {
    let mut outer = resolved(&symbol.name, symbol.code_info.as_deref(), false);
    if symbol.inlined.is_empty() && is_place_of_inlined(&symbol.name, &outer) {
        outer = ResolvedFrame { function: outer.function, ..ResolvedFrame::default() };
    }
    let inlined = symbol.inlined.iter().map(|inner| resolved(&inner.name, inner.code_info.as_ref(), true));
    let mut frames: Vec<ResolvedFrame> = std::iter::once(outer).chain(inlined).collect();
    frames.reverse();
    frames
}

/// Whether a C++ function's place is one in the standard library's headers, of which it is no part: that of a function which was inlined into it, and of which
/// nothing else is known. With split debug information that is in files of its own (`-gsplit-dwarf`), which are not read.
fn is_place_of_inlined(linked: &str, frame: &ResolvedFrame) -> bool {
    let is_own = ["std::", "__", "operator "].iter().any(|prefix| frame.function.starts_with(prefix));
    linked.starts_with("_Z") && frame.file.contains("/include/c++/") && !is_own
}

fn resolved(name: &str, code: Option<&CodeInfo<'_>>, inlined: bool) -> ResolvedFrame {
    ResolvedFrame {
        function: tidy(short_function(&strip_hash(without_copy(name)))),
        file: code.map(|code| tidy(&code.to_path().to_string_lossy())).unwrap_or_default(),
        line: code.and_then(|code| code.line).unwrap_or(0),
        column: code.and_then(|code| code.column).map_or(0, u32::from),
        inlined,
    }
}

/// The name of the function that a compiler's copy or part is of: `grow.constprop.0`, `grow.part.0.cold`. Debug information calls these so, symbol tables do
/// not.
fn without_copy(mut name: &str) -> &str {
    // Without a copy's name before it, `main.cold` may be a function of Go.
    if let Some(copy) = name.strip_suffix(".cold").filter(|copy| copied(copy).is_some()) {
        name = copy;
    }
    while let Some(function) = copied(name) {
        name = function;
    }
    name
}

/// What a copy or part with a number is of.
fn copied(name: &str) -> Option<&str> {
    const COPIES: [&str; 6] = [".constprop", ".isra", ".part", ".lto_priv", ".llvm", ".cold"];
    let (rest, number) = name.rsplit_once('.')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let function = COPIES.into_iter().find_map(|copy| rest.strip_suffix(copy));
    function.filter(|function| is_number && !function.is_empty())
}

/// Removes the hash at the end of Rust's legacy names.
fn strip_hash(name: &str) -> String {
    let demangled = if name.starts_with("_Z") || name.starts_with("_R") || name.contains("_MOD_") {
        crate::demangle::demangle(name)
    } else {
        name.to_owned()
    };
    match demangled.rsplit_once("::h") {
        Some((stem, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => stem.to_owned(),
        _ => demangled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, line: u32) -> ResolvedFrame {
        ResolvedFrame { function: function.to_owned(), line, ..ResolvedFrame::default() }
    }

    /// The function was taken for one of the standard library, and its caller for the site of what it allocates.
    #[test]
    fn lines_of_standard_headers_are_not_those_of_other_functions() {
        let header = "/usr/include/c++/12/bits/stl_vector.h";
        let is_other = |linked: &str, file: &str| {
            is_place_of_inlined(linked, &ResolvedFrame { file: file.to_owned(), ..resolved(linked, None, false) })
        };
        assert!(is_other("_ZN4Grid4growEi", header));
        for own in
            ["_ZNSt6vectorIdSaIdEE17_M_default_appendEm", "_ZN9__gnu_cxx13new_allocatorIdE8allocateEm", "allocate"]
        {
            assert!(!is_other(own, header), "{own}");
        }
        assert!(!is_other("_ZN4Grid4growEi", "/srv/grid.cpp") && !is_other("_ZN4Grid4growEi", ""));
    }

    #[test]
    fn copies_and_parts_of_functions_are_the_functions() {
        for (linked, function) in [
            ("xmalloc.constprop.0", "xmalloc"),
            ("grow.isra.0.part.12", "grow"),
            ("grow.part.0.cold", "grow"),
            ("xmalloc.constprop.0.cold.7", "xmalloc"),
            ("_ZN4Grid4growEi.part.0.cold", "Grid::grow"),
            ("main.cold", "main.cold"),
            (".cold.0", ".cold.0"),
            ("grow.llvm.123456", "grow"),
            ("_ZN4Grid4growEi.constprop.0", "Grid::grow"),
            ("main._omp_fn.0", "main._omp_fn.0"),
            ("main.part", "main.part"),
            ("main.(*Grid).fill.func1.2", "main.(*Grid).fill.func1.2"),
            (".part.0", ".part.0"),
            ("main.", "main."),
        ] {
            assert_eq!(resolved(linked, None, false).function, function);
        }
    }

    #[test]
    fn functions_whose_names_dwz_moved_have_those_of_the_symbol_table() {
        let inlined = ResolvedFrame { inlined: true, ..frame("", 7) };
        let mut resolved = [
            Ok(vec![frame("main", 1)]),
            Ok(vec![inlined.clone(), frame("", 2)]),
            Err(Unresolved::NoSymbol),
            Ok(vec![frame("", 3)]),
        ];
        name_by_symbols(&mut resolved, &[10, 20, 30, 40], |left| {
            assert_eq!(left, [20, 40]);
            Some(vec![Ok(vec![frame("grow", 0)]), Err(Unresolved::NoSymbol)])
        });
        let wanted = [
            Ok(vec![frame("main", 1)]),
            Ok(vec![inlined, frame("grow", 2)]),
            Err(Unresolved::NoSymbol),
            Ok(vec![frame("", 3)]),
        ];
        assert_eq!(resolved, wanted);
        name_by_symbols(&mut resolved[..1], &[10], |_| panic!("nothing is missing"));
    }
}
