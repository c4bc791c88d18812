//! The queries of `pilot` to the traffic model: the time of the observed work under another placement, and the delay that one more access causes to all.

use numapilot_machine::NodeIndex;
use numapilot_traffic::{Load, MemorySystem, Solver};

/// How much the slowest threads count at most: the exponent of the mean over threads. Threads that synchronise go at the pace of the slowest (an infinite
/// exponent); threads that do not, at their mean pace (an exponent of 1). Which is the case is unknown, so the mean leans far to the slowest, where one of them
/// hardly waits: see [`lean`].
const SLOWEST: f64 = 8.0;

/// The exponent of the mean over threads, by the share of the interval for which the busiest thread, or the fullest node, was at work. A thread that is waited
/// for does not wait itself: where the busiest one waits, too, nobody waits for it then, but all for something else, as workers of a server wait for clients.
/// Who needs what it does at other times waits, as at a queue with random arrivals (M/M/1), for `1 / (1 - at_work)` times its work. So threads that never wait
/// leave the exponent at [`SLOWEST`], and it is 1 where all mostly wait. With 8 there, one worker of a server that has twice as much to do as another counted
/// 128 times as much, and got pages of which hardly a sample was its own.
fn lean(at_work: f64) -> f64 {
    (1.0 / (1.0 - at_work).max(1e-9)).clamp(1.0, SLOWEST)
}

/// Predicted performance of a placement.
#[derive(Clone, Debug)]
pub(super) struct Merit {
    /// Time of the observed work, in units of the interval: a mean over threads that leans to the slowest.
    pub time: f64,
    /// Marginal cost of one more access from node (row) to memory (column) over all accesses, in nanoseconds: its own latency, counted by how slow the node's
    /// threads are, and the delay that it causes to others.
    pub cost_ns: Vec<Vec<f64>>,
}

/// A machine's memory system with a solver, and the work whose time counts.
pub(super) struct Model {
    system: MemorySystem,
    solver: Solver,
    has_memory: Vec<bool>,
    /// For each class: its time per access as the model has it for the observed load, in nanoseconds.
    observed_ns: Vec<f64>,
    /// For each node: share of the interval in which its busiest thread ran.
    busy: Vec<f64>,
    /// CPUs of each node.
    cpus: Vec<usize>,
    /// The exponent of the mean over threads: see [`lean`].
    lean: f64,
}

impl Model {
    /// For each node: `has_memory` says whether pages can live there, `cpus` how many CPUs it has.
    pub fn new(system: MemorySystem, has_memory: Vec<bool>, cpus: Vec<usize>) -> Model {
        let busy = vec![1.0; has_memory.len()];
        Model { system, solver: Solver::default(), has_memory, observed_ns: Vec::new(), busy, cpus, lean: SLOWEST }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.has_memory.len()
    }

    /// Whether pages can live on a node.
    pub fn has_memory(&self, node: NodeIndex) -> bool {
        self.has_memory[node]
    }

    /// The node whose memory serves the accesses of a node to pages with copies: itself, or, where it has no memory, the pages' home, which keeps one.
    pub fn copy_for(&self, from: usize, home: NodeIndex) -> usize {
        if self.has_memory[from] { from } else { home.0 }
    }

    /// Takes this load as the work to be done. `busy` is, for each node, the share of the interval in which its busiest thread ran: one that
    /// waits for others may become slower without harm. `None` if the model has no answer.
    pub fn observe(&mut self, load: &Load, busy: &[f64]) -> Option<()> {
        self.busy.clear();
        self.busy.extend(busy.iter().map(|share| share.clamp(0.01, 1.0)));
        self.lean = lean(self.at_work(load));
        let solution = self.solver.solve(&self.system, load).ok()?;
        self.observed_ns = load
            .classes
            .iter()
            .zip(&solution.latency_ns)
            .map(|(class, latency)| class.think_ns + latency / class.outstanding.max(1e-9))
            .collect();
        Some(())
    }

    /// Share of the interval for which the busiest thread was at work. Threads that take turns on a node's CPUs wait for these and for each other: together
    /// they are at work for as long as the CPUs.
    fn at_work(&self, load: &Load) -> f64 {
        let running = |node: usize| {
            load.classes.iter().filter(|class| class.from == node).map(|class| class.threads).sum::<f64>()
        };
        let full = self.cpus.iter().enumerate().map(|(node, cpus)| running(node) / (*cpus).max(1) as f64);
        full.chain(self.busy.iter().copied()).fold(0.0, f64::max)
    }

    /// Predicts the performance of the observed work under `load`.
    pub fn merit(&mut self, load: &Load) -> Option<Merit> {
        let nodes = self.nodes();
        let solution = self.solver.solve(&self.system, load).ok()?;
        let (mut sum, mut threads) = (0.0, 0.0);
        let mut pace = vec![(0.0f64, 0.0f64); nodes];
        for ((class, latency), observed) in load.classes.iter().zip(&solution.latency_ns).zip(&self.observed_ns) {
            let now_ns = class.think_ns + latency / class.outstanding.max(1e-9);
            let time = self.busy[class.from] * now_ns / observed.max(1e-9);
            sum += class.threads * time.powf(self.lean);
            threads += class.threads;
            pace[class.from].0 += class.threads * time.powf(self.lean - 1.0);
            pace[class.from].1 += class.threads;
        }
        let mean = sum / threads;
        if !(mean.is_finite() && mean > 0.0) {
            return None;
        }
        let weight = |node: usize| {
            if pace[node].1 > 0.0 {
                pace[node].0 / pace[node].1 / mean.powf((self.lean - 1.0) / self.lean)
            } else {
                1.0
            }
        };
        let cost = |from: usize, home: usize| {
            solution.marginal_ns[from][home] + (weight(from) - 1.0) * solution.path_ns[from][home]
        };
        let cost_ns = (0..nodes).map(|from| (0..nodes).map(|home| cost(from, home)).collect()).collect();
        Some(Merit { time: mean.powf(1.0 / self.lean), cost_ns })
    }
}

#[cfg(test)]
mod tests {
    use numapilot_machine::Machine;
    use numapilot_traffic::Class;

    use super::*;

    /// A model after it has seen nodes 0 and 1 use memory of their own, each by `threads` threads, of which the busiest ran for `busy` of the interval.
    fn observed(busy: [f64; 2], threads: f64) -> (Model, Load) {
        let machine = Machine::load("opteron-8385").expect("built-in");
        let mut model = Model::new(MemorySystem::new(&machine).expect("complete"), vec![true; 4], vec![4; 4]);
        let class = |from: usize| Class {
            from,
            threads: threads * busy[from],
            outstanding: 4.0,
            think_ns: 10.0,
            reads: (0..4).map(|node| if node == from { 1.0 } else { 0.0 }).collect(),
            writes: vec![0.0; 4],
        };
        let load = Load { classes: vec![class(0), class(1)], background: Vec::new() };
        model.observe(&load, &[busy[0], busy[1], 0.0, 0.0]).expect("an answer");
        (model, load)
    }

    /// What pages cost at node 0 over what they cost at node 1, of which node 0 makes `share` of the accesses and node 1 the rest.
    fn cost_at_node_0(share: f64, busy: [f64; 2]) -> f64 {
        let (mut model, load) = observed(busy, 1.0);
        let cost_ns = model.merit(&load).expect("an answer").cost_ns;
        let at = |home: usize| share * cost_ns[0][home] + (1.0 - share) * cost_ns[1][home];
        at(0) / at(1)
    }

    /// As seen of memcached, whose workers each served a client: pages that the busiest worker hardly used were best at its node.
    #[test]
    fn workers_that_wait_for_clients_are_not_taken_to_wait_for_the_busiest_of_them() {
        for busy in [[0.42, 0.21], [0.3, 0.2], [0.2, 0.2], [0.02, 0.01]] {
            let cost = cost_at_node_0(0.25, busy);
            assert!(cost > 1.0, "{busy:?}: {cost}");
        }
        let shared = cost_at_node_0(0.75, [0.42, 0.21]);
        assert!(shared < 1.0, "the busiest worker's own pages: {shared}");
    }

    #[test]
    fn threads_that_meet_at_a_barrier_wait_for_the_busiest_of_them() {
        for busy in [[1.0, 0.6], [0.9, 0.6]] {
            let cost = cost_at_node_0(0.25, busy);
            assert!(cost < 1.0, "{busy:?}: {cost}");
        }
    }

    /// Sixteen threads on four CPUs: none runs for more than a quarter of the time, and none waits for anything but a CPU, or for the others.
    #[test]
    fn threads_that_take_turns_on_cpus_are_at_work() {
        assert_eq!(observed([0.25, 0.15], 16.0).0.lean, SLOWEST);
        assert_eq!(observed([0.25, 0.15], 4.0).0.lean, 1.0 / 0.75);
    }

    #[test]
    fn the_exponent_goes_from_the_mean_to_the_slowest() {
        assert_eq!([0.0, 0.5, 0.75, 0.875, 1.0, 1.2].map(lean), [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]);
    }
}
