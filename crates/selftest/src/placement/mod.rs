//! Placement: whether memory policies place pages as they say. A thread sets a policy by the same wrapper as `numapilot run` ([`apply`]), touches fresh memory,
//! and asks the kernel for the node of every page. The expectation and the verdict are pure.

pub mod apply;

use std::collections::BTreeMap;

use numapilot_machine::{CpuId, Machine, Node, NodeId};
use numapilot_measure::Permit;
use numapilot_text::units;

use crate::outcome::Check;

/// Pages that are touched: enough for shares to tell, 4 MiB.
pub const PAGES: usize = 1024;
/// By how much a node's part of interleaved pages may differ from its due, as a share of all: the kernel deals other pages of the thread (page tables) too.
const DEAL_TOLERANCE: f64 = 0.02;
/// A node with less free memory than this may have none to give.
const FREE_MIN: u64 = 64 << 20;

/// A policy to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// On this node only.
    Bind(NodeId),
    /// Page by page over these nodes.
    Interleave(Vec<NodeId>),
    /// On the node of the CPU that touches.
    FirstTouch(CpuId, NodeId),
}

impl Policy {
    /// The policy in words.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Policy::Bind(node) => format!("bind to node {node}"),
            Policy::Interleave(nodes) if nodes.len() < 2 => "interleave".to_owned(),
            Policy::Interleave(nodes) => format!("interleave over nodes {}", list(nodes)),
            Policy::FirstTouch(cpu, node) => format!("first touch by a thread on node {node} (CPU {cpu})"),
        }
    }

    /// Pages that each node should have.
    fn due(&self) -> BTreeMap<NodeId, f64> {
        match self {
            Policy::Bind(node) | Policy::FirstTouch(_, node) => [(*node, PAGES as f64)].into(),
            Policy::Interleave(nodes) => nodes.iter().map(|node| (*node, PAGES as f64 / nodes.len() as f64)).collect(),
        }
    }
}

fn list(nodes: &[NodeId]) -> String {
    numapilot_machine::format_cpu_list(nodes.iter().map(|node| u32::from(node.0)))
}

/// What is tried on a machine; with a reason for what cannot be.
#[must_use]
pub fn policies(machine: &Machine, permit: &Permit) -> Vec<(Policy, Option<String>)> {
    let may_have = |node: &&Node| node.has_memory() && permit.memory_nodes.contains(&node.id);
    let memories: Vec<&Node> = machine.nodes().iter().filter(may_have).collect();
    let room = |node: &Node| {
        let free = node.free_bytes.filter(|free| *free < FREE_MIN)?;
        Some(format!(
            "node {} has only {} of free memory, so the kernel may have to use another node's",
            node.id,
            units::bytes(free)
        ))
    };
    let ids: Vec<NodeId> = memories.iter().map(|node| node.id).collect();
    let mut out: Vec<_> = memories.iter().map(|node| (Policy::Bind(node.id), room(node))).collect();
    let one = (ids.len() < 2).then(|| {
        "this machine has one node with memory that this process may use, so there is nothing to interleave".to_owned()
    });
    let tight = || memories.iter().find_map(|node| room(node));
    out.push((Policy::Interleave(ids), one.or_else(tight)));
    for node in machine.nodes() {
        let usable = |cpu: &&CpuId| permit.cpus.contains(cpu) && machine.cpu(**cpu).is_some_and(|cpu| cpu.online);
        let Some(cpu) = node.cpus.iter().find(usable) else { continue };
        let reason = if may_have(&node) {
            room(node)
        } else {
            Some(format!("node {} has CPUs and no memory that this process may use", node.id))
        };
        out.push((Policy::FirstTouch(*cpu, node.id), reason));
    }
    out
}

/// The verdict on where pages were found; `None` stands for pages that are nowhere.
#[must_use]
pub fn judge(policy: &Policy, found: &BTreeMap<Option<NodeId>, usize>) -> Check {
    let (due, all) = (policy.due(), found.values().sum::<usize>());
    let tolerance = match policy {
        Policy::Interleave(_) => DEAL_TOLERANCE * PAGES as f64,
        Policy::Bind(_) | Policy::FirstTouch(..) => 0.0,
    };
    let on = |node: NodeId| found.get(&Some(node)).copied().unwrap_or(0) as f64;
    let strays: usize = found
        .iter()
        .filter(|(place, _)| place.is_none_or(|node| !due.contains_key(&node)))
        .map(|(_, count)| count)
        .sum();
    let holds = all == PAGES && strays == 0 && due.iter().all(|(node, pages)| (on(*node) - pages).abs() <= tolerance);
    let words = |place: &Option<NodeId>, pages: f64| match place {
        Some(node) => format!("node {node}: {pages:.0}"),
        None => format!("nowhere: {pages:.0}"),
    };
    let expected: Vec<String> = due.iter().map(|(node, pages)| words(&Some(*node), *pages)).collect();
    let seen: Vec<String> = found.iter().map(|(place, pages)| words(place, *pages as f64)).collect();
    let reason = if holds {
        format!("all {PAGES} pages are on the nodes of the policy, as move_pages reports")
    } else {
        "pages are on other nodes than the policy's, as move_pages reports".to_owned()
    };
    Check::judged(policy.name(), holds, reason).with(expected.join(", "), seen.join(", "))
}

#[cfg(test)]
mod tests {
    //! Policies of published machines, and verdicts on made-up answers.

    use super::*;
    use crate::outcome::Verdict;

    fn permit() -> Permit {
        Permit {
            cpus: (0..1024).map(CpuId).collect(),
            memory_nodes: (0..64).map(NodeId).collect(),
            cpus_at_once: None,
            memory_bytes: None,
            large_pages: false,
            large_page_bytes: 2 << 20,
            huge_free_bytes: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn every_node_is_tried_and_what_cannot_be_has_its_reason() {
        let machine = Machine::load("opteron-8385").expect("a model");
        let all = policies(&machine, &permit());
        assert_eq!(all.len(), 4 + 1 + 4);
        assert!(all.iter().all(|(_, reason)| reason.is_none()), "{all:?}");
        let one = policies(&machine, &Permit { memory_nodes: [NodeId(2)].into(), ..permit() });
        let reasons: Vec<bool> = one.iter().map(|(_, reason)| reason.is_some()).collect();
        assert_eq!(reasons, [false, true, true, true, false, true], "bind, interleave, first touch by node: {one:?}");
        assert!(one[1].1.as_deref().is_some_and(|reason| reason.contains("one node")));
    }

    #[test]
    fn bound_pages_may_not_stray_and_dealt_ones_are_even() {
        let node = |id: u16| Some(NodeId(id));
        let bind = Policy::Bind(NodeId(1));
        let interleave = Policy::Interleave(vec![NodeId(0), NodeId(1)]);
        for (policy, found, verdict) in [
            (&bind, vec![(node(1), PAGES)], Verdict::Pass),
            (&bind, vec![(node(1), PAGES - 1), (node(0), 1)], Verdict::Fail),
            (&bind, vec![(node(1), PAGES - 1), (None, 1)], Verdict::Fail),
            (&bind, vec![(node(1), PAGES - 1)], Verdict::Fail),
            (&interleave, vec![(node(0), PAGES / 2 + 3), (node(1), PAGES / 2 - 3)], Verdict::Pass),
            (&interleave, vec![(node(0), PAGES * 3 / 4), (node(1), PAGES / 4)], Verdict::Fail),
            (&interleave, vec![(node(0), PAGES / 2), (node(2), PAGES / 2)], Verdict::Fail),
        ] {
            let check = judge(policy, &found.iter().copied().collect());
            assert_eq!(check.verdict, verdict, "{policy:?} {found:?}");
        }
        let check = judge(&interleave, &[(node(0), 512), (node(1), 512)].into());
        assert_eq!(
            (check.name.as_str(), check.expected.as_deref()),
            ("interleave over nodes 0-1", Some("node 0: 512, node 1: 512"))
        );
    }
}
