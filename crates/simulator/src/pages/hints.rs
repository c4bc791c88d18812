//! Pages that are unmapped so that the next access to each faults and shows the accessing thread.

use numapilot_host::PageNumber;

use super::{PageTable, Unit};

impl PageTable {
    /// Unmaps every page with a home in a range of a process, and says how many small pages that were; those unmapped already count and keep their time.
    /// `is_spared` (of region and page): stays mapped.
    pub(crate) fn unmap(
        &mut self,
        process: u32,
        first: PageNumber,
        pages: u64,
        now_ns: u64,
        is_spared: &dyn Fn(usize, u64) -> bool,
    ) -> u64 {
        let end = PageNumber(first.0.saturating_add(pages));
        let mut count = 0;
        let Some(regions) = self.by_process.get(process as usize) else {
            return 0;
        };
        for &(region_first, region) in regions {
            let region_end = region_first + self.regions[region].homes.len() as u64;
            let (from, to) = (first.max(region_first), end.min(region_end));
            let mut page = from - region_first;
            while from < to && page < to - region_first {
                let unit = self.unit(region, page);
                page = unit.first + unit.pages;
                if self.home(region, unit.first).is_some() && !is_spared(region, unit.first) {
                    self.regions[region].unmapped.entry(unit.first).or_insert(now_ns);
                    count += unit.pages;
                }
            }
        }
        count
    }

    /// Every unmapped page, with the time of its unmapping.
    pub(crate) fn unmapped(&self) -> impl Iterator<Item = (Unit, u64)> + '_ {
        let of = |(region, pages): (usize, &'_ super::RegionPages)| {
            let units: Vec<_> = pages.unmapped.iter().map(|(&first, &at)| (self.unit(region, first), at)).collect();
            units
        };
        self.regions.iter().enumerate().filter(|(_, pages)| !pages.unmapped.is_empty()).flat_map(of)
    }

    /// The page is mapped again.
    pub(crate) fn remap(&mut self, unit: Unit) {
        self.regions[unit.region].unmapped.remove(&unit.first);
    }

    /// The slices that hold parts of a page, each with how many of its small pages.
    pub(crate) fn slices_over(&self, unit: Unit, mut visit: impl FnMut(u32, u64)) {
        let region = &self.regions[unit.region];
        let end = unit.first + unit.pages;
        let (mut page, mut atom) = (unit.first, region.atom_of(unit.first));
        while page < end {
            let until = region.atom_end(atom).min(end);
            for &slice in region.slices_of(atom) {
                visit(slice, until - page);
            }
            page = until;
            atom += 1;
        }
    }
}
