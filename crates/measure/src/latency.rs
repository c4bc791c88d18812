//! Chases: a ring of pointers laid through memory, and the time of each load that waits for the one before.

use std::time::{Duration, Instant};

use numapilot_kernel::actuator::page_bytes;
use numapilot_machine::CpuId;

use crate::disturbance::{Watch, involuntary_switches};
use crate::error::MeasureError;
use crate::kernels::{CHAINS, CHASE_UNROLL, chase, chase_many};
use crate::order::Ring;
use crate::pin::pin;
use crate::results::{Figure, Walk};
use crate::stats::{Better, undisturbed};
use crate::threads::spawn;

/// A repetition lasts about this long: far above the clock's grain, far below a scheduler's turn.
const REPETITION: Duration = Duration::from_millis(2);
/// Fewest repetitions of a figure.
const REPETITIONS_MIN: usize = 5;
/// Loads before timing, which bring a small array into the caches that it fits into, and page tables into theirs.
const WARM_LOADS: u64 = 1 << 21;
/// Loads until the first guess of how long one takes; and guesses, of which the least is taken: one that lost its CPU would make repetitions so short that
/// what is done between them takes longer.
const PROBE_LOADS: usize = 4096;
const PROBES: usize = 9;
/// Layers of a chase, at most: laying is as fast as memory with a few.
const LAYERS_MAX: usize = 16;

/// Memory with a ring laid through its beginning.
#[derive(Debug)]
pub struct Chase {
    /// The first slot in memory.
    base: *mut libc::c_void,
    /// The slot where the chase begins, in the same memory.
    start: *mut libc::c_void,
    ring: Ring,
    slots: u64,
    slot_bytes: usize,
}

// SAFETY: a thread that is handed the chase only reads the ring, which nobody writes while it exists: `lay` borrows the memory for its life, by contract of
// its caller in this crate.
unsafe impl Send for Chase {}
// SAFETY: as above.
unsafe impl Sync for Chase {}

/// A base address that threads may share: each writes slots of its own.
#[derive(Clone, Copy)]
struct Base(*mut u8);
// SAFETY: see `lay`: parts are disjoint.
unsafe impl Send for Base {}

impl Chase {
    /// Lays a ring through `bytes` from `base`, by threads on these CPUs (one, anywhere, where the list is empty).
    ///
    /// # Errors
    /// If a CPU went offline, or left the affinity mask of this process.
    ///
    /// # Safety
    /// The memory is mapped for writing, aligned to a page, and nobody else uses it until the last chase through it is done.
    pub unsafe fn lay(
        base: *mut u8,
        bytes: usize,
        walk: Walk,
        line_bytes: usize,
        seed: u64,
        cpus: &[CpuId],
    ) -> Result<Chase, MeasureError> {
        let slot_bytes = match walk {
            Walk::Strided(stride) => stride.max(size_of::<usize>()),
            Walk::Random | Walk::RandomInPages => line_bytes,
        };
        let count = (bytes / slot_bytes).max(1) as u64;
        let ring = match walk {
            Walk::Strided(_) => Ring::Strided { count },
            Walk::Random => Ring::random(count, seed),
            Walk::RandomInPages => Ring::paged(count, (page_bytes() as usize / slot_bytes).max(1) as u64, seed),
        };
        let slots = ring.len();
        let threads = cpus.len().clamp(1, LAYERS_MAX) as u64;
        let share = slots.div_ceil(threads);
        let shared = Base(base);
        std::thread::scope(|scope| {
            let layers = (0..threads)
                .map(|thread| {
                    let (ring, cpu) = (&ring, cpus.get(thread as usize).copied());
                    spawn(scope, move || {
                        let shared = shared;
                        cpu.map_or(Ok(()), pin)?;
                        for slot in thread * share..((thread + 1) * share).min(slots) {
                            let next = shared.0.wrapping_add(ring.next(slot) as usize * slot_bytes);
                            // SAFETY: within the memory (slot < count), aligned (slots are multiples of the word), and no other thread has this slot.
                            unsafe { shared.0.add(slot as usize * slot_bytes).cast::<*mut u8>().write(next) };
                        }
                        Ok::<(), MeasureError>(())
                    })
                })
                .collect::<Result<Vec<_>, _>>()?;
            layers.into_iter().try_for_each(|layer| match layer.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        Ok(Chase { base: base.cast(), start: base.cast(), ring, slots, slot_bytes })
    }

    /// Where chains that go side by side begin: at equal distances along the ring. A chain that began shortly behind another one would find its lines in the
    /// caches.
    fn starts(&self) -> [*mut libc::c_void; CHAINS] {
        std::array::from_fn(|chain| {
            let slot = self.ring.at(chain as u64 * self.slots / CHAINS as u64);
            self.base.cast::<u8>().wrapping_add(slot as usize * self.slot_bytes).cast()
        })
    }

    /// The slot at which the chase begins.
    #[cfg(test)]
    pub fn start(&self) -> *mut libc::c_void {
        self.start
    }

    /// Makes this many loads (a multiple of [`CHASE_UNROLL`]), and begins where they ended from then on: the beginning of the ring would soon be in the caches.
    pub fn go_on(&mut self, loads: usize) {
        // SAFETY: a slot of a ring that `lay` made, and so is every one after it.
        self.start = unsafe { chase(self.start, loads) };
    }

    /// Chases on a CPU for this long; nanoseconds per load, and how many loads were timed in all repetitions.
    ///
    /// # Errors
    /// If the CPU went offline, or left the affinity mask of this process.
    pub fn time(&self, cpu: CpuId, time: Duration) -> Result<(Figure, u64), MeasureError> {
        let mut loads = 0;
        let figure = timed(cpu, || {
            let mut runner = Runner::new(self);
            let watch = Watch::begin(cpu);
            let values = runner.repetitions(time);
            loads = (values.len() * runner.loads()) as u64;
            (watch, values)
        })?;
        Ok((figure, loads))
    }

    /// Chases [`CHAINS`] chains side by side on a CPU for this long; nanoseconds per load. The chains are equal stretches of the one ring.
    ///
    /// # Errors
    /// If the CPU went offline, or left the affinity mask of this process.
    pub fn time_side_by_side(&self, cpu: CpuId, time: Duration) -> Result<Figure, MeasureError> {
        timed(cpu, || {
            let mut chains = SideBySide::new(self);
            (Watch::begin(cpu), repetitions(|| chains.step(), time))
        })
    }
}

/// A figure of repetitions on a CPU; `work` begins the watch when it has warmed up.
fn timed(cpu: CpuId, work: impl FnOnce() -> (Watch, Vec<(f64, bool)>) + Send) -> Result<Figure, MeasureError> {
    std::thread::scope(|scope| {
        let runner = spawn(scope, move || {
            pin(cpu)?;
            let (watch, values) = work();
            Figure::of(&undisturbed(&values), Better::Low, watch.end()?)
        })?;
        match runner.join() {
            Ok(figure) => figure,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Repetitions for this long, but enough of them; each says whether this thread lost its CPU meanwhile.
fn repetitions(mut step: impl FnMut() -> f64, time: Duration) -> Vec<(f64, bool)> {
    let end = Instant::now() + time;
    let mut values = Vec::new();
    let mut switches = involuntary_switches();
    while values.len() < REPETITIONS_MIN || Instant::now() < end {
        let ns = step();
        let now = involuntary_switches();
        values.push((ns, now != switches));
        switches = now;
    }
    values
}

/// Chains side by side, under way on the calling thread.
struct SideBySide {
    ends: [*mut libc::c_void; CHAINS],
    rounds: usize,
}

impl SideBySide {
    /// Finds how many rounds a repetition needs.
    fn new(chase: &Chase) -> SideBySide {
        let mut chains = SideBySide { ends: chase.starts(), rounds: PROBE_LOADS / CHAINS };
        let ns = (0..PROBES).map(|_| chains.step()).fold(f64::INFINITY, f64::min);
        let rounds = REPETITION.as_nanos() as f64 / (ns.max(0.05) * CHAINS as f64);
        chains.rounds = (rounds as usize).clamp(1, 1 << 22);
        chains
    }

    /// One repetition; nanoseconds per load.
    fn step(&mut self) -> f64 {
        let start = Instant::now();
        // SAFETY: each end is a slot of the ring that `Chase::lay` made (`Chase::starts`), and so is every one after it.
        unsafe { chase_many(&mut self.ends, self.rounds) };
        start.elapsed().as_nanos() as f64 / (self.rounds * CHAINS) as f64
    }
}

/// A chase under way on the calling thread.
pub struct Runner {
    at: *mut libc::c_void,
    loads: usize,
}

impl Runner {
    /// Warms up, and finds how many loads a repetition needs.
    pub fn new(chase: &Chase) -> Runner {
        let mut runner = Runner { at: chase.start, loads: PROBE_LOADS };
        let warm_until = Instant::now() + 50 * REPETITION;
        let mut left = chase.slots.min(WARM_LOADS);
        while left > 0 && Instant::now() < warm_until {
            runner.step();
            left = left.saturating_sub(runner.loads as u64);
        }
        let ns = (0..PROBES).map(|_| runner.step()).fold(f64::INFINITY, f64::min);
        let loads = REPETITION.as_nanos() as f64 / ns.max(0.1);
        runner.loads = (loads as usize).clamp(CHASE_UNROLL, 1 << 26).next_multiple_of(CHASE_UNROLL);
        runner
    }

    /// One repetition; nanoseconds per load.
    pub fn step(&mut self) -> f64 {
        let start = Instant::now();
        // SAFETY: `at` is a slot of a ring that `Chase::lay` made, and so is every one after it.
        self.at = unsafe { chase(self.at, self.loads) };
        start.elapsed().as_nanos() as f64 / self.loads as f64
    }

    /// Repetitions for this long, but enough of them; each says whether this thread lost its CPU meanwhile.
    pub fn repetitions(&mut self, time: Duration) -> Vec<(f64, bool)> {
        repetitions(|| self.step(), time)
    }

    /// Loads of a repetition.
    pub fn loads(&self) -> usize {
        self.loads
    }
}

#[cfg(test)]
mod tests {
    //! Chases through small memory of this process.

    use super::*;

    #[repr(align(4096))]
    struct Memory([u8; 1 << 18]);

    #[test]
    fn every_walk_can_be_laid_and_timed() {
        let mut memory = Box::new(Memory([0; 1 << 18]));
        let cpu = *crate::Permit::of_this_process().cpus.iter().next().expect("a CPU");
        for walk in [Walk::Random, Walk::RandomInPages, Walk::Strided(128), Walk::Strided(64)] {
            // SAFETY: the memory is ours, and outlives the chase.
            let chase = unsafe { Chase::lay(memory.0.as_mut_ptr(), 1 << 18, walk, 64, 1, &[cpu]) }.expect("a ring");
            let (figure, loads) = chase.time(cpu, Duration::from_millis(10)).expect("a time");
            assert!(figure.spread.repetitions >= REPETITIONS_MIN);
            assert!(loads >= figure.spread.repetitions as u64 * CHASE_UNROLL as u64);
            assert!((0.1..1000.0).contains(&figure.best()), "{walk:?}: {figure:?}");
            let many = chase.time_side_by_side(cpu, Duration::from_millis(10)).expect("a time");
            assert!(many.spread.repetitions >= REPETITIONS_MIN && many.best() > 0.01, "{walk:?}: {many:?}");
        }
    }

    /// What a chain loads stays in the caches until about as many lines as they hold were loaded by all. Chains at random places of a ring through four times
    /// the caches found a quarter of their lines there.
    #[test]
    fn chains_side_by_side_are_equally_far_apart_along_the_ring() {
        let mut memory = Box::new(Memory([0; 1 << 18]));
        // SAFETY: the memory is ours, and outlives the chase.
        let chase = unsafe { Chase::lay(memory.0.as_mut_ptr(), 1 << 18, Walk::Random, 64, 1, &[]) }.expect("a ring");
        let mut positions = std::collections::HashMap::new();
        let mut at = chase.start();
        for position in 0..chase.slots {
            positions.insert(at as usize, position);
            // SAFETY: a slot of the ring holds the address of the next one.
            at = unsafe { at.cast::<*mut libc::c_void>().read() };
        }
        let mut begins: Vec<u64> = chase.starts().iter().map(|start| positions[&(*start as usize)]).collect();
        begins.sort_unstable();
        assert!(begins.windows(2).all(|pair| pair[1] - pair[0] == chase.slots / CHAINS as u64), "{begins:?}");
    }

    #[test]
    fn a_ring_of_one_slot_is_fine() {
        let mut memory = Box::new(Memory([0; 1 << 18]));
        // SAFETY: as above.
        let chase = unsafe { Chase::lay(memory.0.as_mut_ptr(), 64, Walk::Random, 64, 1, &[]) }.expect("a ring");
        assert_eq!(chase.slots, 1);
        assert!(Runner::new(&chase).step() > 0.0);
    }
}
