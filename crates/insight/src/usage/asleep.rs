//! When threads slept, or waited for something outside the program: time in which they neither work nor wait for other threads.
//!
//! The clock of a simulated machine passes in it, but the counter of waits (`wait_cycles`) is of waits for other threads alone: what it leaves over of a
//! thread's time is no work as long as these are in it. Recordings of real machines show no waits.

use numapilot_flows::{CountersAt, Trace, Wait};

/// Nanoseconds by which a recorded wait and what the counter says of it may differ: both its ends are rounded down.
const ROUNDED_NS: f64 = 2.0;
/// Kinds of waits that may end with a time-out. Such a wait has the kind of any other, but the counter leaves it out.
const WITH_TIME_OUT: [&str; 5] = ["mutex", "rwlock", "cond", "sem", "futex"];

/// A stretch of a thread's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stretch {
    pub from_ns: f64,
    pub to_ns: f64,
}

/// The time of one thread that is neither work nor in the counter of waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asleep {
    /// Sleeps, and waits for input and output: ascending, not overlapping.
    outside: Vec<Stretch>,
    /// By reading of its counters: nanoseconds since the one before in waits that ended with their time-outs.
    pub(super) timed_out_ns: Vec<f64>,
}

impl Asleep {
    /// Sleeps and waits for input and output between two moments.
    pub(super) fn within(&self, from_ns: f64, to_ns: f64) -> Vec<Stretch> {
        let first = self.outside.partition_point(|stretch| stretch.to_ns <= from_ns);
        let of_it = self.outside[first..].iter().take_while(|stretch| stretch.from_ns < to_ns);
        let cut =
            |stretch: &Stretch| Stretch { from_ns: stretch.from_ns.max(from_ns), to_ns: stretch.to_ns.min(to_ns) };
        of_it.map(cut).collect()
    }
}

/// By thread. `khz`: the clock that cycles of the trace are of.
pub(crate) fn of(trace: &Trace, khz: f64) -> Vec<Asleep> {
    let threads = trace.threads();
    let mut waits: Vec<Vec<&Wait>> = vec![Vec::new(); threads.len()];
    for wait in trace.waits() {
        if let Some(of_thread) = waits.get_mut(wait.thread.0 as usize) {
            of_thread.push(wait);
        }
    }
    let mut readings: Vec<Vec<&CountersAt>> = vec![Vec::new(); threads.len()];
    for reading in trace.counters() {
        readings[reading.thread.0 as usize].push(reading);
    }
    for waits in &mut waits {
        waits.sort_by_key(|wait| (wait.began, wait.ended));
    }
    let mut all = Vec::with_capacity(threads.len());
    for ((thread, waits), readings) in threads.iter().zip(&waits).zip(&readings) {
        let timed_out_ns = timed_out(waits, readings, khz);
        all.push(Asleep { outside: outside(waits, thread.start.0 as f64), timed_out_ns });
    }
    all
}

/// Waits for what is outside the program, in order of time.
fn outside(waits: &[&Wait], start_ns: f64) -> Vec<Stretch> {
    let (mut all, mut at_ns) = (Vec::new(), start_ns);
    for wait in waits {
        let (from_ns, to_ns) = ((wait.began.0 as f64).max(at_ns), wait.ended.0 as f64);
        if to_ns <= from_ns {
            continue;
        }
        at_ns = to_ns;
        if is_outside(&wait.kind) {
            all.push(Stretch { from_ns, to_ns });
        }
    }
    all
}

fn is_outside(kind: &str) -> bool {
    matches!(kind, "sleep" | "io")
}

/// By reading: nanoseconds of recorded waits that the counter should hold and does not, so far as they may have timed out.
fn timed_out(waits: &[&Wait], readings: &[&CountersAt], khz: f64) -> Vec<f64> {
    let mut waits = waits.iter().filter(|wait| !is_outside(&wait.kind)).peekable();
    let mut counted_cycles = 0;
    let mut all = Vec::with_capacity(readings.len());
    for reading in readings {
        let cycles = reading.totals.wait_cycles.saturating_sub(counted_cycles);
        counted_cycles = reading.totals.wait_cycles;
        let (mut missing_ns, mut may_ns) = (-(cycles as f64) * 1e6 / khz, 0.0);
        while let Some(wait) = waits.next_if(|wait| wait.ended <= reading.time) {
            let lasted_ns = wait.ended.0.saturating_sub(wait.began.0) as f64;
            missing_ns += lasted_ns - ROUNDED_NS;
            may_ns += if WITH_TIME_OUT.contains(&&*wait.kind) { lasted_ns } else { 0.0 };
        }
        all.push(missing_ns.clamp(0.0, may_ns));
    }
    all
}

#[cfg(test)]
mod tests {
    use numapilot_flows::{Tables, Thread};
    use numapilot_trace::ids::{ThreadIndex, TimeNs};
    use numapilot_trace::record::Counters;

    use super::*;

    fn wait(kind: &str, began: u64, ended: u64) -> Wait {
        Wait { kind: kind.into(), began: TimeNs(began), ended: TimeNs(ended), ..Wait::default() }
    }

    /// One thread, whose waits the counter holds so many cycles of at these moments. A cycle takes a nanosecond.
    fn asleep(waits: Vec<Wait>, counted: &[(u64, u64)]) -> Asleep {
        let reading = |&(at, wait_cycles): &(u64, u64)| CountersAt {
            time: TimeNs(at),
            thread: ThreadIndex(0),
            totals: Counters { wait_cycles, ..Counters::default() },
            ..CountersAt::default()
        };
        let counters = counted.iter().map(reading).collect();
        let threads = vec![Thread::default()];
        of(&Trace::from_tables(Tables { threads, waits, counters, end: TimeNs(1000), ..Tables::default() }), 1e6)
            .remove(0)
    }

    #[test]
    fn sleeps_and_waits_for_input_are_no_work_and_waits_for_threads_are_counted() {
        let waits = vec![wait("io", 300, 400), wait("barrier", 500, 900), wait("sleep", 100, 250)];
        let asleep = asleep(waits, &[(1000, 0)]);
        let spans = |from: f64, to: f64| -> Vec<(f64, f64)> {
            asleep.within(from, to).iter().map(|stretch| (stretch.from_ns, stretch.to_ns)).collect()
        };
        assert_eq!(spans(0.0, 1000.0), [(100.0, 250.0), (300.0, 400.0)]);
        assert_eq!(spans(200.0, 310.0), [(200.0, 250.0), (300.0, 310.0)]);
        assert!(spans(250.0, 300.0).is_empty());
        // A barrier has no time-out, whatever the counter says.
        assert_eq!(asleep.timed_out_ns, [0.0]);
    }

    #[test]
    fn a_wait_that_the_counter_leaves_out_has_timed_out() {
        let waits = || vec![wait("cond", 100, 250), wait("cond", 300, 400), wait("futex", 500, 900)];
        // The second was ended by another thread, and is in the counter; the others are not.
        let some = asleep(waits(), &[(450, 100), (1000, 100)]);
        assert_eq!(some.timed_out_ns, [150.0 - 2.0 * ROUNDED_NS, 400.0 - ROUNDED_NS]);
        let none = asleep(waits(), &[(450, 250), (1000, 650)]);
        assert_eq!(none.timed_out_ns, [0.0, 0.0]);
        // Waits after the last reading are in no time that the counters tell of.
        assert_eq!(asleep(waits(), &[(90, 0)]).timed_out_ns, [0.0]);
    }
}
