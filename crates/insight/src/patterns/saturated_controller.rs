//! A saturated memory controller: accesses queue there, while other controllers have bandwidth to spare.

use super::{Criterion, Draft, MATERIAL, PatternKind, Scene, Subject, Unit, number, share};
use crate::estimate::Estimate;
use crate::fixes::FixCandidate;
use crate::scene::Congestion;

pub(super) fn detect(scene: &Scene<'_>) -> Vec<Draft> {
    scene.congestion().iter().filter_map(|congestion| draft(scene, congestion)).collect()
}

fn draft(scene: &Scene<'_>, congestion: &Congestion) -> Option<Draft> {
    let node = congestion.controller?;
    // Where all controllers have the same utilisation, moving pages between them gains nothing.
    let has_room = congestion.others_busy < congestion.busy;
    if congestion.lost.value < MATERIAL || !has_room {
        return None;
    }
    Some(Draft {
        pattern: PatternKind::SaturatedController,
        subject: Subject::Controller(scene.machine.nodes()[node].id),
        at_stake: congestion.lost,
        evidence: vec![
            share("utilisation of this controller while accesses queue (modelled)", Estimate::exact(congestion.busy)),
            share(
                "mean utilisation of the other controllers at that time (modelled)",
                Estimate::exact(congestion.others_busy),
            ),
            number("loaded latency (modelled)", congestion.loaded_ns, Unit::Nanoseconds),
            number("idle latency of the same accesses", congestion.idle_ns, Unit::Nanoseconds),
        ],
        criterion: Criterion::above(congestion.lost, MATERIAL, "share of the threads' time lost in this queue"),
        would_change: vec!["the measured latency to this node is near the idle latency".to_owned()],
        candidates: FixCandidate::relieve(scene, node),
    })
}
