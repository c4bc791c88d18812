//! Allocator arenas across nodes: each object is used by the node that allocated it, and the allocator returned memory of another node. Most
//! often a thread of that other node freed or touched this memory before.

use super::private_on_shared_pages::is_private;
use super::{Criterion, Draft, NEARLY_ALL, PatternKind, Scene, Subject, share};
use crate::estimate::Estimate;
use crate::facts::SiteFacts;
use crate::fixes::{FixCandidate, FixKind};

pub(super) fn detect(_: &Scene<'_>, facts: &SiteFacts, at_stake: Estimate) -> Option<Draft> {
    let by_allocator = is_private(facts)?;
    Some(Draft {
        pattern: PatternKind::ArenasAcrossNodes,
        subject: Subject::Site(facts.site),
        at_stake,
        evidence: vec![
            share("of its accesses come from the node of the thread that allocated it", by_allocator),
            share("of its accesses are remote", facts.remote),
            share(
                "of these remote accesses are on pages where a thread of the home node had a block before",
                facts.recycled,
            ),
        ],
        criterion: Criterion::above(
            by_allocator,
            NEARLY_ALL - 0.05,
            "share of accesses from the allocating thread's node",
        ),
        would_change: vec![
            "the program itself bound this memory (mbind, numactl), because then the allocator did not choose the node"
                .to_owned(),
        ],
        candidates: vec![FixCandidate::of(FixKind::LocalArenas, facts), FixCandidate::of(FixKind::Interleave, facts)],
    })
}
