//! Shares of memory by the bandwidths of nodes, as weights of interleaving.

use numapilot_machine::{Machine, NodeId, NodeIndex};

/// Least relative difference of an interleaving weight from an even one for which weights are proposed.
const UNEVEN: f64 = 0.1;
/// Largest weight; weights are whole numbers.
const WEIGHT_MAX: f64 = 10.0;

/// The nodes with memory, in the machine's order: those of every list in this file.
pub(super) fn memory_nodes(machine: &Machine) -> Vec<NodeIndex> {
    let nodes = machine.nodes();
    NodeIndex::all(nodes.len()).filter(|&node| nodes[node].has_memory()).collect()
}

/// Each node's share of the bandwidth of all memory, 0 to 1; `None` where one is not known, or all have about the same.
pub(super) fn shares(machine: &Machine) -> Option<Vec<f64>> {
    let of_node = |&node: &NodeIndex| machine.nodes()[node].memory_bandwidth_bytes_per_s;
    let bandwidths: Vec<f64> = memory_nodes(machine).iter().map(of_node).collect::<Option<_>>()?;
    let sum: f64 = bandwidths.iter().sum();
    let even = sum / bandwidths.len() as f64;
    let is_even = bandwidths.iter().all(|bandwidth| (bandwidth - even).abs() <= UNEVEN * even);
    (!is_even).then(|| bandwidths.iter().map(|bandwidth| bandwidth / sum).collect())
}

/// Weights that divide `own` accesses so that each node serves the same number with the `others` that it serves anyway, or `shares` of all. `None` where
/// even weights do so, too.
pub(super) fn leveling(others: &[f64], own: f64, shares: Option<&[f64]>) -> Option<Vec<u32>> {
    let all = others.iter().sum::<f64>() + own;
    let mean = all / others.len() as f64;
    let wanted = |index: usize| shares.map_or(mean, |shares| all * shares[index]);
    let room: Vec<f64> = others.iter().enumerate().map(|(index, others)| (wanted(index) - others).max(0.0)).collect();
    let sum: f64 = room.iter().sum();
    let even = 1.0 / others.len() as f64;
    if sum <= 0.0 || room.iter().all(|room| (room / sum - even).abs() < UNEVEN * even) {
        return None;
    }
    Some(whole(&room))
}

/// Whole numbers in these proportions, as nearly as the largest weight allows.
pub(super) fn whole(parts: &[f64]) -> Vec<u32> {
    let most = parts.iter().copied().fold(0.0, f64::max);
    parts.iter().map(|part| (WEIGHT_MAX * part / most).round() as u32).collect()
}

/// Weights of all nodes with memory, with the nodes' numbers; those of 0 are left out.
pub(super) fn named(machine: &Machine, weights: &[u32]) -> Vec<(NodeId, u32)> {
    let ids = memory_nodes(machine).into_iter().map(|node| machine.nodes()[node].id);
    ids.zip(weights.iter().copied()).filter(|(_, weight)| *weight > 0).collect()
}

/// How many bytes there is memory for in proportion to these weights; `None` if the machine lacks one of the nodes.
pub(super) fn room(machine: &Machine, weights: &[(NodeId, u32)]) -> Option<u64> {
    let sum: u64 = weights.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let of_node = |(id, weight): &(NodeId, u32)| {
        let bytes = u128::from(machine.node(*id)?.memory_bytes) * u128::from(sum) / u128::from((*weight).max(1));
        Some(u64::try_from(bytes).unwrap_or(u64::MAX))
    };
    weights.iter().map(of_node).collect::<Option<Vec<u64>>>()?.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_level_controllers_for_their_bandwidths_where_these_differ() {
        let (even, expanded) = (Machine::load("opteron-8385"), Machine::load("xeon-2s-cxl"));
        let (even, expanded) = (even.expect("a model"), expanded.expect("a model"));
        assert_eq!(shares(&even), None);
        assert_eq!(leveling(&[5.0; 4], 10.0, None), None);
        assert_eq!(leveling(&[10.0, 0.0, 0.0, 0.0], 30.0, None), Some(vec![0, 10, 10, 10]));
        // Four times 76.8 GB/s each, and once. The expander was to serve as much as they.
        let by_bandwidth = shares(&expanded).expect("uneven bandwidths");
        assert!((by_bandwidth[2] - 1.0 / 9.0).abs() < 1e-12, "{by_bandwidth:?}");
        let weights = leveling(&[0.0; 3], 900.0, Some(&by_bandwidth)).expect("uneven weights");
        assert!(weights[..2] == [10, 10] && (2..=3).contains(&weights[2]), "{weights:?}");
        assert_eq!(leveling(&[0.0, 0.0, 200.0], 700.0, Some(&by_bandwidth)), Some(vec![10, 10, 0]));
        assert_eq!(named(&expanded, &[10, 10, 0]), [(NodeId(0), 10), (NodeId(1), 10)]);
    }
}
