//! Idle latencies against the firmware's distances (ACPI SLIT): nearer memory should have a lower latency. Pure.

use numapilot_machine::{Machine, NodeId};
use numapilot_measure::{LatencyCell, Results};

use crate::outcome::Check;

/// Why there is nothing to order, where there is not.
#[must_use]
pub fn obstacle(machine: &Machine) -> Option<String> {
    let memories = machine.nodes().iter().filter(|node| node.has_memory()).count();
    (memories < 2).then(|| "this machine has one node with memory, so there are no distances to order by".to_owned())
}

/// One check for each node with CPUs: its latencies to all memories rise with their distances.
#[must_use]
pub fn checks(machine: &Machine, results: &Results) -> Vec<Check> {
    if let Some(reason) = obstacle(machine) {
        return vec![Check::not_judged("idle latencies rise with distance", reason)];
    }
    let nodes = machine.nodes().iter().filter(|node| node.has_cpus());
    nodes.map(|node| from_node(machine, results, node.id)).collect()
}

/// A memory as one node sees it.
#[derive(Clone, Copy)]
struct Memory<'a> {
    node: NodeId,
    distance: u32,
    cell: &'a LatencyCell,
}

fn from_node(machine: &Machine, results: &Results, from: NodeId) -> Check {
    let name = format!("idle latencies from node {from} rise with distance");
    let memory = |node: NodeId| {
        let (distance, cell) = machine.distance(from, node).zip(results.idle_latency(from, node))?;
        Some(Memory { node, distance, cell })
    };
    let ids = machine.nodes().iter().filter(|node| node.has_memory()).map(|node| node.id);
    let mut memories: Vec<Memory<'_>> = ids.filter_map(memory).collect();
    memories.sort_by_key(|memory| (memory.distance, memory.node));
    let pairs = || {
        let all = memories.iter().enumerate();
        all.flat_map(|(at, near)| {
            memories[at + 1..].iter().filter(|far| far.distance > near.distance).map(move |far| (near, far))
        })
    };
    if pairs().next().is_none() {
        return Check::not_judged(name, "no two memories at different distances could be measured from this node");
    }
    let ns = |memory: &Memory<'_>| memory.cell.ns.best();
    let words = |memory: &Memory<'_>| format!("node {} {:.0} ns", memory.node, ns(memory));
    let found = memories.iter().map(words).collect::<Vec<_>>().join(", ");
    let expected = memories
        .iter()
        .map(|memory| format!("node {} {}", memory.node, memory.distance))
        .collect::<Vec<_>>()
        .join(", ");
    // Beyond what repetitions differ by: the intervals of the medians do not touch. An order within them is chance, also where it is the expected one.
    let inverted = pairs().find(|(near, far)| near.cell.ns.spread.low > far.cell.ns.spread.high);
    let open = pairs().find(|(near, far)| near.cell.ns.spread.high >= far.cell.ns.spread.low);
    let check = match (inverted, open) {
        (Some((near, far)), _) => Check::judged(
            name,
            false,
            format!(
                "memory of node {} has a higher latency than that of node {}, although it is nearer (distance {} against {}); the firmware may be wrong",
                near.node, far.node, near.distance, far.distance
            ),
        ),
        (None, Some((near, far))) => Check::not_judged(
            name,
            format!(
                "the latencies of nodes {} and {} differ by less than repeated measurements of them",
                near.node, far.node
            ),
        ),
        (None, None) => Check::judged(name, true, "each memory at a greater distance has a higher latency"),
    };
    check.with(format!("rising by distance: {expected}"), found)
}

#[cfg(test)]
mod tests {
    //! Made-up latencies on a published machine, whose model has distances.

    use numapilot_machine::CpuId;
    use numapilot_measure::{Disturbance, Figure, Spread, Target, Walk};

    use super::*;
    use crate::outcome::Verdict;

    /// Node 0's latencies to these nodes, each ± `spread` ns.
    fn results(latencies: &[(u16, f64)], spread: f64) -> Results {
        let cell = |(to, best): &(u16, f64)| {
            let spread = Spread {
                best: *best,
                confirmed: true,
                median: *best,
                mad: spread,
                low: best - spread,
                high: best + spread,
                repetitions: 9,
            };
            LatencyCell {
                from: NodeId(0),
                cpu: CpuId(0),
                target: Target::Node(NodeId(*to)),
                walk: Walk::Random,
                bytes: 1 << 20,
                loads: 0,
                ns: Figure { spread, disturbance: Disturbance::default() },
            }
        };
        Results { latency: latencies.iter().map(cell).collect(), ..Results::default() }
    }

    /// Two nodes, 10 and 21 apart.
    fn machine() -> Machine {
        Machine::load("xeon-2s").expect("a model")
    }

    #[test]
    fn near_before_far_passes_the_reverse_fails_and_noise_is_not_judged() {
        let machine = machine();
        for (latencies, spread, verdict) in [
            (&[(0, 90.0), (1, 140.0)][..], 2.0, Verdict::Pass),
            (&[(0, 140.0), (1, 90.0)], 2.0, Verdict::Fail),
            (&[(0, 100.0), (1, 99.0)], 5.0, Verdict::NotJudged),
            (&[(0, 99.0), (1, 100.0)], 5.0, Verdict::NotJudged),
            (&[(0, 100.0)], 5.0, Verdict::NotJudged),
        ] {
            let check = from_node(&machine, &results(latencies, spread), NodeId(0));
            assert_eq!(check.verdict, verdict, "{latencies:?}: {check:?}");
        }
        let check = from_node(&machine, &results(&[(0, 90.0), (1, 140.0)], 2.0), NodeId(0));
        assert_eq!(check.expected.as_deref(), Some("rising by distance: node 0 10, node 1 21"));
        assert_eq!(check.found.as_deref(), Some("node 0 90 ns, node 1 140 ns"));
        let all = checks(&machine, &results(&[(0, 90.0), (1, 140.0)], 2.0));
        assert_eq!(all.iter().map(|check| check.verdict).collect::<Vec<_>>(), [Verdict::Pass, Verdict::NotJudged]);
    }
}
