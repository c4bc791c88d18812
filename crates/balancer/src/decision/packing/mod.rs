//! Assignment of whole processes to nodes by their demand for processors and memory: numad's task, as a pure function.
//!
//! One objective, in lost processors. A process that spreads over several nodes waits for remote memory. A node with more demand than the target share of its
//! processors makes all processes on it wait, with a cost that grows faster than the load (so that an oversubscribed machine is at least loaded evenly). Bytes
//! that move cost their copying, spread over the time for which the answer should hold. Memory is a hard limit where it can be met. A new packing is adopted
//! only if it saves more than [`PackingSettings::hysteresis`] of the present loss.

mod search;

use numapilot_machine::NodeIndex;
use numapilot_machine::NodeSet;

pub use search::pack;
pub use search::place;

/// Capacity of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeCapacity {
    /// Number of processors.
    pub cpus: f64,
    /// Processors used by processes that are not packed.
    pub cpus_taken: f64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Memory in bytes used by processes that are not packed.
    pub memory_taken: u64,
}

/// Capacity of the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineCapacity {
    /// Nodes by index; at most 64.
    pub nodes: Vec<NodeCapacity>,
    /// Distances as given by the firmware, by node index; 10: local.
    pub distance: Vec<Vec<u32>>,
}

/// Demand of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Processors that it uses.
    pub cpus: f64,
    /// Its memory by node index, in bytes.
    pub memory_bytes: Vec<u64>,
    /// Nodes to which it is bound now; empty: not bound.
    pub bound: NodeSet,
    /// Nodes that its cpuset and affinity allow; empty: all.
    pub allowed: NodeSet,
}

impl Demand {
    /// Total memory in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.memory_bytes.iter().sum()
    }
}

/// Weights and limits of the objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackingSettings {
    /// Share of a node's processors beyond which it is overloaded, 0 to 1.
    pub target: f64,
    /// Share of a node's memory that may be used, 0 to 1.
    pub memory_target: f64,
    /// Share of processor time spent waiting for memory when all of it is local; distance multiplies it.
    pub memory_share: f64,
    /// Processor time to move a byte, in seconds.
    pub move_s_per_byte: f64,
    /// Time for which a packing should hold, in seconds.
    pub horizon_s: f64,
    /// Share of the present loss that a new packing must save, 0 to 1.
    pub hysteresis: f64,
}

impl Default for PackingSettings {
    fn default() -> PackingSettings {
        PackingSettings {
            target: 0.85,
            memory_target: 0.95,
            memory_share: 0.3,
            // 1 GB/s: the rate that move_pages reaches.
            move_s_per_byte: 1e-9,
            horizon_s: 60.0,
            hysteresis: 0.1,
        }
    }
}

/// A packing and its loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Packing {
    /// Nodes of each process, in the order of the demands.
    pub nodes: Vec<NodeSet>,
    /// Processors lost with this packing, including the cost of moving.
    pub loss: f64,
    /// Processors lost with the present packing.
    pub loss_now: f64,
    /// Whether it saves enough to be adopted; otherwise `nodes` is the present packing.
    pub is_change: bool,
}

/// The objective: the loss of a packing.
#[derive(Clone, Debug)]
pub struct Objective<'a> {
    capacity: &'a MachineCapacity,
    demands: &'a [Demand],
    settings: &'a PackingSettings,
}

/// Weight of memory that does not fit, which exceeds any gain.
const OVERFLOW: f64 = 1e6;

impl<'a> Objective<'a> {
    /// Makes the objective for a machine, demands and settings.
    #[must_use]
    pub fn new(capacity: &'a MachineCapacity, demands: &'a [Demand], settings: &'a PackingSettings) -> Objective<'a> {
        Objective { capacity, demands, settings }
    }

    /// Total loss in processors. A process spreads its demand over its nodes in proportion to their processors and memory.
    #[must_use]
    pub fn loss(&self, nodes: &[NodeSet]) -> f64 {
        let mut load = self.empty();
        let mut own = 0.0;
        for (process, set) in nodes.iter().enumerate() {
            own += self.own(process, *set);
            self.add(&mut load, process, *set, 1.0);
        }
        own + self.crowding(&load)
    }

    /// Loss of a process by itself, from remote memory and moving.
    pub(super) fn own(&self, process: usize, set: NodeSet) -> f64 {
        let demand = &self.demands[process];
        let (mut extra, mut pairs) = (0.0, 0.0);
        for from in set.iter() {
            for to in set.iter() {
                extra += f64::from(self.capacity.distance[from][to])
                    / f64::from(self.capacity.distance[from][from].max(1))
                    - 1.0;
                pairs += 1.0;
            }
        }
        let remote = demand.cpus * self.settings.memory_share * extra / f64::max(pairs, 1.0);
        let forbidden = if demand.allowed.is_empty() { 0 } else { (set.0 & !demand.allowed.0).count_ones() };
        // More than memory that does not fit can weigh.
        remote + self.moving(process, set) + f64::from(forbidden) * OVERFLOW * OVERFLOW
    }

    /// Bytes outside the set are copied once.
    fn moving(&self, process: usize, set: NodeSet) -> f64 {
        let demand = &self.demands[process];
        let by_node = NodeIndex::all(demand.memory_bytes.len()).zip(&demand.memory_bytes);
        let outside: u64 = by_node.filter(|(node, _)| !set.contains(*node)).map(|(_, b)| b).sum();
        outside as f64 * self.settings.move_s_per_byte / self.settings.horizon_s
    }

    /// Load (processors, bytes) of each node without any process.
    pub(super) fn empty(&self) -> Vec<(f64, f64)> {
        self.capacity.nodes.iter().map(|node| (node.cpus_taken, node.memory_taken as f64)).collect()
    }

    /// Adds a process to its nodes' load (`sign` 1), or removes it (-1).
    pub(super) fn add(&self, load: &mut [(f64, f64)], process: usize, set: NodeSet, sign: f64) {
        let demand = &self.demands[process];
        for (load, share) in load.iter_mut().zip(self.shares(set)) {
            load.0 += sign * demand.cpus * share.0;
            load.1 += sign * demand.memory() as f64 * share.1;
        }
    }

    /// Each node's share of a process on these nodes: of its processors and of its memory, 0 to 1.
    pub(super) fn shares(&self, set: NodeSet) -> Vec<(f64, f64)> {
        let nodes = &self.capacity.nodes;
        let cpus: f64 = set.iter().map(|node| nodes[node].cpus).sum();
        let memory: f64 = set.iter().map(|node| nodes[node].memory_bytes as f64).sum();
        let part = |of: f64, all: f64| if all > 0.0 { of / all } else { 0.0 };
        let mut out = vec![(0.0, 0.0); nodes.len()];
        for node in set.iter() {
            out[node] = (part(nodes[node].cpus, cpus), part(nodes[node].memory_bytes as f64, memory));
        }
        out
    }

    /// Demand of a process: processors and bytes.
    pub(super) fn size(&self, process: usize) -> (f64, f64) {
        (self.demands[process].cpus, self.demands[process].memory() as f64)
    }

    /// Loss on overloaded nodes, in processors.
    pub(super) fn crowding(&self, load: &[(f64, f64)]) -> f64 {
        load.iter().zip(&self.capacity.nodes).map(|(load, node)| self.crowding_of(*load, node)).sum()
    }

    fn crowding_of(&self, (cpus, memory): (f64, f64), node: &NodeCapacity) -> f64 {
        let over = (cpus - self.settings.target * node.cpus).max(0.0);
        // Half of the square: the first processor over the target costs little, each further one more.
        let waiting = if node.cpus > 0.0 {
            over * over / (2.0 * node.cpus * (1.0 - self.settings.target).max(0.05))
        } else {
            over * OVERFLOW
        };
        let overflow =
            (memory - self.settings.memory_target * node.memory_bytes as f64).max(0.0) / (1_u64 << 30) as f64;
        waiting + overflow * OVERFLOW
    }
}
