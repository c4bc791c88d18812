//! Tier misplacement: frequently used memory lies on a node without CPUs, whose memory is slower for every thread. Memory of such a node that has more
//! bandwidth than that of nodes with CPUs (HBM) is none of these.

use numapilot_machine::NodeIndex;

use super::{Criterion, Draft, MATERIAL, PatternKind, Scene, Subject, Unit, number, share};
use crate::estimate::{Estimate, Tally};
use crate::facts::SiteFacts;
use crate::fixes::{FixCandidate, FixKind};

pub(super) fn detect(scene: &Scene<'_>, facts: &SiteFacts, at_stake: Estimate) -> Option<Draft> {
    let far = |node: NodeIndex| scene.machine.is_slow_memory(&scene.machine.nodes()[node]);
    let (mut all, mut on_far) = (Tally::default(), Tally::default());
    for (node, on) in NodeIndex::all(facts.on.len()).zip(&facts.on) {
        all.merge(on);
        if far(node) {
            on_far.merge(on);
        }
    }
    if all.weight <= 0.0 || on_far.weight < 0.5 * all.weight {
        return None;
    }
    let slow = on_far.share_of(&all);
    (slow.value * at_stake.value >= MATERIAL).then(|| Draft {
        pattern: PatternKind::TierMisplacement,
        subject: Subject::Site(facts.site),
        at_stake,
        evidence: vec![
            share("of its accesses are served by nodes without CPUs", slow),
            number("memory that it would take on nodes with CPUs", facts.live_bytes as f64, Unit::Bytes),
        ],
        criterion: Criterion::above(slow, 0.5, "share of its accesses on nodes without CPUs"),
        would_change: vec![
            "the nodes with CPUs have too little free memory, because then colder objects would have to move away first".to_owned(),
        ],
        // Where nodes with CPUs are full of accesses, or have too little memory, a part can stay.
        candidates: [FixKind::NearTier, FixKind::FirstTouchByUsers]
            .map(|kind| FixCandidate::of(kind, facts))
            .into_iter()
            .chain(FixCandidate::by_bandwidth(scene, facts))
            .collect(),
    })
}
