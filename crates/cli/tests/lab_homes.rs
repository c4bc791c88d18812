//! Page homes on the simulated machine beside a real kernel's, in one run of a workload in the lab: its threads run on
//! the nodes that the simulated machine has them on, and the kernel says where each page is.

use std::collections::BTreeMap;
use std::process::Command;

use crate::common::*;
use numapilot_lab::Lab;
use numapilot_lab::Topology;
use numapilot_lab::homes::Comparison;
use numapilot_trace::engine::Engine;

const THREADS: usize = 4;
/// Pages per thread that may be elsewhere for a known reason, whatever the program's size: they are those that a thread touches while it begins, before
/// the kernel has it on its node, and those that it meets another thread on. One per thread is usual.
const EXPLAINED_PER_THREAD: usize = 2;

/// Compares all pages of the program's data; `least`: pages that each node has at least, as a program whose pages are all on one would show nothing.
fn compare(test: &str, name: &str, variant: &str, least: usize) {
    if !numapilot_lab::wanted(test) {
        return;
    }
    let program = workload(name).display().to_string();
    let threads = THREADS.to_string();
    let command = [program.as_str(), "--size", "test", "--threads", &threads, "--variant", variant].map(str::to_owned);
    let comparison = Comparison {
        recorder: BINARY.into(),
        engine: Engine::Instrument,
        machine: "opteron-8385".to_owned(),
        command: command.into(),
        environment: vec![("OMP_WAIT_POLICY".to_owned(), "passive".to_owned())],
        folder: None,
        keep: None,
    };
    let compared = comparison.run(&Lab::new(Topology::opteron(4)).icount(true)).expect("the lab");
    assert_eq!(compared.exit, 0, "{}", compared.stdout);
    let data = compared.homes.sum(|kind| matches!(kind, "heap" | "anonymous" | "static"));
    eprintln!("{}: {data:?}, same by node: {:?}", compared.how, compared.homes.same_on);
    assert!(
        compared.homes.same_on.values().filter(|&&pages| pages >= least).count() >= 4,
        "{:?}",
        compared.homes.same_on
    );
    assert!(data.share_explained() >= 0.99, "{data:?}: {:x?}", compared.homes.examples);
    assert!(data.explained <= EXPLAINED_PER_THREAD * THREADS, "{data:?}: {:?}", compared.homes.reasons);
}

#[test]
fn pages_have_the_same_homes_as_on_a_real_kernel() {
    compare("pages_have_the_same_homes_as_on_a_real_kernel", "psearchy", "naive", 100);
}

/// Blocks of mappings of their own are given back, and the tracker's memory for a thread may come to lie where they were.
#[test]
fn what_the_tracker_has_at_addresses_that_were_given_back_is_no_page_of_the_program() {
    compare("what_the_tracker_has_at_addresses_that_were_given_back_is_no_page_of_the_program", "bfs", "naive", 1);
}

/// Neighbouring threads write to the two ends of a page at nearly the same time, and wait for each other's clocks. Of its
/// 62 pages up to 4 were seen elsewhere for known reasons: one of a library's constants, the first of a thread's heap,
/// and three at whose first touch threads met. Before the tracker had pages made at once, 3 to 5 had no reason.
#[test]
fn a_page_is_the_threads_that_came_first_where_neighbours_share_it() {
    compare("a_page_is_the_threads_that_came_first_where_neighbours_share_it", "mg", "parallel", 1);
}

/// The lines of `programs/common_pages.c`: nodes of pages by case.
fn nodes_by_case(output: &str) -> BTreeMap<String, Vec<i32>> {
    let case = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        Some((name, words.map(str::parse::<i32>).collect::<Result<Vec<_>, _>>().ok()?))
    };
    output.lines().filter_map(case).filter(|(_, nodes)| nodes.len() == 4).collect()
}

/// What the kernel says of them; -2: no page is there.
const COMMON_PAGES: [(&str, [i32; 4]); 8] = [
    ("child-wrote-first", [1, 0, 0, 0]),
    ("child-afterwards", [1, 0, 0, 0]),
    ("parent-wrote-second", [0, 2, 0, 0]),
    ("parent-is-left", [0, 2, 0, 0]),
    ("child-touched-first", [1, 1, -2, -2]),
    ("parent-touched-second", [1, 1, 2, -2]),
    ("cut-and-touched-anew", [3, 3, 3, 3]),
    ("given-before", [1, 1, 1, 1]),
];

/// The same program asks a real kernel of four nodes, and the simulated machine, where pages lie that two processes have. A process's own table knows nothing
/// of what others touched first: it may say so.
#[test]
fn pages_that_processes_have_in_common_lie_where_a_real_kernel_has_them() {
    if !numapilot_lab::wanted("pages_that_processes_have_in_common_lie_where_a_real_kernel_has_them") {
        return;
    }
    let folder = scratch();
    let program = build(folder.path(), "common_pages", "cc", include_str!("programs/common_pages.c"), &[]);
    let lab = Lab::new(Topology::symmetric(4)).icount(true);
    let real = lab.run(&Command::new(&program)).expect("the lab").expect_success();
    let real = nodes_by_case(&real.stdout);
    for (case, nodes) in COMMON_PAGES {
        assert_eq!(real[case], nodes, "{case}: the kernel");
    }
    // What a process can know, it does, unless the kernel interrupts it by a page fault of its own just there: then it may say that it does not know.
    let is_complete = |simulated: &BTreeMap<String, Vec<i32>>| {
        let known = ["child-wrote-first", "child-afterwards", "child-touched-first", "cut-and-touched-anew"];
        known.iter().all(|case| simulated[*case] == real[*case])
            && simulated["parent-wrote-second"][1..] == [2, 0, 0]
            && simulated["parent-touched-second"][2] == 2
    };
    let mut runs = Vec::new();
    for _ in 0..8 {
        let mut record = numapilot(&["record", "--force", "--quiet", "--machine", "opteron-8385", "-o"]);
        record.arg(folder.path().join("common.numatrace")).arg("--").arg(&program);
        let simulated = nodes_by_case(&finish(&mut record).succeeded().stdout);
        // What it says is never wrong.
        for (case, nodes) in COMMON_PAGES {
            for (simulated, real) in simulated[case].iter().zip(nodes) {
                assert!(*simulated == real || *simulated == -2, "{case}: {simulated} in place of {real}");
            }
        }
        if is_complete(&simulated) {
            return;
        }
        runs.push(simulated);
    }
    panic!("what a process can know is missing in each run: {runs:?}");
}
