//! What Go's runtime knows of the binary that it is part of (`moduledata` in Go's `runtime/symtab.go`): where Go's code begins, and where the data of its
//! functions lie, which the table of functions (`go_table`) gives as distances from there.
//!
//! Since Go 1.26 it is in a section of its own. Before, it is found among the data by its first word, the address of the table.

use object::{Object, ObjectSection, ObjectSegment, RelocationTarget};

use crate::go_table::GoTable;

/// Where the table's header has the address of the code (Go 1.18 to 1.25).
const TEXT_IN_TABLE: u64 = 24;
/// Section of the description, since Go 1.26, and of the data among which it is before.
const SECTION: &str = ".go.module";
const OLDER_SECTION: &str = ".noptrdata";
/// Which of its words is the code's address, and which the address of the data of functions (`gofunc`): Go 1.20 put two words before that.
const TEXT_WORD: usize = 22;
const DATA_WORD: usize = 40;
const DATA_WORD_BEFORE_120: usize = 38;
/// Words of a description that are looked at. Behind the address of the data is that of the table's end, since Go 1.26, whatever is before.
const WORDS_MAX: usize = 64;
/// Places that begin as a description does; more are no data of Go.
const PLACES_MAX: usize = 16;

/// Where Go's code begins, as the binary itself says, whose table is at the address `table`. A linker of C puts other code before it.
pub(crate) fn text<'d>(file: &impl Object<'d>, table: u64) -> Option<u64> {
    if table == 0 {
        return None;
    }
    let word = |address| words(file, address, 1).map(|words| words[0]);
    let in_header = table.checked_add(TEXT_IN_TABLE).and_then(word);
    in_header.filter(|&text| text != 0).or_else(|| {
        let found = of_section(file, table)?;
        found.get(TEXT_WORD).copied().filter(|&text| text != 0)
    })
}

/// The address to which offsets of functions' data count (Go's `go:func.*`). `section`: address and length of the table's. `None`: not known, or before Go
/// 1.18, whose tables have addresses.
pub(crate) fn functions_data<'d>(file: &impl Object<'d>, section: (u64, u64), table: &GoTable<'_>) -> Option<u64> {
    let (begin, end) = (section.0, section.0.checked_add(section.1)?);
    let (text, is_120) = table.code().filter(|_| begin != 0)?;
    if let Some(found) = of_section(file, begin) {
        let at = found.iter().position(|&word| word == end)?;
        return found.get(at.checked_sub(1)?).copied().filter(|&data| begin < data && data < end);
    }
    let data_word = if is_120 { DATA_WORD } else { DATA_WORD_BEFORE_120 };
    let found = older(file, begin, text)?;
    found.get(data_word).copied().filter(|&data| data != 0)
}

/// The words of the description in a section of its own, if it is that of the table at `table`.
fn of_section<'d>(file: &impl Object<'d>, table: u64) -> Option<Vec<u64>> {
    let section = file.section_by_name(SECTION)?;
    let count = usize::try_from(section.size() / 8).ok()?.min(WORDS_MAX);
    words(file, section.address(), count).filter(|found| found.first() == Some(&table))
}

/// The words of the description among the data, of the table at `table`, whose code begins at `text`.
fn older<'d>(file: &impl Object<'d>, table: u64, text: u64) -> Option<Vec<u64>> {
    let section = file.section_by_name(OLDER_SECTION)?;
    let data = section.data().ok()?;
    let begins = |word: &[u8]| *word == table.to_le_bytes();
    let places = data.chunks_exact(8).enumerate().filter(|&(_, word)| begins(word));
    let places = places.map(|(index, _)| section.address().wrapping_add(8 * index as u64));
    // The loader fills it in, where it may move the program.
    let relocations = file.dynamic_relocations().into_iter().flatten();
    let filled_in = relocations.filter(|(_, found)| found.target() == RelocationTarget::Absolute);
    let filled_in = filled_in.filter(|(_, found)| found.addend() as u64 == table).map(|(at, _)| at);
    let mut found = places.chain(filled_in).take(PLACES_MAX).filter_map(|at| words(file, at, DATA_WORD + 1));
    found.find(|words| words[0] == table && words[TEXT_WORD] == text)
}

/// So many words at an address, with what the loader puts there, relative to where it loads the binary: 0 where that is known to the loader alone.
fn words<'d>(file: &impl Object<'d>, address: u64, count: usize) -> Option<Vec<u64>> {
    let length = 8 * count as u64;
    let bytes = file.segments().find_map(|segment| segment.data_range(address, length).ok().flatten())?;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let mut found: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
    for (at, relocation) in file.dynamic_relocations()? {
        let distance = at.wrapping_sub(address);
        if distance < length && distance.is_multiple_of(8) {
            let is_known = relocation.target() == RelocationTarget::Absolute;
            found[(distance / 8) as usize] = if is_known { relocation.addend() as u64 } else { 0 };
        }
    }
    Some(found)
}
