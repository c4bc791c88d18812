//! Disturbances of a measurement: time stolen by the hypervisor, preemption by other threads, a changed clock. Read before and after, and reported beside the
//! result.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use numapilot_kernel::cpu_time::{self, ticks_per_s};
use numapilot_machine::CpuId;
use numapilot_text::units::whole_percent;
use serde::{Deserialize, Serialize};

use crate::error::MeasureError;
use crate::kernels::{SPIN_UNROLL, spin};
use crate::pin::still_on;

/// Share from which on a disturbance is reported.
const NOTEWORTHY: f64 = 0.02;

/// What was seen between the start and the end of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// Share of the CPUs' time that the hypervisor gave to others (`steal` in /proc/stat, usually in ticks of 10 ms); `None` where it is unknown.
    pub steal_share: Option<f64>,
    /// Times that a thread had to leave its CPU to another one.
    pub involuntary_switches: u64,
    /// Share of the time that a thread was ready and had no CPU (/proc/thread-self/schedstat); `None` where it is unknown.
    pub waiting_share: Option<f64>,
    /// Change of the core's clock from before to after, as a share, by a loop of known cycles.
    pub clock_drift: Option<f64>,
}

impl Disturbance {
    /// What of it is worth a remark, in words; empty where nothing is.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let mut out = Vec::new();
        let noteworthy = |share: Option<f64>| share.filter(|share| share.abs() >= NOTEWORTHY);
        if let Some(share) = noteworthy(self.steal_share) {
            out.push(format!("{} of the time stolen", whole_percent(share)));
        }
        if let Some(share) = noteworthy(self.waiting_share) {
            out.push(format!("{} of the time without a CPU", whole_percent(share)));
        }
        if let Some(share) = noteworthy(self.clock_drift) {
            out.push(format!("clock changed by {:+.0} %", share * 100.0));
        }
        match self.involuntary_switches {
            0 => {}
            1 => out.push("preempted once".to_owned()),
            count => out.push(format!("preempted {count} times")),
        }
        out
    }

    /// The worse of two, threads of one measurement: counts add, shares are the greater.
    #[must_use]
    pub fn and(&self, other: &Disturbance) -> Disturbance {
        let greater = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(if a.abs() >= b.abs() { a } else { b }),
            (a, b) => a.or(b),
        };
        Disturbance {
            steal_share: greater(self.steal_share, other.steal_share),
            involuntary_switches: self.involuntary_switches + other.involuntary_switches,
            waiting_share: greater(self.waiting_share, other.waiting_share),
            clock_drift: greater(self.clock_drift, other.clock_drift),
        }
    }
}

/// The state of one thread on its CPU before a measurement. Made and ended by the thread that measures.
#[derive(Debug)]
pub struct Watch {
    cpu: CpuId,
    started: Instant,
    steal_ticks: Option<u64>,
    switches: u64,
    waited: Option<Duration>,
    clock_hz: f64,
}

impl Watch {
    /// Begins to watch the calling thread, which is on `cpu`.
    #[must_use]
    pub fn begin(cpu: CpuId) -> Watch {
        let clock_hz = clock_hz();
        Watch {
            cpu,
            started: Instant::now(),
            steal_ticks: steal_ticks(cpu),
            switches: involuntary_switches(),
            waited: waited(),
            clock_hz,
        }
    }

    /// Disturbances of the thread since then.
    ///
    /// # Errors
    /// The kernel took the CPU from the thread: what was measured is not of that CPU.
    pub fn end(self) -> Result<Disturbance, MeasureError> {
        still_on(self.cpu)?;
        let seconds = self.started.elapsed().as_secs_f64().max(1e-9);
        let switches = involuntary_switches().saturating_sub(self.switches);
        let waited = waited().zip(self.waited).map(|(now, then)| now.saturating_sub(then).as_secs_f64() / seconds);
        let stolen = steal_ticks(self.cpu)
            .zip(self.steal_ticks)
            .map(|(now, then)| (now.saturating_sub(then) as f64 / ticks_per_s() / seconds).min(1.0));
        Ok(Disturbance {
            steal_share: stolen,
            involuntary_switches: switches,
            waiting_share: waited.map(|share| share.min(1.0)),
            clock_drift: Some(clock_hz() / self.clock_hz - 1.0),
        })
    }
}

/// Cycles per second of the core that this thread is on: steps of one cycle each, the shortest of a few short spins, so that an interruption of one is no
/// slower clock.
#[must_use]
pub fn clock_hz() -> f64 {
    const STEPS: u64 = 100_000 / SPIN_UNROLL as u64 * SPIN_UNROLL as u64;
    const SPINS: usize = 9;
    let one = || {
        let start = Instant::now();
        spin(STEPS);
        start.elapsed().as_secs_f64()
    };
    let shortest = (0..SPINS).map(|_| one()).fold(f64::INFINITY, f64::min);
    STEPS as f64 / shortest.max(1e-12)
}

fn steal_ticks(cpu: CpuId) -> Option<u64> {
    cpu_time::all(Path::new("/")).ok()?.into_iter().find(|time| time.cpu == cpu).map(|time| time.stolen_ticks)
}

/// Times that the calling thread had to leave its CPU to another one, so far.
pub fn involuntary_switches() -> u64 {
    // SAFETY: all-zero is a valid value of this struct of numbers, and the call only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    u64::try_from(usage.ru_nivcsw).unwrap_or(0)
}

/// Processor time of the calling thread so far.
pub fn processor_time() -> Duration {
    // SAFETY: all-zero is a valid value of this struct of numbers, and the call only writes to it.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        time
    };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn waited() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    //! Figures written here, and this thread under pressure.

    use super::*;

    #[test]
    fn only_what_is_noteworthy_is_told() {
        let quiet = Disturbance {
            steal_share: Some(0.001),
            waiting_share: Some(0.0),
            clock_drift: Some(-0.01),
            involuntary_switches: 0,
        };
        assert!(quiet.remarks().is_empty());
        let loud = Disturbance {
            steal_share: Some(0.3),
            waiting_share: None,
            clock_drift: Some(-0.25),
            involuntary_switches: 1,
        };
        assert_eq!(loud.remarks(), ["30 % of the time stolen", "clock changed by -25 %", "preempted once"]);
        let both = quiet.and(&loud);
        assert_eq!((both.steal_share, both.waiting_share, both.clock_drift), (Some(0.3), Some(0.0), Some(-0.25)));
    }

    #[test]
    fn a_thread_that_shares_its_cpu_is_seen_to_wait() {
        let cpu = *crate::Permit::of_this_process().cpus.iter().next().expect("a CPU");
        let [stop, is_there] = [const { std::sync::atomic::AtomicBool::new(false) }; 2];
        let seen = std::thread::scope(|scope| {
            scope.spawn(|| {
                crate::pin::pin(cpu).expect("ours");
                is_there.store(true, std::sync::atomic::Ordering::Relaxed);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    spin(10_000);
                }
            });
            let watcher = scope.spawn(|| {
                crate::pin::pin(cpu).expect("ours");
                // On a busy machine the other one may be long in coming.
                while !is_there.load(std::sync::atomic::Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                let watch = Watch::begin(cpu);
                let end = Instant::now() + Duration::from_millis(300);
                while Instant::now() < end {
                    spin(10_000);
                }
                watch.end().expect("its CPU")
            });
            let seen = watcher.join().expect("no panic");
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            seen
        });
        assert!(seen.involuntary_switches > 0, "{seen:?}");
        if let Some(share) = seen.waiting_share {
            assert!(share > 0.1, "{seen:?}");
        }
    }

    #[test]
    fn the_clock_is_a_plausible_one() {
        let hz = clock_hz();
        assert!((1e8..1e10).contains(&hz), "{hz} Hz");
    }
}
