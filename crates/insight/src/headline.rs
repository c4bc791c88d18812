//! What the first three lines of a report say.

use numapilot_flows::Evidence;
use serde::Serialize;

use crate::blind::Blindness;
use crate::context::Analysis;
use crate::decision::{DecisionRow, RowKey};
use crate::totals::Totals;

/// The findings that matter most, as data; wording is the report's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Headline {
    /// Totals: share of remote accesses, controller imbalance.
    pub totals: Totals,
    /// The site that draws most accesses, if any does.
    pub top: Option<DecisionRow>,
    /// The machine-wide verdict.
    pub verdict: Verdict,
    /// Why there is no verdict, where too little was seen.
    pub blindness: Option<Blindness>,
}

/// Whether there is anything to fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Too little was seen to judge by.
    Blind,
    /// No memory access was seen.
    NothingSeen,
    /// No event of memory accesses was sampled: nothing is known of them.
    NotSampled,
    /// Few remote accesses and balanced controllers.
    NothingToFix,
    /// Accesses travel.
    Remote,
    /// Accesses pile up on one controller.
    Imbalanced,
    /// Both.
    RemoteAndImbalanced,
}

/// Remote share from which accesses are said to travel.
const MUCH_REMOTE: f64 = 0.1;
/// Imbalance (sample definition) from which a controller is said to be overloaded: one node at about twice the mean of four.
const MUCH_IMBALANCE: f64 = 0.5;

impl Analysis<'_> {
    /// The headline.
    #[must_use]
    pub fn headline(&self) -> Headline {
        self.headline_of(&self.sites())
    }

    /// The headline, where [`Analysis::sites`] is at hand.
    #[must_use]
    pub fn headline_of(&self, sites: &[DecisionRow]) -> Headline {
        let totals = self.totals();
        let top = sites.iter().find(|row| row.key != RowKey::Unknown).cloned();
        let is_remote = totals.remote_share.value >= MUCH_REMOTE;
        let is_imbalanced = totals.imbalance.sample.value >= MUCH_IMBALANCE;
        let is_sampled = self.trace.evidence() != Evidence::Other;
        let blindness = self.blindness();
        let verdict = match (totals.accesses.value > 0.0, is_remote, is_imbalanced) {
            _ if blindness.is_some() => Verdict::Blind,
            _ if !is_sampled => Verdict::NotSampled,
            (false, _, _) => Verdict::NothingSeen,
            (true, false, false) => Verdict::NothingToFix,
            (true, true, false) => Verdict::Remote,
            (true, false, true) => Verdict::Imbalanced,
            (true, true, true) => Verdict::RemoteAndImbalanced,
        };
        Headline { totals, top, verdict, blindness }
    }
}
