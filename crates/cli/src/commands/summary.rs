//! Summaries of recordings for `compare` and `check`. The run time is the clock's, or the traffic model's for recordings on a simulated machine, whose clock
//! includes no memory latency.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use numapilot_flows::{Filter, Trace};
use numapilot_insight::Analysis;
use numapilot_insight::compare::{RunSummary, RunTime};
use numapilot_trace::name;

/// Reads a trace that the user named: every error names it. Without `with_model`, recordings on a simulated machine get no run time.
pub fn summarise_named(path: &Path, with_model: bool) -> Result<RunSummary> {
    // Why it cannot be opened names it already.
    let trace = Trace::open(path)?;
    summary_of(&trace, path, with_model).with_context(|| path.display().to_string())
}

/// As [`summarise_named`], of a trace whose name says nothing to the user.
pub fn summarise(path: &Path, with_model: bool) -> Result<RunSummary> {
    summary_of(&Trace::open(path)?, path, with_model)
}

fn summary_of(trace: &Trace, path: &Path, with_model: bool) -> Result<RunSummary> {
    let meta = trace.meta();
    if meta.interrupted || trace.was_rebuilt() {
        crate::output::tell!(
            "numapilot: the recorder of {} was killed: the figures cover only what it had written until then",
            path.display()
        );
    }
    let simulated = meta.simulated;
    let analysis = Analysis::on(trace, trace.machine().as_ref(), Filter::default());
    refuse_blind(&analysis)?;
    let mut summary = RunSummary::new(&analysis, &path.display().to_string(), RunTime::measured(trace));
    if simulated && with_model && summary.part_of_run.is_none() {
        let machine = trace.machine().context("the trace holds no description of its machine")?;
        summary.time = Some(RunTime::modelled(&analysis, &machine).context("its run time cannot be predicted")?);
    }
    Ok(summary)
}

/// Fails if a recording is named twice among those of one state: it shows no more of how much runs differ than once.
pub fn refuse_twice(paths: &[PathBuf]) -> Result<()> {
    let real = |path: &PathBuf| {
        let folder = name::find(path);
        folder.canonicalize().unwrap_or(folder)
    };
    let folders: Vec<PathBuf> = paths.iter().map(real).collect();
    for (at, path) in paths.iter().enumerate() {
        if folders[..at].contains(&folders[at]) {
            bail!(
                "{} is given twice, which does not show how much runs differ; give another recording of the same program",
                path.display()
            );
        }
    }
    Ok(())
}

/// Fails if too few of the program's accesses were recorded to judge or predict anything.
pub fn refuse_blind(analysis: &Analysis<'_>) -> Result<()> {
    analysis.blindness().map_or(Ok(()), |blindness| bail!("{}", blindness.says()))
}
