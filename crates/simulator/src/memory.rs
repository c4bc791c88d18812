//! Models of the memory system. The engine solves a [`Memory`] once or a few times per epoch.

use numapilot_machine::Machine;
use numapilot_traffic::{Load, MemorySystem, Solution, Solver, StationLoad};

use crate::error::SimulatorError;

/// Bytes of a cache line: what an access moves.
pub(crate) const LINE_BYTES: f64 = 64.0;

/// A memory system: latencies under a load.
pub trait Memory {
    /// The steady state under `load`. Nothing here asks for its marginal costs, which may be left out.
    ///
    /// # Errors
    /// If the load cannot be, such as accesses from a node to one that it does not reach.
    fn solve(&mut self, load: &Load) -> Result<Solution, SimulatorError>;
}

/// Idle latencies whatever the load. Stations tell what passes, and never queue.
#[derive(Debug)]
pub struct IdleMemory {
    machine: Machine,
    path_ns: Vec<Vec<f64>>,
}

impl IdleMemory {
    /// For this machine. Latencies that it does not tell are guessed as everywhere ([`Machine::idle_latency_or_guess_ns`]).
    #[must_use]
    pub fn new(machine: &Machine) -> IdleMemory {
        let nodes = machine.nodes();
        let latency = |from: &numapilot_machine::Node, to: &numapilot_machine::Node| {
            if to.has_memory() { machine.idle_latency_or_guess_ns(from.id, to.id) } else { f64::NAN }
        };
        let row = |from| nodes.iter().map(|to| latency(from, to)).collect();
        IdleMemory { machine: machine.clone(), path_ns: nodes.iter().map(row).collect() }
    }

    /// Latency from node (row) to memory (column), in nanoseconds; `NaN` to nodes without memory.
    #[must_use]
    pub fn path_ns(&self) -> &[Vec<f64>] {
        &self.path_ns
    }

    /// What passes each station: a line to the accessing node per access, a written one back to its home, and the background. By accessing node (row) and
    /// home (column), in bytes per second.
    fn stations(&self, read: &[Vec<f64>], written: &[Vec<f64>]) -> Vec<StationLoad> {
        let nodes = self.machine.nodes();
        let mut links = vec![0.0; self.machine.links().len()];
        let mut stations = Vec::new();
        for (to, target) in nodes.iter().enumerate() {
            for (from, source) in nodes.iter().enumerate().filter(|&(from, _)| from != to) {
                for (a, b, bytes) in [(target, source, read[from][to]), (source, target, written[from][to])] {
                    let routes = self.machine.routes(a.id, b.id);
                    for link in routes.iter().flatten() {
                        links[usize::from(link.0)] += bytes / routes.len() as f64;
                    }
                }
            }
            if target.has_memory() {
                let served: f64 = read.iter().chain(written).map(|row| row[to]).sum();
                let peak = target.memory_bandwidth_bytes_per_s.unwrap_or(f64::INFINITY);
                stations.push(station(Some(target.id), None, served, peak));
            }
        }
        for (link, &bytes) in self.machine.links().iter().zip(&links) {
            stations.push(station(None, Some(link.id), bytes, link.bandwidth_bytes_per_s));
        }
        stations
    }
}

fn station(
    controller: Option<numapilot_machine::NodeId>,
    link: Option<numapilot_machine::LinkId>,
    bytes_per_s: f64,
    peak_bytes_per_s: f64,
) -> StationLoad {
    let utilisation = (bytes_per_s / peak_bytes_per_s).min(1.0);
    StationLoad { controller, link, bytes_per_s, utilisation, queue: utilisation, ..StationLoad::default() }
}

impl Memory for IdleMemory {
    fn solve(&mut self, load: &Load) -> Result<Solution, SimulatorError> {
        let nodes = self.path_ns.len();
        let mut solution =
            Solution { path_ns: self.path_ns.clone(), marginal_ns: self.path_ns.clone(), ..Solution::default() };
        let mut read = vec![vec![0.0; nodes]; nodes];
        let mut written = read.clone();
        for class in &load.classes {
            let share = |to: usize| class.reads[to] + class.writes[to];
            let used = (0..nodes).filter(|&to| share(to) > 0.0);
            let latency: f64 = used.map(|to| share(to) * self.path_ns[class.from][to]).sum();
            let per_s = class.threads * 1e9 / (class.think_ns + latency / class.outstanding);
            for to in 0..nodes {
                read[class.from][to] += per_s * LINE_BYTES * share(to);
                written[class.from][to] += per_s * LINE_BYTES * class.writes[to];
            }
            solution.throughput_per_s.push(per_s);
            solution.latency_ns.push(latency);
        }
        for moved in &load.background {
            read[moved.target][moved.source] += moved.bytes_per_s;
            written[moved.target][moved.target] += moved.bytes_per_s;
        }
        solution.stations = self.stations(&read, &written);
        Ok(solution)
    }
}

/// The traffic model: controllers and links queue.
#[derive(Debug)]
pub struct QueueingMemory {
    system: MemorySystem,
    solver: Solver,
}

impl QueueingMemory {
    /// Makes the memory model of `machine`.
    ///
    /// # Errors
    /// If the machine lacks what the model needs: bandwidths, links, latencies.
    pub fn new(machine: &Machine) -> Result<QueueingMemory, SimulatorError> {
        Ok(QueueingMemory { system: MemorySystem::new(machine)?, solver: Solver::default() })
    }
}

impl Memory for QueueingMemory {
    fn solve(&mut self, load: &Load) -> Result<Solution, SimulatorError> {
        Ok(self.solver.without_marginal(&self.system, load)?.clone())
    }
}

#[cfg(test)]
mod tests {
    use numapilot_machine::LinkId;
    use numapilot_traffic::Class;

    use super::*;

    #[test]
    fn a_line_that_is_written_back_crosses_the_links_to_its_home() {
        let machine = Machine::load("opteron-8385").expect("a built-in model");
        // Bytes per second from node 0 to node 1, and from node 1 to node 0, for accesses of node 0 to node 1.
        let passed = |reads: f64, writes: f64| {
            let (mut of_reads, mut of_writes) = (vec![0.0; 4], vec![0.0; 4]);
            (of_reads[1], of_writes[1]) = (reads, writes);
            let class =
                Class { from: 0, threads: 1.0, outstanding: 1.0, think_ns: 0.0, reads: of_reads, writes: of_writes };
            let load = Load { classes: vec![class], background: Vec::new() };
            let solution = IdleMemory::new(&machine).solve(&load).expect("solved");
            [(0, 1), (1, 0)].map(|(from, to)| {
                let nodes = machine.nodes();
                let links: Vec<LinkId> =
                    machine.routes(nodes[from].id, nodes[to].id).iter().flatten().copied().collect();
                let on_way =
                    solution.stations.iter().filter(|station| station.link.is_some_and(|link| links.contains(&link)));
                on_way.map(|station| station.bytes_per_s).sum::<f64>()
            })
        };
        let [there, back] = passed(1.0, 0.0);
        assert!(there == 0.0 && back > 0.0, "{there} and {back}");
        let [there, back] = passed(0.0, 1.0);
        assert!(there > 0.0 && there == back, "{there} and {back}");
    }
}
