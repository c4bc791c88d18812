//! Windows before and after changes, and what they say of these. Pure.
//!
//! A *measure* is a figure per window for which greater is better, such as instructions per nanosecond of running. A batch of changes is evaluated once enough
//! windows have passed: it is undone if the measure fell by more than the limit and by more than chance explains, and kept otherwise.

use std::collections::VecDeque;

use numapilot_random::quantile::student;

/// Number of windows kept from before a change.
const BEFORE: usize = 6;
/// Number of windows after a change, before it is evaluated.
pub(crate) const AFTER: usize = 6;
/// Number of windows without changes that are measured after changes were undone: what comes next is compared with these.
pub(crate) const YARDSTICK: usize = 3;
/// Number of windows that the first changes need to be compared with anything at all: before them no more are waited for.
pub(crate) const LEAST: usize = 2;
/// Number of consecutive windows with changes, after which no further changes are made until the batch is evaluated.
pub(crate) const LONGEST: usize = 20;
/// Number of consecutive windows without a measure, after which there is taken to be none: in single ones no access may have been seen.
pub(crate) const SILENCE: usize = 20;

/// The evaluation of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// Mean of the measure before the changes, and number of windows.
    pub before: (f64, usize),
    /// Mean of the measure after the changes, and number of windows.
    pub after: (f64, usize),
    /// Change in percent; a positive value is an improvement.
    pub change_percent: f64,
    /// Half-width of its 95 % confidence interval, in percent.
    pub plus_minus_percent: f64,
    /// Whether the batch is to be undone.
    pub undo: bool,
}

impl Judgement {
    /// Whether the measure rose by more than chance explains.
    #[must_use]
    pub fn is_gain(&self) -> bool {
        self.change_percent > self.plus_minus_percent
    }
}

/// What the end of a window has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WindowEnd {
    /// The evaluation of a batch, once enough windows have passed.
    pub judgement: Option<Judgement>,
    /// What changes that were undone have cost, in nanoseconds of the targets' running time, once that is known; 0: nothing, or it is not known yet.
    pub harm_ns: f64,
}

/// Changes that were undone, until it is known what they have cost.
#[derive(Clone, Debug)]
struct Undone {
    /// The windows by which they were judged.
    with: Vec<f64>,
    /// Running time of the targets' threads from the first of the changes until they were undone, in nanoseconds.
    ran_ns: f64,
}

/// Evaluates changes by the windows before and after them.
#[derive(Clone, Debug)]
pub struct HarmWindows {
    max_harm: f64,
    windows: VecDeque<f64>,
    before: Vec<f64>,
    /// Windows since the last change of the batch that is being evaluated; `None`: there is no batch.
    after: Option<Vec<f64>>,
    /// Windows since the first change of the batch.
    since_first: usize,
    /// Running time of the targets' threads since then, in nanoseconds, but for long times without a measure.
    batch_ran_ns: f64,
    /// Windows since the last one with a measure, of those in which it was looked for.
    silent: usize,
    /// Whether no measure is looked for in this window.
    is_skipped: bool,
    /// Windows without changes since some were undone; at the start as many fewer as the first changes wait for.
    fresh: usize,
    /// The changes that were undone last, until `fresh` is [`YARDSTICK`].
    undone: Option<Undone>,
}

impl HarmWindows {
    /// `max_harm`: the share by which the measure may fall, such as 0.01.
    #[must_use]
    pub fn new(max_harm: f64) -> HarmWindows {
        HarmWindows {
            max_harm,
            windows: VecDeque::new(),
            before: Vec::new(),
            after: None,
            since_first: 0,
            batch_ran_ns: 0.0,
            silent: 0,
            is_skipped: false,
            fresh: YARDSTICK - LEAST,
            undone: None,
        }
    }

    /// Whether there may ever be a measure, for which the first changes then wait, [`SILENCE`] windows at most.
    #[must_use]
    pub fn with_measure(self, may_come: bool) -> HarmWindows {
        HarmWindows { silent: if may_come { 0 } else { SILENCE }, ..self }
    }

    /// The share by which the measure may fall.
    #[must_use]
    pub fn max_harm(&self) -> f64 {
        self.max_harm
    }

    /// Sets another share by which the measure may fall. The batch that is being evaluated stays.
    pub fn set_max_harm(&mut self, max_harm: f64) {
        self.max_harm = max_harm;
    }

    /// Whether changes may be made now.
    ///
    /// # Errors
    /// Changes wait for their evaluation, or what the next ones are compared with is not known yet.
    pub fn may_change(&self) -> Result<(), &'static str> {
        if self.is_full() {
            Err("the last changes are being measured before more are made")
        } else if self.is_measuring() {
            Err("how fast the programs are without changes is being measured")
        } else {
            Ok(())
        }
    }

    /// Whether a batch is being evaluated.
    #[must_use]
    pub fn is_judging(&self) -> bool {
        self.after.is_some()
    }

    /// Whether changes wait for windows, which pass whatever is ordered: those by which the batch is evaluated, or with which the next one is compared.
    #[must_use]
    pub fn must_wait(&self) -> bool {
        self.is_full() || self.is_measuring()
    }

    /// Whether the batch has lasted so long that it is evaluated before it goes on, if there is something to evaluate it by.
    fn is_full(&self) -> bool {
        self.has_measure() && self.is_judging() && self.since_first >= LONGEST
    }

    /// Whether there is taken to be a measure, so that changes will be evaluated and may be undone.
    #[must_use]
    pub fn has_measure(&self) -> bool {
        self.silent < SILENCE
    }

    /// Whether windows are missing that the next changes will be compared with, be there a measure now or not.
    #[must_use]
    pub fn lacks_windows(&self) -> bool {
        self.after.is_none() && self.fresh < YARDSTICK
    }

    /// Whether the windows are being measured that the next changes will be compared with: no changes may be made meanwhile. Those from before changes that
    /// were undone may be of another phase of the program, in which everything would be undone.
    fn is_measuring(&self) -> bool {
        self.has_measure() && self.lacks_windows()
    }

    /// Registers changes.
    pub fn changed(&mut self) {
        if self.after.is_none() {
            self.since_first = 0;
            self.batch_ran_ns = 0.0;
            self.before = self.windows.iter().copied().collect();
            // What follows says nothing of the changes before these.
            self.undone = None;
        }
        // Windows in which pages are copied show the cost of copying, not its benefit.
        self.after = Some(Vec::new());
    }

    /// Registers that changes are still being undone in a window in which the targets' threads ran for `ran_ns` nanoseconds.
    pub fn being_undone(&mut self, ran_ns: f64) {
        if let Some(undone) = &mut self.undone {
            undone.ran_ns += ran_ns;
        }
    }

    /// Registers that no measure is looked for in this window, because the targets are idle, say: that there is none will mean nothing.
    pub fn skip_window(&mut self) {
        self.is_skipped = true;
    }

    /// Ends a window. `measure` is its measure, if there is one; `ran_ns` is the running time of the targets' threads.
    pub fn window(&mut self, measure: Option<f64>, ran_ns: f64) -> WindowEnd {
        let measure = measure.filter(|measure| measure.is_finite() && *measure > 0.0);
        let is_skipped = std::mem::take(&mut self.is_skipped);
        self.silent = match measure {
            Some(_) => 0,
            None if is_skipped => self.silent,
            None => self.silent.saturating_add(1),
        };
        self.since_first += 1;
        // What hours in which nothing was seen have cost is not known from six windows after them.
        if self.has_measure() && !is_skipped {
            self.batch_ran_ns += ran_ns;
        }
        let Some(measure) = measure else { return WindowEnd::default() };
        if self.after.is_none() && self.fresh == 0 {
            self.windows.clear();
        }
        self.windows.push_back(measure);
        if self.windows.len() > BEFORE {
            self.windows.pop_front();
        }
        let Some(after) = self.after.as_mut() else {
            self.fresh = self.fresh.saturating_add(1);
            let harm_ns = if self.fresh >= YARDSTICK { self.harm_of_undone() } else { 0.0 };
            return WindowEnd { judgement: None, harm_ns };
        };
        after.push(measure);
        if after.len() < AFTER {
            return WindowEnd::default();
        }
        WindowEnd { judgement: Some(self.judge_batch()), harm_ns: 0.0 }
    }

    /// Evaluates the batch, which ends with that.
    fn judge_batch(&mut self) -> Judgement {
        let after = self.after.take().unwrap_or_default();
        let before = std::mem::take(&mut self.before);
        let judgement = judge(&before, &after, self.max_harm);
        self.fresh = YARDSTICK;
        if judgement.undo {
            // Until it is known how it is without them, what follows is compared with how it was before, not with the harm that was done.
            self.windows = before.into();
            self.fresh = 0;
            self.undone = Some(Undone { with: after, ran_ns: self.batch_ran_ns });
        }
        judgement
    }

    /// What undone changes have cost in nanoseconds, now that it was measured how fast the targets are without them; 0: nothing was undone, or it is as slow
    /// without them.
    fn harm_of_undone(&mut self) -> f64 {
        let Some(Undone { with, ran_ns }) = self.undone.take() else { return 0.0 };
        let without: Vec<f64> = self.windows.iter().copied().collect();
        let back = judge(&with, &without, self.max_harm);
        if back.is_gain() { ran_ns * (1.0 - back.before.0 / back.after.0) } else { 0.0 }
    }
}

/// Mean of windows, and the sum of the squares of their distances from it.
fn moments(windows: &[f64]) -> (f64, f64) {
    let mean = windows.iter().sum::<f64>() / (windows.len() as f64).max(1.0);
    (mean, windows.iter().map(|window| (window - mean).powi(2)).sum())
}

/// Half-width of the 95 % confidence interval of the difference of two means of so many windows, by their common variance: of two windows alone it is often far
/// too small. `squares`: the sum of the squares of the windows' distances from their means.
fn half_width(squares: f64, counts: [usize; 2]) -> f64 {
    let freedom = counts.iter().sum::<usize>().saturating_sub(2).max(1);
    let shares: f64 = counts.iter().map(|count| 1.0 / (*count as f64).max(1.0)).sum();
    student(freedom) * (squares / freedom as f64 * shares).sqrt()
}

fn judge(before: &[f64], after: &[f64], max_harm: f64) -> Judgement {
    let ((mean_before, squares_before), (mean_after, squares_after)) = (moments(before), moments(after));
    let half_width = half_width(squares_before + squares_after, [before.len(), after.len()]);
    let enough = before.len() >= LEAST && after.len() >= LEAST;
    let change = if mean_before > 0.0 { mean_after / mean_before - 1.0 } else { 0.0 };
    let error = if mean_before > 0.0 { half_width / mean_before } else { f64::INFINITY };
    Judgement {
        before: (mean_before, before.len()),
        after: (mean_after, after.len()),
        change_percent: 100.0 * change,
        plus_minus_percent: if enough { 100.0 * error } else { f64::INFINITY },
        undo: enough && change < -max_harm && change + error < 0.0,
    }
}
