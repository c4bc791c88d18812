//! Whole processes on nodes: which process should live on which nodes, by its demand of processors and memory. numad's job, as a pure function.
//!
//! One objective, in processors lost: a process that spreads over several nodes waits for remote memory; a node that is asked for more than the target
//! share of its processors makes everybody on it wait, ever more the fuller it is (so that an oversubscribed machine is at least loaded evenly); and
//! bytes that have to move cost their copying, spread over the time for which the answer should hold. Memory is a hard limit where there is a way to keep
//! it. A new packing is taken up only if it saves more than [`PackingSettings::hysteresis`] of what the present one loses.

mod search;

pub use search::pack;
pub use search::place;

/// A node as packing sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeCapacity {
    /// Processors that it has.
    pub cpus: f64,
    /// Of these, taken by whatever is not packed.
    pub cpus_taken: f64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Of it, taken by whatever is not packed.
    pub memory_taken: u64,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineCapacity {
    /// Nodes by index; at most 64.
    pub nodes: Vec<NodeCapacity>,
    /// Distances as firmware tells them: 10 on the spot.
    pub distance: Vec<Vec<u32>>,
}

/// What a process wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Processors that it keeps busy.
    pub cpus: f64,
    /// Its memory by node index, in bytes.
    pub memory_bytes: Vec<u64>,
    /// Nodes that it is bound to now; empty: none, it goes where it likes.
    pub bound: NodeSet,
    /// Nodes that it may use, by its cpuset and affinity; empty: all.
    pub allowed: NodeSet,
}

impl Demand {
    /// All of its memory.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.memory_bytes.iter().sum()
    }
}

/// Nodes by index, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSet(pub u64);

impl NodeSet {
    /// The first `count` nodes.
    #[must_use]
    pub fn all(count: usize) -> NodeSet {
        NodeSet(if count >= 64 { u64::MAX } else { (1 << count) - 1 })
    }

    /// Indexes, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let node = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (node < 64).then_some(node)
        })
    }

    /// How many.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// None.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(nodes: I) -> NodeSet {
        NodeSet(nodes.into_iter().fold(0, |set, node| set | 1 << node))
    }
}

/// What counts for how much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackingSettings {
    /// Share of a node's processors beyond which it is crowded.
    pub target: f64,
    /// Share of a node's memory that may be given out.
    pub memory_target: f64,
    /// Share of a processor's time that it waits for memory when all of it is local: what distance multiplies.
    pub memory_share: f64,
    /// Processor time to move a byte, in seconds.
    pub move_s_per_byte: f64,
    /// Time for which a packing should hold, in seconds.
    pub horizon_s: f64,
    /// Share of the present loss that a new packing has to save.
    pub hysteresis: f64,
}

impl Default for PackingSettings {
    fn default() -> PackingSettings {
        PackingSettings {
            target: 0.85,
            memory_target: 0.95,
            memory_share: 0.3,
            // 1 GB/s: what move_pages reaches.
            move_s_per_byte: 1e-9,
            horizon_s: 60.0,
            hysteresis: 0.1,
        }
    }
}

/// A packing, and what it is worth.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Packing {
    /// Nodes of each process, in their order.
    pub nodes: Vec<NodeSet>,
    /// Processors lost with it, moving included.
    pub loss: f64,
    /// Processors lost as things are.
    pub loss_now: f64,
    /// It saves enough to be taken up; otherwise `nodes` is how things are.
    pub is_change: bool,
}

/// What a packing loses, piece by piece: the objective.
#[derive(Clone, Debug)]
pub struct Objective<'a> {
    capacity: &'a MachineCapacity,
    demands: &'a [Demand],
    settings: &'a PackingSettings,
}

/// Weight of memory that does not fit: more than anything else can bring.
const OVERFLOW: f64 = 1e6;

impl<'a> Objective<'a> {
    /// Of these.
    #[must_use]
    pub fn new(capacity: &'a MachineCapacity, demands: &'a [Demand], settings: &'a PackingSettings) -> Objective<'a> {
        Objective { capacity, demands, settings }
    }

    /// Processors lost in all. A process spreads its demand evenly over its nodes, by their processors and memory.
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

    /// What a process loses by itself: remote memory, and moving.
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
        // Beyond whatever memory that does not fit may weigh.
        remote + self.moving(process, set) + f64::from(forbidden) * OVERFLOW * OVERFLOW
    }

    /// Bytes outside of the set, and those too many on one of its nodes, are copied once.
    fn moving(&self, process: usize, set: NodeSet) -> f64 {
        let demand = &self.demands[process];
        let outside: u64 =
            demand.memory_bytes.iter().enumerate().filter(|(node, _)| set.0 >> node & 1 == 0).map(|(_, b)| b).sum();
        outside as f64 * self.settings.move_s_per_byte / self.settings.horizon_s
    }

    /// Load (processors, bytes) of each node without any process.
    pub(super) fn empty(&self) -> Vec<(f64, f64)> {
        self.capacity.nodes.iter().map(|node| (node.cpus_taken, node.memory_taken as f64)).collect()
    }

    /// Puts a process onto its nodes (`sign` 1), or takes it off (-1).
    pub(super) fn add(&self, load: &mut [(f64, f64)], process: usize, set: NodeSet, sign: f64) {
        let demand = &self.demands[process];
        for (load, share) in load.iter_mut().zip(self.shares(set)) {
            load.0 += sign * demand.cpus * share.0;
            load.1 += sign * demand.memory() as f64 * share.1;
        }
    }

    /// Each node's part of a process on these nodes: of its processors, and of its memory.
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

    /// Processors and bytes that a process asks for.
    pub(super) fn size(&self, process: usize) -> (f64, f64) {
        (self.demands[process].cpus, self.demands[process].memory() as f64)
    }

    /// What is lost to crowded nodes.
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
