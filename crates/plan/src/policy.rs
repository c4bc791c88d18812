//! Placement policies for the memory of an object.

use numapilot_machine::MemoryTier;
use numapilot_machine::NodeId;
use numapilot_machine::format_cpu_list;

/// Nodes as a plan names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodeSet {
    /// All nodes of the machine that have memory (for memory) or CPUs (for threads).
    #[default]
    All,
    /// These, ascending, at least one.
    Listed(Vec<NodeId>),
    /// The nodes whose memory is of this tier, on the machine on which the plan is applied.
    Tier(MemoryTier),
}

impl NodeSet {
    /// The text in the file: `all`, a list such as `0-2,5`, or `tier:fast`.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            NodeSet::All => "all".to_owned(),
            NodeSet::Listed(nodes) => format_cpu_list(nodes.iter().map(|node| u32::from(node.0))),
            NodeSet::Tier(tier) => format!("tier:{}", tier.name()),
        }
    }
}

/// The threads that take an object over: its pages move to their node when a thread of that name or start function begins, or takes that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOver {
    /// Pattern of the receiving thread's name or start function.
    pub to: String,
}

/// Placement of an object's memory. `docs/plan-format.md` describes what each policy does on Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// On one node. With `strict`, on no other node: the kernel kills the program when that node is full. Otherwise on another node only if it is full.
    Node {
        /// The node.
        node: NodeId,
        /// Whether other nodes are forbidden when that node is full.
        strict: bool,
    },
    /// Page by page over the nodes in turn.
    Interleave(NodeSet),
    /// Over the nodes in proportion to weights. No weights: the kernel's own (`/sys/kernel/mm/mempolicy/weighted_interleave`).
    WeightedInterleave(Vec<(NodeId, u32)>),
    /// On the node of the allocating thread, from an arena of that node.
    Local,
    /// Fresh pages, each on the node of the thread that uses it first.
    FirstUse,
    /// In as many equal contiguous parts as there are nodes, one on each: what a parallel first touch of partitioned data would do. All
    /// nodes are those that have CPUs, too, because no thread touches anything first on another.
    Split(NodeSet),
    /// A copy on each node. A plan cannot do this for threads of one process: `run` reports it, and leaves the object as it is.
    Replicate,
    /// First on the node of its allocator, then on the node of the threads that take it over.
    HandOver(HandOver),
}

impl Policy {
    /// Its keyword in a plan file.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Policy::Node { .. } => "node",
            Policy::Interleave(_) => "interleave",
            Policy::WeightedInterleave(_) => "weighted-interleave",
            Policy::Local => "local",
            Policy::FirstUse => "first-use",
            Policy::Split(_) => "split",
            Policy::Replicate => "replicate",
            Policy::HandOver(_) => "hand-over",
        }
    }

    /// Every policy's name, in the order of the documentation.
    pub const NAMES: [&'static str; 8] =
        ["node", "interleave", "weighted-interleave", "local", "first-use", "split", "replicate", "hand-over"];

    /// One line for messages: `interleave over 0-3`.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Policy::Node { node, strict } => format!("node {node}{}", if *strict { " (strict)" } else { "" }),
            Policy::Interleave(NodeSet::All) => "interleave over all nodes".to_owned(),
            Policy::Interleave(nodes) => format!("interleave over {}", nodes.text()),
            Policy::WeightedInterleave(weights) if weights.is_empty() => "weighted-interleave".to_owned(),
            Policy::WeightedInterleave(weights) => format!("weighted-interleave {}", weights_text(weights)),
            Policy::Split(NodeSet::All) => "split over all nodes".to_owned(),
            Policy::Split(nodes) => format!("split over {}", nodes.text()),
            Policy::HandOver(hand_over) => format!("hand-over to {}", hand_over.to),
            Policy::Local | Policy::FirstUse | Policy::Replicate => self.name().to_owned(),
        }
    }
}

/// The weights as text: `0:3,1:1` (node:weight).
pub(crate) fn weights_text(weights: &[(NodeId, u32)]) -> String {
    weights.iter().map(|(node, weight)| format!("{node}:{weight}")).collect::<Vec<_>>().join(",")
}
