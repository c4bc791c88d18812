//! Several runs of one command: mean and spread of every figure.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write;

use numapilot_text::style::Look;
use numapilot_text::table::{Align, Table};
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use super::Stat;
use super::text::event_value;
use super::text::missing;
use super::text::notes;
use crate::figures::Interval;
use crate::figures::Metric;
use crate::figures::MetricValue;

/// Figures of several runs, by name.
#[derive(Clone, Debug, Default)]
pub struct Repeats {
    runs: usize,
    /// In the order in which they are shown: name, and the values of the runs that have it.
    figures: BTreeMap<(usize, &'static str), Vec<f64>>,
    /// Those that are estimates in some run.
    estimates: BTreeSet<&'static str>,
    /// The last run, which says why figures are missing, and what the reader has to know.
    last: Interval,
}

impl Repeats {
    /// Adds a run.
    pub fn add(&mut self, stat: &Stat) {
        self.runs += 1;
        self.last = stat.interval.clone();
        let Repeats { figures, estimates, .. } = self;
        let mut put = |place: usize, name: &'static str, told: &MetricValue| {
            let MetricValue::Value { value, is_estimate, .. } = told else { return };
            figures.entry((place, name)).or_default().push(*value);
            if *is_estimate {
                estimates.insert(name);
            }
        };
        put(0, "seconds", &MetricValue::of(Some(stat.interval.seconds()), "", ""));
        for (place, metric) in Metric::ALL.iter().enumerate() {
            put(1 + place, metric.name(), stat.interval.metrics.get(*metric));
        }
        for (place, event) in stat.interval.events.iter().enumerate() {
            put(100 + place, event.name, &event.count);
        }
    }

    /// The metrics that no run has.
    fn lacking(&self) -> impl Iterator<Item = Metric> {
        let has = |metric: &Metric| self.figures.keys().any(|(_, name)| *name == metric.name());
        Metric::ALL.into_iter().filter(move |metric| !has(metric))
    }

    /// Means with standard deviations (over n - 1), and what there is not.
    #[must_use]
    pub fn text(&self, look: Look) -> String {
        let mut table = Table::new().flexible(&format!("{} runs", self.runs), 20);
        for title in ["mean", "spread", "least", "greatest"] {
            table = table.column(title, Align::Right);
        }
        for ((_, name), values) in &self.figures {
            let (mean, deviation) = mean_and_deviation(values);
            let of = |value: f64| event_value(name, value);
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let spread = match deviation {
                None => "-".to_owned(),
                Some(_) if mean == 0.0 => ".".to_owned(),
                // Two digits, as `perf stat -r` shows it.
                Some(deviation) => format!("± {:.2} %", deviation / mean * 100.0),
            };
            table.row([self.title(name, values), of(mean), spread, of(least), of(greatest)]);
        }
        let mut last = Interval { notes: self.last.notes.clone(), ..Interval::default() };
        Metric::ALL.into_iter().for_each(|metric| last.metrics.set(metric, MetricValue::of(Some(0.0), "", "")));
        self.lacking().for_each(|metric| last.metrics.set(metric, self.last.metrics.get(metric).clone()));
        table.render(look, 0) + &missing(&last, look) + &notes(&last, look)
    }

    /// The name of a figure, with the number of runs that have it where not all do, and whether it is an estimate.
    fn title(&self, name: &str, values: &[f64]) -> String {
        let mut parts = Vec::new();
        if values.len() != self.runs {
            parts.push(format!("{} of {} runs", values.len(), self.runs));
        }
        if self.estimates.contains(name) {
            parts.push("estimate".to_owned());
        }
        if parts.is_empty() { name.to_owned() } else { format!("{name} ({})", parts.join(", ")) }
    }

    /// The same as CSV, one line per figure. Without a standard deviation where only one run has the figure.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut out = "figure,runs,mean,standard_deviation,least,greatest,is_estimate\n".to_owned();
        for ((_, name), values) in &self.figures {
            let (mean, deviation) = mean_and_deviation(values);
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let deviation = deviation.map_or_else(String::new, |deviation| deviation.to_string());
            let is_estimate = u8::from(self.estimates.contains(*name));
            let _ = writeln!(out, "{name},{},{mean},{deviation},{least},{greatest},{is_estimate}", values.len());
        }
        out
    }

    /// The same as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let of = |((_, name), values): (&(usize, &'static str), &Vec<f64>)| {
            let (mean, deviation) = mean_and_deviation(values);
            let estimate = self.estimates.contains(*name);
            let figure = json!({"mean": mean, "standard_deviation": deviation, "estimate": estimate, "runs": values});
            ((*name).to_owned(), figure)
        };
        let figures: Map<String, Value> = self.figures.iter().map(of).collect();
        let why = |metric: Metric| (metric.name().to_owned(), self.last.metrics.get(metric).json()["because"].clone());
        let missing: Map<String, Value> = self.lacking().map(why).collect();
        json!({"runs": self.runs, "figures": figures, "missing": missing, "notes": self.last.notes})
    }
}

/// The mean, and the standard deviation over n - 1: one run has none.
fn mean_and_deviation(values: &[f64]) -> (f64, Option<f64>) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_spread_are_those_of_the_runs() {
        assert_eq!(mean_and_deviation(&[2.0, 4.0, 6.0]), (4.0, Some(2.0)));
        assert_eq!(mean_and_deviation(&[5.0]), (5.0, None));
    }

    #[test]
    fn one_run_has_no_spread_and_figures_of_some_runs_say_of_how_many() {
        let figures = BTreeMap::from([((0, "seconds"), vec![1.0, 3.0]), ((7, "ipc"), vec![1.5])]);
        let repeats = Repeats { runs: 2, figures, ..Repeats::default() };
        let text = repeats.text(Look::default());
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        assert!(line("seconds ").contains("± 70.71 %") && !line("seconds").contains("runs"), "{text}");
        assert!(line("ipc (1 of 2 runs)").contains(" - ") && !text.contains("± 0.00 %"), "{text}");
        assert!(repeats.csv().contains("\nipc,1,1.5,,1.5,1.5,0\n"), "{}", repeats.csv());
        assert_eq!(repeats.json()["figures"]["ipc"]["standard_deviation"], Value::Null);
    }

    /// Estimates looked counted, and what no run has was left out without a reason.
    #[test]
    fn estimates_are_marked_and_what_is_missing_has_its_reason() {
        let mut stat = Stat::default();
        stat.interval.notes.push("These count user code alone.".to_owned());
        for (metric, told) in [
            (Metric::LocalShare, MetricValue::estimate(0.5, "samples")),
            (Metric::Ipc, MetricValue::Missing("no counters".to_owned())),
        ] {
            stat.interval.metrics.set(metric, told);
        }
        let mut repeats = Repeats::default();
        (0..2).for_each(|_| repeats.add(&stat));
        let text = repeats.text(Look::default());
        for told in [
            "local_access_ratio (estimate)",
            "instructions per cycle: not available here, because no counters",
            "user code",
        ] {
            assert!(text.contains(told), "{told} not in\n{text}");
        }
        assert!(repeats.csv().contains("\nlocal_access_ratio,2,0.5,0,0.5,0.5,1\n"), "{}", repeats.csv());
        let value = repeats.json();
        assert_eq!(value["figures"]["local_access_ratio"]["estimate"], json!(true));
        assert_eq!(value["missing"]["ipc"], json!("no counters"));
        assert!(value["missing"]["local_access_ratio"].is_null());
        assert_eq!(value["notes"], json!(["These count user code alone."]));
    }
}
