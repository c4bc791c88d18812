//! The words and numbers that text, picture and page share.

use numapilot_insight::Estimate;
use numapilot_insight::compare::{
    Change, ChangeVerdict, Comparison, MatchKind, Metric, ObjectChange, ObjectSummary, TimeSource,
};

use crate::findings::gain_span;
use crate::simulation::signed_percent;
use crate::units;

/// The name of a metric: `run time`, `remote accesses` and so on.
pub fn metric(metric: Metric, comparison: &Comparison) -> &'static str {
    match (metric, comparison.time_source) {
        (Metric::RunTime, Some(TimeSource::Modelled)) => "run time (predicted)",
        (Metric::RunTime, _) => "run time",
        (Metric::RemoteShare, _) => "remote accesses",
        (Metric::Imbalance, _) => "controller imbalance",
        (Metric::Accesses, _) => "memory accesses",
        (Metric::Latency, _) => "latency of an access",
    }
}

/// A value of a metric, with its interval where it has one.
pub fn value(metric: Metric, estimate: Estimate) -> String {
    let plain = |value: f64| match metric {
        Metric::RunTime => units::time_ns(value.max(0.0) as u64),
        Metric::RemoteShare | Metric::Imbalance => units::percent(value),
        Metric::Accesses => units::count(value),
        Metric::Latency => format!("{value:.0} cycles"),
    };
    match metric {
        Metric::RemoteShare | Metric::Imbalance => units::share(&estimate),
        _ if estimate.is_exact() || estimate.value <= 0.0 => plain(estimate.value),
        _ => format!("{} ± {:.1} %", plain(estimate.value), estimate.margin() / estimate.value * 100.0),
    }
}

/// `-3.1 ± 0.4 points` for shares, `-45 ± 2 %` for the rest.
pub fn difference(metric: Metric, change: &Change) -> String {
    match metric {
        Metric::RemoteShare | Metric::Imbalance => points(&change.difference),
        _ => change.relative.map_or_else(|| "-".to_owned(), signed),
    }
}

/// A difference of shares in percentage points.
pub fn points(difference: &Estimate) -> String {
    let value = difference.value * 100.0;
    if difference.is_exact() {
        return format!("{value:+.1} points");
    }
    format!("{value:+.1} ± {:.1} points", units::margin_percent(difference))
}

/// What a table says of an object's remote accesses: their share before and after, and the difference; `-` where homes are unknown.
pub fn remote(change: &ObjectChange) -> [String; 3] {
    change.remote.as_ref().map_or(["-", "-", "-"].map(str::to_owned), |remote| {
        [units::percent(remote.before.value), units::percent(remote.after.value), points(&remote.difference)]
    })
}

/// The verdict on an object in one or two words.
pub fn verdict_on(change: &ObjectChange) -> &'static str {
    change.remote.as_ref().map_or("home unknown", |remote| verdict(remote.verdict))
}

/// A signed share with its interval, in percent.
pub fn signed(estimate: Estimate) -> String {
    if estimate.is_exact() {
        return signed_percent(estimate.value);
    }
    let bare = signed_percent(estimate.value);
    format!("{} ± {:.1} %", bare.trim_end_matches(" %"), units::margin_percent(&estimate))
}

/// The verdict in one or two words.
pub fn verdict(verdict: ChangeVerdict) -> &'static str {
    match verdict {
        ChangeVerdict::Better => "better",
        ChangeVerdict::Worse => "worse",
        ChangeVerdict::NoEvidence => "no evidence",
    }
}

/// The result of the comparison in one sentence.
pub fn headline(comparison: &Comparison) -> String {
    let shown = |metric: Metric| comparison.metrics.iter().find(|change| change.metric == metric);
    let predicted = if comparison.time_source == Some(TimeSource::Modelled) { ", predicted" } else { "" };
    let time = match (comparison.gain, shown(Metric::RunTime).map(|time| time.change.verdict)) {
        (Some(gain), Some(ChangeVerdict::Better)) => format!("faster by {}{predicted}", signed(gain)),
        (Some(gain), Some(ChangeVerdict::Worse)) => format!("slower: {}{predicted}", signed(gain)),
        (Some(gain), _) => format!("no evidence of a change in run time ({}{predicted})", signed(gain)),
        _ => "run times not comparable".to_owned(),
    };
    let both = |metric: Metric, name: &str| {
        shown(metric).map_or_else(String::new, |line| {
            let (before, after) = (line.change.before.value, line.change.after.value);
            format!("; {name} {} > {}", units::percent(before), units::percent(after))
        })
    };
    format!("{time}{}{}", both(Metric::RemoteShare, "remote"), both(Metric::Imbalance, "imbalance"))
}

/// A sentence that compares the prediction with the result; `None` without a prediction.
pub fn prediction(comparison: &Comparison) -> Option<String> {
    let judged = comparison.prediction?;
    let value = judged.predicted.gain;
    let span = |(low, high)| gain_span(&Estimate { value, low, high });
    let predicted = judged.predicted.interval.map_or_else(|| signed_percent(value), span);
    Some(match (comparison.gain, judged.agrees) {
        (None, _) => format!("predicted {predicted}; run times cannot be compared"),
        (Some(gain), Some(true)) => format!("predicted {predicted}, found {}: they agree", signed(gain)),
        (Some(gain), Some(false)) => format!("predicted {predicted}, found {}: they do not agree", signed(gain)),
        (Some(gain), None) => format!("predicted {predicted}, found {} (neither with an interval)", signed(gain)),
    })
}

/// Name and place of an object, as it is or was.
pub fn object(change: &ObjectChange) -> (String, String) {
    let Some(known) = change.after.as_ref().or(change.before.as_ref()) else { return Default::default() };
    let place = if known.place.is_empty() { known.function.clone() } else { known.place.clone() };
    (known.name.clone(), place)
}

/// How the two sides of an object were matched; empty for an exact match.
pub fn matched(kind: MatchKind) -> &'static str {
    match kind {
        MatchKind::Same => "",
        MatchKind::Moved => "line moved",
        MatchKind::Renamed => "by name",
        MatchKind::Gone => "gone",
        MatchKind::New => "new",
    }
}

/// `100 > 26 %`: the share of an object's accesses that its busiest node serves, on both sides.
pub fn busiest(change: &ObjectChange) -> String {
    let share = |object: &Option<ObjectSummary>| {
        let known = object.as_ref().filter(|object| object.knows_homes());
        // `>99 > 26` would not read as before and after.
        let whole = |share: f64| if share >= 0.995 { "100".to_owned() } else { units::bare_percent(share) };
        known.map_or_else(|| "-".to_owned(), |object| whole(object.busiest_node))
    };
    format!("{} > {} %", share(&change.before), share(&change.after))
}
