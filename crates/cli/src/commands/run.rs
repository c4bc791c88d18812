//! `numapilot run`: runs a program under a plan, with node-local copies of its mappings, or with numactl's options.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use numapilot_apply::{ApplyOptions, Outcome, PlaceOutcome, RuleOutcome, apply_here};
use numapilot_machine::Machine;
use numapilot_plan::{Fit, Fitted, ObjectRule, Plan, Policy};
use numapilot_replica::mappings::{Mappings, Rules};
use numapilot_text::units;
use serde_json::{Value, json};

use super::numactl;
use crate::args::RunArgs;
use crate::output;
use crate::output::tell;

/// Runs the program and returns its exit status.
pub fn run(arguments: &RunArgs) -> Result<ExitCode> {
    let policy = numactl::policy(&arguments.policy)?;
    if arguments.show {
        apply_here(&policy)?;
        output::print(&numactl::show()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut planned = arguments.plan.as_deref().map(|file| planned(file, arguments.fold)).transpose()?;
    apply_here(&policy)?;
    let say = |text: String| {
        if !arguments.quiet {
            tell!("numapilot: {text}");
        }
    };
    if let Some((_, fitted)) = planned.take_if(|(_, fitted)| fitted.is_moot() && !arguments.fold) {
        let note = format!("this machine has one node: plan {} has no effect", fitted.plan.file);
        if let Some(file) = &arguments.json {
            write_json(file, &fitted, &Outcome::default(), false, std::slice::from_ref(&note))?;
        }
        say(note);
    }
    let asked = arguments.replicate_mappings.as_deref();
    let copied = copied_files(asked, planned.as_ref().map(|(_, fitted)| &fitted.plan));
    let copies = (asked.is_some() || copied.is_some()).then(|| {
        Mappings::prepare(Rules { pattern: copied.clone(), ..Rules::default() }).context("--replicate-mappings")
    });
    let copies = copies.transpose()?;
    if planned.is_none() && copies.is_none() {
        return Err(numapilot_launch::exec_here(&arguments.command).into());
    }
    let libraries: Vec<PathBuf> = copies.iter().map(Mappings::library).collect();
    let environment = copies.as_ref().map_or(Vec::new(), Mappings::environment);
    let applied = numapilot_apply::run(&ApplyOptions {
        command: arguments.command.clone(),
        plan: planned.as_ref().map(|(machine, fitted)| (fitted, machine)),
        libraries: &libraries,
        environment: &environment,
    })?;
    applied.notes.iter().for_each(|note| say(note.clone()));
    if let (Some((_, fitted)), Some(outcome)) = (&planned, &applied.outcome) {
        let is_copied = |rule: &ObjectRule| replicated_file(rule).is_some_and(|file| copied.as_deref() == Some(file));
        summary(fitted, outcome, is_copied).into_iter().for_each(say);
        if let Some(file) = &arguments.json {
            write_json(file, fitted, outcome, true, &applied.notes)?;
        }
    }
    if let Some(copies) = &copies {
        // The program has run, so a missing summary does not change its exit status.
        let summary = copies.summary().map_or_else(|error| error.to_string(), |summary| summary.to_string());
        summary.lines().for_each(|line| say(line.to_owned()));
    }
    Ok(ExitCode::from(u8::try_from(applied.exit.shell_code()).unwrap_or(1)))
}

/// The pattern of files whose mappings are copied: the user's, else the plan's first. The library takes one pattern.
fn copied_files(asked: Option<&str>, plan: Option<&Plan>) -> Option<String> {
    let by_plan = || plan?.objects.iter().find_map(replicated_file);
    asked.filter(|pattern| !pattern.is_empty()).or_else(by_plan).map(str::to_owned)
}

/// The pattern of mapped files that a rule replicates; `None` for other rules.
fn replicated_file(rule: &ObjectRule) -> Option<&str> {
    rule.matches.mapped_file.as_deref().filter(|_| rule.policy == Policy::Replicate)
}

/// The plan, fitted to this machine.
fn planned(file: &Path, fold: bool) -> Result<(Machine, Fitted)> {
    let machine = Machine::load("live").context("this machine's topology")?;
    let plan = Plan::load(file)?;
    // With one node there is nothing to place, whatever nodes the plan names. The caller prints a note; it is no error.
    let is_one = machine.nodes().len() < 2;
    let fitted = plan.fit(&machine, if fold || is_one { Fit::Fold } else { Fit::Exact })?;
    Ok((machine, fitted))
}

/// A plan's outcome, a line for each rule; rules for which `is_reported` holds are reported elsewhere and left out.
#[must_use]
pub fn summary(fitted: &Fitted, outcome: &Outcome, is_reported: impl Fn(&ObjectRule) -> bool) -> Vec<String> {
    let mut lines = Vec::new();
    if outcome.processes == 0 {
        lines.push(format!("plan {}: the planner was not loaded into the program", fitted.plan.file));
        return lines;
    }
    if outcome.without_memory > 0 {
        lines.push(format!(
            "{} could not reserve address space (`ulimit -v`), so nothing was placed there",
            units::counted(outcome.without_memory, "process", "processes")
        ));
    }
    if outcome.unplaced_programs > 0 {
        lines.push(format!(
            "{} static, linked to another C library or to a sanitizer, set-user-ID or restricted by its starter (seccomp), so nothing was placed there",
            units::counted(outcome.unplaced_programs, "started program is", "started programs are")
        ));
    }
    if outcome.whole_objects > 0 {
        lines.push(format!(
            "{} (or groups of small ones) placed as a whole, on one node after the other, and not page by page, because the kernel limits the mappings of a \
             process (raise it with `sysctl vm.max_map_count=N`)",
            units::counted(outcome.whole_objects, "object was", "objects were")
        ));
    }
    let rules = fitted.plan.objects.iter().zip(&outcome.objects).filter(|(rule, _)| !is_reported(rule));
    lines.extend(rules.map(|(rule, outcome)| format!("plan: {}", object_line(rule, outcome))));
    lines.extend(outcome.places.iter().map(|place| format!("plan: {}", place_line(place))));
    lines
}

fn object_line(planned: &ObjectRule, rule: &RuleOutcome) -> String {
    let mut line = format!("{}: {}: ", rule.name, rule.policy);
    if planned.policy == Policy::Replicate {
        return line
            + match replicated_file(planned) {
                Some(_) => {
                    "not applied: `run` copies the files of one pattern only, and a simulated machine copies none"
                }
                None => {
                    "not applied: threads of one process share their page tables, and only the program itself can keep copies"
                }
            };
    }
    if rule.placed == 0 && rule.passed > 0 {
        let noun = if rule.passed == 1 { "object" } else { "objects" };
        line.push_str(&format!("nothing was placed: the kernel placed the {} matching {noun}", rule.passed));
    } else if rule.placed == 0 {
        line.push_str(if rule.is_idle { "nothing in this program matches" } else { "no object matched" });
    } else {
        let noun = if rule.placed == 1 { "object" } else { "objects" };
        line.push_str(&format!("{} {noun}, {}", rule.placed, units::bytes(rule.placed_bytes)));
    }
    if rule.passed > 0 {
        line.push_str(why_passed(planned, rule.failures));
    }
    if rule.moved > 0 {
        line.push_str(&format!(", handed over {}", units::counted(rule.moved, "time", "times")));
    }
    if rule.placed > 0 && rule.passed > 0 {
        line.push_str(&format!(", {} more not placed", rule.passed));
    }
    if rule.failures > 0 {
        line.push_str(&format!("; the kernel refused {}", units::counted(rule.failures, "call", "calls")));
        line.extend(rule.error.iter().map(|error| format!(" ({error})")));
    }
    line
}

/// Why a rule's objects were not placed, in brackets, as far as it is known: the planner counts them, whatever the reason; and calls that were refused.
fn why_passed(planned: &ObjectRule, failures: u64) -> &'static str {
    match &planned.policy {
        Policy::HandOver(_) if planned.matches.is_dynamic() => {
            " (not handed over are mappings, and what `malloc` and `new` allocate where memory is short, or after the program has restricted its own system \
             calls by seccomp)"
        }
        Policy::HandOver(_) => " (what `malloc` and `new` allocate is handed over, and nothing else)",
        // Shared memory is placed by its mapping, and was refused.
        _ if planned.matches.mapped_file.is_some() && failures == 0 => {
            " (the kernel places pages of regular files where they are read in, not by their mapping)"
        }
        _ => "",
    }
}

fn place_line(place: &PlaceOutcome) -> String {
    let mut line = format!("{} {} on {}: {} placed", place.kind, place.which, place.place, place.placed);
    if place.failures > 0 {
        line.push_str(&format!("; the kernel refused {}", units::counted(place.failures, "call", "calls")));
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
    json!({
        "processes": outcome.processes, "without_memory": outcome.without_memory, "unplaced_programs": outcome.unplaced_programs,
        "whole_objects": outcome.whole_objects, "objects": objects, "places": places,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_were_not_placed_are_told_as_such() {
        let text = "version = 1\n[[object]]\nname = \"table\"\npolicy = \"node\"\nnode = 0\n";
        let plan = Plan::parse(text, "plan.toml").expect("a plan");
        let outcome = |placed, passed, failures| RuleOutcome {
            name: "table".to_owned(),
            policy: "node 0".to_owned(),
            placed,
            placed_bytes: 0,
            passed,
            failures,
            error: None,
            moved: 0,
            is_idle: false,
        };
        let line = |placed, passed, failures| object_line(&plan.objects[0], &outcome(placed, passed, failures));
        assert!(
            line(0, 5, 1)
                .contains("nothing was placed: the kernel placed the 5 matching objects; the kernel refused 1 call")
        );
        assert!(line(2, 5, 0).contains("2 objects, 0 B, 5 more not placed"), "{}", line(2, 5, 0));
        assert!(line(0, 0, 0).contains("no object matched"));
    }

    /// A block that found no room in the rule's arena, or came after the program's seccomp filter, was said to be a mapping; shared memory that the kernel did
    /// not let be placed, a regular file.
    #[test]
    fn reasons_are_those_that_may_be() {
        let text = "version = 1\n[[object]]\nfunction = \"f\"\npolicy = \"hand-over\"\nto = \"worker\"\n\
                    [[object]]\nsymbol = \"table\"\npolicy = \"hand-over\"\nto = \"worker\"\n\
                    [[object]]\nmapped_file = \"*\"\npolicy = \"local\"\n";
        let plan = Plan::parse(text, "plan.toml").expect("a plan");
        let why = |rule: usize, failures| why_passed(&plan.objects[rule], failures);
        for needed in ["mappings", "memory is short", "seccomp"] {
            assert!(why(0, 0).contains(needed), "{}", why(0, 0));
        }
        assert!(why(1, 0).contains("and nothing else"), "{}", why(1, 0));
        assert!(why(2, 0).contains("regular files") && why(2, 1).is_empty(), "{}", why(2, 1));
        let outcome = |passed| RuleOutcome {
            name: "f".to_owned(),
            policy: "hand-over".to_owned(),
            placed: 2,
            placed_bytes: 0,
            passed,
            failures: 0,
            error: None,
            moved: 1,
            is_idle: false,
        };
        let line = |passed| object_line(&plan.objects[0], &outcome(passed));
        assert!(line(1).contains("seccomp), handed over 1 time, 1 more not placed"), "{}", line(1));
        assert!(!line(0).contains("not handed over"), "{}", line(0));
    }
}
