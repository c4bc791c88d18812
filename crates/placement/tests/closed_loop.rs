//! Policies in closed loop with the simulator: what is published of them, as far as it is a matter of which and not of how much. All times are
//! simulated.

use std::path::Path;

use numapilot_machine::Machine;
use numapilot_placement::policy_by_name;
use numapilot_simulator::{Options, Report, Simulation, synthetic};

/// One of the synthetic programs on Carrefour's machine.
fn run(program: &str, policy: &str) -> Report {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/synthetic").join(program).with_extension("toml");
    let program = synthetic::load(&path).expect("a program");
    let machine = Machine::load("opteron-8385").expect("built-in");
    let mut policy = policy_by_name(policy, &machine, 1).expect("known");
    let simulation = Simulation::new(&program, &machine, Options::default()).expect("they fit");
    let report = simulation.run(policy.as_mut(), &mut |_| true).expect("runs to its end");
    eprintln!(
        "{} under {}: {:.3} s simulated, {} pages moved",
        report.program,
        report.policy,
        report.run_time_ns / 1e9,
        report.moves.pages()
    );
    report
}

fn local_ratio(report: &Report) -> f64 {
    report.total.metrics.local_access_ratio.expect("there are accesses")
}

#[test]
fn a_contended_array_gains_from_carrefour_and_from_the_kernel() {
    // Streamcluster's class: Carrefour +180 % over default Linux there, interleaving +100 %.
    let before = run("concurrent-written", "first-touch");
    for policy in ["interleave", "carrefour", "carrefour-as-coded", "kernel-balancing"] {
        let after = run("concurrent-written", policy);
        assert!(after.run_time_ns < 0.97 * before.run_time_ns, "{policy}");
    }
}

#[test]
fn carrefour_leaves_well_placed_programs_alone() {
    // BT's and MG's class: interleaving hurts, Carrefour costs 4 % at most.
    let before = run("first-touch-stencil", "first-touch");
    assert!(run("first-touch-stencil", "interleave").run_time_ns > 1.04 * before.run_time_ns);
    assert!(run("first-touch-stencil", "carrefour").run_time_ns < 1.04 * before.run_time_ns);
}

#[test]
fn bursts_are_over_before_carrefour_has_seen_them() {
    // IS: interleaving helps it, Carrefour does not.
    let before = run("bursts", "first-touch");
    assert!(run("bursts", "interleave").run_time_ns < 0.95 * before.run_time_ns);
    assert!(run("bursts", "carrefour").run_time_ns > 0.97 * before.run_time_ns);
}

#[test]
fn only_splitting_helps_where_large_pages_are_falsely_shared() {
    let before = run("false-sharing-2mib", "first-touch");
    let plain = run("false-sharing-2mib", "carrefour:large=on");
    let split = run("false-sharing-2mib", "carrefour-lp");
    assert!(split.run_time_ns < 0.95 * before.run_time_ns.min(plain.run_time_ns));
    assert!(local_ratio(&split) > local_ratio(&before) + 0.2);
}

#[test]
fn the_kernel_brings_misplaced_private_memory_to_its_users() {
    let before = run("remote-after-allocation", "first-touch");
    let after = run("remote-after-allocation", "kernel-balancing");
    assert!(after.run_time_ns < 0.9 * before.run_time_ns);
    assert!(local_ratio(&after) > 0.7 && local_ratio(&before) < 0.3);
}
