//! What is known of the node on which memory lies.

use numapilot_machine::NodeId;
use serde::{Deserialize, Serialize};

/// Evidence that memory is on the requested nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// The kernel was asked for every page (`move_pages`) before the first timing.
    Shown {
        /// Number of pages whose node the kernel reported.
        pages: u64,
        /// Bytes on each node.
        bytes_by_node: Vec<(NodeId, u64)>,
    },
    /// There is one node with memory, and the kernel does not say where pages are.
    OnlyNode,
}

impl Proof {
    /// Combines the evidence of two memories.
    #[must_use]
    pub fn plus(&self, other: &Proof) -> Proof {
        let (Proof::Shown { pages, bytes_by_node }, Proof::Shown { pages: more, bytes_by_node: others }) =
            (self, other)
        else {
            return Proof::OnlyNode;
        };
        let mut sums: std::collections::BTreeMap<NodeId, u64> = bytes_by_node.iter().copied().collect();
        others.iter().for_each(|(node, bytes)| *sums.entry(*node).or_insert(0) += bytes);
        Proof::Shown { pages: pages + more, bytes_by_node: sums.into_iter().collect() }
    }
}
