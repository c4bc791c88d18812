//! The debug information of a binary: from the binary, from its separate debug file, and from the part of that which `dwz` moved to a shared file.
//!
//! Compressed sections (zlib, Zstandard) are read. What cannot be read counts as absent.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;
use std::rc::Rc;

use gimli::{AttributeValue, DwarfSections, EndianSlice, LittleEndian, SectionId};
use object::{CompressionFormat, Object, ObjectSection};

use crate::blocks::{self, BlockCache};
use crate::separate::{Separate, Shared, has_plausible_sizes};

pub(crate) type Slice<'d> = EndianSlice<'d, LittleEndian>;
pub(crate) type Dwarf<'d> = gimli::Dwarf<Slice<'d>>;
pub(crate) type Unit<'d> = gimli::Unit<Slice<'d>>;
pub(crate) type Entry<'d> = gimli::DebuggingInformationEntry<Slice<'d>>;

/// Most references that are followed from an entry to its declaration.
const REFERENCES_MAX: usize = 8;
/// Most units that are kept for references into them.
const UNITS_KEPT_MAX: usize = 256;

type Sections<'d> = DwarfSections<Cow<'d, [u8]>>;

/// The separate debug file, opened.
pub(crate) fn opened(found: &Separate) -> Option<BlockCache> {
    found.file.as_ref().and_then(|path| blocks::open(path).ok())
}

/// Runs `work` with the debug information of `file`, whose separate debug file was looked for (`found`); it is empty if there is none.
pub(crate) fn with_dwarf<'d, T>(file: &impl Object<'d>, found: &Separate, work: impl FnOnce(&Dwarf<'_>) -> T) -> T {
    if found.has_debug {
        return work(&borrowed(&sections_of(file), None));
    }
    let separate = opened(found);
    let separate = separate.as_ref().and_then(|cache| object::File::parse(cache).ok());
    let shared = match &found.shared {
        Shared::File(path) => blocks::open(path).ok(),
        _ => None,
    };
    let shared = shared.as_ref().and_then(|cache| object::File::parse(cache).ok());
    let sections = separate.as_ref().map(sections_of).unwrap_or_default();
    let shared = shared.as_ref().map(sections_of);
    work(&borrowed(&sections, shared.as_ref()))
}

fn borrowed<'a>(sections: &'a Sections<'_>, shared: Option<&'a Sections<'_>>) -> Dwarf<'a> {
    let slice = |data: &'a Cow<'_, [u8]>| EndianSlice::new(data, LittleEndian);
    let mut dwarf = sections.borrow(slice);
    if let Some(shared) = shared {
        dwarf.set_sup(shared.borrow(slice));
    }
    dwarf
}

fn sections_of<'d>(file: &impl Object<'d>) -> Sections<'d> {
    let is_plausible = has_plausible_sizes(file);
    let section = |id: SectionId| -> Result<Cow<'d, [u8]>, gimli::Error> {
        let section = file.section_by_name(id.name()).filter(|_| is_plausible);
        Ok(section.and_then(|section| data_of(&section)).unwrap_or_default())
    };
    Sections::load(section).unwrap_or_default()
}

fn data_of<'d>(section: &impl ObjectSection<'d>) -> Option<Cow<'d, [u8]>> {
    let packed = section.compressed_data().ok()?;
    let size = packed.uncompressed_size;
    let mut data = Vec::new();
    match packed.format {
        CompressionFormat::None => return Some(Cow::Borrowed(packed.data)),
        CompressionFormat::Zlib => {
            flate2::read::ZlibDecoder::new(packed.data).take(size).read_to_end(&mut data).ok()?
        }
        CompressionFormat::Zstandard => {
            zstd::stream::read::Decoder::new(packed.data).ok()?.take(size).read_to_end(&mut data).ok()?
        }
        _ => return None,
    };
    (data.len() as u64 == size).then_some(Cow::Owned(data))
}

/// A unit, and the debug information that holds it: a file's own, or the part that `dwz` moved out of it.
#[derive(Clone)]
pub(crate) struct UnitOf<'a, 'd> {
    pub dwarf: &'a Dwarf<'d>,
    pub unit: Rc<Unit<'d>>,
}

impl<'d> UnitOf<'_, 'd> {
    /// The text of an attribute of this unit.
    pub fn text(&self, value: AttributeValue<Slice<'d>>) -> Option<String> {
        let text = self.dwarf.attr_string(&self.unit, value).ok()?;
        Some(text.to_string_lossy().into_owned())
    }
}

/// Follows references between entries. Those to other units are written by compilers that optimise whole programs (LTO) and by `dwz`.
pub(crate) struct References<'a, 'd> {
    dwarf: &'a Dwarf<'d>,
    /// Where the units begin, of the file's own debug information and of the shared part; read when a reference first leads there.
    starts: [Option<Vec<usize>>; 2],
    known: HashMap<(bool, usize), Rc<Unit<'d>>>,
}

impl<'a, 'd> References<'a, 'd> {
    pub fn new(dwarf: &'a Dwarf<'d>) -> References<'a, 'd> {
        References { dwarf, starts: [None, None], known: HashMap::new() }
    }

    /// Shows `look` an entry of the unit `from`, then its declaration or abstract form, and so on.
    pub fn follow(
        &mut self,
        from: &UnitOf<'a, 'd>,
        entry: &Entry<'d>,
        mut look: impl FnMut(&UnitOf<'a, 'd>, &Entry<'d>),
    ) {
        look(from, entry);
        let mut next = self.referred(from, entry);
        for _ in 0..REFERENCES_MAX {
            let Some((at, entry)) = next else { return };
            look(&at, &entry);
            next = self.referred(&at, &entry);
        }
    }

    fn referred(&mut self, from: &UnitOf<'a, 'd>, entry: &Entry<'d>) -> Option<(UnitOf<'a, 'd>, Entry<'d>)> {
        let names = [gimli::DW_AT_specification, gimli::DW_AT_abstract_origin];
        let (at, offset) = match names.into_iter().find_map(|name| entry.attr_value(name))? {
            AttributeValue::UnitRef(offset) => (from.clone(), offset),
            AttributeValue::DebugInfoRef(offset) => self.unit_at(from.dwarf, offset)?,
            AttributeValue::DebugInfoRefSup(offset) => self.unit_at(from.dwarf.sup()?, offset)?,
            _ => return None,
        };
        let entry = at.unit.entry(offset).ok()?;
        Some((at, entry))
    }

    /// The unit that holds `offset`, and where in it that is.
    fn unit_at(
        &mut self,
        dwarf: &'a Dwarf<'d>,
        offset: gimli::DebugInfoOffset,
    ) -> Option<(UnitOf<'a, 'd>, gimli::UnitOffset)> {
        let is_shared = !std::ptr::eq(dwarf, self.dwarf);
        let starts = self.starts[usize::from(is_shared)].get_or_insert_with(|| starts_of(dwarf));
        let start = *starts.get(starts.partition_point(|&start| start <= offset.0).checked_sub(1)?)?;
        if self.known.len() >= UNITS_KEPT_MAX {
            self.known.clear();
        }
        let unit = match self.known.get(&(is_shared, start)) {
            Some(unit) => Rc::clone(unit),
            None => {
                let header = dwarf.unit_header(gimli::DebugInfoOffset(start)).ok()?;
                let unit = Rc::new(dwarf.unit(header).ok()?);
                self.known.insert((is_shared, start), Rc::clone(&unit));
                unit
            }
        };
        let offset = offset.to_unit_offset(&unit.header)?;
        Some((UnitOf { dwarf, unit }, offset))
    }
}

fn starts_of(dwarf: &Dwarf<'_>) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        starts.extend(header.debug_info_offset().map(|start| start.0));
    }
    starts
}
