//! Plans and numactl's options on a real kernel with four nodes (the lab): every planned object is where the plan says, by `move_pages` and
//! numa_maps, on two kernels; the program's result is the same; numactl's documented examples give the same policy through us.

use std::collections::HashMap;
use std::process::Command;

use crate::common::*;
use numapilot_lab::{Kernel, Lab, Topology};

const KERNELS: [Kernel; 2] = [Kernel::V6_12, Kernel::V6_1];
/// Pages of each object.
const PAGES: u32 = 256;

/// One thread of the host emulates it: nothing here runs at the same time as something else, and eight threads on a host of two CPUs wait for each other.
fn lab(kernel: Kernel) -> Lab {
    Lab::new(Topology::symmetric(4)).kernel(kernel).icount(true)
}

/// The line of each object: the policy of its mapping, and its pages by node.
fn objects(output: &str) -> HashMap<String, (String, Vec<u32>)> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let (name, policy) = (words.next()?.to_owned(), words.next()?.to_owned());
        let pages: Option<Vec<u32>> = words.map(|word| word.parse().ok()).collect();
        Some((name, (policy, pages.filter(|pages| pages.len() == 4)?)))
    };
    output.lines().filter_map(line).collect()
}

#[test]
fn every_planned_object_is_where_the_plan_says() {
    if !numapilot_lab::wanted("plan, objects") {
        return;
    }
    let folder = scratch();
    let source = include_str!("programs/placed.c");
    let program = build_plain(folder.path(), "placed", source, &["-fno-builtin"]);
    let plan = root().join("crates/cli/tests/programs/placed.toml");
    let sum = finish(&mut Command::new(&program)).succeeded().stdout.lines().last().map(str::to_owned);
    for kernel in KERNELS {
        let lab = lab(kernel);
        let mut command = Command::new(BINARY);
        command.args(["run", "--plan"]).arg(&plan).arg("--").arg(&program);
        let outcome = lab.run(&command).expect("the lab").expect_success();
        let seen = objects(&outcome.stdout);
        let is = |name: &str, policy: &str, pages: [u32; 4]| {
            let found = seen.get(name).unwrap_or_else(|| panic!("no {name} in\n{}", outcome.stdout));
            assert_eq!(found.1, pages, "{name} on {}: {}\n{}", outcome.how, outcome.stdout, outcome.stderr);
            assert!(found.0.starts_with(policy), "{name}: {} is not {policy}\n{}", found.0, outcome.stdout);
        };
        let quarter = PAGES / 4;
        is("interleaved", "interleave:0-3", [quarter; 4]);
        is("on_two", "prefer", [0, 0, PAGES, 0]);
        is("strict", "bind:3", [0, 0, 0, PAGES]);
        is("split", "prefer", [quarter; 4]);
        is("weighted", "prefer", [PAGES * 3 / 4, PAGES / 4, 0, 0]);
        is("mapping", "prefer", [0, PAGES, 0, 0]);
        is("static_table", "interleave:1-2", [0, PAGES / 2, PAGES / 2, 0]);
        is("plain", "default", [PAGES, 0, 0, 0]);
        is("inbox_before", "local", [PAGES, 0, 0, 0]);
        is("inbox_after", "prefer", [0, 0, PAGES, 0]);
        for node in 0..4 {
            let mut pages = [0; 4];
            pages[node] = PAGES;
            is(&format!("local_{node}"), "prefer", pages);
        }
        assert!(outcome.stdout.contains(" 512 of 512 on 3\n"), "{}", outcome.stdout);
        assert!(outcome.stdout.contains("consumer runs on 2\n"), "{}", outcome.stdout);
        assert_eq!(outcome.stdout.lines().last().map(str::to_owned), sum, "the program's result");
        assert!(!outcome.stderr.contains("refused"), "{}", outcome.stderr);
        copies_for_a_pinned_process(&lab);
        eprintln!("{}:\n{}{}", outcome.how, outcome.stdout, outcome.stderr);
    }
}

/// A program that is pinned to a node is shown copies of its code, unless they lie there already: all of a library lies on one node at most.
fn copies_for_a_pinned_process(lab: &Lab) {
    let one = |node: u32| format!("{BINARY} run --replicate-mappings --cpunodebind={node} -- cat /proc/self/maps");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{} && {}", one(0), one(2)));
    let outcome = lab.run(&command).expect("the lab").expect_success();
    let is_told = outcome.stderr.lines().any(|line| line.contains("mappings: replaced") && line.contains("libc.so"));
    let is_seen = outcome.stdout.lines().any(|line| line.contains("/numapilot-copies-") && !line.ends_with("remap.so"));
    assert!(is_told && is_seen, "{}\n{}", outcome.stdout, outcome.stderr);
}

/// The examples of numactl's manual page that set a policy for a program, and some more.
const EXAMPLES: [&str; 11] = [
    "--physcpubind=+0-4,6-7",
    "--physcpubind=!0-4,6-7",
    "--interleave=all",
    "--cpunodebind=0 --membind=0,1",
    "--cpunodebind=0 --membind=0,1 --",
    "--preferred=1",
    "--preferred-many=0,3",
    "--localalloc",
    "--cpunodebind=2,3 --interleave=2,3",
    "--membind=!0",
    "-i 0-1,3 -C 7",
];

#[test]
fn numactls_examples_give_the_same_policy_through_us() {
    if !numapilot_lab::wanted("plan, numactl") {
        return;
    }
    // Where interleaving goes on next depends on how many pages the program has touched until it looks. One start for both looks: starts take long in a guest.
    let seen = "sh -c \"numactl --show | grep -v 'interleave next\\|interleavenode'; cut -d' ' -f2 /proc/self/numa_maps | sort -u\"";
    let mut script = String::from("set -e\n");
    for example in EXAMPLES {
        let plain = example.trim_end_matches(" --");
        script.push_str(&format!("echo 'BEGIN {example}'; numactl {plain} {seen}\n"));
        script.push_str(&format!("echo 'OURS'; {BINARY} run {plain} -- {seen}\necho END\n"));
    }
    for kernel in KERNELS {
        let lab = lab(kernel);
        let outcome = lab.run(Command::new("sh").args(["-c", &script])).expect("the lab").expect_success();
        let mut compared = 0;
        for part in outcome.stdout.split("BEGIN ").skip(1) {
            let (head, rest) = part.split_once('\n').expect("a heading");
            let (theirs, ours) = rest.split_once("OURS\n").expect("two parts");
            let ours = ours.trim_end().trim_end_matches("END");
            assert!(!theirs.trim().is_empty(), "{head}: {}", outcome.stdout);
            assert_eq!(theirs.trim(), ours.trim(), "{head} on {}", outcome.how);
            compared += 1;
        }
        assert_eq!(compared, EXAMPLES.len(), "{}", outcome.stdout);
    }
}
