//! Runs programs under policies and prints one line for each. For developers; users have `numapilot simulate`.
//!
//! `simulate [--machine NAME] [--policies a,b] [--idle] [--until-s S] [--thin N] PROGRAMS...`, where a program is a synthetic description or a trace
//! (`NAME.numatrace`). With `--until-s`, the main part of a trace is repeated until it lasts that long; without, it is replayed once, and the line ends with
//! the recorded time. With `--json`, each report goes to the standard output whole.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use numapilot_machine::Machine;
use numapilot_placement::policy_by_name;
use numapilot_simulator::program::{Origin, Program};
use numapilot_simulator::recorded::{self, RecordedOptions, Repeat};
use numapilot_simulator::{MemoryModel, Options, Report, Simulation, synthetic};

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.0}", 100.0 * share))
}

fn line(report: &Report, host_s: f64) -> String {
    let metrics = &report.total.metrics;
    let mut line = format!(
        "{:<24} {:<20} {:>8.3} s  LAR {:>4} %  latency {:>5.0} ns  imbalance {:>4} %  moved {:>6}  split {:>3}  copies {:>5}  \
         stolen {:>7.1} ms  epochs {:>6}  solves {:>6}  unsettled {:>4}  let go {:>4}  host {host_s:.2} s",
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
        report.convergence.let_go,
    );
    if let Origin::Recorded { recorded_ns, repeated_from_ns: None, .. } = report.origin {
        let recorded_s = recorded_ns as f64 / 1e9;
        line +=
            &format!("  recorded {recorded_s:.3} s ({:+.1} %)", 100.0 * (report.run_time_ns / 1e9 / recorded_s - 1.0));
    }
    line
}

struct Arguments {
    machine: Option<String>,
    policies: String,
    options: Options,
    recorded: RecordedOptions,
    json: bool,
    programs: Vec<String>,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut parsed = Arguments {
        machine: None,
        policies: "first-touch".into(),
        options: Options::default(),
        recorded: RecordedOptions::default(),
        json: false,
        programs: Vec::new(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--machine" => parsed.machine = Some(value()?),
            "--policies" => parsed.policies = value()?,
            "--idle" => parsed.options.memory = MemoryModel::Idle,
            "--until-s" => parsed.recorded.repeat = Repeat::UntilNs(value()?.parse::<f64>()? * 1e9),
            "--thin" => parsed.recorded.thin = value()?.parse()?,
            "--json" => parsed.json = true,
            _ => parsed.programs.push(word),
        }
    }
    Ok(parsed)
}

fn load(path: &str, arguments: &Arguments) -> Result<(Program, Machine), Box<dyn Error>> {
    let (program, recorded_on) = if path.ends_with(".toml") {
        (synthetic::load(Path::new(path))?, None)
    } else {
        let recorded = recorded::load(Path::new(path), &arguments.recorded)?;
        (recorded.program, Some(recorded.machine))
    };
    let machine = match (&arguments.machine, recorded_on) {
        (None, Some(machine)) => machine,
        (name, _) => Machine::load(name.as_deref().unwrap_or("opteron-8385"))?,
    };
    Ok((program, machine))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let mut out = std::io::stdout();
    for path in &arguments.programs {
        let start = Instant::now();
        let (program, machine) = load(path, &arguments)?;
        if !arguments.json {
            let (mixes, slices, loaded_s) = (program.mixes.len(), program.slices.len(), start.elapsed().as_secs_f64());
            writeln!(out, "{path}: {mixes} mixes, {slices} slices, read in {loaded_s:.2} s; {:?}", program.origin)?;
        }
        for name in arguments.policies.split(',') {
            let mut policy = policy_by_name(name, &machine, 1)?;
            let start = Instant::now();
            let simulation = Simulation::new(&program, &machine, arguments.options.clone())?;
            let report = simulation.run(policy.as_mut(), &mut |_| true)?;
            if arguments.json {
                writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
            } else {
                writeln!(out, "{}", line(&report, start.elapsed().as_secs_f64()))?;
            }
        }
    }
    Ok(())
}
