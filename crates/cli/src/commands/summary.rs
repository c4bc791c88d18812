//! Recordings reduced to what `compare` and `check` judge, with the run time that fits: the clock's, or the traffic model's for recordings
//! on a simulated machine (their clock knows no memory latency).

use std::path::Path;

use anyhow::{Context, Result, bail};
use numapilot_flows::{Filter, Trace};
use numapilot_insight::Analysis;
use numapilot_insight::compare::{RunSummary, RunTime, TimeSource};
use numapilot_simulator::recorded::{self, RecordedOptions};
use numapilot_simulator::whatif::as_recorded;

/// Seed of the simulation behind a predicted run time: one for all, so that equal recordings have equal times.
const SEED: u64 = 1;

/// Reads a trace. Without `with_model`, recordings on a simulated machine get no run time.
pub fn summarise(path: &Path, with_model: bool) -> Result<RunSummary> {
    let trace = Trace::open(path)?;
    let meta = trace.meta();
    let measured = !meta.simulated && meta.duration_ns > 0;
    let (simulated, clock_ns) = (meta.simulated, meta.duration_ns as f64);
    let analysis = Analysis::on(&trace, trace.machine().as_ref(), Filter::default());
    refuse_blind(&analysis)?;
    let time = measured.then_some(RunTime { ns: clock_ns, source: TimeSource::Measured });
    let mut summary = RunSummary::new(&analysis, &path.display().to_string(), time);
    drop(analysis);
    drop(trace);
    if simulated && with_model {
        summary.time = Some(RunTime { ns: modelled_time_ns(path)?, source: TimeSource::Modelled });
    }
    Ok(summary)
}

/// Fails where too little was recorded to judge or predict by.
pub fn refuse_blind(analysis: &Analysis<'_>) -> Result<()> {
    analysis.blindness().map_or(Ok(()), |blindness| bail!("{}", blindness.says()))
}

/// How long the recorded program takes on its machine, with its pages where they were.
fn modelled_time_ns(path: &Path) -> Result<f64> {
    let recorded = recorded::load(path, &RecordedOptions::default()).context("its run time cannot be predicted")?;
    Ok(as_recorded(&recorded.program, &recorded.machine, SEED)?.run_time_ns)
}
