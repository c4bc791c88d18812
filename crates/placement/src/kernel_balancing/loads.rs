//! What the nodes are loaded with.

use numapilot_machine::NodeIndex;

use crate::nodes::NodeFacts;

/// Load and capacity of every node, in running tasks and CPUs.
#[derive(Clone, Debug)]
pub(crate) struct NodeLoads {
    pub(super) load: Vec<f64>,
    pub(super) capacity: Vec<f64>,
}

impl NodeLoads {
    /// Adds up the tasks' loads.
    pub fn of(facts: &NodeFacts, tasks: impl Iterator<Item = (NodeIndex, f64)>) -> Self {
        let mut load = vec![0.0; facts.count()];
        tasks.for_each(|(node, l)| load[node] += l);
        Self { load, capacity: facts.cpus.iter().map(|&c| c as f64).collect() }
    }

    /// Whether moving `load` from one node to another makes them more unequal (`load_too_imbalanced`).
    pub(super) fn too_imbalanced(&self, from: NodeIndex, to: NodeIndex, load: f64) -> bool {
        let imbalance = |source: f64, target: f64| (target * self.capacity[from] - source * self.capacity[to]).abs();
        imbalance(self.load[from] - load, self.load[to] + load) > imbalance(self.load[from], self.load[to])
    }

    /// Whether a node has a CPU to spare.
    pub(super) fn has_idle_cpu(&self, node: NodeIndex) -> bool {
        self.load[node] + 0.5 < self.capacity[node]
    }
}
