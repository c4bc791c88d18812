//! Judgements of limits: as a table for terminals, and as SARIF for code review tools.

mod sarif;
mod text;

use numapilot_insight::check::{Judgement, Limit, Verdict};
use numapilot_insight::compare::ObjectSummary;

use crate::units;

pub use sarif::sarif;
pub use text::render;

/// The figure that a limit is about, in words.
fn subject(limit: &Limit) -> String {
    match limit {
        Limit::Remote(_) => "remote accesses".to_owned(),
        Limit::Imbalance(_) => "controller imbalance".to_owned(),
        Limit::RemoteOf(name, _) => format!("remote accesses to {name}"),
        Limit::Slowdown(_) => "slower than the baseline (predicted)".to_owned(),
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Kept => "ok",
        Verdict::InDoubt => "in doubt",
        Verdict::Exceeded => "EXCEEDED",
        Verdict::Unknown => "unknown",
    }
}

fn found(judged: &Judgement) -> String {
    judged.found.as_ref().map_or_else(|| "-".to_owned(), units::share)
}

/// `block (streamcluster.cpp:134, 71 % of all accesses, 75 % of them remote)`.
fn blame(object: &ObjectSummary) -> String {
    let place = if object.place.is_empty() { &object.function } else { &object.place };
    let place = if place.is_empty() { String::new() } else { format!("{place}, ") };
    let homes = if object.knows_homes() {
        format!("{} of them remote, {} on one node", units::percent(object.remote), units::percent(object.busiest_node))
    } else {
        "of most of which the home node is unknown".to_owned()
    };
    format!("{} ({place}{} of all accesses, {homes})", object.name, units::percent(object.share))
}
