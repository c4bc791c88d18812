//! Concurrent, written: several nodes read and write an object at the same time.

use super::concurrent_read::{is_concurrent, users, writes_allowed};
use super::{Criterion, Draft, PatternKind, Scene, Subject, Unit, number, share};
use crate::estimate::Estimate;
use crate::facts::SiteFacts;
use crate::fixes::{FixCandidate, FixKind};

pub(super) fn detect(scene: &Scene<'_>, facts: &SiteFacts, at_stake: Estimate) -> Option<Draft> {
    if !is_concurrent(facts) {
        return None;
    }
    let most = writes_allowed(scene);
    let mut candidates =
        vec![FixCandidate::of(FixKind::Interleave, facts), FixCandidate::of(FixKind::ParallelFirstTouch, facts)];
    candidates.extend(FixCandidate::weighted(scene, facts));
    Some(Draft {
        pattern: PatternKind::ConcurrentWritten,
        subject: Subject::Site(facts.site),
        at_stake,
        evidence: vec![
            share("of its accesses write after its initialisation", facts.writes),
            share(
                "is the highest share of writes at which a copy per node would gain on this machine",
                Estimate::exact(most),
            ),
            number("nodes that use it at the same time", users(facts) as f64, Unit::Count),
            share("of its accesses come from the node that uses the page most", facts.by_page_user),
        ],
        criterion: Criterion::above(facts.writes, most, "share of writes"),
        would_change: vec![
            "one node has enough CPUs for all threads, because its memory is then local to all of them".to_owned(),
        ],
        candidates,
    })
}
