//! How many memory samples to wish for: what AMD's instruction-based sampling would give at Carrefour's two rates.

use super::settings::Settings;
use crate::metrics::Traffic;
use crate::nodes::NodeFacts;
use crate::observation::Observation;

/// Orders in a period from which on the accurate rate is kept (`IBS_ADAPTIVE_MAGIC` in the released code).
const FEW_ORDERS: usize = 10;
/// Share of instructions taken to reach memory before anything was seen.
const FIRST_MEMORY_SHARE: f64 = 0.01;
/// Clock in hertz where the machine does not tell.
const USUAL_CLOCK_HZ: f64 = 2.5e9;

/// The sampling rate.
#[derive(Clone, Debug)]
pub(crate) struct Sampling {
    /// Whether the cheap rate is on.
    pub cheap: bool,
    /// Memory accesses per instruction in the last period.
    memory_share: f64,
    clock_hz: f64,
}

impl Sampling {
    /// Before anything was seen.
    pub fn new(facts: &NodeFacts) -> Self {
        let clock_hz = facts.clock_hz.unwrap_or(USUAL_CLOCK_HZ);
        Self { cheap: false, memory_share: FIRST_MEMORY_SHARE, clock_hz }
    }

    /// Adapts to what was seen and ordered.
    pub fn adapt(&mut self, seen: &Observation, traffic: &Traffic, is_open: bool, orders: usize) {
        self.cheap = !is_open || orders < FEW_ORDERS;
        let instructions: f64 = seen.threads.iter().map(|t| t.instructions).sum();
        if instructions > 0.0 {
            self.memory_share = (traffic.total() / instructions).min(1.0);
        }
    }

    /// Memory samples per second and CPU. A sample of instructions falls every so many cycles on any instruction; those that reached memory
    /// are the memory samples.
    pub fn wish(&self, settings: &Settings) -> f64 {
        let cycles = if self.cheap { settings.ibs_cycles_cheap } else { settings.ibs_cycles };
        settings.fixed_samples.unwrap_or(self.clock_hz / cycles * self.memory_share)
    }
}
