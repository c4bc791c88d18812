//! Determines how much of a binary's code is instrumented, from the binary alone: it needs no marks, which a link or `strip` could remove.
//!
//! A function is instrumented where it calls one of the sanitizer's entry points (`__tsan_*`). One that touches no memory calls none, so the
//! unit of judgement is the compile unit where debug information names it: instrumentation is switched on for whole units. Code outside of all
//! units (assembly, stripped objects) is judged function by function. Functions are those of `.eh_frame`, which `strip` leaves.
//!
//! x86-64 only: calls are found by their encodings.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};
use object::{Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionKind, elf};

use crate::blocks;
use crate::demangle::{demangle, tidy};
use crate::unresolved::{Unresolved, check_build_id, check_path};

type Dwarf<'d> = gimli::Dwarf<EndianSlice<'d, LittleEndian>>;

/// Prefix of the names of the entry points.
const ENTRY: &[u8] = b"__tsan_";
/// Entry points of block copies, which are the wrapper's own as well.
const WRAPPED: &[u8] = b"__wrap_";
/// Exported by what `numapilot cc` linked (NP_CALLOUTS_SYMBOL in np.h).
const ARCHIVE: &[u8] = b"numapilot_callouts";
/// The archive's code, in sections of its own that `strip` leaves (callouts.h): entry points and what they need, and what `--wrap` leads to.
const ENTRY_SECTION: &[u8] = b"np_callouts_text";
const WRAPPED_SECTION: &[u8] = b"np_callouts_wrapped";
/// Hidden functions of the archive, in binaries of wrappers that did not name its sections, or where a linker script put it elsewhere.
const ARCHIVE_FUNCTION: &str = "np_";
/// Compile units of the archive, as its debug information names them.
const ARCHIVE_UNIT: &str = "./c/callouts";
/// Most parts without instrumentation that are listed.
const LEFT_OUT_MAX: usize = 8;
/// Most functions that are read from one binary.
const FUNCTIONS_MAX: usize = 4 << 20;

/// Instrumentation of one binary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Bytes of its functions, except those of the call-outs.
    pub code_bytes: u64,
    /// Of these, bytes in instrumented compile units or functions.
    pub instrumented_bytes: u64,
    /// Whether the call-outs are linked into it.
    pub has_archive: bool,
    /// The largest parts that are not instrumented, by compile unit, else by function: name and bytes.
    pub left_out: Vec<(String, u64)>,
}

impl Coverage {
    /// Examines the binary at `path`, whose build ID must be `build_id` (empty: not checked).
    ///
    /// # Errors
    /// If the file does not exist, is not an ELF file for this architecture, or is not the recorded binary.
    pub fn read(path: &str, build_id: &[u8]) -> Result<Coverage, Unresolved> {
        check_path(path)?;
        let cache = blocks::open(path).map_err(|_| Unresolved::NoFile)?;
        let file = object::File::parse(&cache).map_err(|_| Unresolved::NotElf)?;
        check_build_id(file.build_id().ok().flatten(), build_id)?;
        if file.architecture() != object::Architecture::X86_64 {
            return Err(Unresolved::NotElf);
        }
        let functions = functions(&file);
        let targets = Targets::of(&file);
        let names = function_names(&file);
        let mut own = section_ranges(&file, WRAPPED_SECTION);
        own.extend(targets.entry_ranges.iter().cloned());
        if own.is_empty() {
            own.extend(targets.archive_range().map(|range| widened(range, &functions, &names)));
        }
        let (code, units) = (Code::of(&file), units(&file));
        let functions: Vec<Function> = functions
            .into_iter()
            .filter(|(start, _)| !own.iter().any(|range| range.contains(start)))
            .filter(|(start, _)| *start != file.entry() && !units.is_of_archive(*start))
            .map(|(start, bytes)| Function { start, bytes, calls: code.calls_any(start, bytes, &targets) })
            .collect();
        Ok(judge(&functions, &units, &names, targets.has_archive))
    }
}

struct Function {
    start: u64,
    bytes: u64,
    calls: bool,
}

/// A compile unit's ranges, ascending: start, end, number of the unit; and the units' names.
#[derive(Default)]
struct Units {
    ranges: Vec<(u64, u64, usize)>,
    names: Vec<String>,
}

impl Units {
    fn is_of_archive(&self, address: u64) -> bool {
        self.at(address).is_some_and(|unit| self.names[unit].starts_with(ARCHIVE_UNIT))
    }

    fn at(&self, address: u64) -> Option<usize> {
        numapilot_ranges::find(&self.ranges, |range| (range.0, range.1), address).map(|at| self.ranges[at].2)
    }
}

fn judge(functions: &[Function], units: &Units, names: &HashMap<u64, String>, has_archive: bool) -> Coverage {
    let unit_of: Vec<Option<usize>> = functions.iter().map(|function| units.at(function.start)).collect();
    let calling: HashSet<usize> =
        functions.iter().zip(&unit_of).filter(|(function, _)| function.calls).filter_map(|(_, unit)| *unit).collect();
    let mut coverage = Coverage { has_archive, ..Coverage::default() };
    let mut left_out: BTreeMap<String, u64> = BTreeMap::new();
    for (function, unit) in functions.iter().zip(&unit_of) {
        coverage.code_bytes += function.bytes;
        if function.calls || unit.is_some_and(|unit| calling.contains(&unit)) {
            coverage.instrumented_bytes += function.bytes;
            continue;
        }
        let name = match unit {
            Some(unit) => units.names[*unit].clone(),
            None => {
                names.get(&function.start).map_or_else(|| format!("code at {:#x}", function.start), |n| demangle(n))
            }
        };
        *left_out.entry(name).or_default() += function.bytes;
    }
    coverage.left_out = left_out.into_iter().collect();
    coverage.left_out.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    coverage.left_out.truncate(LEFT_OUT_MAX);
    coverage
}

/// Start and size of each function of `.eh_frame`, but for the linker's stubs.
fn functions<'d>(file: &impl Object<'d>) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    let Some(section) = file.section_by_name(".eh_frame") else { return found };
    let Ok(data) = section.uncompressed_data() else { return found };
    let stubs: Vec<(u64, u64)> = file
        .sections()
        .filter(|section| section.name().is_ok_and(|name| name.starts_with(".plt")))
        .map(|section| (section.address(), section.address() + section.size()))
        .collect();
    let frames = EhFrame::new(&data, LittleEndian);
    let text = file.section_by_name(".text").map_or(0, |section| section.address());
    let bases = BaseAddresses::default().set_eh_frame(section.address()).set_text(text);
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(|frames, bases, offset| frames.cie_from_offset(bases, offset)) else { continue };
        let start = fde.initial_address();
        if fde.len() > 0 && !stubs.iter().any(|(low, high)| (*low..*high).contains(&start)) {
            found.insert(start, fde.len());
        }
        if found.len() >= FUNCTIONS_MAX {
            break;
        }
    }
    found
}

fn function_names<'d>(file: &impl Object<'d>) -> HashMap<u64, String> {
    let functions = file.symbols().chain(file.dynamic_symbols()).filter(|symbol| symbol.is_definition());
    let named = functions.filter(|symbol| symbol.kind() == object::SymbolKind::Text);
    named.filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?.to_owned()))).take(FUNCTIONS_MAX).collect()
}

/// What call-outs call: the entry points themselves, and the slots of the global offset table through which a library reaches them.
#[derive(Default)]
struct Targets {
    entries: HashSet<u64>,
    slots: HashSet<u64>,
    /// The entry points and the hidden functions that they call, where they have sections of their own. A stripped library that exports nothing
    /// of the archive has no names of theirs.
    entry_ranges: Vec<RangeInclusive<u64>>,
    has_archive: bool,
    own: Vec<u64>,
}

impl Targets {
    fn of<'d>(file: &impl Object<'d>) -> Targets {
        let entry_ranges = section_ranges(file, ENTRY_SECTION);
        let mut targets = Targets { has_archive: !entry_ranges.is_empty(), entry_ranges, ..Targets::default() };
        for symbol in file.symbols().chain(file.dynamic_symbols()).filter(|symbol| symbol.is_definition()) {
            let Ok(name) = symbol.name_bytes() else { continue };
            targets.has_archive |= name == ARCHIVE;
            if name.starts_with(ENTRY) {
                targets.entries.insert(symbol.address());
            }
            if name.starts_with(ENTRY) || name.starts_with(WRAPPED) {
                targets.own.push(symbol.address());
            }
        }
        let names = file.dynamic_symbol_table();
        for (slot, relocation) in file.dynamic_relocations().into_iter().flatten() {
            let RelocationTarget::Symbol(index) = relocation.target() else { continue };
            let is_slot = matches!(
                relocation.flags(),
                RelocationFlags::Elf { r_type: elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT }
            );
            let symbol = names.as_ref().and_then(|table| object::ObjectSymbolTable::symbol_by_index(table, index).ok());
            if is_slot && symbol.is_some_and(|symbol| symbol.name_bytes().is_ok_and(|name| name.starts_with(ENTRY))) {
                targets.slots.insert(slot);
            }
        }
        targets.add_stubs(file);
        targets
    }

    /// Stubs of the linker that jump through one of the slots: `ff 25 disp32`, relative to the next instruction.
    fn add_stubs<'d>(&mut self, file: &impl Object<'d>) {
        for section in file.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".plt"))) {
            let Ok(data) = section.data() else { continue };
            for (at, window) in data.windows(6).enumerate() {
                let address = section.address() + at as u64;
                if window[..2] == [0xff, 0x25] && self.slots.contains(&relative(address, 6, &window[2..])) {
                    // Calls go to the stub's begin: sixteen bytes each, aligned.
                    self.entries.insert(section.address() + (at as u64 / 16) * 16);
                    self.entries.insert(address);
                }
            }
        }
    }

    fn is_entry(&self, address: u64) -> bool {
        self.entries.contains(&address) || self.entry_ranges.iter().any(|range| range.contains(&address))
    }

    /// First and last address of the archive's exported functions, which the linker keeps together.
    fn archive_range(&self) -> Option<(u64, u64)> {
        Some((*self.own.iter().min()?, *self.own.iter().max()?)).filter(|_| self.has_archive)
    }
}

/// Addresses of the code in the sections of that name.
fn section_ranges<'d>(file: &impl Object<'d>, name: &[u8]) -> Vec<RangeInclusive<u64>> {
    let sections = file.sections().filter(|section| section.size() > 0 && section.kind() == SectionKind::Text);
    sections
        .filter(|section| section.name_bytes().is_ok_and(|found| found == name))
        .map(|section| section.address()..=section.address().saturating_add(section.size() - 1))
        .collect()
}

/// The same with the archive's hidden functions on either side, where a symbol table names them.
fn widened(
    (low, high): (u64, u64),
    functions: &BTreeMap<u64, u64>,
    names: &HashMap<u64, String>,
) -> RangeInclusive<u64> {
    let is_hidden = |start: &&u64| names.get(*start).is_some_and(|name| name.starts_with(ARCHIVE_FUNCTION));
    let below = functions.range(..low).map(|(start, _)| start).rev().take_while(is_hidden).last();
    let above = functions.range(high + 1..).map(|(start, _)| start).take_while(is_hidden).last();
    below.copied().unwrap_or(low)..=above.copied().unwrap_or(high)
}

fn relative(address: u64, length: u64, displacement: &[u8]) -> u64 {
    let displacement: [u8; 4] = displacement[..4].try_into().unwrap_or_default();
    address.wrapping_add(length).wrapping_add_signed(i64::from(i32::from_le_bytes(displacement)))
}

/// The binary's code sections.
struct Code<'d> {
    sections: Vec<(u64, &'d [u8])>,
}

impl<'d> Code<'d> {
    fn of(file: &impl Object<'d>) -> Code<'d> {
        let text = file.sections().filter(|section| section.kind() == SectionKind::Text);
        Code { sections: text.filter_map(|section| Some((section.address(), section.data().ok()?))).collect() }
    }

    /// Whether a call or jump in this function goes to one of the targets: `e8`, `e9` with a relative address, `ff 15`, `ff 25` through a slot. Bytes
    /// that only look like one would have to hold the exact distance.
    fn calls_any(&self, start: u64, bytes: u64, targets: &Targets) -> bool {
        let within = |(base, data): &&(u64, &[u8])| (*base..*base + data.len() as u64).contains(&start);
        let Some((base, data)) = self.sections.iter().find(within) else { return false };
        let from = (start - base) as usize;
        let code = &data[from..data.len().min(from.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX)))];
        let direct = code.windows(5).enumerate().any(|(at, window)| {
            matches!(window[0], 0xe8 | 0xe9) && targets.is_entry(relative(start + at as u64, 5, &window[1..]))
        });
        direct
            || code.windows(6).enumerate().any(|(at, window)| {
                window[0] == 0xff
                    && matches!(window[1], 0x15 | 0x25)
                    && targets.slots.contains(&relative(start + at as u64, 6, &window[2..]))
            })
    }
}

/// What debug information says; nothing where it is missing or compressed.
fn units<'d>(file: &impl Object<'d>) -> Units {
    let mut found = Units::default();
    let section = |id: gimli::SectionId| -> Result<EndianSlice<'_, LittleEndian>, gimli::Error> {
        let plain = file.section_by_name(id.name()).filter(|section| {
            section.compressed_file_range().is_ok_and(|range| range.format == object::CompressionFormat::None)
        });
        Ok(EndianSlice::new(plain.and_then(|section| section.data().ok()).unwrap_or(&[]), LittleEndian))
    };
    let Ok(dwarf) = Dwarf::load(section) else { return found };
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        let Ok(unit) = dwarf.unit(header) else { continue };
        let name = unit.name.map_or_else(|| "unnamed unit".to_owned(), |name| name.to_string_lossy().into_owned());
        let number = found.names.len();
        found.names.push(tidy(&name));
        let Ok(mut ranges) = dwarf.unit_ranges(&unit) else { continue };
        while let Ok(Some(range)) = ranges.next() {
            if range.begin > 0 && range.begin < range.end {
                found.ranges.push((range.begin, range.end, number));
            }
        }
    }
    found.ranges.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    //! Binaries with a known part that calls out.

    use super::*;

    #[test]
    fn a_unit_is_instrumented_where_one_of_its_functions_is() {
        let function = |start, bytes, calls| Function { start, bytes, calls };
        let functions =
            [function(100, 50, true), function(150, 10, false), function(200, 40, false), function(300, 7, false)];
        let units = Units { ranges: vec![(100, 160, 0), (200, 240, 1)], names: vec!["a.c".into(), "b.c".into()] };
        let names = HashMap::from([(300, "by_hand".to_owned())]);
        let found = judge(&functions, &units, &names, true);
        assert_eq!((found.code_bytes, found.instrumented_bytes), (107, 60));
        assert_eq!(found.left_out, [("b.c".to_owned(), 40), ("by_hand".to_owned(), 7)]);
    }

    #[test]
    fn a_program_of_the_systems_compiler_is_not_instrumented() {
        let path = std::env::current_exe().expect("a test has a file");
        let found = Coverage::read(path.to_str().expect("UTF-8"), &[]).expect("a binary");
        assert!(found.code_bytes > 10_000 && found.instrumented_bytes == 0 && !found.has_archive, "{found:?}");
        assert_eq!(Coverage::read("/nowhere", &[]), Err(Unresolved::NoFile));
    }
}
