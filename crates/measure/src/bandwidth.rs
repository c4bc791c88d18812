//! Bandwidth: a kernel on some CPUs at once over slices of three arrays, repetition after repetition from a common start, results checked.
//!
//! A repetition covers one window of each slice, the next one the next window, so that all of the memory is used however short a repetition is.
//! Its time is that from the first start to the last end, as STREAM has it. A rate is that of a pass over all windows: of a thousand windows of half a
//! millisecond each, the best is what luck made of it, on virtual machines up to twice what the machine gives for any longer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use numapilot_machine::CpuId;

use crate::disturbance::{Disturbance, Watch, involuntary_switches};
use crate::error::MeasureError;
use crate::kernels::{Arrays, CHUNK, Expected, Isa, Kernel};
use crate::pin::pin;
use crate::results::Figure;
use crate::stats::{Better, QUIET_MIN, undisturbed};
use crate::threads::{AtEnd, spawn};

/// Windows of a slice: at least as many repetitions are made, so that each is used.
const WINDOWS: usize = 8;
/// Elements between those that are looked at after a kernel: one in each page, but not the same of each.
const CHECK_STEP: usize = 509;
/// No core moves more than this many bytes per cycle to or from its caches: two loads and a store of 64 bytes. A rate above it is a slip of the clock.
const BYTES_PER_CYCLE_MAX: f64 = 192.0;

/// One thread's part of the arrays.
struct Slice<'a> {
    cpu: CpuId,
    arrays: Arrays<'a>,
    /// Expected content of each window.
    expected: [Expected; WINDOWS],
}

/// Three arrays, cut in slices for threads.
pub struct Bench<'a> {
    slices: Vec<Slice<'a>>,
    isa: Isa,
    elements: usize,
}

impl<'a> Bench<'a> {
    /// Cuts `memory` in three arrays and each in a slice per CPU, and writes what kernels begin with, each thread its own.
    ///
    /// # Errors
    /// If a CPU went offline, or left the affinity mask of this process.
    pub fn new(memory: &'a mut [f64], cpus: &[CpuId], isa: Isa) -> Result<Bench<'a>, MeasureError> {
        let unit = CHUNK * WINDOWS;
        let per_slice = (memory.len() / 3 / cpus.len().max(1) / unit).max(1) * unit;
        let per_array = memory.len() / 3;
        let mut parts: [Vec<&'a mut [f64]>; 3] = [const { Vec::new() }; 3];
        // Arrays begin at a chunk, thus at a line.
        for (array, part) in memory.chunks_exact_mut(per_array / CHUNK * CHUNK).take(3).zip(&mut parts) {
            part.extend(array.chunks_exact_mut(per_slice).take(cpus.len()));
        }
        let [a, b, c] = parts;
        let mut slices: Vec<Slice<'a>> = a
            .into_iter()
            .zip(b)
            .zip(c)
            .zip(cpus)
            .map(|(((a, b), c), &cpu)| Slice {
                cpu,
                arrays: Arrays { each: [a, b, c] },
                expected: [Expected::start(); WINDOWS],
            })
            .collect();
        on_each(&mut slices, &SpinBarrier::new(0), |slice| {
            slice.arrays.fill();
            Ok(())
        })?;
        Ok(Bench { slices, isa, elements: per_slice })
    }

    /// Whether every CPU got a slice: the memory may be too small for all of them.
    pub fn threads(&self) -> usize {
        self.slices.len()
    }

    /// All of its memory, for whoever only reads it between two kernels.
    pub fn memory(&mut self) -> Vec<&mut [f64]> {
        self.slices.iter_mut().flat_map(|slice| &mut slice.arrays.each).map(|array| &mut **array).collect()
    }

    /// Bytes of the arrays that a kernel touches.
    pub fn bytes(&self, kernel: Kernel) -> u64 {
        let arrays = if rotates(kernel) { 3 } else { touched(kernel) };
        (arrays * self.slices.len() * self.elements * size_of::<f64>()) as u64
    }

    /// Runs a kernel for this long; bytes per second as STREAM counts. `clock_hz` is the cores' clock, for a bound on what can be.
    ///
    /// # Errors
    /// A CPU is gone, or a result is wrong.
    pub fn time(&mut self, kernel: Kernel, time: Duration, clock_hz: f64) -> Result<Figure, MeasureError> {
        let threads = self.slices.len();
        let (isa, window) = (self.isa, self.elements / WINDOWS);
        let barrier = SpinBarrier::new(threads);
        let stamps = Mutex::new(Stamps::new(threads));
        let seen = Mutex::new(Disturbance::default());
        let end = Instant::now() + time;
        let origin = Instant::now();
        on_each(&mut self.slices, &barrier, |slice| {
            let watch = Watch::begin(slice.cpu);
            for repetition in 0.. {
                // All see the same answer: the last to come decides.
                if !barrier.wait(|| repetition < WINDOWS * rounds(kernel) || Instant::now() < end) {
                    break;
                }
                let (started, switches) = (origin.elapsed(), involuntary_switches());
                let sum = slice.run(isa, kernel, repetition, window);
                let (ended, disturbed) = (origin.elapsed(), involuntary_switches() != switches);
                let mut stamps = stamps.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                stamps.add(repetition, (started, ended), disturbed);
                drop(stamps);
                sum?;
            }
            let disturbance = watch.end()?;
            let mut all = seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *all = all.and(&disturbance);
            slice.check(isa, kernel)
        })?;
        let stamps = stamps.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let bytes = (window * threads * kernel.bytes_per_element()) as f64;
        let most = BYTES_PER_CYCLE_MAX * clock_hz * threads as f64;
        let seconds: Vec<(f64, bool)> = stamps.seconds().filter(|(seconds, _)| bytes / seconds <= most).collect();
        let rates: Vec<f64> = passes(&undisturbed(&seconds)).iter().map(|seconds| bytes / seconds).collect();
        Figure::of(&rates, Better::High, seen.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// Mean times of one window in each pass over all of them, from times of windows that followed one another, perhaps with disturbed ones between; in parts of a
/// pass where there are too few for a spread.
fn passes(seconds: &[f64]) -> Vec<f64> {
    let each = WINDOWS.min(seconds.len() / QUIET_MIN).max(1);
    seconds.chunks_exact(each).map(|windows| windows.iter().sum::<f64>() / each as f64).collect()
}

/// Kernels of one array take the arrays in turn, so that all of the memory is used.
fn rotates(kernel: Kernel) -> bool {
    touched(kernel) == 1
}

fn rounds(kernel: Kernel) -> usize {
    if rotates(kernel) { 3 } else { 1 }
}

/// Number of arrays that a kernel uses.
fn touched(kernel: Kernel) -> usize {
    match kernel {
        Kernel::Read | Kernel::Write | Kernel::WriteNt | Kernel::Mix1To1 => 1,
        Kernel::Copy | Kernel::Scale | Kernel::CopyNt | Kernel::ScaleNt | Kernel::Mix2To1 => 2,
        Kernel::Add | Kernel::Triad | Kernel::AddNt | Kernel::TriadNt | Kernel::Mix3To1 => 3,
    }
}

impl Slice<'_> {
    /// One repetition: the kernel over one window.
    fn run(&mut self, isa: Isa, kernel: Kernel, repetition: usize, window: usize) -> Result<(), MeasureError> {
        let index = repetition % WINDOWS;
        let turn = if rotates(kernel) { repetition / WINDOWS % 3 } else { 0 };
        self.turn(turn);
        let found = self.arrays.run_part(isa, kernel, index * window..(index + 1) * window);
        let each = self.expected[index].after(kernel);
        self.turn((3 - turn) % 3);
        let expected = each * window as f64;
        // Sums of up to 10^8 equal numbers, in some order.
        if (found - expected).abs() > 1e-6 * expected.abs().max(1.0) {
            return Err(MeasureError::WrongResult { kernel: kernel.word(), isa: isa.word(), found, expected });
        }
        Ok(())
    }

    /// Lets each array take the place of the one before.
    fn turn(&mut self, by: usize) {
        self.arrays.each.rotate_left(by);
        self.expected.iter_mut().for_each(|expected| expected.each.rotate_left(by));
    }

    /// Looks at elements all over the slice.
    fn check(&self, isa: Isa, kernel: Kernel) -> Result<(), MeasureError> {
        let window = self.arrays.each[0].len() / WINDOWS;
        for (place, array) in self.arrays.each.iter().enumerate() {
            let wrong = (0..array.len()).step_by(CHECK_STEP).chain([array.len() - 1]).find(|&index| {
                let expected = self.expected[index / window].each[place];
                array[index] != expected
            });
            if let Some(index) = wrong {
                let expected = self.expected[index / window].each[place];
                return Err(MeasureError::WrongResult {
                    kernel: kernel.word(),
                    isa: isa.word(),
                    found: array[index],
                    expected,
                });
            }
        }
        Ok(())
    }
}

/// Runs `work` on a thread per slice, each on its CPU. A thread that ends, or cannot start, ends `barrier` for all: the others would wait for it for ever.
fn on_each<'a>(
    slices: &mut [Slice<'a>],
    barrier: &SpinBarrier,
    work: impl Fn(&mut Slice<'a>) -> Result<(), MeasureError> + Sync,
) -> Result<(), MeasureError> {
    let pinned = |slice: &mut Slice<'a>| {
        let _ends = AtEnd(|| barrier.stop());
        pin(slice.cpu)?;
        work(slice)
    };
    std::thread::scope(|scope| {
        let starts = slices.iter_mut().map(|slice| spawn(scope, || pinned(slice)).inspect_err(|_| barrier.stop()));
        let threads = starts.collect::<Result<Vec<_>, _>>()?;
        let ended: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        ended.into_iter().try_for_each(|thread| match thread {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

/// A barrier that spins, so that threads leave it together, and yields, so that it works on fewer CPUs than threads. Whoever comes last decides for all
/// whether there is another round.
pub struct SpinBarrier {
    threads: usize,
    waiting: AtomicUsize,
    /// Twice the number of rounds, plus one once there are no more.
    round: AtomicU64,
}

impl SpinBarrier {
    /// Makes a barrier for this many threads.
    pub fn new(threads: usize) -> SpinBarrier {
        SpinBarrier { threads, waiting: AtomicUsize::new(0), round: AtomicU64::new(0) }
    }

    /// Waits for the others; whether to go on.
    pub fn wait(&self, go_on: impl FnOnce() -> bool) -> bool {
        let before = self.round.load(Ordering::Acquire);
        if before & 1 == 1 {
            return false;
        }
        if self.waiting.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.waiting.store(0, Ordering::Relaxed);
            let more = go_on();
            // `stop` may have come in between: it stays.
            let step = if more { 2 } else { 1 };
            let _ = self.round.compare_exchange(before, before + step, Ordering::AcqRel, Ordering::Acquire);
            return more && self.round.load(Ordering::Acquire) & 1 == 0;
        }
        let mut turns = 0_u32;
        loop {
            let now = self.round.load(Ordering::Acquire);
            if now != before {
                return now & 1 == 0;
            }
            turns += 1;
            if turns.is_multiple_of(1 << 12) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }

    /// Ends it for all, now.
    pub fn stop(&self) {
        self.round.fetch_or(1, Ordering::AcqRel);
    }
}

/// First start and last end of each repetition, how many threads ended it, and whether one of them lost its CPU meanwhile.
struct Stamps {
    threads: usize,
    each: Vec<(Duration, Duration, usize, bool)>,
}

impl Stamps {
    fn new(threads: usize) -> Stamps {
        Stamps { threads, each: Vec::new() }
    }

    fn add(&mut self, repetition: usize, (started, ended): (Duration, Duration), disturbed: bool) {
        if self.each.len() <= repetition {
            self.each.resize(repetition + 1, (Duration::MAX, Duration::ZERO, 0, false));
        }
        let entry = &mut self.each[repetition];
        *entry = (entry.0.min(started), entry.1.max(ended), entry.2 + 1, entry.3 | disturbed);
    }

    /// Results of the repetitions that all threads completed.
    fn seconds(&self) -> impl Iterator<Item = (f64, bool)> {
        let whole = self.each.iter().filter(|entry| entry.2 == self.threads);
        whole.map(|(started, ended, _, disturbed)| (ended.saturating_sub(*started).as_secs_f64(), *disturbed))
    }
}

#[cfg(test)]
mod tests {
    //! Kernels on small arrays of this process.

    use super::*;

    /// Aligned to a line, as regions are.
    fn memory(elements: usize) -> Vec<[f64; 8]> {
        vec![[0.0; 8]; elements / 8 + 8]
    }

    fn aligned(memory: &mut [[f64; 8]]) -> &mut [f64] {
        let flat = memory.as_flattened_mut();
        let skip = flat.as_ptr().align_offset(64);
        &mut flat[skip..]
    }

    fn cpus(count: usize) -> Vec<CpuId> {
        let all: Vec<CpuId> = crate::Permit::of_this_process().cpus.into_iter().collect();
        (0..count).map(|index| all[index % all.len()]).collect()
    }

    #[test]
    fn every_kernel_runs_on_several_threads_and_is_right() {
        let mut memory = memory(3 * 40_000);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.works()) {
            let mut bench = Bench::new(aligned(&mut memory), &cpus(3), isa).expect("CPUs");
            assert_eq!(bench.threads(), 3);
            for kernel in Kernel::ALL {
                let figure = bench.time(kernel, Duration::from_millis(2), 5e9).expect("a right result");
                // At least one pass, perhaps in parts.
                assert!(figure.spread.repetitions >= QUIET_MIN && figure.best() > 0.0, "{kernel:?}: {figure:?}");
            }
        }
    }

    /// Of 1,700 windows on a virtual machine the best were 42 GB/s, the middle one 30, and two programs that read together had 33.
    #[test]
    fn a_lucky_window_is_no_bandwidth() {
        let mut windows = vec![1e-3; 80];
        windows[3] = 0.4e-3;
        windows[40] = 0.4e-3;
        let passes = passes(&windows);
        assert_eq!(passes.len(), 10);
        assert!(passes.iter().all(|seconds| (0.9e-3..=1e-3 + 1e-12).contains(seconds)), "{passes:?}");
        assert_eq!(super::passes(&windows[..10]).len(), QUIET_MIN, "parts of a pass");
        assert_eq!(super::passes(&windows[..3]), [1e-3; 3]);
        assert!(super::passes(&[]).is_empty());
    }

    #[test]
    fn a_wrong_result_is_no_figure() {
        let mut memory = memory(3 * 20_000);
        let mut bench = Bench::new(aligned(&mut memory), &cpus(2), Isa::Portable).expect("CPUs");
        bench.slices[1].arrays.each[0][CHECK_STEP * 3] = 17.0;
        let error = bench.time(Kernel::Read, Duration::ZERO, 5e9).expect_err("a wrong sum");
        assert!(matches!(error, MeasureError::WrongResult { kernel: "read", .. }), "{error}");
        let mut bench = Bench::new(aligned(&mut memory), &cpus(1), Isa::Portable).expect("CPUs");
        bench.time(Kernel::Copy, Duration::ZERO, 5e9).expect("right");
        bench.slices[0].arrays.each[1][CHECK_STEP] = 17.0;
        let error = bench.time(Kernel::Copy, Duration::ZERO, 5e9).expect_err("a wrong element");
        assert!(error.to_string().contains("copy (portable) computed 17 instead of 2"), "{error}");
    }

    /// Make sure that this ends: what hangs here spins on every CPU of a server.
    #[test]
    fn nobody_waits_for_a_thread_whose_cpu_is_gone() {
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut memory = memory(3 * 20_000);
            let mut bench = Bench::new(aligned(&mut memory), &cpus(2), Isa::Portable).expect("CPUs");
            bench.slices[1].cpu = CpuId(8190);
            let _ = done.send(bench.time(Kernel::Read, Duration::from_millis(2), 5e9).map(drop));
        });
        let answer = is_done.recv_timeout(Duration::from_secs(60)).expect("it ends");
        assert!(matches!(answer, Err(MeasureError::Pin { .. })), "{answer:?}");
    }

    #[test]
    fn nobody_waits_for_a_thread_that_panics() {
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let (mut memory, barrier) = (memory(3 * 20_000), SpinBarrier::new(2));
            let mut bench = Bench::new(aligned(&mut memory), &cpus(2), Isa::Portable).expect("CPUs");
            let is_first = std::sync::atomic::AtomicBool::new(true);
            let run = || {
                on_each(&mut bench.slices, &barrier, |_| {
                    assert!(!is_first.swap(false, Ordering::Relaxed), "the panic of this test");
                    while barrier.wait(|| true) {}
                    Ok(())
                })
            };
            let _ = done.send(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
        });
        assert!(is_done.recv_timeout(Duration::from_secs(60)).expect("it ends"));
    }

    #[test]
    fn rates_beyond_what_a_core_can_do_are_not_printed() {
        let mut memory = memory(3 * 20_000);
        let mut bench = Bench::new(aligned(&mut memory), &cpus(1), Isa::Portable).expect("CPUs");
        assert!(matches!(bench.time(Kernel::Copy, Duration::ZERO, 1.0), Err(MeasureError::NoFigure)));
    }

    #[test]
    fn a_meeting_holds_until_all_are_there_and_ends_for_all() {
        let (barrier, count) = (SpinBarrier::new(4), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut round = 0;
                    while barrier.wait(|| round < 50) {
                        round += 1;
                        count.fetch_add(1, Ordering::SeqCst);
                        assert!(count.load(Ordering::SeqCst) > (round - 1) * 4);
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::SeqCst), 200);
    }
}
