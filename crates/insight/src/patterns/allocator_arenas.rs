//! Allocator arenas across nodes: each object is used by the node that allocated it, and the allocator gave it memory that lies on another, most often
//! memory that a thread there had freed or touched before.

use super::private_on_shared_pages::is_private;
use super::{Draft, NEARLY_ALL, PatternKind, Scene, Subject, Sure, share};
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
            share("of its accesses are remote all the same", facts.remote),
            share("of these are on pages where a thread of the page's node had a block before", facts.recycled),
        ],
        sure: Sure::above(by_allocator, NEARLY_ALL - 0.05, "share from the allocating thread's node"),
        would_change: vec![
            "a binding by the program itself (mbind, numactl): then not the allocator chose these nodes".to_owned(),
        ],
        candidates: vec![FixCandidate::of(FixKind::LocalArenas, facts), FixCandidate::of(FixKind::Interleave, facts)],
    })
}
