//! Accesses to each page by node in an epoch, from which samples, faults, stalls and collapses are drawn.

use std::collections::BTreeMap;

use crate::engine::runner::Epoch;
use crate::pages::{PageTable, Unit};
use crate::program::Program;

/// Accesses of one thread to each small page of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerPage {
    pub(crate) thread: u32,
    pub(crate) reads: f64,
    pub(crate) writes: f64,
}

/// Accesses per page and epoch, by slice.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    by_slice: BTreeMap<u32, Vec<PerPage>>,
}

impl Demand {
    /// Makes the demand of `epoch`.
    pub(crate) fn new(epoch: &Epoch, program: &Program) -> Demand {
        let mut by_slice: BTreeMap<u32, Vec<PerPage>> = BTreeMap::new();
        for spent in epoch.spent.iter().filter(|spent| spent.accesses > 0.0) {
            let mix = &program.mixes[program.behaviours[spent.behaviour as usize].mix as usize];
            for part in &mix.parts {
                let pages = program.slices[part.slice as usize].pages as f64;
                let reads = spent.accesses * part.reads / pages;
                let writes = spent.accesses * part.writes / pages;
                by_slice.entry(part.slice).or_default().push(PerPage { thread: spent.thread, reads, writes });
            }
        }
        Demand { by_slice }
    }

    /// Slices that were accessed, ascending, each with its threads.
    pub(crate) fn slices(&self) -> impl Iterator<Item = (u32, &[PerPage])> {
        self.by_slice.iter().map(|(&slice, threads)| (slice, threads.as_slice()))
    }

    /// Accesses to a page as mapped, of all threads.
    pub(crate) fn sum_of_unit(&self, unit: Unit, pages: &PageTable) -> f64 {
        let mut sum = 0.0;
        pages.slices_over(unit, |slice, count| {
            let threads = self.by_slice.get(&slice).into_iter().flatten();
            sum += threads.map(|per| per.reads + per.writes).sum::<f64>() * count as f64;
        });
        sum
    }

    /// Accesses to a page as mapped, by thread.
    pub(crate) fn of_unit(&self, unit: Unit, pages: &PageTable) -> Vec<PerPage> {
        let mut sums: BTreeMap<u32, PerPage> = BTreeMap::new();
        pages.slices_over(unit, |slice, count| {
            for per in self.by_slice.get(&slice).into_iter().flatten() {
                let sum = sums.entry(per.thread).or_insert(PerPage { thread: per.thread, reads: 0.0, writes: 0.0 });
                sum.reads += per.reads * count as f64;
                sum.writes += per.writes * count as f64;
            }
        });
        sums.into_values().collect()
    }
}
