//! The loop's status for its readers, and its losses for the journal.

use numapilot_host::Pid;
use numapilot_kernel::actuator::free_memory::NodeMemory;
use numapilot_machine::Node;

use super::Balancer;
use crate::control_port::ControlPort;
use crate::event::Event;
use crate::event::Loss;
use crate::event::Losses;
use crate::evidence::estimate;
use crate::status;
use crate::status::NodeStatus;
use crate::status::Rates;
use crate::status::Status;
use crate::status::TargetStatus;
use crate::system::clock::unix_ns;

/// Memory that a node has now, in bytes; before the first look, what it had at the start. One that has gone offline has none: with what it had, it would seem
/// to be full.
fn memory_bytes(node: &Node, memory: NodeMemory, is_known: bool) -> u64 {
    if is_known { memory.total_bytes } else { node.memory_bytes }
}

impl Balancer {
    /// Records the losses since they were last recorded.
    pub(super) fn record_losses(&mut self, control_port: &mut dyn ControlPort) {
        let refused = self.targets.all_homes.refused();
        let run_stats = &mut self.run_stats;
        run_stats.losses.insert("pages beyond the size of the table (table-pages)", self.table.dropped);
        run_stats
            .losses
            .insert("pages whose statistics the policy dropped at its limit (table-pages)", self.policy.forgotten());
        run_stats.losses.insert("pages whose home nodes exceed the size of their table", refused);
        run_stats.losses.insert("ended processes whose last children may not be managed", self.targets.forgotten());
        let new = |(what, count): (&&'static str, &u64)| {
            let count = count - run_stats.losses_recorded.get(what).copied().unwrap_or(0);
            (count > 0).then(|| Loss { what: (*what).to_owned(), count })
        };
        let lost: Vec<Loss> = run_stats.losses.iter().filter_map(new).collect();
        if !lost.is_empty() {
            run_stats.losses_recorded = run_stats.losses.clone();
            control_port.record(Event::Losses(Losses { lost }));
        }
    }

    /// Publishes the loop's status.
    pub(super) fn publish(&self, control_port: &mut dyn ControlPort) {
        let run_stats = &self.run_stats;
        let count = self.machine.nodes().len();
        let flow = self.table.observed_flow();
        let node = |(at, node): (usize, &Node)| {
            let memory = self.memory[at];
            let row = &flow[at * count..(at + 1) * count];
            let sum: f64 = row.iter().sum();
            let is_known = self.known_memory.contains(&node.id);
            NodeStatus {
                node: node.id,
                memory_bytes: memory_bytes(node, memory, run_stats.looks() > 0),
                free_bytes: is_known.then_some(memory.free_bytes),
                available_bytes: is_known.then(|| memory.available_bytes()),
                local_share: (sum > 0.0).then(|| row[at] / sum),
                probe_ns: self.probes.as_ref().map(|probes| probes.latency_ns[at].clone()).unwrap_or_default(),
            }
        };
        let memory_nodes = || self.machine.nodes().iter().filter(|node| node.has_memory()).map(|node| node.id);
        let target = |managed: &crate::system::targets::ManagedProcess| TargetStatus {
            target: managed.target.clone(),
            threads: Some(managed.threads.len() as u64),
            samples: Some(managed.samples.0),
            local_share: (managed.samples.0 > 0).then(|| managed.samples.1 as f64 / managed.samples.0 as f64),
            moved_bytes: Some(managed.moved_bytes),
            chosen_bytes: if self.options.moves_bound { 0 } else { managed.numa.chosen_bytes() },
            is_put_off: self.pressure.is_known_high_for(managed.target.pid),
            forbidden_nodes: memory_nodes().filter(|node| managed.is_forbidden(*node)).collect(),
            hot: managed.hot.published().to_vec(),
        };
        let imbalance_percent = estimate::shares(flow, count).map(|(_, imbalance)| imbalance);
        control_port.status(Status {
            v: status::VERSION,
            run: run_stats.run.clone(),
            pid: Pid::own(),
            uid: run_stats.uid,
            started_unix_ns: run_stats.started_unix_ns,
            unix_ns: unix_ns(),
            state: self.state,
            because: self.because.clone(),
            policy: run_stats.policy.clone(),
            policy_says: run_stats.policy_says.clone(),
            dry_run: run_stats.dry_run,
            interval_ns: self.interval.as_nanos() as u64,
            targets: self.targets.all.values().map(target).collect(),
            nodes: self.machine.nodes().iter().enumerate().map(node).collect(),
            pages_known: Some(self.table.len() as u64),
            evidence: self.evidence.clone(),
            pressure: self.pressure.resources().to_vec(),
            is_put_off: self.pressure.is_high(),
            counters: run_stats.counters,
            rates: Rates { imbalance_percent, ..run_stats.rates },
            own: run_stats.own,
            losses: run_stats.lost(),
        });
    }
}

#[cfg(test)]
mod tests {
    use numapilot_machine::Machine;

    use super::*;

    /// The memory of a CXL device that had gone was shown as full.
    #[test]
    fn a_node_that_went_offline_has_no_memory() {
        let machine = Machine::load("xeon-2s-cxl").unwrap();
        let node = &machine.nodes()[2];
        assert!(node.memory_bytes > 0 && memory_bytes(node, NodeMemory::default(), false) == node.memory_bytes);
        assert_eq!(memory_bytes(node, NodeMemory::default(), true), 0);
        let present = NodeMemory { total_bytes: 7 << 30, ..NodeMemory::default() };
        assert_eq!(memory_bytes(node, present, true), 7 << 30);
    }
}
