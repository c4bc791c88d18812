//! First touch by one thread: an initialisation loop put all pages on one node, and then each node's threads use their own part.

use super::{Criterion, Draft, NEARLY_ALL, OF_ITS_ACCESSES_REMOTE, PatternKind, Scene, Subject, share};
use crate::estimate::Estimate;
use crate::facts::SiteFacts;
use crate::fixes::{FixCandidate, FixKind};

pub(super) fn detect(scene: &Scene<'_>, facts: &SiteFacts, at_stake: Estimate) -> Option<Draft> {
    let threshold = needed(scene, facts);
    if facts.by_page_user.value < threshold {
        return None;
    }
    let all: f64 = facts.on.iter().map(|on| on.weight).sum();
    let on_one = facts.on.iter().map(|on| on.weight).fold(0.0, f64::max) / all.max(1.0);
    let is_serial = on_one >= NEARLY_ALL && facts.on_first_users.value >= 0.5;
    let mut evidence = vec![
        share("of its accesses come from the node that uses the page most", facts.by_page_user),
        share("of its accesses come from the node that uses the whole object most", facts.by_one_node),
        share("of its accesses are to pages on the node of its first user", facts.on_first_users),
    ];
    if !is_serial {
        evidence.push(share(OF_ITS_ACCESSES_REMOTE, facts.remote));
    }
    if !facts.first_function.is_empty() {
        evidence.push(share(
            &format!("of its accesses come before any other node uses it (written in {})", facts.first_function),
            facts.opening,
        ));
    }
    Some(Draft {
        pattern: if is_serial { PatternKind::SerialFirstTouch } else { PatternKind::RemoteAfterAllocation },
        subject: Subject::Site(facts.site),
        at_stake,
        evidence,
        criterion: Criterion::above(
            facts.by_page_user,
            threshold,
            "share of accesses from the node that uses the page most",
        ),
        would_change: vec![
            "the parts go to other threads from run to run or from phase to phase, as with dynamic scheduling"
                .to_owned(),
        ],
        candidates: vec![
            FixCandidate::of(FixKind::ParallelFirstTouch, facts),
            FixCandidate::of(FixKind::Interleave, facts),
        ],
    })
}

/// Least share of accesses from the page's main node for which each page counts as one node's: the mid-point between the best share that one node for the
/// whole object would give, and 1.
pub(super) fn needed(scene: &Scene<'_>, facts: &SiteFacts) -> f64 {
    let blind = facts.by_one_node.value.max(1.0 / scene.memory_nodes() as f64);
    (1.0 + blind) / 2.0
}
