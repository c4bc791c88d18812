//! Combines the few samples of a thread in one window with those of its whole run (empirical Bayes).
//!
//! At a barrier the slowest thread decides, so noise in the threads' latencies would not cancel out: it would lengthen every run, most of all runs with
//! scattered pages. Windows of a thread have distributions over answering nodes that scatter around the thread's: Dirichlet with concentration k. Two
//! samples of one window are answered by the same node with probability `S + (1 - S) / (k + 1)`, where S is that of any two samples of the thread. So k
//! follows from counting pairs, and a window's distribution is estimated as `(n f + k F) / (n + k)`: n samples with frequencies f, the thread's F. A change may
//! spread a sample over nodes: then it counts for each node by its share there, and makes no pair with itself by the squares of its shares.

use crate::usage::Usage;

/// Number of prior pairs without scatter: with fewer observed pairs than this, the distribution of the whole thread dominates.
const PRIOR_PAIRS: f64 = 4.0;
/// A concentration so large that all windows have the distribution of the whole thread.
const ALIKE: f64 = 1e12;

/// The distribution of each thread's accesses over answering nodes in its whole run, and how its windows scatter around it.
pub(super) struct Threads {
    /// By thread: shares of reads by answering node, then those of writes.
    whole: Vec<Vec<f64>>,
    concentration: f64,
    /// Accesses that one sample stands for, on average.
    weight: f64,
}

/// The samples of one row: its thread, how many accesses they stand for by answering node (reads, then writes), and how many of these each sample would
/// share with a copy of itself: all, or the sum of its shares' squares where a change spreads it over nodes.
struct Seen<'r> {
    thread: usize,
    counts: &'r [f64],
    own: f64,
}

impl Threads {
    /// `rows`: of each row, reads by answering node, then writes. `own`: of each row, the sum over its accesses of the squares of their shares by node.
    pub(super) fn of(usage: &Usage, rows: &[Vec<f64>], own: &[f64]) -> Threads {
        let weight = usage.sample_weight.max(1.0);
        let mut whole = vec![vec![0.0; 2 * usage.nodes]; usage.threads];
        for (row, counts) in usage.rows.iter().zip(rows) {
            whole[row.thread as usize].iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let seen = usage.rows.iter().zip(rows).zip(own);
        let seen = seen.map(|((row, counts), own)| Seen { thread: row.thread as usize, counts, own: *own });
        let concentration = concentration(&seen.collect::<Vec<_>>(), &whole, weight);
        for counts in &mut whole {
            let all: f64 = counts.iter().sum();
            counts.iter_mut().for_each(|count| *count /= all.max(1e-9));
        }
        Threads { whole, concentration, weight }
    }

    /// Shares of reads, then of writes, by answering node of a row of a thread, from what was seen of it.
    pub(super) fn shares(&self, thread: usize, counts: &[f64]) -> Vec<f64> {
        let all: f64 = counts.iter().sum();
        let samples = all / self.weight;
        let trust = if all > 0.0 { samples / (samples + self.concentration) } else { 0.0 };
        let share = |(count, whole): (&f64, &f64)| trust * count / all.max(1e-9) + (1.0 - trust) * whole;
        counts.iter().zip(&self.whole[thread]).map(share).collect()
    }
}

/// Concentration of windows around their threads, whose accesses by answering node are `whole`; `weight`: accesses that one sample stands for.
fn concentration(rows: &[Seen<'_>], whole: &[Vec<f64>], weight: f64) -> f64 {
    // Of all pairs of samples within windows: how many are answered by the same node, and how many would be if windows did not differ.
    let pairs_of = |counts: &[f64]| {
        let samples = counts.iter().sum::<f64>() / weight;
        samples * (samples - 1.0)
    };
    let same_of =
        |counts: &[f64], own: f64| counts.iter().map(|count| (count / weight).powi(2)).sum::<f64>() - own / weight;
    let mut own = vec![0.0; whole.len()];
    rows.iter().for_each(|row| own[row.thread] += row.own);
    let (mut same, mut expected, mut pairs) = (0.0, 0.0, 0.0);
    for row in rows {
        let (of_thread, here) = (pairs_of(&whole[row.thread]), pairs_of(row.counts));
        if of_thread > 0.0 && here > 0.0 {
            same += same_of(row.counts, row.own);
            pairs += here;
            expected += here * same_of(&whole[row.thread], own[row.thread]) / of_thread;
        }
    }
    if pairs <= 0.0 {
        return ALIKE;
    }
    let alike = expected / pairs;
    let within = (same + PRIOR_PAIRS * alike) / (pairs + PRIOR_PAIRS);
    if within - alike <= 1.0 / ALIKE { ALIKE } else { ((1.0 - within) / (within - alike)).max(0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forty windows of ten samples: five are spread over four nodes, the others are all of node 0 or all of node 1, in turn.
    #[test]
    fn a_sample_that_is_spread_is_no_pair_with_itself() {
        let window = |node: usize| {
            let mut counts = vec![1.25; 4];
            counts[node] += 5.0;
            counts
        };
        let rows: Vec<Vec<f64>> = (0..40).map(|at| window(at % 2)).collect();
        let seen: Vec<Seen<'_>> = rows.iter().map(|counts| Seen { thread: 0, counts, own: 5.0 + 5.0 * 0.25 }).collect();
        // Of 90 pairs in a window, 43.75 - 6.25 = 37.5 have one node; of 159,600 of the thread, 49,750. With the four prior pairs: 0.41655 and 0.31172.
        let found = concentration(&seen, &[vec![150.0, 150.0, 50.0, 50.0]], 1.0);
        assert!((found - 5.5655).abs() < 1e-3, "{found}");
        // Without differences between windows there is nothing to see.
        let even: Vec<Seen<'_>> = rows.iter().map(|_| Seen { thread: 0, counts: &[2.5; 4], own: 2.5 }).collect();
        assert_eq!(concentration(&even, &[vec![100.0; 4]], 1.0), ALIKE);
    }
}
