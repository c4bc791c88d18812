//! Home node of each page of one address space, from placement records and first touches.

use foldhash::HashMap;
use numapilot_machine::NodeId;

const PAGE_SHIFT: u32 = 12;
const CHUNK_PAGES: u64 = 512;
/// Nothing is known of the page yet.
const UNKNOWN: u16 = u16::MAX;
/// The page's home is known to be unknown: whoever touched it first was not recorded.
const UNKNOWABLE: u16 = u16::MAX - 1;

/// Home nodes, in chunks of 512 pages (2 MiB, 1 KiB each).
#[derive(Clone, Debug, Default)]
pub(crate) struct Homes {
    chunks: HashMap<u64, Box<[u16; CHUNK_PAGES as usize]>>,
}

impl Homes {
    /// Home of the page at `address`.
    #[inline]
    pub fn get(&self, address: u64) -> Option<NodeId> {
        let node = self.told(address)?;
        (node != UNKNOWN && node != UNKNOWABLE).then_some(NodeId(node))
    }

    fn told(&self, address: u64) -> Option<u16> {
        let page = address >> PAGE_SHIFT;
        Some(self.chunks.get(&(page / CHUNK_PAGES))?[(page % CHUNK_PAGES) as usize])
    }

    /// Whether the home of the page at `address` was told to be unknown, so that it is not to be inferred either.
    pub fn is_unknowable(&self, address: u64) -> bool {
        self.told(address) == Some(UNKNOWABLE)
    }

    /// Marks the homes of `pages` pages from `address` on as unknown for good.
    pub fn set_unknowable(&mut self, address: u64, pages: u64) {
        self.fill(address >> PAGE_SHIFT, pages, UNKNOWABLE, true);
    }

    /// Sets the home of `pages` pages from `address` on.
    pub fn set(&mut self, address: u64, pages: u64, node: NodeId) {
        self.fill(address >> PAGE_SHIFT, pages, node.0, true);
    }

    /// Removes the homes of the pages in `[address, address + bytes)`.
    pub fn clear(&mut self, address: u64, bytes: u64) {
        let first = address >> PAGE_SHIFT;
        let end = address.saturating_add(bytes).div_ceil(1 << PAGE_SHIFT);
        if (end.saturating_sub(first)) / CHUNK_PAGES > self.chunks.len() as u64 {
            let inside = |chunk: u64| chunk * CHUNK_PAGES >= first && (chunk + 1) * CHUNK_PAGES <= end;
            self.chunks.retain(|&chunk, _| !inside(chunk));
            let touched: Vec<u64> = self
                .chunks
                .keys()
                .copied()
                .filter(|&c| c * CHUNK_PAGES < end && (c + 1) * CHUNK_PAGES > first)
                .collect();
            for chunk in touched {
                let from = first.max(chunk * CHUNK_PAGES);
                let to = end.min((chunk + 1) * CHUNK_PAGES);
                self.fill(from, to - from, UNKNOWN, false);
            }
        } else {
            self.fill(first, end.saturating_sub(first), UNKNOWN, false);
        }
    }

    fn fill(&mut self, first: u64, pages: u64, node: u16, create: bool) {
        let end = first.saturating_add(pages);
        let mut page = first;
        while page < end {
            let chunk = page / CHUNK_PAGES;
            let next = end.min((chunk + 1) * CHUNK_PAGES);
            let entry = if create {
                Some(self.chunks.entry(chunk).or_insert_with(|| Box::new([UNKNOWN; CHUNK_PAGES as usize])))
            } else {
                self.chunks.get_mut(&chunk)
            };
            if let Some(nodes) = entry {
                nodes[(page - chunk * CHUNK_PAGES) as usize..(next - chunk * CHUNK_PAGES) as usize].fill(node);
            }
            page = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_move_and_vanish() {
        let mut homes = Homes::default();
        homes.set(0x1000, 2000, NodeId(1));
        homes.set(0x3000, 1, NodeId(3));
        assert_eq!(
            [0x0, 0x1fff, 0x3000, 0x4000].map(|at| homes.get(at)),
            [None, Some(NodeId(1)), Some(NodeId(3)), Some(NodeId(1))]
        );
        assert_eq!(homes.get(0x1000 + 1999 * 4096), Some(NodeId(1)));
        assert_eq!(homes.get(0x1000 + 2000 * 4096), None);
        homes.set_unknowable(0x5000, 1);
        assert_eq!((homes.get(0x5000), homes.is_unknowable(0x5000)), (None, true));
        homes.clear(0x4000, 1 << 46);
        assert!(!homes.is_unknowable(0x5000), "another life of the address");
        assert_eq!(homes.get(0x3000), Some(NodeId(3)));
        assert_eq!(homes.get(0x4000), None);
        assert_eq!(homes.get(0x1000 + 1999 * 4096), None);
    }
}
