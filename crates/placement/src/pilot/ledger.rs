//! The measured cost of moves, from the duration in the outcome of each move, and the moves whose outcome is not known yet.

use numapilot_machine::NodeIndex;

use crate::action::{Action, Outcome, Refusal};
use crate::observation::{PageKey, PageSize};

/// Nanoseconds to move a small page among 512 in one call, before any was measured (measured with `move_pages` on 2017 hardware).
const SMALL_NS: f64 = 3_900.0;
/// Nanoseconds to move a large page, before any was measured (same source).
const LARGE_NS: f64 = 658_000.0;
/// Weight of a new measurement.
const WEIGHT: f64 = 0.02;

/// A move or copies of a page that were ordered, until their outcome is known.
pub(super) struct Ordered {
    /// The page.
    pub page: PageKey,
    /// Its home node at the order.
    pub home: NodeIndex,
    /// Program time of the order, in nanoseconds.
    pub at_ns: u64,
    /// Nanoseconds after which it has paid for itself, as predicted.
    pub payback_ns: f32,
}

/// Prices in nanoseconds of processor time and stalls.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    small_ns: f64,
    large_ns: f64,
    /// The environment can replicate, as far as is known.
    pub can_replicate: bool,
    /// The environment can split large pages, as far as is known.
    pub can_split: bool,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger { small_ns: SMALL_NS, large_ns: LARGE_NS, can_replicate: true, can_split: true }
    }
}

impl Ledger {
    /// Updates the costs from the outcomes of the last moves.
    pub fn settle(&mut self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            match (&outcome.action, &outcome.result) {
                (Action::Migrate { page, .. }, Ok(ns)) => self.learn(page.size, *ns),
                (Action::Replicate { page, nodes }, Ok(ns)) => {
                    self.learn(page.size, ns / nodes.len().saturating_sub(1).max(1) as f64);
                }
                (Action::Replicate { .. }, Err(Refusal::Unsupported)) => self.can_replicate = false,
                (Action::Split { .. }, Err(Refusal::Unsupported)) => self.can_split = false,
                _ => {}
            }
        }
    }

    fn learn(&mut self, size: PageSize, ns: f64) {
        let price = if size == PageSize::Large { &mut self.large_ns } else { &mut self.small_ns };
        if ns.is_finite() && ns >= 0.0 {
            *price += WEIGHT * (ns - *price);
        }
    }

    /// Price of moving one page.
    pub fn price_ns(&self, size: PageSize) -> f64 {
        if size == PageSize::Large { self.large_ns } else { self.small_ns }
    }
}
