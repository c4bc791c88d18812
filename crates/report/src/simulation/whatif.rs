//! A prediction in words: now and then, side by side.

use std::fmt::Write;

use numapilot_insight::Estimate;
use numapilot_simulator::Report;
use numapilot_simulator::whatif::{Answer, Wish};
use serde_json::{Value, json};

use super::{population, signed_percent};
use crate::text::style::wrap;
use crate::text::{Align, Look, Table};
use crate::units;

/// A prediction.
#[derive(Clone, Debug)]
pub struct Prediction<'a> {
    /// What was set, a line each.
    pub set: Vec<String>,
    /// The program as it is.
    pub now: &'a Report,
    /// With the new homes.
    pub then: &'a Report,
    /// How much faster, as a share of the new run time: 1 is twice as fast.
    pub gain: f64,
    /// Half of the gain's 95 % interval; `None` if it was not asked for.
    pub margin: Option<f64>,
    /// Further memory needed, bytes.
    pub more_bytes: u64,
}

impl<'a> Prediction<'a> {
    /// What was answered to these wishes, with the jackknife's interval.
    #[must_use]
    pub fn of(wishes: &'a [Wish], answer: &'a Answer) -> Prediction<'a> {
        let words = |(words, bytes): (&str, Option<u64>)| match bytes {
            Some(bytes) => format!("{words}, {} of memory", units::bytes(bytes)),
            None => words.to_owned(),
        };
        Prediction {
            set: answer.set(wishes).map(words).collect(),
            now: &answer.now,
            then: &answer.then,
            gain: answer.gain(),
            margin: Some(Estimate::jackknife(answer.gain(), &answer.gains_without).margin()),
            more_bytes: answer.more_bytes,
        }
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "predicted": true, "set": self.set, "gain": self.gain, "gain_margin": self.margin, "more_bytes": self.more_bytes,
            "now": self.now, "then": self.then,
        })
    }
}

/// Renders it for a terminal.
#[must_use]
pub fn prediction(found: &Prediction<'_>, look: Look) -> String {
    let (now, then) = (found.now, found.then);
    let mut out = String::new();
    let margin = found.margin.map_or_else(String::new, |margin| format!(" ± {:.1} %", margin * 100.0));
    let verdict = if found.gain >= 0.0 { "faster" } else { "slower" };
    let gain = signed_percent(found.gain);
    let title = format!(
        "{} on {}: {}{margin} ({verdict}), predicted",
        now.program,
        now.machine,
        gain.trim_end_matches(" %").to_owned() + if margin.is_empty() { " %" } else { "" }
    );
    let _ = writeln!(out, "{}", look.strong(&title));
    for line in &found.set {
        let _ = writeln!(out, "  {line}");
    }
    out.push('\n');
    let mut table =
        Table::new().column("PREDICTED", Align::Left).column("NOW", Align::Right).column("THEN", Align::Right);
    let share = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), units::percent);
    let mut row = |name: &str, of: &dyn Fn(&Report) -> String| table.row([name.to_owned(), of(now), of(then)]);
    row("run time", &|run| units::time_ns(run.run_time_ns as u64));
    row("local access ratio", &|run| share(run.total.metrics.local_access_ratio));
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
    let limits = "The interval covers the sampling of accesses (jackknife over cache lines); not the model's own error (docs/traffic-model.md), \
                  nor how another run would differ, nor the cost of making copies or moving pages.";
    out.push('\n');
    for line in wrap(limits, look.width.saturating_sub(2)) {
        let _ = writeln!(out, "  {}", look.faint(&line));
    }
    for note in then.notes.iter().filter(|note| !note.is_empty()) {
        for line in wrap(note, look.width.saturating_sub(2)) {
            let _ = writeln!(out, "  {}", look.faint(&line));
        }
    }
    out
}
