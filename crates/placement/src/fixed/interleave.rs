//! `interleave`: new pages round robin over all nodes with memory (`MPOL_INTERLEAVE`), or over some of them.

use numapilot_machine::NodeIndex;

use super::{NOTHING, chosen_nodes};
use crate::action::{Action, Allocation};
use crate::error::PlacementError;
use crate::nodes::NodeFacts;
use crate::observation::Observation;
use crate::options::{OptionInfo, Options};
use crate::policy::{Policy, PolicyRequirements};

/// Policy `interleave`: new pages are allocated round robin over nodes.
pub(crate) struct Interleave {
    nodes: Vec<NodeIndex>,
}

impl Interleave {
    /// The options of the policy.
    pub const OPTIONS: &[OptionInfo] = &[OptionInfo::new(
        "nodes",
        "all",
        "nodes to spread over, by number, such as 0-1/3; all: every node with memory",
    )];

    /// Makes the policy from its options.
    pub fn new(options: &Options, facts: &NodeFacts) -> Result<Self, PlacementError> {
        Ok(Self { nodes: chosen_nodes(options, facts)? })
    }
}

impl Policy for Interleave {
    fn name(&self) -> &str {
        "interleave"
    }

    fn initial_allocation(&self) -> Allocation {
        Allocation::Interleave(self.nodes.clone())
    }

    fn requirements(&self) -> PolicyRequirements {
        NOTHING
    }

    fn decide(&mut self, _: &Observation) -> Vec<Action> {
        Vec::new()
    }
}
