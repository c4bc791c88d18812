//! The ensemble: machines and programs that are consistent with a recording where it leaves figures open. Every change is priced for each member.
//!
//! A member has a value for each unknown: the machine's ([`numapilot_traffic::unknowns`]), and how the program's cores work between their memory accesses
//! ([`Core`]). Ranges come from published figures and from what processors can do; none is fitted to a program. `docs/patterns.md`, "Interval", has them.

use numapilot_machine::{Bounded, CoreFigures, Machine, Unknown};
use numapilot_traffic::{MemorySystem, TrafficError, latin_hypercube, unknowns};

use crate::usage::Usage;
use crate::usage::pace::{Chains, Pace};

/// Seed of all draws: constant, so that the same change always has the same interval.
const SEED: u64 = 1;
/// Largest and smallest number of members.
const MOST: usize = 200;
const LEAST: usize = 40;
/// Largest amount of work to price one change for all members, in steps of some nanoseconds. It is counted instead of timed, so that intervals do not depend
/// on a clock.
const STEPS: usize = 40_000_000;
/// Steps for one class at one station in a solution.
const STEPS_OF_PLACE: usize = 40;

/// Range of the program's own work, as a multiple of the work that a simulated clock charges. The clock charges 2 cycles an access; loads and stores are
/// about 38 % of instructions, of which a core does 0.8 to 3 a cycle: 0.9 to 3.3 cycles an access.
const OWN_WORK: (f64, f64) = (0.5, 2.0);
/// Scattered accesses that are outstanding at a time while a core waits, where the recording has no dependences between them (before format 1.2). 1 where
/// each address comes from the last; more where they are independent, as far as the window of instructions and the registers for misses reach.
const SCATTERED: (f64, f64) = (1.0, 4.0);
/// Share of the computed overlap that is real. It is at most 1, because an address computed from a just loaded index looks independent, and a mispredicted
/// branch ends the look-ahead of a core. An estimate.
const OVERLAP: (f64, f64) = (0.4, 1.0);
/// Accesses of streams that are outstanding at a time, with what is prefetched: a core's STREAM bandwidth times the latency, over the size of a line: 4.6 on
/// a loaded machine to 17 on an idle one.
const STREAMED: (f64, f64) = (4.0, 17.0);
/// Outstanding accesses of streams for which simulated clocks charge (`STREAM_SHARE` of `crates/runtime/c/filter.c`).
const STREAMED_CHARGED: f64 = 8.0;
/// Approximate number of rounds that a member takes.
const MEMBER_TURNS: usize = 2;

const OF_CLOCK: &str = "a recording on the real machine (`--engine pmu`, or perf's imported), whose clock is measured";
const OF_NATIVE: &str =
    "`record --native PROGRAM`, which times the program without call-outs; or a recording on the real machine";
const OF_SAME_CORES: &str = "`record --native PROGRAM` on the machine that is simulated; or a recording there";
const OF_NOTHING: &str = "nothing that this program measures";
const OF_MEASURE: &str = "`numapilot measure` on the machine itself, and `--machine` with what it writes";

/// How cores work between and during memory accesses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Core {
    /// Own work, as a multiple of what was charged.
    own: f64,
    /// Outstanding scattered accesses, used where chains are not known.
    scattered: f64,
    streamed: f64,
    /// Used where chains are known: instructions looked ahead, outstanding misses, and the share of the resulting overlap that is real.
    window: f64,
    misses: f64,
    overlap: f64,
}

impl Core {
    /// The core of the price itself: as the machine's description and native runs have it.
    pub fn nominal(machine: &Machine, usage: &Usage) -> Core {
        let values: Vec<f64> = cores(machine, usage).iter().map(|open| open.value).collect();
        Core::of_values(&values, usage)
    }

    /// The core for which the simulated clock charged.
    fn charged(usage: &Usage) -> Core {
        let (window, misses) = usage.charged_core;
        Core { own: 1.0, scattered: 1.0, streamed: STREAMED_CHARGED, window, misses, overlap: 1.0 }
    }

    /// The core whose unknowns, in the order of [`cores`], have these values.
    fn of_values(values: &[f64], usage: &Usage) -> Core {
        let charged = Core::charged(usage);
        match *values {
            [own, streamed, window, misses, overlap] => Core { own, streamed, window, misses, overlap, ..charged },
            [own, scattered, streamed] => Core { own, scattered, streamed, ..charged },
            [scattered] => Core { scattered, ..charged },
            _ => charged,
        }
    }

    /// The paces of a program on such cores.
    pub fn paces(&self, usage: &Usage, paces: &mut [Pace]) {
        let charged = Core::charged(usage);
        if *self == charged {
            return paces.copy_from_slice(&usage.paces);
        }
        for (pace, was) in paces.iter_mut().zip(&usage.paces) {
            *pace = if usage.charged { self.instead_of(&charged, was) } else { self.measured(was) };
        }
    }

    /// For a charged clock: scales own work and waiting for memory to this core.
    fn instead_of(&self, charged: &Core, was: &Pace) -> Pace {
        let more = charged.wait_for_one(was) / self.wait_for_one(was);
        let (own_ns, memory_ns) = (was.own_ns * self.own, (was.busy_ns - was.own_ns) / more);
        Pace { own_ns, busy_ns: own_ns + memory_ns, outstanding: was.outstanding * more, ..*was }
    }

    /// Mean wait of this core for one access, as a share of its latency.
    fn wait_for_one(&self, was: &Pace) -> f64 {
        let (streamed, scattered) = match was.chains {
            Some(chains) => (chains.streamed, self.scattered_outstanding(&chains)),
            None => {
                let of_streams = 1.0 - 1.0 / STREAMED_CHARGED;
                (((1.0 - 1.0 / was.outstanding) / of_streams).clamp(0.0, 1.0), self.scattered)
            }
        };
        (1.0 - streamed) / scattered + streamed / self.streamed
    }

    /// Outstanding scattered accesses: those within the core's window that depend on no other of them (`crates/runtime/c/overlap.c`).
    fn scattered_outstanding(&self, chains: &Chains) -> f64 {
        let within_reach = 1.0 + self.window * CoreFigures::ACCESSES_PER_INSTRUCTION / chains.gap;
        let side_by_side = ((1.0 - chains.dependent) * within_reach).min(self.misses);
        (self.overlap * side_by_side).max(1.0)
    }

    /// For a measured clock: the overlapped part of the latencies counts as own work.
    fn measured(&self, was: &Pace) -> Pace {
        let memory_ns = (was.busy_ns - was.own_ns) / self.scattered;
        Pace { own_ns: was.busy_ns - memory_ns, outstanding: was.outstanding * self.scattered, ..*was }
    }
}

/// One possible machine and program.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub system: MemorySystem,
    pub core: Core,
}

/// An unknown figure with its range.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// Its key in a model file, or `program.NAME`.
    pub place: String,
    pub words: &'static str,
    pub value: f64,
    pub low: f64,
    pub high: f64,
    pub narrowed_by: &'static str,
    /// The value of each member.
    pub values: Vec<f64>,
}

/// The members, and the unknowns that they vary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members {
    pub open: Vec<Open>,
    pub all: Vec<Member>,
}

impl Members {
    /// # Errors
    /// If a machine that this one could be lacks what the traffic model needs.
    pub fn of(machine: &Machine, usage: &Usage) -> Result<Members, TrafficError> {
        let machine = &machine.clone().with_ranges_of_builtin();
        let unknowns = unknowns(machine);
        let cores = cores(machine, usage);
        // Figures of cores are factors, drawn evenly in their logarithm.
        let ranges: Vec<(f64, f64)> = (unknowns.iter().map(|unknown| (unknown.low, unknown.high)))
            .chain(cores.iter().map(|open| (open.low.ln(), open.high.ln())))
            .collect();
        let mut open: Vec<Open> = unknowns.iter().map(of_machine).chain(cores).collect();
        let mut all = Vec::new();
        for mut point in latin_hypercube(&ranges, count(machine, usage), SEED) {
            let (of_machine, of_core) = point.split_at_mut(unknowns.len());
            of_core.iter_mut().for_each(|factor| *factor = factor.exp());
            let set: Vec<(&Unknown, f64)> = unknowns.iter().zip(of_machine.iter().copied()).collect();
            // A draw that no machine can have leaves the machine as described.
            let drawn = machine.with_values(&set).unwrap_or_else(|_| machine.clone());
            all.push(Member { system: MemorySystem::new(&drawn)?, core: Core::of_values(of_core, usage) });
            open.iter_mut().zip(&point).for_each(|(open, value)| open.values.push(*value));
        }
        // A figure whose range is a point is known.
        open.retain(|open| open.low < open.high);
        Ok(Members { open, all })
    }
}

/// The unknowns of the program and its cores, in the order of [`Core::of_values`].
fn cores(machine: &Machine, usage: &Usage) -> Vec<Open> {
    let open = |place: &str, words, value, (low, high), narrowed_by| Open {
        place: place.to_owned(),
        words,
        value,
        low,
        high,
        narrowed_by,
        values: Vec::new(),
    };
    let scattered = "scattered accesses that a core keeps outstanding";
    let Core { own: own_work, scattered: at_once, streamed: in_streams, overlap, .. } = Core::charged(usage);
    if !usage.charged {
        return vec![open("program.scattered_outstanding", scattered, at_once, SCATTERED, OF_NOTHING)];
    }
    let own = "the program's own work between accesses, times what was charged";
    let streamed = "accesses of streams that a core keeps outstanding";
    let own_work = match usage.own_work.map(|native| both(native, OWN_WORK)) {
        // The geometric mean, because the range is one of factors.
        Some(range) => open("program.own_work", own, (range.0 * range.1).sqrt(), range, OF_SAME_CORES),
        None => open("program.own_work", own, own_work, OWN_WORK, OF_NATIVE),
    };
    let of_streams = streams_of(machine);
    let in_streams = in_streams.clamp(of_streams.0, of_streams.1);
    let streams = open("program.streamed_outstanding", streamed, in_streams, of_streams, OF_CLOCK);
    if usage.paces.iter().all(|pace| pace.chains.is_none()) {
        return vec![own_work, open("program.scattered_outstanding", scattered, at_once, SCATTERED, OF_CLOCK), streams];
    }
    let ahead = "instructions that a core looks ahead while it waits for memory";
    let most = "misses that a core keeps outstanding at most";
    let there = "overlap of scattered accesses, times what their addresses allow";
    let (charged, core) = (usage.charged_core, machine.core());
    let of_core = |figure: Option<Bounded>, unknown: Bounded, charged: f64| match figure {
        Some(known) => (known.value, (known.low, known.high)),
        // For an unknown core, the simulated one is the best guess.
        None => (charged, (unknown.low.min(charged), unknown.high.max(charged))),
    };
    let (window, of_window) = of_core(core.window_instructions, core.window(), charged.0);
    let (misses, of_misses) = of_core(core.outstanding_misses, core.misses(), charged.1);
    vec![
        own_work,
        streams,
        open("core.window_instructions", ahead, window, of_window, OF_CLOCK),
        open("core.outstanding_misses", most, misses, of_misses, OF_MEASURE),
        open("program.overlap", there, overlap, OVERLAP, OF_CLOCK),
    ]
}

/// Range of outstanding accesses of streams; a measurement of one STREAM thread is its upper end.
fn streams_of(machine: &Machine) -> (f64, f64) {
    let alone = machine.traffic().stream_outstanding;
    alone.map_or(STREAMED, |alone| (STREAMED.0.min(alone), alone))
}

/// The intersection of two ranges. If it is empty, the measured one, because the other describes programs in general.
fn both(measured: (f64, f64), general: (f64, f64)) -> (f64, f64) {
    let range = (measured.0.max(general.0), measured.1.min(general.1));
    if range.0 < range.1 { range } else { measured }
}

fn of_machine(unknown: &Unknown) -> Open {
    Open {
        place: unknown.place.clone(),
        words: unknown.words(),
        value: unknown.value,
        low: unknown.low,
        high: unknown.high,
        narrowed_by: OF_MEASURE,
        values: Vec::new(),
    }
}

/// Number of members for which the allowed work suffices.
fn count(machine: &Machine, usage: &Usage) -> usize {
    let nodes = machine.nodes().len();
    let places = nodes * (nodes + machine.links().len());
    let of_windows = usage.windows * places * STEPS_OF_PLACE + usage.rows.len() * 2 * nodes;
    let of_one = MEMBER_TURNS * (of_windows + usage.course.len() + usage.paces.len());
    (STEPS / of_one.max(1)).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    //! One thread's pace, on cores of several kinds.

    use super::*;

    const CHARGED: Core =
        Core { own: 1.0, scattered: 1.0, streamed: STREAMED_CHARGED, window: 128.0, misses: 10.0, overlap: 1.0 };

    fn pace(chains: Option<Chains>) -> Pace {
        let outstanding = 2.0;
        Pace { accesses: 1e3, own_ns: 5e3, busy_ns: 1e5, outstanding, stretch: 1.0, chains }
    }

    #[test]
    fn chains_that_wait_for_each_other_overlap_on_no_core() {
        let chains = Chains { streamed: 0.0, dependent: 1.0, gap: 2.0 };
        for window in [72.0, 512.0] {
            assert_eq!(Core { window, ..CHARGED }.scattered_outstanding(&chains), 1.0);
        }
    }

    #[test]
    fn independent_accesses_overlap_as_far_as_window_and_registers_reach() {
        let chains = |gap| Chains { streamed: 0.0, dependent: 0.0, gap };
        let core = CHARGED;
        assert_eq!(core.scattered_outstanding(&chains(1.0)), core.misses);
        let apart = core.window * CoreFigures::ACCESSES_PER_INSTRUCTION;
        assert!((core.scattered_outstanding(&chains(apart)) - 2.0).abs() < 1e-12);
        assert_eq!(core.scattered_outstanding(&chains(f64::INFINITY)), 1.0);
        let half = Core { overlap: 0.5, ..core };
        assert_eq!(half.scattered_outstanding(&chains(1.0)), core.misses / 2.0);
    }

    #[test]
    fn a_core_as_charged_leaves_a_pace_as_it_was_and_a_wider_one_waits_less() {
        for chains in [None, Some(Chains { streamed: 0.3, dependent: 0.2, gap: 20.0 })] {
            let was = pace(chains);
            let same = CHARGED.instead_of(&CHARGED, &was);
            assert!((same.busy_ns - was.busy_ns).abs() < 1e-6 && (same.outstanding - was.outstanding).abs() < 1e-9);
            let wide = Core { scattered: 4.0, window: 224.0, ..CHARGED }.instead_of(&CHARGED, &was);
            assert!(wide.busy_ns < was.busy_ns && wide.outstanding > was.outstanding, "{wide:?}");
            // Waiting times outstanding: the sum of latencies stays.
            let latencies = |pace: &Pace| (pace.busy_ns - pace.own_ns) * pace.outstanding;
            assert!((latencies(&wide) / latencies(&was) - 1.0).abs() < 1e-9);
        }
    }
}
