//! Process-wide sharing: the threads of each process share its memory and run on several nodes, while every process would fit on one.

use numapilot_trace::ids::ProcessIndex;

use super::{Criterion, Draft, MATERIAL, PatternKind, Scene, Subject, Unit, number, share};
use crate::fixes::FixCandidate;

/// Least share of the remote accesses that must be to memory of the thread's own process.
const MOST: f64 = 0.5;

/// Whether the program as a whole shows the pattern.
fn is_so(scene: &Scene<'_>) -> bool {
    scene.processes.fill(scene.machine) && scene.processes.own_remote.value >= MOST
}

pub(super) fn detect(scene: &Scene<'_>) -> Vec<Draft> {
    let processes = &scene.processes;
    let at_stake = scene.all_at_stake();
    if !is_so(scene) || at_stake * processes.own_remote.value < MATERIAL {
        return Vec::new();
    }
    vec![Draft {
        pattern: PatternKind::ProcessWideSharing,
        subject: Subject::Processes(processes.spread.iter().map(|&process| ProcessIndex(process)).collect()),
        at_stake: processes.own_remote.scaled(at_stake),
        evidence: vec![
            number("processes that each run on several nodes", processes.spread.len() as f64, Unit::Count),
            share("of all remote accesses are to memory of the thread's own process", processes.own_remote),
        ],
        criterion: Criterion::above(processes.own_remote, MOST, "share of remote accesses within processes"),
        would_change: vec![
            "the processes have very unequal work, because the busiest process would then wait for CPUs of its node"
                .to_owned(),
        ],
        candidates: vec![FixCandidate::of_processes()],
    }]
}
