//! The actions that a policy can request, and their outcomes.

use numapilot_host::PageNumber;
use numapilot_machine::NodeIndex;

use crate::page::PageKey;

/// Allocation policy of new pages: what `set_mempolicy` can express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Node of the thread that first touches the page; the next nearest with free memory where that is full.
    FirstTouch,
    /// Round robin over these nodes, by page (`MPOL_INTERLEAVE`).
    Interleave(Vec<NodeIndex>),
    /// Round robin over nodes with weights of 1 or more (`MPOL_WEIGHTED_INTERLEAVE`, Linux 6.9).
    WeightedInterleave(Vec<(NodeIndex, u8)>),
}

/// An action that a policy requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sets the allocation policy of one process, for pages that are touched later.
    Allocate {
        /// Process, by its number in the observation.
        process: u32,
        /// The new allocation policy.
        allocation: Allocation,
    },
    /// Move one page, small or large, to a node. A replicated page is collapsed there.
    Migrate {
        /// The page to move.
        page: PageKey,
        /// The target node.
        to: NodeIndex,
    },
    /// Give each of these nodes a read-only copy of a page. A write collapses them to one.
    Replicate {
        /// The page to copy.
        page: PageKey,
        /// Nodes that get (or keep) a copy, ascending.
        nodes: Vec<NodeIndex>,
    },
    /// Split a large page into small ones; they stay where they are.
    Split {
        /// The large page to split.
        page: PageKey,
    },
    /// Run a thread on a CPU of this node from now on.
    MoveThread {
        /// The thread to move, by its number in the observation.
        thread: u32,
        /// The target node.
        to: NodeIndex,
    },
    /// Make the next access to each of these pages fault, as Linux NUMA balancing does (`change_prot_numa`); the faults come back as
    /// [`crate::HintFault`]s.
    Unmap {
        /// Process, by its number in the observation.
        process: u32,
        /// First page.
        first: PageNumber,
        /// Number of pages of 4 KiB.
        pages: u64,
    },
    /// Clear the accessed bits of these pages in the page table, as the kernel's reclaim (`folio_referenced`) and DAMON (`damon_pa_mkold`) do; pages that are
    /// accessed after that come back as [`crate::Observation::accessed`]. Nothing tells by whom, and no access is delayed.
    ClearAccessed {
        /// Process, by its number in the observation.
        process: u32,
        /// First page.
        first: PageNumber,
        /// Number of pages of 4 KiB.
        pages: u64,
    },
}

/// Why an order was not carried out: an order of any kind, in any environment. A kernel's answer about a page says more; whoever asks it converts the answer.
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

/// Outcome of an action.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The action that was requested.
    pub action: Action,
    /// `Ok`: nanoseconds that it took (processor time of the environment plus stalls of the program); else why not.
    pub result: Result<f64, Refusal>,
}
