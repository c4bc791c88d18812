//! The debug information of a binary: from the binary, from its separate debug file, and from the part of that which `dwz` moved to a shared file.
//!
//! Compressed sections (zlib, Zstandard) are read. What cannot be read counts as absent.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use gimli::{DwarfSections, EndianSlice, LittleEndian, SectionId};
use object::read::ReadCache;
use object::{CompressionFormat, Object, ObjectSection};

use crate::separate::{DebugFolders, Separate, Shared, has_debug, has_plausible_sizes};

pub(crate) type Slice<'d> = EndianSlice<'d, LittleEndian>;
pub(crate) type Dwarf<'d> = gimli::Dwarf<Slice<'d>>;
pub(crate) type Unit<'d> = gimli::Unit<Slice<'d>>;

type Sections<'d> = DwarfSections<Cow<'d, [u8]>>;

/// The separate debug file, opened.
pub(crate) fn opened(found: &Separate) -> Option<ReadCache<File>> {
    found.file.as_ref().and_then(|path| File::open(path).ok()).map(ReadCache::new)
}

/// Runs `work` with the debug information of `file`, which was read from `path`; it is empty if there is none.
pub(crate) fn with_dwarf<'d, T>(
    path: &Path,
    file: &impl Object<'d>,
    folders: &DebugFolders,
    work: impl FnOnce(&Dwarf<'_>) -> T,
) -> T {
    if has_debug(file) {
        return work(&borrowed(&sections_of(file), None));
    }
    let found = folders.find_for(path, file);
    let separate = opened(&found);
    let separate = separate.as_ref().and_then(|cache| object::File::parse(cache).ok());
    let shared = match found.shared {
        Shared::File(path) => File::open(path).ok().map(ReadCache::new),
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
