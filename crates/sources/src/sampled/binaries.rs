//! Finds the address of a whole binary from one of its executable mappings: the kernel reports only the mapping's file offset, but symbols have
//! virtual addresses of the file.

use std::collections::HashMap;
use std::fs::File;

use object::read::ReadCache;
use object::{Object, ObjectSegment};

const PAGE: u64 = 4096;

/// A loadable segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    bytes: u64,
    file_offset: u64,
    file_bytes: u64,
}

/// A binary that is mapped in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Address of the first byte.
    pub start: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Address in the process minus address in the file.
    pub bias: u64,
    /// Whether the file could be read; otherwise start and length are those of one mapping.
    pub is_by_file: bool,
}

/// Segments of the binaries that were looked at.
#[derive(Debug, Default)]
pub(crate) struct Binaries {
    known: HashMap<String, Option<Vec<Segment>>>,
}

impl Binaries {
    /// Where the binary at `path` lies, one of whose mappings begins at `address` and shows the file from `file_offset` on. Without the file (or with
    /// another build of it) the mapping itself, with addresses taken to equal offsets.
    pub fn place(&mut self, path: &str, build_id: &[u8], address: u64, bytes: u64, file_offset: u64) -> Placed {
        let segments = self.known.entry(path.to_owned()).or_insert_with(|| segments(path, build_id));
        let placed = segments.as_deref().and_then(|segments| placed(segments, address, file_offset));
        placed.unwrap_or(Placed { start: address, bytes, bias: address.wrapping_sub(file_offset), is_by_file: false })
    }

    /// Stretches of memory (first address, address after the last) that a binary at `path`, whose addresses are off by `bias`, zeroes behind the file's own
    /// part of its segments: what is mapped there without a file is part of it. `None` without the file: only what is mapped of it is known.
    pub fn zeroed(&self, path: &str, bias: u64) -> Option<Vec<(u64, u64)>> {
        let segments = self.known.get(path)?.as_deref()?;
        let stretch = |segment: &Segment| {
            let start = bias.wrapping_add(segment.address);
            let up = |bytes: u64| start.saturating_add(bytes).checked_next_multiple_of(PAGE);
            Some((up(segment.file_bytes)?, up(segment.bytes)?)).filter(|(from, to)| from < to)
        };
        Some(segments.iter().filter_map(stretch).collect())
    }
}

fn placed(segments: &[Segment], address: u64, file_offset: u64) -> Option<Placed> {
    let segment = segments.iter().find(|segment| {
        let first = segment.file_offset & !(PAGE - 1);
        (first..segment.file_offset.saturating_add(segment.file_bytes)).contains(&file_offset)
    })?;
    let bias = address.wrapping_sub(file_offset).wrapping_add(segment.file_offset).wrapping_sub(segment.address);
    let first = segments.iter().map(|segment| segment.address).min()? & !(PAGE - 1);
    let end = segments.iter().map(|segment| segment.address.saturating_add(segment.bytes)).max()?;
    let bytes = end.saturating_sub(first).checked_next_multiple_of(PAGE)?;
    Some(Placed { start: bias.wrapping_add(first), bytes, bias, is_by_file: true })
}

fn segments(path: &str, build_id: &[u8]) -> Option<Vec<Segment>> {
    if !path.starts_with('/') || !std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return None;
    }
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let found = file.build_id().ok().flatten().unwrap_or_default();
    if !build_id.is_empty() && found != build_id {
        return None;
    }
    let segments = file.segments().map(|segment| {
        let (file_offset, file_bytes) = segment.file_range();
        Segment { address: segment.address(), bytes: segment.size(), file_offset, file_bytes }
    });
    Some(segments.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_is_placed_by_any_of_its_segments() {
        // As lld lays binaries out: addresses run ahead of file offsets by a page per segment.
        let text = Segment { address: 0x2000, bytes: 0x5000, file_offset: 0x1000, file_bytes: 0x5000 };
        let data = Segment { address: 0x8e00, bytes: 0x3000, file_offset: 0x6e00, file_bytes: 0x200 };
        let head = Segment { address: 0, bytes: 0x800, file_offset: 0, file_bytes: 0x800 };
        let want = Placed { start: 0x7f00_0000_0000, bytes: 0xc000, bias: 0x7f00_0000_0000, is_by_file: true };
        let segments = [head, text, data];
        assert_eq!(placed(&segments, 0x7f00_0000_2000, 0x1000), Some(want));
        assert_eq!(placed(&segments, 0x7f00_0000_8000, 0x6000), Some(want));
        assert_eq!(placed(&segments, 0x7f00_0000_0000, 0xf000), None);
    }

    #[test]
    fn zeroed_memory_is_what_segments_have_beyond_the_file() {
        let text = Segment { address: 0x2000, bytes: 0x5000, file_offset: 0x1000, file_bytes: 0x5000 };
        let data = Segment { address: 0x8e00, bytes: 0x3000, file_offset: 0x6e00, file_bytes: 0x200 };
        let binaries = Binaries { known: [("/lib.so".to_owned(), Some(vec![text, data]))].into() };
        assert_eq!(binaries.zeroed("/lib.so", 0x7f00_0000_0000), Some(vec![(0x7f00_0000_9000, 0x7f00_0000_c000)]));
    }

    #[test]
    fn a_file_that_is_not_there_leaves_the_mapping() {
        let placed = Binaries::default().place("/nowhere/lib.so", &[1], 0x5000, 0x1000, 0x3000);
        assert_eq!(placed, Placed { start: 0x5000, bytes: 0x1000, bias: 0x2000, is_by_file: false });
        assert_eq!(Binaries::default().zeroed("/nowhere/lib.so", 0x2000), None);
    }
}
