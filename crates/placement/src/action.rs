//! What a policy may order, and what can come of it.

use crate::observation::PageKey;

/// Where new pages go: what `set_mempolicy` can express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Node of the thread that first touches the page; the next nearest with free memory where that is full.
    FirstTouch,
    /// Round robin over these nodes, by page (`MPOL_INTERLEAVE`).
    Interleave(Vec<usize>),
    /// Round robin over nodes with weights of 1 or more (`MPOL_WEIGHTED_INTERLEAVE`, Linux 6.9).
    WeightedInterleave(Vec<(usize, u8)>),
}

/// One order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Where pages first touched from now on go, for one process.
    Allocate {
        /// Process, by its number in the observation.
        process: u32,
        /// Where to.
        allocation: Allocation,
    },
    /// Move one page, small or large, to a node. A replicated page is collapsed there.
    Migrate {
        /// Which page.
        page: PageKey,
        /// Where to, as a node index.
        to: usize,
    },
    /// Give each of these nodes a read-only copy of a page. A write collapses them to one.
    Replicate {
        /// Which page.
        page: PageKey,
        /// Nodes that get (or keep) a copy, ascending.
        nodes: Vec<usize>,
    },
    /// Split a large page into small ones; they stay where they are.
    Split {
        /// Which large page.
        page: PageKey,
    },
    /// Run a thread on a CPU of this node from now on.
    MoveThread {
        /// Which thread, by its number in the observation.
        thread: u32,
        /// Where to, as a node index.
        to: usize,
    },
    /// Make the next access to each of these pages fault, as Linux NUMA balancing does (`change_prot_numa`); the faults come back as
    /// [`crate::HintFault`]s.
    Unmap {
        /// Process, by its number in the observation.
        process: u32,
        /// First page, in units of 4 KiB.
        first: u64,
        /// How many pages of 4 KiB.
        pages: u64,
    },
}

/// Why an order was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The page is gone (unmapped, process ended, split since).
    Gone,
    /// It is there already.
    AlreadyThere,
    /// The target has no room.
    NoRoom,
    /// Cannot be moved now (locked, under write-back); may work later.
    Busy,
    /// This environment cannot do that at all.
    Unsupported,
}

/// What came of an order.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The order.
    pub action: Action,
    /// `Ok`: nanoseconds that it took (processor time of the environment plus stalls of the program); else why not.
    pub result: Result<f64, Refusal>,
}
