//! Private objects on shared pages: each object is used by the node that allocated it, yet its pages hold objects of other nodes too: base pages (of 4 KiB),
//! or huge ones (of 2 MiB).

use super::{Criterion, Draft, NEARLY_ALL, PatternKind, Scene, Subject, share};
use crate::estimate::Estimate;
use crate::facts::{PageSizes, SiteFacts};
use crate::fixes::{FixCandidate, FixKind};

pub(super) fn detect(scene: &Scene<'_>, facts: &SiteFacts, at_stake: Estimate) -> Option<Draft> {
    let by_allocator = is_private(facts)?;
    // At least half of the remote accesses must be to such pages. Local accesses to them do no harm.
    let needed = facts.remote.value / 2.0;
    let [base, huge] = PageSizes::of(scene.analysis.trace().meta().base_page_bytes()).words();
    let (mixed, size) =
        if facts.on_mixed_small.value >= needed { (facts.on_mixed_small, base) } else { (facts.on_mixed_large, huge) };
    if mixed.value < needed || facts.remote.value <= 0.0 {
        return None;
    }
    Some(Draft {
        pattern: PatternKind::PrivateOnSharedPages,
        subject: Subject::Site(facts.site),
        at_stake,
        evidence: vec![
            share("of its accesses come from the node of the thread that allocated it", by_allocator),
            share(&format!("of its accesses are to {size} pages that several nodes use"), mixed),
            share("of its accesses are remote", facts.remote),
        ],
        criterion: Criterion::above(
            by_allocator,
            NEARLY_ALL - 0.05,
            "share of accesses from the allocating thread's node",
        ),
        would_change: vec!["other nodes access the same objects in another phase or with other input".to_owned()],
        candidates: vec![FixCandidate::of(FixKind::LocalArenas, facts), FixCandidate::of(FixKind::Interleave, facts)],
    })
}

/// The share of accesses from the allocating thread's node; `None` where it is below [`NEARLY_ALL`] or no allocating thread is known.
pub(super) fn is_private(facts: &SiteFacts) -> Option<Estimate> {
    facts.by_allocator.filter(|share| share.value >= NEARLY_ALL)
}
