//! Tiers of memory: which nodes' memory is slow.

use numapilot_machine::{Machine, Node};

/// Whether a node's memory is slower than that of nodes with CPUs: it is on none of them (CXL, persistent memory), and has no more bandwidth than they have.
/// HBM that is a node of its own has more. Where bandwidths are not known, such memory is taken for slow.
pub(crate) fn is_slow(machine: &Machine, node: &Node) -> bool {
    node.has_memory() && !machine.has_online_cpus(node) && !is_wide(machine, node)
}

/// The node without CPUs whose memory has more bandwidth than that of every node with CPUs; `None`: there is none.
pub(crate) fn wide_memory(machine: &Machine) -> Option<&Node> {
    let mut without_cpus = machine.nodes().iter().filter(|node| !machine.has_online_cpus(node));
    without_cpus.find(|node| node.has_memory() && is_wide(machine, node))
}

/// Whether a node's memory has more bandwidth than that of every node with CPUs, as far as both are known.
fn is_wide(machine: &Machine, node: &Node) -> bool {
    let near = machine.cpu_nodes().filter_map(|node| node.memory_bandwidth_bytes_per_s).fold(0.0, f64::max);
    node.memory_bandwidth_bytes_per_s.is_some_and(|bandwidth| near > 0.0 && bandwidth > near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_without_cpus_is_slow_unless_it_has_more_bandwidth() {
        let slow = Machine::load("xeon-2s-cxl").expect("a model");
        let of = |machine: &Machine| machine.nodes().iter().map(|node| is_slow(machine, node)).collect::<Vec<_>>();
        assert_eq!((of(&slow), wide_memory(&slow).is_none()), (vec![false, false, true], true));
        let text = numapilot_machine::builtin_text("xeon-2s-cxl").expect("its text");
        let wide =
            text.replace("{ value = 76.8, source", "{ value = 800, source").replace("[38.4, 76.8]", "[400, 900]");
        assert_ne!(wide, text, "the model's bandwidth of the expander is written otherwise");
        let wide = Machine::from_model_text(&wide, "wide.toml").expect("a sound model");
        assert_eq!((of(&wide), wide_memory(&wide).map(|node| node.id.0)), (vec![false; 3], Some(2)));
    }
}
