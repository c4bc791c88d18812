//! Real servers under `balance` on a real kernel with four nodes (the lab): PostgreSQL and memcached, filled on node 0 and used from all nodes. Their
//! memory moves to its users, by exact counts; every answer is that of the same load before; the daemon is killed beside the load, and its next start puts
//! the kernel's settings back. `tools/lab-servers` is the longer version, beside servers that nobody balances.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::*;
use numapilot_lab::{Lab, Outcome, PrivateCache, Region, Topology, TruthOptions};
use numapilot_not_run::not_run;
use serde_json::Value;

const NODES: usize = 4;
const CPUS_PER_NODE: usize = 2;
/// What `tools/lab-servers --prepare` says where the servers' packages cannot be had.
const PACKAGES_ABSENT: i32 = 3;

/// Whether all that a guest needs is in the folder.
fn prepared(folder: &Path) -> bool {
    let mut command = Command::new("python3");
    let ran = finish(command.arg(root().join("tools/lab-servers")).arg("--prepare").arg(folder));
    if ran.code == PACKAGES_ABSENT {
        not_run!(Servers, "{}", ran.stderr);
        return false;
    }
    ran.succeeded();
    true
}

/// Runs one server in a guest, managed as `way` says; `sizes` are the variables of `servers/lab.sh`.
fn served(folder: &Path, server: &str, way: &str, sizes: &str) -> Outcome {
    let folder = folder.display();
    let script = format!("numapilot={BINARY} {sizes}; . {folder}/environment; . {folder}/lab.sh; serve {server} {way}");
    let truth = TruthOptions { cache: Some(PrivateCache { sets: 64, ways: 8 }), marked_only: true, sampling: None };
    let lab = Lab::new(Topology::symmetric(NODES)).icount(true).truth(truth).time_limit(Duration::from_secs(900));
    let outcome = lab.run(Command::new("sh").args(["-c", &script])).expect("the lab").expect_success();
    eprintln!("{}, {:.1} s\n{}{}", outcome.how, outcome.run.as_secs_f64(), outcome.stdout, outcome.stderr);
    assert!(!outcome.stdout.contains("FAILED"), "{}", outcome.stdout);
    outcome
}

/// Share of a region's accesses that went to the accessing CPU's own node.
fn local(region: &Region) -> f64 {
    let of = |count: &dyn Fn(usize, usize) -> bool| -> u64 {
        let cpus = region.cpus.iter().enumerate();
        let nodes = cpus.flat_map(|(cpu, counts)| counts.nodes.iter().enumerate().map(move |(node, c)| (cpu, node, c)));
        nodes.filter(|(cpu, node, _)| count(*cpu, *node)).map(|(_, _, c)| c.sum()).sum()
    };
    let total = of(&|_, _| true);
    assert!(total > 10_000, "{total} accesses are too few to compare");
    of(&|cpu, node| cpu / CPUS_PER_NODE == node) as f64 / total as f64
}

/// The values of lines `KIND SERVER WAY [MOMENT] JSON` of this kind, with the words in between.
fn told(output: &str, kind: &str) -> Vec<(String, Value)> {
    let lines = output.lines().filter(|line| line.starts_with(kind));
    lines
        .map(|line| {
            let (words, json) = line.split_once(" {").expect("JSON at the end");
            (words.to_owned(), serde_json::from_str(&format!("{{{json}")).expect("JSON"))
        })
        .collect()
}

/// Every answer of the same load is the same: before the daemon, under it, and while it is killed.
fn check_answers(output: &str) {
    let loads = told(output, "LOAD");
    assert!(loads.len() >= 4, "before, middle, after, and at least one beside the kills: {loads:?}");
    for (moment, load) in &loads {
        assert_eq!((number(load, "/wrong"), number(load, "/missing")), (0.0, 0.0), "{moment}: {load}");
        if !moment.ends_with("middle") {
            assert_eq!(load["checksum"], loads[0].1["checksum"], "{moment}: {load}");
        }
    }
}

fn check_kills(output: &str, wanted: usize) {
    let kills = told(output, "KILLED");
    assert_eq!(kills.len(), wanted, "{kills:?}");
    assert!(kills.iter().all(|(_, kill)| kill["restored"] == true), "{kills:?}");
    // The restores mean something only if there was something to restore.
    assert!(kills.iter().any(|(_, kill)| kill["changed"] == true), "{kills:?}");
}

fn check(server: &str, way: &str, sizes: &str, least_gain: f64) {
    if !numapilot_lab::wanted("a server under `balance`") {
        return;
    }
    let folder = scratch();
    let folder = folder.path().join("servers");
    if !prepared(&folder) {
        return;
    }
    let outcome = served(&folder, server, way, sizes);
    check_answers(&outcome.stdout);
    check_kills(&outcome.stdout, 2);
    assert!(outcome.stdout.contains(&format!("SETTINGS {server} {way} kept")), "settings and affinities stay");
    let truth = outcome.truth.expect("asked for");
    assert_eq!((truth.regions.len(), truth.regions_lost), (2, 0));
    let (before, after) = (local(&truth.regions[0]), local(&truth.regions[1]));
    eprintln!("{server}: {:.1} % of the accesses local before, {:.1} % after", 100.0 * before, 100.0 * after);
    assert!(after >= before + least_gain, "{server}: local accesses {before:.3} before, {after:.3} after");
}

#[test]
fn postgresql_gets_its_memory_and_answers_right() {
    check("postgresql", "pid", "before=10 middle=60 kills='0.02 0.4'", 0.2);
}

/// By its cgroup, as `--unit` finds a service's processes where there is systemd.
#[test]
fn memcached_gets_its_memory_and_answers_right() {
    check("memcached", "cgroup", "before=300 middle=3000 keys=2000 bytes=500 kills='0.02 0.4'", 0.2);
}
