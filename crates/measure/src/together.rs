//! Memory-bound programs side by side: each with CPUs and memory of its own, started together, slice after slice; how many memory accesses each makes per
//! second. The loops are those of the measurements, so that a model of the machine can be checked against how such programs slow one another down.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use numapilot_machine::{CpuId, NodeId};

use crate::bandwidth::SpinBarrier;
use crate::disturbance::{involuntary_switches, processor_time};
use crate::error::MeasureError;
use crate::kernels::{Arrays, CHASE_UNROLL, CHUNK, Isa, Kernel};
use crate::latency::Chase;
use crate::options::Pages;
use crate::pin::{pin, still_on};
use crate::region::{Region, Wanted};
use crate::results::{Target, Walk};
use crate::stats::{Better, Spread, quiet_or_all};
use crate::threads::{AtEnd, spawn};

/// Elements of each array in a step: 16 KiB, microseconds, so that a slice ends on time and the clock is looked at seldom.
const BLOCK: usize = 16 * CHUNK;
/// A slice does not count if a thread began later than the first by more than this share of the slice.
const LATE_SHARE: f64 = 0.05;

/// A run with fewer undisturbed slices than this is disturbed: then all of its slices count.
const QUIET_MIN: usize = 2;
/// What sees whether the machine is still the same. Slices are shorter than a scheduler's turn, so that some are whole on a busy machine too.
pub const PROBE: Pace = Pace { slice: Duration::from_millis(2), quiet: 3, most: 12 };

/// The activity of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Activity {
    /// A chase through random lines: each load waits for the one before.
    Chase,
    /// A bandwidth kernel over the program's arrays.
    Stream(Kernel),
    /// Some loads of a chase, then a block of reading, in turn.
    Mixed,
}

impl Activity {
    /// Name of the activity, as reports print it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Activity::Chase => "chase",
            Activity::Stream(kernel) => kernel.word(),
            Activity::Mixed => "mixed",
        }
    }

    /// Share of its memory accesses that write.
    #[must_use]
    pub fn write_share(self) -> f64 {
        match self {
            Activity::Chase | Activity::Mixed => 0.0,
            Activity::Stream(kernel) => kernel.model_accesses().1,
        }
    }
}

/// CPUs and memory of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Seat {
    /// Node of the memory.
    pub memory: NodeId,
    /// CPUs, a thread on each.
    pub cpus: Vec<CpuId>,
    /// Bytes of its arrays, and again of its chases, all threads together.
    pub bytes: usize,
    /// Kind of pages of the memory.
    pub pages: Pages,
    /// Bytes of a large page.
    pub large_page_bytes: usize,
    /// Whether the machine has only one node with memory, so that binding is not needed.
    pub single_node: bool,
    /// Bytes of a cache line.
    pub line_bytes: usize,
}

/// A seat with its memory, ready to run any [`Activity`].
#[derive(Debug)]
pub struct Program {
    cpus: Vec<CpuId>,
    arrays: Region,
    chases: Vec<Chase>,
    /// Holds the rings that `chases` go through.
    rings: Region,
}

/// The lengths of a run of programs side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Length of a slice.
    pub slice: Duration,
    /// Number of undisturbed slices after which the run ends.
    pub quiet: usize,
    /// Greatest number of slices.
    pub most: usize,
}

/// One program during one slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    /// Memory accesses per second of its threads' processor time, all threads together, as the traffic model counts them.
    pub per_s: f64,
    /// Whether a thread of any of the programs lost its CPU, or began late.
    pub is_disturbed: bool,
}

impl Program {
    /// Takes the memory, shows that it is where it should be, and lays the chases.
    ///
    /// # Errors
    /// No memory, no right to bind it, it is not where it should be, or a CPU is gone.
    pub fn new(seat: &Seat) -> Result<Program, MeasureError> {
        let target = Target::Node(seat.memory);
        let region = |purpose| {
            Region::new(&Wanted {
                bytes: seat.bytes.max(seat.cpus.len() * 3 * BLOCK * size_of::<f64>()),
                target: &target,
                pages: seat.pages,
                large_page_bytes: seat.large_page_bytes,
                single_node: seat.single_node,
                fillers: &seat.cpus,
                purpose,
            })
        };
        let (mut arrays, rings) = (region("arrays")?, region("a chase")?);
        // Normal numbers, so that no kernel computes with NaN or slow denormal numbers.
        arrays.as_doubles().fill(1.0);
        let share = rings.bytes() / seat.cpus.len().max(1) / 4096 * 4096;
        let mut chases = Vec::new();
        for (index, cpu) in seat.cpus.iter().enumerate() {
            let base = rings.base().wrapping_add(index * share);
            // SAFETY: parts of a region are disjoint and aligned to a page; the region lives as long as the chases and nobody writes to it.
            let laid = unsafe { Chase::lay(base, share, Walk::Random, seat.line_bytes, 1 + index as u64, &[*cpu]) };
            chases.push(laid?);
        }
        Ok(Program { cpus: seat.cpus.clone(), arrays, chases, rings })
    }

    /// Share of its memory in large pages, where the kernel shows it.
    #[must_use]
    pub fn large_share(&self) -> Option<f64> {
        self.arrays.large_share.zip(self.rings.large_share).map(|(arrays, rings)| arrays.min(rings))
    }

    /// Number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.cpus.len()
    }

    fn workers(&mut self, activity: Activity) -> Vec<Worker<'_>> {
        let length = self.arrays.bytes() / size_of::<f64>() / self.cpus.len().max(1) / (3 * BLOCK) * BLOCK;
        let parts = self.arrays.as_doubles().chunks_exact_mut(3 * length);
        let threads = parts.zip(&self.cpus).zip(&mut self.chases);
        threads
            .map(|((part, cpu), chase)| {
                let (a, rest) = part.split_at_mut(length);
                let (b, c) = rest.split_at_mut(length);
                Worker { cpu: *cpu, activity, arrays: Arrays { each: [a, b, c] }, block: 0, chase: Some(chase) }
            })
            .collect()
    }
}

/// A thread of a program with its part of the memory.
struct Worker<'a> {
    cpu: CpuId,
    activity: Activity,
    arrays: Arrays<'a>,
    block: usize,
    /// `None` for those that only read.
    chase: Option<&'a mut Chase>,
}

impl Worker<'_> {
    /// Some microseconds of work; how many memory accesses it was.
    fn step(&mut self, isa: Isa) -> f64 {
        match self.activity {
            Activity::Chase => self.chase(),
            Activity::Stream(kernel) => self.stream(isa, kernel),
            Activity::Mixed => self.chase() + self.stream(isa, Kernel::Read),
        }
    }

    fn chase(&mut self) -> f64 {
        let Some(chase) = &mut self.chase else { return 0.0 };
        chase.go_on(CHASE_UNROLL);
        CHASE_UNROLL as f64
    }

    fn stream(&mut self, isa: Isa, kernel: Kernel) -> f64 {
        self.arrays.run_part(isa, kernel, self.block * BLOCK..(self.block + 1) * BLOCK);
        self.block += 1;
        if (self.block + 1) * BLOCK > self.arrays.each[0].len() {
            self.block = 0;
            // Kernels of one array go through all three.
            self.arrays.each.rotate_left(1);
        }
        kernel.model_accesses().0 * (BLOCK * size_of::<f64>()) as f64 / numapilot_traffic::LINE_BYTES
    }
}

/// Accesses of one thread in one slice.
#[derive(Clone, Copy, Debug)]
struct Stint {
    program: usize,
    began: Duration,
    per_s: f64,
    lost_cpu: bool,
}

/// Runs programs at the same time on their CPUs, slice after slice, each from a common start, until enough of them were undisturbed. A slice before the first
/// one warms up and does not count. The answer has, for each program, one entry per slice.
///
/// # Errors
/// If a CPU went offline, or left the affinity mask of this process.
pub fn run_together(programs: &mut [(&mut Program, Activity)], pace: Pace) -> Result<Vec<Vec<Slice>>, MeasureError> {
    let count = programs.len();
    let mut workers: Vec<(usize, Worker<'_>)> = Vec::new();
    for (index, (program, activity)) in programs.iter_mut().enumerate() {
        workers.extend(program.workers(*activity).into_iter().map(|worker| (index, worker)));
    }
    run_workers(workers, count, pace)
}

/// The rate of a run: the median of the slices that nothing disturbed, where there are enough of them; else of all, and it is a disturbed run.
#[must_use]
pub fn rate(slices: &[Slice]) -> (f64, bool) {
    let slices: Vec<(f64, bool)> = slices.iter().map(|slice| (slice.per_s, slice.is_disturbed)).collect();
    let (counted, is_disturbed) = quiet_or_all(&slices, QUIET_MIN);
    (Spread::of(&counted, Better::High).map_or(0.0, |spread| spread.median), is_disturbed)
}

/// What these CPUs read together from this memory (pieces that begin at a line), bytes per second, in some milliseconds: it tells states of the machine apart.
/// `None` where the memory is too small.
///
/// # Errors
/// If a CPU went offline, or left the affinity mask of this process.
pub fn probe(memory: Vec<&mut [f64]>, cpus: &[CpuId]) -> Result<Option<f64>, MeasureError> {
    let each = (3 * cpus.len()).div_ceil(memory.len().max(1)).max(1);
    let mut parts = Vec::new();
    for piece in memory {
        let length = piece.len() / each / BLOCK * BLOCK;
        if length > 0 {
            parts.extend(piece.chunks_exact_mut(length).take(each));
        }
    }
    let (mut parts, mut workers) = (parts.into_iter(), Vec::new());
    for &cpu in cpus {
        let (Some(a), Some(b), Some(c)) = (parts.next(), parts.next(), parts.next()) else { return Ok(None) };
        let arrays = Arrays { each: [a, b, c] };
        let activity = Activity::Stream(Kernel::Read);
        workers.push((0, Worker { cpu, activity, arrays, block: 0, chase: None }));
    }
    let ran = run_workers(workers, 1, PROBE)?;
    Ok(ran.first().map(|slices| rate(slices).0 * numapilot_traffic::LINE_BYTES))
}

/// Runs threads of `count` programs slice after slice.
fn run_workers(workers: Vec<(usize, Worker<'_>)>, count: usize, pace: Pace) -> Result<Vec<Vec<Slice>>, MeasureError> {
    let isa = Isa::best();
    let barrier = SpinBarrier::new(workers.len());
    let stints: Mutex<Vec<Vec<Stint>>> = Mutex::new(Vec::new());
    let locked = || stints.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // The last thread that reaches a slice calls it: all of the slices before it are complete then.
    let goes_on = || {
        let done = locked();
        let counted = done.get(1..).unwrap_or_default();
        let quiet = counted.iter().filter(|stints| !is_disturbed(stints, pace.slice)).count();
        quiet < pace.quiet && counted.len() < pace.most
    };
    let origin = Instant::now();
    std::thread::scope(|scope| {
        let threads = workers
            .into_iter()
            .map(|(program, mut worker)| {
                let (barrier, locked, goes_on) = (&barrier, &locked, &goes_on);
                let started = spawn(scope, move || {
                    let _ends = AtEnd(|| barrier.stop());
                    pin(worker.cpu)?;
                    for index in 0.. {
                        if !barrier.wait(goes_on) {
                            break;
                        }
                        let stint = work(&mut worker, program, (isa, pace.slice, origin));
                        let mut stints = locked();
                        if stints.len() <= index {
                            stints.resize_with(index + 1, Vec::new);
                        }
                        stints[index].push(stint);
                    }
                    still_on(worker.cpu)
                });
                started.inspect_err(|_| barrier.stop())
            })
            .collect::<Result<Vec<_>, _>>()?;
        let ended: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        ended.into_iter().try_for_each(|thread| match thread {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let stints = stints.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(gather(stints.get(1..).unwrap_or_default(), count, pace.slice))
}

/// One slice of one thread. What it did counts by its processor time: where it lost its CPU, the slice is disturbed, but its own pace is right.
fn work(worker: &mut Worker<'_>, program: usize, (isa, slice, origin): (Isa, Duration, Instant)) -> Stint {
    let (began, switches, used) = (Instant::now(), involuntary_switches(), processor_time());
    let mut accesses = 0.0;
    loop {
        accesses += worker.step(isa);
        if began.elapsed() >= slice {
            let seconds = processor_time().saturating_sub(used).max(Duration::from_nanos(1)).as_secs_f64();
            let lost_cpu = involuntary_switches() != switches;
            return Stint {
                program,
                began: began.saturating_duration_since(origin),
                per_s: accesses / seconds,
                lost_cpu,
            };
        }
    }
}

/// Whether a thread lost its CPU, or began later than the others.
fn is_disturbed(stints: &[Stint], slice: Duration) -> bool {
    let first = stints.iter().map(|stint| stint.began).min().unwrap_or_default();
    let late = |stint: &Stint| (stint.began - first).as_secs_f64() > LATE_SHARE * slice.as_secs_f64();
    stints.iter().any(|stint| stint.lost_cpu || late(stint))
}

/// Threads' slices to programs'.
fn gather(slices: &[Vec<Stint>], programs: usize, slice: Duration) -> Vec<Vec<Slice>> {
    let mut out = vec![Vec::with_capacity(slices.len()); programs];
    for stints in slices {
        let is_disturbed = is_disturbed(stints, slice);
        for (index, program) in out.iter_mut().enumerate() {
            let per_s = stints.iter().filter(|stint| stint.program == index).map(|stint| stint.per_s).sum();
            program.push(Slice { per_s, is_disturbed });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    //! Programs on the CPUs of this process, and slices put together.

    use super::*;

    #[test]
    fn every_activity_runs_alone_and_beside_another() {
        let permit = crate::Permit::of_this_process();
        let cpus: Vec<CpuId> = permit.cpus.iter().copied().collect();
        let memory = *permit.memory_nodes.iter().next().expect("a node");
        let seat = |cpu: CpuId| Seat {
            memory,
            cpus: vec![cpu],
            bytes: 1 << 20,
            pages: Pages::Base,
            large_page_bytes: 2 << 20,
            single_node: true,
            line_bytes: 64,
        };
        let mut first = Program::new(&seat(cpus[0])).expect("memory");
        let mut second = Program::new(&seat(cpus[cpus.len() - 1])).expect("memory");
        assert_eq!((first.threads(), first.large_share().is_none_or(|share| share <= 1.0)), (1, true));
        let pace = Pace { slice: Duration::from_micros(200), quiet: 3, most: 9 };
        for activity in
            [Activity::Chase, Activity::Stream(Kernel::Triad), Activity::Stream(Kernel::Write), Activity::Mixed]
        {
            let alone = run_together(&mut [(&mut first, activity)], pace).expect("CPUs");
            assert!(
                alone.len() == 1 && (3..=9).contains(&alone[0].len()) && alone[0].iter().all(|slice| slice.per_s > 0.0)
            );
            let both = [(&mut first, activity), (&mut second, Activity::Stream(Kernel::Read))];
            let both = run_together(&mut { both }, pace).expect("CPUs");
            assert!(both.len() == 2 && both.iter().flatten().all(|slice| slice.per_s > 0.0), "{both:?}");
            assert!(both[0].iter().zip(&both[1]).all(|(a, b)| a.is_disturbed == b.is_disturbed), "of all at once");
        }
    }

    /// A run goes through less of the ring than a server's caches hold. If each began at the same place, all but the first would find their lines there.
    #[test]
    fn a_chase_goes_on_where_the_run_before_ended() {
        let permit = crate::Permit::of_this_process();
        let seat = Seat {
            memory: *permit.memory_nodes.iter().next().expect("a node"),
            cpus: vec![*permit.cpus.iter().next().expect("a CPU")],
            bytes: 16 << 20,
            pages: Pages::Base,
            large_page_bytes: 2 << 20,
            single_node: true,
            line_bytes: 64,
        };
        let mut program = Program::new(&seat).expect("memory");
        let mut places = vec![program.chases[0].start()];
        for _ in 0..2 {
            let pace = Pace { slice: Duration::from_micros(100), quiet: 2, most: 4 };
            run_together(&mut [(&mut program, Activity::Chase)], pace).expect("CPUs");
            places.push(program.chases[0].start());
        }
        assert!(places[0] != places[1] && places[1] != places[2], "{places:?}");
    }

    #[test]
    fn a_cpu_that_is_gone_is_an_error_and_nobody_waits_for_it() {
        let permit = crate::Permit::of_this_process();
        let cpu = *permit.cpus.iter().next().expect("a CPU");
        let memory = *permit.memory_nodes.iter().next().expect("a node");
        let seat = Seat {
            memory,
            cpus: vec![cpu],
            bytes: 1 << 18,
            pages: Pages::Base,
            large_page_bytes: 2 << 20,
            single_node: true,
            line_bytes: 64,
        };
        let mut there = Program::new(&seat).expect("memory");
        let mut gone = Program::new(&seat).expect("memory");
        gone.cpus = vec![CpuId(8190)];
        let both = &mut [(&mut there, Activity::Chase), (&mut gone, Activity::Chase)];
        let answer = run_together(both, Pace { slice: Duration::from_micros(100), quiet: 2, most: 2 });
        assert!(matches!(answer, Err(MeasureError::Pin { .. })), "{answer:?}");
    }

    #[test]
    fn a_probe_reads_from_pieces_of_any_kind_and_says_where_there_is_too_little() {
        let permit = crate::Permit::of_this_process();
        let cpus: Vec<CpuId> = permit.cpus.iter().copied().take(2).collect();
        let mut memory = vec![[1.0_f64; 8]; 12 * BLOCK / 8 + 8];
        let flat = memory.as_flattened_mut();
        let skip = flat.as_ptr().align_offset(64);
        let flat = &mut flat[skip..skip + 12 * BLOCK];
        let one = probe(vec![&mut *flat], &cpus).expect("CPUs");
        let three = probe(flat.chunks_exact_mut(4 * BLOCK).collect(), &cpus).expect("CPUs");
        assert!(one.is_some_and(|rate| rate > 1e6) && three.is_some_and(|rate| rate > 1e6), "{one:?} {three:?}");
        assert_eq!(probe(vec![&mut flat[..BLOCK]], &cpus).expect("CPUs"), None);
        assert_eq!(probe(Vec::new(), &cpus).expect("CPUs"), None);
    }

    #[test]
    fn threads_add_up_and_a_late_one_disturbs_all() {
        let stint = |program, began_us, per_s| Stint {
            program,
            began: Duration::from_micros(began_us),
            per_s,
            lost_cpu: false,
        };
        let slices = [
            vec![stint(0, 10, 5.0), stint(0, 11, 6.0), stint(1, 12, 1.0)],
            vec![stint(0, 10, 5.0), stint(0, 90, 6.0), stint(1, 12, 1.0)],
        ];
        let gathered = gather(&slices, 2, Duration::from_millis(1));
        let of = |per_s, is_disturbed| Slice { per_s, is_disturbed };
        assert_eq!(gathered, [vec![of(11.0, false), of(11.0, true)], vec![of(1.0, false), of(1.0, true)]]);
    }
}
