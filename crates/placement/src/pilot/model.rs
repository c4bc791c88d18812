//! The queries of `pilot` to the traffic model: the time of the observed work under another placement, and the delay that one more access causes to all.

use numapilot_machine::NodeIndex;
use numapilot_traffic::{Load, MemorySystem, Solver};

/// How much the slowest threads count: the exponent of the mean over threads. Threads that synchronise go at the pace of the slowest (an infinite exponent);
/// threads that do not, at their mean pace (an exponent of 1). Which is the case is unknown, so the mean leans far to the slowest.
const SLOWEST: i32 = 8;

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
}

impl Model {
    /// `has_memory` says for each node whether pages can live there.
    pub fn new(system: MemorySystem, has_memory: Vec<bool>) -> Model {
        let nodes = has_memory.len();
        Model { system, solver: Solver::default(), has_memory, observed_ns: Vec::new(), busy: vec![1.0; nodes] }
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
        let solution = self.solver.solve(&self.system, load).ok()?;
        self.observed_ns = load
            .classes
            .iter()
            .zip(&solution.latency_ns)
            .map(|(class, latency)| class.think_ns + latency / class.outstanding.max(1e-9))
            .collect();
        Some(())
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
            sum += class.threads * time.powi(SLOWEST);
            threads += class.threads;
            pace[class.from].0 += class.threads * time.powi(SLOWEST - 1);
            pace[class.from].1 += class.threads;
        }
        let mean = sum / threads;
        if !(mean.is_finite() && mean > 0.0) {
            return None;
        }
        let weight = |node: usize| {
            if pace[node].1 > 0.0 {
                pace[node].0 / pace[node].1 / mean.powf(f64::from(SLOWEST - 1) / f64::from(SLOWEST))
            } else {
                1.0
            }
        };
        let cost = |from: usize, home: usize| {
            solution.marginal_ns[from][home] + (weight(from) - 1.0) * solution.path_ns[from][home]
        };
        let cost_ns = (0..nodes).map(|from| (0..nodes).map(|home| cost(from, home)).collect()).collect();
        Some(Merit { time: mean.powf(1.0 / f64::from(SLOWEST)), cost_ns })
    }
}
