//! How long a placement takes, by the traffic model.

use numapilot_machine::{Machine, NodeIndex};
use numapilot_traffic::{Class, FinishTimes, Load, MemorySystem, Solver, finish_times_s};

use super::demand::Demand;
use super::placement::{PageHome, Placement};
use crate::error::PlacementError;
use crate::nodes::NodeFacts;

/// Exponent of the mean that stands for the greatest finish time while a search is far from its end: smooth, so that helping one of several equally late groups
/// counts already.
const SMOOTH_POWER: f64 = 8.0;

/// Predicted times of a placement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Value {
    /// Run time in seconds: the last group's finish time, summed over phases.
    pub run_s: f64,
    /// A power mean of the finish times, summed over phases.
    pub smooth_s: f64,
    /// How far the model was from converging for it, 0 where it did ([`FinishTimes::residual`]).
    pub residual: f64,
}

/// Evaluates placements of one demand on one machine; counts how many.
pub(crate) struct Evaluator<'a> {
    pub demand: &'a Demand,
    pub facts: &'a NodeFacts,
    system: &'a MemorySystem,
    solver: Solver,
    /// By node: the nearest node with memory.
    pub nearest: Vec<NodeIndex>,
    /// Nodes that hold the copies of replicated groups.
    pub copies: Vec<NodeIndex>,
    pub evaluations: u64,
}

impl<'a> Evaluator<'a> {
    pub fn new(machine: &Machine, system: &'a MemorySystem, facts: &'a NodeFacts, demand: &'a Demand) -> Self {
        let nodes = NodeIndex::all(facts.count());
        let nearest: Vec<NodeIndex> = nodes.clone().map(|n| nearest_memory(machine, facts, n)).collect();
        let mut copies: Vec<NodeIndex> = nodes.filter(|&n| facts.cpus[n] > 0).map(|n| nearest[n]).collect();
        copies.sort_unstable();
        copies.dedup();
        Self { demand, facts, system, solver: Solver::default(), nearest, copies, evaluations: 0 }
    }

    /// Run time over some phases.
    pub fn value(&mut self, placement: &Placement, phases: &[usize]) -> Result<Value, PlacementError> {
        self.evaluations += 1;
        let mut value = Value { run_s: 0.0, smooth_s: 0.0, residual: 0.0 };
        for &phase in phases {
            let load = self.load(placement, phase);
            let accesses: Vec<f64> = self.demand.phases[phase].work.iter().map(|w| w.accesses).collect();
            let FinishTimes { times_s, residual } = finish_times_s(self.system, &mut self.solver, &load, &accesses)?;
            value.residual = value.residual.max(residual);
            let last_s = times_s.iter().copied().fold(0.0, f64::max);
            value.run_s += last_s;
            if last_s > 0.0 {
                let powers: f64 = times_s.iter().map(|t| (t / last_s).powf(SMOOTH_POWER)).sum();
                value.smooth_s += last_s * (powers / times_s.len() as f64).powf(1.0 / SMOOTH_POWER);
            }
        }
        Ok(value)
    }

    /// Marginal cost of each group of pages on each node, over some phases: what all its accesses of a phase cost there, in seconds, times
    /// how late the accessing group is.
    pub fn marginal_costs(&mut self, placement: &Placement, phases: &[usize]) -> Result<Vec<Vec<f64>>, PlacementError> {
        let mut costs = vec![vec![0.0; self.facts.count()]; self.demand.pages.len()];
        for &phase in phases {
            let load = self.load(placement, phase);
            let solution = self.solver.solve(self.system, &load)?;
            let work = &self.demand.phases[phase].work;
            let alone_s = |group: usize| work[group].accesses / solution.throughput_per_s[group].max(f64::MIN_POSITIVE);
            let last_s =
                (0..work.len()).filter(|&g| work[g].accesses > 0.0).map(alone_s).fold(f64::MIN_POSITIVE, f64::max);
            for (group, work) in work.iter().enumerate().filter(|(_, w)| w.accesses > 0.0) {
                let lateness = (alone_s(group) / last_s).powf(SMOOTH_POWER);
                let marginal = &solution.marginal_ns[placement.threads[group]];
                for (pages, cost) in costs.iter_mut().enumerate() {
                    let accesses = work.accesses * (work.reads[pages] + work.writes[pages]) * lateness;
                    for &node in &self.facts.with_memory {
                        cost[node] += accesses * marginal[node] * 1e-9;
                    }
                }
            }
        }
        Ok(costs)
    }

    /// The load of a phase.
    fn load(&self, placement: &Placement, phase: usize) -> Load {
        let classes = self.demand.phases[phase].work.iter().enumerate().map(|(group, work)| {
            let from = placement.threads[group];
            let mut class = Class {
                from: from.0,
                threads: if work.accesses > 0.0 { self.demand.threads[group].threads } else { 0.0 },
                outstanding: work.outstanding,
                think_ns: work.think_ns,
                reads: vec![0.0; self.facts.count()],
                writes: vec![0.0; self.facts.count()],
            };
            if work.accesses <= 0.0 {
                // Nobody there: any valid class will do.
                (class.outstanding, class.think_ns) = (1.0, 0.0);
                class.reads[self.nearest[from]] = 1.0;
                return class;
            }
            for (pages, home) in placement.pages.iter().enumerate() {
                match home {
                    PageHome::Replicated => class.reads[self.nearest[from]] += work.reads[pages],
                    PageHome::Spread(counts) => {
                        let total = counts.iter().sum::<u64>().max(1) as f64;
                        for (node, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                            class.reads[node] += work.reads[pages] * count as f64 / total;
                            class.writes[node] += work.writes[pages] * count as f64 / total;
                        }
                    }
                }
            }
            normalise(&mut class);
            class
        });
        Load { classes: classes.collect(), background: Vec::new() }
    }
}

/// Takes rounding out of shares.
fn normalise(class: &mut Class) {
    let sum: f64 = class.reads.iter().chain(&class.writes).sum();
    class.reads.iter_mut().chain(&mut class.writes).for_each(|share| *share /= sum);
}

fn nearest_memory(machine: &Machine, facts: &NodeFacts, node: NodeIndex) -> NodeIndex {
    let nearest = machine.nodes_nearest_first(facts.ids[node]);
    nearest.first().and_then(|id| machine.node_index(*id)).unwrap_or(facts.with_memory[0])
}
