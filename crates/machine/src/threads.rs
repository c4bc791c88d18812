//! The order in which threads take a machine's CPUs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{CpuId, NodeId};
use crate::machine::Machine;

/// The order in which threads are placed on CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bind {
    /// Thread k goes to node k modulo nodes (in order of node number), each node's last-level caches in turn; every core gets one thread before any gets two.
    #[default]
    Spread,
    /// A node is filled before the next one is begun, last-level cache by last-level cache; within it every core gets one thread before any gets two.
    Pack,
}

/// Position of one usable CPU: node, core and hardware thread.
struct Place {
    cpu: CpuId,
    /// CPUs of unknown node come last.
    node: (bool, NodeId),
    smt_rank: usize,
    l3: usize,
    /// Position among the CPUs of the same node, rank and L3.
    in_l3: usize,
}

impl Machine {
    /// The online CPUs, or those of them in `restrict`, in the order in which threads take them: thread k runs on entry k modulo the length.
    /// CPUs in `restrict` that are offline or not of this machine are left out, so the result may be empty.
    pub fn thread_layout(&self, bind: Bind, restrict: Option<&[CpuId]>) -> Vec<CpuId> {
        let usable =
            |id: CpuId| restrict.is_none_or(|list| list.contains(&id)) && self.cpu(id).is_some_and(|c| c.online);
        let mut seen = BTreeMap::new();
        let mut places: Vec<Place> = self
            .cpus()
            .iter()
            .filter(|cpu| usable(cpu.id))
            .map(|cpu| {
                let smt_rank = cpu.siblings.iter().filter(|&&s| s < cpu.id && usable(s)).count();
                let node = (cpu.node.is_none(), cpu.node.unwrap_or_default());
                let l3 = self.l3_index(cpu.id).unwrap_or(usize::MAX);
                let count = seen.entry((node, smt_rank, l3)).or_insert(0usize);
                *count += 1;
                Place { cpu: cpu.id, node, smt_rank, l3, in_l3: *count - 1 }
            })
            .collect();
        match bind {
            Bind::Pack => places.sort_by_key(|p| (p.node, p.smt_rank, p.l3, p.in_l3)),
            Bind::Spread => {
                places.sort_by_key(|p| (p.smt_rank, p.node, p.in_l3, p.l3));
                let mut turn = BTreeMap::new();
                let mut turns = Vec::with_capacity(places.len());
                for place in places {
                    let count = turn.entry((place.smt_rank, place.node)).or_insert(0usize);
                    turns.push((place.smt_rank, *count, place.node, place));
                    *count += 1;
                }
                turns.sort_by_key(|t| (t.0, t.1, t.2));
                places = turns.into_iter().map(|t| t.3).collect();
            }
        }
        places.into_iter().map(|p| p.cpu).collect()
    }

    /// Nodes with memory as seen from a node: itself first if it has memory, then by idle latency, by distance where that is unknown, by number.
    /// Allocation that finds a node full falls back in this order.
    pub fn nodes_nearest_first(&self, from: NodeId) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = self.nodes().iter().filter(|n| n.has_memory()).map(|n| n.id).collect();
        nodes.sort_by(|&a, &b| {
            let key = |to: NodeId| (Reverse(to == from), self.idle_latency_or_guess_ns(from, to));
            let (ka, kb) = (key(a), key(b));
            ka.0.cmp(&kb.0).then(ka.1.total_cmp(&kb.1)).then(a.cmp(&b))
        });
        nodes
    }
}
