//! A lower bound on the time of a phase that holds for every static placement, so that what a search found can be judged.
//!
//! Two things are true of every placement in the traffic model: no station works for longer than the phase lasts, and no access takes less than its idle
//! latency. Both are linear in the shares of pages on nodes. The least time that satisfies all of them (stations, and groups of threads)
//! is a linear program, a game between a placement and weights on these constraints: any weights give a valid bound,
//! and good ones are found by mirror-prox (Nemirovski, SIAM J. Optim. 15(1), 2004).

use numapilot_machine::NodeIndex;
use numapilot_traffic::{Class, Load, MemorySystem};

use super::demand::Demand;
use super::evaluate::Evaluator;
use crate::error::PlacementError;

/// Most steps of the game; its gap falls with their number.
const STEPS: usize = 4000;
/// Steps between looks at the gap.
const CHECK_EVERY: usize = 25;
/// Relative gap at which the game is over.
const AGREEMENT: f64 = 1e-3;
/// Share of the longest step that is sure to converge.
const STEP_LENGTH: f64 = 0.9;
/// Threads so few that the system stays idle.
const FEW_THREADS: f64 = 1e-9;

/// Demand of one access on the idle machine, by pair of nodes.
pub(crate) struct Services {
    nodes: usize,
    stations: usize,
    /// `[from * nodes + to]`: nanoseconds of each station, reading and writing, then the idle latency; `None` where there is no way.
    pairs: Vec<Option<Pair>>,
}

struct Pair {
    read_ns: Vec<f64>,
    write_ns: Vec<f64>,
    idle_ns: f64,
}

impl Services {
    /// Asks the model: a small part of a class on one path gives its demand on each station.
    pub fn of(system: &MemorySystem, facts: &crate::nodes::NodeFacts) -> Result<Self, PlacementError> {
        let nodes = facts.count();
        let mut pairs = Vec::with_capacity(nodes * nodes);
        for from in 0..nodes {
            for to in 0..nodes {
                let is_way = facts.cpus[from] > 0 && facts.has_memory(NodeIndex(to));
                pairs.push(if is_way { Some(Self::pair(system, nodes, from, to)?) } else { None });
            }
        }
        Ok(Self { nodes, stations: system.stations(), pairs })
    }

    fn pair(system: &MemorySystem, nodes: usize, from: usize, to: usize) -> Result<Pair, PlacementError> {
        let only = |node: usize| (0..nodes).map(|n| f64::from(u8::from(n == node))).collect::<Vec<_>>();
        let ask = |reads: Vec<f64>, writes: Vec<f64>| {
            let class = Class { from, threads: FEW_THREADS, outstanding: 1.0, think_ns: 0.0, reads, writes };
            system.solve(&Load { classes: vec![class], background: Vec::new() })
        };
        let services = |solution: &numapilot_traffic::Solution| {
            let per_ns = solution.throughput_per_s[0] * 1e-9;
            solution.stations.iter().map(|s| s.utilisation / per_ns).collect::<Vec<_>>()
        };
        let read = ask(only(to), vec![0.0; nodes])?;
        let write = ask(vec![0.0; nodes], only(to))?;
        Ok(Pair { read_ns: services(&read), write_ns: services(&write), idle_ns: read.latency_ns[0] })
    }
}

/// The linear program of one phase: `rows` of constraints, each the seconds that it asks for at least, over choices of pages.
struct Game {
    /// Seconds per row that no choice changes.
    constant: Vec<f64>,
    /// Sets of choices, one of which is made in shares; each choice has its seconds per row.
    choices: Vec<Vec<Vec<f64>>>,
}

/// A bound, and where pages would have to be to come near it if nothing ever queued.
pub(crate) struct Bound {
    /// No placement takes less, in seconds.
    pub least_s: f64,
    /// For each group of pages that is used: the group, and its shares on the nodes with memory (then that of copies, if allowed). Empty with
    /// threads to be moved.
    pub shares: Vec<(usize, Vec<f64>)>,
}

/// The bound for one phase. With `replicate`, groups that are only read may have copies everywhere; with `move_threads`, groups of threads may be on any
/// node (then each use of pages is bounded by itself, which is looser).
pub(crate) fn lower_bound(
    evaluator: &Evaluator<'_>,
    services: &Services,
    phase: usize,
    replicate: bool,
    move_threads: bool,
) -> Bound {
    let (game, groups) = Game::of(evaluator, services, phase, replicate, move_threads);
    let (least_s, shares) = game.solve();
    let shares = if move_threads { Vec::new() } else { groups.into_iter().zip(shares).collect() };
    Bound { least_s, shares }
}

impl Game {
    fn of(
        evaluator: &Evaluator<'_>,
        services: &Services,
        phase: usize,
        replicate: bool,
        move_threads: bool,
    ) -> (Self, Vec<usize>) {
        let demand = evaluator.demand;
        let work = &demand.phases[phase].work;
        let active: Vec<usize> = (0..work.len()).filter(|&g| work[g].accesses > 0.0).collect();
        let rows = services.stations + active.len();
        let mut game = Self { constant: vec![0.0; rows], choices: Vec::new() };
        for (index, &group) in active.iter().enumerate() {
            // Each thread has `outstanding` accesses on their way and works `think_ns` per access.
            game.constant[services.stations + index] =
                work[group].accesses * work[group].think_ns * 1e-9 / demand.threads[group].threads;
        }
        let mut groups = Vec::new();
        let may_copy = |pages: usize| replicate && demand.is_read_only(phase, pages);
        for pages in 0..demand.pages.len() {
            let users = |index: &usize| {
                let work = &work[active[*index]];
                work.reads[pages] + work.writes[pages] > 0.0
            };
            let users: Vec<usize> = (0..active.len()).filter(users).collect();
            let term = Term { demand, services, phase, pages, active: &active, rows };
            if move_threads {
                for &user in &users {
                    let froms = NodeIndex::all(services.nodes).filter(|&n| evaluator.facts.cpus[n] > 0);
                    let ways = froms.flat_map(|from| evaluator.facts.with_memory.iter().map(move |&to| (from, to)));
                    game.choices.push(ways.map(|(from, to)| term.column(&[(user, from, to)])).collect());
                }
            } else if !users.is_empty() {
                let node = |user: usize| demand.threads[active[user]].node;
                let at = |to: NodeIndex| users.iter().map(|&user| (user, node(user), to)).collect::<Vec<_>>();
                let mut set: Vec<_> = evaluator.facts.with_memory.iter().map(|&to| term.column(&at(to))).collect();
                if may_copy(pages) {
                    let local: Vec<_> = users.iter().map(|&u| (u, node(u), evaluator.nearest[node(u)])).collect();
                    set.push(term.column(&local));
                }
                game.choices.push(set);
                groups.push(pages);
            }
        }
        (game, groups)
    }

    /// The value of weights: what the best answer to them asks for.
    fn value(&self, weights: &[f64]) -> f64 {
        let dot = |column: &[f64]| column.iter().zip(weights).map(|(c, w)| c * w).sum::<f64>();
        let least = |set: &Vec<Vec<f64>>| set.iter().map(|c| dot(c)).fold(f64::INFINITY, f64::min);
        dot(&self.constant) + self.choices.iter().map(least).sum::<f64>()
    }

    /// The least time of shares: what the greatest row asks for.
    fn greatest_row(&self, shares: &[Vec<f64>]) -> f64 {
        self.demand_of(shares).into_iter().fold(0.0, f64::max)
    }

    /// Plays until both sides agree; returns the best bound that any weights gave, and the shares that played best on average.
    fn solve(&self) -> (f64, Vec<Vec<f64>>) {
        let rows = self.constant.len();
        // Each row by itself is a bound too, and the game may take long to find a single one.
        let only = |row: usize| (0..rows).map(|r| f64::from(u8::from(r == row))).collect::<Vec<_>>();
        let mut best = (0..rows).map(|row| self.value(&only(row))).fold(0.0, f64::max);
        let mut shares: Vec<Vec<f64>> =
            self.choices.iter().map(|set| vec![1.0 / set.len() as f64; set.len()]).collect();
        let Some(rates) = self.rates() else { return (best, shares) };
        let mut weights = vec![1.0 / rows as f64; rows];
        let (mut mean_weights, mut mean_shares) = (weights.clone(), shares.clone());
        for step in 1..=STEPS {
            let ahead = self.play((&weights, &shares), (&weights, &shares), rates);
            (weights, shares) = self.play((&weights, &shares), (&ahead.0, &ahead.1), rates);
            let approach = |mean: &mut f64, value: f64| *mean += (value - *mean) / step as f64;
            mean_weights.iter_mut().zip(ahead.0).for_each(|(mean, value)| approach(mean, value));
            mean_shares
                .iter_mut()
                .flatten()
                .zip(ahead.1.into_iter().flatten())
                .for_each(|(mean, value)| approach(mean, value));
            if step % CHECK_EVERY == 0 {
                best = best.max(self.value(&mean_weights)).max(self.value(&weights));
                if self.greatest_row(&mean_shares) <= best * (1.0 + AGREEMENT) {
                    break;
                }
            }
        }
        (best, mean_shares)
    }

    /// Steps of weights and shares: as long as the game's slopes allow, longer for the side that has farther to go. `None` if nothing can be chosen.
    fn rates(&self) -> Option<(f64, f64)> {
        let greatest = |set: &Vec<Vec<f64>>| set.iter().flatten().copied().fold(0.0, f64::max);
        let slope = self.choices.iter().map(|set| greatest(set).powi(2)).sum::<f64>().sqrt();
        let way_weights = (self.constant.len() as f64).ln();
        let way_shares: f64 = self.choices.iter().map(|set| (set.len() as f64).ln()).sum();
        let is_game = slope > 0.0 && way_weights > 0.0 && way_shares > 0.0;
        let ratio = (way_weights / way_shares).sqrt();
        is_game.then(|| (STEP_LENGTH * ratio / slope, STEP_LENGTH / ratio / slope))
    }

    /// Seconds per row of shares.
    fn demand_of(&self, shares: &[Vec<f64>]) -> Vec<f64> {
        let mut demand = self.constant.clone();
        for (set, at) in self.choices.iter().zip(shares) {
            for (column, share) in set.iter().zip(at) {
                demand.iter_mut().zip(column).for_each(|(d, c)| *d += share * c);
            }
        }
        demand
    }

    /// One step of both sides from a point, along the slopes at another.
    fn play(&self, from: Point<'_>, at: Point<'_>, rates: (f64, f64)) -> (Vec<f64>, Vec<Vec<f64>>) {
        let demand = self.demand_of(at.1);
        let up = |(weight, demand): (&f64, &f64)| weight.ln() + rates.0 * demand;
        let weights = softmax(from.0.iter().zip(&demand).map(up).collect());
        let shares = self.choices.iter().zip(from.1).map(|(set, from)| {
            let cost = |column: &Vec<f64>| column.iter().zip(at.0).map(|(c, w)| c * w).sum::<f64>();
            softmax(set.iter().zip(from).map(|(column, share)| share.ln() - rates.1 * cost(column)).collect())
        });
        (weights, shares.collect())
    }
}

/// A point of the bound's linear program: weights of its constraints, and shares of each choice.
type Point<'a> = (&'a [f64], &'a [Vec<f64>]);

/// Exponentials that sum to 1, none so small that its logarithm is lost.
fn softmax(mut logs: Vec<f64>) -> Vec<f64> {
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    logs.iter_mut().for_each(|v| *v = (*v - most).exp().max(1e-290));
    let sum: f64 = logs.iter().sum();
    logs.iter_mut().for_each(|v| *v /= sum);
    logs
}

/// Demand of one group of pages on the rows.
struct Term<'a> {
    demand: &'a Demand,
    services: &'a Services,
    phase: usize,
    pages: usize,
    active: &'a [usize],
    rows: usize,
}

impl Term<'_> {
    /// Seconds per row, if users (by position among the active ones) on these nodes find the pages on those.
    fn column(&self, uses: &[(usize, NodeIndex, NodeIndex)]) -> Vec<f64> {
        let mut column = vec![0.0; self.rows];
        for &(user, from, to) in uses {
            let group = self.active[user];
            let work = &self.demand.phases[self.phase].work[group];
            let (reads, writes) = (work.accesses * work.reads[self.pages], work.accesses * work.writes[self.pages]);
            let Some(pair) = &self.services.pairs[from.0 * self.services.nodes + to.0] else { continue };
            for (row, (read_ns, write_ns)) in pair.read_ns.iter().zip(&pair.write_ns).enumerate() {
                column[row] += (reads * read_ns + writes * write_ns) * 1e-9;
            }
            let slots = self.demand.threads[group].threads * work.outstanding;
            column[self.services.stations + user] += (reads + writes) * pair.idle_ns * 1e-9 / slots;
        }
        column
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_game_finds_the_value_of_a_linear_program() {
        // One second of work to share between two machines of speeds 1 and 3 (the fourth of it takes a quarter second on the slow one, ...): 1 / (1 + 3).
        let set = vec![vec![1.0, 0.0], vec![0.0, 1.0 / 3.0]];
        let game = Game { constant: vec![0.0, 0.0], choices: vec![set] };
        let (bound, shares) = game.solve();
        assert!(bound <= 0.25 + 1e-12 && bound > 0.25 * (1.0 - 2e-3), "{bound}");
        assert!((shares[0][0] - 0.25).abs() < 0.01, "{shares:?}");
    }

    #[test]
    fn a_row_that_nothing_changes_is_a_bound() {
        let game = Game { constant: vec![2.0, 0.0], choices: vec![vec![vec![0.0, 1.0], vec![0.0, 3.0]]] };
        assert_eq!(game.solve().0, 2.0);
    }
}
