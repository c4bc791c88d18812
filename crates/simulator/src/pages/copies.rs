//! Replication: read-only copies of a page on several nodes, and their collapse.

use numapilot_machine::NodeIndex;
use numapilot_placement::Refusal;

use super::{PageTable, Unit};
use crate::program::PAGE_BYTES;

impl PageTable {
    /// Nodes that hold a copy, as bits; 0 where there is only the home.
    pub(crate) fn copies(&self, unit: Unit) -> u64 {
        self.regions[unit.region].copies.get(&unit.first).copied().unwrap_or(0)
    }

    /// Gives each of `nodes` a copy, and takes it from others; the home stays. How many copies were made.
    pub(crate) fn replicate(&mut self, unit: Unit, nodes: &[NodeIndex]) -> Result<u32, Refusal> {
        let home = self.home(unit.region, unit.first).ok_or(Refusal::Gone)?.0;
        if nodes.iter().any(|node| node.0 >= self.free.len()) {
            return Err(Refusal::Unsupported);
        }
        let old = self.copies(unit).max(1 << home);
        let new = nodes.iter().fold(1u64 << home, |mask, node| mask | 1 << node.0);
        if new == old {
            return Err(Refusal::AlreadyThere);
        }
        let bytes = unit.pages * PAGE_BYTES;
        let added = new & !old;
        if (0..self.free.len()).any(|node| added >> node & 1 == 1 && self.free[node] < bytes) {
            return Err(Refusal::NoRoom);
        }
        self.set_copies(unit, if new == 1 << home { 0 } else { new });
        Ok(added.count_ones())
    }

    /// Gives up all copies but the home. Whether there were any.
    pub(crate) fn collapse(&mut self, unit: Unit) -> bool {
        let had = self.copies(unit) != 0;
        if had {
            self.set_copies(unit, 0);
        }
        had
    }

    /// Whether any page has copies.
    pub(crate) fn has_copies(&self) -> bool {
        self.regions.iter().any(|region| !region.copies.is_empty())
    }

    /// Pages with copies among the small pages `first..end` of a region.
    pub(crate) fn copied_in(&self, region: usize, first: u64, end: u64) -> impl Iterator<Item = Unit> + '_ {
        let starts = self.regions[region].copies.range(first.saturating_sub(crate::program::SMALL_PER_LARGE - 1)..end);
        starts.map(move |(&start, _)| self.unit(region, start)).filter(move |unit| unit.first + unit.pages > first)
    }

    fn set_copies(&mut self, unit: Unit, mask: u64) {
        // Copies are of pages that have a home.
        let Some(home) = self.home(unit.region, unit.first) else { return };
        let old = self.copies(unit);
        let bytes = unit.pages * PAGE_BYTES;
        let region = &mut self.regions[unit.region];
        for (node, free) in self.free.iter_mut().enumerate().filter(|&(node, _)| node != home.0) {
            let (had, has) = (old >> node & 1 == 1, mask >> node & 1 == 1);
            if had && !has {
                *free += bytes;
            } else if has && !had {
                *free -= bytes;
            }
        }
        if mask == 0 {
            region.copies.remove(&unit.first);
        } else {
            region.copies.insert(unit.first, mask);
        }
        let end = unit.first + unit.pages;
        let mut page = unit.first;
        let mut atom = region.atom_of(page);
        while page < end {
            let until = region.atom_end(atom).min(end);
            for &slice in region.slices_of(atom) {
                self.slices[slice as usize].recopied(home, old, mask, until - page);
            }
            page = until;
            atom += 1;
        }
        self.generation += 1;
    }
}

impl super::SliceCounts {
    fn recopied(&mut self, home: NodeIndex, old: u64, new: u64, pages: u64) {
        if old == 0 {
            self.by_home[home] -= pages;
        } else if let Some(count) = self.copied.get_mut(&(old, home)) {
            *count -= pages;
            if *count == 0 {
                self.copied.remove(&(old, home));
            }
        }
        if new == 0 {
            self.by_home[home] += pages;
        } else {
            *self.copied.entry((new, home)).or_default() += pages;
        }
    }
}
