//! What the kernel's record of a mapping says about memory that was there before. The kernel writes one where memory is mapped, where its protection changes,
//! and where a heap or a stack grows, and none where memory is unmapped. Neighbours of one kind are a single mapping to it, and the record is then of all of
//! it (`perf_event_mmap` in `mm/vma.c`, `mm/mprotect.c`, from `vm_start` to `vm_end` in `kernel/events/core.c`). What the program mapped is then a part of what
//! the record names.

use std::hash::BuildHasher;

use numapilot_perf::Mapping;
use numapilot_ranges::{Piece, RangeMap};
use numapilot_trace::mapping::is_shared_memory;

use super::shared::is_disk_file;

/// Bits of a mapping that anybody can use, as mmap(2) has them (read, write, execute).
const ACCESSIBLE: u32 = 7;
const WRITE: u32 = 2;
const MAP_SHARED: u32 = 1;
/// `MAP_DENYWRITE`, `MAP_EXECUTABLE`, `MAP_LOCKED`: do not tell one memory from another.
const PASSING: u32 = 0x800 | 0x1000 | 0x2000;

/// Protection and flags of a mapping, where its record has them, and its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    protection: Option<u32>,
    flags: Option<u32>,
    /// Stands for the file's path; `None`: no file of a disk.
    file: Option<u64>,
    /// The process's own memory, of which neighbours become one mapping.
    merges: bool,
}

/// What a record of a mapping changes: first addresses, and addresses after the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Where the memory that was there before must be gone.
    pub gone: Vec<(u64, u64)>,
    /// Where a part was mapped again, and nothing says which: the mappings stay, but what was in memory may be gone.
    pub renewed: Vec<(u64, u64)>,
    /// What is mapped now and was not before.
    pub made: Vec<(u64, u64)>,
}

/// The mappings of a process, the newest where they overlap: what is left of an older one is a mapping of its own then, as it is to the kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents {
    kinds: RangeMap<u64, Kind>,
    /// What was made at once, also where it has become one mapping with others since; and whether its making was seen.
    parts: RangeMap<u64, bool>,
}

impl Extents {
    /// Takes a mapping into account. `is_new`: it was made now, and not found.
    pub fn map(&mut self, mapping: &Mapping<'_>, is_new: bool) -> Changes {
        let (start, end) = (mapping.addr, mapping.addr.saturating_add(mapping.len));
        let file = is_disk_file(mapping.path).then(|| foldhash::fast::FixedState::default().hash_one(mapping.path));
        let is_shared = mapping.flags.is_some_and(|flags| flags & MAP_SHARED != 0) || is_shared_memory(mapping.path);
        let flags = mapping.flags.map(|flags| flags & !PASSING);
        let now = Kind { protection: mapping.protection, flags, file, merges: file.is_none() && !is_shared };
        let mut changes = if is_new { self.changes(start, end, now) } else { Changes::default() };
        if !now.merges || !is_new {
            changes.made = vec![(start, end)];
        }
        for &(from, to) in &changes.made {
            self.parts.set(from, to, is_new);
        }
        self.kinds.set(start, end, now);
        changes
    }

    fn changes(&self, start: u64, end: u64, now: Kind) -> Changes {
        let mut changes = Changes::default();
        // Up to here everything is told.
        let mut done = start;
        for Piece { start: from, end: to, value: before } in self.kinds.overlapping(start, end) {
            let grows = end - start > to - from && (from == start || to == end);
            let is_same = before.file == now.file && before.flags == now.flags && before.merges == now.merges;
            let (first, last) = (from.max(start), to.min(end));
            let is_kept = if stays(before, now, grows) {
                is_same
            } else if is_same && before.protection == now.protection && self.is_ambiguous(first, last) {
                changes.renewed.push((first, last));
                true
            } else {
                changes.gone.push((first, last));
                false
            };
            if is_kept {
                changes.made.extend((done < first).then_some((done, first)));
                done = last;
            }
        }
        changes.made.extend((done < end).then_some((done, end)));
        changes
    }

    /// Whether memory of which there is a record with the protection that it had may be a part that was mapped again, next to others that are as they were: it
    /// is known to be in several parts, or nobody saw how it was made.
    fn is_ambiguous(&self, start: u64, end: u64) -> bool {
        let mut parts = self.parts.overlapping(start, end);
        let first = parts.next();
        parts.next().is_some() || first.is_some_and(|part| !part.value)
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

    fn made(extents: &mut Extents, addr: u64, len: u64, protection: u32) -> Changes {
        extents.map(&mapping(addr, len, protection), true)
    }

    fn changes(gone: &[(u64, u64)], renewed: &[(u64, u64)], made: &[(u64, u64)]) -> Changes {
        Changes { gone: gone.to_vec(), renewed: renewed.to_vec(), made: made.to_vec() }
    }

    #[test]
    fn memory_that_is_mapped_again_is_new() {
        let mut extents = Extents::default();
        let all = [(0x1000, 0x5000)];
        assert_eq!(made(&mut extents, 0x1000, 0x4000, READ_WRITE), changes(&[], &[], &all));
        assert_eq!(made(&mut extents, 0x1000, 0x4000, READ_WRITE), changes(&all, &[], &all), "all of it");
        let part = [(0x2000, 0x3000)];
        assert_eq!(made(&mut extents, 0x2000, 0x1000, READ_WRITE), changes(&part, &[], &part), "a part");
        let across = changes(&[(0x4000, 0x5000)], &[], &[(0x4000, 0xc000)]);
        assert_eq!(made(&mut extents, 0x4000, 0x8000, READ_WRITE), across, "across its end");
        // Other memory than before: shared.
        let shared = Mapping { flags: Some(1), ..mapping(0x4000, 0x8000, READ_WRITE) };
        let all = [(0x4000, 0xc000)];
        assert_eq!(extents.map(&shared, true), changes(&all, &[], &all));
    }

    #[test]
    fn a_heap_that_grows_keeps_what_it_has() {
        let mut extents = Extents::default();
        // As the C library makes a heap for another thread: reserved, then opened from below.
        let reserved = changes(&[], &[], &[(0x10_0000, 0x20_0000)]);
        assert_eq!(made(&mut extents, 0x10_0000, 0x10_0000, 0), reserved);
        assert_eq!(made(&mut extents, 0x10_0000, 0x1000, READ_WRITE), Changes::default());
        assert_eq!(made(&mut extents, 0x10_0000, 0x3000, READ_WRITE), Changes::default());
        // Mappings are laid out downwards, so that a new one ends where an older one begins.
        let below = changes(&[], &[], &[(0x0f_f000, 0x10_0000)]);
        assert_eq!(made(&mut extents, 0x0f_f000, 0x4000, READ_WRITE), below);
    }

    /// Memory that was found, next to which a block comes and goes: its end has no record.
    #[test]
    fn a_neighbour_that_comes_again_leaves_a_mapping_as_it_was() {
        let mut extents = Extents::default();
        let found = changes(&[], &[], &[(0x10_0000, 0x20_0000)]);
        assert_eq!(extents.map(&mapping(0x10_0000, 0x10_0000, READ_WRITE), false), found);
        let neighbour = changes(&[], &[], &[(0x0f_f000, 0x10_0000)]);
        assert_eq!(made(&mut extents, 0x0f_f000, 0x10_1000, READ_WRITE), neighbour);
        let any = [(0x0f_f000, 0x20_0000)];
        assert_eq!(made(&mut extents, 0x0f_f000, 0x10_1000, READ_WRITE), changes(&[], &any, &[]));
        // Memory in the middle of which a block was unmapped and mapped again is one mapping again.
        let mut extents = Extents::default();
        extents.map(&mapping(0x10_0000, 0x10_0000, READ_WRITE), false);
        let all = [(0x10_0000, 0x20_0000)];
        assert_eq!(made(&mut extents, 0x10_0000, 0x10_0000, READ_WRITE), changes(&[], &all, &[]));
        // Two neighbours between which a third comes.
        let mut extents = Extents::default();
        made(&mut extents, 0x1000, 0x1000, READ_WRITE);
        made(&mut extents, 0x4000, 0x1000, READ_WRITE);
        let between = changes(&[], &[], &[(0x2000, 0x4000)]);
        assert_eq!(made(&mut extents, 0x1000, 0x4000, READ_WRITE), between);
    }

    #[test]
    fn parts_of_a_binary_replace_nothing_of_it_and_another_file_does() {
        let of = |path: &'static [u8], addr, len, protection| Mapping { path, ..mapping(addr, len, protection) };
        let mut extents = Extents::default();
        let mut gone = |mapping: Mapping<'_>| extents.map(&mapping, true).gone;
        assert_eq!(gone(of(b"/lib.so", 0x1000, 0x9000, 1)), []);
        assert_eq!(gone(of(b"/lib.so", 0x2000, 0x3000, 5)), []);
        assert_eq!(gone(of(b"/lib.so", 0x5000, 0x2000, 1)), []);
        assert_eq!(gone(of(b"/lib.so", 0x7000, 0x2000, READ_WRITE)), []);
        assert_eq!(gone(of(b"//anon", 0x9000, 0x2000, READ_WRITE)), [(0x9000, 0xa000)]);
        assert_eq!(gone(of(b"/other.so", 0x1000, 0x2000, 1)), [(0x1000, 0x2000), (0x2000, 0x3000)]);
    }

    /// A block that is mapped right behind a library's zeroed data is one mapping with that.
    #[test]
    fn zeroed_data_of_a_binary_is_not_the_blocks_behind_it() {
        let mut extents = Extents::default();
        extents.map(&Mapping { path: b"/lib.so", ..mapping(0x1000, 0x9000, 1) }, true);
        assert_eq!(made(&mut extents, 0x9000, 0x1000, READ_WRITE).made, [(0x9000, 0xa000)]);
        assert_eq!(made(&mut extents, 0x9000, 0x3000, READ_WRITE), changes(&[], &[], &[(0xa000, 0xc000)]));
    }

    #[test]
    fn a_change_of_protection_keeps_memory_and_a_reservation_does_not() {
        let mut extents = Extents::default();
        let all = [(0x1000, 0x5000)];
        assert_eq!(made(&mut extents, 0x1000, 0x4000, READ_WRITE), changes(&[], &[], &all));
        assert_eq!(made(&mut extents, 0x2000, 0x1000, 1), Changes::default());
        // Changed back, all three parts are one mapping again.
        assert_eq!(made(&mut extents, 0x1000, 0x4000, READ_WRITE), Changes::default());
        assert_eq!(made(&mut extents, 0x1000, 0x4000, 0), changes(&all, &[], &all));
    }
}
