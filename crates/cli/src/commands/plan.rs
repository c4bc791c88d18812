//! `numapilot plan`: checks a plan file, whether it fits a machine, and whether a program has the code and symbols that it names.

use std::process::ExitCode;

use anyhow::{Context, Result};
use numapilot_machine::Machine;
use numapilot_plan::{Fit, Layout, Placing, Plan};

use crate::args::PlanArgs;
use crate::output;

/// Reads the plan, checks it and prints its rules; exit status 1 if the program lacks what a rule names.
pub fn run(arguments: &PlanArgs) -> Result<ExitCode> {
    let plan = Plan::load(&arguments.file)?;
    let name = arguments.machine.as_deref();
    let machine = name.map(|name| Machine::load(name).with_context(|| format!("--machine {name}"))).transpose()?;
    let fit = if arguments.fold { Fit::Fold } else { Fit::Exact };
    let fitted = machine.as_ref().map(|machine| plan.fit(machine, fit)).transpose()?;
    output::print(&describe(fitted.as_ref().map_or(&plan, |fitted| &fitted.plan)))?;
    if arguments.command.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let live = Machine::load("live")?;
    let (machine, fitted) = match (machine, fitted) {
        (Some(machine), Some(fitted)) => (machine, fitted),
        // Code and symbols are the same on any machine.
        _ => {
            let fitted = plan.fit(&live, Fit::Fold)?;
            (live, fitted)
        }
    };
    let notes = numapilot_apply::check(&fitted, &machine, &arguments.command)?;
    notes.iter().for_each(|note| crate::output::tell!("numapilot: {note}"));
    Ok(if notes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn describe(plan: &Plan) -> String {
    let mut text = String::new();
    for rule in &plan.objects {
        text.push_str(&format!("object {}: {}\n", rule.name, rule.policy.describe()));
    }
    let place = |placing: &Placing, layout: Layout| {
        let place = match placing {
            Placing::Nodes(nodes) => format!("nodes {}", nodes.text()),
            Placing::Cpus(cpus) => format!("CPUs {}", numapilot_machine::format_cpu_list(cpus.iter().map(|cpu| cpu.0))),
        };
        format!("{place}, {}", layout.name())
    };
    for rule in &plan.threads {
        text.push_str(&format!("thread {}: {}\n", rule.which(), place(&rule.placing, rule.layout)));
    }
    for rule in &plan.processes {
        text.push_str(&format!("process {}: {}\n", rule.which(), place(&rule.placing, rule.layout)));
    }
    text
}
