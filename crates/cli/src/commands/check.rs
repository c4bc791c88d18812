//! `numapilot check`: a CI gate on memory placement.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use numapilot_insight::check::{Limit, Verdict, judge};
use numapilot_insight::compare::RunSummary;
use numapilot_machine::Machine;
use numapilot_report::check as shown;
use numapilot_sources::{EngineChoice, RecordOptions};
use numapilot_text::units;
use numapilot_trace::output::Existing;
use serde_json::json;
use tempfile::TempDir;

use super::exit::BEYOND_LIMITS;
use super::record::{binding, cpu_list};
use super::summary::{mixed, refuse_twice, summarise, summarise_named};
use crate::args::CheckArgs;
use crate::output;

/// Records the program or reads recordings, judges them by the limits, and prints the verdicts.
pub fn run(arguments: &CheckArgs) -> Result<ExitCode> {
    let limits = limits(arguments);
    let is_taken = output::takes_standard_output(&[&arguments.sarif])?;
    let with_model = arguments.baseline.is_some();
    let baseline = match &arguments.baseline {
        Some(path) => Some([summarise_named(path, true)?]),
        None => None,
    };
    let runs =
        if arguments.trace.is_empty() { record(arguments, with_model)? } else { read(&arguments.trace, with_model)? };
    let judgements = judge(&limits, &runs, baseline.as_ref().map(|baseline| baseline.as_slice()));
    let is_failure = |verdict: Verdict| match verdict {
        Verdict::Exceeded => true,
        Verdict::InDoubt => arguments.strict,
        Verdict::Kept | Verdict::Unknown => false,
    };
    if let Some(path) = &arguments.sarif {
        let folder = std::env::current_dir().unwrap_or_default();
        let log = shown::sarif(&judgements, is_failure, &folder, env!("CARGO_PKG_VERSION"));
        output::write_file(path, &format!("{}\n", serde_json::to_string_pretty(&log).context("SARIF")?))?;
    }
    let failed = judgements.iter().any(|judged| is_failure(judged.verdict));
    let unknown = judgements.iter().find(|judged| judged.verdict == Verdict::Unknown);
    match (is_taken, arguments.json) {
        (true, _) => {}
        (false, true) => {
            output::print_json(&json!({"passed": !failed && unknown.is_none(), "limits": judgements, "runs": runs}))?;
        }
        (false, false) => output::print(&shown::render(&judgements, is_failure, output::look(&arguments.look)))?,
    }
    let all = || baseline.iter().flatten().chain(&runs);
    for run in all().filter(|run| run.lost_records > 0) {
        crate::output::tell!(
            "numapilot: {} lost while {} was recorded: the figures cover only the rest",
            units::counted(run.lost_records, "record was", "records were"),
            run.trace
        );
    }
    for run in all().filter(|run| run.damaged_chunks > 0) {
        crate::output::tell!("numapilot: parts of {} are damaged or cut off: the figures are of the rest", run.trace);
    }
    if let (Some([base]), Some(run)) = (&baseline, runs.first())
        && base.program != run.program
    {
        crate::output::tell!(
            "numapilot: the baseline is a recording of `{}`, and this one of `{}`",
            base.program,
            run.program
        );
    }
    if let Some(words) = mixed(&runs) {
        crate::output::tell!("numapilot: {words}");
    }
    match unknown {
        // A limit that is exceeded fails the check, whatever else is known.
        _ if failed => Ok(ExitCode::from(BEYOND_LIMITS)),
        Some(unknown) => bail!("a limit could not be judged: {}", unknown.remark),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The limits that are set; the arguments have at least one.
fn limits(arguments: &CheckArgs) -> Vec<Limit> {
    let mut limits: Vec<Limit> = Vec::new();
    limits.extend(arguments.max_remote.map(Limit::Remote));
    limits.extend(arguments.max_imbalance.map(Limit::Imbalance));
    limits.extend(arguments.max_remote_of.iter().map(|(name, limit)| Limit::RemoteOf(name.clone(), *limit)));
    limits.extend(arguments.max_slowdown.map(Limit::Slowdown));
    limits
}

fn read(traces: &[PathBuf], with_model: bool) -> Result<Vec<RunSummary>> {
    refuse_twice(traces)?;
    traces.iter().map(|path| summarise_named(path, with_model)).collect()
}

/// Records `--runs` runs of the program, in a folder that is removed afterwards unless `--output` keeps it.
fn record(arguments: &CheckArgs, with_model: bool) -> Result<Vec<RunSummary>> {
    let scratch = Scratch::new(arguments.output.as_deref())?;
    let machine = Machine::load(&arguments.machine)?;
    (1..=arguments.runs)
        .map(|run| {
            let folder = scratch.folder.join(format!("run-{run}.numatrace"));
            let mut options = RecordOptions::new(arguments.command.clone(), folder.clone(), &machine);
            options.engine = EngineChoice::Only(arguments.engine);
            options.existing = Existing::Replace;
            options.bind = binding(arguments.bind);
            options.cpus = cpu_list(arguments.cpus.as_deref())?;
            options.seed = u64::from(run);
            let recording = {
                let _redirected = OutputToError::begin()?;
                numapilot_sources::record(options)?
            };
            let code = recording.exit.shell_code();
            if code != 0 {
                bail!("the program ended with status {code}, so nothing was judged");
            }
            if let Some(reason) = &recording.stopped {
                bail!("recording stopped before the program ended ({reason}), so nothing was judged");
            }
            numapilot_flows::finalise(&recording.dir)?;
            if !arguments.quiet {
                crate::output::tell!("numapilot: run {run} of {} recorded", arguments.runs);
            }
            summarise(&folder, with_model)
        })
        .collect()
}

/// The folder of the recordings.
struct Scratch {
    folder: PathBuf,
    /// Removes it on drop. It is this user's alone, under a name that nobody can have taken before.
    _temporary: Option<TempDir>,
}

impl Scratch {
    fn new(kept: Option<&Path>) -> Result<Scratch> {
        let refused = |folder: &Path| format!("{}: cannot create this folder", folder.display());
        if let Some(folder) = kept {
            std::fs::create_dir_all(folder).with_context(|| refused(folder))?;
            return Ok(Scratch { folder: folder.to_owned(), _temporary: None });
        }
        let parent = std::env::temp_dir();
        let made = tempfile::Builder::new().prefix("numapilot-check-").tempdir_in(&parent);
        let temporary = made.with_context(|| format!("{}: cannot create a folder there", parent.display()))?;
        Ok(Scratch { folder: temporary.path().to_owned(), _temporary: Some(temporary) })
    }
}

/// Redirects standard output, which the recorded program inherits, to standard error until it is dropped: standard output is for the verdicts.
struct OutputToError {
    output: OwnedFd,
}

impl OutputToError {
    fn begin() -> Result<OutputToError> {
        let output = std::io::stdout().as_fd().try_clone_to_owned().context("standard output")?;
        redirect(std::io::stderr().as_fd())?;
        Ok(OutputToError { output })
    }
}

impl Drop for OutputToError {
    fn drop(&mut self) {
        let _ = redirect(self.output.as_fd());
    }
}

/// Makes standard output a copy of `to`.
fn redirect(to: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: both descriptors are open; dup2 replaces what standard output refers to and leaves `to` alone.
    let result = unsafe { libc::dup2(to.as_raw_fd(), libc::STDOUT_FILENO) };
    if result < 0 {
        return Err(std::io::Error::last_os_error()).context("standard output");
    }
    Ok(())
}
