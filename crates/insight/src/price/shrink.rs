//! Combines the few samples of a thread in one window with those of its whole run (empirical Bayes).
//!
//! At a barrier the slowest thread decides, so noise in the threads' latencies would not cancel out: it would lengthen every run, most of all runs with
//! scattered pages. Windows of a thread have distributions over answering nodes that scatter around the thread's: Dirichlet with concentration k. Two
//! samples of one window are answered by the same node with probability `S + (1 - S) / (k + 1)`, where S is that of any two samples of the thread. So k
//! follows from counting pairs, and a window's distribution is estimated as `(n f + k F) / (n + k)`: n samples with frequencies f, the thread's F.

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

impl Threads {
    /// `rows`: of each row, reads by answering node, then writes.
    pub(super) fn of(usage: &Usage, rows: &[Vec<f64>]) -> Threads {
        let weight = usage.sample_weight.max(1.0);
        let mut whole = vec![vec![0.0; 2 * usage.nodes]; usage.threads];
        for (row, counts) in usage.rows.iter().zip(rows) {
            whole[row.thread as usize].iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        // Of all pairs of samples within windows: how many are answered by the same node, and how many would be if windows did not differ.
        let pairs_of = |counts: &[f64]| counts.iter().map(|count| count / weight * (count / weight - 1.0)).sum::<f64>();
        let (mut same, mut expected, mut pairs) = (0.0, 0.0, 0.0);
        for (row, counts) in usage.rows.iter().zip(rows) {
            let of_thread = &whole[row.thread as usize];
            let all = [of_thread.iter().sum::<f64>()];
            let here = [counts.iter().sum::<f64>()];
            if pairs_of(&all) > 0.0 && pairs_of(&here) > 0.0 {
                same += pairs_of(counts);
                pairs += pairs_of(&here);
                expected += pairs_of(&here) * pairs_of(of_thread) / pairs_of(&all);
            }
        }
        let concentration = if pairs <= 0.0 {
            ALIKE
        } else {
            let alike = expected / pairs;
            let within = (same + PRIOR_PAIRS * alike) / (pairs + PRIOR_PAIRS);
            if within - alike <= 1.0 / ALIKE { ALIKE } else { ((1.0 - within) / (within - alike)).max(0.0) }
        };
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
