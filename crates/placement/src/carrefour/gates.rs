//! The gates: machine-wide and per-process figures that decide which mechanisms are on in this period.

use std::collections::BTreeSet;

use super::settings::{Collocate, Settings};
use crate::metrics::Traffic;
use crate::nodes::NodeFacts;
use crate::observation::Observation;

/// Kinds of moves that are enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moves {
    /// Pages with one user go to it.
    pub collocate: bool,
    /// Shared written pages are spread.
    pub interleave: bool,
}

/// Mechanisms that are enabled in a period.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gates {
    /// Enough traffic to act at all.
    pub open: bool,
    /// The kinds of moves that the gates allow.
    pub moves: Moves,
    /// Processes whose shared unwritten pages are replicated.
    pub replicate: BTreeSet<u32>,
}

impl Gates {
    /// Compares the traffic of one period with the gates' thresholds.
    pub fn judge(settings: &Settings, facts: &NodeFacts, traffic: &Traffic, seen: &Observation) -> Self {
        let open = traffic.accesses_per_us() >= settings.gate_per_us && traffic.total() > 0.0;
        if !open {
            return Self { open, moves: Moves::default(), replicate: BTreeSet::new() };
        }
        let imbalance = traffic.imbalance_percent(&facts.with_memory, settings.deviation);
        let interleave = settings.interleave && imbalance >= settings.imbalance_percent;
        let is_remote = traffic.local_ratio_percent() < settings.local_ratio_percent;
        let collocate = match settings.collocate {
            Collocate::LocalRatio => is_remote,
            Collocate::Either => is_remote || interleave,
            Collocate::Never => false,
        };
        let replicate = if settings.replicate && used_memory_percent(facts, seen) <= settings.used_memory_percent {
            reading_processes(settings, traffic, seen)
        } else {
            BTreeSet::new()
        };
        Self { open, moves: Moves { collocate, interleave }, replicate }
    }
}

/// Share of all memory that is not free, in percent.
fn used_memory_percent(facts: &NodeFacts, seen: &Observation) -> f64 {
    let total = facts.total_memory_bytes() as f64;
    let free: f64 = seen.nodes.iter().map(|n| n.free_bytes as f64).sum();
    if total > 0.0 { (100.0 * (1.0 - free / total)).max(0.0) } else { 100.0 }
}

/// Processes in which reads are frequent enough.
fn reading_processes(settings: &Settings, traffic: &Traffic, seen: &Observation) -> BTreeSet<u32> {
    let mut counts = std::collections::BTreeMap::<u32, (u64, u64)>::new();
    for sample in &seen.samples {
        let (reads, all) = counts.entry(sample.page.process).or_default();
        *reads += u64::from(!sample.is_write);
        *all += 1;
    }
    let is_reading = |reads: u64, all: u64| {
        if settings.reads_of_process {
            100.0 * reads as f64 >= settings.reads_percent * all as f64
        } else {
            traffic.read_ratio_percent() >= settings.reads_percent
        }
    };
    counts.into_iter().filter(|(_, (reads, all))| is_reading(*reads, *all)).map(|(process, _)| process).collect()
}
