//! DAMON's regions: ranges of pages that are taken to be accessed equally often, of each of which one page is looked at (`mm/damon/core.c`). They are split at
//! random and merged where they turn out to be alike, so that their number stays between bounds.

use numapilot_host::PageNumber;
use numapilot_random::Random;

/// Regions merge whose access counts differ by at most this part of the greatest (`kdamond_fn`: `max_nr_accesses / 10`).
const ALIKE_PART: u32 = 10;

/// A range of pages of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub process: u32,
    pub first: PageNumber,
    /// Pages of 4 KiB.
    pub pages: u64,
    /// Sampling intervals of this aggregation interval in which its page was accessed (`nr_accesses`).
    pub accesses: u32,
    /// ... of the one before.
    pub last_accesses: u32,
    /// Aggregation intervals for which it has been accessed about as often.
    pub age: u32,
    /// The page that is looked at in this sampling interval.
    pub sampled: PageNumber,
}

impl Region {
    pub fn end(&self) -> PageNumber {
        self.first + self.pages
    }

    fn new(process: u32, first: PageNumber, pages: u64) -> Self {
        Self { process, first, pages, accesses: 0, last_accesses: 0, age: 0, sampled: first }
    }

    /// Cuts off what is behind the first pages.
    fn split_off(&mut self, pages: u64) -> Region {
        let rest = Region { first: self.first + pages, pages: self.pages - pages, ..*self };
        self.pages = pages;
        rest
    }
}

/// All regions, ascending by process and address.
#[derive(Clone, Debug)]
pub(super) struct Regions {
    pub all: Vec<Region>,
    min: u64,
    max: u64,
    /// Greatest access count: sampling intervals of an aggregation interval.
    most_accesses: u32,
    /// Number of regions when they were split last.
    last_number: usize,
}

impl Regions {
    /// None yet; `min` and `max` bound their number.
    pub fn new(min: u64, max: u64, most_accesses: u32) -> Self {
        Self { all: Vec::new(), min, max, most_accesses, last_number: 0 }
    }

    /// Fits the regions to what is mapped now (`damon_set_regions`): (process, first page, pages), ascending. New ranges get a region, at first as many of one
    /// size as there must be (`damon_va_evenly_split_region`).
    pub fn fit(&mut self, mapped: &[(u32, PageNumber, u64)]) {
        let total: u64 = mapped.iter().map(|range| range.2).sum();
        let even = if self.all.is_empty() { (total / self.min.max(1)).max(1) } else { u64::MAX };
        let before = std::mem::take(&mut self.all);
        for &(process, first, pages) in mapped.iter().filter(|range| range.2 > 0) {
            let (mut at, end) = (first, first + pages);
            let old = before.iter().filter(|old| old.process == process && old.first < end && old.end() > first);
            for region in old {
                let (start, stop) = (region.first.max(at), region.end().min(end));
                if start > at {
                    self.all.push(Region::new(process, at, start - at));
                }
                self.all.push(Region { first: start, pages: stop - start, ..*region });
                at = stop;
            }
            while at < end {
                let pages = even.min(end - at);
                self.all.push(Region::new(process, at, pages));
                at += pages;
            }
        }
    }

    /// Size in pages that no merged region exceeds (`damon_region_sz_limit`).
    pub fn largest(&self) -> u64 {
        (self.all.iter().map(|region| region.pages).sum::<u64>() / self.min.max(1)).max(1)
    }

    /// Merges neighbours that were accessed about as often, after an aggregation interval (`kdamond_merge_regions`).
    pub fn merge(&mut self, largest: u64) {
        let most = self.all.iter().map(|region| region.accesses).max().unwrap_or(0);
        let mut threshold = most / ALIKE_PART;
        loop {
            self.merge_alike(threshold, largest);
            threshold = (threshold * 2).max(1);
            if self.all.len() as u64 <= self.max || threshold / 2 >= self.most_accesses {
                return;
            }
        }
    }

    fn merge_alike(&mut self, threshold: u32, largest: u64) {
        let mut merged: Vec<Region> = Vec::with_capacity(self.all.len());
        for mut region in self.all.drain(..) {
            region.age = if region.accesses.abs_diff(region.last_accesses) > threshold { 0 } else { region.age + 1 };
            match merged.last_mut() {
                Some(last)
                    if (last.process, last.end()) == (region.process, region.first)
                        && last.accesses.abs_diff(region.accesses) <= threshold
                        && last.pages + region.pages <= largest =>
                {
                    let pages = last.pages + region.pages;
                    let mean =
                        |a: u32, b: u32| ((u64::from(a) * last.pages + u64::from(b) * region.pages) / pages) as u32;
                    (last.accesses, last.age) = (mean(last.accesses, region.accesses), mean(last.age, region.age));
                    last.pages = pages;
                }
                _ => merged.push(region),
            }
        }
        self.all = merged;
    }

    /// Begins an aggregation interval (`kdamond_reset_aggregated`).
    pub fn begin(&mut self) {
        for region in &mut self.all {
            region.last_accesses = std::mem::take(&mut region.accesses);
        }
    }

    /// Splits every region at random, where there are no more than half as many as may be (`kdamond_split_regions`).
    pub fn split(&mut self, random: &mut Random) {
        let number = self.all.len();
        if number as u64 > self.max / 2 {
            return;
        }
        let parts = if self.last_number == number && (number as u64) < self.max / 3 { 3 } else { 2 };
        self.last_number = number;
        let before = std::mem::take(&mut self.all);
        for mut region in before {
            let mut rest = Vec::new();
            for _ in 1..parts {
                if region.pages <= 2 {
                    break;
                }
                // One to nine tenths.
                let first = (1 + random.below(9)) * region.pages / 10;
                if first > 0 && first < region.pages {
                    rest.push(region.split_off(first));
                }
            }
            self.all.push(region);
            self.all.extend(rest.into_iter().rev());
        }
    }

    /// Splits one region behind its first pages: the rest keeps its age when the first part is acted upon.
    pub fn split_at(&mut self, index: usize, pages: u64) {
        if pages > 0 && pages < self.all[index].pages {
            let rest = self.all[index].split_off(pages);
            self.all.insert(index + 1, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn regions(pages: u64) -> Regions {
        let mut regions = Regions::new(10, 1000, 20);
        regions.fit(&[(1, PageNumber(100), pages)]);
        regions
    }

    #[test]
    fn a_new_range_begins_with_even_regions() {
        let regions = regions(1000);
        assert_eq!(regions.all.len(), 10);
        assert!(regions.all.iter().all(|region| region.pages == 100));
    }

    #[test]
    fn alike_neighbours_merge_and_others_do_not() {
        let mut regions = regions(1000);
        for (index, region) in regions.all.iter_mut().enumerate() {
            region.accesses = if index < 5 { 20 } else { 0 };
            region.last_accesses = region.accesses;
        }
        regions.merge(1000);
        let of = |region: &Region| (region.pages, region.accesses, region.age);
        assert_eq!(regions.all.iter().map(of).collect::<Vec<_>>(), [(500, 20, 1), (500, 0, 1)]);
        regions.begin();
        regions.all[0].accesses = 5;
        regions.merge(1000);
        assert_eq!(regions.all.iter().map(of).collect::<Vec<_>>(), [(500, 5, 0), (500, 0, 2)], "what changed is young");
    }

    #[test]
    fn regions_follow_the_mapped_ranges() {
        let mut regions = regions(1000);
        regions.all[0].age = 7;
        regions.fit(&[(1, PageNumber(150), 100), (1, PageNumber(2000), 10)]);
        let of = |region: &Region| (region.first.0, region.pages, region.age);
        assert_eq!(regions.all.iter().map(of).collect::<Vec<_>>(), [(150, 50, 7), (200, 50, 0), (2000, 10, 0)]);
    }

    proptest! {
        /// However often they are split and merged, regions cover the same pages, each once, and never become too many.
        #[test]
        fn regions_always_cover_the_range(seed in any::<u64>(), pages in 1u64..100_000, hot in 0u64..100_000) {
            let mut regions = regions(pages);
            let mut random = Random::new(seed);
            let largest = regions.largest();
            for _ in 0..30 {
                regions.split(&mut random);
                for region in &mut regions.all {
                    region.accesses = if region.first.0 < hot { random.below(21) as u32 } else { 0 };
                }
                regions.merge(largest);
                regions.begin();
                let mut at = PageNumber(100);
                for region in &regions.all {
                    prop_assert!(region.first == at && region.pages > 0, "{:?} at {:?}", region, at);
                    at = region.end();
                }
                prop_assert_eq!(at, PageNumber(100 + pages));
                prop_assert!(regions.all.len() <= 1000, "{}", regions.all.len());
            }
        }
    }
}
