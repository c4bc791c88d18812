//! Statistics of memory that was freed: other memory may have its address now, of which nothing is known yet.

use numapilot_machine::NodeIndex;

use super::{Block, Memory, NONE, PageMemory};
use crate::observation::{PageKey, PageSize, Sample};
use crate::page_use::shows_no_copy;

impl Block {
    /// Other memory has the address of the page at a position. It is on `home`.
    fn begin_anew(&mut self, position: usize, home: NodeIndex) {
        let width = self.fresh.len();
        self.counts[position * width..(position + 1) * width].fill(0);
        self.pages[position] = PageMemory::new(self.pages[position].index, home.into());
    }

    /// Drops the statistics of the page at a position; those of the last page take their place.
    fn remove(&mut self, position: usize) {
        let (width, last) = (self.fresh.len(), self.pages.len() - 1);
        let gone = self.pages.swap_remove(position);
        self.position[usize::from(gone.index)] = NONE;
        if let Some(page) = self.pages.get(position) {
            self.position[usize::from(page.index)] = position as u16;
            self.counts.copy_within(last * width..(last + 1) * width, position * width);
        }
        self.counts.truncate(last * width);
    }
}

impl Memory {
    /// Takes in which samples show that a page with copies was freed: a node that had one reads from another. Where the environment tells of the copies
    /// (`read_only`), it tells of their ends, too.
    pub(super) fn forget_freed_copies(&mut self, samples: &[Sample], nodes: usize) {
        let copied_now = std::mem::take(&mut self.copied_now);
        if !self.has_copied {
            return;
        }
        for sample in samples.iter().filter(|sample| sample.from.0 < nodes && sample.home.0 < nodes) {
            let has_copy = self.page_memory_mut(sample.page).is_some_and(|page| page.copies.contains(sample.from));
            if !shows_no_copy(sample, has_copy, &self.read_only) || copied_now.contains(&sample.page) {
                continue;
            }
            let page = sample.page.page;
            let Some(block) = self.blocks.get_mut(&(sample.page.process, page.large())) else { continue };
            if sample.page.size == PageSize::Large {
                (0..block.pages.len()).for_each(|position| block.begin_anew(position, sample.home));
            } else if let Some(position) = block.position_of(page.in_large() as u16) {
                block.begin_anew(position, sample.home);
            }
        }
    }

    /// Notes that a page is there no longer. Of a large one that says little: it may have been split.
    pub fn was_freed(&mut self, page: PageKey) {
        let block = self.blocks.get_mut(&(page.process, page.page.large()));
        let Some(block) = block.filter(|block| page.size == PageSize::Small && block.size == PageSize::Small) else {
            return;
        };
        if let Some(position) = block.position_of(page.page.in_large() as u16) {
            block.remove(position);
        }
    }
}

#[cfg(test)]
mod tests {
    use numapilot_host::PageNumber;

    use super::*;

    fn key(page: u64, size: PageSize) -> PageKey {
        PageKey { process: 1, page: PageNumber(page), size }
    }

    /// A read of a small page by a node from another's memory.
    fn read(page: PageKey, small_page: u64, from: usize, home: usize) -> Sample {
        let (from, home) = (NodeIndex(from), NodeIndex(home));
        let small_page = PageNumber(small_page);
        Sample { page, small_page, thread: 0, from, home, is_write: false, latency_ns: None }
    }

    /// A page with copies for all of its readers was left alone for good, whatever memory was at its address.
    #[test]
    fn copies_and_samples_of_freed_memory_are_forgotten() {
        let page = key(10, PageSize::Small);
        let mut memory = Memory::default();
        let mut learn = |samples: &[Sample], copies: &[usize]| {
            memory.learn(samples, &[], 2);
            if !copies.is_empty() {
                memory.has_copies(page, &copies.iter().copied().map(NodeIndex).collect::<Vec<_>>());
            }
            memory.page_memory_mut(page).map(|page| (page.copies.len(), page.samples, page.home.index().0))
        };
        assert_eq!(learn(&[read(page, 10, 1, 0); 20], &[0, 1]), Some((2, 20, 0)));
        assert_eq!(learn(&[read(page, 10, 1, 0)], &[]), Some((2, 21, 0)), "it may be of the time before the copies");
        let own = [read(page, 10, 1, 1), read(page, 10, 0, 0), Sample { is_write: true, ..read(page, 10, 1, 0) }];
        assert_eq!(learn(&own, &[]), Some((2, 24, 0)), "reads of copies, and a write to the home");
        assert_eq!(learn(&[read(page, 10, 0, 1)], &[]), Some((0, 1, 1)), "there is no copy on node 0 any more");
    }

    /// Copies of a large page were remembered only if its first small page had been sampled, and ordered again and again otherwise.
    #[test]
    fn copies_of_a_large_page_are_known_whichever_part_was_sampled() {
        let page = key(1024, PageSize::Large);
        let mut memory = Memory::default();
        memory.learn(&[read(page, 1031, 1, 0), read(page, 1030, 1, 0)], &[], 2);
        memory.has_copies(page, &[0, 1].map(NodeIndex));
        let copies = |memory: &mut Memory| memory.page_memory_mut(page).map(|page| page.copies.len());
        assert_eq!(copies(&mut memory), Some(2));
        memory.learn(&[], &[], 2);
        memory.learn(&[read(page, 1035, 1, 0)], &[], 2);
        assert_eq!(copies(&mut memory), Some(0), "node 1 reads from node 0");
        assert_eq!(memory.blocks[&(1, 2)].pages.iter().map(|page| page.samples).collect::<Vec<_>>(), [0, 0, 1]);
    }

    #[test]
    fn statistics_of_a_page_go_with_it_and_those_of_others_stay() {
        let small = |page: u64| key(page, PageSize::Small);
        let mut memory = Memory::default();
        let samples = (0..5u64).flat_map(|page| vec![read(small(page), page, page as usize % 2, 0); page as usize + 1]);
        memory.learn(&samples.collect::<Vec<_>>(), &[], 2);
        memory.was_freed(small(1));
        memory.was_freed(small(1));
        memory.was_freed(key(0, PageSize::Large));
        let block = &memory.blocks[&(1, 0)];
        assert_eq!(block.pages.iter().map(|page| page.index).collect::<Vec<_>>(), [0, 4, 2, 3]);
        for (position, page) in block.pages.iter().enumerate() {
            assert_eq!(block.position_of(page.index), Some(position));
            let mut counts = [0; 4];
            counts[usize::from(page.index % 2)] = page.index as u8 + 1;
            assert_eq!(block.counts_of(position, 2), counts);
        }
        assert_eq!((block.position_of(1), block.counts.len()), (None, 4 * 4));
        [4, 3, 2, 0].into_iter().for_each(|page| memory.was_freed(small(page)));
        memory.learn(&[read(small(1), 1, 0, 1)], &[], 2);
        assert_eq!(memory.page_memory_mut(small(1)).map(|page| (page.samples, page.home.index().0)), Some((1, 1)));
    }
}
