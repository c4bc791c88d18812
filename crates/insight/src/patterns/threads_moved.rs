//! Threads moved by the scheduler: threads run on other nodes than the one that holds the memory they use.

use numapilot_trace::ids::ThreadIndex;

use super::{Criterion, Draft, MATERIAL, PatternKind, Scene, Subject, Unit, number, share};
use crate::estimate::Tally;
use crate::fixes::FixCandidate;
use crate::usage::index_of;

pub(super) fn detect(scene: &Scene<'_>) -> Vec<Draft> {
    let moved: Vec<ThreadIndex> = (scene.seats.of_moved.iter().enumerate())
        .filter_map(|(thread, seat)| seat.map(|_| ThreadIndex(thread as u32)))
        .collect();
    if moved.is_empty() {
        return Vec::new();
    }
    let (mut away, mut caused, mut remote, mut all) = <(Tally, Tally, Tally, Tally)>::default();
    let index = |node| index_of(scene.machine, node);
    for access in scene.analysis.accesses() {
        let (Some(from), Some(home)) = (index(access.node), index(access.home)) else { continue };
        all.add(access);
        if home != from {
            remote.add(access);
        }
        let moved_from = scene.seats.of_moved[access.thread.0 as usize].filter(|seat| *seat != from);
        let Some(seat) = moved_from else { continue };
        away.add(access);
        if home == seat {
            caused.add(access);
        }
    }
    let caused_share = caused.share_of(&remote);
    let at_stake = scene.all_at_stake();
    if caused_share.value * at_stake < MATERIAL {
        return Vec::new();
    }
    vec![Draft {
        pattern: PatternKind::ThreadsMoved,
        subject: Subject::Threads(moved.clone()),
        at_stake: caused_share.scaled(at_stake),
        evidence: vec![
            number("threads that ran on several nodes", moved.len() as f64, Unit::Count),
            share(
                "of all accesses were made while the thread ran on another node than its memory's",
                away.share_of(&all),
            ),
            share("of all remote accesses would have been local without the moves", caused_share),
        ],
        criterion: Criterion::above(
            caused_share,
            MATERIAL / at_stake.max(MATERIAL),
            "share of remote accesses that pinning would avoid",
        ),
        would_change: vec![
            "the nodes of their memory have more runnable threads than CPUs, because pinned threads would then wait for a CPU"
                .to_owned(),
        ],
        candidates: vec![FixCandidate::of_threads()],
    }]
}
