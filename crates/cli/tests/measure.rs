//! `numapilot measure` on this machine, and on real kernels with several memory nodes (the lab): every matrix has the right rows and columns, memory is where
//! it was asked for (by the kernel's word, and by an exact count of accesses), and the resulting model runs in `simulate`. Times in the lab mean nothing.

use std::collections::BTreeSet;
use std::process::Command;
use std::thread;

use crate::common::*;
use numapilot_lab::{Lab, Outcome, Topology, TruthOptions};
use serde_json::Value;

/// Arrays of the lab: times do not count there, pages do.
const SMALL: [&str; 2] = ["--size", "256KiB"];

fn measure(topology: &Topology, arguments: &[&str]) -> (Value, Outcome) {
    let mut command = Command::new(BINARY);
    command.args(["measure", "--json", "--quiet"]).args(SMALL).args(arguments);
    let outcome = Lab::new(topology.clone()).run(&command).expect("a guest").expect_success();
    eprintln!("measure {arguments:?}: {}, {:.1} s", outcome.how, outcome.run.as_secs_f64());
    let value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e} in {}", outcome.stdout));
    (value, outcome)
}

/// (CPU node, memory node) of the cells of a table that lie on one node.
fn pairs(cells: &Value) -> BTreeSet<(u64, u64)> {
    let pair = |cell: &Value| Some((cell["from"].as_u64()?, cell["target"]["node"].as_u64()?));
    cells.as_array().expect("cells").iter().filter_map(pair).collect()
}

fn cross(from: u64, to: u64) -> BTreeSet<(u64, u64)> {
    (0..from).flat_map(|from| (0..to).map(move |to| (from, to))).collect()
}

/// Everything that was timed was on its node, by the kernel's word on every page.
fn check_placements(results: &Value) {
    let placements = results["placements"].as_array().expect("placements");
    assert!(!placements.is_empty());
    for placement in placements {
        let shown = &placement[1]["shown"];
        let by_node = shown["bytes_by_node"].as_array().unwrap_or_else(|| panic!("not shown: {placement}"));
        let bytes: u64 = by_node.iter().map(|entry| entry[1].as_u64().expect("bytes")).sum();
        assert_eq!(bytes, shown["pages"].as_u64().expect("pages") * 4096);
        match placement[0]["node"].as_u64() {
            Some(node) => assert!(by_node.len() == 1 && by_node[0][0] == node, "{placement}"),
            None => {
                let weights = placement[0]["weighted"].as_array().expect("weights");
                let all: u64 = weights.iter().map(|weight| weight[1].as_u64().expect("a weight")).sum();
                for weight in weights {
                    let found = by_node
                        .iter()
                        .find(|entry| entry[0] == weight[0])
                        .map_or(0, |entry| entry[1].as_u64().expect("bytes"));
                    let due = bytes * weight[1].as_u64().expect("a weight") / all;
                    assert!(found.abs_diff(due) <= 8 * 4096, "{found} of {due} bytes: {placement}");
                }
            }
        }
    }
}

#[test]
fn a_short_measurement_of_this_machine_is_whole() {
    let folder = scratch();
    let (page, picture) = (folder.path().join("m.html"), folder.path().join("m.svg"));
    let mut command =
        numapilot(&["measure", "--quiet", "--size", "1MiB", "--for", "1s", "--picture", "staircase", "--html"]);
    let text = finish(command.arg(&page).arg("--svg").arg(&picture)).succeeded().stdout;
    for part in ["Idle latency", "Cache steps", "Bandwidth", "triad", "read"] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(std::fs::read_to_string(&page).expect("a page").contains("What this machine can do"));
    assert!(std::fs::read_to_string(&picture).expect("a picture").starts_with("<svg"));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing else is left");
}

#[test]
fn what_would_be_measured_is_told_and_what_cannot_be_is_refused() {
    let told = run(&["measure", "--full", "--dry-run"]).succeeded().stdout;
    assert!(
        told.starts_with("The measurements take about ")
            && told.contains("latency from CPU")
            && told.contains("`triad`"),
        "{told}"
    );
    for (arguments, words) in [
        (vec!["--nodes", "999"], "there is no node 999"),
        (vec!["--cpus", "4000"], "CPU 4000"),
        (vec!["--only", "caches", "--model", "x.toml"], "--model needs latency and bandwidth"),
        (vec!["--weights", "0:0"], "0:3,1:1"),
        (
            vec!["--isa", if cfg!(target_arch = "x86_64") { "neon" } else { "avx2" }, "--size", "64KiB"],
            "--isa portable",
        ),
        (
            vec!["--only", "latency", "--size", "64KiB", "--for", "0.1s", "--svg", "x.svg", "--picture", "handoff"],
            "nothing was measured",
        ),
    ] {
        let mut command = numapilot(&["measure", "--quiet"]);
        let folder = scratch();
        let refused = finish(command.args(&arguments).current_dir(folder.path()));
        assert!(
            refused.code == 1 && refused.stderr.contains(words),
            "{arguments:?}: {} {}",
            refused.code,
            refused.stderr
        );
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "{arguments:?}: nothing is left");
    }
}

#[test]
fn every_matrix_has_the_machines_shape() {
    if !numapilot_lab::wanted("numapilot measure on machines with several nodes") {
        return;
    }
    let lopsided = Topology::with_distances(vec![vec![10, 21], vec![31, 10]]);
    let machines = [
        (lopsided, 2, 2, vec!["--for", "5s", "--only", "latency,bandwidth", "--weights", "0:3,1:1"]),
        (Topology::symmetric(4), 4, 4, vec!["--for", "1s"]),
        (Topology::symmetric(2).memory_only_node(), 2, 3, vec!["--for", "1s"]),
        (Topology::opteron(8), 8, 8, vec!["--for", "1s", "--only", "latency"]),
    ];
    let guests = machines.map(|(topology, computes, memories, arguments)| {
        thread::spawn(move || {
            let (results, _) = measure(&topology, &arguments);
            assert_eq!(pairs(&results["latency"]), cross(computes, memories), "{arguments:?}");
            check_placements(&results);
            if !arguments.contains(&"latency") {
                assert_eq!(pairs(&results["bandwidth"]), cross(computes, memories), "{arguments:?}");
                let homes: BTreeSet<_> = (0..computes).map(|node| (node, node)).collect();
                assert!(pairs(&results["caches"]).is_subset(&homes), "{}", results["caches"]);
            }
            if arguments.contains(&"--weights") {
                let cells = results["latency"].as_array().expect("cells").iter();
                let weights = |cell: &Value| cell["target"]["weighted"].as_array().map(|all| all[0][1].clone());
                let spread: Vec<Value> = cells.filter_map(weights).collect();
                assert_eq!(spread.iter().filter(|weight| **weight == 3).count(), 2, "3:1, from both nodes: {spread:?}");
                // A machine with other work may have no time for what nobody asked for, and says so.
                let left_out = results["left_out"].as_array().expect("a list").iter().filter_map(Value::as_str);
                let late = left_out.filter(|what| {
                    what.starts_with("latency") && what.contains("to interleaved: this machine is busy")
                });
                assert_eq!(
                    spread.len() - 2 + late.count(),
                    2,
                    "even, from both nodes: {spread:?}, {}",
                    results["left_out"]
                );
            }
            let positive = |cell: &Value, field: &str| cell[field]["best"].as_f64().is_some_and(|best| best > 0.0);
            assert!(results["latency"].as_array().expect("cells").iter().all(|cell| positive(cell, "ns")));
            assert!(results["bandwidth"].as_array().expect("cells").iter().all(|cell| positive(cell, "bytes_per_s")));
        })
    });
    for guest in guests {
        if let Err(panic) = guest.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn a_chase_from_a_node_to_anothers_memory_goes_there() {
    if !numapilot_lab::wanted("numapilot measure, counted access by access") {
        return;
    }
    let topology = Topology::symmetric(4);
    let mut command = Command::new(BINARY);
    command
        .args(["measure", "--json", "--quiet", "--only", "latency", "--cpu-nodes", "1", "--nodes", "2", "--for", "6s"])
        .args(SMALL);
    let lab = Lab::new(topology.clone()).truth(TruthOptions::default());
    let mut outcome = lab.run(&command).expect("a guest").expect_success();
    let truth = outcome.truth.take().expect("asked for");
    let (cpu, _) = topology.cpus_of(1).expect("CPUs");
    let counts = &truth.regions[0].cpus[cpu as usize];
    let there = counts.nodes[2].loads;
    eprintln!("{}: CPU {cpu} made {there} loads from node 2 among {} accesses", outcome.how, counts.accesses);
    // What it says that it timed, whatever else the program and its kernel did in that time: that is more on a busy host, where the chase gets less far.
    let results: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let timed = results["latency"][0]["loads"].as_u64().expect("loads");
    assert!(
        timed > 100_000 && there >= timed,
        "{there} loads from node 2, {timed} timed, {} accesses",
        counts.accesses
    );
}

#[test]
fn the_model_runs_in_simulate() {
    if !numapilot_lab::wanted("numapilot measure --model, then simulate") {
        return;
    }
    let model = format!("{}/measured.toml", numapilot_lab::FILES_IN_GUEST);
    let (results, outcome) = measure(&Topology::symmetric(2), &["--for", "6s", "--model", &model, "--name", "lab-two"]);
    assert!(results["calibration"]["controllers"].as_array().is_some_and(|list| list.len() == 2), "{results}");
    let file = outcome.files().join("measured.toml").display().to_string();
    let topo: Value =
        serde_json::from_str(&run(&["topo", "--machine", &file, "--json"]).succeeded().stdout).expect("JSON");
    assert_eq!((&topo["name"], topo["nodes"].as_array().map(Vec::len)), (&"lab-two".into(), Some(2)));
    // A busy host has no time for latency under load.
    let delay = &results["calibration"]["queueing_delay"];
    let figures = topo["figures"].as_array().expect("figures");
    let kept = figures.iter().find(|figure| figure["place"] == "traffic.queueing_delay");
    let has_fits = results["calibration"]["fits"].as_array().is_some_and(|fits| !fits.is_empty());
    assert_eq!((!delay.is_null(), kept.is_some()), (has_fits, has_fits), "{delay}, {kept:?}");
    if let Some(kept) = kept {
        let end = |name: &str, at: usize, (least, most): (f64, f64)| {
            let found = delay[name].as_f64().expect("an end").clamp(least, most);
            assert!(
                kept["range"][at].as_f64().is_some_and(|kept| (kept / found - 1.0).abs() < 1e-3),
                "{delay}, {kept}"
            );
        };
        end("low", 0, (0.01, 1.0));
        end("high", 1, (1.0, 100.0));
    }
    for (from, to) in cross(2, 2) {
        let cell = results["latency"].as_array().expect("cells").iter().find(|cell| {
            (cell["from"].as_u64(), cell["target"]["node"].as_u64()) == (Some(from), Some(to))
                && cell["walk"] == "random"
        });
        let measured = cell.and_then(|cell| cell["ns"]["best"].as_f64()).expect("a latency");
        let told = topo["idle_latency_ns"][from as usize][to as usize].as_f64().expect("a latency");
        assert!((told / measured - 1.0).abs() < 1e-3, "node {from} to {to}: {told} for {measured}");
    }
    let program = root().join("workloads/synthetic/hot-controller.toml").display().to_string();
    let simulated =
        run(&["simulate", &program, "--machine", &file, "--policy", "first-touch,interleave", "--json", "--quiet"]);
    let simulated: Value = serde_json::from_str(&simulated.succeeded().stdout).expect("JSON");
    assert_eq!(simulated["runs"].as_array().map(Vec::len), Some(2));
    assert!(simulated["runs"][0]["run_time_ns"].as_f64().is_some_and(|time| time > 0.0), "{simulated}");
}
