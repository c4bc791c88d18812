//! Judgements as events of the journal.

use std::time::Duration;

use crate::decision::harm_windows::Judgement;
use crate::event::Comparison;
use crate::event::Verdict;
use crate::event::Windows;

/// The event of a judgement about these decisions, by windows of this length. `measure`: what was measured, with its unit.
pub fn of(judgement: &Judgement, decisions: Vec<u64>, measure: String, window: Duration) -> Comparison {
    let windows = |(mean, windows): (f64, usize)| Windows {
        windows: windows as u64,
        elapsed_ns: windows as u64 * window.as_nanos() as u64,
        mean,
    };
    let is_known = judgement.plus_minus_percent.is_finite();
    Comparison {
        decisions,
        measure,
        with: windows(judgement.after),
        without: windows(judgement.before),
        change_percent: judgement.change_percent,
        plus_minus_percent: is_known.then_some(judgement.plus_minus_percent),
        verdict: if judgement.undo { Verdict::Undone } else { Verdict::Kept },
        because: String::new(),
    }
}
