//! What one decision knows of the room on nodes, on machines with several tiers.

use std::collections::BTreeMap;

use numapilot_machine::NodeIndex;

use crate::cold::Coldest;
use crate::nodes::NodeFacts;
use crate::observation::{Observation, PageSize};

/// What one decision knows of the room on nodes.
pub(super) struct Room<'s> {
    pub seen: &'s Observation,
    /// Marginal cost of an access from node (row) to memory (column), nanoseconds.
    pub cost_ns: &'s [Vec<f64>],
    /// Accesses per second of all nodes.
    pub rate: f64,
    /// Bytes left, by node.
    pub free: Vec<f64>,
    /// Pages that may go, by node and size: made when the first is needed.
    pub cold: BTreeMap<(NodeIndex, PageSize), Coldest>,
    /// Whether anything was to go to a node that was full.
    pub is_short: bool,
}

/// Whether a machine has memory with and without CPUs.
pub(super) fn has_tiers(facts: &NodeFacts) -> bool {
    let is_apart = |node: &NodeIndex| facts.cpus[*node] == 0;
    facts.with_memory.iter().any(is_apart) && !facts.with_memory.iter().all(is_apart)
}

impl<'s> Room<'s> {
    /// The room of an observation.
    pub fn new(seen: &'s Observation, rates: &[f64], cost_ns: &'s [Vec<f64>]) -> Room<'s> {
        let free = seen.nodes.iter().map(|node| node.free_bytes as f64).collect();
        Room { seen, cost_ns, rate: rates.iter().sum(), free, cold: BTreeMap::new(), is_short: false }
    }

    /// Whether a page of a size fits on a node.
    fn fits(&self, node: NodeIndex, size: PageSize) -> bool {
        self.free.get(node.0).is_some_and(|free| *free >= size.bytes() as f64)
    }

    /// Takes a page's room on a node, if there is any.
    pub fn take(&mut self, node: NodeIndex, size: PageSize) -> bool {
        let fits = self.fits(node, size);
        self.is_short |= !fits;
        if fits {
            self.free[node.0] -= size.bytes() as f64;
        }
        fits
    }

    /// Where a page of a node that makes room loses least, and how much an access to it then loses at most, nanoseconds.
    pub fn refuge(
        &self,
        has_memory: impl Fn(NodeIndex) -> bool,
        node: NodeIndex,
        size: PageSize,
    ) -> Option<(NodeIndex, f64)> {
        let lost_ns = |to: NodeIndex| {
            let users = self.cost_ns.iter().map(|row| row[to.0] - row[node.0]).filter(|ns| ns.is_finite());
            users.fold(f64::NEG_INFINITY, f64::max)
        };
        let others = NodeIndex::all(self.free.len()).filter(|to| *to != node && has_memory(*to));
        let found = others.filter(|to| self.fits(*to, size)).map(|to| (to, lost_ns(to)));
        found.filter(|(_, ns)| ns.is_finite()).min_by(|a, b| a.1.total_cmp(&b.1))
    }
}
