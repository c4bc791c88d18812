//! The ensemble: machines and programs that are consistent with a recording where it leaves figures open. Every change is priced for each member.
//!
//! A member has a value for each unknown: the machine's ([`numapilot_traffic::unknowns`]), how the program's cores work between their memory accesses
//! ([`Core`]), and how long its queues are against the model's. Ranges come from published figures and from what processors can do; none is
//! fitted to a program. `docs/patterns.md`, "Interval", has them.

use numapilot_flows::cores::{Core, CoreRanges};
use numapilot_machine::{Bounded, Machine, Subject, Unknown};
use numapilot_traffic::{MemorySystem, QUEUEING_DELAY, TrafficError, latin_hypercube, unknowns};

use crate::usage::Usage;
use crate::usage::pace::Pace;

/// Seed of all draws: constant, so that the same change always has the same interval.
const SEED: u64 = 1;
/// Largest number of members.
const MOST: usize = 200;
/// Smallest number of members.
pub(crate) const LEAST: usize = 40;
/// Largest amount of work to price one change for all members, in steps of some nanoseconds. It is counted instead of timed, so that intervals do not depend
/// on a clock.
const STEPS: usize = 40_000_000;
/// Steps for one class at one station in a solution.
const STEPS_OF_PLACE: usize = 40;

/// Approximate number of rounds that a member takes.
const MEMBER_TURNS: usize = 2;

const OF_CLOCK: &str =
    "a recording on the real machine (`--engine pmu`, or imported from perf), whose times are measured";
const OF_NATIVE: &str =
    "`record --native PROGRAM`, which times the program without call-outs; or a recording on the real machine";
const OF_SAME_CORES: &str = "`record --native PROGRAM` on the machine that is simulated; or a recording there";
const OF_NOTHING: &str = "nothing that numapilot can measure";
const OF_MEASURE: &str = "`numapilot measure` on the machine itself, and `--machine` with what it writes";
const OF_LONGER: &str = "a longer `numapilot measure` (`--full`) on the quiet machine";
/// What the sources of figures begin with that `numapilot measure` writes.
const MEASURED: &str = "measured: ";

/// The core of the price itself: as the machine's description and native runs have it.
pub(crate) fn nominal(machine: &Machine, usage: &Usage) -> Core {
    if usage.charged {
        CoreRanges::of(machine, &usage.charged_core, usage.own_work).nominal()
    } else {
        usage.charged_core
    }
}

/// The core whose unknowns, in the order of [`cores`], have these values.
fn core_of(values: &[f64], usage: &Usage) -> Core {
    let charged = usage.charged_core;
    match *values {
        [own, streamed, window, misses, overlap] => Core { own, streamed, window, misses, overlap, ..charged },
        [own, scattered, streamed] => Core { own, scattered, streamed, ..charged },
        [scattered] => Core { scattered, ..charged },
        _ => charged,
    }
}

/// The paces of a program on such cores.
pub(crate) fn paces_on(core: &Core, usage: &Usage, paces: &mut [Pace]) {
    let charged = usage.charged_core;
    if *core == charged {
        return paces.copy_from_slice(&usage.paces);
    }
    for (pace, was) in paces.iter_mut().zip(&usage.paces) {
        *pace = if usage.charged { instead_of(core, &charged, was) } else { measured(core, was) };
    }
}

/// For a charged clock: scales own work and waiting for memory to this core.
fn instead_of(core: &Core, charged: &Core, was: &Pace) -> Pace {
    let wait_for_one = |core: &Core| core.wait_for_one(was.chains.as_ref(), was.outstanding);
    let more = wait_for_one(charged) / wait_for_one(core);
    let (own_ns, memory_ns) = (was.own_ns * core.own, (was.busy_ns - was.own_ns) / more);
    Pace { own_ns, busy_ns: own_ns + memory_ns, outstanding: was.outstanding * more, ..*was }
}

/// For a measured clock: the overlapped part of the latencies counts as own work.
fn measured(core: &Core, was: &Pace) -> Pace {
    let memory_ns = (was.busy_ns - was.own_ns) / core.scattered;
    Pace { own_ns: was.busy_ns - memory_ns, outstanding: was.outstanding * core.scattered, ..*was }
}

/// One possible machine and program.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub system: MemorySystem,
    pub core: Core,
    /// Share of the work that goes to whichever thread is free.
    pub taken: f64,
}

impl Member {
    /// `queues`: wait in queues over what the traffic model says at the same load.
    pub fn new(system: MemorySystem, core: Core, queues: f64) -> Member {
        Member { system: system.with_queues(queues), core, taken: 0.0 }
    }
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
    /// `times`: as many times as many members as usual, because not all will be kept.
    ///
    /// # Errors
    /// If the machine's description lacks what the traffic model needs.
    pub fn of(machine: &Machine, usage: &Usage, times: usize) -> Result<Members, TrafficError> {
        let machine = &machine.clone().with_ranges_of_builtin();
        let as_described = MemorySystem::new(machine)?;
        let unknowns = unknowns(machine);
        let cores = cores(machine, usage);
        let of_core = cores.len();
        // Figures of cores and queues are factors, drawn evenly in their logarithm.
        let factors: Vec<Open> = cores.into_iter().chain([queues(machine)]).collect();
        let of_factors = factors.len();
        // Last, so that the other draws are the same with it and without.
        let division = usage.takes_work.then(taken);
        let ranges: Vec<(f64, f64)> = (unknowns.iter().map(|unknown| (unknown.low, unknown.high)))
            .chain(factors.iter().map(|open| (open.low.ln(), open.high.ln())))
            .chain(division.iter().map(|open| (open.low, open.high)))
            .collect();
        let mut open: Vec<Open> =
            unknowns.iter().map(|unknown| of_machine(machine, unknown)).chain(factors).chain(division).collect();
        let mut all = Vec::new();
        for mut point in latin_hypercube(&ranges, times * count(machine, usage), SEED) {
            let (of_machine, of_program) = point.split_at_mut(unknowns.len());
            let (factors, division) = of_program.split_at_mut(of_factors);
            factors.iter_mut().for_each(|factor| *factor = factor.exp());
            let (cores, queues) = factors.split_at(of_core);
            let set: Vec<(&Unknown, f64)> = unknowns.iter().zip(of_machine.iter().copied()).collect();
            let drawn = machine.with_values(&set).ok().and_then(|drawn| MemorySystem::new(&drawn).ok());
            // A draw that no machine can have (its stations alone would take longer than the whole idle access) leaves the machine as described.
            let system = drawn.unwrap_or_else(|| {
                of_machine.iter_mut().zip(&unknowns).for_each(|(value, unknown)| *value = unknown.value);
                as_described.clone()
            });
            let member = Member::new(system, core_of(cores, usage), queues.iter().product());
            all.push(Member { taken: division.first().copied().unwrap_or(0.0), ..member });
            open.iter_mut().zip(&point).for_each(|(open, value)| open.values.push(*value));
        }
        // A figure whose range is a point is known.
        open.retain(|open| open.low < open.high);
        Ok(Members { open, all })
    }

    /// Keeps some members. `is_left`: which, in their order.
    pub fn keep(&mut self, is_left: &[bool]) {
        let mut of_member = is_left.iter();
        self.all.retain(|_| of_member.next().is_some_and(|is_left| *is_left));
        self.open.iter_mut().for_each(|open| open.values = kept(&open.values, is_left));
    }
}

/// Of values by member, those of members that are left.
pub(crate) fn kept(values: &[f64], is_left: &[bool]) -> Vec<f64> {
    values.iter().zip(is_left).filter(|(_, is_left)| **is_left).map(|(value, _)| *value).collect()
}

/// The unknowns of the program and its cores, in the order of [`core_of`].
fn cores(machine: &Machine, usage: &Usage) -> Vec<Open> {
    let open = |place: &str, words, figure: Bounded, narrowed_by| Open {
        place: place.to_owned(),
        words,
        value: figure.value,
        low: figure.low,
        high: figure.high,
        narrowed_by,
        values: Vec::new(),
    };
    let ranges = CoreRanges::of(machine, &usage.charged_core, usage.own_work);
    let scattered = "scattered accesses that a core keeps outstanding";
    if !usage.charged {
        return vec![open("program.scattered_outstanding", scattered, ranges.scattered, OF_NOTHING)];
    }
    let own = "the program's own work between accesses, relative to the recording's";
    let streamed = "accesses of streams that a core keeps outstanding";
    let own_work_by = if usage.own_work.is_some() { OF_SAME_CORES } else { OF_NATIVE };
    let own_work = open("program.own_work", own, ranges.own, own_work_by);
    let streams = open("program.streamed_outstanding", streamed, ranges.streamed, OF_CLOCK);
    if usage.paces.iter().all(|pace| pace.chains.is_none()) {
        return vec![own_work, open("program.scattered_outstanding", scattered, ranges.scattered, OF_CLOCK), streams];
    }
    let ahead = "instructions that a core looks ahead while it waits for memory";
    let most = "misses that a core keeps outstanding at most";
    let there = "overlap of scattered accesses, relative to what their addresses allow";
    vec![
        own_work,
        streams,
        open("core.window_instructions", ahead, ranges.window, OF_CLOCK),
        open("core.outstanding_misses", most, ranges.misses, misses_by(machine)),
        open("program.overlap", there, ranges.overlap, OF_CLOCK),
    ]
}

/// What narrows the range of a core's misses.
fn misses_by(machine: &Machine) -> &'static str {
    let figure = machine.figures().iter().find(|figure| figure.place == "core.outstanding_misses");
    if figure.is_some_and(|figure| figure.source.starts_with(MEASURED)) { OF_LONGER } else { OF_MEASURE }
}

/// The traffic model's own error: as it was measured on this machine, else as it is known of another one.
fn queues(machine: &Machine) -> Open {
    let measured = machine.traffic().queueing_delay;
    let general = Bounded { value: 1.0, low: QUEUEING_DELAY.0, high: QUEUEING_DELAY.1 };
    let Bounded { value, low, high } = measured.unwrap_or(general);
    Open {
        place: "traffic.queues".to_owned(),
        words: "queueing delay, relative to the traffic model's",
        value,
        low,
        high,
        narrowed_by: if measured.is_some() { OF_NOTHING } else { OF_MEASURE },
        values: Vec::new(),
    }
}

/// What is not known of a program whose threads take work from each other: which share of it goes to whichever thread is free.
fn taken() -> Open {
    Open {
        place: "program.work_taken".to_owned(),
        words: "share of the work that goes to whichever thread is free",
        value: 0.0,
        low: 0.0,
        high: 1.0,
        narrowed_by: OF_NOTHING,
        values: Vec::new(),
    }
}

fn of_machine(machine: &Machine, unknown: &Unknown) -> Open {
    Open {
        place: unknown.place.clone(),
        words: unknown.words(),
        value: unknown.value,
        low: unknown.low,
        high: unknown.high,
        narrowed_by: figure_by(machine, unknown),
        values: Vec::new(),
    }
}

/// What narrows the range of a machine's figure. Messages on links cannot be seen from a program; what a measurement of the machine has left open, another one
/// leaves open, too.
fn figure_by(machine: &Machine, unknown: &Unknown) -> &'static str {
    let is_measured = machine.traffic().queueing_delay.is_some();
    match unknown.subject {
        _ if unknown.source.starts_with(MEASURED) => OF_LONGER,
        Subject::MessageBytes => OF_NOTHING,
        _ if is_measured => OF_NOTHING,
        _ => OF_MEASURE,
    }
}

/// Number of members for which the allowed work suffices.
fn count(machine: &Machine, usage: &Usage) -> usize {
    let nodes = machine.nodes().len();
    let places = nodes * (nodes + machine.links().len());
    let of_windows = usage.windows.count * places * STEPS_OF_PLACE + usage.rows.len() * 2 * nodes;
    let of_one = MEMBER_TURNS * (of_windows + usage.course.len() + usage.paces.len());
    (STEPS / of_one.max(1)).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    //! One thread's pace, on cores of several kinds.

    use numapilot_flows::cores::Chains;

    use super::*;

    const CHARGED: Core = Core { own: 1.0, scattered: 1.0, streamed: 8.0, window: 128.0, misses: 10.0, overlap: 1.0 };

    fn pace(chains: Option<Chains>) -> Pace {
        let outstanding = 2.0;
        Pace { accesses: 1e3, own_ns: 5e3, busy_ns: 1e5, outstanding, stretch: 1.0, chains }
    }

    #[test]
    fn a_core_as_charged_leaves_a_pace_as_it_was_and_a_wider_one_waits_less() {
        for chains in [None, Some(Chains { streamed: 0.3, dependent: 0.2, gap: 20.0 })] {
            let was = pace(chains);
            let same = instead_of(&CHARGED, &CHARGED, &was);
            assert!((same.busy_ns - was.busy_ns).abs() < 1e-6 && (same.outstanding - was.outstanding).abs() < 1e-9);
            let wide = instead_of(&Core { scattered: 4.0, window: 224.0, ..CHARGED }, &CHARGED, &was);
            assert!(wide.busy_ns < was.busy_ns && wide.outstanding > was.outstanding, "{wide:?}");
            // Waiting times outstanding: the sum of latencies stays.
            let latencies = |pace: &Pace| (pace.busy_ns - pace.own_ns) * pace.outstanding;
            assert!((latencies(&wide) / latencies(&was) - 1.0).abs() < 1e-9);
        }
    }

    /// The members of mg on the machine of a model file.
    fn members_of(model: &str) -> Members {
        let machine = Machine::from_model_text(model, "m.toml").expect("a sound model");
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces/mg.numatrace");
        let trace = numapilot_flows::Trace::open(&folder).expect("a committed trace");
        let analysis = crate::Analysis::on(&trace, Some(&machine), numapilot_flows::Filter::default());
        let usage = Usage::of(&analysis, &machine, &std::collections::BTreeMap::new());
        Members::of(&machine, &usage, 1).expect("members")
    }

    const OPTERON: &str = include_str!("../../../../models/opteron-8385.toml");

    #[test]
    fn queues_that_were_measured_on_a_machine_replace_the_general_range() {
        let of = |members: &Members, place: &str| -> Open {
            members.open.iter().find(|open| open.place == place).cloned().expect("it varies")
        };
        let general = members_of(OPTERON);
        let queues = of(&general, "traffic.queues");
        assert_eq!((queues.low, queues.high), QUEUEING_DELAY);
        assert_eq!(queues.narrowed_by, OF_MEASURE);
        assert_eq!(of(&general, "traffic.controller_efficiency").narrowed_by, OF_MEASURE);
        let line = "queueing_delay = { value = 1, source = \"measured: one curve\", range = [0.9, 1.125] }";
        let model = OPTERON.replace("[traffic]\n", &format!("[traffic]\n{line}\n"));
        assert_ne!(model, OPTERON, "the model's [traffic] is written otherwise");
        let measured = members_of(&model);
        let queues = of(&measured, "traffic.queues");
        assert_eq!((queues.low, queues.high, queues.narrowed_by), (0.9, 1.125, OF_NOTHING));
        let all_within = |members: &Members| {
            let values = of(members, "traffic.queues").values;
            values.len() == members.all.len() && values.iter().all(|value| (0.9 - 1e-9..=1.125 + 1e-9).contains(value))
        };
        assert!(all_within(&measured) && !all_within(&general));
        // What a measurement of the machine left open, another one does not close.
        assert_eq!(of(&measured, "traffic.controller_efficiency").narrowed_by, OF_NOTHING);
    }

    /// At this bandwidth and the model's efficiency of 0.8, a line keeps the controller busy for 80 ns of the 115 that an access takes; at 0.6 for 107 of
    /// perhaps 87.
    #[test]
    fn a_draw_that_no_machine_can_have_leaves_the_machine_as_described() {
        let model = OPTERON;
        let slow =
            model.replace("memory_bandwidth_gb_per_s = { value = 12.8,", "memory_bandwidth_gb_per_s = { value = 1,");
        assert_ne!(slow, model, "the model's bandwidth of memory is written otherwise");
        let members = members_of(&slow);
        let efficiency =
            members.open.iter().find(|open| open.place == "traffic.controller_efficiency").expect("it varies");
        let as_described = efficiency.values.iter().filter(|value| **value == efficiency.value).count();
        assert!(as_described > 0 && as_described < members.all.len(), "{as_described} of {}", members.all.len());
    }
}
