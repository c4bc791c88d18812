//! What the reader of a report must know, in whole sentences.

use crate::engine::run_stats::RunStats;

/// Share of the simulated time above which unsettled epochs are worth a word.
const UNSETTLED_SHARE: f64 = 0.01;

/// Notes on a run.
pub(crate) fn notes(run_stats: &RunStats) -> Vec<String> {
    let mut notes = Vec::new();
    let convergence = &run_stats.convergence;
    let share = convergence.unsettled_ns / run_stats.total.to_ns.max(1.0);
    if share > UNSETTLED_SHARE {
        let doubt = 100.0 * convergence.doubt_ns / run_stats.total.to_ns.max(1.0);
        notes.push(format!(
            "In {:.1} % of the simulated time the solver did not converge: the run time is uncertain by at most {doubt:.2} %.",
            100.0 * share
        ));
    }
    if convergence.let_go > 0 {
        let count = convergence.let_go;
        let waits = if count == 1 { "wait" } else { "waits" };
        notes.push(format!("{count} {waits} for other threads ended early, because every thread was waiting."));
    }
    if run_stats.moves.samples_lost > 0 {
        notes.push(format!("The sampler lost {} of its samples.", run_stats.moves.samples_lost));
    }
    notes
}
