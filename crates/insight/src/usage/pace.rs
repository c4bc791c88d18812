//! The pace of a thread in each window of time: its accesses, its own work, and the accesses that it kept outstanding.
//!
//! It comes from the thread's counters where the engine counts (interpolated linearly between readings, over the time in which the thread was awake). Else it
//! comes from the weights of samples and measured latencies, and the thread counts as busy from start to end, except while nothing of it is sampled ([`idle`]).
//! That overstates own work where threads wait, so predicted gains then tend to be too small.

use numapilot_flows::cores::{Chains, idle_ns};
use numapilot_flows::{CountersAt, Thread, Trace};
use numapilot_machine::{CpuId, Machine};
use numapilot_trace::record::Counters;

use super::asleep::{Asleep, Stretch};
use crate::windows::Windows;

/// Samples of a window that each thread at work has on average, from which a thread without any is not at work: by chance, one in 20,000 has none.
const TELLING: f64 = 10.0;

/// The pace of a thread in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pace {
    /// Number of memory accesses.
    pub accesses: f64,
    /// Nanoseconds of its own work.
    pub own_ns: f64,
    /// Nanoseconds in which it worked or waited for memory: it neither waited for other threads, nor for input or output, nor slept.
    pub busy_ns: f64,
    /// Accesses outstanding while it waited for memory.
    pub outstanding: f64,
    /// Factor by which its work lasts longer because it shares its CPU with other threads; at least 1.
    pub stretch: f64,
    /// Dependences between its accesses; `None` where the recording has none.
    pub chains: Option<Chains>,
}

/// Totals since a thread's start.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    time_ns: f64,
    accesses: f64,
    busy_ns: f64,
    /// Time charged for memory accesses.
    memory_ns: f64,
    /// Sum of the idle latencies of the same accesses.
    idle_ns: f64,
    /// Loads and stores, whether caches answered or memory.
    issued: f64,
    /// Accesses that continue a stream.
    streamed: f64,
    dependent: f64,
}

/// By window and thread: whether the thread waits in that window, in a recording that shows no waits. Nothing of it was sampled, not even an access that a
/// cache answered, while other threads were at work from the window's start to its end. Such is the main thread of most programs, which waits for all others:
/// if it counted as busy, no change could shorten the run.
pub(crate) fn idle(trace: &Trace, windows: Windows) -> Vec<bool> {
    let threads = trace.threads().len();
    let mut idle = vec![false; windows.count * threads];
    if !trace.counters().is_empty() || !trace.waits().is_empty() {
        return idle;
    }
    let mut samples = vec![0_u32; idle.len()];
    for access in trace.accesses() {
        samples[windows.at(access.time.0 as f64) * threads + access.thread.0 as usize] += 1;
    }
    let end_ns = trace.end().0 as f64;
    // From the second window on: time that nobody has spent yet is passed on to nobody (`Course::walk`).
    for window in 1..windows.count {
        let (from_ns, to_ns) = (window as f64 * windows.ns, ((window + 1) as f64 * windows.ns).min(end_ns));
        let of = |thread: &Thread| window * threads + thread.index.0 as usize;
        let lasts =
            |thread: &&Thread| thread.start.0 as f64 <= from_ns && thread.end.is_none_or(|end| end.0 as f64 >= to_ns);
        let at_work: Vec<f64> = (trace.threads().iter().filter(lasts))
            .map(|thread| f64::from(samples[of(thread)]))
            .filter(|samples| *samples > 0.0)
            .collect();
        if at_work.is_empty() || at_work.iter().sum::<f64>() < TELLING * at_work.len() as f64 {
            continue;
        }
        for thread in trace.threads() {
            idle[of(thread)] = samples[of(thread)] == 0;
        }
    }
    idle
}

/// The paces of all threads in all windows: `[window * threads + thread]`. In the same order, `sampled`: sums of sample weights; `idle`: who waits. By thread,
/// `asleep`, and the end `until_ns`.
pub(crate) fn paces(
    trace: &Trace,
    machine: &Machine,
    windows: Windows,
    sampled: &[f64],
    idle: &[bool],
    asleep: &[Asleep],
    until_ns: &[u64],
) -> Vec<Pace> {
    let threads = trace.threads().len();
    let mut readings: Vec<Vec<&CountersAt>> = vec![Vec::new(); threads];
    for reading in trace.counters() {
        readings[reading.thread.0 as usize].push(reading);
    }
    let khz = clock_khz(trace, machine);
    let of_core = trace.meta().latency_khz().map(f64::from).or(machine.clock_mhz().map(|mhz| mhz * 1000.0));
    let latencies = latencies(trace, machine, windows, of_core);
    let mut paces = vec![Pace { outstanding: 1.0, stretch: 1.0, ..Pace::default() }; windows.count * threads];
    let has_chains = trace.counters().iter().all(|reading| reading.totals.memory_dependent.is_some());
    for ((thread, readings), asleep) in trace.threads().iter().zip(&readings).zip(asleep) {
        let index = thread.index.0 as usize;
        let sums = counted(thread, readings, asleep, machine, khz);
        for window in 0..windows.count {
            let at = window * threads + index;
            if idle[at] {
                continue;
            }
            let (from, to) = (window as f64 * windows.ns, (window + 1) as f64 * windows.ns);
            paces[at] = match &sums {
                Some(sums) => {
                    let sums = between(sums, from, to);
                    Pace { chains: has_chains.then(|| chains(&sums)), ..pace(&sums) }
                }
                None => {
                    let start = thread.start.0 as f64;
                    let end = until_ns[index] as f64;
                    let busy_ns = (end.min(to) - start.max(from)).max(0.0);
                    let (accesses, idle_ns) = (sampled[at], latencies[at]);
                    pace(&Sums { accesses, busy_ns, memory_ns: idle_ns, idle_ns, ..Sums::default() })
                }
            };
        }
    }
    share_cpus(&on_one_cpu(trace), windows, trace.threads().len(), &mut paces);
    paces
}

/// Threads that ran on one CPU all the time, by CPU, where it had several.
pub(crate) fn on_one_cpu(trace: &Trace) -> Vec<Vec<usize>> {
    let mut on_cpu: std::collections::BTreeMap<CpuId, Vec<usize>> = std::collections::BTreeMap::new();
    for (thread, cpu) in trace.threads().iter().zip(trace.cpus()) {
        if let Some(cpu) = cpu {
            on_cpu.entry(cpu).or_default().push(thread.index.0 as usize);
        }
    }
    on_cpu.into_values().filter(|threads| threads.len() > 1).collect()
}

/// The clock that cycles of the trace are of.
pub(crate) fn clock_khz(trace: &Trace, machine: &Machine) -> f64 {
    match (trace.meta().clock.khz, machine.clock_mhz()) {
        (khz, _) if khz > 0 => f64::from(khz),
        (_, mhz) => mhz.unwrap_or(1000.0) * 1000.0,
    }
}

fn pace(sums: &Sums) -> Pace {
    let memory_ns = sums.memory_ns.min(sums.busy_ns);
    let outstanding = if memory_ns > 0.0 && sums.idle_ns > memory_ns { sums.idle_ns / memory_ns } else { 1.0 };
    let own_ns = sums.busy_ns - memory_ns;
    Pace { accesses: sums.accesses, own_ns, busy_ns: sums.busy_ns, outstanding, stretch: 1.0, chains: None }
}

fn chains(sums: &Sums) -> Chains {
    Chains::of(sums.accesses, sums.streamed, sums.dependent, sums.issued)
}

/// A thread's totals over time; `None` if nothing counted them.
fn counted(
    thread: &Thread,
    readings: &[&CountersAt],
    asleep: &Asleep,
    machine: &Machine,
    khz: f64,
) -> Option<Vec<Sums>> {
    if readings.is_empty() {
        return None;
    }
    let ns = |cycles: u64| cycles as f64 * 1e6 / khz;
    let mut sums = vec![Sums { time_ns: thread.start.0 as f64, ..Sums::default() }];
    let zero = Counters::default();
    let mut before = &zero;
    for (reading, timed_out_ns) in readings.iter().zip(&asleep.timed_out_ns) {
        let last = sums[sums.len() - 1];
        let totals = &reading.totals;
        let idle_ns = idle_ns(machine, reading.node, before, totals);
        let time_ns = (reading.time.0 as f64).max(last.time_ns);
        let waited_ns = ns(totals.wait_cycles.saturating_sub(before.wait_cycles));
        let charged = totals.memory_cycles.map(|cycles| ns(cycles.saturating_sub(before.memory_cycles.unwrap_or(0))));
        let slept = asleep.within(last.time_ns, time_ns);
        let slept_ns: f64 = slept.iter().map(|stretch| stretch.to_ns - stretch.from_ns).sum();
        let next = Sums {
            time_ns,
            accesses: totals.memory_accesses as f64,
            busy_ns: last.busy_ns + (time_ns - last.time_ns - waited_ns - slept_ns - timed_out_ns).max(0.0),
            memory_ns: last.memory_ns + charged.unwrap_or(idle_ns),
            idle_ns: last.idle_ns + idle_ns,
            issued: totals.accesses as f64,
            streamed: totals.memory_streamed.unwrap_or(0) as f64,
            dependent: totals.memory_dependent.unwrap_or(0) as f64,
        };
        rest(&mut sums, &next, &slept, time_ns - last.time_ns - slept_ns);
        sums.push(next);
        before = totals;
    }
    Some(sums)
}

/// Adds the totals at the ends of each sleep before the next reading: a thread does nothing in them, and so all that it did in the `awake_ns` around them.
fn rest(sums: &mut Vec<Sums>, next: &Sums, slept: &[Stretch], awake_ns: f64) {
    let last = sums[sums.len() - 1];
    let (mut so_far_ns, mut at_ns) = (0.0, last.time_ns);
    for stretch in slept {
        so_far_ns += stretch.from_ns - at_ns;
        at_ns = stretch.to_ns;
        let share = if awake_ns > 0.0 { (so_far_ns / awake_ns).min(1.0) } else { 1.0 };
        sums.extend([stretch.from_ns, stretch.to_ns].map(|time_ns| mix(&last, next, share, time_ns)));
    }
}

/// What was added between two moments.
fn between(sums: &[Sums], from_ns: f64, to_ns: f64) -> Sums {
    let (a, b) = (at(sums, from_ns), at(sums, to_ns));
    Sums {
        time_ns: b.time_ns - a.time_ns,
        accesses: b.accesses - a.accesses,
        busy_ns: b.busy_ns - a.busy_ns,
        memory_ns: b.memory_ns - a.memory_ns,
        idle_ns: b.idle_ns - a.idle_ns,
        issued: b.issued - a.issued,
        streamed: b.streamed - a.streamed,
        dependent: b.dependent - a.dependent,
    }
}

fn at(sums: &[Sums], time_ns: f64) -> Sums {
    let next = sums.partition_point(|sum| sum.time_ns <= time_ns);
    let (Some(a), Some(b)) = (next.checked_sub(1).map(|last| sums[last]), sums.get(next)) else {
        return if next == 0 { sums[0] } else { sums[sums.len() - 1] };
    };
    mix(&a, b, (time_ns - a.time_ns) / (b.time_ns - a.time_ns), time_ns)
}

/// The totals when this share of what lies between two readings has been done.
fn mix(a: &Sums, b: &Sums, share: f64, time_ns: f64) -> Sums {
    let mix = |a: f64, b: f64| a + (b - a) * share;
    Sums {
        time_ns,
        accesses: mix(a.accesses, b.accesses),
        busy_ns: mix(a.busy_ns, b.busy_ns),
        memory_ns: mix(a.memory_ns, b.memory_ns),
        idle_ns: mix(a.idle_ns, b.idle_ns),
        issued: mix(a.issued, b.issued),
        streamed: mix(a.streamed, b.streamed),
        dependent: mix(a.dependent, b.dependent),
    }
}

/// Sums of latencies by window and thread: as measured, where the clock of their cycles is known, else those of an idle machine. Accesses of which neither is
/// known, because their homes are not, take as long as the thread's others in the window, or in the nearest that has some: the price has them wait as these
/// do, and what is not taken for waiting here is own work.
fn latencies(trace: &Trace, machine: &Machine, windows: Windows, khz: Option<f64>) -> Vec<f64> {
    let threads = trace.threads().len();
    let mut sums = vec![0.0; windows.count * threads];
    if trace.counters().is_empty() {
        // By window and thread, too: accesses with a latency and without.
        let (mut told, mut untold) = (sums.clone(), sums.clone());
        for access in trace.accesses().filter(numapilot_flows::AccessRef::is_memory_access) {
            let at = windows.at(access.time.0 as f64) * threads + access.thread.0 as usize;
            let weight = f64::from(access.weight);
            let measured = access.latency_cycles.zip(khz).map(|(cycles, khz)| f64::from(cycles) * 1e6 / khz);
            let idle = || access.node.zip(access.home).map(|(node, home)| machine.idle_latency_or_guess_ns(node, home));
            if let Some(latency_ns) = measured.or_else(idle) {
                sums[at] += latency_ns * weight;
                told[at] += weight;
            } else if access.node.is_some() {
                untold[at] += weight;
            }
        }
        let known = sums.clone();
        for (at, untold) in untold.iter().enumerate().filter(|(_, untold)| **untold > 0.0) {
            let (window, thread) = (at / threads, at % threads);
            let of = |window: usize| {
                let at = window * threads + thread;
                told.get(at).filter(|told| **told > 0.0).map(|told| known[at] / told)
            };
            let near = |away: usize| window.checked_sub(away).and_then(of).or_else(|| of(window + away));
            sums[at] += untold * (0..windows.count).find_map(near).unwrap_or(0.0);
        }
    }
    sums
}

/// Where threads share a CPU, the clock makes each one's work last longer: what they would have needed by themselves is their share.
fn share_cpus(on_one_cpu: &[Vec<usize>], windows: Windows, all: usize, paces: &mut [Pace]) {
    for threads in on_one_cpu {
        for window in 0..windows.count {
            let busy: f64 = threads.iter().map(|thread| paces[window * all + thread].busy_ns).sum();
            if busy > windows.ns {
                for thread in threads {
                    let pace = &mut paces[window * all + thread];
                    let memory_ns = pace.busy_ns - pace.own_ns;
                    pace.busy_ns *= windows.ns / busy;
                    pace.stretch = busy / windows.ns;
                    pace.own_ns = (pace.busy_ns - memory_ns).max(0.0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use numapilot_flows::{AccessRef, Filter, Tables};
    use numapilot_machine::NodeId;
    use numapilot_trace::ids::TimeNs;

    use super::*;
    use crate::context::Analysis;
    use crate::usage::Usage;

    /// Samples without latencies, of which each second one, or each in the second half of the run, has no known home. Those counted as own work, and the price
    /// had them wait for memory as well.
    #[test]
    fn accesses_of_unknown_homes_wait_as_others_do() {
        let machine = Machine::load("opteron-8385").expect("a built-in model");
        let latency_ns = machine.idle_latency_ns(NodeId(0), NodeId(1)).expect("told");
        let end = TimeNs(10_000_000);
        let known: [fn(u64) -> bool; 2] = [|sample| sample.is_multiple_of(2), |sample| sample < 1_000];
        for is_known in known {
            let thread = Thread { node: Some(NodeId(0)), end: Some(end), ..Thread::default() };
            let mut tables = Tables { threads: vec![thread], end, ..Tables::default() };
            for sample in 0..2_000_u64 {
                let mut access = AccessRef::at(0x7000_0000_0000 + sample * 64);
                access.time = TimeNs(sample * end.0 / 2_000);
                access.node = Some(NodeId(0));
                access.home = is_known(sample).then_some(NodeId(1));
                access.weight = 10;
                tables.accesses.push(&access);
            }
            let trace = Trace::from_tables(tables);
            let analysis = Analysis::on(&trace, Some(&machine), Filter::default());
            let usage = Usage::of(&analysis, &machine, &std::collections::BTreeMap::new());
            let working: Vec<&Pace> = usage.paces.iter().filter(|pace| pace.accesses > 0.0).collect();
            assert!(working.len() > 40, "{}", working.len());
            for pace in working {
                let waited_ns = (pace.busy_ns - pace.own_ns) * pace.outstanding;
                assert!((waited_ns / (pace.accesses * latency_ns) - 1.0).abs() < 1e-6, "{pace:?}");
            }
        }
    }

    /// Of 100,000 accesses the homes of 60,000 are unknown, which a simulated clock charges as local ones. All continue streams of eight: by the others alone,
    /// hardly more than three seemed to overlap, and each wait for memory was priced at more than twice its length.
    #[test]
    fn accesses_of_unknown_homes_overlap_as_others_do() {
        let machine = Machine::load("opteron-8385").expect("a built-in model");
        let latency_ns = |home| machine.idle_latency_ns(NodeId(0), NodeId(home)).expect("told");
        let charged_ns = (60_000.0 * latency_ns(0) + 40_000.0 * latency_ns(1)) / 8.0;
        let end = TimeNs(10_000_000);
        let khz = clock_khz(&Trace::from_tables(Tables::default()), &machine);
        let totals = Counters {
            memory_accesses: 100_000,
            memory_cycles: Some((charged_ns * khz / 1e6) as u64),
            by_home: vec![0, 40_000],
            ..Counters::default()
        };
        let reading = CountersAt { time: end, node: Some(NodeId(0)), totals, ..CountersAt::default() };
        let thread = Thread { node: Some(NodeId(0)), end: Some(end), ..Thread::default() };
        let tables = Tables { threads: vec![thread], counters: vec![reading], end, ..Tables::default() };
        let trace = Trace::from_tables(tables);
        let analysis = Analysis::on(&trace, Some(&machine), Filter::default());
        let usage = Usage::of(&analysis, &machine, &std::collections::BTreeMap::new());
        let working: Vec<&Pace> = usage.paces.iter().filter(|pace| pace.accesses > 0.0).collect();
        assert!(working.len() > 40, "{}", working.len());
        assert!(working.iter().all(|pace| (pace.outstanding - 8.0).abs() < 0.01), "{working:?}");
    }
}
