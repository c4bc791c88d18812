//! What policies need to know of a machine, in arrays by node index.

use numapilot_machine::{Machine, NodeId, NodeIndex};

use crate::error::PlacementError;

/// A machine's nodes as policies see them.
#[derive(Clone, Debug)]
pub(crate) struct NodeFacts {
    /// Numbers of the kernel or the model, by index.
    pub ids: Vec<NodeId>,
    /// The nodes with memory, ascending; never empty.
    pub with_memory: Vec<NodeIndex>,
    /// Online CPUs of each node.
    pub cpus: Vec<usize>,
    /// Memory of each node in bytes.
    pub memory_bytes: Vec<u64>,
    /// Peak bandwidth of each node's memory in bytes per second, where known.
    pub bandwidth: Vec<Option<f64>>,
    /// ACPI distance, row to column; 10 locally and 20 remotely where unknown.
    pub distance: Vec<Vec<u32>>,
    /// Clock in hertz, where known.
    pub clock_hz: Option<f64>,
}

impl NodeFacts {
    /// Reads them off a machine; fails if no node has memory.
    pub fn new(machine: &Machine) -> Result<Self, PlacementError> {
        let nodes = machine.nodes();
        let with_memory: Vec<NodeIndex> = NodeIndex::all(nodes.len()).filter(|&n| nodes[n].has_memory()).collect();
        if with_memory.is_empty() {
            return Err(PlacementError::NoMemory { machine: machine.name().to_owned() });
        }
        let online = |id: &&numapilot_machine::CpuId| machine.cpu(**id).is_some_and(|cpu| cpu.online);
        let distance = |a: NodeId, b: NodeId| machine.distance(a, b).unwrap_or(if a == b { 10 } else { 20 });
        Ok(Self {
            ids: nodes.iter().map(|n| n.id).collect(),
            with_memory,
            cpus: nodes.iter().map(|n| n.cpus.iter().filter(online).count()).collect(),
            memory_bytes: nodes.iter().map(|n| n.memory_bytes).collect(),
            bandwidth: nodes.iter().map(|n| n.memory_bandwidth_bytes_per_s).collect(),
            distance: nodes.iter().map(|a| nodes.iter().map(|b| distance(a.id, b.id)).collect()).collect(),
            clock_hz: machine.clock_mhz().map(|mhz| mhz * 1e6),
        })
    }

    /// Number of nodes, with and without memory.
    pub fn count(&self) -> usize {
        self.ids.len()
    }

    /// Whether the node has memory; false for positions out of range.
    pub fn has_memory(&self, node: NodeIndex) -> bool {
        self.with_memory.binary_search(&node).is_ok()
    }

    /// The node itself if it has CPUs, else the nearest that has, of several the first (`numa_nearest_node`). Itself where none has any.
    pub fn nearest_with_cpus(&self, node: NodeIndex) -> NodeIndex {
        if self.cpus[node] > 0 {
            return node;
        }
        let with_cpus = NodeIndex::all(self.count()).filter(|&other| self.cpus[other] > 0);
        with_cpus.min_by_key(|&other| self.distance[node][other]).unwrap_or(node)
    }

    /// Greatest distance between two nodes with CPUs; `None` if these are all equally far from each other. Nodes without CPUs do not count, as since
    /// Linux 5.18 (`sched_init_numa`).
    pub fn farthest_on_mesh(&self) -> Option<u32> {
        let with_cpus: Vec<NodeIndex> = NodeIndex::all(self.count()).filter(|&node| self.cpus[node] > 0).collect();
        let mut distances: Vec<u32> = Vec::new();
        for &a in &with_cpus {
            distances.extend(with_cpus.iter().filter(|b| **b != a).map(|&b| self.distance[a][b]));
        }
        let farthest = distances.iter().copied().max()?;
        (farthest > 10 && distances.iter().any(|&distance| distance != farthest)).then_some(farthest)
    }

    /// Peak bandwidth of all memory together in bytes per second, if that of every node is known.
    pub fn peak_bandwidth(&self) -> Option<f64> {
        self.with_memory.iter().map(|&n| self.bandwidth[n]).sum()
    }

    /// All memory in bytes.
    pub fn total_memory_bytes(&self) -> u64 {
        self.memory_bytes.iter().sum()
    }
}
