//! `numapilot whatif`: predicts a recorded program's run time with other home nodes for some of its objects.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use numapilot_flows::{Filter, Trace};
use numapilot_insight::Analysis;
use numapilot_insight::whatif::PlacementOverride;
use numapilot_machine::Machine;
use numapilot_plan::{Fit, Plan};
use numapilot_report::simulation::{Prediction, prediction};
use numapilot_simulator::whatif::{PageOverride, Question};
use numapilot_trace::engine::{Engine, RecordedBy};

use super::plan_overrides;
use super::simulate::progress;
use super::summary::refuse_blind;
use crate::args::WhatifArgs;
use crate::output;

/// Predicts the run time and prints the prediction.
pub fn run(arguments: &WhatifArgs) -> Result<()> {
    let trace = Trace::open(&arguments.trace)?;
    let found = match &arguments.machine {
        None => priced(arguments, &trace)?,
        Some(name) => simulated(arguments, trace, name)?,
    };
    if arguments.json {
        return output::print_json(&found.json());
    }
    output::print(&prediction(&found, output::look(&arguments.look)))
}

/// The prediction on the machine of the recording, by the function that prices findings.
fn priced(arguments: &WhatifArgs, trace: &Trace) -> Result<Prediction> {
    let mut overrides = read(arguments, |set| PlacementOverride::read(trace, set).map_err(|why| anyhow!("{why}")))?;
    let whose = || arguments.trace.display().to_string();
    let machine = trace.machine();
    let analysis = Analysis::on(trace, machine.as_ref(), Filter::default());
    let analysis = if arguments.dynamic_work { analysis.of_taken_work() } else { analysis };
    let analysis = if arguments.calibrate { analysis.calibrated() } else { analysis };
    refuse_blind(&analysis).with_context(whose)?;
    let Some(machine) = &machine else {
        bail!("{}: it holds no description of its machine; {}", whose(), machine_by(&trace.meta().engine));
    };
    if let Some(file) = &arguments.plan {
        overrides = planned(file, trace, machine)?;
    }
    let answer = analysis.what_if(machine, &overrides).with_context(whose)?;
    let program = numapilot_trace::name::stem(&arguments.trace);
    Ok(Prediction::priced(&program, machine.name(), answer))
}

/// How a recording without a description of its machine gets one, as a clause. Simulations, which `--machine` asks for, refuse imports.
fn machine_by(engine: &RecordedBy) -> &'static str {
    if *engine == Engine::Import {
        "import it again with `numapilot import --machine FILE`, a model that `numapilot measure --model FILE` wrote there"
    } else {
        "name one by --machine"
    }
}

/// The overrides of a plan's rules. Prints a note for each rule that matches nothing.
fn planned(file: &Path, trace: &Trace, machine: &Machine) -> Result<Vec<PlacementOverride>> {
    let fitted = Plan::load(file)?.fit(machine, Fit::Exact)?;
    let whose = || file.display().to_string();
    let found = plan_overrides::overrides(&fitted.plan, trace, machine).with_context(whose)?;
    for name in &found.without_effect {
        crate::output::tell!("numapilot: {}: the rule for {name} matches nothing in this recording", file.display());
    }
    if found.overrides.is_empty() {
        bail!("{}: no rule matches anything in this recording, so there is no gain to predict", file.display());
    }
    Ok(found.overrides)
}

/// The prediction on another machine, by simulation.
fn simulated(arguments: &WhatifArgs, trace: Trace, name: &str) -> Result<Prediction> {
    let overrides = read(arguments, |set| PageOverride::read(&trace, set).map_err(|why| anyhow!("{why}")))?;
    refuse_blind(&Analysis::on(&trace, None, Filter::default()))
        .with_context(|| arguments.trace.display().to_string())?;
    drop(trace);
    let machine = Machine::load(name).with_context(|| format!("--machine {name}"))?;
    let question = Question { trace: arguments.trace.clone(), overrides, machine: Some(machine), seed: arguments.seed };
    let bar = progress(arguments.quiet, "predicting");
    let answer = question.ask(&|share| bar.set_position((share * 1000.0) as u64))?;
    bar.finish_and_clear();
    Ok(Prediction::simulated(&question.overrides, &answer))
}

fn read<T>(arguments: &WhatifArgs, one: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    arguments.set.iter().map(|set| one(set).with_context(|| format!("--set {set}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--machine` was named for recordings of perf, and refused them then.
    #[test]
    fn an_import_gets_its_machine_where_it_is_imported() {
        assert!(machine_by(&Engine::Import.into()).starts_with("import it again"));
        assert_eq!(machine_by(&Engine::Instrument.into()), "name one by --machine");
    }
}
