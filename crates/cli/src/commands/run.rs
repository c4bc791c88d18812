//! `numapilot run`: a program under a plan, or under numactl's options.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use numapilot_machine::Machine;
use numapilot_plan::{Fit, Fitted, Plan};
use numapilot_report::units;
use numapilot_sources::apply::{self, ApplyOptions, Outcome, PlaceOutcome, RuleOutcome};
use serde_json::{Value, json};

use super::numactl;
use crate::args::RunArgs;
use crate::output;

/// Runs the program; its status.
pub fn run(arguments: &RunArgs) -> Result<ExitCode> {
    let policy = numactl::policy(&arguments.policy)?;
    if arguments.show {
        apply::apply_here(&policy)?;
        output::print(&numactl::show()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let planned = arguments.plan.as_deref().map(|file| planned(file, arguments.fold)).transpose()?;
    apply::apply_here(&policy)?;
    let say = |text: String| {
        if !arguments.quiet {
            eprintln!("numapilot: {text}");
        }
    };
    let Some((machine, fitted)) = planned else { return Err(apply::exec_here(&arguments.command).into()) };
    if fitted.is_moot() && !arguments.fold {
        say(format!("this machine has one node: plan {} has no effect", fitted.plan.file));
        if let Some(file) = &arguments.json {
            write_json(file, &fitted, &Outcome::default(), false, &[])?;
        }
        return Err(apply::exec_here(&arguments.command).into());
    }
    let options = ApplyOptions { command: arguments.command.clone(), fitted: &fitted, machine: &machine };
    let applied = apply::run(&options)?;
    applied.notes.iter().for_each(|note| say(note.clone()));
    summary(&fitted, &applied.outcome).into_iter().for_each(say);
    if let Some(file) = &arguments.json {
        write_json(file, &fitted, &applied.outcome, true, &applied.notes)?;
    }
    Ok(ExitCode::from(u8::try_from(applied.exit.shell_code()).unwrap_or(1)))
}

/// The plan, fitted to this machine.
fn planned(file: &Path, fold: bool) -> Result<(Machine, Fitted)> {
    let machine = Machine::load("live").context("this machine's topology")?;
    let plan = Plan::load(file)?;
    // With one node there is nothing to place, whatever the plan names: that is said, and is no error.
    let is_one = machine.nodes().len() < 2;
    let fitted = plan.fit(&machine, if fold || is_one { Fit::Fold } else { Fit::Exact })?;
    Ok((machine, fitted))
}

/// What a plan did, a line for each rule.
#[must_use]
pub fn summary(fitted: &Fitted, outcome: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    if outcome.processes == 0 {
        lines.push(format!("plan {}: the planner was not loaded into the program", fitted.plan.file));
        return lines;
    }
    if outcome.without_memory > 0 {
        lines.push(format!(
            "in {} processes no addresses could be reserved (`ulimit -v`): nothing was placed there",
            outcome.without_memory
        ));
    }
    lines.extend(outcome.objects.iter().map(|rule| format!("plan: {}", object_line(rule))));
    lines.extend(outcome.places.iter().map(|place| format!("plan: {}", place_line(place))));
    lines
}

fn object_line(rule: &RuleOutcome) -> String {
    let mut line = format!("{}: {}: ", rule.name, rule.policy);
    if rule.policy == "replicate" {
        return line
            + "not applied: threads of one process share their page tables, and only the program itself can keep copies";
    }
    if rule.placed == 0 {
        line.push_str(if rule.is_idle { "nothing in this program" } else { "no object matched" });
    } else {
        let noun = if rule.placed == 1 { "object" } else { "objects" };
        line.push_str(&format!("{} {noun}, {}", rule.placed, units::bytes(rule.placed_bytes)));
    }
    if rule.moved > 0 {
        line.push_str(&format!(", handed over {} times", rule.moved));
    }
    if rule.passed > 0 {
        line.push_str(&format!(", {} more elsewhere", rule.passed));
    }
    if rule.failures > 0 {
        line.push_str(&format!("; the kernel refused {} calls", rule.failures));
        line.extend(rule.error.iter().map(|error| format!(" ({error})")));
    }
    line
}

fn place_line(place: &PlaceOutcome) -> String {
    let mut line = format!("{} {} on {}: {} placed", place.kind, place.which, place.place, place.placed);
    if place.failures > 0 {
        line.push_str(&format!("; the kernel refused {} calls", place.failures));
        line.extend(place.error.iter().map(|error| format!(" ({error})")));
    }
    line
}

fn write_json(file: &Path, fitted: &Fitted, outcome: &Outcome, is_applied: bool, notes: &[String]) -> Result<()> {
    let mut value = outcome_json(outcome);
    value["plan"] = json!(fitted.plan.file);
    value["applied"] = json!(is_applied);
    value["nodes"] = json!(fitted.memory_nodes);
    value["notes"] = json!(notes);
    let mut text = serde_json::to_string_pretty(&value).context("JSON")?;
    text.push('\n');
    output::write_file(file, &text)
}

fn outcome_json(outcome: &Outcome) -> Value {
    let objects: Vec<Value> = outcome
        .objects
        .iter()
        .map(|rule| {
            json!({
                "name": rule.name, "policy": rule.policy, "placed": rule.placed, "placed_bytes": rule.placed_bytes,
                "passed": rule.passed, "failures": rule.failures, "error": rule.error, "moved": rule.moved, "idle": rule.is_idle,
            })
        })
        .collect();
    let places: Vec<Value> = outcome
        .places
        .iter()
        .map(|place| {
            json!({
                "kind": place.kind, "which": place.which, "place": place.place, "placed": place.placed,
                "failures": place.failures, "error": place.error,
            })
        })
        .collect();
    json!({ "processes": outcome.processes, "without_memory": outcome.without_memory, "objects": objects, "places": places })
}
