//! The decision for one page: Carrefour's rules, given the gates.

use numapilot_machine::NodeIndex;

use super::gates::Moves;
use super::settings::Settings;
use crate::page_use::PageUse;

/// The decision for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageDecision {
    /// The page stays where it is.
    Stay,
    /// Copies on the nodes that use it.
    Replicate,
    /// To a drawn node.
    Interleave,
    /// To its only user.
    Collocate(NodeIndex),
}

/// The rules, given the moves that are on: several users and no write seen, then several users, then one user. `may_replicate` is what is
/// known of the page and its process beyond this period.
pub(crate) fn decide(settings: &Settings, moves: Moves, page: &PageUse, may_replicate: bool) -> PageDecision {
    if page.is_shared() {
        return match (may_replicate && page.writes == 0, moves.interleave) {
            (true, _) => PageDecision::Replicate,
            (false, true) => PageDecision::Interleave,
            (false, false) => PageDecision::Stay,
        };
    }
    let needed = if moves.interleave { 1 } else { settings.min_samples };
    match page.only_user() {
        Some(user) if moves.collocate && user != page.home && page.total() >= needed => PageDecision::Collocate(user),
        _ => PageDecision::Stay,
    }
}
