//! Bounds the harm of changes: evaluates them by [`HarmWindows`], undoes changes that do not pay, and limits the time spent on moving. Pure.
//!
//! Moving is charged to an account, which holds an advance and a share `max_harm` of the targets' running time. The cost of changes that made the program
//! faster for certain is refunded. What undone changes have cost is charged, too, if the program certainly became faster again without them: else it had
//! slowed down by itself. So in the long run changes without benefit, and those that did harm, cost no more than that share.

use super::harm_windows::HarmWindows;
use super::harm_windows::Judgement;

/// Initial balance of the account in nanoseconds.
const ADVANCE_NS: f64 = 1e9;

/// Evaluates changes and limits their cost.
#[derive(Clone, Debug)]
pub struct RegressionGuard {
    windows: HarmWindows,
    /// Balance of the account for moving, in nanoseconds.
    account_ns: f64,
    batch_ns: f64,
}

impl RegressionGuard {
    /// `max_harm`: the share of the targets' running time that may be lost, such as 0.01.
    #[must_use]
    pub fn new(max_harm: f64) -> RegressionGuard {
        RegressionGuard { windows: HarmWindows::new(max_harm), account_ns: ADVANCE_NS, batch_ns: 0.0 }
    }

    /// Whether there may ever be a measure ([`HarmWindows::with_measure`]).
    #[must_use]
    pub fn with_measure(self, may_come: bool) -> RegressionGuard {
        RegressionGuard { windows: self.windows.with_measure(may_come), ..self }
    }

    /// Sets another share of the targets' running time that may be lost. What was spent, and the batch that is being evaluated, stay.
    pub fn set_max_harm(&mut self, max_harm: f64) {
        self.windows.set_max_harm(max_harm);
    }

    /// Whether changes may be made now.
    ///
    /// # Errors
    /// The account is empty, changes wait for their evaluation, or what the next ones are compared with is not known yet.
    pub fn may_change(&self) -> Result<(), &'static str> {
        if self.account_ns <= 0.0 {
            return Err("the time that moving pages may cost is used up (max-harm)");
        }
        self.windows.may_change()
    }

    /// Balance of the account in nanoseconds.
    #[must_use]
    pub fn account_ns(&self) -> f64 {
        self.account_ns
    }

    /// Whether a batch is being evaluated.
    #[must_use]
    pub fn is_judging(&self) -> bool {
        self.windows.is_judging()
    }

    /// Whether changes wait for windows, which pass whatever is ordered ([`HarmWindows::must_wait`]).
    #[must_use]
    pub fn must_wait(&self) -> bool {
        self.windows.must_wait()
    }

    /// Whether there is taken to be a measure, so that changes will be evaluated and may be undone.
    #[must_use]
    pub fn has_measure(&self) -> bool {
        self.windows.has_measure()
    }

    /// Whether windows are missing that the next changes will be compared with, be there a measure now or not.
    #[must_use]
    pub fn lacks_windows(&self) -> bool {
        self.windows.lacks_windows()
    }

    /// Registers changes that took `took_ns` nanoseconds.
    pub fn changed(&mut self, took_ns: f64) {
        self.windows.changed();
        self.account_ns -= took_ns;
        self.batch_ns += took_ns;
    }

    /// Registers time that brings nothing, in nanoseconds: changes were undone (moving back is moving), or none of those that were tried could be made.
    pub fn spent(&mut self, took_ns: f64) {
        self.account_ns -= took_ns;
    }

    /// Returns time to the account that was spent on changes which have certainly paid, in nanoseconds.
    pub fn refund(&mut self, took_ns: f64) {
        self.account_ns = (self.account_ns + took_ns).min(ADVANCE_NS * 4.0);
    }

    /// Registers that changes are still being undone in a window in which the targets' threads ran for `ran_ns` nanoseconds.
    pub fn being_undone(&mut self, ran_ns: f64) {
        self.windows.being_undone(ran_ns);
    }

    /// Registers that no measure is looked for in this window, because the targets are idle, say: that there is none will mean nothing.
    pub fn skip_window(&mut self) {
        self.windows.skip_window();
    }

    /// Ends a window. `measure` is its measure, if there is one; `ran_ns` is the running time of the targets' threads. Returns an evaluation once enough
    /// windows have passed.
    pub fn window(&mut self, measure: Option<f64>, ran_ns: f64) -> Option<Judgement> {
        self.account_ns = (self.account_ns + self.windows.max_harm() * ran_ns).min(ADVANCE_NS * 4.0);
        let end = self.windows.window(measure, ran_ns);
        self.spent(end.harm_ns);
        let judgement = end.judgement?;
        // What has sped the program up costs nothing; what shows no benefit is paid for, even if it stays.
        if judgement.is_gain() {
            self.refund(self.batch_ns);
        }
        self.batch_ns = 0.0;
        Some(judgement)
    }
}

#[cfg(test)]
mod tests {
    //! Programs that get faster, slower and neither.

    use numapilot_random::Random;
    use proptest::prelude::*;

    use super::*;
    use crate::decision::harm_windows::AFTER;
    use crate::decision::harm_windows::LEAST;
    use crate::decision::harm_windows::LONGEST;
    use crate::decision::harm_windows::SILENCE;
    use crate::decision::harm_windows::YARDSTICK;

    /// Windows of 100 ms around `level`, with noise of up to `noise`.
    fn watch(
        regression_guard: &mut RegressionGuard,
        level: f64,
        noise: f64,
        count: usize,
        seed: u64,
    ) -> Option<Judgement> {
        let mut state = seed | 1;
        let mut last = None;
        for _ in 0..count {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = (state >> 40) as f64 / 16_777_216.0 - 0.5;
            last = regression_guard.window(Some(level * (1.0 + 2.0 * noise * random)), 1e8).or(last);
        }
        last
    }

    proptest! {
        #[test]
        fn what_slows_down_is_undone_and_what_does_not_is_kept(change in -0.6..0.6_f64, seed in any::<u64>()) {
            let mut regression_guard = RegressionGuard::new(0.01);
            prop_assert!(watch(&mut regression_guard, 1.0, 0.005, 10, seed).is_none());
            regression_guard.changed(1e6);
            let judgement = watch(&mut regression_guard, 1.0 + change, 0.005, AFTER, seed ^ 77).expect("judged");
            if change < -0.03 {
                prop_assert!(judgement.undo, "{:?}", judgement);
            }
            if change > 0.0 {
                prop_assert!(!judgement.undo, "{:?}", judgement);
            }
        }

        #[test]
        fn moving_that_brings_nothing_takes_no_more_than_its_share(costs in prop::collection::vec(0.0..5e8_f64, 1..200)) {
            let mut regression_guard = RegressionGuard::new(0.01);
            let (mut spent, mut ran, mut last) = (0.0, 0.0, 0.0);
            for cost in costs {
                if regression_guard.may_change().is_ok() {
                    regression_guard.changed(cost);
                    spent += cost;
                    last = cost;
                }
                // No measure: nothing is ever kept.
                regression_guard.window(None, 1e9);
                ran += 1e9;
            }
            prop_assert!(spent <= ADVANCE_NS + 0.01 * ran + last + 1.0, "{} of {}", spent, ran);
        }
    }

    /// Measured or not: what does not speed the program up is charged.
    #[test]
    fn moves_that_show_no_benefit_are_paid_for() {
        let mut regression_guard = RegressionGuard::new(0.01);
        let (mut spent, mut ran) = (0.0, 0.0);
        for _ in 0..200 {
            if regression_guard.may_change().is_ok() {
                regression_guard.changed(5e8);
                spent += 5e8;
            }
            for _ in 0..AFTER {
                regression_guard.window(Some(1.0), 1e8);
                ran += 1e8;
            }
        }
        assert!(spent <= ADVANCE_NS + 0.01 * ran + 5e8, "{spent} of {ran}");
    }

    #[test]
    fn moves_that_pay_cost_nothing() {
        let mut regression_guard = RegressionGuard::new(0.01);
        for batch in 0..20 {
            watch(&mut regression_guard, 1.1_f64.powi(batch), 0.001, 10, 3);
            assert!(regression_guard.may_change().is_ok(), "{batch}");
            regression_guard.changed(5e8);
            watch(&mut regression_guard, 1.1_f64.powi(batch + 1), 0.001, AFTER, 5).expect("judged");
        }
    }

    /// Moving back cost nothing, so that changes which did harm took twice the time that they were charged.
    #[test]
    fn moving_back_is_charged_too() {
        let mut regression_guard = RegressionGuard::new(0.01);
        regression_guard.changed(6e8);
        assert!(regression_guard.may_change().is_ok());
        regression_guard.spent(6e8);
        assert!(regression_guard.may_change().is_err() && (regression_guard.account_ns() + 2e8).abs() < 1.0);
    }

    /// The windows of the harm were the yardstick of the next changes, which might do as much.
    #[test]
    fn what_follows_an_undone_batch_is_compared_with_what_was_before_it() {
        let mut regression_guard = RegressionGuard::new(0.01);
        watch(&mut regression_guard, 1.0, 0.001, 10, 3);
        for seed in [5, 7] {
            regression_guard.changed(1e6);
            let judgement = watch(&mut regression_guard, 0.5, 0.001, AFTER, seed).expect("judged");
            assert!(judgement.undo && judgement.before.0 > 0.99, "{judgement:?}");
        }
    }

    /// A reload of the configuration made a new guard: an advance at each of them, and changes under evaluation that were never undone, however harmful.
    #[test]
    fn another_limit_keeps_the_account_and_the_batch() {
        let mut regression_guard = RegressionGuard::new(0.01);
        watch(&mut regression_guard, 1.0, 0.001, 10, 3);
        regression_guard.changed(3e9);
        assert!(regression_guard.may_change().is_err() && regression_guard.is_judging());
        regression_guard.set_max_harm(0.02);
        assert!(regression_guard.may_change().is_err() && regression_guard.is_judging());
        assert!(watch(&mut regression_guard, 0.5, 0.001, AFTER, 5).expect("judged").undo);
        let before = regression_guard.account_ns();
        regression_guard.window(None, 1e9);
        assert!((regression_guard.account_ns() - before - 0.02 * 1e9).abs() < 1.0, "the new share");
    }

    /// What came next was compared with how it was before the undone changes, and undone as well, for as long as some change came in each window.
    #[test]
    fn a_program_that_slows_down_by_itself_does_not_have_everything_undone() {
        let mut regression_guard = RegressionGuard::new(0.01);
        watch(&mut regression_guard, 1.0, 0.001, 10, 3);
        regression_guard.changed(1e6);
        assert!(watch(&mut regression_guard, 0.5, 0.001, AFTER, 5).expect("judged").undo);
        let before = regression_guard.account_ns();
        for window in 0..YARDSTICK {
            assert!(regression_guard.may_change().is_err() && regression_guard.must_wait(), "{window}");
            watch(&mut regression_guard, 0.5, 0.001, 1, 7 + window as u64);
        }
        assert!(
            regression_guard.account_ns() > before,
            "it was not the changes that slowed it down: nothing is charged"
        );
        assert!(regression_guard.may_change().is_ok());
        regression_guard.changed(1e6);
        let judgement = watch(&mut regression_guard, 0.5, 0.001, AFTER, 11).expect("judged");
        assert!(!judgement.undo && judgement.before.0 < 0.51, "{judgement:?}");
        assert!(regression_guard.may_change().is_ok(), "what was kept is what the next changes are compared with");
    }

    /// Only moving was charged: changes that halved the speed until they were undone could be made again and again.
    #[test]
    fn what_undone_changes_have_cost_is_charged() {
        let mut regression_guard = RegressionGuard::new(0.01);
        watch(&mut regression_guard, 1.0, 0.001, 10, 3);
        regression_guard.changed(1e6);
        assert!(watch(&mut regression_guard, 0.5, 0.001, AFTER, 5).expect("judged").undo);
        // The rate allows no more at once.
        regression_guard.being_undone(4e8);
        regression_guard.window(None, 4e8);
        let before = regression_guard.account_ns();
        watch(&mut regression_guard, 1.0, 0.001, YARDSTICK, 7);
        let charged = before + YARDSTICK as f64 * 1e6 - regression_guard.account_ns();
        // Half of the time of six windows and of that until they were undone.
        assert!((charged - 5e8).abs() < 5e6, "{charged}");
    }

    /// The first changes, of all the largest, were often made before there were two windows to compare them with, and were never undone then.
    #[test]
    fn the_first_changes_wait_for_what_they_are_compared_with() {
        let mut regression_guard = RegressionGuard::new(0.01);
        for _ in 0..LEAST {
            assert!(regression_guard.may_change().is_err());
            regression_guard.window(None, 1e8);
            regression_guard.window(Some(1.0), 1e8);
        }
        assert!(regression_guard.may_change().is_ok());
        regression_guard.changed(1e6);
        assert!(watch(&mut regression_guard, 0.5, 0.001, AFTER, 5).expect("judged").undo);
        let mut unmeasured = RegressionGuard::new(0.01);
        for _ in 0..SILENCE {
            assert!(unmeasured.may_change().is_err());
            unmeasured.window(None, 1e8);
        }
        assert!(unmeasured.may_change().is_ok(), "there is nothing to wait for");
        assert!(RegressionGuard::new(0.01).with_measure(false).may_change().is_ok());
        // A daemon waits for its first programs, and nobody looks how fast these are before they run.
        let mut idle = RegressionGuard::new(0.01);
        for _ in 0..2 * SILENCE {
            idle.skip_window();
            idle.window(None, 0.0);
        }
        assert!(idle.may_change().is_err() && idle.lacks_windows());
        watch(&mut idle, 1.0, 0.001, LEAST, 3);
        assert!(idle.may_change().is_ok() && !idle.lacks_windows());
    }

    /// Six windows at the end of hours were charged as if they had seen all of these.
    #[test]
    fn long_times_in_which_nothing_was_seen_are_not_charged() {
        for is_paused in [false, true] {
            let mut regression_guard = RegressionGuard::new(0.01);
            watch(&mut regression_guard, 1.0, 0.001, 10, 3);
            regression_guard.changed(1e6);
            for _ in 0..10_000 {
                if is_paused {
                    regression_guard.skip_window();
                }
                regression_guard.window(None, 1e8);
            }
            assert!(watch(&mut regression_guard, 0.5, 0.001, AFTER, 5).expect("judged").undo);
            let before = regression_guard.account_ns();
            watch(&mut regression_guard, 1.0, 0.001, YARDSTICK, 7);
            let charged = before - regression_guard.account_ns();
            assert!(charged > 1e8 && charged < 0.6 * (SILENCE + AFTER) as f64 * 1e8, "{charged}");
        }
    }

    /// After a long undo at a limited rate, in which no measure is taken, there seemed to be none to wait for.
    #[test]
    fn after_a_long_undo_it_is_measured_how_it_is_without_the_changes() {
        let mut regression_guard = RegressionGuard::new(0.01);
        watch(&mut regression_guard, 1.0, 0.001, 10, 3);
        regression_guard.changed(1e6);
        assert!(watch(&mut regression_guard, 0.5, 0.001, AFTER, 5).expect("judged").undo);
        for _ in 0..2 * SILENCE {
            regression_guard.being_undone(1e8);
            regression_guard.skip_window();
            regression_guard.window(None, 1e8);
        }
        assert!(regression_guard.must_wait() && regression_guard.may_change().is_err());
        watch(&mut regression_guard, 1.0, 0.001, YARDSTICK, 7);
        assert!(!regression_guard.must_wait());
    }

    /// What was ordered meanwhile was put off, and counted as if there were nothing to order: each time, the next decision needed twice the evidence.
    #[test]
    fn nothing_is_to_be_decided_while_changes_wait_for_windows() {
        let mut regression_guard = RegressionGuard::new(0.01);
        watch(&mut regression_guard, 1.0, 0.001, 10, 3);
        for window in 0..LONGEST {
            assert!(!regression_guard.must_wait(), "{window}");
            regression_guard.changed(1e6);
            watch(&mut regression_guard, 1.0, 0.001, 1, 5);
        }
        assert!(regression_guard.must_wait() && regression_guard.may_change().is_err());
        watch(&mut regression_guard, 1.0, 0.001, AFTER - 1, 7).expect("judged");
        assert!(!regression_guard.must_wait() && regression_guard.may_change().is_ok());
        // A budget that is used up does not fill by itself in a few windows, and users are told of it.
        regression_guard.spent(1e10);
        assert!(!regression_guard.must_wait() && regression_guard.may_change().is_err());
    }

    /// A program whose speed is 1 without changes, and what the changes to it have done.
    struct Program {
        random: Random,
        /// Threads that run.
        threads: f64,
        /// Speed in relation to that without changes, and before the batch.
        speed: f64,
        before: f64,
        /// Milliseconds that the moves of the batch took.
        batch_ms: f64,
        /// Thread time that moves without benefit, and slowness by changes, took, and all of it, in milliseconds.
        lost_ms: f64,
        ran_ms: f64,
    }

    /// How the changes of a program turn out, and how it makes judging them difficult.
    #[derive(Clone, Copy, Debug)]
    enum Kind {
        /// Nothing helps, and nothing harms.
        Futile,
        /// Each change takes 5 to 50 % of the speed.
        Harmful,
        /// Some changes help, some harm.
        Mixed,
        /// Harmful, and accesses are seen in half of the windows only.
        InBursts,
        /// Harmful, and slower by itself, as if by the changes, whenever these are judged.
        SlowWhenJudged,
    }

    impl Program {
        fn between(&mut self, least: f64, most: f64) -> f64 {
            least + (most - least) * self.random.unit()
        }

        fn change(&mut self, kind: Kind, regression_guard: &mut RegressionGuard) {
            let took_ms = self.between(0.1, 50.0);
            if !regression_guard.is_judging() {
                (self.before, self.batch_ms) = (self.speed, 0.0);
            }
            self.batch_ms += took_ms;
            self.speed *= match kind {
                Kind::Futile => 1.0,
                Kind::Mixed if self.random.one_in(2) => self.between(1.05, 1.5),
                _ => self.between(0.5, 0.95),
            };
            regression_guard.changed(took_ms * 1e6);
        }

        /// One window of 100 ms.
        fn window(&mut self, kind: Kind, regression_guard: &mut RegressionGuard) {
            let is_seen = !matches!(kind, Kind::InBursts) || self.random.one_in(2);
            let is_slow = matches!(kind, Kind::SlowWhenJudged) && regression_guard.is_judging();
            let level = if is_slow { 0.7 } else { 1.0 };
            let measure = level * self.speed * self.between(0.995, 1.005);
            let ran_ms = 100.0 * self.threads;
            self.ran_ms += ran_ms;
            self.lost_ms += ran_ms * (1.0 - self.speed).max(0.0);
            let Some(judgement) = regression_guard.window(is_seen.then_some(measure), ran_ms * 1e6) else { return };
            if judgement.undo {
                regression_guard.spent(self.batch_ms * 1e6);
                self.lost_ms += 2.0 * self.batch_ms;
                self.speed = self.before;
            } else if self.speed <= self.before {
                self.lost_ms += self.batch_ms;
            }
        }
    }

    /// Whatever a policy orders, and whatever the program does: all that is lost is the advance, the share, and what one batch can do until it is judged.
    #[test]
    fn ten_thousand_programs_lose_no_more_than_their_share() {
        let kinds = [Kind::Futile, Kind::Harmful, Kind::Mixed, Kind::InBursts, Kind::SlowWhenJudged];
        let max_harm = 0.01;
        for seed in 0..10_000 {
            let kind = kinds[seed as usize % kinds.len()];
            let mut random = Random::new(seed);
            let threads = 1.0 + random.below(64) as f64;
            let (eagerness, windows) = (1 + random.below(8), 200 + random.below(1000));
            let mut program =
                Program { random, threads, speed: 1.0, before: 1.0, batch_ms: 0.0, lost_ms: 0.0, ran_ms: 0.0 };
            let mut regression_guard = RegressionGuard::new(max_harm);
            for _ in 0..windows {
                program.window(kind, &mut regression_guard);
                if program.random.one_in(eagerness) && regression_guard.may_change().is_ok() {
                    program.change(kind, &mut regression_guard);
                }
            }
            // Half of the windows of bursts are not seen.
            let batch_windows = (LONGEST + AFTER + 1) as f64 * if matches!(kind, Kind::InBursts) { 4.0 } else { 1.0 };
            let batch_ms = batch_windows * 100.0 * threads + 2.0 * 50.0 * LONGEST as f64;
            let most_ms = ADVANCE_NS / 1e6 + max_harm * program.ran_ms + batch_ms;
            let (lost, ran) = (program.lost_ms, program.ran_ms);
            assert!(lost <= most_ms, "seed {seed}, {kind:?}: {lost} ms of {ran} ms, at most {most_ms} ms");
        }
    }

    #[test]
    fn noise_alone_undoes_little() {
        let undone = (0..400).filter(|seed| {
            let mut regression_guard = RegressionGuard::new(0.01);
            watch(&mut regression_guard, 1.0, 0.1, 10, seed * 7919);
            regression_guard.changed(1e6);
            watch(&mut regression_guard, 1.0, 0.1, AFTER, seed * 104_729 + 5).expect("judged").undo
        });
        assert!(undone.count() < 30, "5 % of 400 are to be expected, on one side half of that");
    }

    /// The variance of two windows was taken as if ten degrees of freedom were behind it: noise undid two and a half times as many batches.
    #[test]
    fn few_windows_before_undo_no_more_by_chance() {
        let undone = (0..4000).filter(|seed| {
            let mut regression_guard = RegressionGuard::new(0.01);
            watch(&mut regression_guard, 1.0, 0.1, LEAST, seed * 7919);
            regression_guard.changed(1e6);
            watch(&mut regression_guard, 1.0, 0.1, AFTER, seed * 104_729 + 5).expect("judged").undo
        });
        let undone = undone.count();
        assert!(undone < 160, "{undone} of 4000: 2.5 % are to be expected");
    }
}
