//! The trait that every policy implements.

use crate::action::{Action, Allocation};
use crate::observation::Observation;

/// What a policy requires of its environment until the next decision.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyRequirements {
    /// Nanoseconds until the next decision.
    pub next_ns: u64,
    /// Samples per second and CPU of memory accesses; 0: none.
    pub samples_per_s_and_cpu: f64,
    /// Whether [`Observation::mapped`] is needed.
    pub mapped: bool,
    /// Whether [`Observation::homes`] is needed.
    pub homes: bool,
}

/// A placement policy. Deterministic: the same observations give the same actions (randomness is seeded at construction).
pub trait Policy {
    /// Name of the policy on the command line, such as `carrefour`.
    fn name(&self) -> &str;

    /// Allocation policy of every process until an [`Action::Allocate`] changes it.
    fn initial_allocation(&self) -> Allocation {
        Allocation::FirstTouch
    }

    /// Requirements until the next decision. Called before the run and after every decision.
    fn requirements(&self) -> PolicyRequirements;

    /// Decides on actions from an observation. The environment executes them in this order.
    fn decide(&mut self, seen: &Observation) -> Vec<Action>;

    /// Whether the policy remembers samples from decision to decision. If it does not, an environment with few samples may repeat a page's earlier samples
    /// beside its new ones.
    fn remembers(&self) -> bool {
        false
    }

    /// Pages whose statistics it dropped so far, or did not begin, because its memory is bounded.
    fn forgotten(&self) -> u64 {
        0
    }

    /// One line on the last decision and its reason, for logs and `explain`; empty if there was none.
    fn explain(&self) -> String {
        String::new()
    }
}
