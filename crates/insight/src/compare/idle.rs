//! The time of a recorded run in which no thread works. It is as long as sleeps, time-outs and whatever the program waits for outside itself last: neither the
//! machine model nor the placement of memory decides that, and the next run need not repeat it.

use numapilot_flows::{Ends, Trace};

/// Program time in which no thread worked, ns: each was in a recorded wait, had ended, or had not begun. Of recordings on a simulated machine only, because
/// others show no waits.
pub(super) fn idle_ns(trace: &Trace) -> f64 {
    let run_end = trace.end().0;
    let mut waits: Vec<(u32, u64, u64)> =
        trace.waits().iter().map(|wait| (wait.thread.0, wait.began.0, wait.ended.0)).collect();
    waits.sort_unstable();
    let mut work: Vec<(u64, u64)> = Vec::with_capacity(waits.len() + trace.threads().len());
    for (thread, until_ns) in trace.threads().iter().zip(Ends::of(trace).until_ns) {
        let end = until_ns.min(run_end);
        let mut at = thread.start.0;
        let first = waits.partition_point(|wait| wait.0 < thread.index.0);
        for &(_, began, ended) in waits[first..].iter().take_while(|wait| wait.0 == thread.index.0) {
            if began.min(end) > at {
                work.push((at, began.min(end)));
            }
            at = at.max(ended);
        }
        if end > at {
            work.push((at, end));
        }
    }
    work.sort_unstable();
    let (mut worked, mut until) = (0, 0);
    for (from, to) in work {
        if to > until {
            worked += to - from.max(until);
            until = to;
        }
    }
    run_end.saturating_sub(worked) as f64
}

#[cfg(test)]
mod tests {
    use numapilot_flows::{Tables, Thread, Wait};
    use numapilot_trace::ids::{ThreadIndex, TimeNs};

    use super::*;

    fn thread(index: u32, start: u64, end: Option<u64>) -> Thread {
        Thread { index: ThreadIndex(index), start: TimeNs(start), end: end.map(TimeNs), ..Thread::default() }
    }

    fn wait(thread: u32, began: u64, ended: u64) -> Wait {
        Wait { thread: ThreadIndex(thread), began: TimeNs(began), ended: TimeNs(ended), ..Wait::default() }
    }

    fn idle(threads: Vec<Thread>, waits: Vec<Wait>) -> f64 {
        idle_ns(&Trace::from_tables(Tables { threads, waits, end: TimeNs(100), ..Tables::default() }))
    }

    #[test]
    fn time_is_idle_where_no_thread_works() {
        let two = || vec![thread(0, 0, Some(100)), thread(1, 10, Some(60))];
        assert_eq!(idle(two(), Vec::new()), 0.0);
        // The one waits from 20 to 80, the other works to 30 and from 50 to its end at 60.
        let waits = || vec![wait(1, 30, 50), wait(0, 20, 80)];
        assert_eq!(idle(two(), waits()), 40.0);
        // A thread whose end was not seen works to the end, unless it waits.
        assert_eq!(idle(vec![thread(0, 0, None)], vec![wait(0, 40, 95)]), 55.0);
        assert_eq!(idle(vec![thread(0, 90, None)], Vec::new()), 90.0);
    }

    /// A thread that takes a server's signals waits from the beginning until main ends the program: that wait never ends, and so is not recorded.
    #[test]
    fn a_thread_that_is_cut_off_in_its_wait_does_not_work() {
        let threads = vec![thread(0, 0, Some(100)), thread(1, 10, None)];
        assert_eq!(idle(threads.clone(), vec![wait(0, 20, 80)]), 60.0);
        // Nor after its last wait that was recorded.
        assert_eq!(idle(threads, vec![wait(0, 20, 80), wait(1, 12, 40)]), 60.0);
    }

    #[test]
    fn waits_beyond_a_threads_end_and_within_another_wait_count_once() {
        let waits = vec![wait(0, 10, 50), wait(0, 20, 30), wait(0, 45, 200)];
        assert_eq!(idle(vec![thread(0, 0, Some(60))], waits), 90.0);
        assert_eq!(idle(Vec::new(), Vec::new()), 100.0);
    }
}
