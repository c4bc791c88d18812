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

    /// Whether one huge page, which is not the zero page, maps all of `[start, end)`: a range of the huge page's size, aligned to it. `None`: the kernel is
    /// older than Linux 6.7 and cannot be asked.
    ///
    /// # Errors
    /// The process has ended.
    pub fn is_huge(&self, start: u64, end: u64) -> Result<Option<bool>, KernelError> {
        self.check_is_answered()?;
        let mut region = PageRegion::default();
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start,
            end,
            vec: (&raw mut region) as u64,
            vec_len: 1,
            category_inverted: PAGE_IS_PFNZERO,
            category_mask: PAGE_IS_PRESENT | PAGE_IS_HUGE | PAGE_IS_PFNZERO,
            return_mask: PAGE_IS_HUGE,
            ..ScanArgument::default()
        };
        // SAFETY: the kernel reads and writes the argument, which has the size that it says, and writes at most one region to `vec`; both outlive the call.
        let found = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) };
        if found >= 0 {
            return Ok(Some(found == 1 && region.start == start && region.end == end));
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOTTY) => Ok(None),
            source => Err(KernelError::of_file(self.path.clone(), self.pid, source)),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Pages of this process.

    use super::*;
    use crate::actuator::page_bytes;

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
