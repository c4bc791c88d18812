//! A hot page: one small page draws more of all memory accesses than an even spread would give a whole node, so no placement of whole pages is even.

use super::{Draft, PatternKind, Scene, Subject, Sure, Unit, number, share};
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
            share(&format!("of all memory accesses go to the page at {:#x}", hottest.page.1 * 4096), hottest.share),
            number("nodes use it", f64::from(hottest.nodes), Unit::Count),
            number("such pages in this site", facts.hot.len() as f64, Unit::Count),
        ],
        sure: Sure::above(hottest.share, fair, "the page's share of all accesses, against one node's even part"),
        would_change: vec!["an even spread of accesses over the object's pages in a longer recording".to_owned()],
        candidates,
    })
}
