//! Latency under load: a chase on one CPU while its neighbours run a kernel at a chosen pace, from idle to full speed.
//!
//! A neighbour works in blocks and, after each, waits until its pace allows the next one. It does not catch up on lost time, because that would make bursts.
//! The bytes that were moved are counted, not assumed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use numapilot_machine::CpuId;

use crate::disturbance::{Disturbance, Watch};
use crate::error::MeasureError;
use crate::kernels::{Arrays, CHUNK, Isa, Kernel};
use crate::latency::{Chase, Runner};
use crate::pin::pin;
use crate::results::{CurvePoint, Figure};
use crate::stats::{Better, Spread, undisturbed};
use crate::threads::{AtEnd, spawn};

/// Elements of each array in a block: 16 KiB, as in programs side by side (`together`), so that a neighbour without a pause works at its full speed: after
/// each block it counts and looks at the clock, which of blocks of 4 KiB took a quarter of the time. A slow pace is even enough: a block lasts a microsecond.
const BLOCK: usize = 16 * CHUNK;
/// Neighbours run for this long before the chase is timed.
const SETTLE: Duration = Duration::from_millis(5);
/// Time limit for all neighbours to start.
const PATIENCE: Duration = Duration::from_secs(2);

/// A chase with its CPU.
pub struct Chaser<'a> {
    /// The ring that the chase follows.
    pub chase: &'a Chase,
    /// CPU that runs the chase.
    pub cpu: CpuId,
}

/// Neighbours with their memory.
pub struct Neighbours<'a> {
    /// Their arrays, three each.
    pub memory: &'a mut [f64],
    /// CPUs that run the kernel, one thread on each.
    pub cpus: &'a [CpuId],
    /// The bandwidth kernel that they run.
    pub kernel: Kernel,
    /// Instruction set of the kernel.
    pub isa: Isa,
}

/// The chase's latency at each share of the neighbours' full speed (ascending; 0: idle), each for this long.
///
/// # Errors
/// If a CPU went offline, or left the affinity mask of this process.
pub fn curve(
    chaser: &Chaser<'_>,
    neighbours: &mut Neighbours<'_>,
    shares: &[f64],
    each: Duration,
) -> Result<Vec<CurvePoint>, MeasureError> {
    // Normal numbers, so that no kernel computes with NaN or slow denormal numbers; once for all points.
    neighbours.memory.fill(1.0);
    let full = point(chaser, neighbours, None, each)?;
    let full_each = full.1 / neighbours.cpus.len().max(1) as f64;
    let mut points = Vec::with_capacity(shares.len());
    for &share in shares {
        let (mut found, _) = match share {
            share if share >= 1.0 => point(chaser, neighbours, None, each)?,
            share => point(chaser, neighbours, Some(share * full_each), each)?,
        };
        found.asked_share = share;
        points.push(found);
    }
    Ok(points)
}

/// One point at this pace in bytes per second of each neighbour (`None`: no pause; 0: they do not run); and what the neighbours moved per second.
fn point(
    chaser: &Chaser<'_>,
    neighbours: &mut Neighbours<'_>,
    pace: Option<f64>,
    time: Duration,
) -> Result<(CurvePoint, f64), MeasureError> {
    let stop = AtomicBool::new(false);
    let moved = AtomicU64::new(0);
    let count = neighbours.cpus.len();
    let slice = (neighbours.memory.len() / count.max(1) / (3 * BLOCK)).max(1) * 3 * BLOCK;
    let (kernel, isa) = (neighbours.kernel, neighbours.isa);
    let runs = pace != Some(0.0);
    std::thread::scope(|scope| {
        let mut helpers = Vec::new();
        let parts = neighbours.memory.chunks_exact_mut(slice).zip(neighbours.cpus);
        for (memory, &cpu) in parts.filter(|_| runs) {
            let (stop, moved) = (&stop, &moved);
            let helper = spawn(scope, move || neighbour(memory, cpu, (kernel, isa), pace, (stop, moved)));
            helpers.push(helper.inspect_err(|_| stop.store(true, Ordering::Relaxed))?);
        }
        let timed = spawn(scope, || {
            let _ends = AtEnd(|| stop.store(true, Ordering::Relaxed));
            pin(chaser.cpu).and_then(|()| {
                let mut runner = Runner::new(chaser.chase);
                let patience = Instant::now() + PATIENCE;
                while runs && moved.load(Ordering::Relaxed) == 0 && Instant::now() < patience {
                    std::thread::yield_now();
                }
                std::thread::sleep(if runs { SETTLE } else { Duration::ZERO });
                let watch = Watch::begin(chaser.cpu);
                let (values, neighbours_per_s, seconds) =
                    rate(|| moved.load(Ordering::Relaxed), || runner.repetitions(time));
                let own_per_s = (values.len() * runner.loads()) as f64 * 64.0 / seconds;
                Ok((values, watch.end()?, neighbours_per_s, own_per_s))
            })
        });
        let timed = timed.inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
        let timed = timed.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let mut disturbance = Disturbance::default();
        for helper in helpers {
            let seen = helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            disturbance = disturbance.and(&seen);
        }
        let (values, own, neighbours_per_s, own_per_s) = timed?;
        let mut ns = Figure::of(&undisturbed(&values), Better::Low, own.and(&disturbance))?;
        // Under load there is no best repetition: how others queue is what is measured. The median stands for all.
        ns.spread = Spread { best: ns.spread.median, confirmed: true, ..ns.spread };
        Ok((CurvePoint { asked_share: 0.0, bytes_per_s: neighbours_per_s + own_per_s, ns }, neighbours_per_s))
    })
}

/// What a counter rises by per second during some work, with the work's result and its seconds. The clock runs for longer than is counted, so that a thread
/// that loses its CPU between the two sees a lower rate, and never one that nobody had.
fn rate<T>(count: impl Fn() -> u64, work: impl FnOnce() -> T) -> (T, f64, f64) {
    let start = Instant::now();
    let before = count();
    let done = work();
    let counted = count() - before;
    let seconds = start.elapsed().as_secs_f64();
    (done, counted as f64 / seconds, seconds)
}

/// Blocks of a kernel at a pace, until it is stopped.
fn neighbour(
    memory: &mut [f64],
    cpu: CpuId,
    (kernel, isa): (Kernel, Isa),
    pace: Option<f64>,
    (stop, moved): (&AtomicBool, &AtomicU64),
) -> Result<Disturbance, MeasureError> {
    pin(cpu)?;
    let watch = Watch::begin(cpu);
    let length = memory.len() / 3;
    let (a, rest) = memory.split_at_mut(length);
    let (b, c) = rest.split_at_mut(length);
    let mut arrays = Arrays { each: [a, b, &mut c[..length]] };
    let blocks = length / BLOCK;
    let bytes = (BLOCK * kernel.traffic_per_element()) as u64;
    let pause = pace.map_or(Duration::ZERO, |pace| Duration::from_secs_f64(bytes as f64 / pace.max(1.0)));
    let mut block = 0;
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        arrays.run_part(isa, kernel, block * BLOCK..(block + 1) * BLOCK);
        moved.fetch_add(bytes, Ordering::Relaxed);
        block += 1;
        if block == blocks {
            block = 0;
            // Kernels of one array go through all three.
            arrays.each.rotate_left(1);
        }
        due = (due + pause).max(Instant::now() - pause);
        while !pause.is_zero() && Instant::now() < due && !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }
    watch.end()
}

#[cfg(test)]
mod tests {
    //! A curve on this machine, if it has two CPUs.

    use super::*;
    use crate::results::Walk;

    /// A chaser that lost its CPU between the counter and the clock saw more traffic than there was.
    #[test]
    fn who_loses_its_cpu_between_the_counter_and_the_clock_sees_no_higher_rate() {
        let begun = Instant::now();
        // A counter of nanoseconds, and a reader that is away for a while after each look.
        let count = || {
            let ns = begun.elapsed().as_nanos() as u64;
            std::thread::sleep(Duration::from_millis(20));
            ns
        };
        let (done, per_s, seconds) = rate(count, || 7);
        assert!(done == 7 && per_s > 0.0 && per_s <= 1e9 && seconds >= 0.04, "{per_s} per s in {seconds} s");
    }

    #[test]
    fn pace_is_kept_and_counted() {
        let cpus: Vec<CpuId> = crate::Permit::of_this_process().cpus.into_iter().collect();
        if cpus.len() < 2 {
            return numapilot_not_run::not_run!(TwoCpus, "one CPU only");
        }
        let mut ring = vec![[0_u64; 512]; 64];
        // SAFETY: the memory outlives the chase and nobody else uses it. (A vector of words is aligned for them; pages matter only for timing.)
        let chase =
            unsafe { Chase::lay(ring.as_mut_ptr().cast(), 64 * 4096, Walk::Random, 64, 1, &[]) }.expect("a ring");
        let mut memory = vec![[0.0_f64; 8]; 3 * 4 * BLOCK / 8 + 8];
        let flat = memory.as_flattened_mut();
        let skip = flat.as_ptr().align_offset(64);
        let mut neighbours = Neighbours {
            memory: &mut flat[skip..skip + 12 * BLOCK],
            cpus: &cpus[1..2],
            kernel: Kernel::Read,
            isa: Isa::best(),
        };
        let chaser = Chaser { chase: &chase, cpu: cpus[0] };
        // On a busy host the neighbour is kept from its CPU at times: it is slower then than was asked, and never faster. Of the time that it was not kept from
        // it (each may wait, and the greater share is told), it makes at least a tenth of the pace.
        let attempts = (0..20).map(|_| {
            let (found, slow) =
                point(&chaser, &mut neighbours, Some(50e6), Duration::from_millis(50)).expect("a point");
            assert!(slow < 80e6, "asked for 50 MB/s, got {slow}");
            (slow, 5e6 * (1.0 - found.ns.disturbance.waiting_share.unwrap_or(0.0)))
        });
        let slow: Vec<(f64, f64)> = attempts.take_while(|(slow, least)| slow < least).collect();
        assert!(slow.len() < 20, "asked for 50 MB/s, got {slow:?}");
        let idle = point(&chaser, &mut neighbours, Some(0.0), Duration::from_millis(10)).expect("a point").1;
        assert_eq!(idle, 0.0);
        // A host that keeps either from its CPU in one of the points, which last 20 ms, makes that one less.
        let rises = (0..20).any(|_| {
            let curve = curve(&chaser, &mut neighbours, &[0.0, 0.5, 1.0], Duration::from_millis(20)).expect("a curve");
            assert_eq!(curve.len(), 3);
            curve[0].bytes_per_s < curve[2].bytes_per_s
        });
        assert!(rises, "neighbours bring no more traffic");
    }
}
