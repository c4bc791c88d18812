//! Solves for consistent latencies and load within an epoch. The load follows from latencies, latencies from the load: a fixed point, near which the plain
//! iteration oscillates where a station is saturated and threads synchronise within the epoch.

use numapilot_traffic::worse_residual;

use crate::engine::runner::{Epoch, Runner};
use crate::engine::ways::Ways;
use crate::pages::PageTable;
use crate::program::Program;

/// Least and greatest size of a step, as a share of the distance to the latencies that follow from the load.
const SHORTEST: f64 = 0.05;
const LONGEST: f64 = 1.0;
/// Relative size of the first damped step.
const FIRST: f64 = 0.5;

/// Weights of the latency of each pair of nodes in each thread's time of an epoch.
#[derive(Debug)]
pub(super) struct Weights {
    nodes: usize,
    /// By thread that accessed memory: `[from * nodes + to]`, accesses over those outstanding.
    threads: Vec<Vec<(usize, f64)>>,
}

/// The weights of an epoch.
pub(super) fn weights(
    epoch: &Epoch,
    runners: &[Runner],
    program: &Program,
    pages: &PageTable,
    ways: &mut Ways,
) -> Weights {
    let nodes = ways.path_ns().len();
    let mut threads: Vec<Vec<(usize, f64)>> = vec![Vec::new(); runners.len()];
    for spent in epoch.spent.iter().filter(|spent| spent.accesses > 0.0) {
        let from = runners[spent.thread as usize].node;
        let behaviour = program.behaviours[spent.behaviour as usize];
        let shares = ways.shares(program, pages, behaviour.mix, from);
        let each = spent.accesses / behaviour.outstanding;
        for (to, share) in shares.reads.iter().zip(&shares.writes).map(|(reads, writes)| reads + writes).enumerate() {
            if share > 0.0 {
                threads[spent.thread as usize].push((from.0 * nodes + to, each * share));
            }
        }
    }
    Weights { nodes, threads }
}

impl Weights {
    fn at(path_ns: &[Vec<f64>], nodes: usize, pair: usize) -> f64 {
        path_ns[pair / nodes][pair % nodes]
    }

    /// By how much the thread that is changed most would take longer or shorter with other latencies, in nanoseconds; infinite where one is no number.
    pub(super) fn doubt(&self, old: &[Vec<f64>], new: &[Vec<f64>]) -> f64 {
        let change = |&(pair, weight): &(usize, f64)| {
            weight * (Weights::at(new, self.nodes, pair) - Weights::at(old, self.nodes, pair))
        };
        let of_thread = |uses: &Vec<(usize, f64)>| uses.iter().map(change).sum::<f64>().abs();
        self.threads.iter().map(of_thread).fold(0.0, worse_residual)
    }

    /// Part of all threads' time that depends on the latency of each pair of nodes.
    fn of_pairs(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.nodes * self.nodes];
        self.threads.iter().flatten().for_each(|&(pair, weight)| sums[pair] += weight);
        sums
    }
}

/// Steps whose length follows from the last two: Aitken's relaxation in the form of Irons and Tuck (1969), on the pairs that are used.
#[derive(Debug, Default)]
pub(super) struct Settling {
    length: f64,
    /// Of the last step: by pair, how far it was from what the load said.
    residual: Vec<f64>,
}

impl Settling {
    /// The latencies to try next, from those tried and what their load gives.
    pub(super) fn next(&mut self, tried: &[Vec<f64>], given: &[Vec<f64>], weights: &Weights) -> Vec<Vec<f64>> {
        let pairs = weights.of_pairs();
        let residual: Vec<f64> =
            tried.iter().flatten().zip(given.iter().flatten()).map(|(old, new)| new - old).collect();
        self.length = if self.residual.is_empty() {
            FIRST
        } else {
            let (mut along, mut square) = (0.0, 0.0);
            for (pair, weight) in pairs.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
                let turn = residual[pair] - self.residual[pair];
                along += weight * self.residual[pair] * turn;
                square += weight * turn * turn;
            }
            // A step that changed nothing says nothing.
            if square > 0.0 { (-self.length * along / square).clamp(SHORTEST, LONGEST) } else { self.length }
        };
        let mut next = tried.to_vec();
        for (slot, residual) in next.iter_mut().flatten().zip(&residual) {
            *slot += self.length * residual;
        }
        self.residual = residual;
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The epoch counted as settled.
    #[test]
    fn latencies_that_are_no_number_leave_every_doubt() {
        let weights = Weights { nodes: 1, threads: vec![vec![(0, 2.0)], vec![]] };
        let doubt = |new: f64| weights.doubt(&[vec![100.0]], &[vec![new]]);
        assert_eq!((doubt(103.0), doubt(f64::NAN)), (6.0, f64::INFINITY));
    }
}
