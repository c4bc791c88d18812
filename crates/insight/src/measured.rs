//! Latencies that the processor measured of a program's own accesses, beside those that the traffic model predicts for the same accesses under the program's
//! load.
//!
//! They are shown, because they count more and less than an access waits for memory (`docs/patterns.md`, "Measured latencies"). What they can calibrate is in
//! `calibration`.

use std::collections::BTreeMap;

use numapilot_flows::AccessRef;
use numapilot_machine::{NodeId, NodeIndex};
use numapilot_trace::record::Level;
use serde::Serialize;

use crate::estimate::Estimate;
use crate::scene::Scene;
use crate::usage::{PARTS, index_of, part_of};

/// Fewer samples of a pair of nodes than this have no mean that is worth a comparison.
const SAMPLES_MIN: u64 = 25;

/// Mean latency of the sampled loads from one node that memory of one node answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredLatency {
    /// Node of the CPUs.
    pub from: NodeId,
    /// Home node of the pages.
    pub home: NodeId,
    /// Number of samples with a latency.
    pub samples: u64,
    /// Mean of the traffic model's latencies of these loads, each at its time under the program's load, ns.
    pub predicted_ns: f64,
    /// Mean of the measured latencies, ns.
    pub measured_ns: Estimate,
}

/// A sampled load that memory answered and whose latency the processor measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredLoad {
    /// The accessing node and the page's home.
    pub from: NodeIndex,
    pub home: NodeIndex,
    pub window: usize,
    /// Accesses that it stands for.
    pub weight: f64,
    /// Part of the cache lines that its own belongs to.
    pub part: usize,
    pub cycles: f64,
    /// The traffic model's latency of such a load in that window, on the machine as described, ns.
    pub predicted_ns: f64,
}

/// Sums over the loads of a pair, by part of the cache lines.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub samples: u64,
    predicted_ns: f64,
    measured_ns: [f64; PARTS],
    weight: [f64; PARTS],
}

impl Sums {
    /// Adds a load. `khz`: the clock that its cycles are of.
    pub fn add(&mut self, load: &MeasuredLoad, khz: f64) {
        self.samples += 1;
        self.predicted_ns += load.weight * load.predicted_ns;
        self.measured_ns[load.part] += load.weight * load.cycles * 1e6 / khz;
        self.weight[load.part] += load.weight;
    }

    /// The mean of the measured latencies with its interval, ns; `None`: too few to tell.
    pub fn mean_ns(&self) -> Option<Estimate> {
        let (measured_ns, weight): (f64, f64) = (self.measured_ns.iter().sum(), self.weight.iter().sum());
        let rest = |part: usize| weight - self.weight[part];
        // All in one part: there is nothing to take an interval from.
        let is_told = self.samples >= SAMPLES_MIN && (0..PARTS).all(|part| rest(part) > 0.0);
        is_told.then(|| {
            let without: Vec<f64> =
                (0..PARTS).map(|part| (measured_ns - self.measured_ns[part]) / rest(part)).collect();
            Estimate::jackknife(measured_ns / weight, &without)
        })
    }

    fn latency(&self, from: NodeId, home: NodeId) -> Option<MeasuredLatency> {
        let measured_ns = self.mean_ns()?;
        let weight: f64 = self.weight.iter().sum();
        let (samples, predicted_ns) = (self.samples, self.predicted_ns / weight);
        Some(MeasuredLatency { from, home, samples, predicted_ns, measured_ns })
    }
}

/// The loads that memory answered, whose latency the processor measured and for which the model has one.
pub(crate) fn loads(scene: &Scene<'_>) -> impl Iterator<Item = MeasuredLoad> {
    let machine = scene.machine;
    let load = move |access: AccessRef| {
        let cycles = f64::from(access.latency_cycles?);
        let (from, home) = (index_of(machine, access.node)?, index_of(machine, access.home)?);
        let window = scene.usage.windows.at(access.time.0 as f64);
        let path_ns = scene.now.windows.get(window)?.path_ns.get(from.0)?;
        let predicted_ns = path_ns.get(home.0).copied().filter(|ns| ns.is_finite())?;
        let (weight, part) = (f64::from(access.weight.max(1)), usize::from(part_of(&access)));
        Some(MeasuredLoad { from, home, window, weight, part, cycles, predicted_ns })
    };
    // What a store's latency stands for differs by processor.
    let answered = |access: &AccessRef| access.level == Level::Memory && !access.is_write;
    scene.analysis.accesses().filter(answered).filter_map(load)
}

/// By pair of nodes, in the machine's order: loads that memory answered and whose latency the processor measured. Empty for simulated machines, which measure
/// none, and where the clock of the latencies is not known.
pub(crate) fn latencies(scene: &Scene<'_>) -> Vec<MeasuredLatency> {
    let (trace, machine) = (scene.analysis.trace(), scene.machine);
    let of_core = trace.meta().latency_khz().map(f64::from).or(machine.clock_mhz().map(|mhz| mhz * 1000.0));
    let Some(khz) = of_core.filter(|khz| *khz > 0.0 && !trace.meta().simulated) else { return Vec::new() };
    let mut pairs: BTreeMap<(NodeIndex, NodeIndex), Sums> = BTreeMap::new();
    for load in loads(scene) {
        pairs.entry((load.from, load.home)).or_default().add(&load, khz);
    }
    let id = |index: NodeIndex| machine.nodes()[index].id;
    pairs.iter().filter_map(|(&(from, home), sums)| sums.latency(id(from), id(home))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_a_pair_has_an_interval_and_few_samples_have_none() {
        let mut sums = Sums { samples: 50, predicted_ns: 180.0 * 50.0, ..Sums::default() };
        for part in 0..PARTS {
            sums.weight[part] = 10.0;
            sums.measured_ns[part] = 10.0 * (200.0 + part as f64);
        }
        let found = sums.latency(NodeId(0), NodeId(1)).expect("enough samples");
        assert!(
            (found.predicted_ns - 180.0).abs() < 1e-9 && (found.measured_ns.value - 202.0).abs() < 1e-9,
            "{found:?}"
        );
        // Means of five parts that are 1 apart have a standard error of the root of 2.5 over that of 5; Student's t of four degrees of freedom.
        assert!((found.measured_ns.margin() - 2.776 * 0.5_f64.sqrt()).abs() < 1e-3, "{found:?}");
        assert_eq!(Sums { samples: SAMPLES_MIN - 1, ..sums }.latency(NodeId(0), NodeId(1)), None);
        let mut one = Sums { samples: 50, predicted_ns: 1.0, ..Sums::default() };
        (one.weight[2], one.measured_ns[2]) = (50.0, 1.0);
        assert_eq!(one.latency(NodeId(0), NodeId(1)), None, "all on lines of one part");
    }
}
