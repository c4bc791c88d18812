//! `numapilot whatif`: a recorded program with other homes for some of its objects, predicted.

use anyhow::{Context, Result, anyhow};
use numapilot_flows::{Filter, Trace};
use numapilot_insight::Analysis;
use numapilot_machine::Machine;
use numapilot_report::simulation::{Prediction, prediction};
use numapilot_simulator::whatif::{Question, Wish};

use super::simulate::progress;
use super::summary::refuse_blind;
use crate::args::WhatifArgs;
use crate::output;

/// Predicts and prints.
pub fn run(arguments: &WhatifArgs) -> Result<()> {
    let trace = Trace::open(&arguments.trace)?;
    let wish = |set: &String| Wish::read(&trace, set).map_err(|why| anyhow!("--set {set}: {why}"));
    let wishes: Vec<Wish> = arguments.set.iter().map(wish).collect::<Result<_>>()?;
    refuse_blind(&Analysis::on(&trace, None, Filter::default()))
        .with_context(|| arguments.trace.display().to_string())?;
    drop(trace);
    let machine = |name: &String| Machine::load(name).with_context(|| format!("--machine {name}"));
    let machine = arguments.machine.as_ref().map(machine).transpose()?;
    let question = Question { trace: arguments.trace.clone(), wishes, machine, seed: arguments.seed };
    let bar = progress(arguments.quiet, "predicting");
    let answer = question.ask(&|share| bar.set_position((share * 1000.0) as u64))?;
    bar.finish_and_clear();
    let found = Prediction::of(&question.wishes, &answer);
    if arguments.json {
        return output::print_json(&found.json());
    }
    output::print(&prediction(&found, output::look(&arguments.look)))
}
