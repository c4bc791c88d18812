//! A saturated memory controller: accesses queue there, while other controllers have room.

use super::{Draft, MATERIAL, PatternKind, Scene, Subject, Sure, Unit, number, share};
use crate::estimate::Estimate;
use crate::fixes::FixCandidate;
use crate::scene::Congestion;

pub(super) fn detect(scene: &Scene<'_>) -> Vec<Draft> {
    scene.congestion().iter().filter_map(|congestion| draft(scene, congestion)).collect()
}

fn draft(scene: &Scene<'_>, congestion: &Congestion) -> Option<Draft> {
    let node = congestion.controller?;
    // Where all are as full, moving pages between them gains nothing.
    let has_room = congestion.others_busy < congestion.busy;
    if congestion.lost.value < MATERIAL || !has_room {
        return None;
    }
    Some(Draft {
        pattern: PatternKind::SaturatedController,
        subject: Subject::Controller(scene.machine.nodes()[node].id),
        at_stake: congestion.lost,
        evidence: vec![
            share("busy, while it is full (modelled)", Estimate::exact(congestion.busy)),
            share("busy: the mean of the other controllers then (modelled)", Estimate::exact(congestion.others_busy)),
            number("latency under load (modelled)", congestion.loaded_ns, Unit::Nanoseconds),
            number("latency of the same accesses when idle", congestion.idle_ns, Unit::Nanoseconds),
        ],
        sure: Sure::above(congestion.lost, MATERIAL, "share of the threads' time lost in this queue"),
        would_change: vec!["a measured latency to this node that is near the idle one".to_owned()],
        candidates: FixCandidate::relieve(scene, node),
    })
}
