//! Offsets of the static objects and sections of a binary, from its ELF tables.
//!
//! Offsets are addresses as the file counts them: address in the process minus load bias. Thread-local symbols are left out,
//! because they have no address that all threads share; their blocks lie in thread stacks or heap blocks.

use std::path::Path;
use std::sync::Arc;

use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SymbolKind, elf};

use crate::blocks;
use crate::debug_data::opened;
use crate::separate::DebugFolders;
use crate::unresolved::{Unresolved, check_build_id, check_path};

/// Most symbols that are read from one binary.
const SYMBOLS_MAX: usize = 4 << 20;

/// A static object or a section of one [`ModuleLayout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayoutItem(u32);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    offset: u64,
    bytes: u64,
    name: Arc<str>,
}

/// Data symbols and sections of one binary, sorted by offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleLayout {
    symbols: Vec<Range>,
    sections: Vec<Range>,
}

impl ModuleLayout {
    /// Reads the layout of the binary at `path`, whose build ID must be `build_id` (empty: not checked), and of its separate debug file.
    ///
    /// # Errors
    /// If the file does not exist, is not an ELF file, or is not the recorded binary.
    pub fn read(path: &str, build_id: &[u8]) -> Result<ModuleLayout, Unresolved> {
        ModuleLayout::read_with(path, build_id, &DebugFolders::of_system())
    }

    /// Does what [`ModuleLayout::read`] does, with separate debug files from these folders.
    ///
    /// # Errors
    /// If the file does not exist, is not an ELF file, or is not the recorded binary.
    pub fn read_with(path: &str, build_id: &[u8], folders: &DebugFolders) -> Result<ModuleLayout, Unresolved> {
        check_path(path)?;
        let metadata = std::fs::metadata(Path::new(path)).map_err(|_| Unresolved::NoFile)?;
        if !metadata.is_file() {
            return Err(Unresolved::NoFile);
        }
        let cache = blocks::open(path).map_err(|_| Unresolved::NoFile)?;
        let file = object::File::parse(&cache).map_err(|_| Unresolved::NotElf)?;
        check_build_id(file.build_id().ok().flatten(), build_id)?;
        let separate = opened(&folders.find_for(Path::new(path), &file));
        let separate = separate.as_ref().and_then(|cache| object::File::parse(cache).ok());
        let symbols =
            file.symbols().chain(file.dynamic_symbols()).chain(separate.iter().flat_map(|file| file.symbols()));
        let symbols = symbols.filter(is_static_object).take(SYMBOLS_MAX);
        let symbols = symbols.filter_map(|symbol| {
            let name = readable_name(symbol.name().ok()?);
            Some(Candidate { offset: symbol.address(), bytes: symbol.size(), is_global: symbol.is_global(), name })
        });
        let sections = file.sections().filter(|section| is_mapped(section.flags())).filter_map(|section| {
            let name = section.name().ok().filter(|name| !name.is_empty())?;
            Some(Range { offset: section.address(), bytes: section.size(), name: name.into() })
        });
        Ok(ModuleLayout { symbols: disjoint(symbols.collect()), sections: disjoint_ranges(sections.collect()) })
    }

    /// The symbol that covers `offset`, or else the section; `None` if neither does.
    #[must_use]
    pub fn find(&self, offset: u64) -> Option<LayoutItem> {
        let symbol = find_range(&self.symbols, offset);
        let section = || find_range(&self.sections, offset).map(|index| self.symbols.len() + index);
        symbol.or_else(section).map(|index| LayoutItem(index as u32))
    }

    fn range(&self, item: LayoutItem) -> &Range {
        let index = item.0 as usize;
        self.symbols.get(index).unwrap_or_else(|| &self.sections[index - self.symbols.len()])
    }

    /// All symbols by ascending offset, then all sections by ascending offset.
    pub fn items(&self) -> impl Iterator<Item = LayoutItem> {
        (0..self.symbols.len() + self.sections.len()).map(|index| LayoutItem(index as u32))
    }

    /// Offset of the item's first byte.
    #[must_use]
    pub fn offset(&self, item: LayoutItem) -> u64 {
        self.range(item).offset
    }

    /// Size of the item in bytes.
    #[must_use]
    pub fn bytes(&self, item: LayoutItem) -> u64 {
        self.range(item).bytes
    }

    /// Name of the item.
    #[must_use]
    pub fn name(&self, item: LayoutItem) -> &Arc<str> {
        &self.range(item).name
    }

    /// Whether the item is a symbol; otherwise it is a section.
    #[must_use]
    pub fn is_symbol(&self, item: LayoutItem) -> bool {
        (item.0 as usize) < self.symbols.len()
    }

    /// All static objects: offset, size in bytes, name.
    pub fn symbols(&self) -> impl Iterator<Item = (u64, u64, &str)> {
        self.symbols.iter().map(|range| (range.offset, range.bytes, &*range.name))
    }

    /// All sections: offset, size in bytes, name.
    pub fn sections(&self) -> impl Iterator<Item = (u64, u64, &str)> {
        self.sections.iter().map(|range| (range.offset, range.bytes, &*range.name))
    }
}

struct Candidate {
    offset: u64,
    bytes: u64,
    is_global: bool,
    name: String,
}

fn is_static_object<'data>(symbol: &impl ObjectSymbol<'data>) -> bool {
    symbol.kind() == SymbolKind::Data && symbol.is_definition() && symbol.size() > 0
}

fn is_mapped(flags: SectionFlags) -> bool {
    match flags {
        SectionFlags::Elf { sh_flags } => {
            sh_flags & u64::from(elf::SHF_ALLOC) != 0 && sh_flags & u64::from(elf::SHF_TLS) == 0
        }
        _ => false,
    }
}

/// Removes overlaps: of aliases (same range) it keeps the most readable name, and of nested symbols the outer one.
fn disjoint(mut symbols: Vec<Candidate>) -> Vec<Range> {
    symbols.sort_by(|a, b| {
        let order = |c: &Candidate| (c.offset, std::cmp::Reverse(c.bytes), !c.is_global, c.name.starts_with('_'));
        order(a).cmp(&order(b)).then_with(|| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)))
    });
    let ranges = symbols.into_iter().map(|c| Range { offset: c.offset, bytes: c.bytes, name: c.name.into() });
    keep_disjoint(ranges)
}

fn disjoint_ranges(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_by_key(|range| (range.offset, std::cmp::Reverse(range.bytes)));
    keep_disjoint(ranges.into_iter())
}

fn keep_disjoint(ranges: impl Iterator<Item = Range>) -> Vec<Range> {
    let mut kept: Vec<Range> = Vec::new();
    for range in ranges.filter(|range| range.bytes > 0 && range.offset.checked_add(range.bytes).is_some()) {
        if kept.last().is_none_or(|last| range.offset >= last.offset + last.bytes) {
            kept.push(range);
        }
    }
    kept
}

fn find_range(ranges: &[Range], offset: u64) -> Option<usize> {
    numapilot_ranges::find(ranges, |range| (range.offset, range.offset + range.bytes), offset)
}

/// The demangled name, without symbol version and compiler's suffix.
fn readable_name(name: &str) -> String {
    let name = name.split('@').next().unwrap_or(name);
    let demangled = crate::demangle::demangle(name);
    let mut readable = demangled.as_str();
    // A static variable inside a function is `name.123` to the linker. Optimisation of whole programs adds `.lto_priv.0` or `.llvm.123` to names of files.
    while let Some((stem, digits)) = readable.rsplit_once('.') {
        if stem.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            break;
        }
        let by_optimiser = [".lto_priv", ".llvm"].into_iter().find_map(|suffix| stem.strip_suffix(suffix));
        readable = by_optimiser.filter(|stem| !stem.is_empty()).unwrap_or(stem);
        if by_optimiser.is_none() {
            break;
        }
    }
    readable.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_variables_lose_what_compilers_and_linkers_add() {
        for (linked, name) in [
            ("table", "table"),
            ("counter.12", "counter"),
            ("numbers.lto_priv.0", "numbers"),
            ("local_one.0.lto_priv.1", "local_one"),
            ("cache.llvm.1234567890", "cache"),
            ("stderr@@GLIBC_2.2.5", "stderr"),
            ("main.table", "main.table"),
            (".5", ".5"),
        ] {
            assert_eq!(readable_name(linked), name);
        }
    }
}
