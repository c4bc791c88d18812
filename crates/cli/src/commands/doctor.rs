//! `numapilot doctor`.

use std::process::ExitCode;

use anyhow::Result;
use numapilot_sources::doctor;
use serde_json::json;

use crate::args::DoctorArgs;
use crate::output;

/// Looks at this machine; success if some engine records accesses here.
pub fn run(arguments: &DoctorArgs) -> Result<ExitCode> {
    let facts = doctor::probe();
    let diagnosis = doctor::diagnose(&facts);
    if arguments.json {
        output::print_json(&json!({ "facts": facts, "engines": diagnosis.engines }))?;
    } else {
        output::print(&doctor::text(&diagnosis, output::look(&arguments.look).width))?;
        output::print("Whether what they say is true here: numapilot selftest\n")?;
    }
    Ok(if diagnosis.can_record_accesses() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
