//! Reduces repetitions to one value. Other activity only makes a measurement slower, so the best repetition is nearest to the machine's ability
//! if another one confirms it: a single one may be an error of the clock. Median and spread are always reported beside it.

use serde::{Deserialize, Serialize};

/// Two repetitions this near confirm one another.
const CONFIRMS: f64 = 0.02;
/// With fewer undisturbed repetitions than this, disturbed ones count too.
pub(crate) const QUIET_MIN: usize = 5;
/// Turns a median absolute deviation into the standard deviation of a normal distribution.
pub const MAD_TO_SIGMA: f64 = 1.4826;
/// Probability with which a median may lie beyond either end of its interval.
const TAIL: f64 = 0.025;

/// Whether low or high values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// The lowest value is the best, as for times.
    Low,
    /// The highest value is the best, as for rates.
    High,
}

/// Statistics of the repetitions of one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The best that another repetition confirms within 2 %; the median where none does.
    pub best: f64,
    /// Whether another repetition confirmed `best`.
    pub confirmed: bool,
    /// Median of the repetitions.
    pub median: f64,
    /// Median absolute deviation from the median.
    pub mad: f64,
    /// 95 % interval of the median, by order statistics (lowest and highest where there are few).
    pub low: f64,
    /// Upper end of this interval.
    pub high: f64,
    /// Number of repetitions.
    pub repetitions: usize,
}

impl Spread {
    /// Statistics of the repetitions; `None` where there are none, or one is not a finite number above 0.
    #[must_use]
    pub fn of(values: &[f64], better: Better) -> Option<Spread> {
        if values.is_empty() || values.iter().any(|value| !(value.is_finite() && *value > 0.0)) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = median(&sorted);
        let mut deviations: Vec<f64> = sorted.iter().map(|value| (value - middle).abs()).collect();
        deviations.sort_by(f64::total_cmp);
        let (low, high) = median_interval(&sorted);
        let confirmed = confirmed_best(&sorted, better);
        Some(Spread {
            best: confirmed.unwrap_or(middle),
            confirmed: confirmed.is_some(),
            median: middle,
            mad: median(&deviations),
            low,
            high,
            repetitions: sorted.len(),
        })
    }

    /// The spread as a share of the median: 1.4826 MAD, a robust standard deviation.
    #[must_use]
    pub fn relative(&self) -> f64 {
        MAD_TO_SIGMA * self.mad / self.median
    }

    /// The same of something in proportion to this: bandwidths from times and the like.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Spread {
        Spread {
            best: self.best * factor,
            median: self.median * factor,
            mad: self.mad * factor,
            low: self.low * factor,
            high: self.high * factor,
            ..*self
        }
    }
}

/// Repetitions in which no thread lost its CPU, where there are enough of them; else all. A repetition with another thread's turn in it times that turn.
pub fn undisturbed(repetitions: &[(f64, bool)]) -> Vec<f64> {
    quiet_or_all(repetitions, QUIET_MIN).0
}

/// The repetitions that nothing disturbed, where there are at least `enough`; else all, and `true`: it is a disturbed measurement.
pub fn quiet_or_all(repetitions: &[(f64, bool)], enough: usize) -> (Vec<f64>, bool) {
    let quiet: Vec<f64> = repetitions.iter().filter(|(_, disturbed)| !disturbed).map(|(value, _)| *value).collect();
    if quiet.len() >= enough { (quiet, false) } else { (repetitions.iter().map(|(value, _)| *value).collect(), true) }
}

/// The middle of ascending values; of an even number, halfway between the two. Medians of measurements are these in all crates (gains' are quantiles of
/// `insight`, of which this is the one of a half).
///
/// # Panics
/// If `sorted` is empty.
#[must_use]
pub fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

/// The best of ascending values that has another one within 2 % on its worse side.
fn confirmed_best(sorted: &[f64], better: Better) -> Option<f64> {
    let is_near = |a: f64, b: f64| (a - b).abs() <= CONFIRMS * a;
    match better {
        Better::Low => sorted.windows(2).find(|pair| is_near(pair[0], pair[1])).map(|pair| pair[0]),
        Better::High => sorted.windows(2).rev().find(|pair| is_near(pair[1], pair[0])).map(|pair| pair[1]),
    }
}

/// The order statistics that enclose the median of the distribution with a probability of 95 % or more, as many values below the one as above the other: how
/// many values lie below that median is binomial with one half. Of five or fewer, lowest and highest, which enclose it less surely.
fn median_interval(sorted: &[f64]) -> (f64, f64) {
    let count = sorted.len();
    // By logarithms, as the probability that none lies below is no number of a computer from 1,075 values on.
    let (mut beyond, mut at_most, mut logarithm) = (0, 0.0, -(count as f64) * std::f64::consts::LN_2);
    for below in 0..count {
        at_most += logarithm.exp();
        if at_most > TAIL {
            break;
        }
        beyond = below;
        logarithm += ((count - below) as f64 / (below + 1) as f64).ln();
    }
    (sorted[beyond], sorted[count - 1 - beyond])
}

#[cfg(test)]
mod tests {
    //! Figures from noisy repetitions.

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_lone_best_is_not_believed() {
        let spread = Spread::of(&[10.0, 100.0, 101.0, 130.0, 200.0], Better::Low).expect("values");
        assert_eq!((spread.best, spread.confirmed, spread.median), (100.0, true, 101.0));
        let spread = Spread::of(&[50.0, 49.5, 30.0, 90.0], Better::High).expect("values");
        assert_eq!((spread.best, spread.confirmed), (50.0, true));
    }

    #[test]
    fn without_agreement_it_is_the_median_and_says_so() {
        let spread = Spread::of(&[10.0, 20.0, 40.0], Better::Low).expect("values");
        assert_eq!((spread.best, spread.confirmed), (20.0, false));
        let one = Spread::of(&[7.0], Better::Low).expect("one");
        assert_eq!((one.best, one.confirmed, one.mad, one.low, one.high), (7.0, false, 0.0, 7.0, 7.0));
    }

    #[test]
    fn disturbed_repetitions_count_only_where_there_are_no_others() {
        let mut repetitions = vec![(1.0, false), (2.0, false), (3.0, false), (4.0, false), (90.0, true)];
        assert_eq!(undisturbed(&repetitions), [1.0, 2.0, 3.0, 4.0, 90.0]);
        repetitions.push((5.0, false));
        assert_eq!(undisturbed(&repetitions), [1.0, 2.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn nonsense_is_no_figure() {
        for values in [vec![], vec![f64::NAN], vec![1.0, 0.0], vec![-1.0], vec![f64::INFINITY]] {
            assert_eq!(Spread::of(&values, Better::Low), None, "{values:?}");
        }
    }

    /// The upper end was one value too high, as if the median were more likely above the middle than below.
    #[test]
    fn as_many_values_lie_below_the_interval_as_above() {
        // By the binomial distribution's table: the most that lie beyond each end with at most 2.5 %.
        let beyond = [(1, 0), (2, 0), (5, 0), (8, 0), (9, 1), (10, 1), (15, 3), (25, 7), (31, 9), (50, 17), (100, 39)];
        for (count, beyond) in beyond {
            let values: Vec<f64> = (1..=count).map(f64::from).collect();
            let spread = Spread::of(&values, Better::Low).expect("values");
            assert_eq!((spread.low, spread.high), (f64::from(1 + beyond), f64::from(count - beyond)), "{count}");
        }
        // With 2,000, the normal distribution's 0.98 roots of that beside the middle.
        let values: Vec<f64> = (1..=2000).map(f64::from).collect();
        let spread = Spread::of(&values, Better::High).expect("values");
        assert!((spread.low - 956.7).abs() < 1.5 && spread.low + spread.high == 2001.0, "{spread:?}");
    }

    #[test]
    fn the_intervals_cover_what_they_promise() {
        // 2,000 draws of 25 uniform numbers: the true median is 0.5.
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64 + 1e-9
        };
        let inside = (0..2000).filter(|_| {
            let draws: Vec<f64> = (0..25).map(|_| next()).collect();
            let spread = Spread::of(&draws, Better::Low).expect("draws");
            spread.low <= 0.5 && 0.5 <= spread.high
        });
        let share = inside.count() as f64 / 2000.0;
        assert!((0.94..=0.995).contains(&share), "covered {share}");
    }

    proptest! {
        #[test]
        fn as_many_values_lie_below_the_middle_as_above(mut values in prop::collection::vec(0.0_f64..10.0, 1..40)) {
            values.sort_by(f64::total_cmp);
            let middle = median(&values);
            let below = values.iter().filter(|value| **value < middle).count();
            let above = values.iter().filter(|value| **value > middle).count();
            prop_assert!(below * 2 <= values.len() && above * 2 <= values.len());
        }

        #[test]
        fn slow_outliers_never_change_the_best(base in 1.0_f64..1e6, noise in prop::collection::vec(1.05_f64..100.0, 0..30)) {
            let mut values = vec![base, base * 1.01];
            values.extend(noise.iter().map(|factor| base * factor));
            let spread = Spread::of(&values, Better::Low).expect("values");
            prop_assert_eq!(spread.best, base);
            prop_assert!(spread.low <= spread.median && spread.median <= spread.high);
            prop_assert!(spread.best <= spread.median);
        }
    }
}
