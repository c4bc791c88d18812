//! Remote use after allocation: one node placed the object, and nearly all accesses come from another node.

use numapilot_machine::{NodeId, NodeIndex};

use super::{Criterion, Draft, NEARLY_ALL, OF_ITS_ACCESSES_REMOTE, PatternKind, Scene, Subject, Unit, number, share};
use crate::estimate::Estimate;
use crate::facts::SiteFacts;
use crate::fixes::{FixCandidate, FixKind};

/// Share of the instances' accesses that one node must have for the whole site to be bound to it.
const ONE_NODE: f64 = 0.99;

pub(super) fn detect(scene: &Scene<'_>, facts: &SiteFacts, at_stake: Estimate) -> Option<Draft> {
    // No second node uses it: a thread without samples must have placed it.
    let is_elsewhere = facts.after_samples < facts.samples / 10 && facts.remote.value >= 0.5;
    let share_of_one = if is_elsewhere { facts.opening } else { facts.by_one_node };
    if share_of_one.value < NEARLY_ALL {
        return None;
    }
    // A node without memory can be the main user, but nothing can be allocated there.
    let node = |index: NodeIndex| scene.machine.nodes()[scene.memory_of(index)].id;
    let one: Option<NodeId> = facts.main_node.filter(|_| facts.main_node_share >= ONE_NODE).map(node);
    let mut candidates = vec![FixCandidate::of(FixKind::MigrateAtHandOver, facts)];
    candidates.insert(0, FixCandidate::of(one.map_or(FixKind::FirstTouchByUsers, FixKind::AllocateOnNode), facts));
    Some(Draft {
        pattern: PatternKind::RemoteAfterAllocation,
        subject: Subject::Site(facts.site),
        at_stake,
        evidence: vec![
            share("of its accesses come from one node (per instance)", share_of_one),
            share("of its accesses come before any other node uses it", facts.opening),
            share("of its accesses are to pages on the node of its first user", facts.on_first_users),
            share(OF_ITS_ACCESSES_REMOTE, facts.remote),
            number("instances", facts.instances as f64, Unit::Count),
        ],
        criterion: Criterion::above(share_of_one, NEARLY_ALL - 0.05, "share of accesses from one node"),
        would_change: vec!["other nodes use it in a phase that was not recorded".to_owned()],
        candidates,
    })
}
