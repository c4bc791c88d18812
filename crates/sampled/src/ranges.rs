//! Marked ranges of an address space; a later range overrides an earlier one.

use std::collections::BTreeMap;

/// Disjoint ranges with a mark each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ranges<M> {
    /// By first address: address after the last, mark.
    by_start: BTreeMap<u64, (u64, M)>,
}

impl<M> Default for Ranges<M> {
    fn default() -> Self {
        Ranges { by_start: BTreeMap::new() }
    }
}

impl<M: Copy> Ranges<M> {
    /// Marks `bytes` from `start` on, whatever was there.
    pub fn set(&mut self, start: u64, bytes: u64, mark: M) {
        let end = start.saturating_add(bytes);
        if start >= end {
            return;
        }
        if let Some((&before, &(its_end, its_mark))) = self.by_start.range(..start).next_back()
            && its_end > start
        {
            self.by_start.insert(before, (start, its_mark));
            if its_end > end {
                self.by_start.insert(end, (its_end, its_mark));
            }
        }
        while let Some((&at, &(its_end, its_mark))) = self.by_start.range(start..end).next() {
            self.by_start.remove(&at);
            if its_end > end {
                self.by_start.insert(end, (its_end, its_mark));
            }
        }
        self.by_start.insert(start, (end, mark));
    }

    /// The ranges of which a part lies in `[start, end)`, in order: first address, address after the last, mark.
    pub fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, M)> {
        let from = self.by_start.range(..=start).next_back().map_or(start, |(&at, _)| at);
        let ranges = self.by_start.range(from..end.max(from)).map(|(&at, &(its_end, mark))| (at, its_end, mark));
        ranges.filter(move |(at, its_end, _)| at.max(&start) < its_end.min(&end))
    }

    /// Number of ranges.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// The mark of the range that holds the address.
    pub fn get(&self, address: u64) -> Option<M> {
        let (_, &(end, mark)) = self.by_start.range(..=address).next_back()?;
        (address < end).then_some(mark)
    }
}

#[cfg(test)]
mod tests {
    //! Ranges against an array of marks.

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_last_mark_holds(sets in prop::collection::vec((0_u64..60, 0_u64..30, any::<bool>()), 0..40)) {
            let mut ranges = Ranges::default();
            let mut want = [None; 100];
            for (start, bytes, mark) in sets {
                ranges.set(start, bytes, mark);
                want[start as usize..(start + bytes) as usize].fill(Some(mark));
            }
            let got: Vec<Option<bool>> = (0..100).map(|at| ranges.get(at)).collect();
            prop_assert_eq!(got, want);
            let mut painted = [None; 100];
            for (from, to, mark) in ranges.overlapping(10, 70) {
                painted[from.max(10) as usize..to.min(70) as usize].fill(Some(mark));
            }
            want[..10].fill(None);
            want[70..].fill(None);
            prop_assert_eq!(painted, want);
        }
    }
}
