//! Home node of each page of one address space, from placement records and first touches.

use foldhash::HashMap;
use numapilot_machine::{NodeId, Packed};
use numapilot_trace::wire::layout::PAGE_SHIFT;

const CHUNK_PAGES: u64 = 512;
/// In place of a node: the page's home is known to be unknown, because whoever touched it first was not recorded.
const UNKNOWABLE: NodeId = NodeId(u16::MAX - 1);

/// The home of a page; none: nothing is known of it yet.
type Home = Packed<NodeId, u16>;

/// Homes of 512 pages (2 MiB). Most large memory has one home throughout, and a record may be of a terabyte.
#[derive(Clone, Debug)]
enum Chunk {
    Same(Home),
    Each(Box<[Home; CHUNK_PAGES as usize]>),
}

impl Chunk {
    #[inline]
    fn get(&self, page: u64) -> Home {
        match self {
            Chunk::Same(node) => *node,
            Chunk::Each(nodes) => nodes[(page % CHUNK_PAGES) as usize],
        }
    }

    /// Sets the homes of the pages from `first` to before `end`, counted from the chunk's first.
    fn fill(&mut self, (first, end): (u64, u64), node: Home) {
        if let Chunk::Same(all) = self {
            let all = *all;
            if all == node {
                return;
            }
            *self = Chunk::Each(Box::new([all; CHUNK_PAGES as usize]));
        }
        if let Chunk::Each(nodes) = self {
            nodes[first as usize..end as usize].fill(node);
        }
    }
}

/// The node that is known to be a page's home.
#[inline]
fn known(home: Home) -> Option<NodeId> {
    home.id().filter(|node| *node != UNKNOWABLE)
}

/// Home nodes, in chunks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Homes {
    chunks: HashMap<u64, Chunk>,
}

impl Homes {
    /// Home of the page at `address`.
    #[inline]
    pub fn get(&self, address: u64) -> Option<NodeId> {
        known(self.told(address)?)
    }

    fn told(&self, address: u64) -> Option<Home> {
        let page = address >> PAGE_SHIFT;
        Some(self.chunks.get(&(page / CHUNK_PAGES))?.get(page))
    }

    /// How many of the `pages` pages from `address` on, of which there is one at least, are alike in this: whether their home is known. Perhaps more are.
    pub fn alike(&self, address: u64, pages: u32) -> (u32, bool) {
        let first = (address >> PAGE_SHIFT) % CHUNK_PAGES;
        let end = CHUNK_PAGES.min(first + u64::from(pages));
        let is_known = |node: Home| known(node).is_some();
        match self.chunks.get(&((address >> PAGE_SHIFT) / CHUNK_PAGES)) {
            None => ((end - first) as u32, false),
            Some(Chunk::Same(node)) => ((end - first) as u32, is_known(*node)),
            Some(Chunk::Each(nodes)) => {
                let nodes = &nodes[first as usize..end as usize];
                let is_first_known = nodes.first().is_some_and(|node| is_known(*node));
                (nodes.iter().take_while(|node| is_known(**node) == is_first_known).count() as u32, is_first_known)
            }
        }
    }

    /// Chunks with a number for each page.
    #[cfg(test)]
    pub fn detailed(&self) -> usize {
        self.chunks.values().filter(|chunk| matches!(chunk, Chunk::Each(_))).count()
    }

    /// Whether the home of the page at `address` was told to be unknown, so that it is not to be inferred either.
    pub fn is_unknowable(&self, address: u64) -> bool {
        self.told(address) == Some(Home::from(UNKNOWABLE))
    }

    /// Marks the homes of `pages` pages from `address` on as unknown for good.
    pub fn set_unknowable(&mut self, address: u64, pages: u64) {
        self.fill(address >> PAGE_SHIFT, pages, UNKNOWABLE.into());
    }

    /// Sets the home of `pages` pages from `address` on.
    pub fn set(&mut self, address: u64, pages: u64, node: NodeId) {
        self.fill(address >> PAGE_SHIFT, pages, node.into());
    }

    /// Removes the homes of the pages in `[address, address + bytes)`.
    pub fn clear(&mut self, address: u64, bytes: u64) {
        let first = address >> PAGE_SHIFT;
        let end = address.saturating_add(bytes).div_ceil(1 << PAGE_SHIFT);
        let pages = end.saturating_sub(first);
        if pages / CHUNK_PAGES <= self.chunks.len() as u64 {
            return self.fill(first, pages, Home::NONE);
        }
        // It has more chunks than are known: those that are known are looked through instead, but for the parts of one at either end.
        let (begin, rest) = (first.next_multiple_of(CHUNK_PAGES), end - end % CHUNK_PAGES);
        self.chunks.retain(|chunk, _| !(begin..rest).contains(&(chunk * CHUNK_PAGES)));
        self.fill(first, begin - first, Home::NONE);
        self.fill(rest, end - rest, Home::NONE);
    }

    fn fill(&mut self, first: u64, pages: u64, node: Home) {
        let end = first.saturating_add(pages);
        let mut page = first;
        while page < end {
            let chunk = page / CHUNK_PAGES;
            let begin = chunk * CHUNK_PAGES;
            let next = end.min(begin + CHUNK_PAGES);
            let is_whole = next - page == CHUNK_PAGES;
            if node == Home::NONE && (is_whole || !self.chunks.contains_key(&chunk)) {
                self.chunks.remove(&chunk);
            } else if is_whole {
                self.chunks.insert(chunk, Chunk::Same(node));
            } else {
                self.chunks.entry(chunk).or_insert(Chunk::Same(Home::NONE)).fill((page - begin, next - begin), node);
            }
            page = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Runs that begin and end anywhere in chunks, and cover some of them whole.
        #[test]
        fn homes_are_those_of_a_table_of_pages(
            steps in prop::collection::vec((0..4_u16, 0..2000_u64, 0..1500_u64), 1..40)
        ) {
            let (mut homes, mut table) = (Homes::default(), BTreeMap::new());
            for (what, first, pages) in steps {
                let address = first << PAGE_SHIFT;
                match what {
                    0 => homes.clear(address, pages << PAGE_SHIFT),
                    1 => homes.set_unknowable(address, pages),
                    node => homes.set(address, pages, NodeId(node)),
                }
                table.extend((first..first + pages).map(|page| (page, what)));
                for page in (0..3600).step_by(7).chain([first, first + pages]) {
                    let told = table.get(&page).copied().unwrap_or(0);
                    prop_assert_eq!(homes.get(page << PAGE_SHIFT), (told > 1).then_some(NodeId(told)), "page {}", page);
                    prop_assert_eq!(homes.is_unknowable(page << PAGE_SHIFT), told == 1, "page {}", page);
                }
            }
        }
    }

    /// Some bytes of a damaged trace can say so much. With a number for each page, all addresses would need 64 GiB.
    #[test]
    fn memory_of_one_home_needs_no_number_for_each_page() {
        let mut homes = Homes::default();
        for terabyte in 0..4_u64 {
            homes.set(terabyte << 40, 1 << 28, NodeId(terabyte as u16));
        }
        assert_eq!(homes.get((3 << 40) + 12_345), Some(NodeId(3)));
        assert!(homes.chunks.values().all(|chunk| matches!(chunk, Chunk::Same(_))));
        homes.clear(0, 1 << 47);
        assert!(homes.chunks.is_empty());
    }

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
