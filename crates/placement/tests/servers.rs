//! `pilot` beside threads that wait for something else than each other most of the time, as workers of a server wait for clients, and programs whose threads
//! all wait for a disk between two barriers. All times are simulated.

use numapilot_machine::Machine;
use numapilot_placement::policy_by_name;
use numapilot_simulator::program::{Action, Program, Step};
use numapilot_simulator::{Options, Report, Simulation, synthetic};

/// Four threads, one on each node of Carrefour's machine, the first of which has nearly twice as much to do as the others. They use memory that the first
/// thread of the group `toucher` has touched: a part of their own for most accesses, all of it for the rest, so that each page is used by all. They wait for
/// `waits_ms` after 5 ms of the first one's work.
fn program(barrier: bool, waits_ms: f64, toucher: &str) -> Program {
    let work = |group: &str, threads: u64, ms: u64| {
        format!(
            "[[phase.work]]\ngroup = '{group}'\nthreads = {threads}\nms = {ms}\naccesses_per_us = 25\noutstanding = 2\n\
             [[phase.work.on]]\nregion = '{group}'\npattern = 'parts'\nshare = 0.7\nwrites = 0.2\n\
             [[phase.work.on]]\nregion = 'first'\nshare = 0.075\nwrites = 0.2\n[[phase.work.on]]\nregion = 'others'\nshare = 0.225\nwrites = 0.2\n"
        )
    };
    let text = format!(
        "format = 1\nname = 'server'\nrepeat = 400\n[[region]]\nname = 'first'\nmib = 4\nfirst_touch = 'first'\ngroup = '{toucher}'\n\
         [[region]]\nname = 'others'\nmib = 12\nfirst_touch = 'first'\ngroup = '{toucher}'\n[[group]]\nname = 'first'\nthreads = 1\n\
         [[group]]\nname = 'others'\nthreads = 3\n[[phase]]\nname = 'serve'\nbarrier = {barrier}\n{}{}",
        work("first", 1, 5),
        work("others", 3, 3),
    );
    let mut program = synthetic::parse(&text, "server").expect("a sound description");
    for thread in &mut program.threads {
        let end_ns = thread.body.last().expect("it works").to_ns;
        let step =
            Step { action: Action::Sleep { ns: waits_ms * 1e6 }, from_ns: end_ns, to_ns: end_ns + waits_ms * 1e6 };
        thread.body.push(step);
    }
    program.body_ns += waits_ms * 1e6;
    program
}

fn run(program: &Program, policy: &str) -> Report {
    let machine = Machine::load("opteron-8385").expect("built-in");
    let mut policy = policy_by_name(policy, &machine, 1).expect("known");
    let simulation = Simulation::new(program, &machine, Options::default()).expect("they fit");
    let report = simulation.run(policy.as_mut(), &mut |_| true).expect("runs to its end");
    eprintln!(
        "{}: {:.4} s simulated, {:.3} local, {} pages moved",
        report.policy,
        report.run_time_ns / 1e9,
        local_ratio(&report),
        report.moves.pages()
    );
    report
}

fn local_ratio(report: &Report) -> f64 {
    report.total.metrics.local_access_ratio.expect("there are accesses")
}

/// Each page was taken for one of the busiest worker's, a tenth of whose accesses it got: memory stayed on one node, or came back there.
#[test]
fn workers_that_wait_for_clients_each_get_their_own_memory() {
    let program = program(false, 10.0, "first");
    let (before, after) = (run(&program, "first-touch"), run(&program, "pilot"));
    assert!(local_ratio(&before) < 0.6, "{}", local_ratio(&before));
    assert!(local_ratio(&after) > 0.7, "{}", local_ratio(&after));
}

/// The busiest thread decides when the others go on, also where all of them wait for a disk, too. Not by how much: what they wait for stays the same.
#[test]
fn threads_that_meet_gain_although_they_wait_for_a_disk_too() {
    for waits_ms in [0.0, 2.0, 10.0] {
        let program = program(true, waits_ms, "others");
        let (before, after) = (run(&program, "first-touch"), run(&program, "pilot"));
        let gained_s = (before.run_time_ns - after.run_time_ns) / 1e9;
        assert!(gained_s > 0.34, "{waits_ms} ms: {gained_s} s");
    }
}
