//! Every process on one node: its threads take the node's CPUs in turn. Pages that they touch first are then allocated there, too.

use std::collections::BTreeMap;

use numapilot_machine::{CpuId, Machine};

use super::usage;
use crate::program::{Action, Program};

/// Gives each thread a CPU of its process's node: processes with most accesses first, each to the node with least so far.
pub(super) fn pin_processes(program: &mut Program, machine: &Machine) {
    let online = |id: &CpuId| machine.cpu(*id).is_some_and(|cpu| cpu.online);
    let whole = machine.cpu_and_memory_nodes();
    let nodes: Vec<Vec<CpuId>> = whole.map(|node| node.cpus.iter().copied().filter(online).collect()).collect();
    if nodes.iter().all(Vec::is_empty) {
        return;
    }
    let mut accesses: BTreeMap<u32, f64> = BTreeMap::new();
    for thread in &program.threads {
        let of_step = |(step, times): (&crate::program::Step, f64)| match step.action {
            Action::Work(work) => work.accesses * times,
            _ => 0.0,
        };
        *accesses.entry(thread.process).or_default() += usage::steps(program, thread).map(of_step).sum::<f64>();
    }
    let mut order: Vec<(u32, f64)> = accesses.into_iter().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut load = vec![0.0_f64; nodes.len()];
    let mut node_of = BTreeMap::new();
    for (process, weight) in order {
        let open = (0..nodes.len()).filter(|&node| !nodes[node].is_empty());
        let Some(node) = open.min_by(|&a, &b| load[a].total_cmp(&load[b])) else { return };
        load[node] += weight;
        node_of.insert(process, node);
    }
    let mut next = vec![0; nodes.len()];
    for thread in &mut program.threads {
        let node = node_of[&thread.process];
        thread.cpu = Some(nodes[node][next[node] % nodes[node].len()]);
        next[node] += 1;
    }
}
