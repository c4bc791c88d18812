//! The one trait behind which every policy stands.

use crate::action::{Action, Allocation};
use crate::observation::Observation;

/// What a policy asks of its environment until the next decision.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyRequirements {
    /// Nanoseconds until it wants to decide again.
    pub next_ns: u64,
    /// Samples per second and CPU of memory accesses; 0: none.
    pub samples_per_s_and_cpu: f64,
    /// Whether [`Observation::mapped`] is needed.
    pub mapped: bool,
}

/// A placement policy. Deterministic: the same observations give the same actions (randomness is seeded at construction).
pub trait Policy {
    /// Its name on the command line, such as `carrefour`.
    fn name(&self) -> &str;

    /// Where new pages of every process go until an [`Action::Allocate`] says otherwise.
    fn initial_allocation(&self) -> Allocation {
        Allocation::FirstTouch
    }

    /// What it needs until the next decision. Asked before the run and after every decision.
    fn requirements(&self) -> PolicyRequirements;

    /// Looks at what happened and orders. Orders are carried out in their sequence.
    fn decide(&mut self, seen: &Observation) -> Vec<Action>;

    /// Whether it remembers samples from decision to decision. To one that does not, an environment with few samples may show, beside a page's new ones,
    /// others that it has kept.
    fn remembers(&self) -> bool {
        false
    }

    /// One line on what it did last and why, for logs and `explain`; empty if nothing.
    fn explain(&self) -> String {
        String::new()
    }
}
