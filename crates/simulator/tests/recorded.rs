//! Replays of the recordings in `testdata/traces`: what is repeated, on which cores, and on which CPUs.

use std::path::{Path, PathBuf};

use numapilot_machine::{CpuId, Machine};
use numapilot_placement::policy_by_name;
use numapilot_simulator::program::{Action, Program};
use numapilot_simulator::recorded::{self, RecordedOptions, Repeat};
use numapilot_simulator::{MemoryModel, Options, Report, Simulation, synthetic};

fn trace(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../testdata/traces/{name}.numatrace"))
}

fn load(trace: &Path, repeat: Repeat) -> Program {
    let options = RecordedOptions { repeat, ..RecordedOptions::default() };
    recorded::load(trace, &options).unwrap_or_else(|error| panic!("{error}")).program
}

/// Under first touch, with idle latencies: quick, and the work is the same as under load.
fn replay(program: &Program) -> Report {
    let machine = Machine::load("opteron-8385").expect("a built-in model");
    let options = Options { memory: MemoryModel::Idle, ..Options::default() };
    let mut policy = policy_by_name("first-touch", &machine, 1).expect("a policy");
    let simulation = Simulation::new(program, &machine, options).expect("they fit together");
    simulation.run(policy.as_mut(), &mut |_| true).expect("it runs")
}

fn writes_to(report: &Report, object: &str) -> f64 {
    report.labels.iter().filter(|label| label.name.starts_with(object)).map(|label| label.writes).sum()
}

/// Make sure that what a thread does before the main part is not done again with it. The eigenfaces are computed by one thread, which ends inside the window of
/// samples in which sixteen begin to read them: written anew in every repetition, they would lose all copies that a policy had made.
#[test]
fn data_that_is_filled_once_is_not_filled_again_in_every_repetition() {
    let [once, thrice] = [1, 3].map(|times| replay(&load(&trace("facerec"), Repeat::Times(times))));
    let (before, after) = (writes_to(&once, "basis"), writes_to(&thrice, "basis"));
    eprintln!("writes to the eigenfaces: {before:.0}, and {after:.0} with the main part done three times");
    assert!(before > 0.0 && after < 1.01 * before, "{before} writes, then {after}");
    // Others are: they belong to the main part.
    assert!(writes_to(&thrice, "probe_image") > 2.0 * writes_to(&once, "probe_image"));
}

fn own_ns(program: &Program) -> f64 {
    let steps = program.threads.iter().flat_map(|thread| &thread.prologue);
    steps.map(|step| if let Action::Work(work) = step.action { work.own_ns } else { 0.0 }).sum()
}

/// A copy of a recording with a native run that took no time: the program's own work is then the least that any can be, a tenth of what was charged.
fn with_native_run(name: &str, folder: &Path) -> PathBuf {
    let to = folder.join(format!("{name}.numatrace"));
    std::fs::create_dir(&to).expect("a folder");
    for entry in std::fs::read_dir(trace(name)).expect("the trace") {
        let from = entry.expect("an entry").path();
        std::fs::copy(&from, to.join(from.file_name().expect("a name"))).expect("a copy");
    }
    let meta = to.join("meta.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&meta).expect("read")).expect("JSON");
    let run = serde_json::json!({ "user_ns": 1, "system_ns": 0, "wall_ns": 1, "clock_mhz": 2000.0 });
    json["native"] = serde_json::json!({ "program": name, "cpu_model": "", "runs": [run] });
    std::fs::write(&meta, json.to_string()).expect("written");
    to
}

/// Make sure that the simulator takes the program's own work from native runs, as the price of `whatif` does.
#[test]
fn own_work_is_what_native_runs_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let charged = load(&trace("psearchy"), Repeat::Once);
    let native = load(&with_native_run("psearchy", folder.path()), Repeat::Once);
    let factor = own_ns(&native) / own_ns(&charged);
    // Time that no sample tells the pages of counts as own work in both, and keeps some of what was charged.
    assert!((0.1..0.12).contains(&factor), "own work is {factor} of what was charged");
    assert!(replay(&native).run_time_ns < 0.5 * replay(&charged).run_time_ns);
}

/// Make sure that threads which were pinned, and recorded on one CPU of their node, get its CPUs evenly, as from any scheduler.
#[test]
fn threads_are_spread_over_the_cpus_of_their_node() {
    let text = "format = 1\nname = 'p'\n[[group]]\nname = 'g'\nthreads = 4\n[[phase]]\nname = 'p'\n[[phase.work]]\ngroup = 'g'\nms = 5\n";
    let mut program = synthetic::parse(text, "p").expect("a sound description");
    // CPUs 4 to 7 are those of node 1.
    program.threads.iter_mut().for_each(|thread| thread.cpu = Some(CpuId(5)));
    let report = replay(&program);
    assert!((report.run_time_ns / 5e6 - 1.0).abs() < 1e-6, "{} ns for 5 ms of work of each", report.run_time_ns);
}
