//! The samples of an emulated PMU, imported (`numapilot import`) and recorded live in the guest (`record --engine pmu`, from rings as the kernel lays them
//! out): the report's matrix and remote share against the exact counts of the same run, and everything that is shown says that it was emulated.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::common::*;
use numapilot_lab::Lab;
use numapilot_lab::Sampling;
use numapilot_lab::Topology;
use numapilot_lab::Truth;
use numapilot_lab::TruthOptions;
use serde_json::Value;

const NODES: usize = 4;
const CPUS_PER_NODE: usize = 2;
const PERIOD: u64 = 500;
/// The same where everything counts that runs, the reader of the samples too.
const WHOLE_PERIOD: u64 = 40_000;
/// Pages of each ring in the guest.
const RING_PAGES: usize = 64;

/// Compiles a program of the lab's tests.
fn compiled(folder: &Path, name: &str) -> PathBuf {
    let lab_crate = root().join("crates/lab");
    let program = folder.join(name);
    let mut compiler = Command::new("cc");
    compiler.arg("-O2").arg("-I").arg(lab_crate.join("plugin")).arg("-o").arg(&program);
    let source = lab_crate.join("tests/programs").join(format!("{name}.c"));
    assert!(compiler.arg(source).status().expect("a C compiler").success());
    program
}

/// Four nodes whose accesses are counted and sampled.
fn lab() -> Lab {
    let sampling = Some(Sampling { period: PERIOD, seed: 1 });
    let options = TruthOptions { marked_only: true, sampling, ..TruthOptions::default() };
    Lab::new(Topology::symmetric(NODES)).icount(true).truth(options)
}

/// Runs the marked program on four nodes: its exact counts and the emulated PMU's recording of the same accesses.
fn counted_and_sampled(folder: &Path) -> (Truth, Vec<u8>, String) {
    let program = compiled(folder, "marked");
    let outcome = lab().run(Command::new(&program).current_dir(folder)).expect("the lab runs");
    let mut outcome = outcome.expect_success();
    (outcome.truth.take().expect("asked for"), outcome.samples.take().expect("asked for"), outcome.how)
}

/// Exact accesses from node to node.
fn exact(truth: &Truth) -> [[f64; NODES]; NODES] {
    let mut matrix = [[0.0; NODES]; NODES];
    for (cpu, row) in truth.matrix().iter().enumerate() {
        for (node, &accesses) in row.iter().enumerate() {
            matrix[cpu / CPUS_PER_NODE][node] += accesses as f64;
        }
    }
    matrix
}

/// How far the truth lies from an estimate, in half widths of its 95 % interval on that side: up to 1 the interval covers it.
fn distance(estimate: &Value, truth: f64) -> f64 {
    let [value, low, high] = ["/value", "/low", "/high"].map(|part| number(estimate, part));
    if truth < value {
        (value - truth) / (value - low)
    } else {
        (truth - value) / (high - value).max(f64::MIN_POSITIVE)
    }
}

/// Holds the report's matrix and remote share against the exact counts; the report.
fn agrees(trace: &Path, truth: &Truth, how: &str) -> Value {
    let report = report_json(trace, &["--matrix"]);
    let exact = exact(truth);

    let (mut covered, mut worst) = (0, 0.0_f64);
    for (from, row) in exact.iter().enumerate() {
        for (to, &accesses) in row.iter().enumerate() {
            let cell = report.pointer(&format!("/matrix/accesses/{from}/{to}")).expect("a cell");
            let distance = distance(cell, accesses);
            covered += u32::from(distance <= 1.0);
            worst = worst.max(distance);
        }
    }
    let all: f64 = exact.iter().flatten().sum();
    let remote = 1.0 - (0..NODES).map(|node| exact[node][node]).sum::<f64>() / all;
    let found = report.pointer("/headline/totals/remote_share").expect("a share");
    eprintln!(
        "{how}: {} samples of {all} accesses; 95 % intervals of 16 cells cover the exact count {covered} times, the farthest lies at {worst:.2} half \
         widths; remote share {remote:.4}, in the report {found}",
        number(&report, "/headline/totals/samples")
    );
    // Of 16 intervals of 95 %, 4 miss once in 140 times and 5 once in 1,100. Two half widths are four standard errors.
    assert!(covered >= 12 && worst < 2.0, "{covered} of 16 cells, the farthest at {worst:.2}");
    assert!(distance(found, remote) < 2.0, "remote share {remote} against {found}");
    report
}

#[test]
fn a_report_of_emulated_samples_agrees_with_the_exact_counts_and_says_emulated() {
    if !numapilot_lab::wanted("a_report_of_emulated_samples_agrees_with_the_exact_counts_and_says_emulated") {
        return;
    }
    let folder = scratch();
    let (truth, recording, how) = counted_and_sampled(folder.path());
    let (input, trace) = (folder.path().join("perf.data"), folder.path().join("t.numatrace"));
    fs::write(&input, recording).expect("written");
    let imported = run(&[Path::new("import"), Path::new("-o"), &trace, &input]).succeeded();
    assert!(imported.stderr.contains("emulated") || imported.stdout.contains("emulated"), "{imported:?}");
    let report = agrees(&trace, &truth, &how);

    assert_eq!(report["recording"]["is_simulated"], true, "nothing here is of real hardware");
    let notes = report["recording"]["notes"].as_array().expect("notes");
    assert!(notes[0].as_str().is_some_and(|note| note.starts_with("emulated:")), "{notes:?}");
    assert!(!notes.iter().any(|note| note.as_str().is_some_and(|n| n.contains("by the hardware"))), "{notes:?}");
    let text = run(&[Path::new("report"), &trace, Path::new("--matrix")]).succeeded().stdout;
    assert!(text.contains("emulated") && !text.contains("real hardware"), "{text}");
    let meta: Value = serde_json::from_slice(&fs::read(trace.join("meta.json")).expect("meta.json")).expect("JSON");
    assert_eq!(meta["simulated"], true);
    assert!(meta["machine_name"].as_str().is_some_and(|name| name.contains("emulated")), "{meta}");
}

/// Runs the marked program in the guest under a command of ours that reads emulated rings: its exact counts, and how it went.
fn fed(folder: &Path, command: &str) -> (Truth, String) {
    let (marked, feeder) = (compiled(folder, "marked"), compiled(folder, "feeder"));
    let script = format!(
        "mkdir /dev/shm/pmu && {{ {} /run/lab/samples /dev/shm/pmu {} {RING_PAGES} {PERIOD} /dev/shm/marked & }} && \
         until [ -e /dev/shm/pmu/ready ]; do sleep 0.01; done && \
         NUMAPILOT_EMULATED_PMU=/dev/shm/pmu {BINARY} {command} -- {} 1 /dev/shm/marked && wait",
        feeder.display(),
        NODES * CPUS_PER_NODE,
        marked.display(),
    );
    let outcome = lab().run(Command::new("sh").arg("-c").arg(script).current_dir(folder)).expect("the lab runs");
    let mut outcome = outcome.expect_success();
    (outcome.truth.take().expect("asked for"), outcome.how)
}

/// Samples on which nothing waits: from the plugin through the guest's rings, by the reader of the kernel's own.
#[test]
fn the_pmu_engine_reads_emulated_samples_from_rings_in_the_guest() {
    if !numapilot_lab::wanted("the_pmu_engine_reads_emulated_samples_from_rings_in_the_guest") {
        return;
    }
    let folder = scratch();
    let (truth, how) = fed(folder.path(), "record --engine pmu -o t.numatrace");
    let trace = folder.path().join("t.numatrace");
    let report = agrees(&trace, &truth, &how);
    assert_eq!(report["recording"]["engine"], "pmu");
    assert_eq!(report["recording"]["is_simulated"], true, "nothing here is of real hardware");
    let notes = report["recording"]["notes"].as_array().expect("notes");
    assert!(notes.iter().any(|note| note.as_str().is_some_and(|note| note.starts_with("emulated:"))), "{notes:?}");
    let meta: Value = serde_json::from_slice(&fs::read(trace.join("meta.json")).expect("meta.json")).expect("JSON");
    assert_eq!(meta["simulated"], true);
    assert_eq!(meta["events"]["lost_records"], 0, "{}", meta["events"]);
    let text = run(&[Path::new("report"), &trace, Path::new("--matrix")]).succeeded().stdout;
    assert!(text.contains("emulated") && !text.contains("real hardware"), "{text}");
}

/// The same samples as `stat` sees them while the program runs: by node and in all, against the exact counts.
#[test]
fn stat_tells_local_accesses_by_emulated_samples() {
    if !numapilot_lab::wanted("stat_tells_local_accesses_by_emulated_samples") {
        return;
    }
    let folder = scratch();
    let (truth, how) = fed(folder.path(), "stat --json -o s.json");
    let stat: Value = serde_json::from_slice(&fs::read(folder.path().join("s.json")).expect("a file")).expect("JSON");
    let samples = number(&stat, "/samples/samples");
    assert_eq!(stat["samples"]["lost"], 0, "{}", stat["samples"]);
    let exact = exact(&truth);
    let all: f64 = exact.iter().flatten().sum();
    let within = |told: f64, exact: f64, count: f64| {
        // Four standard errors of a share among so many samples.
        let error = 4.0 * (exact * (1.0 - exact) / count).sqrt();
        eprintln!("{how}: {told:.4} by {count:.0} samples, {exact:.4} exactly, {error:.4} allowed");
        (told - exact).abs() <= error.max(1e-9)
    };
    let local = (0..NODES).map(|node| exact[node][node]).sum::<f64>() / all;
    let told = &stat["metrics"]["local_access_ratio"];
    assert_eq!((&told["source"], &told["estimate"]), (&"samples (EMULATED PMU)".into(), &true.into()), "{told}");
    assert!(within(number(told, "/value"), local, samples));
    assert!(number(&stat, "/metrics/memory_latency_cycles/value") > 0.0, "{}", stat["metrics"]);
    let rate = |node: usize, what: &str| number(&stat, &format!("/nodes/{node}/sampled/{what}_per_s"));
    let rates: f64 = (0..NODES).map(|node| rate(node, "local") + rate(node, "remote")).sum();
    for (node, row) in exact.iter().enumerate() {
        assert_eq!(rate(node, "unknown"), 0.0, "every page's home is told");
        let of_node: f64 = row.iter().sum();
        let told = rate(node, "local") + rate(node, "remote");
        assert!(within(told / rates, of_node / all, samples), "node {node}");
        if of_node > 0.0 {
            assert!(within(rate(node, "local") / told, row[node] / of_node, samples * of_node / all), "node {node}");
        }
    }
    assert!(stat["notes"].to_string().contains("emulated"), "{}", stat["notes"]);
}
/// The daemon's evidence is the emulated PMU: pages go to their users, the kernel's settings stay as they are, and everything says what it was.
#[test]
fn balance_places_memory_by_emulated_samples() {
    if !numapilot_lab::wanted("balance_places_memory_by_emulated_samples") {
        return;
    }
    let folder = scratch();
    let feeder = compiled(folder.path(), "feeder");
    let moves = build_plain(folder.path(), "moves", include_str!("programs/moves.c"), &[]);
    // All of the binary is read once before anything is timed: on a busy host that takes seconds, of which the program lasts eight.
    let script = format!(
        "echo 0 > /proc/sys/kernel/numa_balancing; cat {BINARY} > /dev/null; {BINARY} --version > /dev/null; mkdir /dev/shm/pmu; \
         {} /run/lab/samples /dev/shm/pmu {} {RING_PAGES} {WHOLE_PERIOD} /dev/shm/moves & \
         until [ -e /dev/shm/pmu/ready ]; do sleep 0.01; done; \
         {} remote 2 8 0.5 2> /dev/shm/e & pid=$!; until grep -q ready /dev/shm/e; do sleep 0.01; done; \
         NUMAPILOT_EMULATED_PMU=/dev/shm/pmu {BINARY} balance --pid $pid --json > b.json; \
         wait $pid; echo status $?; cat /proc/sys/kernel/numa_balancing; touch /dev/shm/moves.done; wait",
        feeder.display(),
        NODES * CPUS_PER_NODE,
        moves.display(),
    );
    let sampling = Some(Sampling { period: WHOLE_PERIOD, seed: 1 });
    let options = TruthOptions { marked_only: false, sampling, ..TruthOptions::default() };
    let lab = Lab::new(Topology::symmetric(NODES)).icount(true).truth(options);
    let outcome = lab.run(Command::new("sh").arg("-c").arg(script).current_dir(folder.path())).expect("the lab runs");
    let outcome = outcome.expect_success();
    eprintln!("{}\n{}{}", outcome.how, outcome.stdout, outcome.stderr);
    let events = fs::read_to_string(folder.path().join("b.json")).expect("events");
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).collect::<Vec<_>>();
    let pmu = of("start")[0]["evidence"].as_array().expect("evidence").iter().find(|one| one["name"] == "pmu");
    let pmu = pmu.expect("its evidence");
    assert!(pmu["used"] == true && pmu["detail"].as_str().is_some_and(|how| how.contains("EMULATED")), "{pmu}");
    assert!(of("setting").is_empty(), "{:?}", of("setting"));
    for event in events.iter().take(3).chain(&events[events.len().saturating_sub(3)..]) {
        eprintln!("{event}");
    }
    let seen = of("observation");
    assert!(seen.iter().any(|one| number(one, "/samples") > 0.0 && number(one, "/accesses_per_sample") > 0.0));
    let rows = outcome.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let home: Vec<f64> = rows.filter(Value::is_object).map(|row| number(&row, "/in_own_part")).collect();
    assert!(home[0] < 200.0 && home[home.len() - 1] >= 0.9 * 512.0, "{home:?}\n{}", outcome.stdout);
    assert!(outcome.stdout.contains("status 0\n0\n"), "{}", outcome.stdout);
}
