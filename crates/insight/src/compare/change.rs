//! A figure before and after: its difference with an interval, and whether that is evidence of a change.
//!
//! One recording: the interval is that of its sampling. Several: the mean, with Student's t interval of the recordings' own spread, which
//! holds sampling and run-to-run variation alike, but no less than their sampling alone leaves open: a few recordings may be equal by chance.
//! The difference of two sides has margins added in quadrature.
//!
//! One recording does not show how much runs differ by themselves: threads race, addresses are random, and the figures with them. Where only one
//! side has several, its spread stands for the other's too. Where neither has, a verdict needs a difference beyond what equal runs were
//! found to differ by ([`Repeatability`]). Where less is known of that, because the time waits for something outside the program, threads race for
//! their work or the machine is a real one, a larger difference is in doubt.

use numapilot_random::quantile::student;
use serde::Serialize;

use crate::estimate::Estimate;

/// A figure over some recordings of the same state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeated {
    /// Mean over the recordings, with its 95 % interval.
    pub estimate: Estimate,
    /// Number of recordings.
    pub runs: usize,
    /// Sample standard deviation over the recordings; `None` if there is only one.
    pub deviation: Option<f64>,
}

/// How far equal runs of one program may differ in a figure, where the recordings at hand do not tell. Measured: `docs/compare.md`, "One recording of each".
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeatability {
    /// By this share of the larger value,
    share: f64,
    /// and by this amount, in the unit of the figure,
    amount: f64,
    /// and perhaps by this amount besides, which no measurement bounds,
    open: f64,
    /// and by this many times both the first.
    raced: f64,
}

impl Repeatability {
    /// Of run times. Short runs differ by more than a share: threads' clocks keep within a window of 100 us of each other (`docs/virtual-time.md`), and each
    /// start and each piece of work that threads race for may fall on either side of it. Ten windows are left for that.
    pub const OF_RUN_TIMES: Repeatability = Repeatability { share: 0.05, amount: 1e6, open: 0.0, raced: 0.0 };
    /// Of counts and latencies.
    pub const OF_AMOUNTS: Repeatability = Repeatability { share: 0.05, amount: 0.0, open: 0.0, raced: 0.0 };
    /// Of shares and of the controllers' imbalance.
    pub const OF_SHARES: Repeatability = Repeatability { share: 0.0, amount: 0.03, open: 0.0, raced: 0.0 };

    /// The same for recordings whose figures may differ by `open` besides, in the unit of the figure: infinite where nothing is known of equal runs.
    #[must_use]
    pub fn with_open(self, open: f64) -> Repeatability {
        Repeatability { open, ..self }
    }

    /// The same for programs whose threads race for their work: perhaps ten times as much in all. Of the programs that were measured, equal runs differ by four
    /// times as much, and what decides it (how often the work goes to another cache or node) is theirs.
    #[must_use]
    pub fn of_raced_work(self) -> Repeatability {
        Repeatability { raced: 9.0, ..self }
    }

    /// The same for the sum over so many threads: the clock of each differs by itself.
    #[must_use]
    pub fn summed(self, threads: f64) -> Repeatability {
        Repeatability { amount: self.amount * threads, ..self }
    }

    /// What equal runs were found to differ by.
    fn between(self, before: f64, after: f64) -> f64 {
        self.share * before.abs().max(after.abs()) + self.amount
    }
}

impl Repeated {
    /// Zero in each of `runs` recordings.
    #[must_use]
    pub fn nothing(runs: usize) -> Repeated {
        Repeated { estimate: Estimate::exact(0.0), runs, deviation: (runs > 1).then_some(0.0) }
    }
}

/// Mean and interval of a figure over recordings; `values` must not be empty, and none is negative: so the interval ends at 0.
#[must_use]
pub fn repeated(values: &[Estimate]) -> Repeated {
    let runs = values.len();
    if let [only] = values {
        return Repeated { estimate: *only, runs, deviation: None };
    }
    let count = runs as f64;
    let mean = values.iter().map(|value| value.value).sum::<f64>() / count;
    let variance = values.iter().map(|value| (value.value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let of_sampling = |half: fn(&Estimate) -> f64| {
        let squares: f64 = values.iter().map(|value| half(value).powi(2)).sum();
        squares.sqrt() / count
    };
    let margin = (student(runs - 1) * (variance / count).sqrt()).max(of_sampling(Estimate::margin));
    // Near 0, the interval of few samples reaches much farther up than down.
    let above = margin.max(of_sampling(|value| value.high - value.value));
    let estimate = Estimate { value: mean, low: (mean - margin).max(0.0), high: mean + above };
    Repeated { estimate, runs, deviation: Some(variance.sqrt()) }
}

impl Repeated {
    /// This side with the spread of the other side, if it has only one recording.
    fn spread_like(self, other: &Repeated) -> Repeated {
        let (None, Some(deviation)) = (self.deviation, other.deviation) else { return self };
        let margin = student(other.runs - 1) * deviation;
        let Estimate { value, low, high } = self.estimate;
        Repeated {
            estimate: Estimate {
                value,
                low: (value - margin.max(value - low)).max(0.0),
                high: value + margin.max(high - value),
            },
            ..self
        }
    }
}

/// Whether a figure changed. Of every figure here, less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeVerdict {
    /// The figure fell.
    Better,
    /// The figure rose.
    Worse,
    /// The interval of the difference holds zero, or equal runs may differ as much: no evidence either way.
    NoEvidence,
    /// With one recording of each side: a difference beyond what equal runs of programs that compute were found to differ by, but not beyond what
    /// those of this program may. Several recordings of each would tell.
    InDoubt,
}

/// A figure before and after a change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The figure before.
    pub before: Estimate,
    /// The figure after.
    pub after: Estimate,
    /// After minus before.
    pub difference: Estimate,
    /// After over before, minus one; `None` where the value before is zero.
    pub relative: Option<Estimate>,
    /// With one recording of each side: how far equal runs may differ, in the unit of the figure; infinite (`null` in JSON) where no bound is known.
    /// `None` with more recordings, whose interval covers it.
    pub untold: Option<f64>,
    /// The part of `untold` that nothing was measured of.
    #[serde(skip)]
    pub open: f64,
    /// Whether the figure changed.
    pub verdict: ChangeVerdict,
}

impl Change {
    /// Compares the two sides.
    #[must_use]
    pub fn of(before: Repeated, after: Repeated, repeatability: Repeatability) -> Change {
        let is_single = before.deviation.is_none() && after.deviation.is_none();
        let (measured, open) = match is_single {
            true => {
                let measured = repeatability.between(before.estimate.value, after.estimate.value);
                (measured, repeatability.open + repeatability.raced * measured)
            }
            false => (0.0, 0.0),
        };
        let untold = is_single.then_some(measured + open);
        let (before, after) = (before.spread_like(&after).estimate, after.spread_like(&before).estimate);
        let value = after.value - before.value;
        let below = (after.value - after.low).hypot(before.high - before.value);
        let above = (after.high - after.value).hypot(before.value - before.low);
        let difference = Estimate { value, low: value - below, high: value + above };
        let is_beyond = |bound: f64| difference.high < -bound || difference.low > bound;
        let verdict = if !is_beyond(measured) {
            ChangeVerdict::NoEvidence
        } else if untold.is_some_and(|untold| !is_beyond(untold)) {
            ChangeVerdict::InDoubt
        } else if value < 0.0 {
            ChangeVerdict::Better
        } else {
            ChangeVerdict::Worse
        };
        Change { before, after, difference, relative: ratio(after, before), untold, open, verdict }
    }

    /// The least rise that is certain, in the unit of the figure: of one recording each, equal runs may account for the rest.
    #[must_use]
    pub fn certain_rise(&self) -> f64 {
        self.difference.low - self.untold.unwrap_or(0.0)
    }

    /// The same as a share of the value before; `None` where that is zero.
    #[must_use]
    pub fn certain_relative_rise(&self) -> Option<f64> {
        Some(self.relative?.low - self.untold.unwrap_or(0.0) / self.before.value)
    }

    /// The same change with the verdict "no evidence", for figures whose uncertainty is not known.
    #[must_use]
    pub fn without_verdict(mut self) -> Change {
        self.verdict = ChangeVerdict::NoEvidence;
        self
    }
}

/// Run time gained: before over after, minus one.
#[must_use]
pub fn gain(before: &Repeated, after: &Repeated) -> Option<Estimate> {
    ratio(before.spread_like(after).estimate, after.spread_like(before).estimate)
}

/// `over / under - 1`, with relative margins added in quadrature.
fn ratio(over: Estimate, under: Estimate) -> Option<Estimate> {
    if under.value <= 0.0 {
        return None;
    }
    let value = over.value / under.value;
    // An interval that ends at 0 was cut off there: its upper half says how wide it is.
    let half = |of: &Estimate| if of.low <= 0.0 { of.high - of.value } else { of.margin() };
    let relative = |of: &Estimate| if of.value > 0.0 { half(of) / of.value } else { 0.0 };
    let margin = value * relative(&over).hypot(relative(&under));
    Some(Estimate { value: value - 1.0, low: value - margin - 1.0, high: value + margin - 1.0 })
}

#[cfg(test)]
mod tests {
    use numapilot_random::Random;

    use super::*;

    fn exact(values: &[f64]) -> Vec<Estimate> {
        values.iter().copied().map(Estimate::exact).collect()
    }

    #[test]
    fn repeats_get_students_interval() {
        // Mean 10, standard deviation 1, three runs: 4.303 / sqrt(3).
        let found = repeated(&exact(&[9.0, 10.0, 11.0]));
        assert!((found.estimate.value - 10.0).abs() < 1e-12);
        assert!((found.estimate.margin() - 4.303 / 3f64.sqrt()).abs() < 1e-9);
        let one = Estimate { value: 3.0, low: 2.0, high: 5.0 };
        assert_eq!(repeated(&[one]).estimate, one);
    }

    #[test]
    fn a_difference_inside_the_noise_is_no_evidence() {
        let amount = Repeatability::OF_AMOUNTS;
        let noisy = Change::of(repeated(&exact(&[9.0, 10.0, 11.0])), repeated(&exact(&[9.5, 10.5, 11.5])), amount);
        assert_eq!(noisy.verdict, ChangeVerdict::NoEvidence);
        let clear = Change::of(repeated(&exact(&[10.0, 10.1, 9.9])), repeated(&exact(&[5.0, 5.1, 4.9])), amount);
        assert_eq!(clear.verdict, ChangeVerdict::Better);
        assert!((clear.relative.expect("a ratio").value + 0.5).abs() < 1e-12);
        let back = Change::of(repeated(&exact(&[5.0, 5.1, 4.9])), repeated(&exact(&[10.0, 10.1, 9.9])), amount);
        assert_eq!(back.verdict, ChangeVerdict::Worse);
    }

    #[test]
    fn one_recording_each_tells_only_what_equal_runs_do_not_show() {
        let one = |value: f64| repeated(&exact(&[value]));
        let of = |before: f64, after: f64| Change::of(one(before), one(after), Repeatability::OF_AMOUNTS);
        // Both exact, as run times of the traffic model are: equal runs differ all the same.
        for (before, after) in [(1000.0, 996.0), (996.0, 1000.0), (1000.0, 955.0)] {
            assert_eq!(of(before, after).verdict, ChangeVerdict::NoEvidence, "{before} {after}");
        }
        assert_eq!(
            (of(1000.0, 500.0).verdict, of(500.0, 1000.0).verdict),
            (ChangeVerdict::Better, ChangeVerdict::Worse)
        );
        assert_eq!(of(1000.0, 996.0).untold, Some(50.0));
        let short = Change::of(one(3.4e6), one(4.0e6), Repeatability::OF_RUN_TIMES);
        assert_eq!((short.verdict, short.untold), (ChangeVerdict::NoEvidence, Some(1.2e6)));
        let long = Change::of(one(3.4e8), one(4.0e8), Repeatability::OF_RUN_TIMES);
        assert_eq!(long.verdict, ChangeVerdict::Worse);
        let shares = Change::of(one(0.50), one(0.48), Repeatability::OF_SHARES);
        assert_eq!((shares.verdict, shares.untold), (ChangeVerdict::NoEvidence, Some(0.03)));
    }

    #[test]
    fn what_no_measurement_bounds_leaves_a_large_difference_in_doubt() {
        let one = |value: f64| repeated(&exact(&[value]));
        let of = |before: f64, after: f64, open: f64| {
            Change::of(one(before), one(after), Repeatability::OF_RUN_TIMES.with_open(open))
        };
        // 1.41 s before and 1.03 s after, in nearly all of which no thread worked.
        assert_eq!(of(1.41e9, 1.03e9, 1.39e9).verdict, ChangeVerdict::InDoubt);
        assert_eq!(of(1.03e9, 1.41e9, 1.39e9).verdict, ChangeVerdict::InDoubt);
        // Differences as those of equal runs stay no evidence, and those beyond all that may be chance are told.
        assert_eq!(of(1.41e9, 1.40e9, 1.39e9).verdict, ChangeVerdict::NoEvidence);
        assert_eq!(of(1.41e9, 4.0e9, 1.39e9).verdict, ChangeVerdict::Worse);
        assert_eq!(of(1.41e9, 1.03e9, 0.0).verdict, ChangeVerdict::Better);
        let unknown = of(1e9, 9e9, f64::INFINITY);
        assert_eq!((unknown.verdict, unknown.untold), (ChangeVerdict::InDoubt, Some(f64::INFINITY)));
        // Several recordings tell it themselves.
        let (slow, fast) = (repeated(&exact(&[1.41e9, 1.42e9, 1.40e9])), repeated(&exact(&[1.03e9, 1.02e9, 1.04e9])));
        let several = Change::of(slow, fast, Repeatability::OF_RUN_TIMES.with_open(f64::INFINITY));
        assert_eq!((several.verdict, several.untold, several.open), (ChangeVerdict::Better, None, 0.0));
    }

    #[test]
    fn raced_work_leaves_less_than_twice_as_much_in_doubt() {
        let one = |value: f64| repeated(&exact(&[value]));
        let of = |before: f64, after: f64| {
            let raced = Change::of(one(before), one(after), Repeatability::OF_RUN_TIMES.of_raced_work());
            (raced.verdict, Change::of(one(before), one(after), Repeatability::OF_RUN_TIMES).verdict)
        };
        use ChangeVerdict::{Better, InDoubt, NoEvidence, Worse};
        // Two recordings of one program, then differences as of a change.
        assert_eq!(of(3.0e9, 3.8e9), (InDoubt, Worse));
        assert_eq!(of(3.8e9, 3.0e9), (InDoubt, Better));
        assert_eq!(of(3.0e9, 2.9e9), (NoEvidence, NoEvidence));
        assert_eq!((of(3.0e9, 1.4e9).0, of(1.4e9, 3.0e9).0), (Better, Worse));
        let shares = |after: f64| Change::of(one(0.7), one(after), Repeatability::OF_SHARES.of_raced_work());
        assert!(shares(0.5).verdict == InDoubt && shares(0.5).untold.is_some_and(|untold| (untold - 0.3).abs() < 1e-9));
        assert_eq!(shares(0.35).verdict, Better);
        let several = |around: f64| repeated(&exact(&[around, 1.01 * around, 0.99 * around]));
        let told = Change::of(several(3.0e9), several(2.5e9), Repeatability::OF_RUN_TIMES.of_raced_work());
        assert_eq!((told.verdict, told.open), (Better, 0.0));
    }

    #[test]
    fn of_one_recording_each_only_the_rise_beyond_equal_runs_is_certain() {
        let one = |value: f64| repeated(&exact(&[value]));
        let rise = |after: f64| Change::of(one(1e9), one(after), Repeatability::OF_RUN_TIMES).certain_relative_rise();
        // 5 % of the larger value and 1 ms.
        assert!(rise(1.2e9).is_some_and(|rise| (rise - (0.2 - 0.06 - 0.001)).abs() < 1e-9), "{:?}", rise(1.2e9));
        assert!(rise(1.03e9).is_some_and(|rise| rise < 0.0));
        let shares = Change::of(one(0.2), one(0.3), Repeatability::OF_SHARES);
        assert!((shares.certain_rise() - 0.07).abs() < 1e-9);
        let open = Change::of(one(1e9), one(2e9), Repeatability::OF_RUN_TIMES.with_open(f64::INFINITY));
        assert_eq!(open.certain_relative_rise(), Some(f64::NEG_INFINITY));
        let (slow, fast) = (repeated(&exact(&[2e9, 2.1e9, 1.9e9])), repeated(&exact(&[1e9, 1.1e9, 0.9e9])));
        let several = Change::of(fast, slow, Repeatability::OF_RUN_TIMES);
        assert_eq!(several.certain_relative_rise(), several.relative.map(|relative| relative.low));
    }

    #[test]
    fn one_recording_beside_several_has_their_spread() {
        let several = repeated(&exact(&[90.0, 100.0, 110.0]));
        let one = |value: f64| repeated(&exact(&[value]));
        // One more of the same: 4.303 deviations of 10 beside a mean with 4.303 / sqrt(3) of them.
        let within = Change::of(several, one(60.0), Repeatability::OF_AMOUNTS);
        assert_eq!((within.verdict, within.untold), (ChangeVerdict::NoEvidence, None));
        assert_eq!(Change::of(several, one(40.0), Repeatability::OF_AMOUNTS).verdict, ChangeVerdict::Better);
        assert_eq!(Change::of(one(40.0), several, Repeatability::OF_AMOUNTS).verdict, ChangeVerdict::Worse);
    }

    #[test]
    fn equal_recordings_leave_open_what_their_sampling_does() {
        let two = repeated(&[Estimate { value: 2.0, low: 0.0, high: 5.0 }; 2]);
        assert!((2.0 - two.estimate.low - 2.5 / 2f64.sqrt()).abs() < 1e-9, "{two:?}");
        assert!((two.estimate.high - 2.0 - 3.0 / 2f64.sqrt()).abs() < 1e-9, "{two:?}");
        // None of a hundred samples in either is none of two hundred, and not less than that.
        let none = repeated(&[Estimate { value: 0.0, low: 0.0, high: 0.037 }; 2]);
        assert!(none.estimate.low == 0.0 && none.estimate.high > 0.0188, "{none:?}");
        // Two samples in each of two recordings, and none before.
        let few = repeated(&[Estimate { value: 0.0004, low: 0.00005, high: 0.0015 }; 2]);
        let change = Change::of(Repeated::nothing(2), few, Repeatability::OF_SHARES);
        assert_eq!(change.verdict, ChangeVerdict::NoEvidence);
    }

    #[test]
    fn runs_that_differ_by_far_leave_a_gain_as_open_as_they_do() {
        // Two of 100 and 200: 12.706 deviations of 70.7 over the root of two, 4.235 times their mean; the interval ends at 0.
        let two = repeated(&exact(&[100.0, 200.0]));
        assert!(two.estimate.low == 0.0 && (two.estimate.high / 150.0 - 5.235).abs() < 0.001, "{two:?}");
        let found = gain(&two, &two).expect("a gain");
        assert!((found.margin() - 4.2353 * 2f64.sqrt()).abs() < 0.001, "{found:?}");
    }

    #[test]
    fn a_gain_over_one_recording_has_the_spread_of_the_other_side() {
        let (one, several) = (repeated(&exact(&[110.0])), repeated(&exact(&[90.0, 100.0, 110.0])));
        let found = gain(&one, &several).expect("a gain");
        let change = Change::of(several, one, Repeatability::OF_RUN_TIMES).relative.expect("a ratio");
        assert!((found.value - change.value).abs() < 1e-12 && (found.margin() - change.margin()).abs() < 1e-12);
        assert!(found.margin() > 0.4, "{found:?}");
    }

    #[test]
    fn intervals_cover_the_true_difference_at_their_rate() {
        // 2,000 pairs of five normal draws each, true difference 1: the interval must hold it in 95 % of them, or somewhat more
        // (each side's own t is wider than Welch's).
        let mut random = Random::new(1);
        // Never 0, which has no logarithm.
        let mut uniform = move || random.unit() + f64::EPSILON / 4.0;
        let mut normal = move || (-2.0 * uniform().ln()).sqrt() * (2.0 * std::f64::consts::PI * uniform()).cos();
        let covered = (0..2000)
            .filter(|_| {
                let mut draw = |mean: f64| repeated(&exact(&(0..5).map(|_| mean + normal()).collect::<Vec<_>>()));
                let change = Change::of(draw(10.0), draw(11.0), Repeatability::OF_AMOUNTS);
                change.difference.low <= 1.0 && change.difference.high >= 1.0
            })
            .count();
        assert!((1880..=1990).contains(&covered), "{covered} of 2000");
    }
}
