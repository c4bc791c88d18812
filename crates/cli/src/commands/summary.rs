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

/// Why figures of these recordings say nothing of a change between them: they are of different machines, or, of times, by different engines too. As `check`
/// judges a baseline.
pub fn unlike<'r>(mut runs: impl Iterator<Item = &'r RunSummary>, is_of_times: bool) -> Option<String> {
    let first = runs.next()?;
    runs.find_map(|run| {
        if run.machine != first.machine {
            return Some(format!(
                "{} was recorded on machine {}, {} on {}",
                first.trace, first.machine, run.trace, run.machine
            ));
        }
        let engines = [first.engine.name(), run.engine.name()];
        (is_of_times && engines[0] != engines[1])
            .then(|| format!("{} was recorded by engine {}, {} by {}", first.trace, engines[0], run.trace, engines[1]))
    })
}

/// That recordings which are judged together are not of one program on one machine.
pub fn mixed(runs: &[RunSummary]) -> Option<String> {
    let first = runs.first()?;
    let other = runs.iter().find(|run| (&run.program, &run.machine) != (&first.program, &first.machine))?;
    Some(format!(
        "the recordings are judged as one, and {} is of `{}` on machine {}, {} of `{}` on {}",
        first.trace, first.program, first.machine, other.trace, other.program, other.machine
    ))
}

/// Fails if too few of the program's accesses were recorded to judge or predict anything.
pub fn refuse_blind(analysis: &Analysis<'_>) -> Result<()> {
    analysis.blindness().map_or(Ok(()), |blindness| bail!("{}", blindness.says()))
}

#[cfg(test)]
pub mod tests {
    use numapilot_insight::compare::TimeSource;
    use numapilot_trace::engine::Engine;

    use super::*;

    /// A recording of `app` that took so long.
    pub fn run(trace: &str, machine: &str, engine: Engine, ns: f64) -> RunSummary {
        RunSummary {
            trace: trace.to_owned(),
            program: "app".to_owned(),
            machine: machine.to_owned(),
            engine: engine.into(),
            is_simulated: true,
            time: Some(RunTime { ns, source: TimeSource::Modelled, idle_ns: Some(0.0), processor_ns: None }),
            is_of_accesses: true,
            has_too_few_samples: false,
            is_of_one_node: false,
            remote_share: None,
            imbalance: None,
            accesses: None,
            latency_cycles: None,
            lost_records: 0,
            damaged_chunks: 0,
            part_of_run: None,
            objects: Vec::new(),
            accesses_by_thread: Vec::new(),
        }
    }

    #[test]
    fn recordings_of_different_programs_or_machines_are_named() {
        let a = run("a", "small", Engine::Instrument, 1e9);
        let b = RunSummary { program: "other".to_owned(), ..run("b", "small", Engine::Instrument, 1e9) };
        assert_eq!(mixed(&[a.clone(), a.clone()]), None);
        let said = mixed(&[a.clone(), b]).expect("a sentence");
        assert!(said.ends_with("a is of `app` on machine small, b of `other` on small"), "{said}");
        let by_another = run("c", "small", Engine::Emulate, 1e9);
        assert_eq!(unlike([&a, &by_another].into_iter(), false), None);
        assert!(unlike([&a, &by_another].into_iter(), true).is_some_and(|why| why.ends_with("c by emulate")));
    }
}
