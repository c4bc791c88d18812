//! Whether threads race for their work: each takes the next piece when it is done with the last (OpenMP's `dynamic` loops, thread pools, task stealing).
//!
//! Which thread gets which piece then differs from run to run, and with it which caches hold what, which pages are whose, and the run time. One recording
//! does not show that, but two do: the same work is divided otherwise among the threads. Measured: `docs/compare.md`, "One recording of each".

use super::run::RunSummary;

/// Share of the accesses, from which more than a spin lock's turns or a barrier's last thread moved between threads: 0.04 % at most between equal runs of
/// programs that divide their work in advance, 0.07 % at least between those of programs that race for it.
const LEAST: f64 = 0.0005;

/// Share of the program's accesses that other threads made in the one recording than in the other, 0 to 1: half the sum over the threads, by the order in which
/// they were created, of the differences of their shares. `None` where a recording does not count each thread's accesses.
pub(super) fn moved_work(before: &RunSummary, after: &RunSummary) -> Option<f64> {
    let shares = |run: &RunSummary| -> Option<Vec<f64>> {
        let total = run.accesses_by_thread.iter().fold(0.0, |sum, &count| sum + count as f64);
        (total > 0.0).then(|| run.accesses_by_thread.iter().map(|&count| count as f64 / total).collect())
    };
    let (before, after) = (shares(before)?, shares(after)?);
    let of = |shares: &[f64], thread: usize| shares.get(thread).copied().unwrap_or(0.0);
    let threads = before.len().max(after.len());
    Some((0..threads).map(|thread| (of(&before, thread) - of(&after, thread)).abs()).sum::<f64>() / 2.0)
}

/// The same, where it is too much for threads whose work is divided in advance.
pub(super) fn raced_for(before: &RunSummary, after: &RunSummary) -> Option<f64> {
    moved_work(before, after).filter(|&moved| moved >= LEAST)
}

#[cfg(test)]
mod tests {
    use numapilot_flows::{Filter, Tables, Thread, Trace};
    use numapilot_trace::ids::ThreadIndex;
    use numapilot_trace::record::Counters;

    use super::*;
    use crate::context::Analysis;

    fn run(accesses: &[Option<u64>]) -> RunSummary {
        let thread = |(index, accesses): (usize, &Option<u64>)| Thread {
            index: ThreadIndex(index as u32),
            counters: accesses.map(|accesses| Counters { accesses, ..Counters::default() }),
            ..Thread::default()
        };
        let threads = accesses.iter().enumerate().map(thread).collect();
        let trace = Trace::from_tables(Tables { threads, ..Tables::default() });
        RunSummary::new(&Analysis::new(&trace, &[], &[], Filter::default()), "t", None)
    }

    #[test]
    fn work_moves_where_other_threads_do_it() {
        let moved = |before: &[u64], after: &[u64]| {
            let of = |counts: &[u64]| run(&counts.iter().map(|&count| Some(count)).collect::<Vec<_>>());
            (moved_work(&of(before), &of(after)).expect("counted"), raced_for(&of(before), &of(after)).is_some())
        };
        // Four workers, as two recordings of one racing program have them: 3 % more for one, at the cost of the others.
        let (share, is_raced) = moved(&[100, 1000, 1000, 1000, 1000], &[100, 1030, 990, 990, 990]);
        assert!(is_raced && (share - 30.0 / 4100.0).abs() < 1e-12, "{share}");
        // Twice the work, divided alike; a barrier's turns; a thread that is not there on the other side.
        assert_eq!(moved(&[100, 1000, 1000], &[200, 2000, 2000]), (0.0, false));
        assert!(!moved(&[100_000, 1_000_000, 1_000_000], &[100_000, 1_000_400, 999_600]).1);
        assert_eq!(moved(&[1, 1], &[1, 1, 2]), (0.5, true));
        assert_eq!(moved(&[7], &[9]), (0.0, false));
    }

    #[test]
    fn without_counts_nothing_is_known() {
        let counted = || run(&[Some(10), Some(10)]);
        for other in [run(&[None, None]), run(&[]), run(&[Some(0)])] {
            assert_eq!((moved_work(&counted(), &other), raced_for(&other, &counted())), (None, None));
        }
        // A thread that ended before its first access was counted.
        assert_eq!(moved_work(&counted(), &run(&[Some(10), Some(10), None])), Some(0.0));
    }
}
