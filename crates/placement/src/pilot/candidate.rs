//! A move of a page that is due.

use numapilot_machine::NodeIndex;

use crate::action::Action;
use crate::observation::PageKey;

/// A move whose regret has reached its price.
pub(super) struct MoveCandidate {
    /// Regret over what it takes.
    pub urgency: f64,
    pub price_ns: f64,
    pub page: PageKey,
    pub home: NodeIndex,
    pub action: Action,
    /// Nanoseconds of delay that it saves per second.
    pub saves_ns_per_s: f64,
    /// Its group, by position.
    pub group: usize,
}
