//! Hand-off: how long one CPU's store takes to be seen by another that waits for it. Two threads pass a word to and fro; half of a round trip is one way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use numapilot_machine::CpuId;

use crate::disturbance::{Watch, involuntary_switches};
use crate::error::MeasureError;
use crate::pin::{pin, still_on};
use crate::results::Figure;
use crate::stats::{Better, undisturbed};
use crate::threads::{AtEnd, spawn};

/// Round trips of a repetition.
const TRIPS: u64 = 500;
const REPETITIONS_MIN: usize = 5;
/// If nothing comes back for so long, nothing will.
const PATIENCE: Duration = Duration::from_secs(10);
/// Turns of waiting between looks at the clock.
const LOOKS: u32 = 1 << 14;

/// The word, alone in two lines, so that no neighbour's prefetch touches it.
#[repr(align(128))]
struct SharedWord(AtomicU64);

/// Nanoseconds one way between two CPUs, repeated for this long.
///
/// # Errors
/// A CPU is gone, or one of them gets no time at all.
pub fn time(a: CpuId, b: CpuId, time: Duration) -> Result<Figure, MeasureError> {
    let word = SharedWord(AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let ends = || AtEnd(|| stop.store(true, Ordering::Relaxed));
    std::thread::scope(|scope| {
        let other = spawn(scope, || {
            let _ends = ends();
            pin(b)?;
            let mut expected = 1;
            while await_value(&word, expected, &stop) {
                word.0.store(expected + 1, Ordering::Release);
                expected += 2;
            }
            still_on(b)
        })?;
        let first = spawn(scope, || {
            let _ends = ends();
            let serve = || {
                pin(a)?;
                // The first trips wait for the other thread to come.
                let mut sent = trips(&word, 0, 2, &stop).ok_or_else(|| silent(a, b))?;
                let watch = Watch::begin(a);
                let end = Instant::now() + time;
                let mut values = Vec::new();
                let mut switches = involuntary_switches();
                while values.len() < REPETITIONS_MIN || Instant::now() < end {
                    let start = Instant::now();
                    sent = trips(&word, sent, TRIPS, &stop).ok_or_else(|| silent(a, b))?;
                    let ns = start.elapsed().as_nanos() as f64 / (2 * TRIPS) as f64;
                    let now = involuntary_switches();
                    values.push((ns, now != switches));
                    switches = now;
                }
                Figure::of(&undisturbed(&values), Better::Low, watch.end()?)
            };
            serve()
        });
        let first = first.inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
        let first = first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        first
    })
}

fn silent(a: CpuId, b: CpuId) -> MeasureError {
    MeasureError::Silent { a, b, seconds: PATIENCE.as_secs() }
}

/// Makes `count` round trips after `sent`, and returns the value of the word; `None` when stopped.
fn trips(word: &SharedWord, sent: u64, count: u64, stop: &AtomicBool) -> Option<u64> {
    let mut sent = sent;
    for _ in 0..count {
        word.0.store(sent + 1, Ordering::Release);
        sent += 2;
        if !await_value(word, sent, stop) {
            return None;
        }
    }
    Some(sent)
}

/// Waits for a value; false when it is stopped or the time limit is over. It does not pause between loads: a pause of some processors is longer than
/// a hand-off.
fn await_value(word: &SharedWord, value: u64, stop: &AtomicBool) -> bool {
    let mut started = None;
    loop {
        for _ in 0..LOOKS {
            if word.0.load(Ordering::Acquire) == value {
                return true;
            }
        }
        if stop.load(Ordering::Relaxed) || started.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return false;
        }
        // Both threads may have been put on one CPU by a hypervisor.
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    //! Two CPUs of this machine, or one twice.

    use super::*;

    #[test]
    fn a_line_is_handed_to_and_fro() {
        let cpus: Vec<CpuId> = crate::Permit::of_this_process().cpus.into_iter().collect();
        let figure = time(cpus[0], *cpus.last().expect("a CPU"), Duration::from_millis(5)).expect("a figure");
        assert!(figure.best() > 1.0 && figure.spread.repetitions >= REPETITIONS_MIN, "{figure:?}");
    }

    #[test]
    fn a_cpu_that_is_gone_is_an_error_at_once() {
        let cpu = *crate::Permit::of_this_process().cpus.iter().next().expect("a CPU");
        let start = Instant::now();
        for (a, b) in [(cpu, CpuId(8190)), (CpuId(8190), cpu)] {
            assert!(matches!(
                time(a, b, Duration::from_millis(5)),
                Err(MeasureError::Pin { .. } | MeasureError::Silent { .. })
            ));
        }
        assert!(start.elapsed() < PATIENCE);
    }
}
