//! The kernel's memory tiers (`mm/memory-tiers.c`, Linux 6.7 to 6.12): which memory it takes for slower than that of nodes with CPUs, and where it demotes
//! pages to.

use numapilot_machine::{Machine, NodeIndex};

use crate::nodes::NodeFacts;

/// Abstract distance of a tier's lower bound to the next one's (`MEMTIER_CHUNK_SIZE`, `include/linux/memory-tiers.h`).
const CHUNK: u64 = 128;
/// Abstract distance of the memory of nodes with CPUs (`MEMTIER_ADISTANCE_DRAM`).
const DRAM: u64 = 4 * CHUNK + CHUNK / 2;
/// ... of memory without CPUs of which firmware tells no bandwidth (`MEMTIER_DEFAULT_DAX_ADISTANCE`, `drivers/dax/kmem.c`).
const UNKNOWN: u64 = 5 * DRAM;

/// The tiers of a machine's nodes.
#[derive(Clone, Debug)]
pub(crate) struct KernelTiers {
    /// Tier of each node with memory, by index; the smaller, the faster. `None`: the node has no memory.
    tiers: Vec<Option<u64>>,
    /// The slowest tier with CPUs: it and all faster ones are top tiers (`establish_demotion_targets`).
    top: u64,
    /// For each node, the nodes of slower tiers: those of the next tier first, the nearest of them first (`next_demotion_node`, then
    /// `node_get_allowed_targets`).
    below: Vec<Vec<NodeIndex>>,
    /// For each node, the nodes of the fastest tier, the nearest first.
    fastest: Vec<Vec<NodeIndex>>,
}

impl KernelTiers {
    /// Computes them from latencies and bandwidths, as the kernel does from the firmware's HMAT (`mt_perf_to_adistance`). Nodes with CPUs are one tier, as
    /// `memory_tier_init` makes them.
    pub fn new(machine: &Machine, facts: &NodeFacts) -> Self {
        let distance =
            |node: NodeIndex| if facts.cpus[node] > 0 { DRAM } else { abstract_distance(machine, facts, node) };
        let tier = |node: NodeIndex| facts.has_memory(node).then(|| distance(node) / CHUNK);
        let tiers: Vec<Option<u64>> = NodeIndex::all(facts.count()).map(tier).collect();
        let with_cpus = facts.with_memory.iter().filter(|&&node| facts.cpus[node] > 0);
        let top = with_cpus.filter_map(|&node| tiers[node]).max().unwrap_or(DRAM / CHUNK);
        let ordered = |from: NodeIndex, mut nodes: Vec<NodeIndex>| {
            nodes.sort_by_key(|&node| (tiers[node], facts.distance[from][node], node));
            nodes
        };
        let below = |from: NodeIndex| {
            let slower = |node: &NodeIndex| tiers[from].is_some_and(|tier| tiers[*node] > Some(tier));
            ordered(from, facts.with_memory.iter().copied().filter(slower).collect())
        };
        let least = tiers.iter().flatten().min().copied();
        let fastest = |from| ordered(from, facts.with_memory.iter().copied().filter(|&n| tiers[n] == least).collect());
        Self {
            below: NodeIndex::all(facts.count()).map(below).collect(),
            fastest: NodeIndex::all(facts.count()).map(fastest).collect(),
            tiers,
            top,
        }
    }

    /// Whether the node's memory is at least as fast as that of nodes with CPUs (`node_is_toptier`). False for nodes without memory.
    pub fn is_top(&self, node: NodeIndex) -> bool {
        self.tiers.get(node.0).copied().flatten().is_some_and(|tier| tier <= self.top)
    }

    /// Whether the node has memory that is slower than that of nodes with CPUs.
    pub fn is_slow(&self, node: NodeIndex) -> bool {
        self.tiers.get(node.0).copied().flatten().is_some_and(|tier| tier > self.top)
    }

    /// Where pages of a node are demoted to, the best target first; empty: nowhere.
    pub fn below(&self, node: NodeIndex) -> &[NodeIndex] {
        self.below.get(node.0).map_or(&[], Vec::as_slice)
    }

    /// The nodes of the fastest tier, the nearest to this one first.
    pub fn fastest(&self, node: NodeIndex) -> &[NodeIndex] {
        self.fastest.get(node.0).map_or(&[], Vec::as_slice)
    }

    /// Whether the node is of the fastest tier.
    pub fn is_fastest(&self, node: NodeIndex) -> bool {
        self.fastest(node).contains(&node)
    }

    /// Whether there are several tiers.
    pub fn are_several(&self) -> bool {
        self.below.iter().any(|nodes| !nodes.is_empty())
    }

    /// Whether any memory is slower than that of nodes with CPUs.
    pub fn have_slow(&self) -> bool {
        NodeIndex::all(self.tiers.len()).any(|node| self.is_slow(node))
    }
}

/// The abstract distance of a node without CPUs: in proportion to its latency from the nearest CPUs, and inversely to its bandwidth. In whole numbers, in the
/// kernel's order of operations; latencies in picoseconds and bandwidths in MB/s, so that rounding is that of the kernel's own units or finer.
fn abstract_distance(machine: &Machine, facts: &NodeFacts, node: NodeIndex) -> u64 {
    let near = facts.nearest_with_cpus(node);
    let latency = |to: NodeIndex| (machine.idle_latency_or_guess_ns(facts.ids[near], facts.ids[to]) * 1000.0) as u64;
    let bandwidth = |node: NodeIndex| facts.bandwidth[node].map(|bytes_per_s| (bytes_per_s / 1e6) as u64);
    let (Some(dram), Some(own)) = (bandwidth(near), bandwidth(node)) else { return UNKNOWN };
    let dram_latency = latency(near);
    if dram == 0 || own == 0 || dram_latency == 0 {
        return UNKNOWN;
    }
    DRAM * latency(node) / dram_latency * dram / own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiers(machine: &str) -> KernelTiers {
        let machine = Machine::load(machine).expect("built-in");
        KernelTiers::new(&machine, &NodeFacts::new(&machine).expect("has memory"))
    }

    #[test]
    fn an_expander_is_slower_than_the_memory_of_both_sockets() {
        let tiers = tiers("xeon-2s-cxl");
        assert!(tiers.are_several() && tiers.have_slow());
        assert_eq!([0, 1, 2].map(|n| tiers.is_top(NodeIndex(n))), [true, true, false]);
        assert_eq!(tiers.below(NodeIndex(1)), [NodeIndex(2)]);
        assert!(tiers.below(NodeIndex(2)).is_empty());
        // From the expander, the socket that it hangs on comes first.
        assert_eq!(tiers.fastest(NodeIndex(2)), [NodeIndex(0), NodeIndex(1)]);
    }

    /// 576 x 210 / 112 x 307200 / 76800 = 1080 x 4: by latency alone it would be the third tier, by bandwidth it is far slower.
    #[test]
    fn abstract_distances_follow_latency_and_bandwidth() {
        let machine = Machine::load("xeon-2s-cxl").expect("built-in");
        let facts = NodeFacts::new(&machine).expect("has memory");
        assert_eq!(abstract_distance(&machine, &facts, NodeIndex(2)), 4320);
        let mut unknown = facts;
        unknown.bandwidth[2] = None;
        assert_eq!(abstract_distance(&machine, &unknown, NodeIndex(2)), 2880);
    }

    /// HBM answers later than DDR5 and has five times its bandwidth: the kernel takes it for the faster tier.
    #[test]
    fn memory_of_more_bandwidth_is_a_faster_tier_and_none_is_slow() {
        let tiers = tiers("xeon-max-flat");
        assert!(tiers.are_several() && !tiers.have_slow());
        assert!(NodeIndex::all(4).all(|node| tiers.is_top(node)));
        assert_eq!(tiers.below(NodeIndex(2)), [NodeIndex(0), NodeIndex(1)]);
        assert_eq!(tiers.fastest(NodeIndex(1)), [NodeIndex(3), NodeIndex(2)]);
    }

    #[test]
    fn a_machine_without_such_nodes_has_one_tier() {
        let tiers = tiers("opteron-8385");
        assert!(
            !tiers.are_several() && !tiers.have_slow() && tiers.is_top(NodeIndex(3)) && tiers.is_fastest(NodeIndex(0))
        );
    }
}
