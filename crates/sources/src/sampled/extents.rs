//! What the kernel's record of a mapping says about memory that was there before. The kernel writes one where memory is mapped, where its protection changes,
//! and where a heap grows, and none where memory is unmapped; neighbours of one kind are a single mapping to it, and the record is then of all of it
//! (`perf_event_mmap` in `mm/vma.c`, `mm/mprotect.c`).

use std::hash::BuildHasher;

use numapilot_perf::Mapping;

use super::ranges::Ranges;
use super::shared::is_disk_file;

/// Bits of a mapping that anybody can use, as mmap(2) has them (read, write, execute).
const ACCESSIBLE: u32 = 7;
const WRITE: u32 = 2;

/// Protection and flags of a mapping, where its record has them, and its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    protection: Option<u32>,
    flags: Option<u32>,
    /// Stands for the file's path; `None`: no file of a disk.
    file: Option<u64>,
}

/// The mappings of a process, the newest where they overlap: what is left of an older one is a mapping of its own then, as it is to the kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents {
    kinds: Ranges<Kind>,
}

impl Extents {
    /// Takes a mapping into account. Returns where the memory that was there before must be gone: first address, address after the last.
    pub fn map(&mut self, mapping: &Mapping<'_>) -> Vec<(u64, u64)> {
        let (start, end) = (mapping.addr, mapping.addr.saturating_add(mapping.len));
        let file = is_disk_file(mapping.path).then(|| foldhash::fast::FixedState::default().hash_one(mapping.path));
        let now = Kind { protection: mapping.protection, flags: mapping.flags, file };
        let is_gone = |&(from, to, before): &(u64, u64, Kind)| {
            let grows = end - start > to - from && (from == start || to == end);
            !stays(before, now, grows)
        };
        let gone = self.kinds.overlapping(start, end).filter(is_gone);
        let gone = gone.map(|(from, to, _)| (from.max(start), to.min(end))).collect();
        self.kinds.set(start, mapping.len, now);
        gone
    }
}

/// Whether memory of a mapping may still be there once there is a record of another mapping at its place. `grows`: that begins or ends where it did, and is
/// larger.
fn stays(before: Kind, now: Kind, grows: bool) -> bool {
    let is_accessible = |kind: Kind| kind.protection.is_none_or(|bits| bits & ACCESSIBLE != 0);
    let is_written = now.protection.is_none_or(|bits| bits & WRITE != 0);
    match (before.flags == now.flags, before.protection == now.protection) {
        // What is read of a file is the page cache's, whichever mapping shows it: loaders map a binary as a whole, then its parts over that.
        _ if before.file.is_some() && before.file == now.file && !is_written => true,
        _ if before.file != now.file => !is_accessible(before),
        // Reserving gives memory back, and nothing is in what is reserved.
        _ if !is_accessible(before) => true,
        _ if !is_accessible(now) => false,
        (false, _) => false,
        // A change of protection leaves the pages alone.
        (true, false) => true,
        // The same again would be no change, which the kernel does not record. But a neighbour may have been mapped, and both are one now.
        (true, true) => grows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_WRITE: u32 = 3;
    const PRIVATE: u32 = 2;

    fn mapping(addr: u64, len: u64, protection: u32) -> Mapping<'static> {
        Mapping { addr, len, protection: Some(protection), flags: Some(PRIVATE), ..Mapping::default() }
    }

    #[test]
    fn memory_that_is_mapped_again_is_new() {
        let mut extents = Extents::default();
        assert_eq!(extents.map(&mapping(0x1000, 0x4000, READ_WRITE)), []);
        assert_eq!(extents.map(&mapping(0x1000, 0x4000, READ_WRITE)), [(0x1000, 0x5000)], "all of it");
        assert_eq!(extents.map(&mapping(0x2000, 0x1000, READ_WRITE)), [(0x2000, 0x3000)], "a part");
        assert_eq!(extents.map(&mapping(0x4000, 0x8000, READ_WRITE)), [(0x4000, 0x5000)], "across its end");
        // Other memory than before: shared.
        let shared = Mapping { flags: Some(1), ..mapping(0x4000, 0x8000, READ_WRITE) };
        assert_eq!(extents.map(&shared), [(0x4000, 0xc000)]);
    }

    #[test]
    fn a_heap_that_grows_keeps_what_it_has() {
        let mut extents = Extents::default();
        // As the C library makes a heap for another thread: reserved, then opened from below.
        assert_eq!(extents.map(&mapping(0x10_0000, 0x10_0000, 0)), []);
        assert_eq!(extents.map(&mapping(0x10_0000, 0x1000, READ_WRITE)), []);
        assert_eq!(extents.map(&mapping(0x10_0000, 0x3000, READ_WRITE)), []);
        // Mappings are laid out downwards, so that a new one ends where an older one begins.
        assert_eq!(extents.map(&mapping(0x0f_f000, 0x4000, READ_WRITE)), []);
    }

    #[test]
    fn parts_of_a_binary_replace_nothing_of_it_and_another_file_does() {
        let of = |path: &'static [u8], addr, len, protection| Mapping { path, ..mapping(addr, len, protection) };
        let mut extents = Extents::default();
        assert_eq!(extents.map(&of(b"/lib.so", 0x1000, 0x9000, 1)), []);
        assert_eq!(extents.map(&of(b"/lib.so", 0x2000, 0x3000, 5)), []);
        assert_eq!(extents.map(&of(b"/lib.so", 0x5000, 0x2000, 1)), []);
        assert_eq!(extents.map(&of(b"/lib.so", 0x7000, 0x2000, READ_WRITE)), []);
        assert_eq!(extents.map(&of(b"//anon", 0x9000, 0x2000, READ_WRITE)), [(0x9000, 0xa000)]);
        assert_eq!(extents.map(&of(b"/other.so", 0x1000, 0x2000, 1)), [(0x1000, 0x2000), (0x2000, 0x3000)]);
    }

    #[test]
    fn a_change_of_protection_keeps_memory_and_a_reservation_does_not() {
        let mut extents = Extents::default();
        assert_eq!(extents.map(&mapping(0x1000, 0x4000, READ_WRITE)), []);
        assert_eq!(extents.map(&mapping(0x2000, 0x1000, 1)), []);
        // Changed back, all three parts are one mapping again.
        assert_eq!(extents.map(&mapping(0x1000, 0x4000, READ_WRITE)), []);
        assert_eq!(extents.map(&mapping(0x1000, 0x4000, 0)), [(0x1000, 0x5000)]);
    }
}
