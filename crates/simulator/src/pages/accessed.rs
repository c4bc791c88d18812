//! Accessed bits of the page table, as far as somebody cleared them to see which pages are accessed; and where pages are, for whoever reads page tables.

use numapilot_host::PageNumber;
use numapilot_placement::{HomeRun, PageSize};

use super::{PageTable, Unit};

impl PageTable {
    /// Clears the accessed bit of every page with a home in a range of a process; how many pages, as mapped, that were.
    pub(crate) fn clear_accessed(&mut self, process: u32, first: PageNumber, pages: u64) -> u64 {
        let end = PageNumber(first.0.saturating_add(pages));
        let Some(regions) = self.by_process.get(process as usize) else { return 0 };
        let mut count = 0;
        for &(region_first, region) in regions {
            let region_end = region_first + self.regions[region].homes.len() as u64;
            let (from, to) = (first.max(region_first), end.min(region_end));
            if from >= to {
                continue;
            }
            let mut page = from - region_first;
            while page < to - region_first {
                let unit = self.unit(region, page);
                page = unit.first + unit.pages;
                if self.home(region, unit.first).is_some() {
                    self.regions[region].cleared.insert(unit.first);
                    count += 1;
                }
            }
        }
        count
    }

    /// Every page whose accessed bit is cleared, by region and address.
    pub(crate) fn cleared(&self) -> impl Iterator<Item = Unit> + '_ {
        let of = |(region, pages): (usize, &'_ super::RegionPages)| {
            let units: Vec<Unit> = pages.cleared.iter().map(|&first| self.unit(region, first)).collect();
            units
        };
        self.regions.iter().enumerate().filter(|(_, pages)| !pages.cleared.is_empty()).flat_map(of)
    }

    /// The page was accessed, or is another one now.
    pub(crate) fn set_accessed(&mut self, unit: Unit) {
        self.regions[unit.region].cleared.remove(&unit.first);
    }

    /// Where all pages that have a home are, in runs of equal ones of one size; ascending.
    pub(crate) fn home_runs(&self) -> Vec<HomeRun> {
        let mut runs: Vec<HomeRun> = Vec::new();
        for &(first_page, region) in self.by_process.iter().flatten() {
            let (process, pages) = (self.regions[region].process, self.regions[region].homes.len() as u64);
            let mut at = 0;
            while at < pages {
                let unit = self.unit(region, at);
                at = unit.first + unit.pages;
                let Some(node) = self.home(region, unit.first) else { continue };
                let size = if unit.pages == 1 { PageSize::Small } else { PageSize::Large };
                let first = first_page + unit.first;
                match runs.last_mut() {
                    Some(last)
                        if (last.process, last.first + last.pages, last.size, last.node)
                            == (process, first, size, node) =>
                    {
                        last.pages += unit.pages;
                    }
                    _ => runs.push(HomeRun { process, first, pages: unit.pages, size, node }),
                }
            }
        }
        runs
    }
}
