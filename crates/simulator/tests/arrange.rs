//! Other homes for pages: what each arrangement must do to the accesses of programs that are known.

use numapilot_host::PageNumber;
use numapilot_machine::{Machine, NodeId};
use numapilot_placement::policy_by_name;
use numapilot_simulator::arrange::{Arrangement, PageRange, arrange, optimal};
use numapilot_simulator::program::{FirstTouch, Program};
use numapilot_simulator::{Layout, Options, Report, Simulation, synthetic};

/// Sixteen threads share one region that one of them touches first; a second region belongs to its users.
const SHARED: &str = r#"
format = 1
name = "shared"
description = "One shared table on the node of whoever filled it."
repeat = 3

[[region]]
name = "table"
mib = 32
first_touch = "first"
group = "workers"

[[region]]
name = "own"
mib = 32
first_touch = "first"
group = "workers"

[[group]]
name = "workers"
threads = 16

[[phase]]
name = "work"
[[phase.work]]
group = "workers"
ms = 20
accesses_per_us = 20
outstanding = 4
instructions_per_ns = 1.0
[[phase.work.on]]
region = "table"
share = 0.7
writes = 0.0
[[phase.work.on]]
region = "own"
share = 0.3
pattern = "parts"
writes = 0.3
"#;

const ALL: [PageRange; 1] = [(0, PageNumber(0), u64::MAX / 2)];

fn machine() -> Machine {
    Machine::load("opteron-8385").expect("a built-in model")
}

fn program() -> Program {
    synthetic::parse(SHARED, "shared.toml").expect("sound")
}

fn run(program: &Program, policy: &str) -> Report {
    let machine = machine();
    let mut policy = policy_by_name(policy, &machine, 1).expect("a policy");
    let simulation = Simulation::new(program, &machine, Options::default()).expect("they fit together");
    simulation.run(policy.as_mut(), &mut |_| true).expect("a run")
}

fn arranged(how: &Arrangement) -> (Report, u64, u64) {
    let mut program = program();
    let done = arrange(&mut program, &machine(), Layout::Recorded, &ALL, how).expect("arranged");
    (run(&program, "first-touch"), done.pages, done.more_bytes)
}

fn local(report: &Report) -> f64 {
    report.total.metrics.local_access_ratio.expect("accesses")
}

fn served(report: &Report, node: usize) -> f64 {
    let all: f64 = report.total.accesses.iter().flatten().sum();
    report.total.accesses.iter().map(|row| row[node]).sum::<f64>() / all
}

#[test]
fn interleaving_equals_the_policy_and_binding_puts_all_on_one_node() {
    let (report, pages, more) = arranged(&Arrangement::Interleave);
    let policy = run(&program(), "interleave");
    assert_eq!((pages, more), (64 << 20 >> 12, 0));
    assert!((local(&report) - 0.25).abs() < 1e-3 && (report.run_time_ns / policy.run_time_ns - 1.0).abs() < 1e-3);
    let (bound, ..) = arranged(&Arrangement::On(NodeId(2)));
    assert!((served(&bound, 2) - 1.0).abs() < 1e-9 && bound.run_time_ns > report.run_time_ns);
}

#[test]
fn copies_make_everything_local_and_cost_memory() {
    let (report, _, more) = arranged(&Arrangement::Replicate);
    assert!((local(&report) - 1.0).abs() < 1e-9, "{}", local(&report));
    assert_eq!(more, 3 * (64 << 20), "three more copies of 64 MiB on four nodes");
    let before = run(&program(), "first-touch");
    let sum = |report: &Report| report.total.accesses.iter().flatten().sum::<f64>();
    assert!((sum(&report) / sum(&before) - 1.0).abs() < 1e-9, "no access is lost or made up");
}

#[test]
fn users_get_their_own_pages_and_nobody_else_is_harmed() {
    let (report, ..) = arranged(&Arrangement::Users);
    // The parts are their users' alone (0.3 of the accesses); of the shared table a quarter is local wherever its pages are.
    assert!((local(&report) - (0.3 + 0.7 * 0.25)).abs() < 0.01, "{}", local(&report));
}

#[test]
fn the_optimum_is_no_worse_than_first_touch_interleaving_or_its_own_bound() {
    let mut best = program();
    let found = optimal(&mut best, &machine(), Layout::Recorded).expect("found");
    let report = run(&best, "first-touch");
    for policy in ["first-touch", "interleave"] {
        let other = run(&program(), policy);
        assert!(
            report.run_time_ns <= other.run_time_ns * 1.005,
            "{policy}: {} against {}",
            report.run_time_ns,
            other.run_time_ns
        );
    }
    assert!(
        report.run_time_ns / 1e9 >= found.bound_s * 0.999,
        "{} s is below the bound of {} s",
        report.run_time_ns / 1e9,
        found.bound_s
    );
    assert!(found.predicted_s >= found.bound_s);
}

#[test]
fn first_touch_frees_the_named_pages_alone_of_the_programs_request() {
    let mut program = program();
    let node = Some(NodeId(2));
    program.first_touches = vec![FirstTouch { region: 0, first: 0, pages: 100, thread: 3, bound: node }];
    let named: [PageRange; 1] = [(0, program.regions[0].first_page + 40, 20)];
    arrange(&mut program, &machine(), Layout::Recorded, &named, &Arrangement::FirstTouch).expect("arranged");
    let touches: Vec<_> =
        program.first_touches.iter().map(|touch| (touch.first, touch.pages, touch.thread, touch.bound)).collect();
    assert_eq!(touches, [(0, 40, 3, node), (40, 20, 3, None), (60, 40, 3, node)]);
}

#[test]
fn near_memory_is_that_of_nodes_with_cpus() {
    let text = numapilot_machine::builtin_text("xeon-2s-cxl").expect("its text");
    let homes = |text: &str, how: &Arrangement| {
        let machine = Machine::from_model_text(text, "m.toml").expect("a sound model");
        let mut program = program();
        arrange(&mut program, &machine, Layout::Recorded, &ALL, how).map(|_| {
            let mut homes: Vec<NodeId> = program.ordered_homes.iter().flat_map(|order| order.homes.clone()).collect();
            homes.sort_unstable();
            homes.dedup();
            homes
        })
    };
    for how in [Arrangement::Near, Arrangement::FastTier] {
        assert_eq!(homes(text, &how).expect("arranged"), [NodeId(0), NodeId(1)], "{how:?}");
    }
    assert_eq!(homes(text, &Arrangement::Interleave).expect("arranged"), [NodeId(0), NodeId(1), NodeId(2)]);
    let wide = text.replace("{ value = 76.8, source", "{ value = 800, source").replace("[38.4, 76.8]", "[400, 900]");
    assert_eq!(homes(&wide, &Arrangement::Near).expect("arranged"), [NodeId(0), NodeId(1)]);
    let why = homes(&wide, &Arrangement::FastTier).unwrap_err().to_string();
    assert!(why.contains("memory of node 2 has more bandwidth"), "{why}");
    let even = numapilot_machine::builtin_text("xeon-2s").expect("its text");
    assert_eq!(homes(even, &Arrangement::Near).expect("arranged"), [NodeId(0), NodeId(1)]);
    let why = homes(even, &Arrangement::FastTier).unwrap_err().to_string();
    assert!(why.contains("no tiers of memory") && why.contains("write near"), "{why}");
}

#[test]
fn a_node_without_memory_is_refused_by_name() {
    let error = arrange(&mut program(), &machine(), Layout::Recorded, &ALL, &Arrangement::On(NodeId(9)))
        .unwrap_err()
        .to_string();
    assert!(error.contains("no node 9") && error.contains("0, 1, 2, 3"), "{error}");
}
