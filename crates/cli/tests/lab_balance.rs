//! `balance` on a real kernel with four nodes (the lab): programs whose best placement is known, under two policies, beside the kernel's own NUMA balancing in
//! the same guest; programs that end, exec, fork, remap and lock memory while they are managed; and a daemon that is killed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::*;
use numapilot_lab::{Kernel, Lab, Topology};
use serde_json::Value;

const SOURCE: &str = include_str!("programs/moves.c");

fn lab(kernel: Kernel) -> Lab {
    Lab::new(Topology::symmetric(4)).kernel(kernel).icount(true).time_limit(Duration::from_secs(1800))
}

/// Runs a shell script in the guest, `$moves` and `$numapilot` being the programs; its output.
fn guest(folder: &Path, kernel: Kernel, script: &str) -> (String, String) {
    let program = build_plain(folder, "moves", SOURCE, &[]);
    // All of the binary is read once before anything is timed: on a busy host that takes seconds, of which the programs last a few, and where nobody else works
    // in the guest its clock goes on to the next timer as often as it likes meanwhile.
    let prelude = "cat $numapilot > /dev/null; $numapilot --version > /dev/null; ready() { until grep -q ready $1; do sleep 0.05; done; }; cd /tmp; ";
    let script = format!("moves={} numapilot={BINARY}; {prelude}{script}", program.display());
    let outcome = lab(kernel).run(Command::new("sh").args(["-c", &script])).expect("the lab").expect_success();
    eprintln!("{}, {:.1} s\n{}{}", outcome.how, outcome.run.as_secs_f64(), outcome.stdout, outcome.stderr);
    (outcome.stdout, outcome.stderr)
}

/// The nodes of the program's pages as it read them, in order of time. Linux 6.1 does not report the node of pages that NUMA balancing has unmapped
/// (`gup_can_follow_protnone` in `mm/gup.c`), so readings with many of these are left out.
fn placements(output: &str, mark: &str) -> Vec<Value> {
    let part = output.split(&format!("BEGIN {mark}\n")).nth(1).expect("the mark").split("END").next().expect("an end");
    part.lines()
        .filter(|line| line.starts_with("{\"at\""))
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .filter(|row| number(&row["nowhere"]) <= 16)
        .collect()
}

fn checksum<'a>(output: &'a str, mark: &str) -> &'a str {
    let part = output.split(&format!("BEGIN {mark}\n")).nth(1).expect("the mark").split("END").next().expect("an end");
    part.lines().find(|line| line.starts_with("checksum")).expect("a checksum")
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

/// Starts the program, then the daemon that manages it until the program ends.
fn balanced(mark: &str, program: &str, seconds: u32, options: &str) -> String {
    format!(
        "echo BEGIN {mark}; $moves {program} 2 {seconds} 0.5 2> e & pid=$!; ready e; \
         $numapilot balance --pid $pid {options} > b 2>&1; wait $pid; echo status $?; echo END; cat b;\n"
    )
}

#[test]
fn pages_go_to_their_users() {
    if !numapilot_lab::wanted("balance, remote after allocation") {
        return;
    }
    let folder = scratch();
    for kernel in [Kernel::V6_12, Kernel::V6_1] {
        let script = "echo 0 > /proc/sys/kernel/numa_balancing; ".to_owned()
            + &balanced("pilot", "remote", 5, "--policy pilot")
            + &balanced("carrefour", "remote", 5, "--policy carrefour:gate=1")
            + "cat /proc/sys/kernel/numa_balancing";
        let (output, _) = guest(folder.path(), kernel, &script);
        for policy in ["pilot", "carrefour"] {
            let last = placements(&output, policy).pop().expect("a placement");
            let home = number(&last["in_own_part"]);
            assert!(home * 10 >= 512 * 9, "{policy}: {home} of 512 pages are where they are used\n{output}");
        }
        assert_eq!(checksum(&output, "pilot"), checksum(&output, "carrefour"));
        assert_eq!(output.lines().last(), Some("0"), "the setting is as it was\n{output}");
    }
}

#[test]
fn nothing_moves_for_programs_that_are_placed_well_or_do_nothing() {
    if !numapilot_lab::wanted("balance, nothing to do") {
        return;
    }
    let folder = scratch();
    // One that sleeps lasts until it is told to end: in a guest where nobody works, seconds may pass before the daemon has begun.
    let script = balanced("nothing", "nothing", 4, "--policy pilot")
        + "echo BEGIN sleep; $moves sleep 2 1000000 0.5 2> e & pid=$!; ready e; $numapilot balance --pid $pid --policy pilot --for 3s > b 2>&1; \
           kill -USR1 $pid; wait $pid; echo status $?; echo END; cat b;\n";
    let (output, _) = guest(folder.path(), Kernel::V6_12, &script);
    for mark in ["nothing", "sleep"] {
        let all = placements(&output, mark);
        assert_eq!(all.first().expect("first")["on"], all.last().expect("last")["on"], "{mark}\n{output}");
    }
    // Of a program that runs, a page of its stacks or libraries may move; of one that sleeps, none.
    let asleep = output.split("BEGIN sleep").nth(1).expect("the second");
    assert!(asleep.contains("pages: none moved"), "{output}");
}

#[test]
fn what_everybody_uses_is_spread_and_many_processes_get_their_own() {
    if !numapilot_lab::wanted("balance, shared memory and many processes") {
        return;
    }
    let folder = scratch();
    let run = |program: &str| {
        format!(
            "echo BEGIN {program}; $numapilot balance -q -- $moves {program} 2 3 0.5 2> e; echo status $?; echo END;\n"
        )
    };
    let plain = |program: &str| format!("echo BEGIN plain {program}; $moves {program} 2 1 0.5 2> e; echo END;\n");
    let script = run("shared") + &run("many") + &plain("shared") + &plain("many");
    let (output, _) = guest(folder.path(), Kernel::V6_12, &script);
    let shared = placements(&output, "shared");
    let spread = |place: &Value| {
        let on = place["on"].as_array().expect("counts");
        on.iter().map(|count| number(count).min(512 / 4)).sum::<u64>()
    };
    assert_eq!(spread(&shared[0]), 128, "all on the first node\n{output}");
    let settled: Vec<u64> = shared[shared.len() - 3..].iter().map(spread).collect();
    assert!(settled.iter().all(|right| right * 10 >= 512 * 8), "{settled:?} of 512 pages\n{output}");
    let many = placements(&output, "many");
    let last = number(&many.last().expect("a placement")["in_own_part"]);
    assert!(last * 10 >= 512 * 9, "{last} of 512 pages are with their processes\n{output}");
    for program in ["shared", "many"] {
        assert_eq!(checksum(&output, program), checksum(&output, &format!("plain {program}")), "{output}");
    }
    assert_eq!(output.matches("status 0").count(), 2, "{output}");
}

#[test]
fn a_dry_run_tells_and_moves_nothing() {
    if !numapilot_lab::wanted("balance, dry run") {
        return;
    }
    let folder = scratch();
    // The kernel scans continuously, because a dry run does not change its settings and depends on them. The memory is bound: on a busy machine the kernel
    // would have moved everything before the daemon has seen enough, and nothing would be left to decide.
    let looking = "export MOVES_STAY=1; echo 1 > /proc/sys/kernel/numa_balancing; cd /sys/kernel/debug/sched/numa_balancing; \
        echo 100 > scan_period_min_ms; echo 200 > scan_period_max_ms; cd /tmp; ";
    let script = looking.to_owned()
        + &balanced("dry", "shared", 8, "--policy carrefour:gate=1 --dry-run --json --bound-memory")
        + &balanced("bound", "shared", 8, "--policy carrefour:gate=1 --keep-settings --json");
    let (output, _) = guest(folder.path(), Kernel::V6_12, &script);
    let events_after = |end: usize| {
        let lines = output.split("END\n").nth(end).expect("events").lines().filter(|line| line.starts_with('{'));
        lines.map(|line| serde_json::from_str(line).expect("JSON")).collect::<Vec<Value>>()
    };
    let events = events_after(1);
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).collect::<Vec<_>>();
    assert!(!of("decision").is_empty() && of("action").is_empty() && of("setting").is_empty(), "{output}");
    assert!(of("decision").iter().all(|decision| decision["held_back"] == "dry run"));
    assert_eq!(of("stop").len(), 1);
    let stayed = |place: &Value| number(&place["on"][0]) == 512;
    assert!(placements(&output, "dry").iter().all(stayed), "{output}");
    // Without a dry run what the program has bound stays, and the daemon says so.
    let told = |event: &Value| event["what"].as_str().is_some_and(|what| what.contains("by bind"));
    assert!(events_after(2).iter().any(told), "{output}");
    assert!(placements(&output, "bound").iter().all(stayed), "{output}");
}

#[test]
fn targets_may_end_fork_remap_lock_and_the_daemon_may_be_killed() {
    if !numapilot_lab::wanted("balance, robustness") {
        return;
    }
    let folder = scratch();
    let script = "$moves remote 2 2 > plain 2> e; \
        echo BEGIN churn; $moves churn 1 2 & pid=$!; $numapilot balance --pid $pid -q; wait $pid; echo status $?; echo END; \
        echo BEGIN locked; $moves locked 2 2 2> e & pid=$!; ready e; $numapilot balance --pid $pid -q; wait $pid; echo status $?; echo END; \
        echo BEGIN exec; sh -c \"sleep 0.3; exec $moves remote 2 2\" 2> e & pid=$!; $numapilot balance --pid $pid -q; wait $pid; echo status $?; echo END; \
        echo BEGIN killed; $moves remote 2 4 2> e & pid=$!; ready e; kills=0; \
        for wait in 0.05 0.13 0.34 0.55 0.7; do $numapilot balance --pid $pid -q & b=$!; sleep $wait; kill -9 $b && kills=$((kills+1)); \
            wait $b; done 2> /dev/null; \
        wait $pid; echo status $?; echo END; echo kills $kills; \
        echo BEGIN started; $numapilot balance -q -- $moves remote 2 2 2> e; echo status $?; echo END; \
        echo BEGIN plain; cat plain; echo END; \
        $numapilot balance --pid 999999 -q; echo gone $?; \
        true & dead=$!; wait $dead; $numapilot move $dead --from 0 --to 1; echo gone $?";
    let (output, errors) = guest(folder.path(), Kernel::V6_12, script);
    let want = checksum(&output, "plain");
    for mark in ["locked", "exec", "killed", "started"] {
        assert_eq!(checksum(&output, mark), want, "{mark}\n{output}");
    }
    assert_eq!(output.matches("status 0\n").count(), 5, "{output}");
    assert!(output.contains("kills 5"), "{output}");
    assert_eq!(output.matches("gone 1\n").count(), 2, "{output}");
    assert!(errors.contains("process 999999 has ended") || errors.contains("no process 999999"), "{errors}");
}
