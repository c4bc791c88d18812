//! The traffic picture of a stretch of a simulated run.

use numapilot_insight::{Estimate, LINE_BYTES, LinkTraffic, Matrix, Source, link_traffic};
use numapilot_machine::Machine;
use numapilot_simulator::{Report, Traffic};
use numapilot_text::units;

use super::population;
use crate::counted::Counted;
use crate::traffic::{Picture, picture};

/// Draws one stretch (`what` says which) of a run on `machine`.
#[must_use]
pub fn svg(run: &Report, machine: &Machine, traffic: &Traffic, what: &str) -> String {
    let nodes = machine.nodes().iter().map(|node| node.id).collect();
    let accesses =
        traffic.accesses.iter().map(|row| row.iter().map(|count| Estimate::exact(*count)).collect()).collect();
    let matrix = Matrix { nodes, accesses, unknown: 0.0, source: Source::Counted };
    let (links, _): (Vec<LinkTraffic>, f64) =
        link_traffic(&matrix, machine, (traffic.to_ns - traffic.from_ns).max(0.0) as u64);
    let metrics = &traffic.metrics;
    let all: f64 = traffic.accesses.iter().flatten().sum();
    let share = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), units::percent);
    let findings = [
        format!(
            "{} of {} memory accesses local · controller imbalance {} (population)",
            metrics.local_access_ratio.map_or_else(|| "unknown".to_owned(), units::part_percent),
            units::count(all),
            share(population(metrics.controller_imbalance))
        ),
        format!(
            "{} per access, loaded · links used {} · {} per second",
            metrics.memory_latency_ns.map_or_else(|| "unknown latency".to_owned(), |ns| format!("{ns:.0} ns")),
            share(metrics.interconnect_usage),
            units::bytes((traffic.accesses_per_us * 1e6 * LINE_BYTES) as u64)
        ),
    ];
    picture(&Picture {
        machine,
        matrix: &matrix,
        links: &links,
        counted: Counted::Accesses,
        title: &format!("{} on {}: {what}", run.program, run.machine),
        findings: &findings,
        origin: &format!(
            "simulated · {} to {}",
            units::time_ns(traffic.from_ns as u64),
            units::time_ns(traffic.to_ns as u64)
        ),
    })
}
