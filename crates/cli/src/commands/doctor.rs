//! `numapilot doctor`: shows which engines work on this machine.

use std::process::ExitCode;

use anyhow::Result;
use numapilot_sources::doctor;
use serde_json::json;

use crate::args::DoctorArgs;
use crate::output;

/// Probes this machine and prints the diagnosis; success if some engine can record accesses here.
pub fn run(arguments: &DoctorArgs) -> Result<ExitCode> {
    let facts = doctor::probe();
    let diagnosis = doctor::diagnose(&facts);
    if arguments.json {
        output::print_json(&json!({ "facts": facts, "engines": diagnosis.engines }))?;
    } else {
        output::print(&doctor::text(&diagnosis, output::look(&arguments.look).width))?;
        output::print("To check the engines against known programs on this machine: numapilot selftest\n")?;
    }
    Ok(if diagnosis.can_record_accesses() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
