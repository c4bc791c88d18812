//! Looks up how large the pages are that faults have just mapped: the kernel's record of a fault is from before the page is there. A size that the kernel does
//! not report (the process has ended, the kernel is too old) stays unknown.

use std::collections::HashMap;

use numapilot_kernel::KernelError;
use numapilot_kernel::actuator::{huge_bytes, page_bytes};
use numapilot_kernel::pagemap::PageMap;

const PAGE_SHIFT: u32 = 12;

/// Bytes of pages that the kernel was asked for, by process id and page number.
pub type Sizes = foldhash::HashMap<(u32, u64), u64>;

/// Counts of look-ups of pages' sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizesAsked {
    /// Pages whose faults may have mapped them.
    pub pages: u64,
    /// Of these, pages whose size the kernel reported.
    pub told: u64,
    /// Faults that were too old for a look-up when they were processed.
    pub late: u64,
    /// The kernel cannot be asked (before Linux 6.7).
    pub is_too_old: bool,
    /// The kernel makes no transparent huge pages (`never` in /sys/kernel/mm/transparent_hugepage/enabled, or no such file).
    pub are_never_huge: bool,
}

/// The pages whose sizes are to be looked up, by process.
#[derive(Debug)]
pub struct PageSizes {
    base_bytes: u64,
    huge_bytes: u64,
    wanted: HashMap<u32, Vec<u64>>,
    /// Counts of the look-ups.
    pub asked: SizesAsked,
}

impl Default for PageSizes {
    fn default() -> PageSizes {
        PageSizes {
            base_bytes: page_bytes(),
            huge_bytes: huge_bytes(),
            wanted: HashMap::new(),
            asked: SizesAsked { are_never_huge: !makes_huge_pages(), ..SizesAsked::default() },
        }
    }
}

/// Whether the kernel makes transparent huge pages, of all memory or of what asks for them.
fn makes_huge_pages() -> bool {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    enabled.is_ok_and(|text| !text.contains("[never]"))
}

impl PageSizes {
    /// Wants to know the size of a page.
    pub fn want(&mut self, pid: u32, address: u64) {
        self.wanted.entry(pid).or_default().push(address >> PAGE_SHIFT);
    }

    /// Asks for everything that is wanted.
    pub fn ask(&mut self, sizes: &mut Sizes) {
        let (mut wanted, is_too_old) = (std::mem::take(&mut self.wanted), self.asked.is_too_old);
        for (&pid, pages) in &mut wanted {
            pages.sort_unstable();
            pages.dedup();
            self.asked.pages += pages.len() as u64;
            if !is_too_old {
                // A process that ends meanwhile leaves the rest of its pages unknown.
                let _ = self.process(pid, pages, sizes);
            }
        }
    }

    /// The pages of one process, ascending: each aligned range of a huge page's size is looked up once.
    fn process(&mut self, pid: u32, pages: &[u64], sizes: &mut Sizes) -> Result<(), KernelError> {
        let mut map = PageMap::open(pid)?;
        let mut last: Option<(u64, Option<u64>)> = None;
        for &page in pages {
            let start = (page << PAGE_SHIFT) & !(self.huge_bytes - 1);
            let bytes = match last {
                Some((known, bytes)) if known == start => bytes,
                _ => self.size(&mut map, start, page << PAGE_SHIFT)?,
            };
            last = Some((start, bytes));
            if let Some(bytes) = bytes {
                self.asked.told += 1;
                sizes.insert((pid, page), bytes);
            }
        }
        Ok(())
    }

    fn size(&mut self, map: &mut PageMap, start: u64, address: u64) -> Result<Option<u64>, KernelError> {
        let Some(is_huge) = map.is_huge(start, start + self.huge_bytes)? else {
            self.asked.is_too_old = true;
            return Ok(None);
        };
        if !is_huge {
            return Ok(Some(self.base_bytes));
        }
        // The huge zero page is nobody's, and no page has been placed. Kernels differ in what they call it; it is of no file and not the process's own.
        let mut entries = Vec::new();
        map.read(address / self.base_bytes, 1, &mut entries)?;
        let is_page = entries.first().is_some_and(|entry| entry.is_exclusive() || entry.is_file_or_shared());
        Ok(is_page.then_some(self.huge_bytes))
    }
}

#[cfg(test)]
mod tests {
    //! Pages of this process.

    use super::*;

    #[test]
    fn base_pages_and_huge_ones_are_told_apart() {
        let mut asker = PageSizes::default();
        let huge = asker.huge_bytes as usize;
        let bytes = 3 * huge;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let pid = std::process::id();
        let mut sizes = Sizes::default();
        for advice in [libc::MADV_NOHUGEPAGE, libc::MADV_HUGEPAGE] {
            // SAFETY: a new mapping, of which only bytes within are written, and which ends after its last use.
            let (base, page) = unsafe {
                let base = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
                assert_ne!(base, libc::MAP_FAILED);
                libc::madvise(base, bytes, advice);
                let page = (base as usize).next_multiple_of(huge) + 5 * asker.base_bytes as usize;
                (page as *mut u8).write_volatile(1);
                (base, page as u64)
            };
            asker.want(pid, page);
            asker.ask(&mut sizes);
            let told = sizes.get(&(pid, page >> PAGE_SHIFT)).copied();
            if !asker.asked.is_too_old {
                let own = [Some(asker.base_bytes), Some(asker.huge_bytes)];
                // A system may have no free huge page, or be told never to use one.
                assert!(own.contains(&told), "{told:?}");
                assert!(advice == libc::MADV_HUGEPAGE || told == own[0], "{told:?}");
            }
            // SAFETY: as above.
            unsafe { libc::munmap(base, bytes) };
        }
        let asked = asker.asked;
        assert!(asked.pages == 2 && (asked.told == 2) != asked.is_too_old, "{asked:?}");
    }

    #[test]
    fn what_has_ended_stays_unknown() {
        let (mut asker, mut sizes) = (PageSizes::default(), Sizes::default());
        asker.want(u32::MAX, 0x1000);
        asker.ask(&mut sizes);
        assert!(sizes.is_empty() && asker.asked.pages == 1 && asker.asked.told == 0);
    }
}
