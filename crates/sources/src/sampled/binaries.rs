//! Finds the address of a whole binary from one of its executable mappings: the kernel reports only the mapping's file offset, but symbols have
//! virtual addresses of the file.

use std::collections::HashMap;
use std::fs::File;

use object::read::ReadCache;
use object::{Object, ObjectSegment, SegmentFlags, elf};

const PAGE: u64 = 4096;
/// No kernel has larger pages. Segments that are aligned to more than that begin in the middle of what the alignment would be.
const PAGE_MAX: u64 = 64 << 10;

/// A loadable segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    bytes: u64,
    file_offset: u64,
    file_bytes: u64,
    /// As the linker aligned it, which the page size of a kernel that maps it divides.
    alignment: u64,
    is_executable: bool,
}

impl Segment {
    /// Whether a mapping of the file from `file_offset` on may be of this segment: the kernel begins with the page that holds the segment's first byte. That
    /// page may hold the end of the segment before too, which is mapped a second time then.
    fn may_be(&self, file_offset: u64, bytes: u64) -> bool {
        let first = self.file_offset & !(self.alignment.clamp(PAGE, PAGE_MAX) - 1);
        let end = self.file_offset.saturating_add(self.file_bytes);
        first <= file_offset && file_offset < end && file_offset.saturating_add(bytes) > self.file_offset
    }
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

/// A binary with an executable mapping in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadedBinary {
    /// The kernel's name of its file.
    pub path: String,
    /// Where it lies.
    pub placed: Placed,
    /// Its zeroed data; `None`: the file is not here, so that no more of it is known than its mappings.
    pub zeroed: Option<Vec<(u64, u64)>>,
}

impl LoadedBinary {
    /// Whether an address is in its range.
    pub fn holds(&self, address: u64) -> bool {
        address >= self.placed.start && address - self.placed.start < self.placed.bytes
    }
}

/// Segments of the binaries that were looked at.
#[derive(Debug, Default)]
pub(crate) struct Binaries {
    known: HashMap<String, Option<Vec<Segment>>>,
}

impl Binaries {
    /// Where the binary at `path` lies, one of whose executable mappings begins at `address` and shows the file from `file_offset` on. Without the file (or
    /// with another build of it) the mapping itself, with addresses taken to equal offsets.
    pub fn place(&mut self, path: &str, build_id: &[u8], address: u64, bytes: u64, file_offset: u64) -> Placed {
        let segments = self.known.entry(path.to_owned()).or_insert_with(|| segments(path, build_id));
        let placed = segments.as_deref().and_then(|segments| placed(segments, address, bytes, file_offset));
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

/// Where a binary of these segments lies, one of whose executable mappings begins at `address` and shows `bytes` of the file from `file_offset` on. Linkers
/// such as lld let segments share a page of the file, at addresses that differ by a page or more: the file's page alone does not tell whose the mapping is.
fn placed(segments: &[Segment], address: u64, bytes: u64, file_offset: u64) -> Option<Placed> {
    let candidates = segments.iter().filter(|segment| segment.may_be(file_offset, bytes));
    let nearest = |segment: &&Segment| (!segment.is_executable, segment.file_offset.abs_diff(file_offset));
    let segment = candidates.min_by_key(nearest)?;
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
        Segment {
            address: segment.address(),
            bytes: segment.size(),
            file_offset,
            file_bytes,
            alignment: segment.align().checked_next_power_of_two().unwrap_or(PAGE),
            is_executable: match segment.flags() {
                SegmentFlags::Elf { p_flags } => p_flags & elf::PF_X != 0,
                _ => true,
            },
        }
    });
    Some(segments.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIGNED: Segment =
        Segment { address: 0, bytes: 0, file_offset: 0, file_bytes: 0, alignment: PAGE, is_executable: false };

    /// Read-only data, code and data, of which none begins on a page of its own.
    fn as_lld_lays_out() -> [Segment; 3] {
        let head = Segment { bytes: 0x1200, file_bytes: 0x1200, ..ALIGNED };
        let text = Segment { address: 0x2200, bytes: 0x5000, file_offset: 0x1200, file_bytes: 0x5000, ..ALIGNED };
        let data = Segment { address: 0x8200, bytes: 0x3000, file_offset: 0x6200, file_bytes: 0x200, ..ALIGNED };
        [head, Segment { is_executable: true, ..text }, data]
    }

    #[test]
    fn a_page_of_the_file_that_two_segments_share_is_the_executable_ones() {
        let want = Placed { start: 0x7f00_0000_0000, bytes: 0xc000, bias: 0x7f00_0000_0000, is_by_file: true };
        let segments = as_lld_lays_out();
        assert_eq!(placed(&segments, 0x7f00_0000_2000, 0x6000, 0x1000), Some(want));
        // A part of the code whose protection was changed, and the page that it shares with data.
        assert_eq!(placed(&segments, 0x7f00_0000_4000, 0x1000, 0x3000), Some(want));
        assert_eq!(placed(&segments, 0x7f00_0000_7000, 0x1000, 0x6000), Some(want));
        // Where all that is readable is executable.
        assert_eq!(placed(&segments, 0x7f00_0000_0000, 0x2000, 0), Some(want));
        assert_eq!(placed(&segments, 0x7f00_0000_0000, 0x1000, 0xf000), None);
    }

    #[test]
    fn of_two_executable_segments_on_a_page_the_mapping_is_of_the_one_that_begins_there() {
        let [head, text, data] = as_lld_lays_out();
        let cold = Segment { address: 0x1_0400, bytes: 0x3000, file_offset: 0x6400, file_bytes: 0x3000, ..text };
        let found = placed(&[head, text, data, cold], 0x7f00_0001_0000, 0x4000, 0x6000).map(|placed| placed.bias);
        assert_eq!(found, Some(0x7f00_0000_0000));
        // The loader first maps the whole binary as its first segment, then the others over it.
        let first = Segment { is_executable: true, ..head };
        let whole = placed(&[first, text, data], 0x7f00_0000_0000, 0xc000, 0).map(|placed| placed.bias);
        assert_eq!(whole, Some(0x7f00_0000_0000));
    }

    #[test]
    fn kernels_with_larger_pages_begin_further_back() {
        let aligned = as_lld_lays_out().map(|segment| Segment { alignment: PAGE_MAX, ..segment });
        let text = Segment { address: 0x3_1200, file_offset: 0x2_1200, ..aligned[1] };
        let found = placed(&[aligned[0], text], 0x7f00_0003_0000, 0x1_0000, 0x2_0000).map(|placed| placed.bias);
        assert_eq!(found, Some(0x7f00_0000_0000));
    }

    #[test]
    fn zeroed_memory_is_what_segments_have_beyond_the_file() {
        let text = Segment { address: 0x2000, bytes: 0x5000, file_offset: 0x1000, file_bytes: 0x5000, ..ALIGNED };
        let data = Segment { address: 0x8e00, bytes: 0x3000, file_offset: 0x6e00, file_bytes: 0x200, ..ALIGNED };
        let binaries = Binaries { known: [("/lib.so".to_owned(), Some(vec![text, data]))].into() };
        assert_eq!(binaries.zeroed("/lib.so", 0x7f00_0000_0000), Some(vec![(0x7f00_0000_9000, 0x7f00_0000_c000)]));
    }

    /// The binary of these tests itself, as the linker of this toolchain laid it out.
    #[test]
    fn a_running_binary_is_placed_where_the_kernel_put_it() {
        const HEADERS: u64 = 64;
        // SAFETY: reads a word that the kernel gave this process.
        let headers = unsafe { libc::getauxval(libc::AT_PHDR) };
        let path = std::env::current_exe().unwrap();
        let (mut text, mut binaries, mut count) = (Vec::new(), Binaries::default(), 0);
        numapilot_kernel::maps::read(std::process::id(), "maps", &mut text).unwrap();
        for line in numapilot_kernel::maps::maps(&text).filter(|line| line.is_executable()) {
            if line.path == path.as_os_str().as_encoded_bytes() {
                let name = path.to_str().unwrap();
                let placed = binaries.place(name, &[], line.start, line.end - line.start, line.offset);
                assert_eq!((placed.bias, placed.is_by_file), (headers - HEADERS, true), "{line:?}");
                count += 1;
            }
        }
        assert!(count > 0);
    }

    #[test]
    fn a_file_that_is_not_there_leaves_the_mapping() {
        let placed = Binaries::default().place("/nowhere/lib.so", &[1], 0x5000, 0x1000, 0x3000);
        assert_eq!(placed, Placed { start: 0x5000, bytes: 0x1000, bias: 0x2000, is_by_file: false });
        assert_eq!(Binaries::default().zeroed("/nowhere/lib.so", 0x2000), None);
    }
}
