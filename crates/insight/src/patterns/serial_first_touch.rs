//! First touch by one thread: an initialisation loop put all pages on one node, and then each node's threads use their own part.

use super::{Draft, NEARLY_ALL, PatternKind, Scene, Subject, Sure, share};
use crate::estimate::Estimate;
use crate::facts::SiteFacts;
use crate::fixes::{FixCandidate, FixKind};

pub(super) fn detect(scene: &Scene<'_>, facts: &SiteFacts, at_stake: Estimate) -> Option<Draft> {
    let threshold = needed(scene, facts);
    if facts.by_page_user.value < threshold {
        return None;
    }
    let all: f64 = facts.on.iter().sum();
    let on_one = facts.on.iter().copied().fold(0.0, f64::max) / all.max(1.0);
    let is_serial = on_one >= NEARLY_ALL && facts.on_first_users.value >= 0.5;
    let mut evidence = vec![
        share(
            "of its accesses come from the node that uses the page most (told by other cache lines)",
            facts.by_page_user,
        ),
        share("would come from the main node if all of it had to be in one place", facts.by_one_node),
        share("of its accesses are on pages where its first user ran", facts.on_first_users),
    ];
    if !facts.first_function.is_empty() {
        evidence.push(share(
            &format!("of its accesses come before others use it, the writes in {}", facts.first_function),
            facts.opening,
        ));
    }
    Some(Draft {
        pattern: if is_serial { PatternKind::SerialFirstTouch } else { PatternKind::RemoteAfterAllocation },
        subject: Subject::Site(facts.site),
        at_stake,
        evidence,
        sure: Sure::above(facts.by_page_user, threshold, "share from the page's main user"),
        would_change: vec![
            "parts that change hands from run to run, or from phase to phase: dynamic scheduling does that".to_owned(),
        ],
        candidates: vec![
            FixCandidate::of(FixKind::ParallelFirstTouch, facts),
            FixCandidate::of(FixKind::Interleave, facts),
        ],
    })
}

/// Pages are one node's each when their main users make more than the middle between what any choice of node would give and all.
pub(super) fn needed(scene: &Scene<'_>, facts: &SiteFacts) -> f64 {
    let blind = facts.by_one_node.value.max(1.0 / scene.memory_nodes() as f64);
    (1.0 + blind) / 2.0
}
