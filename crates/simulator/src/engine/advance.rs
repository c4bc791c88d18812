//! Threads in simulated time: a discrete-event run over their timelines, with the latencies of one epoch. Events happen at exact times; nothing is
//! rounded to epochs.

use crate::engine::agenda::Agenda;
use crate::engine::runner::{Epoch, RunContext, Runners};
use crate::error::SimulatorError;

/// An epoch ends early when this share of the working threads began something else.
const CHANGED_SHARE: f64 = 0.25;

/// Runs until `horizon_ns`, or until the load has changed and at least `least_ns` have passed, or until all have ended.
pub(super) fn advance(
    runners: &mut Runners,
    horizon_ns: f64,
    least_ns: f64,
    around: &mut RunContext<'_>,
) -> Result<Epoch, SimulatorError> {
    let threads = runners.all.len();
    let begin = runners.now_ns;
    let mut epoch = Epoch { ready_ns: vec![0.0; threads], lost_ns: vec![0.0; threads], ..Epoch::default() };
    runners.begin_epoch(around);
    let mut agenda = Agenda::new(runners, around.program);
    agenda.update(runners, around.program, &mut epoch);
    while runners.now_ns < horizon_ns && !runners.is_finished() {
        let next = agenda.next_ns(runners.now_ns);
        if next.is_infinite() {
            let_one_go(runners, &agenda, around)?;
            epoch.let_go += 1;
            agenda.update(runners, around.program, &mut epoch);
            continue;
        }
        runners.now_ns = next.clamp(runners.now_ns, horizon_ns);
        complete(runners, &mut agenda, around, &mut epoch)?;
        let changed = runners.changes() as f64 > CHANGED_SHARE * agenda.working() as f64;
        if changed && runners.now_ns - begin >= least_ns {
            break;
        }
    }
    agenda.close(runners, around.program, &mut epoch);
    epoch.end_ns = runners.now_ns;
    Ok(epoch)
}

/// Starts the next step of every thread whose step is done.
fn complete(
    runners: &mut Runners,
    agenda: &mut Agenda,
    around: &mut RunContext<'_>,
    epoch: &mut Epoch,
) -> Result<(), SimulatorError> {
    loop {
        let due = agenda.due(runners, around.program, epoch);
        if due.is_empty() {
            return Ok(());
        }
        for thread in due {
            runners.pass_step(thread, around)?;
        }
        agenda.update(runners, around.program, epoch);
    }
}

/// Nobody works or sleeps: the follower who waits for the earliest point goes on. Without one, the program has locked itself up.
fn let_one_go(runners: &mut Runners, agenda: &Agenda, around: &mut RunContext<'_>) -> Result<(), SimulatorError> {
    let Some(first) = agenda.first_follower() else {
        return Err(runners.deadlock(around.program));
    };
    runners.pass_step(first, around)
}
