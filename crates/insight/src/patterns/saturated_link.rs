//! A saturated link: accesses queue at an interconnect link, not at the memory controller.

use numapilot_machine::LinkId;

use super::{Criterion, Draft, MATERIAL, PatternKind, Scene, Subject, Unit, number, share};
use crate::estimate::Estimate;
use crate::fixes::FixCandidate;
use crate::scene::Congestion;

pub(super) fn detect(scene: &Scene<'_>) -> Vec<Draft> {
    let congestion = scene.congestion();
    let fullest = congestion.iter().filter(|congestion| congestion.link.is_some());
    let fullest = fullest.max_by(|a, b| a.lost.value.total_cmp(&b.lost.value));
    fullest.and_then(|congestion| draft(scene, congestion)).into_iter().collect()
}

fn draft(scene: &Scene<'_>, congestion: &Congestion) -> Option<Draft> {
    let link = congestion.link?;
    if congestion.lost.value < MATERIAL {
        return None;
    }
    Some(Draft {
        pattern: PatternKind::SaturatedLink,
        subject: Subject::Link(LinkId(link as u16)),
        at_stake: congestion.lost,
        evidence: vec![
            share("utilisation of this link while accesses queue (modelled)", Estimate::exact(congestion.busy)),
            number("loaded latency of the accesses that cross it (modelled)", congestion.loaded_ns, Unit::Nanoseconds),
            number("idle latency of the same accesses", congestion.idle_ns, Unit::Nanoseconds),
        ],
        criterion: Criterion::above(congestion.lost, MATERIAL, "share of the threads' time lost on this link"),
        would_change: vec!["the measured latency of these accesses is near the idle latency".to_owned()],
        candidates: FixCandidate::shorten(scene),
    })
}
