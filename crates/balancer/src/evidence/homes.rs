//! The known home nodes of a process's pages, as runs of adjacent pages on one node. They distinguish a page's first touch from a later use: a fault on a page
//! that is not in here is a first touch.
//!
//! Bounded for one process ([`Homes::MAX_RUNS`]) and for all of them together ([`AllHomes::MAX_RUNS`]). Where a change would make more runs, the shortest of
//! those beside it is left out, and its pages are counted ([`Homes::refused`], [`AllHomes::refused()`]): what is in here is true, with gaps.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use numapilot_host::PageNumber;
use numapilot_machine::NodeIndex;
use numapilot_ranges::RangeMap;

/// What the tables of all processes hold together, and may hold.
#[derive(Debug)]
pub struct AllHomes {
    max_runs: usize,
    max_runs_of_one: usize,
    runs: AtomicUsize,
    refused: AtomicU64,
}

impl Default for AllHomes {
    fn default() -> AllHomes {
        AllHomes::within(AllHomes::MAX_RUNS, Homes::MAX_RUNS)
    }
}

impl AllHomes {
    /// Maximum number of runs of all processes: about 80 MiB.
    pub const MAX_RUNS: usize = 1 << 21;

    fn within(max_runs: usize, max_runs_of_one: usize) -> AllHomes {
        AllHomes { max_runs, max_runs_of_one, runs: AtomicUsize::new(0), refused: AtomicU64::new(0) }
    }

    /// Number of pages that were left out of any table since the start, also of processes that have ended.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// Home nodes, by runs of pages.
#[derive(Debug, Default)]
pub struct Homes {
    runs: RangeMap<PageNumber, NodeIndex>,
    /// Number of pages that were left out because the table, or all of them together, was full.
    pub refused: u64,
    all: Arc<AllHomes>,
}

impl Drop for Homes {
    fn drop(&mut self) {
        self.all.runs.fetch_sub(self.runs.len(), Ordering::Relaxed);
    }
}

impl Homes {
    /// Maximum number of runs: some tens of MiB.
    pub const MAX_RUNS: usize = 1 << 19;

    /// An empty table, bounded together with those of other processes.
    #[must_use]
    pub fn among(all: &Arc<AllHomes>) -> Homes {
        Homes { runs: RangeMap::default(), refused: 0, all: Arc::clone(all) }
    }

    /// Home node of a page; `None`: the page was not present at the last reading, or was left out.
    #[must_use]
    pub fn of(&self, page: PageNumber) -> Option<NodeIndex> {
        self.runs.get(page).map(|run| run.value)
    }

    /// Sets the home node of pages `first` to `end` (exclusive).
    pub fn set(&mut self, first: PageNumber, end: PageNumber, home: NodeIndex) {
        if first < end {
            self.change(first, end, |runs| runs.join(first, end, home));
        }
    }

    /// Forgets pages `first` to `end` (exclusive), for example after a new mapping.
    pub fn clear(&mut self, first: PageNumber, end: PageNumber) {
        if first < end {
            self.change(first, end, |runs| runs.remove(first, end));
        }
    }

    /// Forgets everything, also that pages were left out: another program begins.
    pub fn begin_anew(&mut self) {
        *self = Homes::among(&self.all);
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

    /// Makes a change of pages `first` to `end` that cuts at most the runs around them, and leaves out what becomes too much by it.
    fn change(
        &mut self,
        first: PageNumber,
        end: PageNumber,
        change: impl FnOnce(&mut RangeMap<PageNumber, NodeIndex>),
    ) {
        self.counted(change);
        while self.is_over() {
            let before = first.0.checked_sub(1).map(PageNumber);
            let beside = [Some(first), before, Some(end)];
            let runs = beside.into_iter().flatten().filter_map(|page| self.runs.get(page));
            let Some(shortest) = runs.min_by_key(|run| run.end - run.start) else { return };
            let pages = shortest.end - shortest.start;
            self.refused += pages;
            self.all.refused.fetch_add(pages, Ordering::Relaxed);
            self.counted(|runs| {
                runs.take(shortest.start);
            });
        }
    }

    /// Changes the runs, and counts them among those of all processes.
    fn counted(&mut self, change: impl FnOnce(&mut RangeMap<PageNumber, NodeIndex>)) {
        let before = self.runs.len();
        change(&mut self.runs);
        let now = self.runs.len();
        if now > before {
            self.all.runs.fetch_add(now - before, Ordering::Relaxed);
        } else if now < before {
            self.all.runs.fetch_sub(before - now, Ordering::Relaxed);
        }
    }

    fn is_over(&self) -> bool {
        self.runs.len() > self.all.max_runs_of_one || self.held_by_all() > self.all.max_runs
    }

    fn held_by_all(&self) -> usize {
        self.all.runs.load(Ordering::Relaxed)
    }

    /// Number of runs of neighbouring pages with one home node.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Number of pages by node, for `nodes` nodes.
    #[must_use]
    pub fn by_node(&self, nodes: usize) -> Vec<u64> {
        let mut sums = vec![0; nodes];
        for run in self.runs.iter() {
            if let Some(sum) = sums.get_mut(run.value.0) {
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
        fn runs_say_what_a_map_of_pages_says(steps in prop::collection::vec((0..100_u64, 0..20_u64, 0..4_usize), 1..80)) {
            let mut homes = Homes::default();
            let mut pages = BTreeMap::new();
            for (first, length, kind) in steps {
                let [from, to] = [first, first + length].map(PageNumber);
                if kind == 3 {
                    homes.clear(from, to);
                    pages.retain(|page, _| !(first..first + length).contains(page));
                } else {
                    homes.set(from, to, NodeIndex(kind));
                    pages.extend((first..first + length).map(|page| (page, NodeIndex(kind))));
                }
                for page in 0..130 {
                    prop_assert_eq!(homes.of(PageNumber(page)), pages.get(&page).copied(), "page {}", page);
                }
                let sums: Vec<u64> = NodeIndex::all(3).map(|node| pages.values().filter(|home| **home == node).count() as u64).collect();
                prop_assert_eq!(homes.by_node(3), sums);
            }
        }
    }

    #[test]
    fn what_is_no_longer_mapped_is_forgotten() {
        let mut homes = Homes::default();
        homes.set(PageNumber(10), PageNumber(100), NodeIndex(1));
        homes.keep_within([(0, 20), (50, 60)].map(|(first, end)| (PageNumber(first), PageNumber(end))).into_iter());
        let known = [19, 20, 55, 60].map(|page| homes.of(PageNumber(page)).map(|home| home.0));
        assert_eq!(known, [Some(1), None, Some(1), None]);
        assert_eq!(homes.by_node(2), [0, 20]);
    }

    #[test]
    fn neighbours_on_one_node_are_one_run() {
        let mut homes = Homes::default();
        PageNumber(0).run(1000).for_each(|page| homes.set(page, page + 1, NodeIndex(1)));
        assert_eq!(homes.runs(), 1);
        homes.set(PageNumber(500), PageNumber(501), NodeIndex(2));
        assert_eq!(homes.runs(), 3);
        homes.set(PageNumber(500), PageNumber(501), NodeIndex(1));
        assert_eq!(homes.runs(), 1);
    }

    proptest! {
        /// A page of a run on another node was added beyond any bound, and each process had a table of its own, of which thousands are managed.
        #[test]
        fn the_tables_are_bounded_one_by_one_and_together_and_what_they_hold_is_true(
            steps in prop::collection::vec((0..3_usize, 0..100_u64, 0..20_u64, 0..4_usize), 1..80),
        ) {
            let all = Arc::new(AllHomes::within(8, 5));
            let mut homes = [0; 3].map(|_| Homes::among(&all));
            let mut pages = [0; 3].map(|_| BTreeMap::new());
            for (at, first, length, kind) in steps {
                let [from, to] = [first, first + length].map(PageNumber);
                if kind == 3 {
                    homes[at].clear(from, to);
                    pages[at].retain(|page, _| !(first..first + length).contains(page));
                } else {
                    homes[at].set(from, to, NodeIndex(kind));
                    pages[at].extend((first..first + length).map(|page| (page, NodeIndex(kind))));
                }
                let runs: usize = homes.iter().map(Homes::runs).sum();
                prop_assert!(homes[at].runs() <= 5 && runs <= 8 && homes[at].held_by_all() == runs, "{:?}", homes);
                for page in 0..130 {
                    let (known, home) = (homes[at].of(PageNumber(page)), pages[at].get(&page).copied());
                    prop_assert!(known == home || (known.is_none() && homes[at].refused > 0), "page {}", page);
                }
            }
            prop_assert_eq!(all.refused(), homes.iter().map(|homes| homes.refused).sum::<u64>());
        }
    }

    /// The count was that of the processes that there are, so that what ended and what began anew took its pages with it.
    #[test]
    fn what_was_left_out_stays_counted_and_an_ended_process_gives_back_its_room() {
        let all = Arc::new(AllHomes::within(3, 3));
        let mut first = Homes::among(&all);
        PageNumber(0).run(8).for_each(|page| first.set(page, page + 1, NodeIndex(page.0 as usize % 2)));
        assert_eq!((first.runs(), first.refused, all.refused()), (3, 5, 5));
        first.begin_anew();
        assert_eq!((first.runs(), first.refused, all.refused()), (0, 0, 5));
        first.set(PageNumber(0), PageNumber(9), NodeIndex(1));
        drop(first);
        let mut second = Homes::among(&all);
        [0, 2, 4].map(PageNumber).into_iter().for_each(|page| second.set(page, page + 1, NodeIndex(0)));
        assert_eq!((second.runs(), second.refused, all.refused()), (3, 0, 5));
    }

    #[test]
    fn of_a_run_that_is_cut_where_there_is_no_room_the_longest_part_stays() {
        let mut homes = Homes::among(&Arc::new(AllHomes::within(1, 1)));
        homes.set(PageNumber(0), PageNumber(100), NodeIndex(0));
        homes.set(PageNumber(30), PageNumber(31), NodeIndex(1));
        let known = [29, 30, 31, 99].map(|page| homes.of(PageNumber(page)).map(|home| home.0));
        assert_eq!(known, [None, None, Some(0), Some(0)]);
        assert_eq!((homes.runs(), homes.refused), (1, 31));
        homes.set(PageNumber(100), PageNumber(101), NodeIndex(0));
        assert_eq!(
            (homes.of(PageNumber(100)), homes.refused),
            (Some(NodeIndex(0)), 31),
            "what makes no more runs is kept"
        );
    }
}
