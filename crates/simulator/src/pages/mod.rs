//! The page table of the simulated machine: where every page of every process is, which pages have copies, which are split or unmapped for a
//! hint, and how much memory is free.
//!
//! Every page of 4 KiB has its own entry (one byte), so policies may treat each apart. Accesses are accounted by [slices](crate::program::Slice)
//! instead: each slice counts its pages by home, exactly, and a change of a page's home changes the counts of the slices that hold it. So an
//! epoch costs the number of slices, not of pages.

mod accessed;
mod copies;
mod hints;
mod region;
mod shares;

pub(crate) use shares::Shares;

use region::{Home, RegionPages};

use std::collections::BTreeMap;

use numapilot_host::PageNumber;
use numapilot_machine::{Machine, NodeIndex};
use numapilot_placement::{PageKey, PageSize, Refusal};

use crate::program::{PAGE_BYTES, Program, SMALL_PER_LARGE};
use crate::report::Homes;

/// A page as it is mapped: a run of 1 or 512 small pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) region: usize,
    /// First small page, counted from the region's.
    pub(crate) first: u64,
    /// Number of small pages (4 KiB) in the unit.
    pub(crate) pages: u64,
}

/// Numbers of pages of a slice by home node.
#[derive(Clone, Debug, Default)]
pub(crate) struct SliceCounts {
    /// Pages with one copy, by home.
    pub(crate) by_home: Vec<u64>,
    /// Pages without a home.
    pub(crate) absent: u64,
    /// Pages with several copies: by (nodes as bits, home).
    pub(crate) copied: BTreeMap<(u64, NodeIndex), u64>,
}

/// The simulated page table: home node and copies of every page.
#[derive(Debug)]
pub(crate) struct PageTable {
    regions: Vec<RegionPages>,
    slices: Vec<SliceCounts>,
    /// `(first page, region)` of each process, ascending.
    by_process: Vec<Vec<(PageNumber, usize)>>,
    free: Vec<u64>,
    /// For each node, nodes with memory, nearest first.
    nearest: Vec<Vec<NodeIndex>>,
    /// Grows with every change of a home: whatever was derived from homes is stale then.
    generation: u64,
}

impl PageTable {
    /// Every page of the program without a home; all of the machine's memory free.
    pub(crate) fn new(program: &Program, machine: &Machine) -> PageTable {
        let mut by_process = vec![Vec::new(); program.processes.len()];
        for (index, region) in program.regions.iter().enumerate() {
            by_process[region.process as usize].push((region.first_page, index));
        }
        by_process.iter_mut().for_each(|regions| regions.sort_unstable());
        let nodes = machine.nodes();
        let position = |id| machine.node_index(id).unwrap_or_default();
        let nearest =
            |n: &numapilot_machine::Node| machine.nodes_nearest_first(n.id).into_iter().map(position).collect();
        let counts = |slice: &crate::program::Slice| SliceCounts {
            by_home: vec![0; nodes.len()],
            absent: slice.pages,
            copied: BTreeMap::new(),
        };
        PageTable {
            regions: RegionPages::all(program),
            slices: program.slices.iter().map(counts).collect(),
            by_process,
            free: nodes.iter().map(|node| node.memory_bytes).collect(),
            nearest: nodes.iter().map(nearest).collect(),
            generation: 0,
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Free bytes of each node.
    pub(crate) fn free_bytes(&self) -> &[u64] {
        &self.free
    }

    pub(crate) fn counts(&self, slice: u32) -> &SliceCounts {
        &self.slices[slice as usize]
    }

    /// Home of a small page of a region.
    pub(crate) fn home(&self, region: usize, page: u64) -> Option<NodeIndex> {
        self.regions[region].homes[page as usize].index()
    }

    /// Mapped ranges: (process, first page, pages of 4 KiB).
    pub(crate) fn mapped(&self) -> Vec<(u32, PageNumber, u64)> {
        let range = |process: usize, &(first, region): &(PageNumber, usize)| {
            (process as u32, first, self.regions[region].homes.len() as u64)
        };
        let of = |(process, regions): (usize, &Vec<(PageNumber, usize)>)| -> Vec<_> {
            regions.iter().map(|region| range(process, region)).collect()
        };
        self.by_process.iter().enumerate().flat_map(of).collect()
    }

    /// Where all pages that have a home are, in runs of equal ones; ascending.
    pub(crate) fn homes(&self) -> Vec<Homes> {
        let mut runs: Vec<Homes> = Vec::new();
        for &(first_page, region) in self.by_process.iter().flatten() {
            let process = self.regions[region].process;
            for (offset, home) in self.regions[region].homes.iter().enumerate() {
                let page = first_page + offset as u64;
                let Some(node) = home.index() else { continue };
                match runs.last_mut() {
                    Some(last) if (last.process, last.first_page + last.pages, last.node) == (process, page, node) => {
                        last.pages += 1;
                    }
                    _ => runs.push(Homes { process, first_page: page, pages: 1, node }),
                }
            }
        }
        runs
    }

    /// The region that holds a page of a process, and the page's offset in it.
    pub(crate) fn find(&self, process: u32, page: PageNumber) -> Option<(usize, u64)> {
        let regions = self.by_process.get(process as usize)?;
        let position = regions.partition_point(|&(first, _)| first <= page).checked_sub(1)?;
        let (first, region) = regions[position];
        let offset = page - first;
        (offset < self.regions[region].homes.len() as u64).then_some((region, offset))
    }

    /// The page as mapped that holds this small page.
    pub(crate) fn unit(&self, region: usize, page: u64) -> Unit {
        if self.regions[region].is_large(page) {
            let first = page / SMALL_PER_LARGE * SMALL_PER_LARGE;
            return Unit { region, first, pages: SMALL_PER_LARGE };
        }
        Unit { region, first: page, pages: 1 }
    }

    /// The unit's page key for policies.
    pub(crate) fn key(&self, unit: Unit) -> PageKey {
        let region = &self.regions[unit.region];
        let size = if unit.pages == 1 { PageSize::Small } else { PageSize::Large };
        PageKey { process: region.process, page: region.first_page + unit.first, size }
    }

    /// The page of this name, if it is there and mapped as the name says.
    pub(crate) fn resolve(&self, key: PageKey) -> Result<Unit, Refusal> {
        let (region, page) = self.find(key.process, key.page).ok_or(Refusal::Gone)?;
        let unit = self.unit(region, page);
        let as_named = self.key(unit) == key && self.home(region, page).is_some();
        if as_named { Ok(unit) } else { Err(Refusal::Gone) }
    }

    /// Gives a home to a page that has none: `wanted`, or the nearest to it that has room. `None`: no node has.
    pub(crate) fn place(&mut self, unit: Unit, wanted: NodeIndex) -> Option<NodeIndex> {
        let bytes = unit.pages * PAGE_BYTES;
        let fits = |&node: &NodeIndex| self.free[node] >= bytes;
        let node = Some(wanted).filter(fits).or_else(|| self.nearest[wanted].iter().copied().find(fits))?;
        self.free[node] -= bytes;
        self.set_home(unit, node.into());
        Some(node)
    }

    /// Takes a page its home, if it has one: it was freed.
    pub(crate) fn release(&mut self, unit: Unit) {
        if let Some(home) = self.home(unit.region, unit.first) {
            self.collapse(unit);
            self.remap(unit);
            self.set_accessed(unit);
            self.free[home] += unit.pages * PAGE_BYTES;
            self.set_home(unit, Home::NONE);
        }
    }

    /// Moves a page; the node it came from. Copies are given up.
    pub(crate) fn migrate(&mut self, unit: Unit, to: NodeIndex) -> Result<NodeIndex, Refusal> {
        let bytes = unit.pages * PAGE_BYTES;
        let from = self.home(unit.region, unit.first).ok_or(Refusal::Gone)?;
        let mask = self.copies(unit);
        if from == to && mask == 0 {
            return Err(Refusal::AlreadyThere);
        }
        if *self.free.get(to.0).ok_or(Refusal::Unsupported)? < bytes && mask & (1 << to.0) == 0 {
            return Err(Refusal::NoRoom);
        }
        self.collapse(unit);
        if from != to {
            self.free[from] += bytes;
            self.free[to] -= bytes;
            self.set_home(unit, to.into());
        }
        Ok(from)
    }

    /// Maps a large page as small ones, which stay where they are. False: it was small already.
    pub(crate) fn split(&mut self, unit: Unit) -> bool {
        if unit.pages == 1 {
            return false;
        }
        self.collapse(unit);
        self.remap(unit);
        self.set_accessed(unit);
        self.regions[unit.region].split[(unit.first / SMALL_PER_LARGE) as usize] = true;
        self.generation += 1;
        true
    }

    /// Changes the home of a page that has no copies, in its entries and in the counts of the slices that hold it.
    fn set_home(&mut self, unit: Unit, home: Home) {
        let region = &mut self.regions[unit.region];
        let end = unit.first + unit.pages;
        let mut atom = region.atom_of(unit.first);
        let mut page = unit.first;
        while page < end {
            let until = region.atom_end(atom).min(end);
            let old = region.homes[page as usize];
            let same = region.homes[page as usize..until as usize].iter().take_while(|&&h| h == old).count() as u64;
            region.homes[page as usize..(page + same) as usize].fill(home);
            for &slice in region.slices_of(atom) {
                self.slices[slice as usize].moved(old, home, same);
            }
            page += same;
            if page == until && page < end {
                atom += 1;
            }
        }
        self.generation += 1;
    }
}

impl SliceCounts {
    fn moved(&mut self, from: Home, to: Home, pages: u64) {
        *self.count(from) -= pages;
        *self.count(to) += pages;
    }

    fn count(&mut self, home: Home) -> &mut u64 {
        match home.index() {
            Some(node) => &mut self.by_home[node],
            None => &mut self.absent,
        }
    }
}

#[cfg(test)]
mod tests;
