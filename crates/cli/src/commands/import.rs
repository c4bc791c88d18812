//! `numapilot import`: converts a recording of perf to a trace.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;
use numapilot_import::ImportOptions;
use numapilot_import::Importer;
use numapilot_machine::Machine;
use numapilot_text::units;
use numapilot_trace::name::output_folder;
use numapilot_trace::output::Existing;

use crate::args::ImportArgs;

/// Imports the recording and writes the tables of the trace.
pub fn run(arguments: &ImportArgs) -> Result<()> {
    let options = ImportOptions {
        input: arguments.input.clone(),
        output: match &arguments.output {
            Some(name) => output_folder(name),
            None => default_output(&arguments.input),
        },
        existing: if arguments.force { Existing::Replace } else { Existing::Rotate },
        machine: arguments.machine.as_ref().map(|name| Machine::load(name)).transpose()?,
        core_khz_max: arguments.core_mhz_max.map(|mhz| u64::from(mhz) * 1000),
    };
    let mut importer = Importer::open(&options)?;
    let folder = importer.folder().to_owned();
    let summary = numapilot_flows::finalise_stream(&folder, &mut importer)?;
    let imported = importer.finish()?;
    if arguments.quiet {
        return Ok(());
    }
    for note in &imported.notes {
        crate::output::tell!("numapilot: {note}");
    }
    let dir = options.output.display();
    crate::output::tell!(
        "numapilot: {} of {} samples are accesses; {}, {} in {dir}; next: numapilot report {dir}",
        units::count(imported.counts.accesses as f64),
        units::count(imported.counts.samples as f64),
        units::counted(summary.objects, "object", "objects"),
        units::counted(summary.threads, "thread", "threads"),
    );
    Ok(())
}

/// The default name of the trace: `perf.numatrace` for `somewhere/perf.data`.
fn default_output(input: &Path) -> PathBuf {
    let stem = input.file_stem().filter(|stem| *stem != "-").unwrap_or_else(|| "perf".as_ref());
    let mut name = stem.to_owned();
    name.push(".numatrace");
    PathBuf::from(name)
}
