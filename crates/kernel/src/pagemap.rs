//! `/proc/PID/pagemap`: one word per page of a process's address space (`Documentation/admin-guide/mm/pagemap.rst`). The process's
//! user may read which pages are in memory; physical addresses need CAP_SYS_ADMIN (others read zeroes).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::path::PathBuf;

use crate::error::KernelError;
use crate::task::stand_in;
use numapilot_host::Pid;

/// Ranges of pages that one call to the kernel tells at most, 24 bytes each.
const REGIONS: usize = 4096;
/// Bytes of address space that one call to the kernel looks through at most: the process waits as long to map or unmap memory.
const SPAN: u64 = 16 << 30;

/// A page's entry in pagemap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageEntry(pub u64);

impl PageEntry {
    /// Whether the page is in memory.
    #[must_use]
    pub fn is_present(self) -> bool {
        self.0 >> 63 & 1 != 0
    }

    /// Whether the page is swapped out.
    #[must_use]
    pub fn is_swapped(self) -> bool {
        self.0 >> 62 & 1 != 0
    }

    /// Whether it is a page of a file or of shared anonymous memory.
    #[must_use]
    pub fn is_file_or_shared(self) -> bool {
        self.0 >> 61 & 1 != 0
    }

    /// Whether no other process maps the page.
    #[must_use]
    pub fn is_exclusive(self) -> bool {
        self.0 >> 56 & 1 != 0
    }

    /// Number of the page frame (physical address divided by the page size); `None` if the caller may not read it.
    #[must_use]
    pub fn frame(self) -> Option<u64> {
        let frame = self.0 & ((1 << 55) - 1);
        (self.is_present() && frame != 0).then_some(frame)
    }
}

/// `PAGEMAP_SCAN` (since Linux 6.7), `_IOWR('f', 16, struct pm_scan_arg)` of `include/uapi/linux/fs.h`.
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
const PAGE_IS_HUGE: u64 = 1 << 6;

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// A process's page map, held open: it refers to that process even after its id is reused.
#[derive(Debug)]
pub struct PageMap {
    file: File,
    path: PathBuf,
    pid: Pid,
    bytes: Vec<u8>,
}

impl PageMap {
    /// Opens a process's page map.
    ///
    /// # Errors
    /// The process has ended, or the caller may not inspect it.
    pub fn open(pid: Pid) -> Result<PageMap, KernelError> {
        let path = match stand_in(Path::new("/"), pid) {
            None => PathBuf::from(format!("/proc/{pid}/pagemap")),
            Some(tid) => PathBuf::from(format!("/proc/{pid}/task/{tid}/pagemap")),
        };
        match File::open(&path) {
            Ok(file) => Ok(PageMap { file, path, pid, bytes: Vec::new() }),
            Err(source) => Err(KernelError::of_file(path, pid, source)),
        }
    }

    /// Appends to `out` the entries of `count` pages from page `first` on: an address divided by the size of the kernel's base pages
    /// ([`crate::actuator::page_bytes`]), which may be larger than those of [`numapilot_host::PageNumber`]. Fewer where the address space ends.
    ///
    /// # Errors
    /// The process has ended.
    pub fn read(&mut self, first: u64, count: usize, out: &mut Vec<PageEntry>) -> Result<(), KernelError> {
        self.check_is_answered()?;
        self.bytes.clear();
        self.bytes.resize(count.saturating_mul(8), 0);
        let mut filled = 0;
        while filled < self.bytes.len() {
            match self.file.read_at(&mut self.bytes[filled..], first.saturating_mul(8) + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(KernelError::of_file(self.path.clone(), self.pid, source)),
            }
        }
        let words = self.bytes[..filled].as_chunks::<8>().0;
        out.extend(words.iter().map(|word| PageEntry(u64::from_ne_bytes(*word))));
        Ok(())
    }

    /// The kernel waits for the lock of the address space, and nothing ends that.
    fn check_is_answered(&self) -> Result<(), KernelError> {
        match numapilot_host::is_locked(self.pid) {
            true => Err(KernelError::of_file(self.path.clone(), self.pid, numapilot_host::locked_error())),
            false => Ok(()),
        }
    }

    /// Whether one huge page maps all of `[start, end)`: a range of the huge page's size, aligned to it. The zero page is none, but kernels before Linux 6.16
    /// do not tell the huge one. `None`: the kernel is older than Linux 6.7 and cannot be asked.
    ///
    /// # Errors
    /// The process has ended.
    pub fn is_huge(&self, start: u64, end: u64) -> Result<Option<bool>, KernelError> {
        let mut regions = [PageRegion::default()];
        let argument = ScanArgument {
            start,
            end,
            category_inverted: PAGE_IS_PFNZERO,
            category_mask: PAGE_IS_PRESENT | PAGE_IS_HUGE | PAGE_IS_PFNZERO,
            return_mask: PAGE_IS_HUGE,
            ..ScanArgument::default()
        };
        let answer = self.scan(&mut regions, argument)?;
        let [region] = regions;
        Ok(answer.map(|(found, _)| found == 1 && region.start == start && region.end == end))
    }

    /// Appends to `out` ranges of addresses (first, and first after it) whose pages are all in memory, ascending, with `most` pages at most, between `start`
    /// and `end`, which are multiples of the page size. Returns the address up to which it looked, `end` or less; `None`: the kernel is older than Linux 6.7
    /// and cannot be asked. Memory that is reserved and not touched costs next to nothing, unlike with [`PageMap::read`].
    ///
    /// # Errors
    /// The process has ended.
    pub fn present(
        &self,
        start: u64,
        end: u64,
        most: u64,
        out: &mut Vec<(u64, u64)>,
    ) -> Result<Option<u64>, KernelError> {
        let end = end.min(start.saturating_add(SPAN));
        let mut regions = vec![PageRegion::default(); REGIONS];
        let argument = ScanArgument {
            start,
            end,
            max_pages: most,
            category_mask: PAGE_IS_PRESENT,
            return_mask: PAGE_IS_PRESENT,
            ..ScanArgument::default()
        };
        let Some((found, walked_to)) = self.scan(&mut regions, argument)? else { return Ok(None) };
        let found = &regions[..found.min(REGIONS)];
        out.extend(found.iter().map(|region| (region.start, region.end)));
        // The kernel names the place where its own buffer was full, even where it has gone on from there to the end.
        let told_to = found.last().map_or(start, |region| region.end);
        Ok(Some(walked_to.max(told_to).min(end)))
    }

    /// Asks by `PAGEMAP_SCAN`. Returns how many regions the kernel has written and where it stopped; `None`: it cannot be asked.
    fn scan(&self, regions: &mut [PageRegion], argument: ScanArgument) -> Result<Option<(usize, u64)>, KernelError> {
        self.check_is_answered()?;
        self.check_has_memory()?;
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            ..argument
        };
        // SAFETY: the kernel reads and writes the argument, which has the size that it says, and writes at most as many regions to `vec` as there is room for
        // in `regions`; both outlive the call.
        let found = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) };
        if let Ok(found) = usize::try_from(found) {
            return Ok(Some((found, argument.walk_end)));
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOTTY) => Ok(None),
            source => Err(KernelError::of_file(self.path.clone(), self.pid, source)),
        }
    }

    /// Whether the file was opened while the process had memory, and it has it still. Until Linux 6.15 a process that has ended and was not waited for, and a
    /// thread of the kernel, have such a file too, and `PAGEMAP_SCAN` on it follows a null pointer in the kernel (mended by "proc: fix the issue of
    /// proc_mem_open returning NULL"). A reader of it gets nothing, and of any other at least the entry of page 0.
    fn check_has_memory(&self) -> Result<(), KernelError> {
        match self.file.read_at(&mut [0; 8], 0) {
            Ok(8) => Ok(()),
            Ok(_) => Err(KernelError::Gone { pid: self.pid }),
            Err(source) => Err(KernelError::of_file(self.path.clone(), self.pid, source)),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Pages of this process.

    use std::mem::offset_of;

    use super::*;
    use crate::actuator::page_bytes;

    /// `struct pm_scan_arg` and `struct page_region` of `include/uapi/linux/fs.h`, and the number of the call, which has the size in it.
    #[test]
    fn the_layout_is_the_kernels() {
        assert_eq!((size_of::<PageRegion>(), size_of::<ScanArgument>()), (24, 96));
        assert_eq!((offset_of!(PageRegion, end), offset_of!(PageRegion, categories)), (8, 16));
        let offsets = [
            offset_of!(ScanArgument, size),
            offset_of!(ScanArgument, flags),
            offset_of!(ScanArgument, start),
            offset_of!(ScanArgument, end),
            offset_of!(ScanArgument, walk_end),
            offset_of!(ScanArgument, vec),
            offset_of!(ScanArgument, vec_len),
            offset_of!(ScanArgument, max_pages),
            offset_of!(ScanArgument, category_inverted),
            offset_of!(ScanArgument, category_mask),
            offset_of!(ScanArgument, category_anyof_mask),
            offset_of!(ScanArgument, return_mask),
        ];
        assert!(offsets.iter().enumerate().all(|(field, offset)| *offset == 8 * field), "{offsets:?}");
        // `_IOWR('f', 16, ...)` of 96 bytes.
        let call: libc::c_ulong = 3 << 30 | 96 << 16 | 0x66 << 8 | 16;
        assert_eq!(PAGEMAP_SCAN, call);
    }

    /// Some kernels follow a null pointer where they are asked about a process that has ended and was not waited for. Its file reads like this one.
    #[test]
    fn a_file_without_memory_behind_it_is_not_scanned() {
        let file = File::open("/dev/null").unwrap();
        let map = PageMap { file, path: PathBuf::from("/dev/null"), pid: Pid(7), bytes: Vec::new() };
        assert!(matches!(map.is_huge(0, 2 << 20), Err(KernelError::Gone { pid: Pid(7) })));
        assert!(matches!(map.present(0, 4096, 1, &mut Vec::new()), Err(KernelError::Gone { .. })));
    }

    /// The addresses of a mapping's pages in memory by their entries, and by scans for so many pages at most; `None`: the kernel cannot be asked.
    fn both_ways(map: &mut PageMap, (start, end): (u64, u64), most: u64) -> Option<(Vec<u64>, Vec<u64>)> {
        let (page, mut entries, mut ranges, mut at) = (page_bytes(), Vec::new(), Vec::new(), start);
        map.read(start / page, ((end - start) / page) as usize, &mut entries).unwrap();
        let there = (0..).zip(&entries).filter(|(_, entry)| entry.is_present());
        let by_entries = there.map(|(number, _)| start + number * page).collect();
        while at < end {
            let before = ranges.len();
            let next = map.present(at, end, most, &mut ranges).unwrap()?;
            let told: u64 = ranges[before..].iter().map(|(first, last)| (last - first) / page).sum();
            assert!(next > at && next <= end && told <= most, "{told} pages, {next:x} from {at:x}");
            at = next;
        }
        let by_scans = ranges.iter().flat_map(|(first, last)| (*first..*last).step_by(page as usize)).collect();
        Some((by_entries, by_scans))
    }

    /// Of more ranges than one call tells, and than the kernel's own buffer holds.
    #[test]
    fn scans_find_what_the_entries_say() {
        let page = page_bytes();
        let (pages, flags) = (3 * REGIONS + 1700, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let bytes = pages * page as usize;
        // SAFETY: a new mapping, of which only bytes within are written, and which ends after its last use.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        // SAFETY: as above.
        unsafe {
            libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE);
            for touched in (0..pages).step_by(3) {
                base.cast::<u8>().add(touched * page as usize).write_volatile(1);
            }
        }
        let mut map = PageMap::open(Pid::own()).unwrap();
        let range = (base as u64, base as u64 + bytes as u64);
        // The kernel may swap or move a page between two looks, but not between all of them.
        let agrees = |most: u64| -> Option<bool> {
            for _ in 0..100 {
                let (by_entries, by_scans) = both_ways(&mut map, range, most)?;
                if by_entries == by_scans && !by_scans.is_empty() {
                    return Some(true);
                }
            }
            Some(false)
        };
        let agree = [u64::MAX, 600].map(agrees);
        // SAFETY: as above.
        unsafe { libc::munmap(base, bytes) };
        match agree {
            [Some(all), Some(some)] => assert!(all && some, "at once: {all}, some at a time: {some}"),
            _ => numapilot_not_run::not_run!(PagemapScan, "the kernel does not know the call"),
        }
    }

    #[test]
    fn a_touched_page_is_present_and_an_untouched_one_is_not() {
        let page = page_bytes();
        let mut memory = vec![0_u8; 64 * page as usize];
        let first = memory.as_ptr() as u64 / page + 1;
        // SAFETY: a byte of a vector of our own; volatile, so that the page is really read and, being written, really there.
        unsafe { memory.as_mut_ptr().add(2 * page as usize).write_volatile(1) };
        let mut map = PageMap::open(Pid::own()).unwrap();
        let mut entries = Vec::new();
        map.read(first, 62, &mut entries).unwrap();
        assert_eq!(entries.len(), 62);
        assert!(entries[((memory.as_ptr() as u64 + 2 * page) / page - first) as usize].is_present());
        assert!(!entries[40].is_swapped());
        assert!(matches!(PageMap::open(Pid(u32::MAX)), Err(KernelError::Gone { .. })));
    }

    #[test]
    fn the_bits_are_the_kernels() {
        assert!(PageEntry(1 << 63).is_present() && PageEntry(1 << 62).is_swapped());
        assert!(PageEntry(1 << 61).is_file_or_shared() && PageEntry(1 << 56).is_exclusive());
        assert_eq!((PageEntry(1 << 63 | 77).frame(), PageEntry(1 << 63).frame()), (Some(77), None));
    }
}
