//! Two states of one program side by side: did a change help, by how much, and which objects did it change?
//!
//! Each state is one recording or several ([`RunSummary`]); repeats tell how much runs differ by themselves. Objects are matched by where
//! they come from ([`matching`]); every change carries a 95 % interval and a verdict ([`change`]). Definitions: `docs/compare.md`.

mod change;
mod matching;
mod run;

use serde::Serialize;

pub use change::{Change, ChangeVerdict, Repeatability, Repeated, repeated};
pub use matching::{MatchKind, Matched, match_objects};
pub use run::{Metric, ObjectSummary, RunSummary, RunTime, TimeSource, merge_objects, no_accesses};

use crate::estimate::Estimate;

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Recordings before the change.
    pub before: Vec<RunSummary>,
    /// Recordings after it.
    pub after: Vec<RunSummary>,
    /// Whether run times were measured or modelled; `None` where the two sides have different kinds, so that times are not compared.
    pub time_source: Option<TimeSource>,
    /// Figures of the whole program.
    pub metrics: Vec<MetricChange>,
    /// Run time gained: before over after, minus one (1 is twice as fast). `None` without comparable times.
    pub gain: Option<Estimate>,
    /// What was predicted, beside `gain`.
    pub prediction: Option<Judged>,
    /// Objects, those with most remote accesses on either side first.
    pub objects: Vec<ObjectChange>,
    /// What limits the comparison, in whole sentences.
    pub notes: Vec<String>,
}

/// A figure on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricChange {
    /// The metric.
    pub metric: Metric,
    /// Its values on both sides, their difference and the verdict.
    #[serde(flatten)]
    pub change: Change,
}

/// An object on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectChange {
    /// How its two sides were found to be one object.
    pub matched: MatchKind,
    /// The object before; `None` if it is new.
    pub before: Option<ObjectSummary>,
    /// The object after; `None` if it is gone.
    pub after: Option<ObjectSummary>,
    /// Share of the program's memory accesses that are remote accesses to it; `None` where the homes of most of its accesses are unknown on a side.
    pub remote: Option<Change>,
    /// Mean latency of its accesses in cycles, where both sides know it.
    pub latency_cycles: Option<Change>,
}

/// A predicted gain, as `numapilot whatif --json` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Run time gained: before over after, minus one.
    pub gain: f64,
    /// Ends of its 95 % interval; `None` if none was given.
    pub interval: Option<(f64, f64)>,
}

/// A prediction, and whether the measured gain agrees with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The prediction.
    pub predicted: Prediction,
    /// Whether the two intervals meet; `None` if no gain could be computed, or neither side has an interval.
    pub agrees: Option<bool>,
}

/// Compares two states of a program. Each side needs at least one recording.
///
/// # Errors
/// If a side has no recording.
pub fn compare(
    before: Vec<RunSummary>,
    after: Vec<RunSummary>,
    prediction: Option<Prediction>,
) -> Result<Comparison, CompareError> {
    if before.is_empty() || after.is_empty() {
        return Err(CompareError::NothingToCompare);
    }
    let time_source = common_time_source(before.iter().chain(&after));
    let mut metrics = Vec::new();
    let mut gain = None;
    for metric in Metric::ALL {
        if metric == Metric::RunTime && time_source.is_none() {
            continue;
        }
        let values =
            |runs: &[RunSummary]| -> Option<Vec<Estimate>> { runs.iter().map(|run| run.metric(metric)).collect() };
        let (Some(old), Some(new)) = (values(&before), values(&after)) else { continue };
        let (old, new) = (repeated(&old), repeated(&new));
        if metric == Metric::RunTime {
            gain = change::gain(&old, &new);
        }
        metrics.push(MetricChange { metric, change: Change::of(old, new, metric.repeatability()) });
    }
    // Objects that a side says nothing of are not new or gone.
    let is_of_accesses = before.iter().chain(&after).all(|run| run.is_of_accesses);
    let objects = if is_of_accesses { object_changes(&before, &after) } else { Vec::new() };
    let notes = notes(&before, &after, time_source);
    let prediction = prediction.map(|predicted| Judged {
        predicted,
        agrees: gain.and_then(|gain| agrees(predicted, gain, untold_gain(&metrics))),
    });
    Ok(Comparison { before, after, time_source, metrics, gain, prediction, objects, notes })
}

/// Why two sides cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// One side has no recording.
    #[error("each side needs at least one recording")]
    NothingToCompare,
}

fn common_time_source<'r>(mut runs: impl Iterator<Item = &'r RunSummary>) -> Option<TimeSource> {
    let first = runs.next()?.time?.source;
    runs.all(|run| run.time.is_some_and(|time| time.source == first)).then_some(first)
}

/// How far the gains of equal runs may differ, where one recording of each does not tell.
fn untold_gain(metrics: &[MetricChange]) -> f64 {
    let time = metrics.iter().find(|line| line.metric == Metric::RunTime).map(|line| &line.change);
    let share = |change: &Change| Some(change.untold? / change.after.value).filter(|share| share.is_finite());
    time.and_then(share).unwrap_or(0.0)
}

fn agrees(predicted: Prediction, found: Estimate, untold: f64) -> Option<bool> {
    let (low, high) = predicted.interval.unwrap_or((predicted.gain, predicted.gain));
    let (low, high) = (low - untold, high + untold);
    if low == high && found.is_exact() {
        return None;
    }
    Some(low <= found.high && high >= found.low)
}

fn object_changes(before: &[RunSummary], after: &[RunSummary]) -> Vec<ObjectChange> {
    let (old, new) = (merge_objects(before), merge_objects(after));
    let mut changes: Vec<ObjectChange> = match_objects(&old, &new)
        .into_iter()
        .map(|Matched { kind, before: b, after: a }| {
            let (b, a) = (b.map(|index| &old[index]), a.map(|index| &new[index]));
            // An object that was never accessed on one side has no remote access there: that is a figure, not a gap.
            let remote = |object: Option<&ObjectSummary>, runs: &[RunSummary]| {
                object.map_or_else(|| Repeated::nothing(runs.len()), |object| repeated(&object.remote_of_all))
            };
            let is_known = [b, a].into_iter().flatten().all(ObjectSummary::knows_homes);
            let latency = |object: Option<&ObjectSummary>| object.and_then(|object| object.latency_cycles);
            ObjectChange {
                matched: kind,
                remote: is_known.then(|| Change::of(remote(b, before), remote(a, after), Repeatability::OF_SHARES)),
                latency_cycles: latency(b).zip(latency(a)).map(|(b, a)| {
                    let (b, a) = (repeated(&[Estimate::exact(b)]), repeated(&[Estimate::exact(a)]));
                    Change::of(b, a, Repeatability::OF_AMOUNTS).without_verdict()
                }),
                before: b.cloned(),
                after: a.cloned(),
            }
        })
        .collect();
    let weight =
        |change: &ObjectChange| change.remote.map_or(0.0, |remote| remote.before.value.max(remote.after.value));
    let accesses = |change: &ObjectChange| {
        let of = |object: &Option<ObjectSummary>| object.as_ref().map_or(0.0, |object| object.share);
        of(&change.before).max(of(&change.after))
    };
    changes.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then(accesses(b).total_cmp(&accesses(a))));
    changes
}

fn notes(before: &[RunSummary], after: &[RunSummary], time_source: Option<TimeSource>) -> Vec<String> {
    let mut notes = Vec::new();
    match (before.len(), after.len()) {
        (1, 1) => notes.push(
            "One recording of each does not show how much runs differ by themselves. Intervals cover the sampling alone, and no difference below 5 % (of \
             shares: 3 points) counts as better or worse. Give several recordings of each (--before, --after)."
                .to_owned(),
        ),
        (1, _) | (_, 1) => notes.push(
            "One side has one recording, so its runs are assumed to differ as much as those of the other side. Give several recordings of each.".to_owned(),
        ),
        _ => {}
    }
    let mut differs = |what: &str, of: fn(&RunSummary) -> &str| {
        let mut all: Vec<&str> = before.iter().chain(after).map(of).collect();
        all.sort_unstable();
        all.dedup();
        if all.len() > 1 {
            notes.push(format!("The recordings differ in {what}: {}.", all.join(", ")));
        }
    };
    differs("machine", |run| &run.machine);
    differs("engine", |run| run.engine.name());
    differs("program", |run| &run.program);
    match time_source {
        Some(TimeSource::Modelled) => {
            notes.push(
                "Run times are predicted by the traffic model from the recorded accesses, not measured.".to_owned(),
            );
        }
        Some(TimeSource::Measured) => {}
        None => {
            notes.push("Run times are not compared, because some recordings have measured run times and others have modelled ones or none.".to_owned());
        }
    }
    notes.extend(not_compared(before, after));
    let lost: u64 = before.iter().chain(after).map(|run| run.lost_records).fold(0, u64::saturating_add);
    if lost > 0 {
        let records = if lost == 1 { "record was" } else { "records were" };
        notes.push(format!("{lost} {records} lost while recording, so the figures may miss accesses."));
    }
    let damaged: u64 = before.iter().chain(after).map(|run| run.damaged_chunks).fold(0, u64::saturating_add);
    if damaged > 0 {
        notes.push("Parts of the recordings are damaged or cut off, so the figures may miss accesses (`numapilot report` names them).".to_owned());
    }
    notes
}

/// Which figures are left out, and why.
fn not_compared(before: &[RunSummary], after: &[RunSummary]) -> Option<String> {
    let runs = || before.iter().chain(after);
    if let Some(why) = runs().find_map(no_accesses) {
        return Some(format!("Accesses and objects are not compared: {why}."));
    }
    let unknown = runs().find(|run| run.remote_share.is_none() || run.imbalance.is_none())?;
    if unknown.accesses.is_some_and(|accesses| accesses.value <= 0.0) {
        let why = "Remote accesses and controller imbalance are not compared";
        return Some(format!("{why}: {} holds no memory accesses.", unknown.trace));
    }
    Some(format!(
        "Remote accesses and controller imbalance are not compared: the home node of more than half of the accesses in {} is unknown.",
        unknown.trace
    ))
}

#[cfg(test)]
mod tests {
    use numapilot_trace::engine::Engine;

    use super::*;

    fn run(name: &str) -> RunSummary {
        RunSummary {
            trace: name.to_owned(),
            program: "p".to_owned(),
            machine: "m".to_owned(),
            engine: Engine::Instrument.into(),
            time: Some(RunTime { ns: 1e9, source: TimeSource::Measured }),
            is_of_accesses: true,
            remote_share: Some(Estimate::exact(0.5)),
            imbalance: Some(Estimate::exact(0.1)),
            accesses: Some(Estimate::exact(1e6)),
            latency_cycles: None,
            lost_records: 0,
            damaged_chunks: 0,
            objects: Vec::new(),
        }
    }

    fn shown(found: &Comparison) -> Vec<Metric> {
        found.metrics.iter().map(|line| line.metric).collect()
    }

    #[test]
    fn page_faults_are_not_compared_as_accesses() {
        let faults = || RunSummary {
            engine: Engine::Fault.into(),
            is_of_accesses: false,
            remote_share: None,
            imbalance: None,
            accesses: None,
            ..run("faults")
        };
        for (before, after) in [(faults(), faults()), (run("a"), faults())] {
            let found = compare(vec![before], vec![after], None).unwrap();
            assert_eq!(shown(&found), [Metric::RunTime]);
            let why = "Accesses and objects are not compared: a recording by engine fault";
            assert!(
                found.objects.is_empty() && found.notes.iter().any(|note| note.starts_with(why)),
                "{:?}",
                found.notes
            );
        }
    }

    #[test]
    fn what_unknown_homes_leave_out_is_said() {
        let unknown = RunSummary { remote_share: None, imbalance: None, damaged_chunks: 1, ..run("b.numatrace") };
        let found = compare(vec![run("a")], vec![unknown], None).unwrap();
        assert_eq!(shown(&found), [Metric::RunTime, Metric::Accesses]);
        assert!(found.notes.iter().any(|note| note.contains("b.numatrace is unknown")), "{:?}", found.notes);
        assert!(found.notes.iter().any(|note| note.contains("damaged or cut off")), "{:?}", found.notes);
        let none = Some(Estimate::exact(0.0));
        let empty = RunSummary { remote_share: None, imbalance: None, accesses: none, ..run("c.numatrace") };
        let found = compare(vec![run("a")], vec![empty], None).unwrap();
        assert!(
            found.notes.iter().any(|note| note.ends_with("c.numatrace holds no memory accesses.")),
            "{:?}",
            found.notes
        );
    }
}
