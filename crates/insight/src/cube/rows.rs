//! The rows of a cube: what each is about, and what was folded.

use numapilot_flows::{AccessRef, LocationId, SiteId};
use numapilot_trace::ids::{ObjectId, StackId, TimeNs};

use crate::context::Analysis;
use crate::decision::allocator_of;

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
    /// All instances of a site that have no row of their own.
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

/// The threads seen at each instance so far, which decide [`FLAG_BEFORE_OTHERS`]. Stored densely, because every access looks it up.
pub(super) struct Alone {
    /// Allocating thread by object, or [`NONE`].
    owners: Vec<u32>,
    alone: Vec<bool>,
}

impl Alone {
    pub(super) fn new(analysis: &Analysis<'_>) -> Alone {
        let objects = analysis.trace.objects();
        let owners =
            objects.iter().map(|object| allocator_of(analysis.trace, object).map_or(NONE, |thread| thread.0)).collect();
        Alone { owners, alone: vec![true; objects.len()] }
    }

    /// The access's flags; accesses must come in order of time.
    #[inline]
    pub(super) fn flags(&mut self, access: &AccessRef) -> u8 {
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
