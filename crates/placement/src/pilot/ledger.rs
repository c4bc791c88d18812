//! The measured cost of moves, from the duration in the outcome of each move, and the moves whose outcome is not known yet.

use numapilot_machine::NodeIndex;

use crate::action::{Action, Outcome, Refusal};
use crate::move_price::MovePrice;
use crate::observation::{PageKey, PageSize};

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

/// Prices, and what the environment can do.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    price: MovePrice,
    /// The environment can replicate, as far as is known.
    pub can_replicate: bool,
    /// The environment can split large pages, as far as is known.
    pub can_split: bool,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger { price: MovePrice::default(), can_replicate: true, can_split: true }
    }
}

impl Ledger {
    /// Updates the costs from the outcomes of the last moves.
    pub fn settle(&mut self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            match (&outcome.action, &outcome.result) {
                (Action::Migrate { page, .. }, Ok(ns)) => self.price.learn(page.size, *ns),
                (Action::Replicate { page, nodes }, Ok(ns)) => {
                    self.price.learn(page.size, ns / nodes.len().saturating_sub(1).max(1) as f64);
                }
                (Action::Replicate { .. }, Err(Refusal::Unsupported)) => self.can_replicate = false,
                (Action::Split { .. }, Err(Refusal::Unsupported)) => self.can_split = false,
                _ => {}
            }
        }
    }

    /// Price of moving one page.
    pub fn price_ns(&self, size: PageSize) -> f64 {
        self.price.of(size)
    }
}
