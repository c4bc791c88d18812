//! Fits to results that the traffic model itself made, so that the right answer is known; and models of machines of testdata/sysfs.

use super::*;
use crate::calibration::QueueingDelay;
use crate::disturbance::Disturbance;
use crate::kernels::CHAINS;
use crate::results::{CurvePoint, Figure, Host, LatencyCell, Overlap, Target, Walk};
use crate::stats::Spread;

fn figure(value: f64) -> Figure {
    let spread =
        Spread { best: value, confirmed: true, median: value, mad: 0.0, low: value, high: value, repetitions: 9 };
    Figure { spread, disturbance: Disturbance::default() }
}

/// What a machine would measure if the traffic model of `truth` were the truth; shares of 0 to 1 in quarters.
fn measured(truth: &Machine, neighbours: usize, outstanding: f64) -> Results {
    let system = MemorySystem::new(truth).expect("a whole model");
    let nodes = truth.nodes();
    let host = Host { clock_mhz: 2300.0, ..Host::default() };
    let mut results = Results { host, ..Results::default() };
    for (from, node) in nodes.iter().enumerate().filter(|(_, node)| node.has_cpus()) {
        for (to, home) in nodes.iter().enumerate().filter(|(_, home)| home.has_memory()) {
            let mut reads = vec![0.0; nodes.len()];
            reads[to] = 1.0;
            let class = |threads: f64, outstanding: f64, think_ns: f64| Class {
                from,
                threads,
                outstanding,
                think_ns,
                reads: reads.clone(),
                writes: vec![0.0; nodes.len()],
            };
            let point = |asked_share: f64, think_ns: f64| {
                let threads = if asked_share == 0.0 { 0.0 } else { neighbours as f64 };
                let load = Load {
                    classes: vec![class(1.0, 1.0, 0.0), class(threads, outstanding, think_ns)],
                    background: Vec::new(),
                };
                let solution = system.solve(&load).expect("possible");
                let bytes_per_s = solution.throughput_per_s.iter().sum::<f64>() * LINE_BYTES;
                CurvePoint { asked_share, bytes_per_s, ns: figure(solution.latency_ns[0]) }
            };
            let points =
                vec![point(0.0, 0.0), point(0.25, 600.0), point(0.5, 200.0), point(0.75, 60.0), point(1.0, 0.0)];
            let most = points[4].bytes_per_s;
            let (from, cpu, target) = (node.id, node.cpus[0], Target::Node(home.id));
            let ns = figure(truth.idle_latency_ns(from, home.id).expect("told"));
            results.latency.push(LatencyCell {
                from,
                cpu,
                target: target.clone(),
                walk: Walk::Random,
                bytes: 1 << 30,
                loads: 0,
                ns,
            });
            let (kernel, bytes_per_s) = (Kernel::Read, figure(most));
            let cell = BandwidthCell {
                from,
                cpus: 4,
                target: target.clone(),
                kernel,
                bytes: 1 << 30,
                traffic_bytes_per_s: most,
                bytes_per_s,
            };
            results.bandwidth.push(cell);
            results.loaded.push(Curve { from, cpu, neighbours, kernel, target, points });
        }
    }
    results
}

const TWO: &str = r#"
format = 1
name = "two"
cpu = "c"
clock_mhz = { value = 2300, source = "made up" }
[sources]
"made up" = "made up"
[[nodes]]
ids = [0, 1]
cpus = ["0-7", "8-15"]
source = "made up"
memory_gib = { value = 64, source = "made up" }
memory_bandwidth_gb_per_s = { value = 40, source = "made up" }
[traffic]
controller_efficiency = { value = 1, source = "made up" }
[[links]]
pairs = [[0, 1]]
both_ways = true
kind = "l"
bandwidth_gb_per_s = { value = 15, source = "made up" }
[[idle_latency]]
hops = 0
ns = { value = 90, source = "made up" }
[[idle_latency]]
hops = 1
ns = { value = 160, source = "made up" }
"#;

#[test]
fn a_known_machine_is_found_again() {
    let truth = Machine::from_model_text(TWO, "two").expect("a model");
    let results = measured(&truth, 7, 12.0);
    let found = calibrate(&truth, &results).expect("a fit");
    for node in [NodeId(0), NodeId(1)] {
        let controller = &found.controllers[&node];
        assert!((controller.bytes_per_s / 40e9 - 1.0).abs() < 0.03 && !controller.estimate, "{controller:?}");
    }
    for pair in [(NodeId(0), NodeId(1)), (NodeId(1), NodeId(0))] {
        let link = &found.links[&pair];
        assert!((link.bytes_per_s / 15e9 - 1.0).abs() < 0.03 && !link.estimate, "{link:?}");
        assert_eq!(found.latency_ns[&pair].0, 160.0);
    }
    assert!(found.fits.len() == 4 && found.fits.iter().all(|fit| fit.worst < 0.02), "{:?}", found.fits);
}

/// `TWO` whose accesses wait beside queues: 12 times a line's service at a full controller, 19 ns.
fn crowded() -> Machine {
    let crowding = "[traffic]\ncrowding = { value = 12, source = \"made up\" }";
    Machine::from_model_text(&TWO.replacen("[traffic]", crowding, 1), "crowded").expect("a model")
}

/// Limits known, latency that rises long before them.
#[test]
fn what_is_waited_beside_queues_is_found_again_and_nothing_where_nothing_is() {
    // CPUs that write past the caches show the memory's limit; those that read beside the chase take a part of it.
    let with_limit = |truth: &Machine, outstanding: f64| {
        let mut results = measured(truth, 3, outstanding);
        for node in 0..2 {
            let mut cell = results.bandwidth[node * 3].clone();
            (cell.kernel, cell.bytes_per_s) = (Kernel::TriadNt, figure(40e9));
            results.bandwidth.push(cell);
        }
        results
    };
    for outstanding in [3.0, 6.0] {
        let results = with_limit(&crowded(), outstanding);
        let found = calibrate(&crowded(), &results).expect("a fit");
        let crowding = found.crowding.expect("latency rose");
        assert!((crowding / 12.0 - 1.0).abs() < 0.1, "{crowding} with {outstanding} outstanding");
        let text = model_text(&crowded(), &results, &found, "crowded");
        let model = Machine::from_model_text(&text, "crowded.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert!((model.traffic().crowding.expect("written") / crowding - 1.0).abs() < 1e-2, "{text}");
    }
    let truth = Machine::from_model_text(TWO, "two").expect("a model");
    let found = calibrate(&truth, &with_limit(&truth, 3.0)).expect("a fit");
    assert_eq!(found.crowding, None, "what queues explain");
    let mut flat = with_limit(&truth, 3.0);
    for point in flat.loaded.iter_mut().flat_map(|curve| &mut curve.points) {
        point.ns = figure(90.0);
    }
    let found = calibrate(&truth, &flat).expect("a fit");
    assert_eq!(found.crowding, None, "nothing rose");
    assert!(!model_text(&truth, &flat, &found, "two").contains("crowding"));
    // Without curves nothing is known of it.
    flat.loaded.clear();
    assert_eq!(calibrate(&truth, &flat).expect("a fit").crowding, None);
}

/// Make sure that the model file says how far delays were from the model's, and that who reads it gets just that.
#[test]
fn the_models_error_in_queues_goes_into_the_model() {
    let truth = Machine::from_model_text(TWO, "two").expect("a model");
    let results = measured(&truth, 7, 12.0);
    let found = calibrate(&truth, &results).expect("a fit");
    let delay = found.queueing_delay.expect("curves were measured");
    let general = numapilot_traffic::queueing_delay_range(&[]);
    assert!(delay.low >= general.0 && delay.high <= general.1, "{delay:?}: the truth is a traffic model");
    let read = |calibration: &Calibration| {
        let text = model_text(&truth, &results, calibration, "two");
        let model = Machine::from_model_text(&text, "two.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
        model.traffic().queueing_delay
    };
    let kept = read(&found).expect("it was written");
    assert_eq!(kept.value, 1.0);
    assert!((kept.low / delay.low - 1.0).abs() < 1e-3 && (kept.high / delay.high - 1.0).abs() < 1e-3, "{kept:?}");
    // Out of all reason: as far as a model file may say.
    let wild = QueueingDelay { low: 1e-9, high: 1e9, curves: 1 };
    let kept = read(&Calibration { queueing_delay: Some(wild), ..found.clone() }).expect("it was written");
    assert_eq!((kept.low, kept.high), (0.01, 100.0));
    let none = Results { loaded: Vec::new(), ..results.clone() };
    assert_eq!(calibrate(&truth, &none).expect("a fit").queueing_delay, None);
}

#[test]
fn a_memory_that_was_not_filled_is_an_estimate() {
    let truth = Machine::from_model_text(TWO, "two").expect("a model");
    let found = calibrate(&truth, &measured(&truth, 1, 4.0)).expect("a fit");
    let controller = &found.controllers[&NodeId(0)];
    assert!(controller.estimate && controller.source.contains("cannot fill"), "{controller:?}");
    assert!(controller.bytes_per_s > 2.5e9, "at least what was seen: {controller:?}");
}

/// Predictions took a limit that nobody had seen for known exactly, because its figure had no range.
#[test]
fn a_limit_that_was_not_seen_has_a_range_that_holds_the_truth() {
    let truth = Machine::from_model_text(TWO, "two").expect("a model");
    let results = measured(&truth, 1, 4.0);
    let found = calibrate(&truth, &results).expect("a fit");
    let holds = |limit: &Limit, truth: f64| limit.range.is_some_and(|(low, high)| low <= truth && truth <= high);
    assert!(found.controllers.values().all(|limit| holds(limit, 40e9)), "{:?}", found.controllers);
    assert!(found.links.values().all(|limit| holds(limit, 15e9)), "{:?}", found.links);
    let text = model_text(&truth, &results, &found, "two");
    let model = Machine::from_model_text(&text, "two.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let bandwidths = model.unknowns().iter().filter(|unknown| unknown.place.contains("bandwidth"));
    assert_eq!(bandwidths.count(), 4, "two memories and two links: {:?}", model.unknowns());
    // Where the limit was seen there is none, but for what was assumed of it.
    let seen = calibrate(&truth, &measured(&truth, 7, 12.0)).expect("a fit");
    assert!(seen.controllers.values().chain(seen.links.values()).all(|limit| limit.range.is_none()), "{seen:?}");
    let without = Results { loaded: Vec::new(), ..results };
    let found = calibrate(&truth, &without).expect("a fit");
    assert!(found.controllers.values().chain(found.links.values()).all(|limit| limit.range.is_some()), "{found:?}");
}

#[test]
fn what_a_memory_served_of_reads_and_writes_is_what_it_can_do_at_least() {
    let truth = Machine::from_model_text(TWO, "two").expect("a model");
    let mut results = measured(&truth, 1, 4.0);
    let found = |results: &Results| calibrate(&truth, results).expect("a fit").controllers[&NodeId(0)].bytes_per_s;
    let by_reads = found(&results);
    let mut cell = results.bandwidth[0].clone();
    (cell.kernel, cell.bytes_per_s) = (Kernel::Mix1To1, figure(2.0 * by_reads));
    results.bandwidth.push(cell.clone());
    assert!(found(&results) >= 2.0 * by_reads, "{} of {by_reads}", found(&results));
    // Whether the cache read these lines first is unknown.
    results.bandwidth.pop();
    cell.kernel = Kernel::Write;
    results.bandwidth.push(cell);
    assert!((found(&results) / by_reads - 1.0).abs() < 1e-9);
}

/// The same with what the CPUs of each node do at home: one of them reads; `cpus` of them read, and read and write in place. Each has `outstanding` accesses.
fn with_mixes(truth: &Machine, mut results: Results, cpus: usize, outstanding: f64) -> Results {
    let system = MemorySystem::new(truth).expect("a whole model");
    let count = truth.nodes().len();
    results.bandwidth.retain(|cell| cell.target.node() != Some(cell.from));
    for (at, node) in truth.nodes().iter().enumerate().filter(|(_, node)| node.has_cpus() && node.has_memory()) {
        let ran = [(1, Kernel::Read), (cpus, Kernel::Read), (cpus, Kernel::Mix1To1), (cpus, Kernel::Mix2To1)];
        for (cpus, kernel) in ran {
            let (accesses, write_share) = kernel.model_accesses();
            let (mut reads, mut writes) = (vec![0.0; count], vec![0.0; count]);
            (reads[at], writes[at]) = (1.0 - write_share, write_share);
            let class = Class { from: at, threads: cpus as f64, outstanding, think_ns: 0.0, reads, writes };
            let load = Load { classes: vec![class], background: Vec::new() };
            let per_s = system.solve(&load).expect("possible").throughput_per_s[0];
            let bytes_per_s = per_s / accesses * LINE_BYTES / 8.0 * kernel.bytes_per_element() as f64;
            results.bandwidth.push(BandwidthCell {
                from: node.id,
                cpus,
                target: Target::Node(node.id),
                kernel,
                bytes: 1 << 30,
                traffic_bytes_per_s: bytes_per_s,
                bytes_per_s: figure(bytes_per_s),
            });
        }
    }
    results
}

/// `TWO` with CPUs that read 20 GB/s together, of the 40 that their memory serves.
fn narrow() -> Machine {
    let port = "cpus_read_gb_per_s = { value = 20, source = \"made up\" }\n[traffic]";
    Machine::from_model_text(&TWO.replacen("[traffic]", port, 1), "narrow").expect("a model")
}

/// Their limit was taken for that of the memory, which was then half of what reads and writes had shown together; or, where it was not lower than these, for no
/// limit at all, and readers were predicted not to slow one another down.
#[test]
fn what_cpus_read_at_most_is_told_from_what_memory_serves() {
    let truth = narrow();
    let results = with_mixes(&truth, measured(&truth, 7, 12.0), 8, 12.0);
    let found = calibrate(&truth, &results).expect("a fit");
    for node in [NodeId(0), NodeId(1)] {
        let port = &found.read_ports[&node];
        assert!((port.bytes_per_s / 20e9 - 1.0).abs() < 0.04 && !port.estimate, "{port:?}");
        assert!(port.source.contains("reads of all CPUs of the node reach"), "{port:?}");
        let controller = &found.controllers[&node];
        assert!(controller.estimate && controller.bytes_per_s > 34e9, "as much as was seen: {controller:?}");
    }
    let link = &found.links[&(NodeId(1), NodeId(0))];
    assert!((link.bytes_per_s / 15e9 - 1.0).abs() < 0.03, "narrower than the port: {link:?}");
    let text = model_text(&truth, &results, &found, "narrow");
    let model = Machine::from_model_text(&text, "narrow.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let width = model.nodes()[1].cpus_read_bytes_per_s.expect("it was written");
    assert!((width / found.read_ports[&NodeId(1)].bytes_per_s - 1.0).abs() < 1e-3, "{text}");
    // The model moves in place what was measured, though the memory's limit is not known.
    let class = |write_share: f64| Class {
        from: 0,
        threads: 8.0,
        outstanding: 12.0,
        think_ns: 0.0,
        reads: vec![1.0 - write_share, 0.0],
        writes: vec![write_share, 0.0],
    };
    let system = MemorySystem::new(&model).expect("a whole model");
    let lines = |share: f64| {
        let load = Load { classes: vec![class(share)], background: Vec::new() };
        system.solve(&load).expect("possible").throughput_per_s[0] * LINE_BYTES
    };
    assert!((lines(0.0) / 20e9 - 1.0).abs() < 0.05, "{} read", lines(0.0));
    let in_place = results.bandwidth_of(NodeId(0), NodeId(0), Kernel::Mix1To1).expect("measured").bytes_per_s.best();
    assert!((2.0 * lines(1.0) / in_place - 1.0).abs() < 0.06, "{} for {in_place}", 2.0 * lines(1.0));
}

/// What the CPUs write meanwhile comes by no read port.
#[test]
fn a_curve_is_at_the_port_by_what_is_read() {
    let mut curve = measured(&narrow(), 7, 12.0).loaded.remove(0);
    let port = Limit { bytes_per_s: 20e9, estimate: false, range: None, source: "made up".to_owned() };
    let calibration = Calibration { read_ports: BTreeMap::from([(NodeId(0), port)]), ..Calibration::default() };
    assert!(is_at_port(&curve, &calibration));
    curve.kernel = Kernel::Mix1To1;
    assert!(!is_at_port(&curve, &calibration), "half of it is read");
}

/// Two CPUs of which one alone is far from filling anything, and whose neighbour does not make latency rise.
#[test]
fn a_limit_shows_where_cpus_together_read_less_than_each_alone() {
    let text = TWO.replacen("[traffic]", "cpus_read_gb_per_s = { value = 20, source = \"made up\" }\n[traffic]", 1);
    let text = text.replace("[\"0-7\", \"8-15\"]", "[\"0-1\", \"2-3\"]");
    let truth = Machine::from_model_text(&text, "narrow").expect("a model");
    let results = with_mixes(&truth, measured(&truth, 1, 8.0), 2, 25.0);
    let found = calibrate(&truth, &results).expect("a fit");
    let port = found.read_ports.get(&NodeId(0)).expect("a limit");
    assert!((port.bytes_per_s / 20e9 - 1.0).abs() < 0.08, "{port:?}");
    let controller = &found.controllers[&NodeId(0)];
    assert!(controller.bytes_per_s > 30e9 && controller.estimate, "{controller:?}");
    assert!(controller.source.contains("the highest rate"), "no delay here tells of it: {controller:?}");
    assert!(found.write_turnaround.is_none_or(|turnaround| turnaround < 0.2), "{found:?}");
}

#[test]
fn memory_or_cores_that_hold_reads_up_are_no_limit_between_them() {
    let truth = Machine::from_model_text(TWO, "two").expect("a model");
    let full = with_mixes(&truth, measured(&truth, 7, 12.0), 8, 12.0);
    assert!(calibrate(&truth, &full).expect("a fit").read_ports.is_empty(), "the memory is full");
    // Two CPUs that keep four lines outstanding each: in place they move twice as much, and two read twice as much as one.
    let few = with_mixes(&truth, measured(&truth, 1, 4.0), 2, 4.0);
    assert!(calibrate(&truth, &few).expect("a fit").read_ports.is_empty(), "the cores are the limit");
    let text = model_text(&truth, &few, &calibrate(&truth, &few).expect("a fit"), "two");
    assert!(!text.contains("cpus_read"), "{text}");
}

/// Outstanding accesses were fitted to the Triad before it was known what writes cost: on the model that the file describes, they gave another rate.
#[test]
fn a_stream_is_as_fast_on_the_model_as_it_was_measured() {
    const TRIAD_BYTES_PER_S: f64 = 15e9;
    let truth = Machine::from_model_text(TWO, "two").expect("a model");
    let mut results = measured(&truth, 7, 12.0);
    let read = results.bandwidth[0].clone();
    // At half the rate of reads: a written line takes three times as long as a read one.
    let mixed = figure(read.bytes_per_s.best() / 2.0);
    results.bandwidth.push(BandwidthCell { kernel: Kernel::Mix1To1, bytes_per_s: mixed, ..read.clone() });
    let triad = figure(TRIAD_BYTES_PER_S);
    results.bandwidth.push(BandwidthCell { kernel: Kernel::Triad, cpus: 1, bytes_per_s: triad, ..read });
    let found = calibrate(&truth, &results).expect("a fit");
    assert!(found.write_turnaround.is_some_and(|turnaround| (turnaround - 2.0).abs() < 0.01), "{found:?}");
    let class = Class {
        from: 0,
        threads: 1.0,
        outstanding: found.stream_outstanding.expect("a Triad was measured"),
        think_ns: 0.0,
        reads: vec![2.0 / 3.0, 0.0],
        writes: vec![1.0 / 3.0, 0.0],
    };
    let model = system(&truth, &results, &found).expect("a model");
    let solution = model.solve(&Load { classes: vec![class], background: Vec::new() }).expect("possible");
    let bytes_per_s = solution.throughput_per_s[0] * LINE_BYTES;
    assert!((bytes_per_s / TRIAD_BYTES_PER_S - 1.0).abs() < 1e-3, "{bytes_per_s} bytes per second");
}

/// Make sure that implausible latencies (as of a busy emulator) still give a consistent model.
#[test]
fn whatever_was_measured_makes_a_model() {
    let truth = Machine::from_model_text(TWO, "two").expect("a model");
    let without_cpus =
        TWO.replace("[[nodes]]\nids = [0, 1]\ncpus = [\"0-7\", \"8-15\"]", "[[nodes]]\nids = [0]\ncpus = [\"0-7\"]");
    let second = "[[nodes]]\nids = [1]\nsource = \"made up\"\nmemory_gib = { value = 64, source = \"made up\" }\n\
        memory_bandwidth_gb_per_s = { value = 40, source = \"made up\" }\n[traffic]";
    let far = Machine::from_model_text(&without_cpus.replacen("[traffic]", second, 1), "far").expect("a model");
    let ported = with_mixes(&narrow(), measured(&narrow(), 7, 12.0), 8, 12.0);
    let plain = [truth, far].map(|machine| (measured(&machine, 3, 4.0), machine));
    for (results, machine) in plain.into_iter().chain([(ported, narrow())]) {
        for round in 0..24_u32 {
            let mut odd = results.clone();
            for (index, cell) in odd.latency.iter_mut().enumerate() {
                // From 2 ns to 2 us, each cell its own.
                let power = (round * 7 + index as u32 * 5) % 13;
                cell.ns = figure(2.0 * 10_f64.powf(f64::from(power) / 4.0));
            }
            let found = calibrate(&machine, &odd).unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert_eq!(found.latency_ns.len(), odd.latency.len());
        }
    }
}

#[test]
fn what_limits_a_measurement_is_in_its_model() {
    let truth = Machine::from_model_text(TWO, "two").expect("a model");
    let mut results = measured(&truth, 3, 4.0);
    results.notes.push("On node 0, chases go through 1.0 MiB:\nsome loads may hit in the caches.".to_owned());
    let text = model_text(&truth, &results, &calibrate(&truth, &results).expect("a fit"), "limited");
    assert!(text.contains("\n# On node 0, chases go through 1.0 MiB: some loads"), "{text}");
    Machine::from_model_text(&text, "limited.toml").expect("a sound model");
}

#[test]
fn a_pair_that_is_missing_is_named() {
    let truth = Machine::from_model_text(TWO, "two").expect("a model");
    let mut results = measured(&truth, 3, 4.0);
    results.latency.retain(|cell| (cell.from, cell.target.node()) != (NodeId(1), Some(NodeId(0))));
    let error = calibrate(&truth, &results).expect_err("a gap").to_string();
    assert!(error.contains("from node 1 to node 0"), "{error}");
}

/// Results for a machine of testdata/sysfs: latencies by distance, one bandwidth.
fn guessed(machine: &Machine) -> Results {
    let mut results = Results { host: Host { clock_mhz: 2000.0, ..Host::default() }, ..Results::default() };
    for from in machine.nodes().iter().filter(|node| has_online_cpus(machine, node.id)) {
        for to in machine.nodes().iter().filter(|node| node.has_memory()) {
            let (cpu, target) = (from.cpus[0], Target::Node(to.id));
            let ns = figure(machine.idle_latency_or_guess_ns(from.id, to.id));
            results.latency.push(LatencyCell {
                from: from.id,
                cpu,
                target: target.clone(),
                walk: Walk::Random,
                bytes: 1 << 30,
                loads: 0,
                ns,
            });
            let (kernel, bytes_per_s) = (Kernel::Read, figure(20e9));
            let cell = BandwidthCell {
                from: from.id,
                cpus: 4,
                target,
                kernel,
                bytes: 1 << 30,
                traffic_bytes_per_s: 20e9,
                bytes_per_s,
            };
            results.bandwidth.push(cell);
        }
    }
    results
}

#[test]
fn misses_that_a_core_keeps_outstanding_go_into_the_model() {
    let machine = Machine::load("opteron-8385").expect("a model");
    let mut results = guessed(&machine);
    let alone = results.latency.first().cloned().expect("a latency");
    let mut side_by_side = figure(alone.ns.best() / 16.0);
    side_by_side.spread.high *= 1.25;
    results.overlap = Some(Overlap::of(&alone, CHAINS, side_by_side));
    let calibration = calibrate(&machine, &results).expect("a fit");
    let text = model_text(&machine, &results, &calibration, "overlap");
    let model = Machine::from_model_text(&text, "overlap.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let misses = model.core().outstanding_misses.expect("measured");
    assert_eq!((misses.low, misses.value, misses.high), (12.8, 16.0, 16.0), "{text}");
    assert_eq!(model.core().window_instructions, None, "nobody measured it");
    let silent = model_text(&machine, &guessed(&machine), &calibration, "overlap");
    assert!(Machine::from_model_text(&silent, "overlap.toml").expect("a model").core().is_empty());
}

/// A repetition that lost its CPU for seconds made a model that was refused, after all had been measured.
#[test]
fn misses_beyond_what_a_model_may_say_are_the_most_that_it_may() {
    let machine = Machine::load("opteron-8385").expect("a model");
    let mut results = guessed(&machine);
    let mut alone = results.latency.first().cloned().expect("a latency");
    alone.ns.spread.high *= 1000.0;
    results.overlap = Some(Overlap::of(&alone, CHAINS, figure(alone.ns.best() / 16.0)));
    let calibration = calibrate(&machine, &results).expect("a fit");
    let text = model_text(&machine, &results, &calibration, "overlap");
    let model = Machine::from_model_text(&text, "overlap.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let misses = model.core().outstanding_misses.expect("measured");
    assert_eq!((misses.low, misses.value, misses.high), (16.0, 16.0, 1000.0), "{text}");
}

#[test]
fn every_machine_of_testdata_gives_a_model_that_says_the_same() {
    for name in [
        "four-nodes",
        "nps4",
        "two-sockets-smt",
        "one-node",
        "snc2",
        "cxl",
        "sparse-nodes",
        "offline-cpus",
        "memory-less",
    ] {
        let machine =
            Machine::from_sysfs(numapilot_host::testing::tree(name).path()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let results = guessed(&machine);
        let calibration = calibrate(&machine, &results).unwrap_or_else(|e| panic!("{name}: {e}"));
        let text = model_text(&machine, &results, &calibration, "captured");
        let model = Machine::from_model_text(&text, name).unwrap_or_else(|e| panic!("{e}\n{text}"));
        MemorySystem::new(&model).unwrap_or_else(|e| panic!("{name}: {e}"));
        let ids = |machine: &Machine| -> Vec<NodeId> { shown_nodes(machine).map(|node| node.id).collect() };
        assert_eq!(ids(&model), ids(&machine), "{name}");
        assert_eq!(model.online_cpu_count(), machine.online_cpu_count(), "{name}");
        for from in shown_nodes(&machine) {
            for to in shown_nodes(&machine) {
                if has_online_cpus(&machine, from.id) && to.has_memory() {
                    let told = model.idle_latency_ns(from.id, to.id).expect("every pair");
                    assert!((told / machine.idle_latency_or_guess_ns(from.id, to.id) - 1.0).abs() < 1e-3, "{name}");
                }
                assert_eq!(
                    model.distance(from.id, to.id),
                    machine.distance(from.id, to.id),
                    "{name} {} {}",
                    from.id,
                    to.id
                );
            }
        }
        for level in 1..=3 {
            for cpu in machine.cpus().iter().filter(|cpu| cpu.online) {
                let size = |machine: &Machine| machine.data_cache(cpu.id, level).map(|cache| cache.size_bytes);
                assert_eq!(size(&model), size(&machine), "{name} level {level} CPU {}", cpu.id);
            }
        }
    }
}

#[test]
fn hardware_threads_are_told_where_they_are_numbered_as_models_number_them() {
    let machine = Machine::from_sysfs(numapilot_host::testing::tree("two-sockets-smt").path()).expect("a tree");
    let results = guessed(&machine);
    let text = model_text(&machine, &results, &calibrate(&machine, &results).expect("a fit"), "smt");
    let model = Machine::from_model_text(&text, "smt").expect("a model");
    assert!(text.contains("threads_per_core = 2"), "{text}");
    assert_eq!(model.online_core_count(), machine.online_core_count());
    let shared: Vec<_> = model.l3_caches().iter().map(|cache| cache.cpus.clone()).collect();
    assert_eq!(shared, machine.l3_caches().iter().map(|cache| cache.cpus.clone()).collect::<Vec<_>>());
}

#[test]
fn latencies_have_the_range_that_their_repetitions_leave() {
    let truth = Machine::from_model_text(TWO, "two").expect("a model");
    let mut results = measured(&truth, 3, 6.0);
    let spread = &mut results.latency[0].ns.spread;
    // The best of all lies below the interval of their median.
    let best = spread.best;
    (spread.median, spread.low, spread.high) = (best * 1.02, best * 1.01, best * 1.05);
    let calibration = calibrate(&truth, &results).expect("a fit");
    let text = model_text(&truth, &results, &calibration, "two");
    let model = Machine::from_model_text(&text, "two.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let latencies = model.unknowns().iter().filter(|unknown| unknown.place.starts_with("idle_latency"));
    let [latency] = latencies.collect::<Vec<_>>()[..] else { panic!("{:?}", model.unknowns()) };
    assert_eq!((latency.place.as_str(), latency.low), ("idle_latency[0].ns", latency.value));
    assert!((latency.high / best - 1.05).abs() < 0.001, "{latency:?}");
}

/// A model from figures of two states says so, and how far apart these are; one from figures of a single state does not.
#[test]
fn limits_of_several_states_are_estimates_with_a_range_over_them() {
    let truth = narrow();
    let mut results = with_mixes(&truth, measured(&truth, 7, 12.0), 8, 12.0);
    let state = crate::results::PairState {
        from: NodeId(0),
        target: Target::Node(NodeId(0)),
        cpus: 8,
        state: Some(crate::states::State { bytes_per_s: 20e9 }),
        range: (19e9, 30e9),
        cells: 9,
        left_out: 2,
        of_other_states: Vec::new(),
    };
    results.states = vec![state];
    let one = calibrate(&truth, &results).expect("a fit");
    assert!(
        !one.read_ports[&NodeId(0)].estimate && !model_text(&truth, &results, &one, "x").contains("several states")
    );
    results.states[0].of_other_states = vec!["2:1".to_owned()];
    let mixed = calibrate(&truth, &results).expect("a fit");
    let port = &mixed.read_ports[&NodeId(0)];
    assert_eq!(port.bytes_per_s, one.read_ports[&NodeId(0)].bytes_per_s);
    let (low, high) = port.range.expect("a range");
    assert!(port.estimate && low < 0.96 * port.bytes_per_s && high > 1.49 * port.bytes_per_s, "{port:?}");
    assert!(!mixed.read_ports[&NodeId(1)].estimate, "the other node's are of one state");
    let text = model_text(&truth, &results, &mixed, "x");
    assert!(text.contains("several states"), "{text}");
    Machine::from_model_text(&text, "mixed").expect("a model");
}
