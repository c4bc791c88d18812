//! A saturated link: accesses queue on their way, not at the controller.

use numapilot_machine::LinkId;

use super::{Draft, MATERIAL, PatternKind, Scene, Subject, Sure, Unit, number, share};
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
            share("busy, while it is full (modelled)", Estimate::exact(congestion.busy)),
            number("latency under load of what crosses it (modelled)", congestion.loaded_ns, Unit::Nanoseconds),
            number("latency of the same accesses when idle", congestion.idle_ns, Unit::Nanoseconds),
        ],
        sure: Sure::above(congestion.lost, MATERIAL, "share of the threads' time lost on this link"),
        would_change: vec!["a measured latency of these accesses that is near the idle one".to_owned()],
        candidates: FixCandidate::shorten(scene),
    })
}
