//! The crossfilter's data: the accesses that a filter lets pass, as few rows as a page can hold, with every dimension by which a
//! reader may choose.
//!
//! Up to a budget a row is one sample, nothing is lost. Above it rows are *cells*: samples that share time slice, thread, object, code, nodes
//! and direction, summed up. What is seldom reached is folded, step by step ([`Level`]), until the cells fit the budget; sums stay exact, only
//! the finer distinction goes, and [`Cube::folded`] says how much of it.

mod cells;
mod keep;
mod side;

use numapilot_flows::{AccessRef, LocationId, SiteId};
use numapilot_trace::ids::{ObjectId, StackId, TimeNs};

use crate::context::Analysis;
pub use keep::Level;
pub use side::{InstanceRow, LatencyCell, PageCell, latency_bucket_start};

/// No node, page, latency or thread is known (or it was folded).
pub const NONE: u32 = u32::MAX;
/// [`Rows::flags`]: the access writes.
pub const FLAG_WRITE: u8 = 1;
/// [`Rows::flags`]: the object has an allocating thread.
pub const FLAG_HAS_ALLOCATOR: u8 = 2;
/// [`Rows::flags`]: the allocating thread makes the access.
pub const FLAG_BY_ALLOCATOR: u8 = 4;
/// [`Rows::flags`]: the allocating thread makes the access, and no sample shows another thread at the object before.
pub const FLAG_BEFORE_OTHERS: u8 = 8;

/// The object of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKey {
    /// One object instance.
    Instance(ObjectId),
    /// Those instances of a site that were folded.
    RestOfSite(SiteId),
    /// Instances of sites that were folded.
    Others,
    /// Accesses to memory of no known object.
    Unknown,
}

/// The code of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CodeKey {
    /// A code address under one call stack.
    Stack(LocationId, StackId),
    /// A code address under those stacks that were folded.
    RestOfLocation(LocationId),
    /// All code that was folded.
    Others,
}

/// What a row of the cube stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// One sample; times are exact, and pages and latencies are in the rows.
    Samples,
    /// Several samples with equal key; times are starts of slices of [`Cube::bin_ns`].
    Cells(Level),
}

/// The rows, one list per field.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Program time of the access, or start of the slice.
    pub time: Vec<TimeNs>,
    /// Index of the thread in the trace; [`NONE`] if it was folded.
    pub thread: Vec<u32>,
    /// Object, as an index into [`Cube::objects`].
    pub object: Vec<u32>,
    /// Code, as an index into [`Cube::codes`].
    pub code: Vec<u32>,
    /// Position of the accessing node in [`Analysis::nodes`], or [`NONE`].
    pub from: Vec<u32>,
    /// Position of the home node, or [`NONE`].
    pub home: Vec<u32>,
    /// A combination of the `FLAG_*` constants.
    pub flags: Vec<u8>,
    /// Number of samples.
    pub samples: Vec<u32>,
    /// Accesses that they stand for.
    pub weight: Vec<f64>,
    /// Sampling variance of `weight`.
    pub variance: Vec<f64>,
    /// Small page within the object, or [`NONE`]; empty in cells.
    pub page: Vec<u32>,
    /// Latency in cycles, or [`NONE`]; empty in cells, and where none was measured.
    pub latency_cycles: Vec<u32>,
}

impl Rows {
    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.time.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.time.is_empty()
    }
}

/// Shares of all accesses whose details were folded; 0 where rows are samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Folded {
    /// Accesses of instances that have no rows of their own.
    pub objects: f64,
    /// Accesses whose call stack was folded.
    pub stacks: f64,
    /// Accesses whose thread was folded.
    pub threads: f64,
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
    /// Latencies; only beside cells, and where they were measured.
    pub latencies: Vec<LatencyCell>,
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
                latencies: Vec::new(),
                instances,
            };
        }
        let (level, cells) = cells::fitting(self, &ranks, budget);
        let bin_ns = level.bin_ns(self);
        Cube {
            grain: Grain::Cells(level),
            start,
            bin_ns,
            objects: cells.objects,
            codes: cells.codes,
            rows: cells.rows,
            folded: cells.folded,
            samples: ranks.samples,
            pages: side::pages(self, &ranks, bin_ns),
            latencies: side::latencies(self, bin_ns),
            instances,
        }
    }

    pub(crate) fn start_ns(&self) -> u64 {
        self.filter.time.as_ref().map_or(0, |time| time.start.0)
    }
}

/// The threads seen at each instance so far, which decide [`FLAG_BEFORE_OTHERS`]. Stored densely, because every access looks it up.
struct Alone {
    /// Allocating thread by object, or [`NONE`].
    owners: Vec<u32>,
    alone: Vec<bool>,
}

impl Alone {
    fn new(analysis: &Analysis<'_>) -> Alone {
        let objects = analysis.trace.objects();
        let owners = objects.iter().map(|object| object.thread.map_or(NONE, |thread| thread.0)).collect();
        Alone { owners, alone: vec![true; objects.len()] }
    }

    /// The access's flags; accesses must come in order of time.
    #[inline]
    fn flags(&mut self, access: &AccessRef) -> u8 {
        let mut flags = if access.is_write { FLAG_WRITE } else { 0 };
        let Some(index) = access.object.map(|id| id.0 as usize).filter(|&index| index < self.owners.len()) else {
            return flags;
        };
        let owner = self.owners[index];
        if owner != NONE {
            flags |= FLAG_HAS_ALLOCATOR;
        }
        if owner == access.thread.0 {
            flags |= FLAG_BY_ALLOCATOR | if self.alone[index] { FLAG_BEFORE_OTHERS } else { 0 };
        } else {
            self.alone[index] = false;
        }
        flags
    }
}
