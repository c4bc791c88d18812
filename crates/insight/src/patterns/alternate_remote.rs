//! Alternate remote accesses: several nodes use an object, one after the other, each for a while.

use super::{Criterion, Draft, PatternKind, Scene, Subject, Unit, number, share};
use crate::estimate::Estimate;
use crate::facts::SiteFacts;
use crate::fixes::{FixCandidate, FixKind};

/// Ratio of changes of node to those of a random order: below this half-way point, the nodes use the object one after the other.
const TURNS: f64 = 0.5;

pub(super) fn detect(_: &Scene<'_>, facts: &SiteFacts, at_stake: Estimate) -> Option<Draft> {
    let stretches = facts.stretches as f64 / facts.instances.max(1) as f64;
    if facts.turns.value >= TURNS || stretches < 2.0 {
        return None;
    }
    Some(Draft {
        pattern: PatternKind::AlternateRemote,
        subject: Subject::Site(facts.site),
        at_stake,
        evidence: vec![
            share("of the changes of node that accesses in random order would have", facts.turns),
            number(
                "hand-overs from node to node",
                (facts.stretches.saturating_sub(facts.instances)) as f64,
                Unit::Count,
            ),
            number("mean time of use by one node", facts.stretch_ns, Unit::Nanoseconds),
        ],
        criterion: Criterion::below(facts.turns, TURNS, "ratio of the changes of node to those of a random order"),
        would_change: vec!["nodes use it at the same time in another phase or with other input".to_owned()],
        candidates: vec![
            FixCandidate::of(FixKind::MigrateAtHandOver, facts),
            FixCandidate::of(FixKind::Interleave, facts),
        ],
    })
}
