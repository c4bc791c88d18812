//! Finds the address of a whole binary from one of its executable mappings: the kernel reports only the mapping's file offset, but symbols have
//! virtual addresses of the file.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use numapilot_host::PageNumber;
use numapilot_perf::Mapping;
use object::read::ReadCache;
use object::{Object, ObjectSegment, SegmentFlags, elf};

/// No kernel has smaller pages.
const PAGE: u64 = PageNumber::BYTES;
/// `PROT_WRITE` of mmap(2).
const PROT_WRITE: u32 = 2;
/// No kernel has larger pages. Segments that are aligned to more than that begin in the middle of what the alignment would be.
const PAGE_MAX: u64 = 64 << 10;
/// Pages of kernels whose pages are larger than those of others (arm64).
const LARGER_PAGES: [u64; 2] = [16 << 10, PAGE_MAX];

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

    /// Address in the process minus address in the file, if a mapping at `address` that shows the file from `file_offset` on is of this segment.
    fn bias(&self, address: u64, file_offset: u64) -> u64 {
        address.wrapping_sub(file_offset).wrapping_add(self.file_offset).wrapping_sub(self.address)
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
    /// Build id with which it was told; empty: none was known.
    pub build_id: Vec<u8>,
    /// Its place in the process's addresses.
    pub placed: Placed,
    /// Its zeroed data; `None`: the file is not here, so that no more of it is known than its mappings.
    pub zeroed: Option<Vec<(u64, u64)>>,
    /// Its zeroed data as kernels with base pages of 16 or 64 KiB map it: at other addresses.
    zeroed_by_larger: Vec<(u64, u64)>,
    /// Of the file as it was when it was loaded.
    segments: Option<Arc<[Segment]>>,
}

impl LoadedBinary {
    /// Whether an address is in its range.
    pub fn holds(&self, address: u64) -> bool {
        address >= self.placed.start && address - self.placed.start < self.placed.bytes
    }

    /// Whether anonymous memory in `[start, end)` is its zeroed data or a part of it. Which pages the kernel has is not known, so of larger ones no part is
    /// taken for such: on other kernels it could be what is mapped behind.
    pub fn is_zeroed(&self, start: u64, end: u64) -> bool {
        let holds = |&(from, to): &(u64, u64)| from <= start && end <= to;
        self.zeroed.iter().flatten().any(holds) || self.zeroed_by_larger.contains(&(start, end))
    }

    /// Whether a part of its range lies in `[start, end)`.
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        self.placed.start < end && start < self.placed.start.saturating_add(self.placed.bytes)
    }

    /// Whether a mapping of its file is part of it as it lies. It may as well have been unmapped, unseen, and mapped again beside its old place.
    pub fn is_part(&self, mapping: &Mapping<'_>) -> bool {
        let Some(segments) = &self.segments else { return true };
        let Mapping { addr, len, file_offset, protection, is_executable, .. } = *mapping;
        let is_written = protection.is_some_and(|bits| bits & PROT_WRITE != 0);
        if is_executable && !is_written {
            return placed(segments, addr, len, file_offset).is_none_or(|found| found.bias == self.placed.bias);
        }
        // Where segments share a page of the file, nothing says of which of them a mapping is that is no code. Gaps between segments are of none.
        let of = segments.iter().filter(|segment| segment.may_be(file_offset, len));
        protection == Some(0) || of.map(|segment| segment.bias(addr, file_offset)).any(|bias| bias == self.placed.bias)
    }
}

/// A binary's file.
#[derive(Debug)]
struct BinaryFile {
    segments: Arc<[Segment]>,
    /// Empty: it has none.
    build_id: Vec<u8>,
}

/// What tells a file from another one that has taken its path since: an upgrade, or another build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    bytes: u64,
}

/// What was found at a path.
#[derive(Debug)]
struct Known {
    /// `None`: there was no file.
    stamp: Option<Stamp>,
    /// `None`: no file, or no binary.
    file: Option<BinaryFile>,
}

/// The binaries that were looked at.
#[derive(Debug, Default)]
pub(crate) struct Binaries {
    known: HashMap<String, Known>,
}

impl Binaries {
    /// Where the binary at `path` lies, one of whose executable mappings begins at `address` and shows the file from `file_offset` on. Without the file (or
    /// with another build of it) the mapping itself, with addresses taken to equal offsets.
    pub fn place(&mut self, path: &str, build_id: &[u8], address: u64, bytes: u64, file_offset: u64) -> Placed {
        let file = self.file(path).filter(|file| build_id.is_empty() || file.build_id == build_id);
        let placed = file.and_then(|file| placed(&file.segments, address, bytes, file_offset));
        placed.unwrap_or(Placed { start: address, bytes, bias: address.wrapping_sub(file_offset), is_by_file: false })
    }

    /// The file at a path as it is now; one that is gone as it was.
    fn file(&mut self, path: &str) -> Option<&BinaryFile> {
        let stamp = stamp(path);
        if self.known.get(path).is_none_or(|known| stamp.is_some() && known.stamp != stamp) {
            self.known.insert(path.to_owned(), Known { stamp, file: read(path) });
        }
        self.known.get(path)?.file.as_ref()
    }

    /// Build id of the file at a path; empty: it has none, or there is no binary.
    pub fn build_id(&mut self, path: &str) -> Vec<u8> {
        self.file(path).map(|file| file.build_id.clone()).unwrap_or_default()
    }

    /// The binary at `path` that lies so, as [`Binaries::place`] has just found. `shown`, `build_id`: path and build id by which it was asked for.
    pub fn loaded(&self, path: String, (shown, build_id): (&str, &[u8]), placed: Placed) -> LoadedBinary {
        let file = self.known.get(shown).and_then(|known| known.file.as_ref()).filter(|_| placed.is_by_file);
        let segments = file.map(|file| file.segments.clone());
        let zeroed_by = |page: u64| segments.as_deref().map(|all| zeroed(all, placed.bias, page));
        let zeroed_by_larger = LARGER_PAGES.into_iter().filter_map(zeroed_by).flatten().collect();
        let zeroed = zeroed_by(PAGE);
        LoadedBinary { path, build_id: build_id.to_vec(), placed, zeroed, zeroed_by_larger, segments }
    }
}

/// Stretches of memory (first address, address after the last) that a binary of these segments, whose addresses are off by `bias`, zeroes behind the file's own
/// part of them: what is mapped there without a file is part of it. By a kernel with pages of `page` bytes.
fn zeroed(segments: &[Segment], bias: u64, page: u64) -> Vec<(u64, u64)> {
    let stretch = |segment: &Segment| {
        let start = bias.wrapping_add(segment.address);
        let up = |bytes: u64| start.saturating_add(bytes).checked_next_multiple_of(page);
        Some((up(segment.file_bytes)?, up(segment.bytes)?)).filter(|(from, to)| from < to)
    };
    segments.iter().filter_map(stretch).collect()
}

fn stamp(path: &str) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let modified = (found.mtime(), found.mtime_nsec());
    Some(Stamp { device: found.dev(), inode: found.ino(), modified, bytes: found.len() })
}

/// Where a binary of these segments lies, one of whose executable mappings begins at `address` and shows `bytes` of the file from `file_offset` on. Linkers
/// such as lld let segments share a page of the file, at addresses that differ by a page or more: the file's page alone does not tell whose the mapping is.
fn placed(segments: &[Segment], address: u64, bytes: u64, file_offset: u64) -> Option<Placed> {
    let candidates = segments.iter().filter(|segment| segment.may_be(file_offset, bytes));
    let nearest = |segment: &&Segment| (!segment.is_executable, segment.file_offset.abs_diff(file_offset));
    let segment = candidates.min_by_key(nearest)?;
    let bias = segment.bias(address, file_offset);
    let first = segments.iter().map(|segment| segment.address).min()? & !(PAGE - 1);
    let end = segments.iter().map(|segment| segment.address.saturating_add(segment.bytes)).max()?;
    let bytes = end.saturating_sub(first).checked_next_multiple_of(PAGE)?;
    Some(Placed { start: bias.wrapping_add(first), bytes, bias, is_by_file: true })
}

fn read(path: &str) -> Option<BinaryFile> {
    if !path.starts_with('/') || !std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return None;
    }
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let build_id = file.build_id().ok().flatten().unwrap_or_default().to_vec();
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
    Some(BinaryFile { segments: segments.collect(), build_id })
}

#[cfg(test)]
mod tests {
    use numapilot_host::Pid;

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
        assert_eq!(zeroed(&[text, data], 0x7f00_0000_0000, PAGE), [(0x7f00_0000_9000, 0x7f00_0000_c000)]);
    }

    /// Of kernels with pages of 64 KiB it was anonymous memory of no binary, and its variables had no names.
    #[test]
    fn zeroed_memory_is_known_whatever_pages_the_kernel_has() {
        const BIAS: u64 = 0x7f00_0000_0000;
        let data = Segment { address: 0x8e00, bytes: 0x2_3000, file_offset: 0x6e00, file_bytes: 0x200, ..ALIGNED };
        let known = Known { stamp: None, file: Some(BinaryFile { segments: [data].into(), build_id: Vec::new() }) };
        let binaries = Binaries { known: [("/lib.so".to_owned(), known)].into() };
        let placed = Placed { start: BIAS, bytes: 0x2_c000, bias: BIAS, is_by_file: true };
        let loaded = binaries.loaded("/lib.so".to_owned(), ("/lib.so", &[]), placed);
        let is_zeroed = |start: u64, end: u64| loaded.is_zeroed(BIAS + start, BIAS + end);
        assert!(is_zeroed(0x9000, 0x2_c000) && is_zeroed(0xa000, 0x2_b000));
        assert!(is_zeroed(0xc000, 0x2_c000) && is_zeroed(0x1_0000, 0x3_0000));
        assert!(!is_zeroed(0x9000, 0x3_0000) && !is_zeroed(0x1_0000, 0x4_0000), "with what is mapped behind");
    }

    /// The binary of these tests itself, as the linker of this toolchain laid it out.
    #[test]
    fn a_running_binary_is_placed_where_the_kernel_put_it() {
        const HEADERS: u64 = 64;
        // SAFETY: reads a word that the kernel gave this process.
        let headers = unsafe { libc::getauxval(libc::AT_PHDR) };
        let path = std::env::current_exe().unwrap();
        let (mut text, mut binaries, mut count) = (Vec::new(), Binaries::default(), 0);
        numapilot_kernel::maps::read(Pid::own(), "maps", &mut text).unwrap();
        for line in numapilot_kernel::maps::maps(&text).filter(|line| line.is_executable()) {
            if line.path == path.as_os_str().as_encoded_bytes() {
                let name = path.to_str().unwrap();
                let placed = binaries.place(name, &[], line.start.0, line.bytes(), line.offset);
                assert_eq!((placed.bias, placed.is_by_file), (headers - HEADERS, true), "{line:?}");
                count += 1;
            }
        }
        assert!(count > 0);
    }

    /// A process in a container may have another build at the same path, before or after one that has the file here.
    #[test]
    fn each_build_of_a_path_is_placed_for_itself() {
        let file = BinaryFile { segments: as_lld_lays_out().into(), build_id: vec![1] };
        let known = Known { stamp: None, file: Some(file) };
        let mut binaries = Binaries { known: [("/lib.so".to_owned(), known)].into() };
        let by_file = [&[][..], &[2], &[1], &[2]]
            .map(|build_id: &[u8]| binaries.place("/lib.so", build_id, 0x7f00_0000_2000, 0x6000, 0x1000).is_by_file);
        assert_eq!(by_file, [true, false, true, false]);
    }

    #[test]
    fn a_file_that_is_not_there_leaves_the_mapping() {
        let placed = Binaries::default().place("/nowhere/lib.so", &[1], 0x5000, 0x1000, 0x3000);
        assert_eq!(placed, Placed { start: 0x5000, bytes: 0x1000, bias: 0x2000, is_by_file: false });
        let loaded = Binaries::default().loaded("/nowhere/lib.so".to_owned(), ("/nowhere/lib.so", &[]), placed);
        assert_eq!((loaded.zeroed, loaded.segments), (None, None));
    }

    /// A process that starts after an upgrade runs the new file; those that run the old one go on with that.
    #[test]
    fn a_file_that_was_replaced_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app");
        let name = path.to_str().unwrap();
        std::fs::write(&path, crate::files::tests::binary([1, 2, 3, 4])).unwrap();
        let mut binaries = Binaries::default();
        assert_eq!(binaries.build_id(name), [1, 2, 3, 4]);
        let new = folder.path().join("app.new");
        std::fs::write(&new, crate::files::tests::binary([5, 6, 7, 8])).unwrap();
        std::fs::rename(&new, &path).unwrap();
        assert_eq!(binaries.build_id(name), [5, 6, 7, 8]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(binaries.build_id(name), [5, 6, 7, 8], "as it was");
    }
}
