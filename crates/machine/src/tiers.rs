//! Tiers of memory: that of nodes with CPUs, and that of nodes without, which is slower (CXL, persistent memory) or has more bandwidth (HBM).

use crate::hardware::Node;
use crate::ids::NodeId;
use crate::machine::Machine;

/// A tier of memory, as users name it: `tier:fast`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryTier {
    /// Memory of nodes with CPUs, on machines all of whose other memory is slower.
    Fast,
    /// Memory of nodes without CPUs that has no more bandwidth than that of nodes with CPUs.
    Slow,
    /// Memory of nodes without CPUs that has more bandwidth than that of every node with CPUs.
    Wide,
}

impl MemoryTier {
    /// All tiers.
    pub const ALL: [MemoryTier; 3] = [MemoryTier::Fast, MemoryTier::Slow, MemoryTier::Wide];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            MemoryTier::Fast => "fast",
            MemoryTier::Slow => "slow",
            MemoryTier::Wide => "wide",
        }
    }
}

impl Machine {
    /// Nodes with memory on which no thread can run, by ascending number: every access to their memory is remote.
    pub fn memory_without_cpus(&self) -> impl Iterator<Item = &Node> {
        self.nodes().iter().filter(|node| self.is_without_cpus(node))
    }

    /// Whether a node's memory is slower than that of nodes with CPUs: no threads can run on the node, and it has no more bandwidth than they have. HBM that is
    /// a node of its own has more. Where bandwidths are not known, such memory is taken for slow; not where no node with CPUs has any memory.
    pub fn is_slow_memory(&self, node: &Node) -> bool {
        self.is_without_cpus(node) && !self.is_wide(node) && self.cpu_and_memory_nodes().next().is_some()
    }

    /// The first node without CPUs whose memory has more bandwidth than that of every node with CPUs; `None`: there is none.
    pub fn wide_memory(&self) -> Option<&Node> {
        self.nodes().iter().find(|node| self.is_wide_memory(node))
    }

    /// The nodes of a tier, in the machine's order; empty where the machine has no such tier. Where memory without CPUs has more bandwidth than that of nodes
    /// with CPUs, none is called fast: which is, depends on the program.
    pub fn nodes_of_tier(&self, tier: MemoryTier) -> Vec<NodeId> {
        let is_of_tier = |node: &&Node| match tier {
            MemoryTier::Fast => node.has_memory() && self.has_online_cpus(node) && self.has_fast_tier(),
            MemoryTier::Slow => self.is_slow_memory(node),
            MemoryTier::Wide => self.is_wide_memory(node),
        };
        self.nodes().iter().filter(is_of_tier).map(|node| node.id).collect()
    }

    fn has_fast_tier(&self) -> bool {
        self.wide_memory().is_none() && self.nodes().iter().any(|node| self.is_slow_memory(node))
    }

    fn is_wide_memory(&self, node: &Node) -> bool {
        self.is_without_cpus(node) && self.is_wide(node)
    }

    /// Whether a node has memory, and no CPU that is online.
    fn is_without_cpus(&self, node: &Node) -> bool {
        node.has_memory() && !self.has_online_cpus(node)
    }

    /// Whether a node's memory has more bandwidth than that of every node with CPUs, as far as both are known.
    fn is_wide(&self, node: &Node) -> bool {
        let near = self.cpu_nodes().filter_map(|node| node.memory_bandwidth_bytes_per_s).fold(0.0, f64::max);
        node.memory_bandwidth_bytes_per_s.is_some_and(|bandwidth| near > 0.0 && bandwidth > near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiers(machine: &Machine) -> [Vec<u16>; 3] {
        MemoryTier::ALL.map(|tier| machine.nodes_of_tier(tier).into_iter().map(|node| node.0).collect())
    }

    #[test]
    fn memory_without_cpus_is_slow_unless_it_has_more_bandwidth() {
        let slow = Machine::load("xeon-2s-cxl").expect("a model");
        let of =
            |machine: &Machine| machine.nodes().iter().map(|node| machine.is_slow_memory(node)).collect::<Vec<_>>();
        assert_eq!((of(&slow), slow.wide_memory().is_none()), (vec![false, false, true], true));
        assert_eq!(tiers(&slow), [vec![0, 1], vec![2], vec![]]);
        assert_eq!(slow.memory_without_cpus().map(|node| node.id).collect::<Vec<_>>(), [NodeId(2)]);
        let text = crate::builtin_text("xeon-2s-cxl").expect("its text");
        let wide =
            text.replace("{ value = 76.8, source", "{ value = 800, source").replace("[38.4, 76.8]", "[400, 900]");
        assert_ne!(wide, text, "the model's bandwidth of the expander is written otherwise");
        let wide = Machine::from_model_text(&wide, "wide.toml").expect("a sound model");
        assert_eq!((of(&wide), wide.wide_memory().map(|node| node.id.0)), (vec![false; 3], Some(2)));
        assert_eq!(tiers(&wide), [vec![], vec![], vec![2]]);
        assert_eq!(wide.memory_without_cpus().map(|node| node.id).collect::<Vec<_>>(), [NodeId(2)]);
    }

    #[test]
    fn a_machine_all_of_whose_nodes_have_cpus_has_no_tiers() {
        assert!(tiers(&Machine::load("opteron-8385").expect("a model")).iter().all(Vec::is_empty));
    }
}
