//! Policies for memory of several tiers, the kernel's and our own, in closed loop with the simulator, on a machine whose fast memory is smaller than the
//! program. All times are simulated.

use std::path::Path;

use numapilot_machine::Machine;
use numapilot_placement::policy_by_name;
use numapilot_simulator::{Options, Report, Simulation, synthetic};

/// The machine with an expander, 32 MiB on each node with CPUs.
fn machine() -> Machine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/xeon-2s-cxl.toml");
    let model = std::fs::read_to_string(&path).expect("the model");
    let small = model.replace("value = 256, source = \"fitted\"", "value = 0.03125, source = \"fitted\"");
    let small = small.replace(", range = [128, 1024]", "");
    assert_ne!(model, small);
    Machine::from_model_text(&small, "small").expect("a sound model")
}

/// Four threads use one quarter of 128 MiB after another, none of which fast memory holds at first but the first.
fn program(seconds: u32) -> numapilot_simulator::program::Program {
    let phase = |quarter: u32| {
        let (from, to) = (0.25 * f64::from(quarter), 0.25 * f64::from(quarter + 1));
        format!(
            "[[phase]]\nname = 'q{quarter}'\ntimes = {}\n[[phase.work]]\ngroup = 'g'\nms = 100\naccesses_per_us = 5\n\
             [[phase.work.on]]\nregion = 'all'\nfrom = {from}\nto = {to}\n",
            seconds * 5
        )
    };
    let text = format!(
        "format = 1\nname = 'shifting'\n[[region]]\nname = 'all'\nmib = 128\nfirst_touch = 'first'\ngroup = 'g'\n\
         [[group]]\nname = 'g'\nthreads = 4\n{}{}",
        phase(3),
        phase(2)
    );
    synthetic::parse(&text, "shifting").expect("a sound description")
}

/// Four threads use the last third of 96 MiB nearly alone, none of which fast memory holds at first; with `mib` of 16, all that there is fits.
fn skewed(mib: u32, seconds: u32) -> numapilot_simulator::program::Program {
    let on = |share: f64, from: f64, to: f64| {
        format!("[[phase.work.on]]\nregion = 'all'\nshare = {share}\nfrom = {from}\nto = {to}\n")
    };
    let text = format!(
        "format = 1\nname = 'skewed'\n[[region]]\nname = 'all'\nmib = {mib}\nfirst_touch = 'first'\ngroup = 'g'\n\
         [[group]]\nname = 'g'\nthreads = 4\n[[phase]]\nname = 'p'\ntimes = {}\n[[phase.work]]\ngroup = 'g'\nms = 100\naccesses_per_us = 5\n{}{}",
        seconds * 10,
        on(0.9995, 0.6875, 1.0),
        on(0.0005, 0.0, 0.6875)
    );
    synthetic::parse(&text, "skewed").expect("a sound description")
}

fn run(policy: &str, seconds: u32, machine: &Machine) -> Report {
    run_program(policy, &program(seconds), machine)
}

fn run_program(policy: &str, program: &numapilot_simulator::program::Program, machine: &Machine) -> Report {
    let mut policy = policy_by_name(policy, machine, 1).expect("known");
    let simulation = Simulation::new(program, machine, Options::default()).expect("they fit");
    let report = simulation.run(policy.as_mut(), &mut |_| true).expect("runs to its end");
    eprintln!(
        "{}: {:.3} s simulated, {} pages moved, {} cleared, {:.1} ms stolen; {}",
        report.policy,
        report.run_time_ns / 1e9,
        report.moves.pages(),
        report.moves.cleared_pages,
        report.cost.total_ns() / 1e6,
        policy.explain()
    );
    report
}

/// Share of the accesses in the last quarter of the run that memory of nodes with CPUs served.
fn fast_share(report: &Report) -> f64 {
    let traffic = report.after.as_ref().unwrap_or(&report.total);
    let all: f64 = traffic.accesses.iter().flatten().sum();
    traffic.accesses.iter().map(|row| row[0] + row[1]).sum::<f64>() / all
}

/// All pages of the quarter in use fault right after a scan, and a full node takes as many as lie between two of its watermarks. So scans are small here, as
/// the memory is.
#[test]
fn the_kernels_tiering_promotes_what_is_in_use_and_demotes_what_is_not() {
    let machine = machine();
    let before = run("first-touch", 4, &machine);
    assert!(fast_share(&before) < 0.3, "{}", fast_share(&before));
    let after = run("kernel-tiering:scan-size-mb=1", 4, &machine);
    assert!(fast_share(&after) > fast_share(&before) + 0.01, "{} and {}", fast_share(&before), fast_share(&after));
    assert!(after.moves.pages() > 300 && after.moves.cleared_pages > 0, "{:?}", after.moves);
    let again = run("kernel-tiering:scan-size-mb=1", 4, &machine);
    assert_eq!((after.moves, after.run_time_ns), (again.moves, again.run_time_ns), "the same seed, the same run");
}

#[test]
fn damon_follows_a_hot_set_that_shifts() {
    let after = run("damon:goals=off", 4, &machine());
    assert!(fast_share(&after) > 0.6, "{}", fast_share(&after));
}

#[test]
fn nothing_moves_on_a_machine_of_one_tier() {
    let machine = Machine::load("opteron-8385").expect("built-in");
    for policy in ["kernel-tiering", "damon"] {
        let report = run(policy, 1, &machine);
        assert_eq!((report.moves.pages(), report.moves.scans, report.moves.cleared_pages), (0, 0, 0), "{policy}");
    }
}

#[test]
fn our_own_policies_exchange_what_is_hot_for_what_has_no_sample() {
    let (machine, program) = (machine(), skewed(96, 8));
    let [stays, damon] = ["first-touch", "damon:goals=off"].map(|policy| run_program(policy, &program, &machine));
    assert!(fast_share(&stays) < 0.1, "{}", fast_share(&stays));
    for policy in ["tiering", "pilot"] {
        let report = run_program(policy, &program, &machine);
        assert!(fast_share(&report) > 0.85, "{policy}: {}", fast_share(&report));
        assert!(report.run_time_ns < 1.02 * damon.run_time_ns, "{policy}: {}", report.run_time_ns / damon.run_time_ns);
        // Each page of the hot part comes once, and one goes for it.
        assert!(report.moves.pages() < 3 * 30 * 256, "{policy}: {}", report.moves.pages());
    }
}

#[test]
fn our_own_policies_follow_a_hot_set_that_shifts() {
    let machine = machine();
    let stays = run("first-touch", 4, &machine);
    for policy in ["tiering", "pilot"] {
        let report = run(policy, 4, &machine);
        assert!(fast_share(&report) > 0.6, "{policy}: {}", fast_share(&report));
        assert!(report.run_time_ns < stays.run_time_ns, "{policy}: {}", report.run_time_ns / stays.run_time_ns);
    }
}

#[test]
fn our_own_policies_leave_alone_what_is_in_fast_memory() {
    let (machine, program) = (machine(), skewed(16, 4));
    let stays = run_program("first-touch", &program, &machine);
    for policy in ["tiering", "pilot"] {
        let report = run_program(policy, &program, &machine);
        assert!(report.run_time_ns < 1.01 * stays.run_time_ns, "{policy}: {}", report.run_time_ns / stays.run_time_ns);
    }
}
