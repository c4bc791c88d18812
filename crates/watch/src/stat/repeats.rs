//! Several runs of one command: mean and spread of every figure.

use std::collections::BTreeMap;
use std::fmt::Write;

use numapilot_text::style::Look;
use numapilot_text::table::{Align, Table};
use serde_json::Value;
use serde_json::json;

use super::Stat;
use super::text::event_value;
use crate::figures::Metric;

/// Figures of several runs, by name.
#[derive(Clone, Debug, Default)]
pub struct Repeats {
    runs: usize,
    /// In the order in which they are shown: name, and the values of the runs that have it.
    figures: BTreeMap<(usize, &'static str), Vec<f64>>,
}

impl Repeats {
    /// Adds a run.
    pub fn add(&mut self, stat: &Stat) {
        self.runs += 1;
        let mut put = |place: usize, name, value: f64| self.figures.entry((place, name)).or_default().push(value);
        put(0, "seconds", stat.interval.seconds());
        for (place, metric) in Metric::ALL.iter().enumerate() {
            if let Some(value) = stat.interval.metrics.get(*metric).value() {
                put(1 + place, metric.name(), value);
            }
        }
        for (place, event) in stat.interval.events.iter().enumerate() {
            if let Some(value) = event.count.value() {
                put(100 + place, event.name, value);
            }
        }
    }

    /// Means with standard deviations (over n - 1).
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
        table.render(look, 0)
    }

    /// The name of a figure, with the number of runs that have it where not all do.
    fn title(&self, name: &str, values: &[f64]) -> String {
        if values.len() == self.runs {
            name.to_owned()
        } else {
            format!("{name} ({} of {} runs)", values.len(), self.runs)
        }
    }

    /// The same as CSV, one line per figure. Without a standard deviation where only one run has the figure.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut out = "figure,runs,mean,standard_deviation,least,greatest\n".to_owned();
        for ((_, name), values) in &self.figures {
            let (mean, deviation) = mean_and_deviation(values);
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let deviation = deviation.map_or_else(String::new, |deviation| deviation.to_string());
            let _ = writeln!(out, "{name},{},{mean},{deviation},{least},{greatest}", values.len());
        }
        out
    }

    /// The same as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let of = |((_, name), values): (&(usize, &'static str), &Vec<f64>)| {
            let (mean, deviation) = mean_and_deviation(values);
            ((*name).to_owned(), json!({"mean": mean, "standard_deviation": deviation, "runs": values}))
        };
        json!({"runs": self.runs, "figures": self.figures.iter().map(of).collect::<serde_json::Map<_, _>>()})
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
        let repeats = Repeats { runs: 2, figures };
        let text = repeats.text(Look::default());
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        assert!(line("seconds ").contains("± 70.71 %") && !line("seconds").contains("runs"), "{text}");
        assert!(line("ipc (1 of 2 runs)").contains(" - ") && !text.contains("± 0.00 %"), "{text}");
        assert!(repeats.csv().contains("\nipc,1,1.5,,1.5,1.5\n"), "{}", repeats.csv());
        assert_eq!(repeats.json()["figures"]["ipc"]["standard_deviation"], Value::Null);
    }
}
