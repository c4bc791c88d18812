//! Figures for Prometheus: families of values in, its text format out, and a page that serves them.
//!
//! Generic: whoever has figures makes [`MetricFamily`] values of them, [`encode`] writes the text exposition format 0.0.4, and [`page::MetricsPage`] serves
//! it. What the pilot shows is in [`pilot`]. Names follow Prometheus's rules (base units, `_total` for counters); [`problems`] holds them to it in tests.

mod encode;
pub mod page;
pub mod pilot;

pub use encode::encode;
pub use encode::problems;

/// How a figure behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows (until the process starts anew).
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A value with its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names and values.
    pub labels: Vec<(&'static str, String)>,
    /// The figure, in the unit that the family's name says.
    pub value: f64,
}

/// Values of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFamily {
    /// Name, with its unit: `numapilot_moved_bytes_total`.
    pub name: &'static str,
    /// What it is, in one line.
    pub help: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// Its values; a family without any is left out.
    pub samples: Vec<Sample>,
}

impl MetricFamily {
    /// A family of counters, empty.
    #[must_use]
    pub fn counter(name: &'static str, help: &'static str) -> MetricFamily {
        MetricFamily { name, help, kind: Kind::Counter, samples: Vec::new() }
    }

    /// A family of gauges, empty.
    #[must_use]
    pub fn gauge(name: &'static str, help: &'static str) -> MetricFamily {
        MetricFamily { name, help, kind: Kind::Gauge, samples: Vec::new() }
    }

    /// With one value more, without labels.
    #[must_use]
    pub fn value(self, value: f64) -> MetricFamily {
        self.with(&[], value)
    }

    /// With one value more.
    #[must_use]
    pub fn with(mut self, labels: &[(&'static str, &dyn ToString)], value: f64) -> MetricFamily {
        self.push(labels, value);
        self
    }

    /// Adds a value.
    pub fn push(&mut self, labels: &[(&'static str, &dyn ToString)], value: f64) {
        let labels = labels.iter().map(|(name, value)| (*name, value.to_string())).collect();
        self.samples.push(Sample { labels, value });
    }
}
