//! Divides a thread's busy time into computation and waiting for memory, from its counters.

use numapilot_flows::cores::{Chains, Core, idle_ns};
use numapilot_flows::{CountersAt, Life, Waited};
use numapilot_machine::Machine;

/// A thread between two readings of its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Reading {
    pub(super) from_ns: f64,
    pub(super) to_ns: f64,
    /// Nanoseconds of a CPU of its own that it needed: those in no recorded wait, less what it shared.
    pub(super) busy_ns: f64,
    /// Number of memory accesses.
    pub(super) accesses: f64,
    /// Instrumented accesses: what stands for progress.
    pub(super) progress: f64,
    /// The part of `busy_ns` that was waiting for memory, until [`Reading::run_on`] makes it that of another core.
    pub(super) memory_ns: f64,
    /// Its own work: the other part, likewise.
    pub(super) own_ns: f64,
    /// Memory accesses outstanding while it waited for memory.
    pub(super) outstanding: f64,
    /// Dependences between its memory accesses; `None` where the recording has none.
    pub(super) chains: Option<Chains>,
}

impl Reading {
    /// Makes own work and overlap those of `core`, where the recording's clock charged for `charged`.
    pub(super) fn run_on(&mut self, core: &Core, charged: &Core) {
        let wait_for_one = |core: &Core| core.wait_for_one(self.chains.as_ref(), self.outstanding);
        let more = wait_for_one(charged) / wait_for_one(core);
        self.own_ns *= core.own;
        self.memory_ns /= more;
        self.outstanding *= more;
    }
}

/// What the memory of the recording's machine takes, idle, and its clock.
pub(super) struct IdleTimes<'a> {
    pub(super) machine: &'a Machine,
    pub(super) khz: f64,
}

/// The readings of one thread. `counters` are its own, in order of time. Also whether the program time of memory accesses was recorded.
pub(super) fn readings(
    life: Life,
    waits: &[Waited],
    counters: &[&CountersAt],
    idle: &IdleTimes<'_>,
    alone_ns: &dyn Fn(f64, f64) -> f64,
) -> (Vec<Reading>, bool) {
    let mut readings: Vec<Reading> = Vec::new();
    let mut recorded = true;
    let mut from_ns = life.start_ns;
    let zero = CountersAt::default();
    let mut before = &zero;
    for &at in counters {
        let to_ns = (at.time.0 as f64).clamp(from_ns, life.end_ns);
        let busy_ns = busy(waits, from_ns, to_ns, alone_ns);
        let (new, old) = (&at.totals, &before.totals);
        let accesses = new.memory_accesses.saturating_sub(old.memory_accesses) as f64;
        let idle_ns = idle_ns(idle.machine, at.node, old, new);
        let cycles = new.memory_cycles.map(|cycles| cycles.saturating_sub(old.memory_cycles.unwrap_or(0)));
        recorded &= cycles.is_some();
        let charged_ns = cycles.map_or(idle_ns, |cycles| cycles as f64 * 1e6 / idle.khz);
        if busy_ns <= 0.0 && accesses > 0.0 && at.time.0 as f64 <= from_ns {
            // Two readings at one moment: the later one says it all.
            continue;
        }
        let memory_ns = charged_ns.min(busy_ns);
        let since = |new: Option<u64>, old: Option<u64>| new.map(|new| new.saturating_sub(old.unwrap_or(0)) as f64);
        let streamed = since(new.memory_streamed, old.memory_streamed).unwrap_or(0.0);
        let progress = new.accesses.saturating_sub(old.accesses) as f64;
        readings.push(Reading {
            from_ns,
            to_ns,
            busy_ns,
            accesses,
            progress,
            memory_ns,
            own_ns: busy_ns - memory_ns,
            chains: since(new.memory_dependent, old.memory_dependent)
                .map(|dependent| Chains::of(accesses, streamed, dependent, progress)),
            outstanding: if memory_ns > 0.0 && idle_ns > 0.0 { idle_ns / memory_ns } else { 1.0 },
        });
        (from_ns, before) = (to_ns, at);
    }
    if from_ns < life.end_ns {
        let busy_ns = busy(waits, from_ns, life.end_ns, alone_ns);
        readings.push(Reading {
            from_ns,
            to_ns: life.end_ns,
            busy_ns,
            own_ns: busy_ns,
            outstanding: 1.0,
            ..Reading::default()
        });
    }
    (readings, recorded)
}

/// Nanoseconds of work between two moments, each stretch without waits measured by `alone_ns`.
fn busy(waits: &[Waited], from_ns: f64, to_ns: f64, alone_ns: &dyn Fn(f64, f64) -> f64) -> f64 {
    let first = waits.partition_point(|wait| wait.ended_ns <= from_ns);
    let (mut at, mut sum) = (from_ns, 0.0);
    for wait in waits[first..].iter().take_while(|wait| wait.began_ns < to_ns) {
        if wait.began_ns > at {
            sum += alone_ns(at, wait.began_ns);
        }
        at = wait.ended_ns.min(to_ns);
    }
    if to_ns > at { sum + alone_ns(at, to_ns) } else { sum }
}

#[cfg(test)]
mod tests {
    use numapilot_machine::NodeId;
    use numapilot_trace::ids::{Pid, TimeNs};
    use numapilot_trace::record::Counters;

    use super::*;

    /// Of 1,000 accesses the homes of 600 are unknown, which a simulated clock charges as local ones. All continue streams of eight.
    #[test]
    fn accesses_of_unknown_homes_overlap_as_others_do() {
        let machine = Machine::load("opteron-8385").expect("a built-in model");
        let latency_ns = |home| machine.idle_latency_ns(NodeId(0), NodeId(home)).expect("told");
        let charged_ns = (600.0 * latency_ns(0) + 400.0 * latency_ns(1)) / 8.0;
        let totals = Counters {
            memory_accesses: 1000,
            memory_cycles: Some(charged_ns as u64),
            by_home: vec![0, 400],
            ..Counters::default()
        };
        let at = CountersAt { time: TimeNs(1_000_000), node: Some(NodeId(0)), totals, ..CountersAt::default() };
        let life = Life { process: 0, pid: Pid(1), parent: None, start_ns: 0.0, end_ns: 1e6 };
        // A cycle takes a nanosecond.
        let idle = IdleTimes { machine: &machine, khz: 1e6 };
        let (found, _) = readings(life, &[], &[&at], &idle, &|from, to| to - from);
        assert_eq!(found.len(), 1);
        assert!((found[0].outstanding - 8.0).abs() < 0.01, "{found:?}");
    }
}
