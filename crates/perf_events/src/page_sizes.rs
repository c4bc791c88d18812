//! Looks up how large the pages are that faults have just mapped: the kernel's record of a fault is from before the page is there. A size that the kernel does
//! not report (the process has ended, the kernel is too old) stays unknown.
//!
//! The kernel reports whether a page is huge, and no sizes in between (multi-size THP, Linux 6.8 and later). Where those are in use, a page is known to be a
//! base page only if a neighbour, which a larger page would have mapped too, is not there.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_host::VirtAddr;
use numapilot_kernel::KernelError;
use numapilot_kernel::actuator::{huge_bytes, page_bytes};
use numapilot_kernel::maps;
use numapilot_kernel::pagemap::PageMap;

/// Bytes of pages that the kernel was asked for, by process id and page.
pub type Sizes = foldhash::HashMap<(Pid, PageNumber), u64>;

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
    /// The kernel makes no transparent huge pages of any size (`never` in /sys/kernel/mm/transparent_hugepage, or no such folder).
    pub are_never_huge: bool,
    /// Pages that may be larger than a base page and smaller than a huge page, which the kernel does not report.
    pub between: u64,
}

/// Which pages this machine has, beside base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Offer {
    /// Transparent huge pages are made, of any size.
    has_huge: bool,
    /// Bytes of the smallest size between a base page and a huge page that is made.
    least_between: Option<u64>,
    /// Bytes of the largest reserved pages (hugetlb) that are larger than huge pages.
    giant: Option<u64>,
}

impl Offer {
    /// As sysfs under `root` says (`Documentation/admin-guide/mm/transhuge.rst`, `hugetlbpage.rst`); `huge_bytes`: of a huge page.
    fn read(root: &Path, huge_bytes: u64) -> Offer {
        let folder = root.join("sys/kernel/mm/transparent_hugepage");
        let mut offer = Offer::default();
        for file in ["enabled", "shmem_enabled"] {
            let is_top = is_made(&folder.join(file), false);
            let mut is_any = false;
            for (bytes, size) in sizes_in(&folder) {
                let is_size = is_made(&size.join(file), is_top);
                is_any = true;
                offer.has_huge |= is_size;
                if is_size && bytes < huge_bytes {
                    offer.least_between = Some(offer.least_between.map_or(bytes, |least| least.min(bytes)));
                }
            }
            // Kernels before 6.8 have one setting for the only size.
            offer.has_huge |= is_top && (!is_any || file == "shmem_enabled");
        }
        let is_reserved = |folder: &Path| {
            let text = fs::read_to_string(folder.join("nr_hugepages")).unwrap_or_default();
            text.trim().parse::<u64>().is_ok_and(|count| count > 0)
        };
        let reserved = sizes_in(&root.join("sys/kernel/mm/hugepages")).into_iter();
        offer.giant =
            reserved.filter(|(bytes, of)| *bytes > huge_bytes && is_reserved(of)).map(|(bytes, _)| bytes).max();
        offer
    }
}

/// Whether pages of a size are made, of all memory or of what asks for them, by the setting in a file; `inherited`: the setting for all sizes.
fn is_made(file: &Path, inherited: bool) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    match chosen {
        Some("inherit") => inherited,
        None | Some("never" | "deny") => false,
        Some(_) => true,
    }
}

/// The folders `hugepages-SIZEkB` in a folder, with their sizes in bytes.
fn sizes_in(folder: &Path) -> Vec<(u64, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |path: PathBuf| {
        let kib = path.file_name()?.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?;
        Some((kib.checked_mul(1024)?, path))
    };
    entries.filter_map(|entry| size(entry.path())).collect()
}

/// First address, end and page size in bytes of the mapping at an address, in the text of `smaps`; `None`: no mapping is there, or the kernel does not say.
fn size_of_mapping(text: &[u8], address: u64) -> Option<(u64, u64, u64)> {
    let (line, used) = maps::uses(text).find(|(line, _)| line.contains(VirtAddr(address)))?;
    (used.page_kib > 0).then(|| (line.start.0, line.end.0, used.page_kib.saturating_mul(1024)))
}

/// The pages whose sizes are to be looked up, by process.
#[derive(Debug)]
pub struct PageSizes {
    base_bytes: u64,
    huge_bytes: u64,
    offer: Offer,
    wanted: HashMap<Pid, Vec<PageNumber>>,
    /// First addresses, ends and page sizes of mappings that may have pages of the largest size, by process id. They are those of one [`PageSizes::ask`]:
    /// later, the process may have mapped others there, or another have its number.
    giants: HashMap<Pid, Vec<(u64, u64, u64)>>,
    text: Vec<u8>,
    /// Counts of the look-ups.
    pub asked: SizesAsked,
}

impl Default for PageSizes {
    fn default() -> PageSizes {
        let huge_bytes = huge_bytes();
        let offer = Offer::read(Path::new("/"), huge_bytes);
        PageSizes {
            base_bytes: page_bytes(),
            huge_bytes,
            offer,
            wanted: HashMap::new(),
            giants: HashMap::new(),
            text: Vec::new(),
            asked: SizesAsked { are_never_huge: !offer.has_huge, ..SizesAsked::default() },
        }
    }
}

impl PageSizes {
    /// Wants to know the size of a page.
    pub fn want(&mut self, pid: Pid, address: u64) {
        self.wanted.entry(pid).or_default().push(PageNumber::of(address));
    }

    /// Asks for everything that is wanted.
    pub fn ask(&mut self, sizes: &mut Sizes) {
        self.giants.clear();
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
    fn process(&mut self, pid: Pid, pages: &[PageNumber], sizes: &mut Sizes) -> Result<(), KernelError> {
        let mut map = PageMap::open(pid)?;
        let mut last: Option<(u64, Option<u64>)> = None;
        for &page in pages {
            let address = page.address();
            let start = address & !(self.huge_bytes - 1);
            let bytes = match last {
                Some((known, bytes)) if known == start => bytes,
                _ => self.size(&mut map, start, address)?,
            };
            last = Some((start, bytes));
            let bytes = match bytes {
                Some(bytes) if bytes == self.base_bytes && self.is_between(&mut map, address)? => {
                    self.asked.between += 1;
                    None
                }
                Some(bytes) if bytes == self.huge_bytes => Some(self.giant(&map, pid, address)?),
                bytes => bytes,
            };
            if let Some(bytes) = bytes {
                self.asked.told += 1;
                sizes.insert((pid, page), bytes);
            }
        }
        Ok(())
    }

    /// Whether a page that is not huge may still be larger than a base page: all pages are there that the next larger one would have mapped with it.
    fn is_between(&self, map: &mut PageMap, address: u64) -> Result<bool, KernelError> {
        let Some(least) = self.offer.least_between.filter(|least| *least > self.base_bytes) else { return Ok(false) };
        let mut entries = Vec::new();
        let count = (least / self.base_bytes) as usize;
        map.read((address & !(least - 1)) / self.base_bytes, count, &mut entries)?;
        Ok(entries.len() == count && entries.iter().all(|entry| entry.is_present()))
    }

    /// Size of a huge page, which may be a larger one of those that are reserved (hugetlb): the size that its mapping has, where all of that range is huge.
    /// Of each mapping that is found once: for `smaps` the kernel walks all of the process's page tables, with its memory map locked.
    fn giant(&mut self, map: &PageMap, pid: Pid, address: u64) -> Result<u64, KernelError> {
        let Some(giant) = self.offer.giant.filter(|bytes| bytes.is_power_of_two()) else { return Ok(self.huge_bytes) };
        let mut known = self.giants.get(&pid).into_iter().flatten();
        if let Some(&(.., bytes)) = known.find(|(start, end, _)| (*start..*end).contains(&address)) {
            return Ok(bytes.max(self.huge_bytes));
        }
        let start = address & !(giant - 1);
        if map.is_huge(start, start + giant)? != Some(true) {
            return Ok(self.huge_bytes);
        }
        maps::read(pid, "smaps", &mut self.text)?;
        // It may be gone meanwhile.
        let found = size_of_mapping(&self.text, address).unwrap_or((start, start + giant, 0));
        self.giants.entry(pid).or_default().push(found);
        Ok(found.2.max(self.huge_bytes))
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
        let pid = Pid::own();
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
            let told = sizes.get(&(pid, PageNumber::of(page))).copied();
            if !asker.asked.is_too_old {
                let own = [Some(asker.base_bytes), Some(asker.huge_bytes)];
                // A system may have no free huge page, or be told never to use one, or use one of a size in between.
                assert!(own.contains(&told) || asker.asked.between > 0, "{told:?}");
                assert!(advice == libc::MADV_HUGEPAGE || told == own[0], "{told:?}");
            }
            // SAFETY: as above.
            unsafe { libc::munmap(base, bytes) };
        }
        let asked = asker.asked;
        assert!(asked.pages == 2 && (asked.told + asked.between == 2) != asked.is_too_old, "{asked:?}");
    }

    /// Four pages that are there as if one page of 16 KiB had mapped them, and one without neighbours.
    #[test]
    fn a_page_with_all_its_neighbours_may_be_larger() {
        let mut asker = PageSizes::default();
        let base = asker.base_bytes;
        asker.offer.least_between = Some(4 * base);
        let bytes = 32 * base as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, of which only bytes within are written, and which ends with the process.
        let first = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE);
            let first = (at as usize).next_multiple_of(4 * base as usize);
            for page in [0, 1, 2, 3, 9] {
                ((first + page * base as usize) as *mut u8).write_volatile(1);
            }
            first as u64
        };
        let (pid, mut sizes) = (Pid::own(), Sizes::default());
        for page in [1, 9] {
            asker.want(pid, first + page * base);
        }
        asker.ask(&mut sizes);
        let told = [1, 9].map(|page| sizes.get(&(pid, PageNumber::of(first + page * base))).copied());
        if asker.asked.is_too_old {
            assert_eq!(told, [None; 2]);
        } else {
            assert_eq!((told, asker.asked.between, asker.asked.told), ([None, Some(base)], 1, 1));
        }
    }

    #[test]
    fn sizes_that_the_kernel_makes_are_read_from_their_folders() {
        const HUGE: u64 = 2 << 20;
        let offer = |files: &[(&str, &str)]| {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = root.path().join("sys/kernel/mm").join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Offer::read(root.path(), HUGE)
        };
        let [top, huge] = ["transparent_hugepage/enabled", "transparent_hugepage/hugepages-2048kB/enabled"];
        let [small, middle] = [16, 64].map(|kib| format!("transparent_hugepage/hugepages-{kib}kB/enabled"));
        let never = "always inherit madvise [never]";
        assert_eq!(offer(&[]), Offer::default());
        assert_eq!(offer(&[(top, "always madvise [never]")]), Offer::default());
        assert!(offer(&[(top, "always [madvise] never")]).has_huge, "before 6.8");
        let files = [(top, "[always] madvise never"), (huge, never), (&*small, never)];
        assert_eq!(offer(&files), Offer::default(), "each size is turned off");
        let files = [(top, "always madvise [never]"), (huge, "always [inherit] madvise never"), (&*small, never)];
        assert_eq!(offer(&files), Offer::default());
        let files = [(top, "always madvise [never]"), (&*small, "[always] inherit madvise never"), (&*middle, never)];
        let expected = Offer { has_huge: true, least_between: Some(16 << 10), giant: None };
        assert_eq!(offer(&files), expected, "although the setting for all is never");
        let files = [(top, "always [madvise] never"), (&*small, never), (&*middle, "always [inherit] madvise never")];
        assert_eq!(offer(&files).least_between, Some(64 << 10));
        let counts =
            [("hugepages/hugepages-1048576kB/nr_hugepages", "3\n"), ("hugepages/hugepages-2048kB/nr_hugepages", "9\n")];
        assert_eq!(offer(&counts).giant, Some(1 << 30));
        assert_eq!(offer(&[("hugepages/hugepages-1048576kB/nr_hugepages", "0\n")]).giant, None);
    }

    #[test]
    fn a_mapping_of_larger_pages_says_so() {
        let text = b"40000000-c0000000 rw-p 00000000 00:0f 7 /anon_hugepage (deleted)\nSize: 2097152 kB\nKernelPageSize: 1048576 kB\n\
            c0000000-c0001000 rw-p 00000000 00:00 0 \nKernelPageSize: 4 kB\n";
        let found = [0x4000_0000, 0xbfff_ffff, 0xc000_0000, 0xd000_0000].map(|at| size_of_mapping(text, at));
        let giant = Some((0x4000_0000, 0xc000_0000, 1 << 30));
        assert_eq!(found, [giant, giant, Some((0xc000_0000, 0xc000_1000, 4096)), None]);
    }

    #[test]
    fn a_mapping_is_looked_up_once_for_all_of_its_large_pages_and_anew_when_asked_again() {
        let (mut asker, pid) = (PageSizes::default(), Pid::own());
        asker.offer.giant = Some(1 << 30);
        asker.giants.insert(pid, vec![(0x4000_0000, 0xc000_0000, 1 << 30)]);
        let map = PageMap::open(pid).unwrap();
        for (address, bytes) in [(0x4000_0000, 1 << 30), (0x8123_4000, 1 << 30), (0xc000_0000, asker.huge_bytes)] {
            assert_eq!(asker.giant(&map, pid, address).unwrap(), bytes, "{address:x}");
        }
        assert!(asker.text.is_empty(), "nothing was read");
        asker.ask(&mut Sizes::default());
        assert!(asker.giants.is_empty());
    }

    /// Ordinary huge pages, as if a larger size were no larger than they are: each might be one of those.
    #[test]
    fn huge_pages_of_one_mapping_are_told_by_one_look() {
        let (mut asker, mut sizes, pid) = (PageSizes::default(), Sizes::default(), Pid::own());
        let huge = asker.huge_bytes as usize;
        asker.offer.giant = Some(asker.huge_bytes);
        let bytes = 5 * huge;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, of which only bytes within are written, and which ends with the process.
        let pages = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            libc::madvise(at, bytes, libc::MADV_HUGEPAGE);
            let first = (at as usize).next_multiple_of(huge);
            [0, 1, 2, 3].map(|number| {
                let page = first + number * huge;
                (page as *mut u8).write_volatile(1);
                page as u64
            })
        };
        // Once more, as if another mapping had been there before.
        for _ in 0..2 {
            sizes.clear();
            pages.iter().for_each(|&page| asker.want(pid, page));
            asker.ask(&mut sizes);
            let is_any = pages.iter().any(|page| sizes.get(&(pid, PageNumber::of(*page))) == Some(&asker.huge_bytes));
            let looks: Vec<_> = asker.giants.get(&pid).into_iter().flatten().collect();
            assert_eq!(looks.len(), usize::from(is_any), "{looks:x?}");
            let holds = |page: &u64| looks.iter().all(|(start, end, _)| (*start..*end).contains(page));
            assert!(pages.iter().all(holds), "{looks:x?}");
        }
    }

    #[test]
    fn what_has_ended_stays_unknown() {
        let (mut asker, mut sizes) = (PageSizes::default(), Sizes::default());
        asker.want(Pid(u32::MAX), 0x1000);
        asker.ask(&mut sizes);
        assert!(sizes.is_empty() && asker.asked.pages == 1 && asker.asked.told == 0);
    }
}
