//! Fixes of patterns, as data.

use numapilot_flows::{ObjectKind, SiteId, Trace};
use numapilot_machine::NodeId;
use numapilot_trace::ids::{ProcessIndex, ThreadIndex};
use numapilot_trace::mapping::is_shared_memory;
use serde::Serialize;

use crate::estimate::Estimate;
use crate::uncertainty::Uncertainty;

/// The kind of a fix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FixKind {
    /// Allocate the objects on this node.
    AllocateOnNode(NodeId),
    /// Let the threads that use an object touch it first.
    FirstTouchByUsers,
    /// Move the object at each hand-over to the node that uses it next.
    MigrateAtHandOver,
    /// Spread the object's pages evenly over all nodes with memory.
    Interleave,
    /// Spread its pages over the nodes in these proportions.
    WeightedInterleave(Vec<(NodeId, u32)>),
    /// A copy on each node, made after the initialisation.
    Replicate,
    /// Allocate from arenas of the allocating thread's node.
    LocalArenas,
    /// Let each thread touch its part first: in the initialisation loop, or by splitting the object over the nodes.
    ParallelFirstTouch,
    /// Keep threads on the node of their memory.
    PinThreads,
    /// Keep all threads of each process on one node.
    PinProcesses,
    /// Spread the data of one hot page over several pages.
    SpreadHot,
    /// Give each node its own cache lines (or pages) for its part of the object.
    SplitOrAlign,
    /// Place the object in the memory of nodes with CPUs.
    NearTier,
    /// Interleave everything, as `numactl --interleave=all` does.
    InterleaveAll,
}

impl FixKind {
    /// Whether a plan file can apply it, without a change of the source, to memory that a policy can place ([`Fix::works_by_plan`]). No plan can change which
    /// thread touches a page first.
    #[must_use]
    pub fn works_by_plan(&self) -> bool {
        match self {
            FixKind::AllocateOnNode(_)
            | FixKind::Interleave
            | FixKind::WeightedInterleave(_)
            | FixKind::LocalArenas
            | FixKind::PinThreads
            | FixKind::PinProcesses
            | FixKind::NearTier => true,
            FixKind::FirstTouchByUsers
            | FixKind::ParallelFirstTouch
            | FixKind::MigrateAtHandOver
            | FixKind::Replicate
            | FixKind::SpreadHot
            | FixKind::SplitOrAlign
            | FixKind::InterleaveAll => false,
        }
    }
}

/// The predicted effect of a change.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    /// Run time as it was over that with the change, less one.
    pub gain: Estimate,
    /// Processor time as it was over that with the change, less one, where sleeps decide how long the run is ([`crate::usage::Usage::paced`]).
    pub work_gain: Option<Estimate>,
    /// Where the interval of the latter comes from, if there is one, else that of the former.
    pub uncertainty: Uncertainty,
}

/// A fix with its price.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fix {
    /// The kind of the fix.
    pub kind: FixKind,
    /// The sites whose objects it concerns; empty for threads, processes, or everything.
    pub sites: Vec<SiteId>,
    /// Nodes without CPUs over which it spreads memory, too, because it does so over all nodes with memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without_cpus: Vec<NodeId>,
    /// The threads that it pins, and their nodes.
    pub threads: Vec<(ThreadIndex, NodeId)>,
    /// The processes that it pins, and their nodes.
    pub processes: Vec<(ProcessIndex, NodeId)>,
    /// How much faster the recorded run would be, as a share of its new run time: 1 is twice as fast. Predicted.
    pub gain: Estimate,
    /// Where the threads that decide the run's end sleep for half of it or more, as in servers that wait for input: how much less processor time the same
    /// work would take, as a share of the new one. Sleeps then decide how long the run is, and less work hardly shortens it. Predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_gain: Option<Estimate>,
    /// Where the interval of [`Fix::decisive`] comes from.
    pub uncertainty: Uncertainty,
    /// Additional memory that it takes, in bytes.
    pub more_bytes: u64,
}

impl Fix {
    /// The gain that decides whether the fix is worth it: in run time, or in processor time where sleeps decide how long the run is.
    #[must_use]
    pub fn decisive(&self) -> &Estimate {
        self.work_gain.as_ref().unwrap_or(&self.gain)
    }

    /// Whether it would make the program slower with its whole 95 % interval, or take more processor time.
    #[must_use]
    pub fn loses(&self) -> bool {
        self.decisive().high < 0.0
    }

    /// Whether a plan file can apply it to some of its objects in `trace`, without a change of the source.
    #[must_use]
    pub fn works_by_plan(&self, trace: &Trace) -> bool {
        let can_lie_elsewhere = |site: &SiteId| {
            trace.site(*site).is_none_or(|site| has_rules(site.kind) && is_placeable(site.kind, &site.name))
        };
        self.kind.works_by_plan() && (self.sites.is_empty() || self.sites.iter().any(can_lie_elsewhere))
    }
}

/// Whether rules of a plan can name such memory: the planner sees no blocks of a program's own pools, no stacks, and no memory of allocators.
fn has_rules(kind: ObjectKind) -> bool {
    !matches!(kind, ObjectKind::Pool | ObjectKind::Stack | ObjectKind::Allocator | ObjectKind::Unknown)
}

/// Whether the pages of a site's objects go where a policy of their mapping says. The kernel places the page cache by the policy of the thread that reads a
/// file, never by that of a mapping: mapped regular files, code and constants stay where they were read in. Shared memory has files, too, and is placed.
#[must_use]
pub fn is_placeable(kind: ObjectKind, name: &str) -> bool {
    match kind {
        ObjectKind::File => is_shared_memory(name.as_bytes()),
        ObjectKind::Section => matches!(name, ".data" | ".bss"),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_cache_is_not_placed_by_mappings() {
        for (kind, name, can) in [
            (ObjectKind::File, "/data/index", false),
            (ObjectKind::File, "/dev/shm/index", true),
            (ObjectKind::File, "/memfd:pool (deleted)", true),
            (ObjectKind::Section, ".rodata", false),
            (ObjectKind::Section, ".text", false),
            (ObjectKind::Section, ".bss", true),
            (ObjectKind::Heap, "x", true),
        ] {
            assert_eq!(is_placeable(kind, name), can, "{name}");
        }
    }
}
