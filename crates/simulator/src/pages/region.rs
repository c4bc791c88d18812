//! One region's entries, and the *atoms* into which the borders of slices cut it: pages of one atom are in the same slices.

use std::collections::{BTreeMap, BTreeSet};

use numapilot_host::PageNumber;
use numapilot_machine::{NodeIndex, Packed};
use numapilot_placement::PageSize;

use crate::program::{Program, SMALL_PER_LARGE};

/// The home of a small page; none: the page was not touched yet.
pub(super) type Home = Packed<NodeIndex, u8>;

/// Entries of one region.
#[derive(Debug, Default)]
pub(super) struct RegionPages {
    pub(super) process: u32,
    pub(super) first_page: PageNumber,
    pub(super) is_large: bool,
    /// Home of each small page.
    pub(super) homes: Vec<Home>,
    /// Per large page: mapped as small ones.
    pub(super) split: Vec<bool>,
    /// Pages (as mapped, by first small page) that were unmapped for a hint, and when, ns.
    pub(super) unmapped: BTreeMap<u64, u64>,
    /// Pages (as mapped, by first small page) whose accessed bit was cleared and is not set since.
    pub(super) cleared: BTreeSet<u64>,
    /// Nodes (as bits, home included) of pages with copies, by first small page.
    pub(super) copies: BTreeMap<u64, u64>,
    /// First page of each atom, ascending; the first is 0.
    atoms: Vec<u64>,
    /// `atom_slices[starts[a]..starts[a + 1]]` hold atom a.
    starts: Vec<u32>,
    atom_slices: Vec<u32>,
}

impl RegionPages {
    /// Empty entries for all regions of a program.
    pub(super) fn all(program: &Program) -> Vec<RegionPages> {
        let mut slices_in = vec![Vec::new(); program.regions.len()];
        for (index, slice) in program.slices.iter().enumerate() {
            slices_in[slice.region as usize].push((index as u32, slice.first, slice.first + slice.pages));
        }
        let make = |(region, slices): (&crate::program::Region, &Vec<(u32, u64, u64)>)| {
            let is_large = region.page_size == PageSize::Large;
            let mut pages = RegionPages {
                process: region.process,
                first_page: region.first_page,
                is_large,
                homes: vec![Home::NONE; region.pages as usize],
                split: vec![false; if is_large { (region.pages / SMALL_PER_LARGE) as usize } else { 0 }],
                ..RegionPages::default()
            };
            pages.cut(slices);
            pages
        };
        program.regions.iter().zip(&slices_in).map(make).collect()
    }

    /// Finds the atoms and their slices, in one sweep over the borders.
    fn cut(&mut self, slices: &[(u32, u64, u64)]) {
        let pages = self.homes.len() as u64;
        let mut borders: Vec<u64> = slices.iter().flat_map(|&(_, first, end)| [first, end]).collect();
        borders.push(0);
        borders.sort_unstable();
        borders.dedup();
        borders.retain(|&border| border < pages);
        let mut by_start: Vec<&(u32, u64, u64)> = slices.iter().collect();
        by_start.sort_unstable_by_key(|slice| (slice.1, slice.0));
        let mut open: Vec<&(u32, u64, u64)> = Vec::new();
        let mut next = 0;
        self.starts.push(0);
        for &border in &borders {
            open.retain(|slice| slice.2 > border);
            while let Some(slice) = by_start.get(next).filter(|slice| slice.1 <= border) {
                open.push(slice);
                next += 1;
            }
            self.atom_slices.extend(open.iter().map(|slice| slice.0));
            self.starts.push(self.atom_slices.len() as u32);
        }
        self.atoms = borders;
    }

    /// Whether the small page is part of a large page.
    pub(super) fn is_large(&self, page: u64) -> bool {
        self.is_large && !self.split[(page / SMALL_PER_LARGE) as usize]
    }

    /// The atom that holds a page.
    pub(super) fn atom_of(&self, page: u64) -> usize {
        self.atoms.partition_point(|&first| first <= page) - 1
    }

    /// One past an atom's last page.
    pub(super) fn atom_end(&self, atom: usize) -> u64 {
        self.atoms.get(atom + 1).copied().unwrap_or(self.homes.len() as u64)
    }

    /// Slices that hold an atom.
    pub(super) fn slices_of(&self, atom: usize) -> &[u32] {
        &self.atom_slices[self.starts[atom] as usize..self.starts[atom + 1] as usize]
    }
}
