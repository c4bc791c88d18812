//! Where pages were before they moved, so that they can be moved back: runs of adjacent pages of one node. Their number is bounded; what is beyond it is
//! counted.

use numapilot_host::VirtAddr;
use numapilot_machine::NodeId;

use crate::actuator::page_bytes;

/// Adjacent pages that were on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: VirtAddr,
    pages: u64,
    home: NodeId,
}

/// Where pages of a process were, in the order in which they moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    runs: Vec<Run>,
    /// Greatest number of runs.
    most: usize,
    forgotten: u64,
}

impl Origins {
    /// From now on, runs are added while there are fewer than `most`, of 24 bytes each.
    pub fn limit(&mut self, most: usize) {
        self.most = most;
    }

    /// Adds a page that has moved away from `home`. Pages of one node that are added in the order of their addresses make one run.
    pub fn moved(&mut self, address: VirtAddr, home: NodeId) {
        let (size, is_full) = (page_bytes(), self.runs.len() >= self.most);
        match self.runs.last_mut() {
            Some(run) if run.home == home && run.first.0 + run.pages * size == address.0 => run.pages += 1,
            _ if is_full => self.forgotten += 1,
            _ => self.runs.push(Run { first: address, pages: 1, home }),
        }
    }

    /// Number of runs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether no page is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Number of pages that moved and are not remembered, because there were too many runs.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Takes out the pages that moved last, with the nodes on which they were, ascending by address: up to `most` moves. A page that moved several times among
    /// these is there once, with the first of its nodes.
    pub fn take_last(&mut self, most: usize) -> Vec<(VirtAddr, NodeId)> {
        let (size, mut pages) = (page_bytes(), Vec::new());
        while pages.len() < most {
            let Some(run) = self.runs.last_mut() else { break };
            let count = run.pages.min((most - pages.len()) as u64);
            run.pages -= count;
            let (first, home) = (run.first.0 + run.pages * size, run.home);
            pages.extend((0..count).rev().map(|page| (VirtAddr(first + page * size), home)));
            if run.pages == 0 {
                self.runs.pop();
            }
        }
        // In the order of the moves again; sorting keeps that order among the moves of one page.
        pages.reverse();
        pages.sort_by_key(|(address, _)| *address);
        pages.dedup_by_key(|(address, _)| *address);
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(number: u64) -> VirtAddr {
        VirtAddr(number * page_bytes())
    }

    /// Remembers at most `most` runs of these moves: page, and the node on which it was.
    fn of(most: usize, moves: &[(u64, u16)]) -> Origins {
        let mut origins = Origins::default();
        origins.limit(most);
        moves.iter().for_each(|(number, home)| origins.moved(page(*number), NodeId(*home)));
        origins
    }

    fn pages(of: &[(u64, u16)]) -> Vec<(VirtAddr, NodeId)> {
        of.iter().map(|(number, home)| (page(*number), NodeId(*home))).collect()
    }

    #[test]
    fn adjacent_pages_of_a_node_are_one_run_and_come_back_from_the_end() {
        let mut origins = of(9, &[(1, 0), (2, 0), (3, 0), (4, 1), (9, 1)]);
        assert_eq!((origins.len(), origins.forgotten()), (3, 0));
        assert_eq!(origins.take_last(3), pages(&[(3, 0), (4, 1), (9, 1)]));
        assert_eq!((origins.len(), origins.is_empty()), (1, false), "a part of the first run is left");
        assert_eq!(origins.take_last(3), pages(&[(1, 0), (2, 0)]));
        assert!(origins.is_empty() && origins.take_last(3).is_empty());
    }

    #[test]
    fn a_page_that_moved_twice_goes_back_to_where_it_was_first() {
        let moves = [(1, 0), (2, 0), (2, 3), (1, 2)];
        assert_eq!(of(9, &moves).take_last(9), pages(&[(1, 0), (2, 0)]));
        // Taken out in two parts, the first move comes last.
        let mut origins = of(9, &moves);
        assert_eq!(origins.take_last(2), pages(&[(1, 2), (2, 3)]));
        assert_eq!(origins.take_last(2), pages(&[(1, 0), (2, 0)]));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut origins = of(2, &[(1, 0), (3, 0), (4, 0), (6, 0), (8, 0)]);
        assert_eq!((origins.len(), origins.forgotten()), (2, 2), "page 4 belongs to a run that there is");
        assert_eq!(origins.take_last(9), pages(&[(1, 0), (3, 0), (4, 0)]));
    }
}
