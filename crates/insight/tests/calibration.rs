//! Intervals that latencies narrow which a processor measured: made-up recordings whose latencies come from a known machine, within the ranges of the one that
//! they are priced on.

use numapilot_flows::{AccessRef, Filter, Object, ObjectKind, Process, Site, SiteId, Tables, Thread, Trace};
use numapilot_host::VirtAddr;
use numapilot_insight::whatif::{Answer, PlacementOverride};
use numapilot_insight::{Analysis, Calibration};
use numapilot_machine::{Machine, NodeId};
use numapilot_trace::engine::Engine;
use numapilot_trace::ids::{ObjectId, ProcessIndex, ThreadIndex, TimeNs};
use numapilot_trace::meta::{ClockInfo, Meta};
use numapilot_trace::record::Level;
use serde_json::{Value, json};

const MS: u64 = 1_000_000;
/// Of the cores, kHz: without turbo, so that the clock of the latencies is the fastest there is.
const KHZ: u32 = 2_000_000;

/// Two nodes whose links and memory hardly queue. `local`, `remote`: figures with their ranges.
fn model(local: &str, remote: &str) -> Machine {
    let text = format!(
        r#"
format = 1
name = "made-up"
cpu = "made up"
clock_mhz = {{ value = 2000, source = "made up" }}
[sources]
"made up" = "made up"
[[nodes]]
ids = [0, 1]
cpus = ["0-1", "2-3"]
source = "made up"
memory_gib = {{ value = 4, source = "made up" }}
memory_bandwidth_gb_per_s = {{ value = 1000, source = "made up" }}
[[links]]
pairs = [[0, 1]]
both_ways = true
kind = "link"
bandwidth_gb_per_s = {{ value = 1000, source = "made up" }}
[[idle_latency]]
hops = 0
ns = {{ {local} }}
[[idle_latency]]
hops = 1
ns = {{ {remote} }}
"#
    );
    Machine::from_model_text(&text, "a made-up model").expect("a sound model")
}

/// The machine as its description has it: 80 to 120 ns, 120 to 260 ns.
fn described() -> Machine {
    model(
        r#"value = 100, source = "made up", estimate = true, range = [80, 120]"#,
        r#"value = 150, source = "made up", estimate = true, range = [120, 260]"#,
    )
}

/// The machine as it is.
fn real(remote_ns: f64) -> Machine {
    model(r#"value = 100, source = "made up""#, &format!(r#"value = {remote_ns}, source = "made up""#))
}

/// What a recording by perf of IBS says of itself.
fn of_ibs() -> Meta {
    let host = json!({ "arch": "x86_64", "cpu_model": "AMD made up", "core_khz_max": KHZ });
    let config =
        json!({ "events": [{ "name": "ibs_op//", "type": 11, "pmu": "ibs_op", "config": 1 << 19, "config1": 0 }] });
    let more = json!({ "import": { "home_by_first_touch": 0 } });
    let map = |value: &Value| value.as_object().cloned().expect("an object");
    Meta {
        engine: Engine::Import.into(),
        machine: json!({ "clock_mhz": 2000.0 }),
        clock: ClockInfo { khz: 1_000_000, ..ClockInfo::default() },
        host: map(&host),
        config: map(&config),
        more: map(&more),
        ..Meta::default()
    }
}

/// A thread on node 0 reads a table on node 1 for 200 ms, and waits for half of that time on a machine with this latency. What the processor measures of each
/// load is `measured` of its number and that latency, ns.
fn program(remote_ns: f64, measured: impl Fn(u64, f64) -> f64, meta: Meta) -> Trace {
    let (end, samples) = (200 * MS, 4000_u64);
    let mut tables = Tables { end: TimeNs(end), ..Tables::default() };
    tables.processes.push(Process { end: Some(TimeNs(end)), ..Process::default() });
    tables.threads.push(Thread { node: Some(NodeId(0)), end: Some(TimeNs(end)), ..Thread::default() });
    tables.sites.push(Site { kind: ObjectKind::Heap, name: "table".into(), ..Site::default() });
    let address = VirtAddr(0x7000_0000_0000);
    tables.objects.push(Object {
        id: ObjectId(0),
        site: SiteId(0),
        process: ProcessIndex(0),
        address,
        bytes: 1024 << 12,
        thread: Some(ThreadIndex(0)),
        node: Some(NodeId(0)),
        ..Object::default()
    });
    let accesses = end as f64 / 2.0 / remote_ns;
    for sample in 0..samples {
        let mut access = AccessRef::at(address.0 + (sample * 7919) % (1024 << 12) / 64 * 64);
        access.time = TimeNs(sample * end / samples);
        access.thread = ThreadIndex(0);
        access.object = Some(ObjectId(0));
        access.node = Some(NodeId(0));
        access.home = Some(NodeId(1));
        access.level = Level::Memory;
        access.weight = (accesses / samples as f64).round() as u32;
        access.latency_cycles = Some((measured(sample, remote_ns) * f64::from(KHZ) / 1e6).round() as u32);
        tables.accesses.push(&access);
    }
    Trace::from_tables(tables).with_meta(meta)
}

/// As IBS measures: up to a tenth more or less, and one load in twenty joins a miss that is half way.
fn as_ibs(sample: u64, ns: f64) -> f64 {
    let scatter = 0.9 + 0.2 * ((sample * 7919 % 997) as f64 / 996.0);
    ns * scatter * if sample % 20 == 7 { 0.5 } else { 1.0 }
}

fn answer(trace: &Trace, machine: &Machine, is_calibrated: bool) -> Answer {
    let analysis = Analysis::on(trace, Some(machine), Filter::default());
    let analysis = if is_calibrated { analysis.calibrated() } else { analysis };
    let change = PlacementOverride::read(trace, "table=users").expect("a change");
    analysis.what_if(machine, &[change]).expect("an answer")
}

fn calibration(answer: &Answer) -> &Calibration {
    answer.uncertainty.calibration.as_ref().expect("it was asked for")
}

/// The slower the real machine, the more draws are left out; the interval gives up gains that only faster machines have, and holds that of the real one. The
/// bound stays below the real latency, although each in twenty measures half of it.
#[test]
fn draws_that_are_faster_than_measured_are_left_out_and_the_truth_stays() {
    let described = described();
    for remote_ns in [160.0, 175.0, 190.0, 205.0] {
        let trace = program(remote_ns, as_ibs, of_ibs());
        let truth = answer(&trace, &real(remote_ns), false).gain.value;
        let (plain, narrow) = (answer(&trace, &described, false), answer(&trace, &described, true));
        assert_eq!(plain.uncertainty.calibration, None);
        let told = calibration(&narrow);
        let [bound] = told.bounds.as_slice() else { panic!("{told:?}") };
        assert_eq!((bound.from, bound.home, bound.samples, &told.not_used), (NodeId(0), NodeId(1), 4000, &None));
        assert!(bound.at_least_ns < remote_ns && bound.at_least_ns > 0.9 * remote_ns, "{remote_ns} ns: {bound:?}");
        assert!(bound.contradicted > 0 && told.left == told.members - bound.contradicted, "{told:?}");
        let (wide, gain) = (&plain.gain, &narrow.gain);
        assert!(wide.low <= truth && truth <= wide.high, "{remote_ns} ns: {truth} in {wide:?}");
        assert!(gain.low <= truth && truth <= gain.high, "{remote_ns} ns: {truth} in {gain:?}");
        assert!(gain.low > 1.2 * wide.low, "{remote_ns} ns: {gain:?}, {wide:?} before");
        // As a ratio of its ends, which is what an unknown overlap scales.
        assert!(gain.high / gain.low < wide.high / wide.low, "{remote_ns} ns: {gain:?}, {wide:?} before");
        assert_eq!(narrow.gain.value, plain.gain.value);
    }
}

/// A fifth of the loads come in bursts and wait for five times as long, which the model, whose loads are steady, cannot say of any machine.
#[test]
fn bursts_do_not_make_a_machine_slow() {
    let in_bursts = |sample: u64, ns: f64| as_ibs(sample, ns) * if sample.is_multiple_of(5) { 5.0 } else { 1.0 };
    let trace = program(175.0, in_bursts, of_ibs());
    let found = answer(&trace, &described(), true);
    let told = calibration(&found);
    assert!(told.bounds[0].at_least_ns < 175.0 && told.bounds[0].at_least_ns > 150.0, "{told:?}");
}

/// What all draws are slower than leaves out none, and what hardly any is as slow as is said and changes nothing.
#[test]
fn what_says_nothing_and_what_contradicts_everything_leave_the_interval_as_it_is() {
    let described = described();
    let fast = program(200.0, |_, _| 60.0, of_ibs());
    let (plain, same) = (answer(&fast, &described, false), answer(&fast, &described, true));
    let told = calibration(&same);
    assert_eq!((told.left, &told.not_used, &same.gain), (told.members, &None, &plain.gain), "{told:?}");
    let slow = program(200.0, |_, _| 900.0, of_ibs());
    let (plain, same) = (answer(&slow, &described, false), answer(&slow, &described, true));
    let told = calibration(&same);
    assert_eq!((told.left, &same.gain), (0, &plain.gain), "{told:?}");
    let why = told.not_used.as_deref().expect("a reason");
    assert!(why.contains("do not agree") && why.contains("from node 0 to memory of node 1 take"), "{why}");
}

/// Latencies that are no bound are not used, and the reason is said.
#[test]
fn latencies_that_are_no_bound_are_not_used() {
    let described = described();
    let changed = |change: fn(&mut Meta)| {
        let mut meta = of_ibs();
        change(&mut meta);
        meta
    };
    let pmu = |name: &str| json!([{ "name": "x", "type": 11, "pmu": name, "config1": 0 }]);
    let of_pmu = |name: &str| {
        let mut meta = of_ibs();
        meta.config.insert("events".to_owned(), pmu(name));
        meta
    };
    let with_threshold = changed(|meta| {
        let events = json!([{ "name": "ibs_op/ldlat=256/", "type": 11, "pmu": "ibs_op", "config1": 256 }]);
        meta.config.insert("events".to_owned(), events);
    });
    let without_clock = changed(|meta| {
        meta.host.remove("core_khz_max");
    });
    let by_touch = changed(|meta| {
        meta.more.insert("import".to_owned(), json!({ "home_by_first_touch": 3 }));
    });
    for (meta, why) in [
        (of_pmu("cpu"), "Only latencies of AMD's IBS"),
        (of_pmu("arm_spe_0"), "Only latencies of AMD's IBS"),
        (with_threshold, "chosen by their latency"),
        (without_clock, "--core-mhz-max"),
        (by_touch, "first touches"),
    ] {
        let trace = program(230.0, as_ibs, meta);
        let (plain, same) = (answer(&trace, &described, false), answer(&trace, &described, true));
        let told = calibration(&same);
        assert_eq!((told.members, told.left, &same.gain), (0, 0, &plain.gain), "{told:?}");
        assert!(told.not_used.as_deref().is_some_and(|told| told.contains(why)), "{why}: {told:?}");
    }
}

/// A clock that can be faster than the one that cycles are shown in makes a lower bound.
#[test]
fn cycles_of_a_faster_clock_are_a_lower_bound() {
    let described = described();
    let mut meta = of_ibs();
    meta.host.insert("core_khz_max".to_owned(), json!(KHZ * 5 / 4));
    let at_least_ns = |meta: Meta| {
        let trace = program(230.0, as_ibs, meta);
        calibration(&answer(&trace, &described, true)).bounds[0].at_least_ns
    };
    let (turbo, fixed) = (at_least_ns(meta), at_least_ns(of_ibs()));
    assert!((turbo / fixed - 0.8).abs() < 1e-6, "{turbo} ns, {fixed} ns at the clock itself");
}
