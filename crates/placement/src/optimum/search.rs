//! The search for the best placement over some phases: guided by marginal costs, finished page by page.
//!
//! From each of many starts, all groups of pages (then each by itself) go where their accesses would cost least at the margin, as far as
//! run time falls. From the best of what this reaches, every pair of nodes is tried, in parts down to a single page; then copies, and
//! threads. Two goals are pursued in turn: first a smooth mean of the groups' finish times, then the run time itself.

use numapilot_machine::NodeIndex;

use super::demand::PAGE_BYTES;
use super::evaluate::{Evaluator, Value};
use super::placement::{PageHome, Placement};
use crate::error::PlacementError;

/// Relative improvement that counts; above what the solver's tolerance leaves undecided.
const IMPROVEMENT: f64 = 1e-6;
/// Parts into which a group's pages on a node are divided at most, when looking for how many to move.
const PARTS: u64 = 64;
/// Power of the accesses from each node that puts pages practically all where most come from.
pub(crate) const MOSTLY: i32 = 200;

/// What the search may change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freedom {
    pub replicate: bool,
    pub move_threads: bool,
}

/// A placement and its value.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub placement: Placement,
    pub value: Value,
}

#[derive(Clone, Copy, PartialEq)]
enum Goal {
    Smooth,
    Run,
}

impl Goal {
    fn of(self, value: Value) -> f64 {
        if self == Self::Smooth { value.smooth_s } else { value.run_s }
    }

    fn improves(self, new: Value, old: Value) -> bool {
        self.of(new) < self.of(old) * (1.0 - IMPROVEMENT)
    }
}

/// One search over some phases.
pub(crate) struct Search<'s, 'e> {
    evaluator: &'s mut Evaluator<'e>,
    phases: &'s [usize],
    freedom: Freedom,
    /// Evaluations at which it stops.
    budget: u64,
}

impl<'s, 'e> Search<'s, 'e> {
    pub fn new(evaluator: &'s mut Evaluator<'e>, phases: &'s [usize], freedom: Freedom, budget: u64) -> Self {
        let budget = evaluator.evaluations + budget;
        Self { evaluator, phases, freedom, budget }
    }

    /// Whether the search ended because its budget was used up.
    pub fn is_out_of_budget(&self) -> bool {
        self.evaluator.evaluations >= self.budget
    }

    /// Evaluates a placement, after what does not fit was moved; `None` if memory is too small for it.
    pub fn start(&mut self, mut placement: Placement) -> Result<Option<Found>, PlacementError> {
        if !placement.fit(self.evaluator.demand, self.evaluator.facts, &self.evaluator.copies) {
            return Ok(None);
        }
        let value = self.evaluator.value(&placement, self.phases)?;
        Ok(Some(Found { placement, value }))
    }

    /// What following the marginal costs reaches from a start: quick, and near the end where costs are smooth. Never worse than the start.
    pub fn follow(&mut self, start: Found) -> Result<Found, PlacementError> {
        let mut found = start.clone();
        for goal in [Goal::Smooth, Goal::Run] {
            while !self.is_out_of_budget() && self.guided(&mut found, goal)? {}
        }
        Ok(better_of(found, start))
    }

    /// The best that any single change leads to from a start. Never worse than it.
    pub fn polish(&mut self, start: Found) -> Result<Found, PlacementError> {
        let mut found = start.clone();
        for goal in [Goal::Smooth, Goal::Run] {
            while !self.is_out_of_budget() {
                let improved = self.guided(&mut found, goal)?
                    || self.exhaustive(&mut found, goal)?
                    || (self.freedom.replicate && self.toggle_copies(&mut found, goal)?)
                    || (self.freedom.move_threads && self.move_threads(&mut found, goal)?);
                if !improved {
                    break;
                }
            }
        }
        Ok(better_of(found, start))
    }

    /// Takes a candidate if it is better. False also if it does not fit.
    fn try_out(&mut self, found: &mut Found, candidate: Placement, goal: Goal) -> Result<bool, PlacementError> {
        let on = candidate.pages_on(self.evaluator.demand, &self.evaluator.copies, self.evaluator.facts.count());
        let fits = on.iter().zip(&self.evaluator.facts.memory_bytes).all(|(pages, bytes)| pages * PAGE_BYTES <= *bytes);
        if !fits || self.is_out_of_budget() || candidate == found.placement {
            return Ok(false);
        }
        let value = self.evaluator.value(&candidate, self.phases)?;
        let is_better = goal.improves(value, found.value);
        if is_better {
            *found = Found { placement: candidate, value };
        }
        Ok(is_better)
    }

    /// Follows the marginal costs: all groups at once, then each.
    fn guided(&mut self, found: &mut Found, goal: Goal) -> Result<bool, PlacementError> {
        let costs = self.evaluator.marginal_costs(&found.placement, self.phases)?;
        let nodes = self.evaluator.facts.with_memory.clone();
        let cheapest =
            |group: usize| nodes.iter().copied().min_by(|&a, &b| costs[group][a].total_cmp(&costs[group][b]));
        let targets: Vec<Option<NodeIndex>> = (0..costs.len()).map(cheapest).collect();
        let mut improved = false;
        let mut divisor = 1;
        while divisor <= PARTS && !improved {
            let mut candidate = found.placement.clone();
            for (home, target) in candidate.pages.iter_mut().zip(&targets) {
                if let (PageHome::Spread(counts), Some(target)) = (home, target) {
                    gather(counts, *target, divisor);
                }
            }
            improved = self.try_out(found, candidate, goal)?;
            divisor *= 2;
        }
        for group in 0..costs.len() {
            let Some(target) = targets[group] else { continue };
            let mut sources: Vec<NodeIndex> = nodes.iter().copied().filter(|&n| n != target).collect();
            sources.sort_by(|&a, &b| costs[group][b].total_cmp(&costs[group][a]));
            if let Some(source) = sources.into_iter().find(|&n| count(&found.placement, group, n) > 0) {
                improved |= self.shift(found, group, source, target, goal)?;
            }
        }
        Ok(improved)
    }

    /// Tries every pair of nodes for every group, and exchanges between groups.
    fn exhaustive(&mut self, found: &mut Found, goal: Goal) -> Result<bool, PlacementError> {
        let nodes = self.evaluator.facts.with_memory.clone();
        let mut improved = false;
        for group in 0..found.placement.pages.len() {
            for &from in &nodes {
                for &to in nodes.iter().filter(|&&to| to != from) {
                    improved |= self.shift(found, group, from, to, goal)?;
                }
            }
        }
        if improved {
            return Ok(true);
        }
        for group in 0..found.placement.pages.len() {
            for other in 0..group {
                for &from in &nodes {
                    for &to in nodes.iter().filter(|&&to| to != from) {
                        improved |= self.exchange(found, (group, other), (from, to), goal)?;
                    }
                }
            }
        }
        Ok(improved)
    }

    /// Moves the part of a group's pages from one node to another that helps first, of all, half, a quarter and so on.
    fn shift(
        &mut self,
        found: &mut Found,
        group: usize,
        from: NodeIndex,
        to: NodeIndex,
        goal: Goal,
    ) -> Result<bool, PlacementError> {
        let pages = count(&found.placement, group, from);
        let least = (pages / PARTS).max(1);
        let mut part = pages;
        while part >= least && part > 0 {
            let mut candidate = found.placement.clone();
            carry(&mut candidate, group, from, to, part);
            if self.try_out(found, candidate, goal)? {
                return Ok(true);
            }
            part /= 2;
        }
        Ok(false)
    }

    /// Exchanges as many pages of two groups between two nodes as both have there, or half.
    fn exchange(
        &mut self,
        found: &mut Found,
        (group, other): (usize, usize),
        (from, to): (NodeIndex, NodeIndex),
        goal: Goal,
    ) -> Result<bool, PlacementError> {
        let both = count(&found.placement, group, from).min(count(&found.placement, other, to));
        for part in [both, both / 2, 1] {
            if part == 0 || part > both {
                continue;
            }
            let mut candidate = found.placement.clone();
            carry(&mut candidate, group, from, to, part);
            carry(&mut candidate, other, to, from, part);
            if self.try_out(found, candidate, goal)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives each group that is only read copies, or takes them away.
    fn toggle_copies(&mut self, found: &mut Found, goal: Goal) -> Result<bool, PlacementError> {
        let demand = self.evaluator.demand;
        let mut improved = false;
        for group in 0..demand.pages.len() {
            let mut candidate = found.placement.clone();
            if candidate.pages[group] == PageHome::Replicated {
                let even = Placement::interleaved(demand, self.evaluator.facts);
                candidate.pages[group] = even.pages[group].clone();
            } else if self.phases.iter().all(|&phase| demand.is_read_only(phase, group)) {
                candidate.pages[group] = PageHome::Replicated;
            }
            improved |= self.try_out(found, candidate, goal)?;
        }
        Ok(improved)
    }

    /// Moves each group of threads to each node with CPUs to spare, or exchanges two, alone and with the pages that it uses most.
    fn move_threads(&mut self, found: &mut Found, goal: Goal) -> Result<bool, PlacementError> {
        let demand = self.evaluator.demand;
        let facts = self.evaluator.facts;
        let mut improved = false;
        for group in 0..demand.threads.len() {
            for to in NodeIndex::all(facts.count()).filter(|&n| facts.cpus[n] > 0) {
                let partners = (0..demand.threads.len()).map(Some).chain([None]);
                for partner in partners.filter(|p| *p != Some(group)) {
                    let from = found.placement.threads[group];
                    if from == to || partner.is_some_and(|p| found.placement.threads[p] != to) {
                        continue;
                    }
                    let mut candidate = found.placement.clone();
                    candidate.threads[group] = to;
                    if let Some(partner) = partner {
                        candidate.threads[partner] = from;
                    }
                    if !self.has_cpus(&candidate) {
                        continue;
                    }
                    let alone = self.try_out(found, candidate.clone(), goal)?;
                    let mut along = Placement::by_users_at(demand, facts, self.phases, &candidate.threads, MOSTLY);
                    along.pages.iter_mut().zip(&candidate.pages).for_each(|(new, old)| {
                        if *old == PageHome::Replicated {
                            *new = PageHome::Replicated;
                        }
                    });
                    improved |= alone | self.try_out(found, along, goal)?;
                }
            }
        }
        Ok(improved)
    }

    /// Whether no node runs more threads than it has CPUs, or than it did.
    fn has_cpus(&self, placement: &Placement) -> bool {
        let threads_on = |node: NodeIndex, nodes: &mut dyn Iterator<Item = NodeIndex>| {
            nodes.zip(&self.evaluator.demand.threads).filter(|(n, _)| *n == node).map(|(_, t)| t.threads).sum::<f64>()
        };
        NodeIndex::all(self.evaluator.facts.count()).all(|node| {
            let before = threads_on(node, &mut self.evaluator.demand.threads.iter().map(|t| t.node));
            let now = threads_on(node, &mut placement.threads.iter().copied());
            now <= before.max(self.evaluator.facts.cpus[node] as f64) + 1e-9
        })
    }
}

fn better_of(found: Found, start: Found) -> Found {
    if found.value.run_s <= start.value.run_s { found } else { start }
}

/// Pages of a group on a node; 0 where it is replicated.
fn count(placement: &Placement, group: usize, node: NodeIndex) -> u64 {
    match &placement.pages[group] {
        PageHome::Spread(counts) => counts[node],
        PageHome::Replicated => 0,
    }
}

fn carry(placement: &mut Placement, group: usize, from: NodeIndex, to: NodeIndex, pages: u64) {
    if let PageHome::Spread(counts) = &mut placement.pages[group] {
        counts[from] -= pages;
        counts[to] += pages;
    }
}

/// Brings one part in `divisor` of the pages on every other node to one.
fn gather(counts: &mut [u64], target: NodeIndex, divisor: u64) {
    let mut moved = 0;
    for (_, count) in counts.iter_mut().enumerate().filter(|(node, _)| *node != target.0) {
        let part = *count / divisor;
        *count -= part;
        moved += part;
    }
    counts[target] += moved;
}
