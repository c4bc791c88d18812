//! The live heap blocks of one address space: the most specific objects, and by far the most numerous.
//!
//! Small blocks are entries in the table of each page that they touch, 8 bytes each, sorted by offset: a look-up is one hash and a
//! short binary search. Large blocks (few at any moment) are ranges in a tree, because a page table of a 10 GB block would have
//! millions of entries.

use foldhash::HashMap;
use numapilot_host::PageNumber;
use numapilot_ranges::RangeMap;

/// A table is of one page, so that offsets in it have 16 bits.
const PAGE_SHIFT: u32 = PageNumber::SHIFT;
const PAGE_MASK: u64 = PageNumber::BYTES - 1;
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// A block's part in one page: offsets of its first and last byte there.
#[derive(Clone, Copy, Debug)]
struct Entry {
    first: u16,
    last: u16,
    object: u32,
}

/// Live blocks by address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    pages: HashMap<u64, Vec<Entry>>,
    large: RangeMap<u64, u32>,
}

/// The parts of `[start, start + bytes)` in each page: page number, offsets of first and last byte.
fn parts(start: u64, bytes: u64) -> impl Iterator<Item = (u64, u16, u16)> {
    let last = start + (bytes - 1);
    (start >> PAGE_SHIFT..=last >> PAGE_SHIFT).map(move |page| {
        let from = if page == start >> PAGE_SHIFT { start & PAGE_MASK } else { 0 };
        let to = if page == last >> PAGE_SHIFT { last & PAGE_MASK } else { PAGE_MASK };
        (page, from as u16, to as u16)
    })
}

impl Blocks {
    /// The block that covers `address`.
    #[inline]
    pub fn get(&self, address: u64) -> Option<u32> {
        if let Some(entries) = self.pages.get(&(address >> PAGE_SHIFT)) {
            let offset = (address & PAGE_MASK) as u16;
            let after = entries.partition_point(|entry| entry.first <= offset);
            if let Some(entry) = after.checked_sub(1).map(|index| entries[index]).filter(|entry| offset <= entry.last) {
                return Some(entry.object);
            }
        }
        self.large.get(address).map(|piece| piece.value)
    }

    /// Appends to `stale` the blocks that a new block of at least one byte would overlap; remove them before inserting it.
    pub fn overlaps(&self, start: u64, bytes: u64, stale: &mut Vec<u32>) {
        let end = start + bytes;
        let pages = (bytes >> PAGE_SHIFT) + 2;
        if pages <= 1024 || pages <= self.pages.len() as u64 {
            for (page, first, last) in parts(start, bytes) {
                let Some(entries) = self.pages.get(&page) else { continue };
                let from = entries.partition_point(|entry| entry.last < first);
                stale.extend(entries[from..].iter().take_while(|entry| entry.first <= last).map(|entry| entry.object));
            }
        } else {
            let range = start >> PAGE_SHIFT..=(end - 1) >> PAGE_SHIFT;
            for (&page, entries) in self.pages.iter().filter(|(page, _)| range.contains(page)) {
                let hit = |entry: &&Entry| {
                    let base = page << PAGE_SHIFT;
                    base + u64::from(entry.first) < end && base + u64::from(entry.last) >= start
                };
                stale.extend(entries.iter().filter(hit).map(|entry| entry.object));
            }
        }
        stale.extend(self.large.overlapping(start, end).map(|piece| piece.value));
        stale.sort_unstable();
        stale.dedup();
    }

    /// Adds a block of at least one byte that overlaps no other.
    pub fn insert(&mut self, start: u64, bytes: u64, object: u32) {
        if bytes > SMALL_BYTES_MAX {
            self.large.set(start, start + bytes, object);
            return;
        }
        for (page, first, last) in parts(start, bytes) {
            let entries = self.pages.entry(page).or_default();
            let at = entries.partition_point(|entry| entry.first < first);
            entries.insert(at, Entry { first, last, object });
        }
    }

    /// Removes the block `object`, which begins at `start` and has `bytes` bytes.
    pub fn remove(&mut self, start: u64, bytes: u64, object: u32) {
        if bytes > SMALL_BYTES_MAX {
            self.large.take(start);
            return;
        }
        for (page, first, _) in parts(start, bytes) {
            if let Some(entries) = self.pages.get_mut(&page) {
                let at = entries.partition_point(|entry| entry.first < first);
                if entries.get(at).is_some_and(|entry| entry.object == object) {
                    entries.remove(at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(blocks: &[(u64, u64)]) -> Blocks {
        let mut table = Blocks::default();
        for (object, &(start, bytes)) in blocks.iter().enumerate() {
            table.insert(start, bytes, object as u32);
        }
        table
    }

    #[test]
    fn neighbours_small_and_large_are_told_apart_to_the_byte() {
        let table = with(&[(0x1000, 16), (0x1010, 0x2000), (0x100_0000, 1 << 20), (0x110_0000, 1)]);
        assert_eq!(table.get(0xfff), None);
        assert_eq!(table.get(0x100f), Some(0));
        assert_eq!(table.get(0x1010), Some(1));
        assert_eq!(table.get(0x2fff), Some(1));
        assert_eq!(table.get(0x300f), Some(1));
        assert_eq!(table.get(0x3010), None);
        assert_eq!(table.get(0x10f_ffff), Some(2));
        assert_eq!(table.get(0x110_0000), Some(3));
        assert_eq!(table.get(0x110_0001), None);
    }

    #[test]
    fn removed_blocks_are_gone_and_others_stay() {
        let mut table = with(&[(0x1ff0, 0x20), (0x2010, 0x10), (0x20_0000, 1 << 20)]);
        table.remove(0x1ff0, 0x20, 0);
        table.remove(0x20_0000, 1 << 20, 2);
        assert_eq!([0x1ff0, 0x2000, 0x2010, 0x20_0000].map(|at| table.get(at)), [None, None, Some(1), None]);
    }

    #[test]
    fn overlaps_are_found_by_pages_and_by_table() {
        let table = with(&[(0x1000, 0x10), (0x5000, 0x10), (0x100_0000, 1 << 20)]);
        for bytes in [0x4010u64, 8 << 20, 1 << 40] {
            let mut stale = Vec::new();
            table.overlaps(0x1008, bytes, &mut stale);
            assert_eq!(stale, if bytes > 0x100_0000 { vec![0, 1, 2] } else { vec![0, 1] }, "{bytes:#x}");
        }
        let mut stale = Vec::new();
        table.overlaps(0x10f_ffff, 1, &mut stale);
        assert_eq!(stale, [2]);
    }
}
