//! The memory of a process by node, and the parts of it for which the program has chosen nodes itself: it has set a memory policy for them (`mbind`), or for
//! all of its memory (`set_mempolicy`, numactl). Both stand in `/proc/PID/numa_maps`; the policies of single threads other than the first stand nowhere.

use std::collections::BTreeMap;

use numapilot_host::Pid;
use numapilot_host::VirtAddr;
use numapilot_machine::NodeId;

use crate::actuator::page_bytes;
use crate::error::KernelError;
use crate::maps;

/// What numa_maps says of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaMemory {
    /// Bytes in memory by node. Pages that several processes map count for each of them.
    pub bytes: BTreeMap<NodeId, u64>,
    /// This process's part of that by node: pages that several processes map count for each with one part of so many, by the page of a mapping that is
    /// mapped most often, so at most what it has. All processes' parts together are at most what is in memory.
    pub parts: BTreeMap<NodeId, u64>,
    /// Address ranges with a policy of the program's own, ascending and disjoint.
    pub chosen: Vec<(VirtAddr, VirtAddr)>,
    /// Bytes in memory there, by policy, such as `bind`.
    pub chosen_bytes: BTreeMap<&'static str, u64>,
    /// Address ranges of hugetlb mappings, ascending and disjoint. Their pages, of 2 MiB, 1 GiB and so on, move as wholes.
    pub hugetlb: Vec<(VirtAddr, VirtAddr)>,
}

impl NumaMemory {
    /// Reads it. The kernel walks the whole page table for this, so it takes a while for large processes.
    ///
    /// # Errors
    /// The process has ended or may not be looked into.
    pub fn of_process(pid: Pid) -> Result<NumaMemory, KernelError> {
        let (mut text, mut mappings) = (Vec::new(), Vec::new());
        maps::read(pid, "numa_maps", &mut text)?;
        maps::read(pid, "maps", &mut mappings)?;
        Ok(NumaMemory::of_texts(&text, &mappings))
    }

    /// From the texts of `numa_maps`, which has where mappings begin, and of `maps`, which has where they end.
    #[must_use]
    pub fn of_texts(numa_maps: &[u8], mappings: &[u8]) -> NumaMemory {
        let ends: BTreeMap<VirtAddr, VirtAddr> = maps::maps(mappings).map(|line| (line.start, line.end)).collect();
        let mut found = NumaMemory::default();
        maps::numa_maps(numa_maps, |line, pages| {
            let size = if line.page_kib > 0 { line.page_kib << 10 } else { page_bytes() };
            for (node, count) in pages {
                *found.bytes.entry(*node).or_default() += count * size;
                *found.parts.entry(*node).or_default() += count * size / line.most_mappings.max(1);
            }
            // A mapping that is gone by now needs no end; of one that has grown into that before it meanwhile, the end is that one's.
            let at_or_before = ends.range(..=line.start).next_back().map(|(_, end)| *end);
            let end = at_or_before.filter(|end| *end > line.start).unwrap_or(line.start);
            if let Some(policy) = chosen(line.policy) {
                *found.chosen_bytes.entry(policy).or_default() +=
                    pages.iter().map(|(_, count)| count * size).sum::<u64>();
                append(&mut found.chosen, line.start, end);
            }
            if line.is_huge {
                append(&mut found.hugetlb, line.start, end);
            }
        });
        found
    }

    /// Whether the program has chosen where the page at this address belongs.
    #[must_use]
    pub fn is_chosen(&self, address: VirtAddr) -> bool {
        overlap(&self.chosen, address, VirtAddr(address.0.saturating_add(1)))
    }

    /// Whether the program has chosen where any page between these addresses belongs.
    #[must_use]
    pub fn has_chosen(&self, start: VirtAddr, end: VirtAddr) -> bool {
        overlap(&self.chosen, start, end)
    }

    /// Whether a part of these addresses is in a hugetlb mapping.
    #[must_use]
    pub fn has_hugetlb(&self, start: VirtAddr, end: VirtAddr) -> bool {
        overlap(&self.hugetlb, start, end)
    }
}

fn overlap(ranges: &[(VirtAddr, VirtAddr)], start: VirtAddr, end: VirtAddr) -> bool {
    let first = ranges.partition_point(|range| range.1 <= start);
    ranges.get(first).is_some_and(|range| range.0 < end)
}

/// Appends a range to those that begin before it; neighbours, and such as overlap, are one range.
fn append(ranges: &mut Vec<(VirtAddr, VirtAddr)>, start: VirtAddr, end: VirtAddr) {
    match ranges.last_mut().filter(|last| last.1 >= start) {
        Some(last) => last.1 = last.1.max(end),
        None if end > start => ranges.push((start, end)),
        None => {}
    }
}

/// The name of a policy by which the program itself says where memory is to be; `None`: memory goes where it is first used (`default`, `local`). The kernel
/// writes a policy's flags and nodes after `=` and `:` (`mpol_to_str` in `mm/mempolicy.c`).
fn chosen(policy: &[u8]) -> Option<&'static str> {
    let name = policy.split(|byte| matches!(byte, b':' | b'=')).next().unwrap_or_default();
    match name {
        b"default" | b"local" => None,
        b"bind" => Some("bind"),
        b"interleave" => Some("interleave"),
        b"prefer" | b"prefer (many)" => Some("prefer"),
        b"weighted interleave" => Some("weighted interleave"),
        _ => Some("another policy"),
    }
}

#[cfg(test)]
mod tests {
    //! Texts as kernels write them, and a policy of this process.

    use super::*;

    const NUMA_MAPS: &[u8] = b"7f0000000000 default anon=2 dirty=2 N0=1 N1=1 kernelpagesize_kB=4\n\
        7f0000010000 bind=static:1 anon=3 dirty=3 N1=3 kernelpagesize_kB=4\n\
        7f0000020000 interleave:0-1 anon=1 dirty=1 N1=1 kernelpagesize_kB=2048\n\
        7f0000030000 prefer (many):0-1 anon=1 dirty=1 N0=1 kernelpagesize_kB=4\n\
        7f0000040000 weighted interleave:0-1 anon=1 dirty=1 N0=1 kernelpagesize_kB=4\n\
        7f0000050000 local anon=1 dirty=1 N0=1 kernelpagesize_kB=4\n\
        7f0000060000 bind:0\n";
    const MAPS: &[u8] = b"7f0000000000-7f0000004000 rw-p 00000000 00:00 0\n\
        7f0000010000-7f0000020000 rw-p 00000000 00:00 0\n\
        7f0000020000-7f0000024000 rw-p 00000000 00:00 0\n\
        7f0000030000-7f0000031000 rw-p 00000000 00:00 0\n\
        7f0000040000-7f0000041000 rw-p 00000000 00:00 0\n\
        7f0000050000-7f0000051000 rw-p 00000000 00:00 0\n";

    /// The second text is read later, of a large process seconds later: memory that was bound, and grew at its front meanwhile, counted as not bound.
    #[test]
    fn memory_that_is_bound_stays_so_while_the_memory_before_it_is_bound_too() {
        let text = b"7f0000010000 bind:1 anon=3 dirty=3 N1=3 kernelpagesize_kB=4\n\
            7f0000030000 bind:0 anon=3 dirty=3 N1=3 kernelpagesize_kB=4\n";
        let found = NumaMemory::of_texts(text, b"7f0000000000-7f0000020000 rw-p 00000000 00:00 0\n");
        assert!(found.is_chosen(VirtAddr(0x7f00_0001_2000)) && !found.is_chosen(VirtAddr(0x7f00_0000_2000)));
        assert!(!found.is_chosen(VirtAddr(0x7f00_0003_0000)), "that is gone");
        // Two that are one meanwhile.
        let found = NumaMemory::of_texts(text, b"7f0000010000-7f0000040000 rw-p 00000000 00:00 0\n");
        assert_eq!(found.chosen, [(VirtAddr(0x7f00_0001_0000), VirtAddr(0x7f00_0004_0000))], "disjoint");
    }

    #[test]
    fn what_the_program_has_placed_itself_is_told_from_what_it_has_not() {
        let found = NumaMemory::of_texts(NUMA_MAPS, MAPS);
        assert_eq!(found.bytes, BTreeMap::from([(NodeId(0), 4 * 4096), (NodeId(1), 4 * 4096 + (2 << 20))]));
        let chosen = [
            (0x7f00_0001_0000, 0x7f00_0002_4000),
            (0x7f00_0003_0000, 0x7f00_0003_1000),
            (0x7f00_0004_0000, 0x7f00_0004_1000),
        ]
        .map(|(start, end)| (VirtAddr(start), VirtAddr(end)));
        assert_eq!(found.chosen, chosen, "what is unmapped since has no range, neighbours have one");
        let bytes = [("bind", 12288), ("interleave", 2 << 20), ("prefer", 4096), ("weighted interleave", 4096)];
        assert_eq!(found.chosen_bytes, BTreeMap::from(bytes));
        let is_chosen = |address| found.is_chosen(VirtAddr(address));
        assert!(is_chosen(0x7f00_0002_3fff) && !is_chosen(0x7f00_0002_4000) && !is_chosen(0));
        let has_chosen = |start, end| found.has_chosen(VirtAddr(start), VirtAddr(end));
        assert!(has_chosen(0x7f00_0000_0000, 0x7f00_0001_1000) && !has_chosen(0, 0x7f00_0001_0000));
        assert!(!is_chosen(0x7f00_0005_0000), "local is where it is first used");
    }

    #[test]
    fn memory_that_many_processes_map_is_in_part_each_ones() {
        let numa = b"7f0000000000 default anon=8 dirty=8 N0=8 kernelpagesize_kB=4\n\
            7f0000100000 default file=/dev/zero\\040(deleted) dirty=400 mapmax=100 N0=100 N1=300 kernelpagesize_kB=4\n";
        let found = NumaMemory::of_texts(numa, b"");
        assert_eq!(found.bytes, BTreeMap::from([(NodeId(0), 108 * 4096), (NodeId(1), 300 * 4096)]));
        assert_eq!(found.parts, BTreeMap::from([(NodeId(0), 9 * 4096), (NodeId(1), 3 * 4096)]));
    }

    #[test]
    fn explicit_huge_pages_are_told_from_others() {
        let numa = b"7f0000000000 default anon=1 dirty=1 N0=1 kernelpagesize_kB=4\n\
            7f0040000000 default file=/anon_hugepage\\040(deleted) huge anon=1 dirty=1 N1=1 kernelpagesize_kB=1048576\n";
        let maps = b"7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n\
            7f0040000000-7f00c0000000 rw-p 00000000 00:0f 42 /anon_hugepage (deleted)\n";
        let found = NumaMemory::of_texts(numa, maps);
        assert_eq!(found.hugetlb, [(VirtAddr(0x7f00_4000_0000), VirtAddr(0x7f00_c000_0000))]);
        let has_hugetlb = |start, end| found.has_hugetlb(VirtAddr(start), VirtAddr(end));
        assert!(has_hugetlb(0x7f00_8000_0000, 0x7f00_8000_1000) && !has_hugetlb(0, 0x7f00_4000_0000));
        assert!(has_hugetlb(0, 0x7f00_4000_0001) && !has_hugetlb(0x7f00_c000_0000, u64::MAX));
    }

    #[test]
    fn a_policy_of_this_process_is_seen() {
        let bytes = 64 << 12;
        // SAFETY: a fresh anonymous mapping, unmapped at the end of the test's process.
        let base = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        let before = match NumaMemory::of_process(Pid::own()) {
            Ok(found) => found,
            Err(error) => return numapilot_not_run::not_run!(BoundMemory, "no numa_maps: {error}"),
        };
        let (first, last) = (VirtAddr(base as u64), VirtAddr(base as u64 + bytes as u64 - 1));
        assert!(!before.is_chosen(first));
        let node_0 = 1_u64;
        // SAFETY: MPOL_BIND (2) for our own mapping, with a mask of 64 bits.
        let result = unsafe { libc::syscall(libc::SYS_mbind, base, bytes, 2, &raw const node_0, 64_u64, 0) };
        if result != 0 {
            return numapilot_not_run::not_run!(BoundMemory, "mbind: {}", std::io::Error::last_os_error());
        }
        // SAFETY: the mapping is writable and ours.
        unsafe { std::ptr::write_bytes(base.cast::<u8>(), 1, bytes) };
        let found = NumaMemory::of_process(Pid::own()).unwrap();
        assert!(found.is_chosen(first) && found.is_chosen(last));
        assert!(found.chosen_bytes["bind"] >= bytes as u64, "{found:?}");
    }
}
