//! `/proc/PID/pagemap`: one word per page of a process's address space (`Documentation/admin-guide/mm/pagemap.rst`). The process's
//! user may read which pages are in memory; physical addresses need CAP_SYS_ADMIN (others read zeroes).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::path::PathBuf;

use crate::error::KernelError;
use crate::task::stand_in;

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

/// A process's page map, held open: it refers to that process even after its id is reused.
#[derive(Debug)]
pub struct PageMap {
    file: File,
    path: PathBuf,
    pid: u32,
    bytes: Vec<u8>,
}

impl PageMap {
    /// Opens a process's page map.
    ///
    /// # Errors
    /// The process has ended, or the caller may not inspect it.
    pub fn open(pid: u32) -> Result<PageMap, KernelError> {
        let path = match stand_in(Path::new("/"), pid) {
            None => PathBuf::from(format!("/proc/{pid}/pagemap")),
            Some(tid) => PathBuf::from(format!("/proc/{pid}/task/{tid}/pagemap")),
        };
        match File::open(&path) {
            Ok(file) => Ok(PageMap { file, path, pid, bytes: Vec::new() }),
            Err(source) => Err(KernelError::of_file(path, pid, source)),
        }
    }

    /// Appends to `out` the entries of `count` pages from page number `first` (address divided by the page's size) on. Fewer where the address space
    /// ends.
    ///
    /// # Errors
    /// The process has ended.
    pub fn read(&mut self, first: u64, count: usize, out: &mut Vec<PageEntry>) -> Result<(), KernelError> {
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
}

#[cfg(test)]
mod tests {
    //! Pages of this process.

    use super::*;

    #[test]
    fn a_touched_page_is_present_and_an_untouched_one_is_not() {
        let mut memory = vec![0_u8; 64 * 4096];
        let first = memory.as_ptr() as u64 / 4096 + 1;
        // SAFETY: a byte of a vector of our own; volatile, so that the page is really read and, being written, really there.
        unsafe { memory.as_mut_ptr().add(8192).write_volatile(1) };
        let mut map = PageMap::open(std::process::id()).unwrap();
        let mut entries = Vec::new();
        map.read(first, 62, &mut entries).unwrap();
        assert_eq!(entries.len(), 62);
        assert!(entries[(memory.as_ptr() as u64 + 8192) as usize / 4096 - first as usize].is_present());
        assert!(!entries[40].is_swapped());
        assert!(matches!(PageMap::open(u32::MAX), Err(KernelError::Gone { .. })));
    }

    #[test]
    fn the_bits_are_the_kernels() {
        assert!(PageEntry(1 << 63).is_present() && PageEntry(1 << 62).is_swapped());
        assert!(PageEntry(1 << 61).is_file_or_shared() && PageEntry(1 << 56).is_exclusive());
        assert_eq!((PageEntry(1 << 63 | 77).frame(), PageEntry(1 << 63).frame()), (Some(77), None));
    }
}
