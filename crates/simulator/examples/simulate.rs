//! Runs synthetic descriptions under policies and prints one line for each: `simulate MACHINE POLICIES FILES...` (policies by name, comma-separated).
//! For developers; users have `numapilot simulate`.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use numapilot_machine::Machine;
use numapilot_placement::policy_by_name;
use numapilot_simulator::{Options, Report, Simulation, synthetic};

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.0}", 100.0 * share))
}

fn line(report: &Report, host_s: f64) -> String {
    let metrics = &report.total.metrics;
    format!(
        "{:<24} {:<20} {:>8.3} s  LAR {:>4} %  latency {:>6.0} ns  imbalance {:>4} %  moved {:>7}  split {:>4}  copies {:>6}  \
         stolen {:>7.1} ms  epochs {:>6} solves {:>6} unsettled {:>4}  host {host_s:.2} s",
        report.program,
        report.policy,
        report.run_time_ns / 1e9,
        percent(metrics.local_access_ratio),
        metrics.memory_latency_ns.unwrap_or(0.0),
        percent(metrics.controller_imbalance.map(|imbalance| imbalance.sample)),
        report.moves.pages(),
        report.moves.split,
        report.moves.copies_made,
        report.cost.total_ns() / 1e6,
        report.convergence.epochs,
        report.convergence.solves,
        report.convergence.unsettled_epochs,
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machine, policies, files @ ..] = arguments.as_slice() else {
        return Err("usage: simulate MACHINE POLICIES FILES...".into());
    };
    let machine = Machine::load(machine)?;
    let mut out = std::io::stdout();
    for file in files {
        let program = synthetic::load(Path::new(file))?;
        for name in policies.split(',') {
            let mut policy = policy_by_name(name, &machine, 1)?;
            let start = Instant::now();
            let simulation = Simulation::new(&program, &machine, Options::default())?;
            let report = simulation.run(policy.as_mut(), &mut |_| true)?;
            writeln!(out, "{}", line(&report, start.elapsed().as_secs_f64()))?;
        }
    }
    Ok(())
}
