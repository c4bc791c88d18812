//! The search for a better placement: descent on the marginal loaded latency of every path, which the traffic model supplies.
//!
//! Where an access is cheapest depends on where all others go. So a part of the traffic at a time moves to where it delays the whole least,
//! the model is solved again, and a step that did not help is taken back and halved. At the end no group would gain by moving alone.

use numapilot_machine::NodeIndex;
use numapilot_traffic::Load;

use super::groups::Group;
use super::model::{Merit, Model};

/// Share of all traffic that the first step may move.
const FIRST_STEP: f64 = 0.25;
/// Steps smaller than this share of the traffic are not worth a solution.
const LAST_STEP: f64 = 0.01;
/// Greatest number of solutions of the traffic model in one search.
const SOLUTIONS_MAX: u32 = 48;
/// A step has to shorten the time by this share of it.
const WORTHWHILE: f64 = 2e-4;

/// Target nodes of one group's accesses.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// Share of the group's accesses to be served by each node.
    pub at: Vec<f64>,
    /// Share of it to be copied to every node that uses it.
    pub replicated: f64,
    /// Nanoseconds of delay per second that moving the group as planned saves, seen from halfway between before and after.
    pub saves_ns_per_s: f64,
}

/// The outcome of a search.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Search {
    /// Predicted time of the same work, over that with the pages where they are: below 1 is a gain.
    pub time: f64,
    /// The same in the units of [`super::model::Merit`]: searches of one observation with other groups can be compared by it.
    pub end_time: f64,
    /// One plan per group.
    pub plans: Vec<Plan>,
    /// Marginal cost of one more access from node (row) to memory (column) in the final placement, in nanoseconds.
    pub cost_ns: Vec<Vec<f64>>,
}

/// Searches from where the pages are. `load` is what is asked of the memory system now; its classes' shares are replaced by the groups'.
/// `None` if the model cannot be solved for it.
pub(super) fn search(
    model: &mut Model,
    load: &Load,
    busy: &[f64],
    groups: &[Group],
    replicate: bool,
) -> Option<Search> {
    let nodes = model.nodes();
    let mut now = State::here(groups, nodes);
    let mut trial = load.clone();
    model.observe(load, busy)?;
    let before = now.evaluate(model, &mut trial, groups)?;
    let (mut best, mut step, mut solutions) = (before.clone(), FIRST_STEP, 1);
    while step >= LAST_STEP && solutions < SOLUTIONS_MAX {
        let mut next = now.clone();
        if !next.step(groups, &best.cost_ns, model, step, replicate) {
            break;
        }
        let found = next.evaluate(model, &mut trial, groups)?;
        solutions += 1;
        if found.time < best.time * (1.0 - WORTHWHILE) {
            (now, best) = (next, found);
        } else {
            step /= 2.0;
        }
    }
    let model = &*model;
    let plans =
        groups.iter().zip(&now.at).map(|(group, at)| plan(group, at, &before.cost_ns, &best.cost_ns, model)).collect();
    Some(Search { time: best.time / before.time, end_time: best.time, plans, cost_ns: best.cost_ns })
}

/// For each group the share at each node, and last the share replicated: a *place* is a node's position, or one past the last node.
#[derive(Clone)]
struct State {
    at: Vec<Vec<f64>>,
}

impl State {
    fn here(groups: &[Group], nodes: usize) -> State {
        let at = |group: &Group| (0..=nodes).map(|place| if place == group.home.0 { 1.0 } else { 0.0 }).collect();
        State { at: groups.iter().map(at).collect() }
    }

    /// Solves the model for this placement.
    fn evaluate(&self, model: &mut Model, trial: &mut Load, groups: &[Group]) -> Option<Merit> {
        let nodes = model.nodes();
        let (mut reads, mut writes) = (vec![vec![0.0; nodes]; nodes], vec![vec![0.0; nodes]; nodes]);
        for (group, at) in groups.iter().zip(&self.at) {
            for from in 0..nodes {
                let copy = model.copy_for(from, group.home);
                for home in 0..nodes {
                    let share = at[home] + if home == copy { at[nodes] } else { 0.0 };
                    reads[from][home] += group.reads[from] * share;
                    writes[from][home] += group.writes[from] * share;
                }
            }
        }
        for class in &mut trial.classes {
            let total: f64 = reads[class.from].iter().chain(&writes[class.from]).sum();
            if total > 0.0 {
                class.reads = reads[class.from].iter().map(|rate| rate / total).collect();
                class.writes = writes[class.from].iter().map(|rate| rate / total).collect();
            }
        }
        model.merit(trial)
    }

    /// Moves the most profitable `step` of all traffic, each part to where it delays the whole least. False if nothing would gain.
    fn step(&mut self, groups: &[Group], cost_ns: &[Vec<f64>], model: &Model, step: f64, replicate: bool) -> bool {
        let nodes = model.nodes();
        let total: f64 = groups.iter().map(Group::rate).sum();
        let mut moves = Vec::new();
        for (index, group) in groups.iter().enumerate().filter(|(_, group)| group.rate() > 0.0) {
            let mut costs: Vec<f64> = NodeIndex::all(nodes).map(|home| cost_at(group, home, cost_ns)).collect();
            costs.push(if replicate && group.read_only {
                cost_of_copies(group, cost_ns, model)
            } else {
                f64::INFINITY
            });
            let usable = |place: usize| place == nodes || model.has_memory(NodeIndex(place));
            let Some(to) = (0..=nodes).filter(|place| usable(*place)).min_by(|a, b| costs[*a].total_cmp(&costs[*b]))
            else {
                continue;
            };
            for from in (0..=nodes).filter(|from| *from != to && self.at[index][*from] > 0.0) {
                let gain = (costs[from] - costs[to]) / group.rate();
                if gain > 0.0 {
                    moves.push((gain, index, from, to));
                }
            }
        }
        moves.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
        let mut left = step * total;
        for &(_, index, from, to) in &moves {
            let there = self.at[index][from] * groups[index].rate();
            let moved = there.min(left);
            self.at[index][from] -= moved / groups[index].rate();
            self.at[index][to] += moved / groups[index].rate();
            if self.at[index][from] < 1e-9 {
                self.at[index][to] += std::mem::take(&mut self.at[index][from]);
            }
            left -= moved;
            if left <= 0.0 {
                break;
            }
        }
        !moves.is_empty()
    }
}

/// Nanoseconds of delay per second, to all accesses, of a group's accesses if its pages were at `home`.
pub(super) fn cost_at(group: &Group, home: NodeIndex, cost_ns: &[Vec<f64>]) -> f64 {
    cost(group, |from| cost_ns[from][home])
}

/// The same if every node that uses them had a copy, as far as it has memory.
fn cost_of_copies(group: &Group, cost_ns: &[Vec<f64>], model: &Model) -> f64 {
    cost(group, |from| cost_ns[from][model.copy_for(from, group.home)])
}

/// The same by what each node's access costs. Of nodes that do not use the pages that may be no number: from those without CPUs, and to those without memory,
/// there is no path.
fn cost(group: &Group, access_ns: impl Fn(usize) -> f64) -> f64 {
    let of_node = |from: usize| {
        let rate = group.reads[from] + group.writes[from];
        if rate > 0.0 { rate * access_ns(from) } else { 0.0 }
    };
    let cost: f64 = (0..group.reads.len()).map(of_node).sum();
    if cost.is_nan() { f64::INFINITY } else { cost }
}

fn plan(group: &Group, at: &[f64], before: &[Vec<f64>], after: &[Vec<f64>], model: &Model) -> Plan {
    let nodes = model.nodes();
    let saved = |cost_ns: &[Vec<f64>]| -> f64 {
        let here = cost_at(group, group.home, cost_ns);
        let there = |place: usize| match place {
            copied if copied == nodes => cost_of_copies(group, cost_ns, model),
            home => cost_at(group, NodeIndex(home), cost_ns),
        };
        (0..=nodes).filter(|place| at[*place] > 0.0).map(|place| at[place] * (here - there(place))).sum()
    };
    let saves_ns_per_s = f64::midpoint(saved(before), saved(after));
    Plan {
        at: at[..nodes].to_vec(),
        replicated: at[nodes],
        saves_ns_per_s: if saves_ns_per_s.is_finite() { saves_ns_per_s } else { 0.0 },
    }
}

#[cfg(test)]
mod tests {
    use numapilot_machine::Machine;
    use numapilot_traffic::{Class, MemorySystem};

    use super::*;

    /// One reader on a node without memory, to which there is no path, kept all others from copies.
    #[test]
    fn a_reader_on_a_node_without_memory_reads_the_copy_at_home() {
        let system = MemorySystem::new(&Machine::load("opteron-8385").expect("built-in")).expect("complete");
        let model = Model::new(system, vec![true, true, true, false], vec![4; 4]);
        let group = Group {
            home: NodeIndex(1),
            reads: vec![2.0, 0.0, 3.0, 5.0],
            writes: vec![0.0; 4],
            read_only: true,
            ..Group::default()
        };
        let cost = |from: usize, to: usize| match to {
            3 => f64::NAN,
            to if to == from => 100.0,
            _ => 150.0,
        };
        let cost_ns: Vec<Vec<f64>> = (0..4).map(|from| (0..4).map(|to| cost(from, to)).collect()).collect();
        assert_eq!(cost_of_copies(&group, &cost_ns, &model), (2.0 + 3.0) * 100.0 + 5.0 * 150.0);
    }

    /// What the copies would cost was no number on a machine with a node without CPUs, from which there is no path: nothing was ever copied there.
    #[test]
    fn a_node_without_cpus_keeps_nobody_from_copies() {
        let machine = Machine::load("xeon-2s-cxl").expect("built-in");
        let has_memory = machine.nodes().iter().map(|node| node.has_memory()).collect();
        let mut model = Model::new(MemorySystem::new(&machine).expect("complete"), has_memory, vec![8, 8, 0]);
        let class = |from: usize, home: usize| Class {
            from,
            threads: 8.0,
            outstanding: 4.0,
            think_ns: 20.0,
            reads: (0..3).map(|node| if node == home { 1.0 } else { 0.0 }).collect(),
            writes: vec![0.0; 3],
        };
        for home in [0, 2] {
            let load = Load { classes: (0..2).map(|from| class(from, home)).collect(), background: Vec::new() };
            let group = Group {
                home: NodeIndex(home),
                reads: vec![1e8, 1e8, 0.0],
                writes: vec![0.0; 3],
                read_only: true,
                ..Group::default()
            };
            let found = search(&mut model, &load, &[1.0; 3], &[group], true).expect("an answer");
            let plan = &found.plans[0];
            assert!(plan.replicated > 0.5 && plan.saves_ns_per_s > 0.0, "from node {home}: {plan:?}");
            assert!(plan.at[2] < 0.5, "from node {home}: {plan:?}");
        }
    }
}
