//! `balance --replicate` on a real kernel with four nodes (the lab): processes that only read one file end with copies of it on their own nodes, also
//! those that have gone elsewhere meanwhile; and read the same with and without.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::*;
use numapilot_lab::{Kernel, Lab, Topology};
use serde_json::Value;

const SOURCE: &str = include_str!("programs/readers.c");
/// Guest time after which the workers stop waiting for their copies, seconds. They come after three to ten; a busy host lets more of the guest's time pass
/// while files are read from it.
const PATIENCE_S: u32 = 100;

fn guest(folder: &Path, kernel: Kernel, script: &str) -> String {
    let program = build_plain(folder, "readers", SOURCE, &[]);
    let prelude =
        format!("readers={} numapilot={BINARY}; cd /tmp; head -c 2097152 /dev/urandom > data", program.display());
    let lab = Lab::new(Topology::symmetric(4)).kernel(kernel).icount(true).time_limit(Duration::from_secs(1800));
    let outcome = lab.run(Command::new("sh").args(["-c", &format!("{prelude}; {script}")]));
    let outcome = outcome.expect("the lab").expect_success();
    eprintln!("{}\n{}{}", outcome.how, outcome.stdout, outcome.stderr);
    outcome.stdout
}

/// The output of each worker: its node, how many of its 512 pages were on it, and what it read.
fn workers(output: &str, mark: &str) -> Vec<(u64, u64, u64)> {
    let part = output.split(&format!("BEGIN {mark}\n")).nth(1).expect("the mark").split("END").next().expect("an end");
    let rows = part.lines().filter(|line| line.starts_with("{\"worker\""));
    let rows = rows.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    rows.map(|row| {
        let node = row["node"].as_u64().expect("a node");
        (node, row["on"][node as usize].as_u64().expect("pages"), row["sum"].as_u64().expect("a sum"))
    })
    .collect()
}

#[test]
fn processes_get_copies_of_what_they_only_read() {
    if !numapilot_lab::wanted("balance, copies of files") {
        return;
    }
    let folder = scratch();
    for (kernel, policies) in [(Kernel::V6_12, &["replication", "pilot"][..]), (Kernel::V6_1, &["pilot"])] {
        let run = |mark: &str, options: &str, how: &str| {
            format!(
                "echo BEGIN {mark}; {options} $readers /tmp/data {how} 2> {mark}; echo status $?; echo END; cat {mark}; "
            )
        };
        let balanced = |policy: &&str| {
            let daemon = format!("$numapilot balance --replicate --policy {policy} --journal /tmp/journal --");
            run(policy, &daemon, &format!("{PATIENCE_S} local"))
        };
        let script = run("alone", "", "1")
            + &policies.iter().map(balanced).collect::<String>()
            + "$numapilot explain --journal /tmp/journal; echo LEFT $(ls /dev/shm | wc -l)";
        let output = guest(folder.path(), kernel, &script);
        let (_, _, sum) = workers(&output, "alone")[0];
        for policy in policies {
            let workers = workers(&output, policy);
            assert_eq!(workers.len(), 4, "{output}");
            for (node, there, read) in workers {
                assert!(there * 10 >= 512 * 9, "{policy}: {there} of 512 pages are on node {node}\n{output}");
                assert_eq!(read, sum, "{output}");
            }
        }
        assert_eq!(output.matches("status 0").count(), 1 + policies.len(), "{output}");
        assert!(output.contains("mappings use a copy"), "explain tells of it: {output}");
        assert!(output.contains("LEFT 0"), "the folder of copies is gone: {output}");
    }
}

#[test]
fn a_process_that_goes_elsewhere_gets_the_copy_there_and_keeps_reading_when_the_daemon_is_killed() {
    if !numapilot_lab::wanted("balance, copies of files, wandering") {
        return;
    }
    let folder = scratch();
    let script = format!(
        "balance='$numapilot balance --replicate --policy replication --'; patience={PATIENCE_S}; \
         echo BEGIN wander; eval $balance $readers /tmp/data $patience wander 2> e; echo status $?; echo END; cat e; \
         echo BEGIN killed; (eval exec $balance $readers /tmp/data $patience /tmp/killed 2> f & \
         pid=$!; until grep -q 'readers: local' f; do kill -0 $pid || exit; sleep 0.2; done; kill -9 $pid; wait $pid; touch /tmp/killed; \
         while pgrep -x readers > /dev/null; do sleep 0.2; done); echo END; cat f; \
         echo WERE $(ls /dev/shm | wc -l); $numapilot balance --replicate -- true; echo LEFT $(ls /dev/shm | wc -l)"
    );
    let output = guest(folder.path(), Kernel::V6_12, &script);
    let (wandered, killed) = (workers(&output, "wander"), workers(&output, "killed"));
    assert_eq!((wandered.len(), killed.len()), (4, 4), "{output}");
    for (node, there, _) in wandered.iter().chain(&killed) {
        assert!(there * 10 >= 512 * 9, "{there} of 512 pages are on node {node}\n{output}");
    }
    assert!(wandered.iter().chain(&killed).all(|one| one.2 == wandered[0].2), "{output}");
    assert!(output.contains("WERE 1") && output.contains("LEFT 0"), "the next start removes what was left: {output}");
}
