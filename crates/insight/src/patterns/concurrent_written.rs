//! Concurrent, written: several nodes read and write an object at the same time.

use super::concurrent_read::{users, writes_allowed};
use super::{Draft, PatternKind, Scene, Subject, Sure, Unit, number, share};
use crate::estimate::Estimate;
use crate::facts::SiteFacts;
use crate::fixes::{FixCandidate, FixKind};

pub(super) fn detect(scene: &Scene<'_>, facts: &SiteFacts, at_stake: Estimate) -> Option<Draft> {
    if users(facts) < 2 {
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
            share("of its accesses write, once it is shared", facts.writes),
            share("of writes is what copies would bear on this machine", Estimate::exact(most)),
            number("nodes use it at the same time", users(facts) as f64, Unit::Count),
            share("of its accesses come from the node that uses the page most", facts.by_page_user),
        ],
        sure: Sure::above(facts.writes, most, "share of writes"),
        would_change: vec![
            "threads that could share one node without leaving cores idle: then no spreading is needed".to_owned(),
        ],
        candidates,
    })
}
