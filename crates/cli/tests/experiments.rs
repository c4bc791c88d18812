//! The experiments' scripts (`experiments/`) can read what `simulate --json` prints. Their full runs take an hour, so this test keeps them working in between.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::*;

/// A few milliseconds of shared traffic on one node.
const TINY: &str = r#"
format = 1
name = "tiny"
description = "Four threads read and write what the first of them placed."

[[region]]
name = "table"
mib = 4
first_touch = "first"
group = "workers"

[[group]]
name = "workers"
threads = 4

[[phase]]
name = "serve"
[[phase.work]]
group = "workers"
ms = 20
accesses_per_us = 10
[[phase.work.on]]
region = "table"
writes = 0.25
"#;

#[test]
fn the_experiments_understand_what_simulate_prints() {
    let folder = scratch();
    let (workload, answer) = (folder.path().join("tiny.toml"), folder.path().join("answer.json"));
    fs::write(&workload, TINY).expect("the scratch folder is writable");
    let options = ["simulate", "--json", "--quiet", "--machine", "opteron-8385", "--policy"];
    let simulated = finish(numapilot(&options).arg("first-touch,interleave,pilot").arg(&workload)).succeeded();
    assert!(simulated.stdout.contains("so that it has no interval"), "{}", simulated.stdout);
    fs::write(&answer, simulated.stdout).expect("the scratch folder is writable");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/test_experiments.py");
    finish(Command::new("python3").arg(tests).env("SIMULATE_JSON", &answer)).succeeded();
}

/// One run of each policy has no spread: the table, the page and the bars showed gains as if they were known exactly.
#[test]
fn gains_of_simulated_runs_are_said_to_have_no_interval() {
    let folder = scratch();
    let workload = folder.path().join("tiny.toml");
    fs::write(&workload, TINY).expect("the scratch folder is writable");
    let (page, picture) = (folder.path().join("tiny.html"), folder.path().join("tiny.svg"));
    let options = ["simulate", "--quiet", "--machine", "opteron-8385", "--policy", "first-touch,interleave", "--html"];
    let simulated = finish(numapilot(&options).arg(&page).arg("--svg").arg(&picture).arg(&workload)).succeeded();
    let written = |path: &Path| fs::read_to_string(path).expect("what simulate wrote");
    for text in [simulated.stdout, written(&page), written(&picture)] {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("so that it has no interval"), "{text}");
    }
}
