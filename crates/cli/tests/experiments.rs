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
    fs::write(&answer, simulated.stdout).expect("the scratch folder is writable");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/test_experiments.py");
    finish(Command::new("python3").arg(tests).env("SIMULATE_JSON", &answer)).succeeded();
}
