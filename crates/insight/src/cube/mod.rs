//! The crossfilter's data: the accesses that a filter lets pass, as few rows as a page can hold, with every dimension by which a
//! reader may choose.
//!
//! Up to a budget a row is one sample, nothing is lost. Above it rows are *cells*: samples that share time slice, thread, object, code, nodes
//! and direction, summed up. What is seldom reached is folded, step by step ([`Level`]), until the cells fit the budget; sums stay exact, only
//! the finer distinction goes, and [`Cube::folded`] says how much of it.

mod cells;
mod keep;
mod rows;
mod side;

use numapilot_trace::ids::TimeNs;

use crate::context::Analysis;
pub use keep::Level;
pub use rows::{
    CodeKey, FLAG_BEFORE_OTHERS, FLAG_BY_ALLOCATOR, FLAG_HAS_ALLOCATOR, FLAG_WRITE, Folded, NONE, ObjectKey, Rows,
};
pub use side::{InstanceRow, LatencyCell, PageCell, latency_bucket_start};

/// What a row of the cube stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// One sample; times are exact, and pages and latencies are in the rows.
    Samples,
    /// Several samples with equal key; times are starts of slices of [`Cube::bin_ns`].
    Cells(Level),
}

/// The data of a crossfilter: rows, and the objects, code, pages and latencies that belong to them.
#[derive(Clone, Debug)]
pub struct Cube {
    /// What a row stands for.
    pub grain: Grain,
    /// Start of the time covered.
    pub start: TimeNs,
    /// Width of a slice of time in nanoseconds; 1 where rows are samples.
    pub bin_ns: u64,
    /// The objects that [`Rows::object`] refers to.
    pub objects: Vec<ObjectKey>,
    /// The code that [`Rows::code`] refers to.
    pub codes: Vec<CodeKey>,
    /// The rows, one per sample or per cell.
    pub rows: Rows,
    /// Shares of the accesses that were folded.
    pub folded: Folded,
    /// Sampled accesses behind the rows.
    pub samples: u64,
    /// Pages over time of the objects that are reached most; only beside cells.
    pub pages: Vec<PageCell>,
    /// Width of the slices of time of `pages` in nanoseconds, a multiple of `bin_ns`.
    pub page_bin_ns: u64,
    /// Latencies; only beside cells, and where they were measured.
    pub latencies: Vec<LatencyCell>,
    /// Width of the slices of time of `latencies` in nanoseconds, a multiple of `bin_ns`.
    pub latency_bin_ns: u64,
    /// Every instance that was seen accessed, most accesses first.
    pub instances: Vec<InstanceRow>,
}

impl Analysis<'_> {
    /// Builds the cube of the accesses that the filter lets pass, with at most `budget` rows.
    #[must_use]
    pub fn cube(&self, budget: usize) -> Cube {
        let ranks = keep::Ranks::of(self);
        let instances = side::instances(&ranks);
        let start = TimeNs(self.filter.time.as_ref().map_or(0, |time| time.start.0));
        if ranks.samples as usize <= budget {
            let mut fold = cells::Fold::new(self, Level::EVERYTHING, &ranks, u64::MAX);
            let rows = cells::samples(self, &mut fold);
            let (objects, codes) = fold.keys();
            return Cube {
                grain: Grain::Samples,
                start,
                bin_ns: 1,
                objects,
                codes,
                rows,
                folded: Folded::default(),
                samples: ranks.samples,
                pages: Vec::new(),
                page_bin_ns: 1,
                latencies: Vec::new(),
                latency_bin_ns: 1,
                instances,
            };
        }
        let (level, cells) = cells::fitting(self, &ranks, budget);
        let bin_ns = level.bin_ns(self);
        let (pages, page_bin_ns) = side::pages(self, &ranks, bin_ns);
        let (latencies, latency_bin_ns) = side::latencies(self, bin_ns);
        Cube {
            grain: Grain::Cells(level),
            start,
            bin_ns,
            objects: cells.objects,
            codes: cells.codes,
            rows: cells.rows,
            folded: cells.folded,
            samples: ranks.samples,
            pages,
            page_bin_ns,
            latencies,
            latency_bin_ns,
            instances,
        }
    }

    pub(crate) fn start_ns(&self) -> u64 {
        self.filter.time.as_ref().map_or(0, |time| time.start.0)
    }
}
