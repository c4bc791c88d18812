//! `numapilot import` and `report` on the samples of an emulated PMU: the report's matrix and remote share against the exact counts of the same run, and
//! everything that is shown says that it was emulated.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::*;
use numapilot_lab::Lab;
use numapilot_lab::Sampling;
use numapilot_lab::Topology;
use numapilot_lab::Truth;
use numapilot_lab::TruthOptions;
use serde_json::Value;

const NODES: usize = 4;
const CPUS_PER_NODE: usize = 2;
const PERIOD: u64 = 500;

/// Runs the marked program on four nodes: its exact counts and the emulated PMU's recording of the same accesses.
fn counted_and_sampled(folder: &Path) -> (Truth, Vec<u8>, String) {
    let lab_crate = root().join("crates/lab");
    let program = folder.join("marked");
    let mut compiler = Command::new("cc");
    compiler.arg("-O2").arg("-I").arg(lab_crate.join("plugin")).arg("-o").arg(&program);
    assert!(compiler.arg(lab_crate.join("tests/programs/marked.c")).status().expect("a C compiler").success());
    let sampling = Some(Sampling { period: PERIOD, seed: 1 });
    let options = TruthOptions { marked_only: true, sampling, ..TruthOptions::default() };
    let lab = Lab::new(Topology::symmetric(NODES)).icount(true).truth(options);
    let outcome = lab.run(Command::new(&program).current_dir(folder)).expect("the lab runs");
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
    let report = report_json(&trace, &["--matrix"]);
    let exact = exact(&truth);

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
