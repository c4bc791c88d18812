//! How a program is simulated.

use numapilot_machine::Bind;
use serde::Serialize;

use crate::costs::Costs;
use crate::error::SimulatorError;

/// Initial placement of threads on CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// On the CPUs on which they were recorded, where the machine has them; else as [`Bind::Spread`].
    #[default]
    Recorded,
    /// Thread k takes entry k of this order of the machine's CPUs, beginning anew when they are used up.
    Ordered(Bind),
}

/// Model of the memory system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryModel {
    /// The traffic model: controllers and links queue.
    #[default]
    Queueing,
    /// Idle latencies whatever the load: what a recording with the `instrument` engine charges, and the bound of a machine without congestion.
    Idle,
}

/// Options of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Options {
    /// Seed of everything random: samples, faults, ties.
    pub seed: u64,
    /// Initial placement of threads on CPUs.
    pub layout: Layout,
    /// Model of the memory system.
    pub memory: MemoryModel,
    /// Greatest length of an epoch in simulated nanoseconds.
    pub epoch_max_ns: f64,
    /// An epoch is not cut shorter than this when the load changes within it, ns.
    pub epoch_min_ns: f64,
    /// Simulated time at which the run is cut off, ns; `None`: it runs to its end.
    pub until_ns: Option<f64>,
    /// Interval of the points of the series, in nanoseconds.
    pub series_ns: f64,
    /// Whether all of the work goes to whichever thread is free: all working threads of a process then get on equally fast. Otherwise each thread does what it
    /// did in the recording.
    pub takes_work: bool,
    /// Costs of the policy's actions.
    pub costs: Costs,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: 1,
            layout: Layout::default(),
            memory: MemoryModel::default(),
            epoch_max_ns: 10e6,
            epoch_min_ns: 0.25e6,
            until_ns: None,
            series_ns: 100e6,
            takes_work: false,
            costs: Costs::default(),
        }
    }
}

impl Options {
    /// # Errors
    /// If a figure makes no sense, with its name.
    pub(crate) fn check(&self) -> Result<(), SimulatorError> {
        let bad = |option, why: &str| Err(SimulatorError::Option { option, why: why.into() });
        let positive = |x: f64| x.is_finite() && x > 0.0;
        if !positive(self.epoch_min_ns) || !positive(self.epoch_max_ns) || self.epoch_min_ns > self.epoch_max_ns {
            return bad("epoch_max_ns", "give 0 < epoch_min_ns <= epoch_max_ns");
        }
        if !positive(self.series_ns) {
            return bad("series_ns", "give an interval above 0");
        }
        if self.until_ns.is_some_and(|until| !positive(until)) {
            return bad("until_ns", "give a time above 0");
        }
        if let Some((name, _)) = self.costs.named().into_iter().find(|&(_, cost)| !(cost.is_finite() && cost >= 0.0)) {
            return bad(name, "a cost must be a number of 0 or more");
        }
        if self.costs.movers == 0 || self.costs.pages_per_shootdown == 0 {
            return bad("movers", "give at least one mover thread, and at least one page per TLB shootdown");
        }
        Ok(())
    }
}
