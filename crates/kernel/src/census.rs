//! Lists a process's pages in memory, mapping by mapping, and where huge pages may be.

use crate::actuator::page_bytes;
use crate::error::KernelError;
use crate::maps;
use crate::pagemap::PageMap;
use numapilot_host::Pid;
use numapilot_host::VirtAddr;

/// Page map entries read, or pages in memory asked for, at once.
const CHUNK: u64 = 16 << 10;

/// A mapping that may hold pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub start: VirtAddr,
    /// First address after the range.
    pub end: VirtAddr,
    /// Bytes in memory; 0 where not asked.
    pub resident_bytes: u64,
    /// Of these, in transparent huge pages.
    pub huge_bytes: u64,
    /// Bytes in pages of the hugetlb pool, which are not among those; 0 where not asked.
    pub hugetlb_bytes: u64,
    /// Whether the mapping is shared: other processes see writes to it.
    pub is_shared: bool,
    /// Whether a file backs the mapping.
    pub is_file: bool,
}

/// Mappings of a process that can hold movable pages: not those of the kernel.
///
/// # Errors
/// It has ended or may not be looked into.
pub fn mappings(pid: Pid) -> Result<Vec<Range>, KernelError> {
    read(pid, "maps", |text| maps::maps(text).filter_map(|line| range(&line, None)).collect())
}

/// The same with what is in memory: reads the whole page table, so it takes a while for large processes.
///
/// # Errors
/// As for [`mappings`].
pub fn residents(pid: Pid) -> Result<Vec<Range>, KernelError> {
    read(pid, "smaps", residents_in)
}

/// [`residents`] in the text of `smaps`.
fn residents_in(text: &[u8]) -> Vec<Range> {
    maps::uses(text).filter_map(|(line, used)| range(&line, Some(&used))).collect()
}

fn read(pid: Pid, name: &str, of: impl Fn(&[u8]) -> Vec<Range>) -> Result<Vec<Range>, KernelError> {
    let mut text = Vec::new();
    maps::read(pid, name, &mut text)?;
    Ok(of(&text))
}

fn range(line: &maps::MapLine<'_>, used: Option<&maps::MapUse>) -> Option<Range> {
    let is_kernels = line.path.starts_with(b"[v") || line.start.0 >= 1 << 63;
    let bytes = |of: fn(&maps::MapUse) -> u64| used.map_or(0, |used| of(used) << 10);
    (!is_kernels && line.start < line.end).then(|| Range {
        start: line.start,
        end: line.end,
        resident_bytes: bytes(|used| used.resident_kib),
        huge_bytes: bytes(|used| used.huge_kib),
        hugetlb_bytes: bytes(|used| used.hugetlb_kib),
        is_shared: line.is_shared(),
        is_file: line.inode != 0,
    })
}

/// Calls `visit` with addresses of pages in memory between `start` and `end`, ascending, some thousands at a time. Kernels since Linux 6.7 pass over what a
/// program has reserved and not touched, of which there may be terabytes; older ones have an entry of 8 bytes for each page of that, too.
///
/// # Errors
/// The process has ended.
pub fn present(
    map: &mut PageMap,
    start: VirtAddr,
    end: VirtAddr,
    visit: &mut dyn FnMut(&[u64]),
) -> Result<(), KernelError> {
    let (size, mut ranges, mut addresses) = (page_bytes(), Vec::new(), Vec::new());
    let (mut at, end) = (start.0 / size * size, end.0.div_ceil(size).saturating_mul(size));
    while at < end {
        ranges.clear();
        let next = match map.present(at, end, CHUNK, &mut ranges)? {
            Some(next) if next > at => next,
            _ => return present_by_entries(map, (at / size, end / size), visit),
        };
        addresses.clear();
        addresses.extend(ranges.iter().flat_map(|(first, last)| (*first..*last).step_by(size as usize)));
        if !addresses.is_empty() {
            visit(&addresses);
        }
        at = next;
    }
    Ok(())
}

/// [`present`] between two pages, by the entries of all of them.
fn present_by_entries(
    map: &mut PageMap,
    (mut page, last): (u64, u64),
    visit: &mut dyn FnMut(&[u64]),
) -> Result<(), KernelError> {
    let (size, mut entries, mut addresses) = (page_bytes(), Vec::new(), Vec::new());
    while page < last {
        let count = (last - page).min(CHUNK);
        entries.clear();
        map.read(page, count as usize, &mut entries)?;
        addresses.clear();
        let there = entries.iter().enumerate().filter(|(_, entry)| entry.is_present());
        addresses.extend(there.map(|(at, _)| (page + at as u64) * size));
        if !addresses.is_empty() {
            visit(&addresses);
        }
        if (entries.len() as u64) < count {
            break;
        }
        page += count;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! This process.

    use super::*;

    /// `Rss` does not have them: `numapilot move` left them without a word.
    #[test]
    fn pages_of_the_hugetlb_pool_are_told_beside_the_others() {
        let smaps =
            b"7f0000000000-7f0040000000 rw-s 00000000 00:0f 42 /anon_hugepage (deleted)\nRss:                   0 kB\n\
            AnonHugePages:         0 kB\nShared_Hugetlb:     4096 kB\nPrivate_Hugetlb:    2048 kB\n\
            7f0040000000-7f0040100000 rw-p 00000000 00:00 0\nRss:                   8 kB\n";
        let found: Vec<_> =
            residents_in(smaps).iter().map(|range| (range.resident_bytes, range.hugetlb_bytes)).collect();
        assert_eq!(found, [(0, 6 << 20), (8 << 10, 0)]);
    }

    #[test]
    fn touched_pages_are_found_and_others_are_not() {
        let bytes = 64 * page_bytes();
        let mut memory = vec![0_u8; bytes as usize];
        let start = (memory.as_ptr() as u64).next_multiple_of(page_bytes());
        let offset = (start - memory.as_ptr() as u64 + 3 * page_bytes()) as usize;
        memory[offset] = 1;
        let pid = Pid::own();
        let found = residents(pid).unwrap();
        assert!(found.iter().any(|range| range.start.0 <= start && start < range.end.0 && range.resident_bytes > 0));
        // Other tests map and unmap meanwhile: the two lists need not be of one moment.
        assert!(found.is_sorted_by_key(|range| range.start));
        let mut pages = Vec::new();
        let (mut map, end) = (PageMap::open(pid).unwrap(), start + bytes / 2);
        present(&mut map, VirtAddr(start), VirtAddr(end), &mut |some| pages.extend_from_slice(some)).unwrap();
        assert!(pages.contains(&(start + 3 * page_bytes())) && pages.is_sorted(), "{pages:x?}");
        let (mut by_entries, range) = (Vec::new(), (start / page_bytes(), end / page_bytes()));
        present_by_entries(&mut map, range, &mut |some| by_entries.extend_from_slice(some)).unwrap();
        assert!(by_entries.contains(&(start + 3 * page_bytes())) && by_entries.is_sorted(), "{by_entries:x?}");
    }
}
