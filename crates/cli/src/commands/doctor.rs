//! `numapilot doctor`: shows which engines work on this machine.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use crate::args::DoctorArgs;
use crate::output;

/// Probes this machine and prints the diagnosis; success if some engine can record accesses here.
pub fn run(arguments: &DoctorArgs) -> Result<ExitCode> {
    let facts = numapilot_doctor::probe();
    let diagnosis = numapilot_doctor::diagnose(&facts);
    if arguments.json {
        output::print_json(&json!({ "facts": facts, "engines": diagnosis.engines }))?;
    } else {
        output::print(&numapilot_doctor::text(&diagnosis, output::look(&arguments.look).width))?;
        output::print("To check the engines against known programs on this machine: numapilot selftest\n")?;
    }
    Ok(if diagnosis.can_record_accesses() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
