//! Fault statistics of tasks and groups: where the memory is, where the faults come from, decaying by half with every pass.

use numapilot_machine::NodeIndex;

/// A node that causes more than this fraction of the faults of the most active one counts as active (`ACTIVE_NODE_FRACTION`).
pub(super) const ACTIVE_NODE_FRACTION: i64 = 3;

/// Faults by node, shared first and private second, as the kernel orders them.
type ByNode = Vec<[i64; 2]>;

/// Decayed faults and those since the last pass (`numa_faults`: `NUMA_MEM`, `NUMA_CPU`, and their buffers).
#[derive(Clone, Debug)]
pub(crate) struct FaultTable {
    memory: ByNode,
    cpu: ByNode,
    memory_new: ByNode,
    cpu_new: ByNode,
    /// Sum of `memory` over all nodes.
    pub total: i64,
}

/// Tasks that share memory (`numa_group`).
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Decayed faults of its tasks.
    pub faults: FaultTable,
    /// Number of tasks in the group.
    pub tasks: u64,
    /// Nodes from which it faults often.
    pub active_nodes: usize,
    max_faults_cpu: i64,
}

impl FaultTable {
    pub fn new(nodes: usize) -> Self {
        let empty = || vec![[0; 2]; nodes];
        Self { memory: empty(), cpu: empty(), memory_new: empty(), cpu_new: empty(), total: 0 }
    }

    /// Counts one NUMA hinting fault on `pages` pages.
    pub fn count(&mut self, home: NodeIndex, from: NodeIndex, is_private: bool, pages: i64) {
        self.memory_new[home][usize::from(is_private)] += pages;
        self.cpu_new[from][usize::from(is_private)] += pages;
    }

    /// Decayed faults on memory of a node.
    pub fn memory(&self, node: NodeIndex) -> i64 {
        self.memory[node].iter().sum()
    }

    /// Decayed faults from a node, weighted by run time.
    pub fn cpu(&self, node: NodeIndex) -> i64 {
        self.cpu[node].iter().sum()
    }

    /// Decayed faults, shared and private.
    pub fn by_kind(&self) -> [u64; 2] {
        let sum = |kind: usize| self.memory.iter().map(|f| f[kind].max(0) as u64).sum();
        [sum(0), sum(1)]
    }

    /// Adds the decayed faults of another.
    pub fn add(&mut self, other: &Self) {
        self.accumulate(other, 1);
    }

    /// Takes the decayed faults of another off.
    pub fn subtract(&mut self, other: &Self) {
        self.accumulate(other, -1);
    }

    fn accumulate(&mut self, other: &Self, sign: i64) {
        for (mine, theirs) in [(&mut self.memory, &other.memory), (&mut self.cpu, &other.cpu)] {
            for (m, t) in mine.iter_mut().flatten().zip(theirs.iter().flatten()) {
                *m += sign * t;
            }
        }
        self.total += sign * other.total;
    }

    /// Folds the faults since the last pass into the decayed ones; returns them, shared and private. `run_share` is the share of the time in which
    /// the task ran: tasks that run little weigh little.
    pub fn decay(&mut self, run_share: f64, all_faults: i64) -> [i64; 2] {
        let mut kinds = [0; 2];
        for node in 0..self.memory.len() {
            for (kind, faults) in kinds.iter_mut().enumerate() {
                let fresh = std::mem::take(&mut self.memory_new[node][kind]);
                let change = fresh - self.memory[node][kind] / 2;
                *faults += fresh;
                self.memory[node][kind] += change;
                self.total += change;
                let fresh_cpu = std::mem::take(&mut self.cpu_new[node][kind]);
                // Fixed point with 16 bits, as in the kernel.
                let weight = (run_share * 65_536.0 * fresh_cpu as f64 / (all_faults + 1) as f64) as i64;
                self.cpu[node][kind] += weight - self.cpu[node][kind] / 2;
            }
        }
        kinds
    }
}

impl Group {
    /// A group of one task.
    pub fn of(faults: FaultTable) -> Self {
        Self { faults, tasks: 1, active_nodes: 1, max_faults_cpu: 0 }
    }

    pub(super) fn count_active_nodes(&mut self) {
        let nodes = NodeIndex::all(self.faults.cpu.len());
        self.max_faults_cpu = nodes.clone().map(|n| self.faults.cpu(n)).max().unwrap_or(0);
        self.active_nodes = nodes.filter(|&n| is_active_node(self, n)).count();
    }
}

/// Whether a group faults often from a node (`numa_is_active_node`).
pub(crate) fn is_active_node(group: &Group, node: NodeIndex) -> bool {
    group.faults.cpu(node) * ACTIVE_NODE_FRACTION > group.max_faults_cpu
}
