//! Tier misplacement: what is used often lies on a node without CPUs, whose memory is slower for everybody.

use super::{Draft, MATERIAL, PatternKind, Scene, Subject, Sure, Unit, number, share};
use crate::estimate::{Estimate, Tally};
use crate::facts::SiteFacts;
use crate::fixes::{FixCandidate, FixKind};

pub(super) fn detect(scene: &Scene<'_>, facts: &SiteFacts, at_stake: Estimate) -> Option<Draft> {
    let far = |node: usize| scene.machine.nodes()[node].has_memory() && !scene.has_cpus(node);
    let all: f64 = facts.on.iter().sum();
    let on_far: f64 = (0..facts.on.len()).filter(|&node| far(node)).map(|node| facts.on[node]).sum();
    if all <= 0.0 || on_far < 0.5 * all {
        return None;
    }
    // The interval of a share of its samples.
    let part = |weight: f64| Tally {
        samples: (facts.samples as f64 * weight / all) as u64,
        weight,
        variance: weight * all / facts.samples as f64,
    };
    let slow = part(on_far).share_of(&part(all));
    (slow.value * at_stake.value >= MATERIAL).then(|| Draft {
        pattern: PatternKind::TierMisplacement,
        subject: Subject::Site(facts.site),
        at_stake,
        evidence: vec![
            share("of its accesses are answered by nodes without CPUs", slow),
            number("bytes it would take from nearer memory", facts.live_bytes as f64, Unit::Bytes),
        ],
        sure: Sure::above(slow, 0.5, "share of its accesses on nodes without CPUs"),
        would_change: vec![
            "too little free memory on nodes with CPUs: colder objects would have to move out first".to_owned(),
        ],
        candidates: vec![
            FixCandidate::of(FixKind::NearTier, facts),
            FixCandidate::of(FixKind::FirstTouchByUsers, facts),
        ],
    })
}
