//! The rate of memory samples to request: that of AMD's instruction-based sampling at Carrefour's two rates.

use super::settings::Settings;
use crate::metrics::Traffic;
use crate::nodes::NodeFacts;
use crate::observation::Observation;

/// Orders in a period from which on the accurate rate is kept (`IBS_ADAPTIVE_MAGIC` in the released code).
const FEW_ORDERS: usize = 10;
/// Share of instructions taken to reach memory before anything was seen.
const FIRST_MEMORY_SHARE: f64 = 0.01;
/// Default clock in hertz, where the machine's is unknown.
const USUAL_CLOCK_HZ: f64 = 2.5e9;

/// The policy's sampling rate, adapted to the last period.
#[derive(Clone, Debug)]
pub(crate) struct Sampling {
    /// Whether the cheap rate is on.
    pub cheap: bool,
    /// Memory accesses per instruction in the last period.
    memory_share: f64,
    clock_hz: f64,
}

impl Sampling {
    /// The sampling rate before the first observation.
    pub fn new(facts: &NodeFacts) -> Self {
        let clock_hz = facts.clock_hz.unwrap_or(USUAL_CLOCK_HZ);
        Self { cheap: false, memory_share: FIRST_MEMORY_SHARE, clock_hz }
    }

    /// Adapts to the last observation and the number of actions.
    pub fn adapt(&mut self, seen: &Observation, traffic: &Traffic, is_open: bool, orders: usize) {
        self.cheap = !is_open || orders < FEW_ORDERS;
        let instructions: f64 = seen.threads.iter().map(|t| t.instructions).sum();
        if instructions > 0.0 {
            self.memory_share = (traffic.total() / instructions).min(1.0);
        }
    }

    /// Memory samples per second and CPU. The sampler takes an instruction every n cycles; those that reached memory
    /// are the memory samples.
    pub fn rate(&self, settings: &Settings) -> f64 {
        let cycles = if self.cheap { settings.ibs_cycles_cheap } else { settings.ibs_cycles };
        settings.fixed_samples.unwrap_or(self.clock_hz / cycles * self.memory_share)
    }
}
