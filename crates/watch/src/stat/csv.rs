//! An interval as CSV: a line per figure, so that the columns are the same on every machine (RFC 4180).

use std::fmt::Write;

use super::Stat;
use crate::figures::Metric;
use crate::figures::MetricValue;
use crate::figures::NumaStat;
use crate::maps::NUMASTAT_KINDS;
use numapilot_text::csv::quoted;

/// The heading line.
#[must_use]
pub fn csv_heading() -> &'static str {
    "from_s,to_s,scope,id,figure,value,source,is_estimate,because\n"
}

/// The figures, one line each.
#[must_use]
pub fn csv(stat: &Stat) -> String {
    let interval = &stat.interval;
    let time = format!("{:.6},{:.6}", interval.from_ns as f64 / 1e9, interval.to_ns as f64 / 1e9);
    let source = if interval.simulated.is_some() { "simulated" } else { "kernel" };
    let mut lines = Lines { time, source, out: String::new() };
    for metric in Metric::ALL {
        lines.metric("all", "", metric.name(), interval.metrics.get(metric));
    }
    for event in &interval.events {
        lines.metric("event", "", event.name, &event.count);
    }
    for (name, _, delta) in &interval.kernel {
        lines.value("kernel", "", name, *delta as f64);
    }
    for node in &interval.nodes {
        let id = node.node.to_string();
        for (name, told) in [
            ("local_access_ratio", &node.local_share),
            ("ipc", &node.ipc),
            ("l3_mpki", &node.l3_mpki),
            ("controller_bytes_per_s", &node.controller_bytes_per_s),
        ] {
            lines.metric("node", &id, name, told);
        }
        node.controller_load.into_iter().for_each(|load| lines.value("node", &id, "controller_load", load));
        node.busy_cpus.into_iter().for_each(|busy| lines.value("node", &id, "busy_cpus", busy));
        node.free_bytes.into_iter().for_each(|bytes| lines.value("node", &id, "free_bytes", bytes as f64));
        node.tier.into_iter().for_each(|tier| lines.value("node", &id, "tier", f64::from(tier)));
        if let (Some(of), Some(sampled)) = (node.sampled, &interval.sampled) {
            let rates = [("local", of.local_per_s), ("remote", of.remote_per_s), ("unknown", of.unknown_per_s)];
            for (name, rate) in rates {
                lines.metric(
                    "node",
                    &id,
                    &format!("sampled_{name}_per_s"),
                    &MetricValue::estimate(rate, &sampled.source),
                );
            }
            if let Some(cycles) = of.latency_cycles {
                lines.metric("node", &id, "sampled_latency_cycles", &MetricValue::estimate(cycles, &sampled.source));
            }
        }
        if interval.has_numastat() {
            for (name, count) in NumaStat::NAMES.iter().zip(node.numastat_delta.0) {
                lines.value("node", &id, name, count as f64);
            }
        }
    }
    interval.links.iter().for_each(|link| lines.value("link", &link.name, "load", link.load));
    for process in &interval.processes {
        let id = process.pid.to_string();
        lines.value("process", &id, "cpus", process.cpus);
        lines.metric("process", &id, "local_access_ratio", &process.local_share);
        lines.metric("process", &id, "ipc", &process.ipc);
        lines.metric("process", &id, "l3_mpki", &process.l3_mpki);
    }
    for map in &stat.memory {
        for (kind, row) in NUMASTAT_KINDS.iter().zip(map.by_numastat_kind()) {
            for (node, bytes) in map.nodes.iter().zip(row) {
                lines.value(
                    "memory",
                    &map.pid.to_string(),
                    &format!("{}_bytes_node{node}", kind.to_lowercase()),
                    bytes as f64,
                );
            }
        }
    }
    lines.out
}

struct Lines {
    time: String,
    source: &'static str,
    out: String,
}

impl Lines {
    fn value(&mut self, scope: &str, id: &str, name: &str, value: f64) {
        let _ = writeln!(self.out, "{},{scope},{},{name},{value},{},0,", self.time, quoted(id), self.source);
    }

    fn metric(&mut self, scope: &str, id: &str, name: &str, told: &MetricValue) {
        let lead = format!("{},{scope},{},{name}", self.time, quoted(id));
        let _ = match told {
            MetricValue::Value { value, source, is_estimate } => {
                writeln!(self.out, "{lead},{value},{},{},", quoted(source), u8::from(*is_estimate))
            }
            MetricValue::Missing(why) => writeln!(self.out, "{lead},,,,{}", quoted(why)),
        };
    }
}
