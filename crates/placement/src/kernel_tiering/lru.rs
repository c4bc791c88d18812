//! The lists of a node's pages from which kswapd demotes: the classic LRU with an active and an inactive list (`mm/vmscan.c`; not the multi-generational one).
//!
//! A page begins at the head of the inactive list with its accessed bit set by the fault that made it. At the tail, a page whose bit is clear is demoted; one
//! whose bit is set goes round again, and becomes active the second time (`folio_check_references`). Where the inactive list is short, the oldest active pages
//! come to its head, their bit cleared (`shrink_active_list`). A step looks at each page once at most, so that there is time to access it in between.

use std::collections::{BTreeMap, VecDeque};

use numapilot_host::PageNumber;

use crate::observation::PageKey;

/// Pages of 4 KiB in a GiB.
const PAGES_PER_GIB: u64 = (1 << 30) / PageNumber::BYTES;

/// What is known of a page.
#[derive(Clone, Copy, Debug)]
struct Entry {
    is_active: bool,
    /// The accessed bit in the page table.
    is_accessed: bool,
    /// Whether it was found accessed before (`PG_referenced`).
    is_referenced: bool,
    /// The step in which it was last seen on the node.
    seen: u64,
}

/// Both lists of a node. Their heads are the fronts.
#[derive(Clone, Debug, Default)]
pub(super) struct Lru {
    inactive: VecDeque<PageKey>,
    active: VecDeque<PageKey>,
    pages: BTreeMap<PageKey, Entry>,
    step: u64,
}

/// What one step of kswapd does.
#[derive(Clone, Debug, Default)]
pub(super) struct Reclaim {
    /// Pages whose accessed bit it clears, in order.
    pub cleared: Vec<PageKey>,
    /// Pages that it demotes, in order.
    pub demoted: Vec<PageKey>,
    /// Pages of 4 KiB that these are.
    pub pages: u64,
}

impl Lru {
    /// The pages that are on the node now: new ones enter the inactive list, others leave.
    pub fn update(&mut self, present: impl Iterator<Item = PageKey>) {
        self.step += 1;
        for key in present {
            let entry = self.pages.entry(key).or_insert_with(|| {
                self.inactive.push_front(key);
                Entry { is_active: false, is_accessed: true, is_referenced: false, seen: 0 }
            });
            entry.seen = self.step;
        }
        let step = self.step;
        let before = self.pages.len();
        self.pages.retain(|_, entry| entry.seen == step);
        if self.pages.len() < before {
            let pages = &self.pages;
            self.inactive.retain(|key| pages.contains_key(key));
            self.active.retain(|key| pages.contains_key(key));
        }
    }

    /// The hardware has set the accessed bit of a page.
    pub fn access(&mut self, key: PageKey) {
        if let Some(entry) = self.pages.get_mut(&key) {
            entry.is_accessed = true;
        }
    }

    /// Demotes cold pages until they make up `wanted` pages of 4 KiB, or all of the inactive list was looked at.
    pub fn reclaim(&mut self, wanted: u64) -> Reclaim {
        let mut reclaim = Reclaim::default();
        let mut left = self.inactive.len();
        while reclaim.pages < wanted {
            self.refill(&mut reclaim.cleared);
            if left == 0 {
                break;
            }
            left -= 1;
            let Some(key) = self.inactive.pop_back() else { break };
            let Some(entry) = self.pages.get_mut(&key) else { continue };
            if !entry.is_accessed {
                self.pages.remove(&key);
                reclaim.pages += key.size.small_pages();
                reclaim.demoted.push(key);
                continue;
            }
            entry.is_accessed = false;
            reclaim.cleared.push(key);
            if std::mem::replace(&mut entry.is_referenced, true) {
                entry.is_active = true;
                self.active.push_front(key);
            } else {
                self.inactive.push_front(key);
            }
        }
        reclaim
    }

    /// Deactivates the oldest active page while the inactive list is too short for the active one (`inactive_is_low`).
    fn refill(&mut self, cleared: &mut Vec<PageKey>) {
        while self.inactive.len() as u64 * self.inactive_ratio() < self.active.len() as u64 {
            let Some(key) = self.active.pop_back() else { break };
            let Some(entry) = self.pages.get_mut(&key) else { continue };
            (entry.is_active, entry.is_accessed) = (false, false);
            cleared.push(key);
            self.inactive.push_front(key);
        }
    }

    /// How many times as long the active list may be: the root of ten times the GiB, 1 below one GiB.
    fn inactive_ratio(&self) -> u64 {
        let size = self.inactive.front().or(self.active.front()).map_or(1, |key| key.size.small_pages());
        let gib = (self.inactive.len() + self.active.len()) as u64 * size / PAGES_PER_GIB;
        if gib == 0 { 1 } else { (10 * gib).isqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::page;

    fn filled(pages: u64) -> Lru {
        let mut lru = Lru::default();
        lru.update((0..pages).map(page));
        lru
    }

    #[test]
    fn new_pages_are_spared_once_and_the_oldest_cold_ones_go_first() {
        let mut lru = filled(4);
        let first = lru.reclaim(2);
        assert!(first.demoted.is_empty(), "all have the bit of the fault that made them");
        assert_eq!(first.cleared, [0, 1, 2, 3].map(page));
        lru.access(page(1));
        let second = lru.reclaim(2);
        assert_eq!(second.demoted, [page(0), page(2)], "page 1 was accessed meanwhile");
        assert_eq!(second.pages, 2);
    }

    #[test]
    fn a_page_accessed_twice_becomes_active_and_leaves_last() {
        let mut lru = filled(4);
        lru.reclaim(1);
        lru.access(page(0));
        assert_eq!(lru.reclaim(2).demoted, [page(1), page(2)]);
        assert!(lru.pages[&page(0)].is_active);
        assert_eq!(lru.reclaim(1).demoted, [page(3)]);
        // The active page comes to the empty inactive list, its bit cleared, and goes in the step after if it was not used.
        let next = lru.reclaim(1);
        assert_eq!((next.demoted, next.cleared), (Vec::new(), vec![page(0)]));
        assert_eq!((lru.reclaim(1).demoted, lru.pages.len()), (vec![page(0)], 0));
    }

    #[test]
    fn pages_that_left_are_forgotten_and_return_as_new() {
        let mut lru = filled(3);
        lru.reclaim(1);
        lru.update([page(0), page(2)].into_iter());
        assert_eq!(lru.pages.len(), 2);
        lru.update([page(0), page(1), page(2)].into_iter());
        assert_eq!(lru.reclaim(3).demoted, [page(0), page(2)], "page 1 is new");
    }

    #[test]
    fn nothing_is_demoted_that_is_always_in_use() {
        let mut lru = filled(50);
        for _ in 0..20 {
            assert!(lru.reclaim(10).demoted.is_empty());
            (0..50).for_each(|number| lru.access(page(number)));
        }
    }
}
