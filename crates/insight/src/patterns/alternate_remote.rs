//! Alternate remote accesses: several nodes use an object, one after the other, each for a while.

use super::{Draft, PatternKind, Scene, Subject, Sure, Unit, number, share};
use crate::estimate::Estimate;
use crate::facts::SiteFacts;
use crate::fixes::{FixCandidate, FixKind};

/// Half of what taking turns at random gives: halfway between at once and one after the other.
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
            share("changes of node from sample to sample, over those of nodes that take turns at random", facts.turns),
            number(
                "hand-overs from node to node",
                (facts.stretches.saturating_sub(facts.instances)) as f64,
                Unit::Count,
            ),
            number("mean time in one node's hands", facts.stretch_ns, Unit::Nanoseconds),
        ],
        sure: Sure::below(facts.turns, TURNS, "changes of node over those expected at random"),
        would_change: vec![
            "hand-overs too quick for the samples to see: then the nodes use it at the same time".to_owned(),
        ],
        candidates: vec![
            FixCandidate::of(FixKind::MigrateAtHandOver, facts),
            FixCandidate::of(FixKind::Interleave, facts),
        ],
    })
}
