//! A hot page: one small page receives more of all memory accesses than a whole node would under an even spread. No placement of whole pages can be even then.

use super::{Criterion, Draft, PatternKind, Scene, Subject, Unit, number, share};
use crate::estimate::Estimate;
use crate::facts::SiteFacts;
use crate::fixes::{FixCandidate, FixKind};

pub(super) fn detect(scene: &Scene<'_>, facts: &SiteFacts, at_stake: Estimate) -> Option<Draft> {
    let hottest = facts.hot.first()?;
    let fair = 1.0 / scene.memory_nodes() as f64;
    let mut candidates = vec![FixCandidate::of(FixKind::SpreadHot, facts)];
    if facts.write_samples == 0 {
        candidates.insert(0, FixCandidate::of(FixKind::Replicate, facts));
    }
    Some(Draft {
        pattern: PatternKind::HotPage,
        subject: Subject::Site(facts.site),
        at_stake,
        evidence: vec![
            share(&format!("of all memory accesses go to the page at {:#x}", hottest.page.1.address()), hottest.share),
            number("nodes that use it", f64::from(hottest.nodes), Unit::Count),
            number("hot pages of this allocation site", facts.hot.len() as f64, Unit::Count),
        ],
        criterion: Criterion::above(hottest.share, fair, "share of all accesses that go to this page"),
        would_change: vec!["a longer recording shows accesses spread evenly over the object's pages".to_owned()],
        candidates,
    })
}
