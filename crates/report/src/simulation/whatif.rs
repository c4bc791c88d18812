//! A prediction as text and JSON: the program as recorded and with the changes, side by side.

use std::fmt::Write;

use numapilot_insight::whatif::{Answer, Outlook, Traffic};
use numapilot_insight::{Calibration, Estimate, LatencyBound, MeasuredLatency, Uncertainty, UncertaintySource};
use numapilot_simulator::{Report, program::Origin, whatif as elsewhere};
use numapilot_text::style::Look;
use numapilot_text::style::{clean, columns, wrap};
use numapilot_text::table::{Align, Table};
use numapilot_text::units;
use serde_json::{Value, json};

use super::population;
use crate::findings::{gain_span, unsettled_words, work_span};

/// The note on the interval of a prediction on the recording's own machine.
const PRICED: &str = "The 95 % interval covers the sampling of accesses, what is not known of the machine and of the program's cores, and the traffic model's \
                      own error in queues. It does not cover how another run would differ (docs/patterns.md, \"Interval\").";
/// The note on the interval of a simulation on another machine.
const SIMULATED: &str = "Simulated on another machine than the recording's. The interval covers the sampling of accesses (jackknife over cache lines; too \
                         narrow where a handful of lines has most of the accesses that change). It does not cover the model's own \
                         error (docs/traffic-model.md), how another run would differ, or the cost of copies and moves.";

/// Share of an interval's variance below which a source is left out of the text.
const SOURCE_MIN: f64 = 0.05;
/// What measured latencies are.
const MEASURED: &str = "Measured latencies also hold address translation and waits within the core, and are of the loads that the processor samples, so they \
                        set no figure of the machine (docs/patterns.md, \"Measured latencies\").";
/// Largest number of pairs of nodes whose measured latencies are shown.
const PAIRS_MAX: usize = 6;
/// Largest number of sources that are shown.
const SOURCES_MAX: usize = 4;

/// A prediction, ready to be rendered.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// Name of the program.
    pub program: String,
    /// Name of the machine.
    pub machine: String,
    /// The changes in words, one line each.
    pub set: Vec<String>,
    /// The program as it was recorded.
    pub now: Outlook,
    /// The program with the changes.
    pub then: Outlook,
    /// How much faster, as a share of the new run time: 1 is twice as fast.
    pub gain: Estimate,
    /// Processor time as it was over that with the change, less one, where sleeps decide how long the run is.
    pub work_gain: Option<Estimate>,
    /// Where the interval of the latter comes from, else that of the former, if that is known.
    pub uncertainty: Option<Uncertainty>,
    /// Latencies that the processor measured in the recording, beside the model's; empty where it measured none.
    pub measured: Vec<MeasuredLatency>,
    /// Additional memory that the changes need, in bytes.
    pub more_bytes: u64,
    /// Notes for the reader in whole sentences, first what the interval covers.
    pub notes: Vec<String>,
}

fn set<'s>(all: impl Iterator<Item = (&'s str, Option<u64>)>) -> Vec<String> {
    let words = |(words, bytes): (&str, Option<u64>)| match bytes {
        Some(bytes) => format!("{words}, {} of memory", units::bytes(bytes)),
        None => words.to_owned(),
    };
    all.map(words).collect()
}

impl Prediction {
    /// From the answer of the function that also prices findings.
    #[must_use]
    pub fn priced(program: &str, machine: &str, answer: Answer) -> Prediction {
        Prediction {
            program: program.to_owned(),
            machine: machine.to_owned(),
            set: set(answer.set.iter().map(|(words, bytes)| (words.as_str(), *bytes))),
            now: answer.now,
            then: answer.then,
            gain: answer.gain,
            work_gain: answer.work_gain,
            uncertainty: Some(answer.uncertainty),
            measured: answer.measured,
            more_bytes: answer.more_bytes,
            notes: std::iter::once(PRICED.to_owned()).chain(answer.cannot_say).collect(),
        }
    }

    /// From a simulation on another machine, with the interval of the jackknife.
    #[must_use]
    pub fn simulated(overrides: &[elsewhere::PageOverride], answer: &elsewhere::Answer) -> Prediction {
        let assumed: &[String] =
            if let Origin::Recorded { assumptions, .. } = &answer.then.origin { assumptions } else { &[] };
        Prediction {
            program: answer.now.program.clone(),
            machine: answer.now.machine.clone(),
            set: set(answer.set(overrides)),
            now: outlook(&answer.now),
            then: outlook(&answer.then),
            gain: Estimate::jackknife(answer.gain(), &answer.gains_without),
            work_gain: None,
            uncertainty: None,
            measured: Vec::new(),
            more_bytes: answer.more_bytes,
            notes: simulated_notes(&answer.now.notes, &answer.then.notes, assumed),
        }
    }

    /// The prediction as JSON, for programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut value = json!({
            "predicted": true, "program": self.program, "machine": self.machine, "set": self.set,
            "gain": self.gain.value, "gain_low": self.gain.low, "gain_high": self.gain.high, "uncertainty": self.uncertainty,
            "measured_latency": self.measured, "more_bytes": self.more_bytes,
            "now": self.now, "then": self.then, "notes": self.notes,
        });
        if let Some(work_gain) = &self.work_gain {
            value["work_gain"] = json!(work_gain);
        }
        value
    }
}

/// The notes of both runs, each once, for a gain is as uncertain as either of its times; and what was assumed of the recording.
fn simulated_notes(now: &[String], then: &[String], assumed: &[String]) -> Vec<String> {
    let of_now = now.iter().filter(|note| !then.contains(note)).map(|note| format!("Without the change: {note}"));
    let all = then.iter().cloned().chain(of_now).chain(assumed.iter().cloned());
    std::iter::once(SIMULATED.to_owned()).chain(all).collect()
}

fn outlook(run: &Report) -> Outlook {
    let total = &run.total;
    let total = Traffic {
        accesses: total.accesses.clone(),
        controllers: total.controllers.clone(),
        links: total.links.clone(),
        metrics: total.metrics.clone(),
    };
    Outlook { run_time_ns: run.run_time_ns, processor_time_ns: None, total }
}

/// Whether it would be faster, as far as the interval tells.
fn verdict(gain: &Estimate) -> &'static str {
    match (gain.low > 0.0, gain.high < 0.0) {
        (true, _) => "faster",
        (_, true) => "slower",
        _ => "no evidence of a change",
    }
}

/// Renders it for a terminal.
#[must_use]
pub fn prediction(found: &Prediction, look: Look) -> String {
    let (now, then) = (&found.now, &found.then);
    let mut out = String::new();
    let verdict = verdict(&found.gain);
    let gain = gain_span(&found.gain);
    let open =
        found.uncertainty.as_ref().and_then(unsettled_words).map_or_else(String::new, |open| format!("; {open}"));
    let effect = match &found.work_gain {
        Some(work) => format!("{}, predicted{open}; run time {gain} ({verdict})", work_span(work)),
        None => format!("{gain} ({verdict}), predicted{open}"),
    };
    let title = format!("{} on {}: {effect}", found.program, found.machine);
    let _ = writeln!(out, "{}", look.strong(&clean(&title)));
    for line in &found.set {
        let _ = writeln!(out, "  {}", clean(line));
    }
    out.push('\n');
    let mut table =
        Table::new().column("PREDICTED", Align::Left).column("NOW", Align::Right).column("THEN", Align::Right);
    let share = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), units::percent);
    let part = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), units::part_percent);
    let mut row = |name: &str, of: &dyn Fn(&Outlook) -> String| table.row([name.to_owned(), of(now), of(then)]);
    row("run time", &|run| units::time_ns(run.run_time_ns as u64));
    if found.work_gain.is_some() {
        let worked = |run: &Outlook| run.processor_time_ns.map(|ns| units::time_ns(ns as u64));
        row("processor time", &|run| worked(run).unwrap_or_else(|| "-".to_owned()));
    }
    row("local access ratio", &|run| part(run.total.metrics.local_access_ratio));
    row("latency of a memory access", &|run| {
        run.total.metrics.memory_latency_ns.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0} ns"))
    });
    row("controller imbalance (population)", &|run| share(population(run.total.metrics.controller_imbalance)));
    row("busiest controller", &|run| share(run.total.controllers.iter().flatten().copied().reduce(f64::max)));
    row("interconnect usage", &|run| share(run.total.metrics.interconnect_usage));
    row("busiest link", &|run| share(run.total.links.iter().copied().reduce(f64::max)));
    out.push_str(&table.render(look, 2));
    if found.more_bytes > 0 {
        let _ = writeln!(out, "  needs {} more memory", units::bytes(found.more_bytes));
    }
    if let Some(uncertainty) = &found.uncertainty {
        out.push_str(&sources(uncertainty, look));
        out.push_str(&uncertainty.calibration.as_ref().map_or_else(String::new, |told| calibrated(told, look)));
    }
    out.push_str(&measured(&found.measured, look));
    out.push('\n');
    for line in found.notes.iter().flat_map(|note| wrap(&clean(note), look.width.saturating_sub(2))) {
        let _ = writeln!(out, "  {}", look.faint(&line));
    }
    out
}

/// A table of the sources of the interval, and what would narrow each.
fn sources(uncertainty: &Uncertainty, look: Look) -> String {
    let shown: Vec<&UncertaintySource> =
        uncertainty.sources.iter().filter(|source| source.share >= SOURCE_MIN).take(SOURCES_MAX).collect();
    if shown.is_empty() {
        return String::new();
    }
    let mut table = Table::new()
        .column("THE INTERVAL COMES FROM", Align::Left)
        .column("SHARE", Align::Right)
        .column("NARROWED BY", Align::Left);
    let in_words = |source: &UncertaintySource| {
        let range = source.range.map_or_else(String::new, |(_, low, high)| format!(" ({})", range(low, high)));
        format!("{}{range}", source.words)
    };
    for source in &shown {
        table.row([in_words(source), units::part_percent(source.share), source.narrowed_by.clone()]);
    }
    let plain = table.render(Look { colour: false, ..look }, 2);
    if plain.lines().all(|line| columns(line) <= look.width) {
        return format!("\n{}", table.render(look, 2));
    }
    // Sentences: shortened in the middle they would say nothing.
    let mut out = format!("\n  {}\n", look.heading("THE INTERVAL COMES FROM"));
    for source in shown {
        let share = format!("  {:>7}  ", units::part_percent(source.share));
        let words = clean(&format!("{}; narrowed by: {}", in_words(source), source.narrowed_by));
        for (index, line) in wrap(&words, look.width.saturating_sub(share.len())).iter().enumerate() {
            let lead = if index == 0 { share.clone() } else { " ".repeat(share.len()) };
            let _ = writeln!(out, "{lead}{line}");
        }
    }
    out
}

/// What measured latencies did to the interval, in whole sentences.
fn calibrated(told: &Calibration, look: Look) -> String {
    let least = |bound: &LatencyBound| {
        let samples = units::counted(bound.samples, "sample", "samples");
        format!("{:.0} ns from node {} to memory of node {} ({samples})", bound.at_least_ns, bound.from, bound.home)
    };
    // Those that leave out most: the others change nothing.
    let mut telling: Vec<&LatencyBound> = told.bounds.iter().filter(|bound| bound.contradicted > 0).collect();
    telling.sort_by_key(|bound| (std::cmp::Reverse(bound.contradicted), bound.from, bound.home));
    let words = match &told.not_used {
        Some(why) => format!("Not calibrated by measured latencies. {why}"),
        None if telling.is_empty() => {
            "Calibrated by measured latencies: all variants of the machine and the program agree with them.".to_owned()
        }
        None => format!(
            "Calibrated by measured latencies: of {} variants of the machine and the program, the interval is of the {} in which loads take at least as \
             long as was measured: {}.",
            told.members,
            told.left,
            telling.into_iter().take(PAIRS_MAX).map(least).collect::<Vec<_>>().join("; "),
        ),
    };
    let mut out = "\n".to_owned();
    for line in wrap(&words, look.width.saturating_sub(2)) {
        let _ = writeln!(out, "  {line}");
    }
    out
}

/// A table of measured latencies beside the model's for the recording, those with most samples first.
fn measured(latencies: &[MeasuredLatency], look: Look) -> String {
    if latencies.is_empty() {
        return String::new();
    }
    let mut most: Vec<&MeasuredLatency> = latencies.iter().collect();
    most.sort_by_key(|latency| (std::cmp::Reverse(latency.samples), latency.from, latency.home));
    let mut table = Table::new()
        .column("LATENCY OF LOADS, AS RECORDED", Align::Left)
        .column("MODEL", Align::Right)
        .column("MEASURED", Align::Right)
        .column("SAMPLES", Align::Right);
    for latency in most.into_iter().take(PAIRS_MAX) {
        let measured = &latency.measured_ns;
        table.row([
            format!("from node {} to memory of node {}", latency.from, latency.home),
            format!("{:.0} ns", latency.predicted_ns),
            format!("{:.0} ± {:.0} ns", measured.value, measured.margin()),
            latency.samples.to_string(),
        ]);
    }
    let mut out = format!("\n{}", table.render(look, 2));
    for line in wrap(MEASURED, look.width.saturating_sub(2)) {
        let _ = writeln!(out, "  {}", look.faint(&line));
    }
    out
}

/// `4 to 17`, `6.4 G to 10.7 G`.
fn range(low: f64, high: f64) -> String {
    let plain = |value: f64| match value.abs() {
        size if size >= 1e6 => format!("{:.1} G", value / 1e9),
        size if size >= 10.0 => format!("{value:.0}"),
        _ => format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    };
    format!("{} to {}", plain(low), plain(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_latencies_are_shown_beside_the_models() {
        let pair = |from: u16, samples: u64| MeasuredLatency {
            from: numapilot_machine::NodeId(from),
            home: numapilot_machine::NodeId(1),
            samples,
            predicted_ns: 180.2,
            measured_ns: Estimate { value: 210.4, low: 200.4, high: 220.4 },
        };
        let text = measured(&[pair(0, 100), pair(2, 4000)], Look::default());
        let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words:?} is not in {text}"));
        assert!(at("from node 2 to memory of node 1") < at("from node 0 to memory of node 1"), "{text}");
        assert!(text.contains("180 ns") && text.contains("210 ± 10 ns"), "{text}");
        assert!(
            text.split_whitespace().collect::<Vec<_>>().join(" ").contains("set no figure of the machine"),
            "{text}"
        );
        assert_eq!(measured(&[], Look::default()), "");
    }

    /// The table ran to 200 columns whatever `--width` said.
    #[test]
    fn sources_of_an_interval_keep_within_the_width() {
        let source = UncertaintySource {
            place: "traffic.controller_efficiency".to_owned(),
            words: "share of a memory controller's peak bandwidth that a program can have at most on this machine"
                .to_owned(),
            range: Some((0.8, 0.7, 0.9)),
            share: 0.431,
            narrowed_by: "`numapilot measure` on the machine itself, while nothing else runs on it".to_owned(),
        };
        let uncertainty = Uncertainty { sources: vec![source.clone()], ..Uncertainty::default() };
        for width in [60, 80, 100, 240] {
            let text = sources(&uncertainty, Look { width, colour: false });
            assert!(text.lines().all(|line| columns(line) <= width), "{width}: {text}");
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                words.contains(&source.words) && words.contains(&source.narrowed_by) && words.contains("43.1 %"),
                "{words}"
            );
            assert_eq!(text.contains("NARROWED BY"), width == 240, "{width}: {text}");
        }
    }

    #[test]
    fn a_calibration_says_what_was_left_out_and_why_nothing_was() {
        let bound = |from: u16, contradicted| LatencyBound {
            from: numapilot_machine::NodeId(from),
            home: numapilot_machine::NodeId(1),
            samples: 840,
            at_least_ns: 311.6,
            contradicted,
        };
        let words =
            |told: &Calibration| calibrated(told, Look::default()).split_whitespace().collect::<Vec<_>>().join(" ");
        let told = Calibration { members: 800, left: 190, bounds: vec![bound(0, 610), bound(1, 0)], not_used: None };
        let text = words(&told);
        assert!(text.contains("of 800 variants") && text.contains("of the 190 in which"), "{text}");
        assert!(text.ends_with("was measured: 312 ns from node 0 to memory of node 1 (840 samples)."), "{text}");
        let text = words(&Calibration { left: 800, bounds: vec![bound(1, 0)], ..told.clone() });
        assert!(text.ends_with("all variants of the machine and the program agree with them."), "{text}");
        let text = words(&Calibration { not_used: Some("It is not known.".to_owned()), ..told });
        assert_eq!(text, "Not calibrated by measured latencies. It is not known.");
    }

    /// "12 % less processor time" stood above run times that are equal to the millisecond.
    #[test]
    fn what_a_sleeping_program_gains_is_in_the_table() {
        let outlook = |processor_time_ns: f64| {
            let metrics = numapilot_traffic::Metrics {
                local_access_ratio: None,
                memory_latency_ns: None,
                memory_latency_cycles: None,
                controller_imbalance: None,
                interconnect_usage: None,
                interconnect_imbalance: None,
                l3_mpki: None,
                ipc: None,
            };
            let total = Traffic { accesses: Vec::new(), controllers: Vec::new(), links: Vec::new(), metrics };
            Outlook { run_time_ns: 1e9, processor_time_ns: Some(processor_time_ns), total }
        };
        let found = |work_gain: Option<Estimate>| Prediction {
            program: "server".to_owned(),
            machine: "m".to_owned(),
            set: Vec::new(),
            now: outlook(25e6),
            then: outlook(20e6),
            gain: Estimate::exact(0.0),
            work_gain,
            uncertainty: None,
            measured: Vec::new(),
            more_bytes: 0,
            notes: Vec::new(),
        };
        let rows = |found: &Prediction| -> Vec<String> {
            let text = prediction(found, Look::default());
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            text.lines().map(words).filter(|line| line.starts_with("processor time")).collect()
        };
        assert_eq!(rows(&found(Some(Estimate::exact(0.25)))), ["processor time 25.0 ms 20.0 ms"]);
        assert!(rows(&found(None)).is_empty(), "the run time says it");
    }

    #[test]
    fn notes_are_of_both_runs_and_of_the_recording() {
        let [late, odd, old] =
            ["It did not converge.", "Two waits ended early.", "The trace is old."].map(String::from);
        let notes =
            simulated_notes(&[late.clone(), odd.clone()], std::slice::from_ref(&odd), std::slice::from_ref(&old));
        assert_eq!(notes, [SIMULATED.to_owned(), odd, format!("Without the change: {late}"), old]);
    }

    #[test]
    fn a_gain_whose_interval_holds_0_is_neither_faster_nor_slower() {
        let of = |value: f64, half: f64| verdict(&Estimate { value, low: value - half, high: value + half });
        assert_eq!((of(0.3, 0.1), of(-0.3, 0.1)), ("faster", "slower"));
        assert_eq!([of(0.0, 0.0), of(0.1, 0.2), of(-0.1, 0.2)], ["no evidence of a change"; 3]);
    }
}
