//! Metrics for Prometheus: families of values, their text format, and a page that serves them.
//!
//! Independent of the balancer: a source of metrics makes [`MetricFamily`] values, [`encode`] writes the text exposition format 0.0.4, and
//! [`page::MetricsPage`] serves it. The balancer's metrics are in [`balancer`]. Names follow Prometheus's rules (base units, `_total` for counters), which
//! [`problems`] checks in tests.

pub mod balancer;
mod encode;
pub mod page;

pub use encode::encode;
pub use encode::problems;

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that only grows (until the process restarts).
    Counter,
    /// A value that rises and falls.
    Gauge,
}

/// A value with its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names and values of the labels.
    pub labels: Vec<(&'static str, String)>,
    /// The value, in the unit of the family's name.
    pub value: f64,
}

/// A metric: all values of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFamily {
    /// Name, with its unit: `numapilot_moved_bytes_total`.
    pub name: &'static str,
    /// Description, in one line.
    pub help: &'static str,
    /// Type of the metric.
    pub kind: Kind,
    /// Its values; a family without values is left out of the text.
    pub samples: Vec<Sample>,
}

impl MetricFamily {
    /// Makes a family of counters without values.
    #[must_use]
    pub fn counter(name: &'static str, help: &'static str) -> MetricFamily {
        MetricFamily { name, help, kind: Kind::Counter, samples: Vec::new() }
    }

    /// Makes a family of gauges without values.
    #[must_use]
    pub fn gauge(name: &'static str, help: &'static str) -> MetricFamily {
        MetricFamily { name, help, kind: Kind::Gauge, samples: Vec::new() }
    }

    /// Adds a value without labels.
    #[must_use]
    pub fn value(self, value: f64) -> MetricFamily {
        self.with(&[], value)
    }

    /// Adds a value with labels.
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
