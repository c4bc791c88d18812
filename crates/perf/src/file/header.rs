//! The header of a file: where its sections are.

use std::path::Path;

use super::FileError;
use super::features::feature;
use crate::attr::EventAttr;
use crate::bytes::{Bytes, Endian};
use crate::error::DecodeError;

/// First bytes on a little-endian machine; a big-endian one writes the number the other way round.
const MAGIC_LITTLE: &[u8; 8] = b"PERFILE2";
const MAGIC_BIG: &[u8; 8] = b"2ELIFREP";
/// Bytes of a file's header (magic and size included); a stream's has 16.
pub(super) const FILE_HEADER_BYTES: u64 = 104;
pub(super) const PIPE_HEADER_BYTES: u64 = 16;

/// A section of the file: offset and size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub offset: u64,
    pub size: u64,
}

impl Section {
    pub(super) const BYTES: u64 = 16;

    pub(super) fn decode(bytes: &mut Bytes<'_>) -> Result<Section, DecodeError> {
        Ok(Section { offset: bytes.u64("a section's offset")?, size: bytes.u64("a section's size")? })
    }
}

/// The byte order, by the first eight bytes.
pub(super) fn endian(magic: &[u8; 8]) -> Option<Endian> {
    match magic {
        MAGIC_LITTLE => Some(Endian::Little),
        MAGIC_BIG => Some(Endian::Big),
        _ => None,
    }
}

/// The error for a file that begins with these bytes and is not a readable recording; specific where the first bytes identify the format.
pub(super) fn other_kind(head: &[u8], path: &Path) -> FileError {
    let path = path.to_path_buf();
    let packed = |tool, command| FileError::Packed { path: path.clone(), tool, command };
    match head {
        [] => FileError::Empty(path),
        [b'P', b'E', b'R', b'F', b'F', b'I', b'L', b'E', ..] | [b'E', b'L', b'I', b'F', b'F', b'R', b'E', b'P', ..] => {
            FileError::Version1(path)
        }
        [0x1f, 0x8b, ..] => packed("gzip", "gunzip"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => packed("zstd", "unzstd"),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => packed("xz", "unxz"),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => packed("bzip2", "bunzip2"),
        _ => FileError::NotPerfData(path),
    }
}

/// Header of a file (of a stream there is nothing but its size).
#[derive(Clone, Debug, Default)]
pub(super) struct FileHeader {
    pub attr_entry_bytes: u64,
    pub attrs: Section,
    pub data: Section,
    /// Numbers of the feature sections in the file, ascending.
    pub features: Vec<u32>,
}

impl FileHeader {
    /// Reads what follows magic and size.
    pub(super) fn decode(bytes: &mut Bytes<'_>) -> Result<FileHeader, DecodeError> {
        let attr_entry_bytes = bytes.u64("the size of an event's description")?;
        let attrs = Section::decode(bytes)?;
        let data = Section::decode(bytes)?;
        Section::decode(bytes)?;
        let mut features = Vec::new();
        for word in 0..4 {
            let bits = bytes.u64("the list of features")?;
            features.extend((0..64).filter(|bit| bits >> bit & 1 != 0).map(|bit| word * 64 + bit));
        }
        // A machine that writes the bitmap as 32-bit words with the halves the other way round: HOSTNAME is always there.
        if bytes.endian() == Endian::Big && !features.contains(&feature::HOSTNAME) {
            for number in &mut features {
                *number ^= 32;
            }
            features.sort_unstable();
        }
        Ok(FileHeader { attr_entry_bytes, attrs, data, features })
    }

    /// The events' descriptions, each with the place of its ids.
    pub(super) fn events(&self, bytes: &mut Bytes<'_>) -> Result<Vec<(EventAttr, Section)>, DecodeError> {
        let mut events = Vec::new();
        if self.attr_entry_bytes <= Section::BYTES {
            return Err(bytes.bad("the size of an event's description", self.attr_entry_bytes));
        }
        while bytes.left() as u64 >= self.attr_entry_bytes {
            let (offset, endian) = (bytes.offset(), bytes.endian());
            let entry = bytes.take(self.attr_entry_bytes, "an event's description")?;
            let (attr, ids) = entry.split_at(entry.len() - Section::BYTES as usize);
            let ids_at = offset + attr.len() as u64;
            let attr = EventAttr::decode(&mut Bytes::new(attr, offset, endian))?;
            events.push((attr, Section::decode(&mut Bytes::new(ids, ids_at, endian))?));
        }
        Ok(events)
    }
}
