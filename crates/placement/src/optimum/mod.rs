//! The offline optimum: the static placement per phase that takes the least time by the traffic model, found by search, with a lower bound that no static
//! placement can beat. Policies are compared with it (Bolosky, Scott, Fitzgerald, Fowler, Cox, ASPLOS 1991).
//!
//! It knows the whole demand beforehand, which no policy does. The result is the best placement that was *found*; the bound limits how far
//! it can be from the best one that exists.

mod bound;
mod demand;
mod evaluate;
mod placement;
mod search;

use numapilot_machine::{Machine, NodeIndex};
use numapilot_random::Random;
use numapilot_traffic::MemorySystem;

pub use demand::{Demand, PageGroup, Phase, ThreadGroup, Work};
pub use placement::{PageHome, Placement};

use crate::error::PlacementError;
use crate::nodes::NodeFacts;
use bound::{Services, lower_bound};
use evaluate::{Evaluator, Value};
use search::{Found, Freedom, MOSTLY, Search};

/// Ends of searches that are polished.
const POLISHED: usize = 3;

/// What the search may change, and its budget.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimumOptions {
    /// Whether groups that are only read in a phase may have a copy for every node.
    pub replicate: bool,
    /// Whether groups of threads may be moved, each as a whole and onto CPUs that are free.
    pub move_threads: bool,
    /// Cost of changing the placement between phases.
    pub change: Change,
    /// Random starts beside the usual ones.
    pub random_starts: u32,
    /// Evaluations of the model that the search for one placement may make.
    pub evaluations_max: u64,
    /// Seed of the random starts.
    pub seed: u64,
}

impl Default for OptimumOptions {
    fn default() -> Self {
        Self {
            replicate: false,
            move_threads: false,
            change: Change::Free,
            random_starts: 4,
            evaluations_max: 20_000,
            seed: 0,
        }
    }
}

/// Cost of changing the placement between phases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// It cannot be changed: one placement for all phases.
    Never,
    /// Nothing: each phase has its own. The first is set up for nothing too.
    Free,
    /// Nanoseconds per page of 4 KiB that is copied, while all threads wait; the first phase begins where first touch puts pages.
    PerPage(f64),
}

/// What was found. All times are predicted by the traffic model.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimum {
    /// Result of each phase, in the demand's order.
    pub phases: Vec<PhaseOptimum>,
    /// Pages copied between phases.
    pub pages_moved: u64,
    /// Time that this takes, in seconds.
    pub change_s: f64,
    /// Time of all phases and of copying between them, in seconds.
    pub total_s: f64,
    /// No static placement per phase takes less, in seconds, whatever copying costs.
    pub bound_s: f64,
    /// Evaluations of the model.
    pub evaluations: u64,
    /// Whether a search used up its budget of evaluations, so that a larger budget might find a better placement.
    pub out_of_budget: bool,
    /// Largest relative change in the model's last iteration for any phase for which it did not converge; 0 where it did for all. The times of the
    /// placements that were found are near the model's at best then; the bound holds.
    pub residual: f64,
}

impl Optimum {
    /// How much longer than the bound, as a share of it: 0 if it is proven best.
    pub fn gap(&self) -> f64 {
        if self.bound_s > 0.0 { self.total_s / self.bound_s - 1.0 } else { 0.0 }
    }
}

/// Result of one phase.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseOptimum {
    /// The placement that was found.
    pub placement: Placement,
    /// Run time in seconds.
    pub run_s: f64,
    /// No static placement takes less, in seconds.
    pub bound_s: f64,
    /// How far the model was from converging for it ([`Optimum::residual`]).
    pub residual: f64,
}

/// Run time of a demand on a machine, in seconds, with one placement per phase. The price of changes is not in it.
pub fn run_time_s(
    machine: &Machine,
    system: &MemorySystem,
    demand: &Demand,
    placements: &[Placement],
) -> Result<f64, PlacementError> {
    let facts = NodeFacts::new(machine)?;
    demand.check(&facts)?;
    if placements.len() != demand.phases.len() {
        return Err(PlacementError::Demand {
            place: "placements".to_owned(),
            what: format!("{} for {} phases", placements.len(), demand.phases.len()),
            remedy: "give one for each phase".to_owned(),
        });
    }
    let mut evaluator = Evaluator::new(machine, system, &facts, demand);
    let mut sum = 0.0;
    for (phase, placement) in placements.iter().enumerate() {
        placement.check(demand, &facts, phase)?;
        sum += evaluator.value(placement, &[phase])?.run_s;
    }
    Ok(sum)
}

/// The placements that anybody would try, by name: first touch, interleaving evenly and by bandwidth, each node, and by users.
pub fn usual_placements(machine: &Machine, demand: &Demand) -> Result<Vec<(String, Placement)>, PlacementError> {
    let facts = NodeFacts::new(machine)?;
    demand.check(&facts)?;
    let phases: Vec<usize> = (0..demand.phases.len()).collect();
    Ok(usual(demand, &facts, &phases))
}

fn usual(demand: &Demand, facts: &NodeFacts, phases: &[usize]) -> Vec<(String, Placement)> {
    let mut starts = vec![
        ("first touch".to_owned(), Placement::first_touch(demand, facts)),
        ("interleaved".to_owned(), Placement::interleaved(demand, facts)),
        ("interleaved by bandwidth".to_owned(), Placement::weighted(demand, facts)),
        ("where most accesses come from".to_owned(), Placement::by_users(demand, facts, phases, MOSTLY)),
        ("in proportion to accesses".to_owned(), Placement::by_users(demand, facts, phases, 1)),
    ];
    let on_node = |&node: &NodeIndex| (format!("node {}", facts.ids[node]), Placement::on_node(demand, facts, node));
    starts.extend(facts.with_memory.iter().map(on_node));
    starts
}

/// Finds the optimum. Fails if the demand is unsound, or does not fit into memory.
pub fn optimum(
    machine: &Machine,
    system: &MemorySystem,
    demand: &Demand,
    options: &OptimumOptions,
) -> Result<Optimum, PlacementError> {
    let facts = NodeFacts::new(machine)?;
    demand.check(&facts)?;
    let evaluator = Evaluator::new(machine, system, &facts, demand);
    let services = Services::of(system, &facts)?;
    Planner { evaluator, services, options, out_of_budget: false }.plan()
}

/// The steps of [`optimum`].
struct Planner<'a> {
    evaluator: Evaluator<'a>,
    services: Services,
    options: &'a OptimumOptions,
    out_of_budget: bool,
}

impl Planner<'_> {
    fn plan(mut self) -> Result<Optimum, PlacementError> {
        let phases: Vec<usize> = (0..self.evaluator.demand.phases.len()).collect();
        let bounds: Vec<bound::Bound> = phases.iter().map(|&phase| self.bound(phase)).collect();
        let chosen = match self.options.change {
            Change::Never => vec![self.best(&phases, &bounds)?.placement; phases.len()],
            Change::Free => {
                let each = phases.iter().map(|&phase| Ok(self.best(&[phase], &bounds[phase..=phase])?.placement));
                each.collect::<Result<Vec<_>, PlacementError>>()?
            }
            Change::PerPage(ns) => self.cheapest_sequence(&phases, &bounds, ns * 1e-9)?,
        };
        self.report(chosen, &bounds)
    }

    fn bound(&self, phase: usize) -> bound::Bound {
        lower_bound(&self.evaluator, &self.services, phase, self.options.replicate, self.options.move_threads)
    }

    /// The best placement over some phases, from all starts.
    fn best(&mut self, phases: &[usize], bounds: &[bound::Bound]) -> Result<Found, PlacementError> {
        let (demand, facts) = (self.evaluator.demand, self.evaluator.facts);
        let mut starts: Vec<Placement> = usual(demand, facts, phases).into_iter().map(|(_, start)| start).collect();
        let ideal = bounds.iter().map(|bound| Placement::from_shares(demand, facts, &bound.shares));
        // What one phase would have copied, another may write.
        starts.extend(ideal.filter(|start| phases.iter().all(|&phase| start.copies_are_read_only(demand, phase))));
        let mut random = Random::new(self.options.seed);
        starts.extend((0..self.options.random_starts).map(|_| Placement::random(demand, facts, &mut random)));
        let freedom = Freedom { replicate: self.options.replicate, move_threads: self.options.move_threads };
        // Half of the evaluations to follow every start, half to polish the best few ends.
        let half = (self.options.evaluations_max / 2).max(1);
        let each = (half / starts.len() as u64).max(1);
        let mut ends: Vec<Found> = Vec::new();
        for start in starts {
            let mut search = Search::new(&mut self.evaluator, phases, freedom, each);
            let Some(start) = search.start(start)? else { continue };
            let end = search.follow(start)?;
            self.out_of_budget |= search.is_out_of_budget();
            if !ends.iter().any(|known| known.placement == end.placement) {
                ends.push(end);
            }
        }
        ends.sort_by(|a, b| a.value.run_s.total_cmp(&b.value.run_s));
        ends.truncate(POLISHED);
        let mut best: Option<Found> = None;
        for end in ends {
            let mut search = Search::new(&mut self.evaluator, phases, freedom, (half / POLISHED as u64).max(1));
            let found = search.polish(end)?;
            self.out_of_budget |= search.is_out_of_budget();
            if best.as_ref().is_none_or(|b| found.value.run_s < b.value.run_s) {
                best = Some(found);
            }
        }
        best.ok_or_else(|| PlacementError::Demand {
            place: "pages".to_owned(),
            what: "its pages do not fit into the memory of the machine".to_owned(),
            remedy: "make the groups of pages smaller, or choose a machine with more memory".to_owned(),
        })
    }

    /// With a price on changes: the cheapest way through the phases, by dynamic programming over first touch, each phase's best, the best
    /// for each run of phases from the first or to the last, and the best for all.
    fn cheapest_sequence(
        &mut self,
        phases: &[usize],
        bounds: &[bound::Bound],
        page_s: f64,
    ) -> Result<Vec<Placement>, PlacementError> {
        let first_touch = Placement::first_touch(self.evaluator.demand, self.evaluator.facts);
        let mut candidates = vec![first_touch.clone()];
        let cuts = (1..phases.len()).flat_map(|cut| [0..cut, cut..phases.len()]);
        let runs = phases.iter().map(|&p| p..p + 1).chain(std::iter::once(0..phases.len())).chain(cuts);
        for run in runs {
            let placement = self.best(&phases[run.clone()], &bounds[run])?.placement;
            if !candidates.contains(&placement) {
                candidates.push(placement);
            }
        }
        let run_s = self.run_times(phases, &candidates)?;
        let (demand, copies) = (self.evaluator.demand, self.evaluator.copies.clone());
        let change_s = |from: &Placement, to: &Placement| to.pages_moved_from(from, demand, &copies) as f64 * page_s;
        // cost[c]: least time up to and including this phase with candidate c; ways: from which candidate before.
        let mut cost: Vec<f64> = candidates.iter().map(|c| change_s(&first_touch, c)).collect();
        let mut ways: Vec<Vec<usize>> = Vec::new();
        for (phase, times) in run_s.iter().enumerate() {
            let mut next = Vec::new();
            let mut way = Vec::new();
            for (to, candidate) in candidates.iter().enumerate() {
                let arrive = |from: usize| match phase {
                    0 if from == to => cost[from],
                    0 => f64::INFINITY,
                    _ => cost[from] + change_s(&candidates[from], candidate),
                };
                let from = (0..candidates.len()).min_by(|&a, &b| arrive(a).total_cmp(&arrive(b))).unwrap_or(to);
                next.push(arrive(from) + times[to]);
                way.push(from);
            }
            cost = next;
            ways.push(way);
        }
        let mut at = (0..cost.len()).min_by(|&a, &b| cost[a].total_cmp(&cost[b])).unwrap_or(0);
        let mut chosen = Vec::new();
        for way in ways.iter().rev() {
            chosen.push(candidates[at].clone());
            at = way[at];
        }
        chosen.reverse();
        Ok(chosen)
    }

    /// By phase and candidate. Copies of what the phase writes cannot be: infinite.
    fn run_times(&mut self, phases: &[usize], candidates: &[Placement]) -> Result<Vec<Vec<f64>>, PlacementError> {
        let mut all = Vec::new();
        for &phase in phases {
            let mut times = Vec::new();
            for candidate in candidates {
                let demand = self.evaluator.demand;
                let is_possible = candidate.copies_are_read_only(demand, phase);
                times.push(if is_possible { self.evaluator.value(candidate, &[phase])?.run_s } else { f64::INFINITY });
            }
            all.push(times);
        }
        Ok(all)
    }

    fn report(mut self, chosen: Vec<Placement>, bounds: &[bound::Bound]) -> Result<Optimum, PlacementError> {
        let mut phases = Vec::new();
        let mut pages_moved = 0;
        let mut before = match self.options.change {
            Change::PerPage(_) => Some(Placement::first_touch(self.evaluator.demand, self.evaluator.facts)),
            Change::Free | Change::Never => None,
        };
        for (phase, placement) in chosen.into_iter().enumerate() {
            let Value { run_s, residual, .. } = self.evaluator.value(&placement, &[phase])?;
            if let Some(before) = &before {
                pages_moved += placement.pages_moved_from(before, self.evaluator.demand, &self.evaluator.copies);
            }
            before = Some(placement.clone());
            phases.push(PhaseOptimum { placement, run_s, bound_s: bounds[phase].least_s, residual });
        }
        let change_s = match self.options.change {
            Change::PerPage(ns) => pages_moved as f64 * ns * 1e-9,
            Change::Free | Change::Never => 0.0,
        };
        Ok(Optimum {
            total_s: phases.iter().map(|p| p.run_s).sum::<f64>() + change_s,
            bound_s: phases.iter().map(|p| p.bound_s).sum(),
            residual: phases.iter().map(|p| p.residual).fold(0.0, f64::max),
            phases,
            pages_moved,
            change_s,
            evaluations: self.evaluator.evaluations,
            out_of_budget: self.out_of_budget,
        })
    }
}
