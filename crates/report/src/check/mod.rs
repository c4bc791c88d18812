//! Judgements of limits: as a table for terminals, and as SARIF for code review tools.

mod sarif;
mod text;

use numapilot_insight::check::{Judgement, Limit, Verdict};
use numapilot_insight::compare::{ObjectSummary, TimeSource};
use numapilot_text::units;

use crate::estimates;

pub use sarif::sarif;
pub use text::render;

/// The figure that a limit is about, in words.
fn subject(judged: &Judgement) -> String {
    match &judged.limit {
        Limit::Remote(_) => "remote accesses".to_owned(),
        Limit::Imbalance(_) => "controller imbalance".to_owned(),
        Limit::RemoteOf(name, _) => format!("remote accesses to {name}"),
        Limit::Slowdown(_) if judged.time_source == Some(TimeSource::Modelled) => {
            "slower than the baseline (predicted)".to_owned()
        }
        Limit::Slowdown(_) => "slower than the baseline".to_owned(),
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Kept => "ok",
        Verdict::InDoubt => "in doubt",
        Verdict::Exceeded => "EXCEEDED",
        Verdict::Unknown => "unknown",
    }
}

fn found(judged: &Judgement) -> String {
    judged.found.as_ref().map_or_else(|| "-".to_owned(), estimates::share)
}

/// `block (streamcluster.cpp:134, 71 % of all accesses, 75 % of them remote)`.
fn blame(object: &ObjectSummary) -> String {
    let place = if object.place.is_empty() { &object.function } else { &object.place };
    let place = if place.is_empty() { String::new() } else { format!("{place}, ") };
    let homes = if object.knows_homes() {
        format!(
            "{} of them remote, {} on one node",
            units::part_percent(object.remote),
            units::part_percent(object.busiest_node)
        )
    } else {
        "of most of which the home node is unknown".to_owned()
    };
    format!("{} ({place}{} of all accesses, {homes})", object.name, units::part_percent(object.share))
}

#[cfg(test)]
mod tests {
    use numapilot_insight::Estimate;

    use super::*;
    use numapilot_text::style::Look;

    fn judged(verdict: Verdict) -> Judgement {
        Judgement {
            limit: Limit::Slowdown(0.3),
            found: Some(Estimate { value: 0.31, low: 0.29, high: 0.33 }),
            verdict,
            object: None,
            remark: String::new(),
            time_source: Some(TimeSource::Measured),
        }
    }

    #[test]
    fn what_is_in_doubt_is_not_within_the_limits() {
        let first = |verdicts: &[Verdict], is_strict: bool| {
            let all: Vec<Judgement> = verdicts.iter().map(|verdict| judged(*verdict)).collect();
            let is_failure = |verdict| verdict == Verdict::Exceeded || is_strict && verdict == Verdict::InDoubt;
            render(&all, is_failure, Look::default()).lines().next().unwrap_or_default().to_owned()
        };
        assert_eq!(first(&[Verdict::Kept], false), "within all limits");
        let doubted = [Verdict::Kept, Verdict::InDoubt];
        assert_eq!(first(&doubted, false), "no limit is exceeded for certain; see those in doubt");
        assert_eq!(first(&doubted, true), "1 of the limits exceeded or in doubt");
        assert_eq!(first(&[Verdict::Exceeded], true), "one limit is exceeded");
    }

    #[test]
    fn run_times_of_the_clock_are_not_predicted() {
        let measured = judged(Verdict::Kept);
        assert_eq!(subject(&measured), "slower than the baseline");
        let modelled = Judgement { time_source: Some(TimeSource::Modelled), ..measured };
        assert_eq!(subject(&modelled), "slower than the baseline (predicted)");
    }
}
