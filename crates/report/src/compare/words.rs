//! The words and numbers that text, picture and page share.

use numapilot_insight::Estimate;
use numapilot_insight::compare::{
    Change, ChangeVerdict, Comparison, Judged, MatchKind, Metric, ObjectChange, ObjectSummary, Prediction, Remedy,
    TimeSource,
};
use numapilot_text::style::{clean, columns};
use numapilot_text::units::{self, signed_percent};

use crate::estimates;
use crate::findings::{gain_span, saved, work_span};

/// The name of a metric: `run time`, `remote accesses` and so on.
pub fn metric(metric: Metric, comparison: &Comparison) -> &'static str {
    match (metric, comparison.time_source) {
        (Metric::RunTime, Some(TimeSource::Modelled)) => "run time (predicted)",
        (Metric::RunTime, _) => "run time",
        (Metric::ProcessorTime, Some(TimeSource::Modelled)) => "processor time (predicted)",
        (Metric::ProcessorTime, _) => "processor time",
        (Metric::RemoteShare, _) => "remote accesses",
        (Metric::Imbalance, _) => "controller imbalance",
        (Metric::Accesses, _) => "memory accesses",
        (Metric::Latency, _) => "latency of an access",
    }
}

/// A value of a metric, with its interval where it has one.
pub fn value(metric: Metric, estimate: Estimate) -> String {
    let plain = |value: f64| match metric {
        Metric::RunTime | Metric::ProcessorTime => units::time_ns(value.max(0.0) as u64),
        Metric::RemoteShare | Metric::Imbalance => units::percent(value),
        Metric::Accesses => units::count(value),
        Metric::Latency => format!("{value:.0} cycles"),
    };
    match metric {
        Metric::RemoteShare | Metric::Imbalance => estimates::share(&estimate),
        _ if estimate.is_exact() || estimate.value <= 0.0 => plain(estimate.value),
        _ => {
            // An interval that ends at 0 was cut off there: its upper half says how wide it is.
            let half = if estimate.low <= 0.0 { estimate.high - estimate.value } else { estimate.margin() };
            format!("{} ± {}", plain(estimate.value), units::percent((half / estimate.value).max(0.001)))
        }
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
    format!("{value:+.1} ± {:.1} points", estimates::margin_percent(difference))
}

/// What a table says of an object's remote accesses: their share before and after, and the difference; `-` where homes are unknown.
pub fn remote(change: &ObjectChange) -> [String; 3] {
    change.remote.as_ref().map_or(["-", "-", "-"].map(str::to_owned), |remote| {
        [units::part_percent(remote.before.value), units::part_percent(remote.after.value), points(&remote.difference)]
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
    format!("{} ± {}", bare.trim_end_matches(" %"), estimates::margin(&estimate))
}

/// The verdict in one or two words.
pub fn verdict(verdict: ChangeVerdict) -> &'static str {
    match verdict {
        ChangeVerdict::Better => "better",
        ChangeVerdict::Worse => "worse",
        ChangeVerdict::NoEvidence => "no evidence",
        ChangeVerdict::InDoubt => "in doubt",
    }
}

/// The result of the comparison in one sentence.
pub fn headline(comparison: &Comparison) -> String {
    let shown = |metric: Metric| comparison.metrics.iter().find(|change| change.metric == metric);
    let predicted = if comparison.time_source == Some(TimeSource::Modelled) { ", predicted" } else { "" };
    let is_alone = comparison.before.len() <= 1 && comparison.after.len() <= 1;
    let sure = |gain: Estimate| {
        let open = if is_alone && gain.is_exact() { " (no interval: one run each)" } else { "" };
        format!("{}{open}{predicted}", signed(gain))
    };
    let time = match (comparison.gain, shown(Metric::RunTime).map(|time| time.change.verdict)) {
        (Some(gain), Some(ChangeVerdict::Better)) => format!("faster by {}", sure(gain)),
        (Some(gain), Some(ChangeVerdict::Worse)) => format!("slower: {}", sure(gain)),
        (Some(gain), Some(ChangeVerdict::InDoubt)) => {
            format!("in doubt, because each side has one recording: {}{predicted}", signed(gain))
        }
        (Some(gain), _) => format!("no evidence of a change in run time ({}{predicted})", signed(gain)),
        _ => "run times not comparable".to_owned(),
    };
    let both = |metric: Metric, name: &str, percent: fn(f64) -> String| {
        shown(metric).map_or_else(String::new, |line| {
            let (before, after) = (line.change.before.value, line.change.after.value);
            format!("; {name} {} > {}", percent(before), percent(after))
        })
    };
    let remote = both(Metric::RemoteShare, "remote", units::part_percent);
    format!("{time}{remote}{}", both(Metric::Imbalance, "imbalance", units::percent))
}

/// A sentence that compares the prediction with the result; `None` without a prediction.
pub fn prediction(comparison: &Comparison) -> Option<String> {
    let judged = comparison.prediction?;
    let Prediction { of, gain: value, interval } = judged.predicted;
    let is_of_work = of == Metric::ProcessorTime;
    let (low, high) = interval.unwrap_or((value, value));
    let estimate = Estimate { value, low, high };
    let predicted = match interval {
        _ if is_of_work => work_span(&estimate),
        Some(_) => gain_span(&estimate),
        None => signed_percent(value),
    };
    let Some(found) = judged.found else {
        let times = if is_of_work { "processor times" } else { "run times" };
        return Some(format!("predicted {predicted}; {times} cannot be compared"));
    };
    let verdict = match judged.agrees {
        None if judged.in_doubt => ": in doubt, one recording of each side cannot tell whether they agree".to_owned(),
        None => " (neither has an interval, so whether they agree is unknown)".to_owned(),
        Some(true) => format!(": {}", agreement(comparison, &judged, found)),
        Some(false) if found.value < value => ": they do not agree, the gain is smaller than predicted".to_owned(),
        Some(false) => ": they do not agree, the gain is larger than predicted".to_owned(),
    };
    let shown = if is_of_work { work_found(&found) } else { signed(found) };
    Some(format!("predicted {predicted}, found {shown}{verdict}"))
}

/// The gain of processor time that was found, in the words of a prediction of it: `13 % less`, `13 ± 2.0 % less`.
fn work_found(work: &Estimate) -> String {
    let (share, word) = saved(work);
    format!("{} {word}", signed(share).trim_start_matches('+'))
}

/// What it says that the intervals meet: nothing of the prediction where the recordings alone show no change.
fn agreement(comparison: &Comparison, judged: &Judged, found: Estimate) -> String {
    let (low, high) = judged.predicted.interval.unwrap_or((judged.predicted.gain, judged.predicted.gain));
    let time = comparison.metrics.iter().find(|line| line.metric == judged.predicted.of);
    let is_evident =
        time.is_none_or(|line| matches!(line.change.verdict, ChangeVerdict::Better | ChangeVerdict::Worse));
    if !is_evident {
        return match low <= 0.0 && high >= 0.0 {
            true => "they agree, and neither shows a change",
            false => "they do not contradict each other, but these recordings alone are no evidence of a change",
        }
        .to_owned();
    }
    match judged.untold.filter(|_| low > found.high || high < found.low) {
        Some(untold) => {
            format!("they agree within the {:.1} points by which the gains of equal runs may differ", untold * 100.0)
        }
        None => "they agree".to_owned(),
    }
}

/// The remedy's command as lines of at most `width` columns, where its words allow that, for a shell.
pub fn command(remedy: &Remedy, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in remedy.typed().iter().map(|word| clean(word)) {
        match lines.last_mut() {
            // Room for what continues the line.
            Some(line) if columns(line.as_str()) + columns(&word) + 3 <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            Some(line) => {
                line.push_str(" \\");
                lines.push(format!("    {word}"));
            }
            None => lines.push(word),
        }
    }
    lines
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

#[cfg(test)]
mod tests {
    use numapilot_insight::compare::{MetricChange, Repeatability, Repeated, repeated};

    use super::*;

    fn times(runs: &[f64]) -> Repeated {
        repeated(&runs.iter().map(|ns| Estimate::exact(*ns)).collect::<Vec<_>>())
    }

    /// What is said of a prediction beside run times on both sides.
    fn said(before: &[f64], after: &[f64], predicted: Prediction, agrees: bool, untold: Option<f64>) -> String {
        let change = Change::of(times(before), times(after), Repeatability::OF_RUN_TIMES);
        let gain = Change::of(times(after), times(before), Repeatability::OF_RUN_TIMES).relative;
        let comparison = Comparison {
            before: Vec::new(),
            after: Vec::new(),
            time_source: Some(TimeSource::Modelled),
            metrics: vec![MetricChange { metric: predicted.of, change }],
            gain: gain.filter(|_| predicted.of == Metric::RunTime),
            prediction: Some(Judged { predicted, found: gain, agrees: Some(agrees), untold, in_doubt: false }),
            moved_work: None,
            remedy: None,
            objects: Vec::new(),
            notes: Vec::new(),
        };
        prediction(&comparison).expect("a prediction")
    }

    /// A gain of one recording each stood there as if it were known to the last digit.
    #[test]
    fn a_gain_of_one_run_each_has_no_interval_and_says_so() {
        let of = |before: &[f64], after: &[f64]| {
            let change = |from: &[f64], to: &[f64]| Change::of(times(from), times(to), Repeatability::OF_RUN_TIMES);
            headline(&Comparison {
                before: Vec::new(),
                after: Vec::new(),
                time_source: Some(TimeSource::Modelled),
                metrics: vec![MetricChange { metric: Metric::RunTime, change: change(before, after) }],
                gain: change(after, before).relative,
                prediction: None,
                moved_work: None,
                remedy: None,
                objects: Vec::new(),
                notes: Vec::new(),
            })
        };
        assert_eq!(of(&[1.5e9], &[1e9]), "faster by +50 % (no interval: one run each), predicted");
        assert_eq!(of(&[1e9], &[2e9]), "slower: -50 % (no interval: one run each), predicted");
        let several = of(&[1.5e9, 1.51e9, 1.49e9], &[1e9, 1.01e9, 0.99e9]);
        assert!(several.starts_with("faster by +50 ± ") && !several.contains("no interval"), "{several}");
    }

    #[test]
    fn what_one_recording_each_cannot_tell_is_said_first() {
        let open = Repeatability::OF_RUN_TIMES.with_open(1.39e9);
        let gain = Change::of(times(&[1.03e9]), times(&[1.41e9]), open).relative;
        let predicted = of(0.4, 0.3, 0.5);
        let judged = Judged { predicted, found: gain, agrees: None, untold: Some(1.4), in_doubt: true };
        let found = Comparison {
            before: Vec::new(),
            after: Vec::new(),
            time_source: Some(TimeSource::Modelled),
            metrics: vec![MetricChange {
                metric: Metric::RunTime,
                change: Change::of(times(&[1.41e9]), times(&[1.03e9]), open),
            }],
            gain,
            prediction: Some(judged),
            moved_work: None,
            remedy: None,
            objects: Vec::new(),
            notes: Vec::new(),
        };
        assert_eq!(headline(&found), "in doubt, because each side has one recording: +37 %, predicted");
        assert_eq!(verdict(found.metrics[0].change.verdict), "in doubt");
        let said = prediction(&found).expect("a prediction");
        assert!(
            said.ends_with("found +37 %: in doubt, one recording of each side cannot tell whether they agree"),
            "{said}"
        );
    }

    #[test]
    fn times_that_differ_by_far_are_as_unsure_as_they_differ() {
        let two = times(&[1e8, 2e8]).estimate;
        assert!(
            two.low == 0.0 && value(Metric::RunTime, two).ends_with(" ± 423.5 %"),
            "{}",
            value(Metric::RunTime, two)
        );
        let near = times(&[1e8, 1.01e8, 0.99e8]).estimate;
        assert!(value(Metric::RunTime, near).ends_with(" ± 2.5 %"), "{}", value(Metric::RunTime, near));
    }

    #[test]
    fn a_command_is_cut_where_a_shell_goes_on() {
        let words = ["numapilot", "compare", "b", "a", "--before", "b-2", "b 3", "--after", "a-2"];
        let remedy = Remedy { each: 2, how: String::new(), command: words.map(str::to_owned).into() };
        assert_eq!(command(&remedy, 200), ["numapilot compare b a --before b-2 'b 3' --after a-2"]);
        assert_eq!(command(&remedy, 30), ["numapilot compare b a \\", "    --before b-2 'b 3' \\", "    --after a-2"]);
        let wide = Remedy {
            command: ["numapilot", "compare", "日本語", "日本語-2"].map(str::to_owned).into(),
            ..remedy.clone()
        };
        assert_eq!(command(&wide, 34), ["numapilot compare '日本語' \\", "    '日本語-2'"], "of two columns each");
        let hostile = Remedy { command: vec!["a\u{1b}b".to_owned()], ..remedy };
        assert_eq!(command(&hostile, 34), ["'a\\u{1b}b'"]);
    }

    fn of(gain: f64, low: f64, high: f64) -> Prediction {
        Prediction { of: Metric::RunTime, gain, interval: Some((low, high)) }
    }

    #[test]
    fn a_prediction_that_meets_nothing_found_is_not_confirmed() {
        let (fast, noisy) = ([0.8e9, 0.801e9, 0.799e9], [0.9e9, 1.1e9, 1.0e9]);
        let slow = [1e9, 1.001e9, 0.999e9];
        let told = said(&slow, &fast, of(0.24, 0.2, 0.3), true, None);
        assert!(
            told.starts_with("predicted +24 % (20 to 30), found +25 ±") && told.ends_with(": they agree"),
            "{told}"
        );
        let open = said(&slow, &noisy, of(0.05, 0.02, 0.09), true, None);
        assert!(open.ends_with("but these recordings alone are no evidence of a change"), "{open}");
        let neither = said(&slow, &noisy, of(0.01, -0.02, 0.05), true, None);
        assert!(neither.ends_with(": they agree, and neither shows a change"), "{neither}");
    }

    #[test]
    fn a_prediction_of_processor_time_says_so_and_what_was_found_of_it() {
        let work = |gain, low, high| Prediction { of: Metric::ProcessorTime, ..of(gain, low, high) };
        let (before, after) = ([1e9, 1.001e9, 0.999e9], [0.8e9, 0.801e9, 0.799e9]);
        let told = said(&before, &after, work(0.25, 0.2, 0.3), true, None);
        let expected =
            "predicted 20 % less processor time for the same work (17 to 23), found 20 ± 0.3 % less: they agree";
        assert_eq!(told, expected);
        let more = said(&[1e9], &[1.25e9], work(0.25, 0.2, 0.3), false, None);
        assert!(more.ends_with(", found 25 % more: they do not agree, the gain is smaller than predicted"), "{more}");
    }

    #[test]
    fn intervals_that_do_not_meet_are_told_why_they_agree_or_which_is_more() {
        let one = said(&[1e9], &[0.8e9], of(0.2, 0.18, 0.22), true, Some(0.06375));
        assert!(
            one.ends_with(": they agree within the 6.4 points by which the gains of equal runs may differ"),
            "{one}"
        );
        let more = said(&[1e9], &[0.8e9], of(0.1, 0.08, 0.12), false, Some(0.06375));
        assert!(more.ends_with(": they do not agree, the gain is larger than predicted"), "{more}");
        let less = said(&[1e9], &[0.8e9], of(0.5, 0.4, 0.6), false, Some(0.06375));
        assert!(less.ends_with(": they do not agree, the gain is smaller than predicted"), "{less}");
    }
}
