//! The known home nodes of a process's pages, as runs of adjacent pages on one node. They distinguish a page's first touch from a later use: a fault on a page
//! that is not in here is a first touch.
//!
//! Bounded: beyond [`Homes::MAX_RUNS`] runs no page is added, and [`Homes::refused`] counts these pages.

use numapilot_host::PageNumber;
use numapilot_ranges::RangeMap;

/// Indices of home nodes, by runs of pages.
#[derive(Clone, Debug, Default)]
pub struct Homes {
    runs: RangeMap<PageNumber, u8>,
    /// Number of pages that were not added because the table is full.
    pub refused: u64,
}

impl Homes {
    /// Maximum number of runs: some tens of MiB.
    pub const MAX_RUNS: usize = 1 << 19;

    /// Home node of a page, as an index; `None`: the page was not present at the last reading.
    #[must_use]
    pub fn of(&self, page: PageNumber) -> Option<u8> {
        self.runs.get(page).map(|run| run.value)
    }

    /// Sets the home node of pages `first` to `end` (exclusive).
    pub fn set(&mut self, first: PageNumber, end: PageNumber, home: u8) {
        if first >= end {
            return;
        }
        if self.runs.len() >= Self::MAX_RUNS && self.of(first).is_none() {
            self.refused += end - first;
            return;
        }
        self.runs.join(first, end, home);
    }

    /// Forgets pages `first` to `end` (exclusive), for example after a new mapping.
    pub fn clear(&mut self, first: PageNumber, end: PageNumber) {
        self.runs.remove(first, end);
    }

    /// Forgets everything outside of these ranges of pages (first, end), which are ascending.
    pub fn keep_within(&mut self, ranges: impl Iterator<Item = (PageNumber, PageNumber)>) {
        let mut from = PageNumber::default();
        for (first, end) in ranges {
            self.clear(from, first);
            from = end;
        }
        self.clear(from, PageNumber(u64::MAX));
    }

    /// Number of runs.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Number of pages by node index, for `nodes` nodes.
    #[must_use]
    pub fn by_node(&self, nodes: usize) -> Vec<u64> {
        let mut sums = vec![0; nodes];
        for run in self.runs.iter() {
            if let Some(sum) = sums.get_mut(usize::from(run.value)) {
                *sum += run.end - run.start;
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    //! Against a plain map of pages.

    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_say_what_a_map_of_pages_says(steps in prop::collection::vec((0..100_u64, 0..20_u64, 0..4_u8), 1..80)) {
            let mut homes = Homes::default();
            let mut pages = BTreeMap::new();
            for (first, length, kind) in steps {
                let [from, to] = [first, first + length].map(PageNumber);
                if kind == 3 {
                    homes.clear(from, to);
                    pages.retain(|page, _| !(first..first + length).contains(page));
                } else {
                    homes.set(from, to, kind);
                    pages.extend((first..first + length).map(|page| (page, kind)));
                }
                for page in 0..130 {
                    prop_assert_eq!(homes.of(PageNumber(page)), pages.get(&page).copied(), "page {}", page);
                }
                let sums: Vec<u64> = (0..3_u8).map(|node| pages.values().filter(|home| **home == node).count() as u64).collect();
                prop_assert_eq!(homes.by_node(3), sums);
            }
        }
    }

    #[test]
    fn what_is_no_longer_mapped_is_forgotten() {
        let mut homes = Homes::default();
        homes.set(PageNumber(10), PageNumber(100), 1);
        homes.keep_within([(0, 20), (50, 60)].map(|(first, end)| (PageNumber(first), PageNumber(end))).into_iter());
        assert_eq!([19, 20, 55, 60].map(|page| homes.of(PageNumber(page))), [Some(1), None, Some(1), None]);
        assert_eq!(homes.by_node(2), [0, 20]);
    }

    #[test]
    fn neighbours_on_one_node_are_one_run() {
        let mut homes = Homes::default();
        PageNumber(0).run(1000).for_each(|page| homes.set(page, page + 1, 1));
        assert_eq!(homes.runs(), 1);
        homes.set(PageNumber(500), PageNumber(501), 2);
        assert_eq!(homes.runs(), 3);
        homes.set(PageNumber(500), PageNumber(501), 1);
        assert_eq!(homes.runs(), 1);
    }
}
