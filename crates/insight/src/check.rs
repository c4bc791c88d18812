//! Limits on memory placement, and whether recordings keep them: the judgement behind a CI gate.
//!
//! A limit is *exceeded* where the whole 95 % interval of a figure lies beyond it, and *in doubt* where only the estimate does. Over several
//! recordings the figure is their mean (`compare`). A slowdown from one recording to one other is exceeded only where equal runs do not differ as much.

use serde::Serialize;

use crate::compare::{
    Change, Metric, ObjectSummary, RunSummary, TimeSource, merge_objects, no_accesses, repeatability, repeated,
};
use crate::estimate::{Estimate, sum_of_shares};
use crate::totals::{ENOUGH_SAMPLES, UNKNOWN_MAX};

/// Why a share of the whole program is unknown.
fn no_share(runs: &[RunSummary]) -> String {
    let is_empty = |run: &RunSummary| run.accesses.is_some_and(|accesses| accesses.value <= 0.0);
    match runs.iter().any(is_empty) {
        true => "no memory access was recorded".to_owned(),
        false => "the home node of more than half of the accesses is unknown".to_owned(),
    }
}

/// A limit; all are shares (0.3 is 30 %).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "limit", content = "of")]
pub enum Limit {
    /// Share of remote accesses of the whole program.
    Remote(f64),
    /// Controller imbalance (population definition).
    Imbalance(f64),
    /// Share of remote accesses among those to the objects of this name.
    RemoteOf(String, f64),
    /// Rise of the run time over a baseline.
    Slowdown(f64),
}

impl Limit {
    /// The greatest value that keeps it.
    #[must_use]
    pub fn greatest(&self) -> f64 {
        match self {
            Limit::Remote(limit) | Limit::Imbalance(limit) | Limit::RemoteOf(_, limit) | Limit::Slowdown(limit) => {
                *limit
            }
        }
    }
}

/// Whether a limit is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The figure is within the limit.
    Kept,
    /// The estimate lies beyond it, its interval does not; or equal runs may differ by as much.
    InDoubt,
    /// The whole interval lies beyond it.
    Exceeded,
    /// The recordings do not hold the data for a judgement.
    Unknown,
}

/// A limit, the figure found, and the verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The limit.
    #[serde(flatten)]
    pub limit: Limit,
    /// The figure that the limit is about, as a share; `None` where it is not known.
    pub found: Option<Estimate>,
    /// Whether the limit is kept.
    pub verdict: Verdict,
    /// The object that contributes most: the limited one, the one with most remote accesses, or the one with most accesses to one node.
    pub object: Option<ObjectSummary>,
    /// Why there is no verdict, or why it is in doubt though the interval lies beyond the limit; else empty.
    pub remark: String,
    /// Of a limit on the run time: whether that was measured or modelled, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_source: Option<TimeSource>,
}

/// Judges recordings of one state by limits. `baseline` is the state with which [`Limit::Slowdown`] compares.
#[must_use]
pub fn judge(limits: &[Limit], runs: &[RunSummary], baseline: Option<&[RunSummary]>) -> Vec<Judgement> {
    let objects = merge_objects(runs);
    limits.iter().map(|limit| judge_one(limit, runs, baseline, &objects)).collect()
}

fn judge_one(
    limit: &Limit,
    runs: &[RunSummary],
    baseline: Option<&[RunSummary]>,
    objects: &[ObjectSummary],
) -> Judgement {
    let over = |of: fn(&RunSummary) -> Option<Estimate>| -> Option<Estimate> {
        let values: Option<Vec<Estimate>> = runs.iter().map(of).collect();
        values.filter(|values| !values.is_empty()).map(|values| repeated(&values).estimate)
    };
    let most = |weight: fn(&ObjectSummary) -> f64| {
        let weighty = objects.iter().filter(|object| weight(object) > 0.0);
        weighty.max_by(|a, b| weight(a).total_cmp(&weight(b))).cloned()
    };
    let remote = || most(|object| object.share * object.remote);
    let slower = match limit {
        Limit::Slowdown(_) => slowdown(baseline.unwrap_or_default(), runs),
        _ => Err(String::new()),
    };
    let (found, object) = match limit {
        Limit::Remote(_) => {
            (of_accesses(runs).and_then(|()| over(|run| run.remote_share).ok_or_else(|| no_share(runs))), remote())
        }
        Limit::Imbalance(_) => (
            of_accesses(runs).and_then(|()| over(|run| run.imbalance).ok_or_else(|| no_share(runs))),
            most(|object| object.share * object.busiest_node),
        ),
        Limit::RemoteOf(name, _) => {
            let object =
                objects.iter().filter(|object| object.name == *name).max_by(|a, b| a.share.total_cmp(&b.share));
            (of_accesses(runs).and_then(|()| remote_of(objects, name)), object.cloned())
        }
        Limit::Slowdown(_) => (slower.clone().map(|(rise, _)| rise), remote()),
    };
    let greatest = limit.greatest();
    // What of a slowdown is certain, which is less than its interval where each side is one recording.
    let certain = slower.ok().map(|(_, certain)| certain);
    let verdict = match &found {
        Err(_) => Verdict::Unknown,
        Ok(found) if certain.unwrap_or(found.low) > greatest => Verdict::Exceeded,
        Ok(found) if found.value > greatest => Verdict::InDoubt,
        Ok(_) => Verdict::Kept,
    };
    let is_chance = |found: &Estimate| verdict == Verdict::InDoubt && found.low > greatest;
    let (found, remark) = match found {
        Err(why) => (None, why),
        Ok(found) if is_chance(&found) => (Some(found), ONE_EACH.to_owned()),
        Ok(found) => (Some(found), String::new()),
    };
    let time_source = match limit {
        Limit::Slowdown(_) => runs.first().and_then(|run| run.time).map(|time| time.source),
        _ => None,
    };
    Judgement { limit: limit.clone(), found, verdict, object, remark, time_source }
}

/// Page faults show who touches a page first, which is local more often than not: a limit on accesses would pass for that reason, as it would where none of a
/// few samples happened to be remote, or where there is one node.
fn of_accesses(runs: &[RunSummary]) -> Result<(), String> {
    if let Some(why) = runs.iter().find_map(no_accesses) {
        return Err(why);
    }
    if let Some(run) = runs.iter().find(|run| run.is_of_one_node) {
        return Err(format!(
            "{} has one node, so nothing can be remote there; record for a machine with several (`--machine`, `numapilot topo --list`)",
            run.machine
        ));
    }
    match !runs.is_empty() && runs.iter().all(|run| run.has_too_few_samples) {
        true => Err(format!(
            "fewer than {ENOUGH_SAMPLES} memory accesses were sampled, which is too little to judge by; record longer, or sample more often"
        )),
        false => Ok(()),
    }
}

/// Remote share among the accesses to all objects of a name, over the recordings.
fn remote_of(objects: &[ObjectSummary], name: &str) -> Result<Estimate, String> {
    let unseen = || "no access to an object of that name was sampled".to_owned();
    let named: Vec<&ObjectSummary> = objects.iter().filter(|object| object.name == name).collect();
    let share: f64 = named.iter().map(|object| object.share).sum();
    let runs = named.first().ok_or_else(unseen)?.remote_of_all.len();
    if share <= 0.0 {
        return Err(unseen());
    }
    let known: f64 = named.iter().map(|object| object.share * object.known_homes).sum();
    if known < (1.0 - UNKNOWN_MAX) * share {
        return Err("the home node of more than half of the accesses to it is unknown".to_owned());
    }
    let per_run: Vec<Estimate> = (0..runs)
        .map(|run| named.iter().fold(Estimate::exact(0.0), |sum, object| sum_of_shares(sum, object.remote_of_all[run])))
        .collect();
    let found = repeated(&per_run).estimate.scaled(1.0 / share);
    Ok(Estimate { value: found.value, low: found.low.max(0.0), high: found.high.min(1.0) })
}

/// Why a slowdown is in doubt though the recordings show it.
const ONE_EACH: &str = "equal runs may differ by as much, and there is one recording of each side; judge several runs (`--runs 3`, or `--trace` with \
                        several recordings)";

/// Run time over the baseline's, minus one, and what of it is certain.
fn slowdown(baseline: &[RunSummary], runs: &[RunSummary]) -> Result<(Estimate, f64), String> {
    let unlike = || "run times cannot be compared with those of the baseline".to_owned();
    if let Some((run, why)) = baseline.iter().chain(runs).find_map(|run| Some((run, run.part_of_run.as_ref()?))) {
        return Err(format!("{} has no run time: it {why}", run.trace));
    }
    let base = baseline.first().filter(|_| !runs.is_empty()).ok_or_else(unlike)?;
    // Each of them: the mean of several would hide that one is of something else.
    let others = || baseline.iter().chain(runs);
    if let Some(run) = others().find(|run| run.machine != base.machine) {
        return Err(format!("the baseline was recorded on machine {}, {} on {}", base.machine, run.trace, run.machine));
    }
    if let Some(run) = others().find(|run| run.engine != base.engine) {
        return Err(format!(
            "the baseline was recorded by engine {}, {} by {}",
            base.engine.name(),
            run.trace,
            run.engine.name()
        ));
    }
    let times = |runs: &[RunSummary]| -> Option<(Vec<Estimate>, TimeSource)> {
        let source = runs.first()?.time?.source;
        let of = |run: &RunSummary| run.time.filter(|time| time.source == source).map(|time| Estimate::exact(time.ns));
        Some((runs.iter().map(of).collect::<Option<_>>()?, source))
    };
    let ((old, old_source), (new, new_source)) = times(baseline).zip(times(runs)).ok_or_else(unlike)?;
    if old_source != new_source {
        return Err(unlike());
    }
    let change = Change::of(repeated(&old), repeated(&new), repeatability(Metric::RunTime, baseline, runs));
    change.relative.zip(change.certain_relative_rise()).ok_or_else(unlike)
}

#[cfg(test)]
mod tests {
    use numapilot_trace::engine::Engine;

    use super::*;
    use crate::compare::RunTime;

    fn run(remote: Estimate, time: f64) -> RunSummary {
        RunSummary {
            trace: String::new(),
            program: "p".to_owned(),
            machine: "m".to_owned(),
            engine: Engine::Instrument.into(),
            is_simulated: true,
            time: Some(RunTime { ns: time, source: TimeSource::Modelled, idle_ns: Some(0.0), processor_ns: None }),
            is_of_accesses: true,
            has_too_few_samples: false,
            is_of_one_node: false,
            remote_share: Some(remote),
            imbalance: None,
            accesses: Some(Estimate::exact(1e6)),
            latency_cycles: None,
            lost_records: 0,
            damaged_chunks: 0,
            part_of_run: None,
            objects: Vec::new(),
            accesses_by_thread: Vec::new(),
        }
    }

    #[test]
    fn a_limit_inside_the_interval_is_in_doubt_and_beyond_it_exceeded() {
        let found = Estimate { value: 0.31, low: 0.29, high: 0.33 };
        let verdict = |limit: f64| judge(&[Limit::Remote(limit)], &[run(found, 1.0)], None)[0].verdict;
        assert_eq!(verdict(0.32), Verdict::Kept);
        assert_eq!(verdict(0.30), Verdict::InDoubt);
        assert_eq!(verdict(0.28), Verdict::Exceeded);
    }

    #[test]
    fn what_is_not_known_is_never_kept() {
        let runs = [run(Estimate::exact(0.1), 1.0)];
        let all = [Limit::Imbalance(1.0), Limit::RemoteOf("x".to_owned(), 1.0), Limit::Slowdown(1.0)];
        assert!(
            judge(&all, &runs, None)
                .iter()
                .all(|judged| judged.verdict == Verdict::Unknown && !judged.remark.is_empty())
        );
    }

    #[test]
    fn slowdown_is_over_the_baseline() {
        let base = [run(Estimate::exact(0.1), 1e9)];
        let judged = |times: &[f64]| {
            let runs: Vec<RunSummary> = times.iter().map(|time| run(Estimate::exact(0.1), *time)).collect();
            judge(&[Limit::Slowdown(0.05)], &runs, Some(&base))[0].clone()
        };
        let source = judge(&[Limit::Slowdown(0.05)], &base, Some(&base))[0].time_source;
        assert_eq!(source, Some(TimeSource::Modelled));
        assert_eq!(judged(&[1.04e9]).verdict, Verdict::Kept);
        // Equal runs differ by 5 % of the larger time, and 1 ms.
        let near = judged(&[1.08e9]);
        assert_eq!(near.verdict, Verdict::InDoubt);
        assert!(near.remark.contains("`--runs 3`"), "{}", near.remark);
        assert_eq!((judged(&[1.2e9]).verdict, judged(&[1.2e9]).remark.as_str()), (Verdict::Exceeded, ""));
        assert_eq!(judged(&[1.08e9, 1.081e9, 1.079e9]).verdict, Verdict::Exceeded);
    }

    #[test]
    fn one_baseline_of_a_run_that_waits_leaves_a_slowdown_in_doubt() {
        let waiting = |ns: f64| {
            let time = RunTime { ns, source: TimeSource::Modelled, idle_ns: Some(ns - 1e7), processor_ns: None };
            RunSummary { time: Some(time), ..run(Estimate::exact(0.1), ns) }
        };
        let judged = &judge(&[Limit::Slowdown(0.05)], &[waiting(1.4e9)], Some(&[waiting(1e9)]))[0];
        assert_eq!(judged.verdict, Verdict::InDoubt, "{judged:?}");
    }

    #[test]
    fn a_recording_without_accesses_has_no_unknown_homes() {
        let known = run(Estimate::exact(0.1), 1.0);
        let remark = |accesses: f64| {
            let run = RunSummary { remote_share: None, accesses: Some(Estimate::exact(accesses)), ..known.clone() };
            judge(&[Limit::Remote(0.5)], &[run], None)[0].remark.clone()
        };
        assert_eq!(remark(0.0), "no memory access was recorded");
        assert!(remark(5.0).contains("home node"), "{}", remark(5.0));
    }

    #[test]
    fn page_faults_and_objects_of_unknown_homes_are_never_kept() {
        let faults = RunSummary { is_of_accesses: false, ..run(Estimate::exact(0.0), 1.0) };
        let judged = judge(&[Limit::Remote(0.5)], &[faults], None);
        assert_eq!(judged[0].verdict, Verdict::Unknown);
        assert!(judged[0].remark.contains("how often memory is accessed"), "{}", judged[0].remark);
        let object = |known_homes: f64| ObjectSummary {
            kind: numapilot_flows::ObjectKind::Heap,
            name: "filled".to_owned(),
            function: String::new(),
            place: String::new(),
            file: String::new(),
            line: 0,
            instances: 1,
            bytes: 8,
            peak_live_bytes: 8,
            share: 0.5,
            remote: 0.0,
            known_homes,
            busiest_node: 0.0,
            remote_of_all: vec![Estimate::exact(0.0)],
            latency_cycles: None,
        };
        let verdict = |known: f64| {
            let run = RunSummary { objects: vec![object(known)], ..run(Estimate::exact(0.0), 1.0) };
            judge(&[Limit::RemoteOf("filled".to_owned(), 0.1)], &[run], None)[0].verdict
        };
        assert_eq!([0.0, 0.4, 0.6].map(verdict), [Verdict::Unknown, Verdict::Unknown, Verdict::Kept]);
    }

    /// A limit of 30 % passed by five samples, none of them remote, of accesses of which half may be.
    #[test]
    fn a_few_samples_keep_no_limit() {
        let thin = RunSummary { has_too_few_samples: true, ..run(Estimate { value: 0.0, low: 0.0, high: 0.5 }, 1.0) };
        let judged = |runs: &[RunSummary]| judge(&[Limit::Remote(0.3)], runs, None)[0].clone();
        let alone = judged(std::slice::from_ref(&thin));
        assert_eq!((alone.verdict, alone.found), (Verdict::Unknown, None));
        assert!(alone.remark.contains("too little to judge by"), "{}", alone.remark);
        // The spread of several shows how far one of them is off.
        assert_eq!(judged(&[run(Estimate::exact(0.1), 1.0), thin]).verdict, Verdict::Kept);
    }

    /// On a CI runner of one node, `--machine live` kept every limit.
    #[test]
    fn a_machine_of_one_node_keeps_no_limit() {
        let runs = [RunSummary { is_of_one_node: true, ..run(Estimate::exact(0.0), 1e9) }];
        for limit in [Limit::Remote(0.3), Limit::Imbalance(0.3), Limit::RemoteOf("block".to_owned(), 0.3)] {
            let judged = &judge(&[limit], &runs, None)[0];
            assert_eq!(judged.verdict, Verdict::Unknown);
            assert!(judged.remark.starts_with("m has one node"), "{}", judged.remark);
        }
        let slowdown = &judge(&[Limit::Slowdown(0.3)], &runs, Some(&runs))[0];
        assert_eq!(slowdown.verdict, Verdict::Kept, "run times are those of any machine");
    }

    #[test]
    fn a_part_of_a_run_is_no_baseline() {
        let whole = run(Estimate::exact(0.1), 100.0);
        let part = RunSummary { time: None, part_of_run: Some("stopped early".to_owned()), ..whole.clone() };
        let judged = &judge(&[Limit::Slowdown(0.5)], &[whole], Some(&[part]))[0];
        assert_eq!(judged.verdict, Verdict::Unknown);
        assert!(judged.remark.ends_with("has no run time: it stopped early"), "{}", judged.remark);
    }

    #[test]
    fn a_baseline_of_another_machine_or_engine_is_no_baseline() {
        let new = [run(Estimate::exact(0.1), 100.0)];
        for other in [
            RunSummary { machine: "other".to_owned(), ..run(Estimate::exact(0.1), 200.0) },
            RunSummary { engine: Engine::Emulate.into(), ..run(Estimate::exact(0.1), 200.0) },
        ] {
            // Be it the baseline, or one of several runs.
            let mixed = [new[0].clone(), new[0].clone(), other.clone()];
            for (runs, baseline) in [(&new[..], &[other][..]), (&mixed[..], &new[..])] {
                let judged = &judge(&[Limit::Slowdown(0.5)], runs, Some(baseline))[0];
                assert_eq!(judged.verdict, Verdict::Unknown);
                assert!(judged.remark.starts_with("the baseline was recorded"), "{}", judged.remark);
            }
        }
    }
}
