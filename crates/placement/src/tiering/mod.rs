//! `tiering`: pages go up to memory of nodes with CPUs, or down to that of nodes without (CXL, HBM), until accesses to both take equally long under load, as
//! Colloid does (Vuppalapati and Agarwal, SOSP 2024). Which of the two is faster when idle makes no difference: memory that is full of accesses is slow.

mod balance;
mod known;
mod orders;
#[cfg(test)]
mod tests;

use numapilot_machine::Machine;
use numapilot_text::units::part_percent;

use crate::action::Action;
use crate::error::PlacementError;
use crate::metrics::Traffic;
use crate::nodes::NodeFacts;
use crate::observation::Observation;
use crate::options::{OptionInfo, Options};
use crate::policy::{Policy, PolicyRequirements};
use balance::Balance;
use known::{APART, Known, NEAR};
use orders::{Limits, Orders};

/// Policy `tiering`.
pub(crate) struct Tiering {
    period_ns: u64,
    samples_per_s_and_cpu: f64,
    tolerance: f64,
    limits: Limits,
    known: Known,
    balance: Balance,
    explanation: String,
}

impl Tiering {
    /// The options of the policy.
    pub const OPTIONS: &[OptionInfo] = &[
        OptionInfo::new("period-ms", "1000", "time between decisions, milliseconds"),
        OptionInfo::new("samples", "1000", "samples per second and CPU"),
        OptionInfo::new("tolerance", "5", "difference of the tiers' latencies at which they count as equal, percent"),
        OptionInfo::new("spare-memory", "2", "share of a node's memory that moves leave free, percent"),
        OptionInfo::new("max-mib", "256", "memory that moves in one period at most, MiB"),
        OptionInfo::new(
            "table-pages",
            "1000000",
            "pages that are remembered at most; samples of further ones are counted",
        ),
    ];

    /// Makes the policy from its options.
    pub fn new(options: &Options, machine: &Machine, facts: NodeFacts) -> Result<Self, PlacementError> {
        Ok(Self {
            period_ns: options.whole("period-ms", 1, 3_600_000)? * 1_000_000,
            samples_per_s_and_cpu: options.number("samples", 0.0, 1e7)?,
            tolerance: options.number("tolerance", 0.0, 100.0)? / 100.0,
            limits: Limits {
                spare_share: options.number("spare-memory", 0.0, 100.0)? / 100.0,
                pages: options.whole("max-mib", 1, 1 << 30)? * 256,
            },
            known: Known::new(machine, facts, options.whole("table-pages", 1, 1 << 32)? as usize),
            balance: Balance::new(),
            explanation: String::new(),
        })
    }
}

impl Policy for Tiering {
    fn name(&self) -> &str {
        "tiering"
    }

    fn requirements(&self) -> PolicyRequirements {
        let samples_per_s_and_cpu = if self.known.has_tiers() { self.samples_per_s_and_cpu } else { 0.0 };
        let homes = self.known.has_tiers();
        PolicyRequirements { next_ns: self.period_ns, samples_per_s_and_cpu, mapped: false, homes }
    }

    fn decide(&mut self, seen: &Observation) -> Vec<Action> {
        if !self.known.has_tiers() {
            self.explanation = "this machine has one tier of memory: nothing is ordered".to_owned();
            return Vec::new();
        }
        if seen.nodes.len() != self.known.facts.count() {
            let (is, expected) = (seen.nodes.len(), self.known.facts.count());
            self.explanation =
                format!("{is} nodes in the observation, {expected} expected: no decision in this period");
            return Vec::new();
        }
        self.known.update(seen);
        let Some(share) = self.known.near_share(seen) else {
            self.explanation = "no memory access in this period".to_owned();
            return Vec::new();
        };
        let [near, apart] = [NEAR, APART].map(|tier| self.known.latency(tier, seen));
        // Idle, such memory may answer later than that of nodes with CPUs, whose bandwidth it is there to relieve.
        if self.known.is_wide && !near.is_measured && !apart.is_measured {
            let has_none = seen.samples.iter().all(|sample| sample.latency_ns.is_none());
            let what = if has_none { "no latency was" } else { "too few latencies were" };
            self.explanation =
                format!("{what} measured, without which memory of more bandwidth cannot be judged: nothing is ordered");
            return Vec::new();
        }
        let wanted = self.balance.wanted(share, near.ns, apart.ns, self.tolerance);
        let mut orders = Orders::new(&self.known, self.limits, seen);
        if wanted > share {
            orders.promote(wanted - share, Traffic::of(seen).total() * (apart.ns - near.ns));
        } else if wanted < share {
            orders.demote(share - wanted);
        }
        let Orders { actions, up, down, without_room, .. } = orders;
        self.explanation = format!(
            "memory of nodes with CPUs serves {} in {}, other memory the rest in {}; wanted there: {}; ordered {up} pages up, \
             {down} down, {without_room} found no room",
            part_percent(share),
            near.words(),
            apart.words(),
            part_percent(wanted)
        );
        actions
    }

    fn remembers(&self) -> bool {
        true
    }

    fn forgotten(&self) -> u64 {
        self.known.forgotten
    }

    fn explain(&self) -> String {
        self.explanation.clone()
    }
}
