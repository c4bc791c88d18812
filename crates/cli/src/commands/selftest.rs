//! `numapilot selftest`: checks numapilot's claims about hardware on this machine.

use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use numapilot_machine::Machine;
use numapilot_selftest::engines::truth;
use numapilot_selftest::{Options, Part, Progress, SelfTest, text};

use crate::args::{SelftestArgs, SelftestPart};
use crate::output;

/// Runs the parts and prints their verdicts.
pub fn run(arguments: &SelftestArgs) -> Result<ExitCode> {
    if let Some(order) = &arguments.worker {
        let truth = truth::carry_out(order).map_err(|reason| anyhow!(reason))?;
        output::print(&format!("{}\n", serde_json::to_string(&truth).context("JSON")?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let machine = Machine::live()?;
    let diagnosis = numapilot_doctor::diagnose(&numapilot_doctor::probe());
    let options = Options {
        parts: parts(&arguments.only),
        is_quick: arguments.quick,
        executable: std::env::current_exe().context("numapilot's own executable")?,
    };
    let bar = progress(arguments.quiet);
    let mut on_step = |step: Progress| bar.set_message(format!("{}: {}", step.part.word(), step.now));
    let parts = numapilot_selftest::run(&machine, &diagnosis, &options, &mut on_step);
    bar.finish_and_clear();
    let host = diagnosis.host.into_iter().map(|(label, text)| (label.to_owned(), text)).collect();
    let all = SelfTest::new(env!("CARGO_PKG_VERSION"), host, parts);
    if arguments.json {
        output::print_json(&serde_json::to_value(&all).context("JSON")?)?;
    } else {
        output::print(&text::render(&all, output::look(&arguments.look)))?;
    }
    Ok(ExitCode::from(all.exit_status()))
}

/// The parts that `--only` names, or all.
fn parts(only: &[SelftestPart]) -> std::collections::BTreeSet<Part> {
    if only.is_empty() {
        return Part::ALL.into();
    }
    let part = |part: &SelftestPart| match part {
        SelftestPart::Placement => Part::Placement,
        SelftestPart::Engines => Part::Engines,
        SelftestPart::LatencyOrder => Part::LatencyOrder,
        SelftestPart::Contention => Part::Contention,
    };
    only.iter().map(part).collect()
}

/// A progress line on standard error that shows the current step.
fn progress(is_quiet: bool) -> ProgressBar {
    if output::hides_progress(is_quiet) {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    output::animate(&bar);
    let style = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}
