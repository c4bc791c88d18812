//! A figure before and after: its difference with an interval, and whether that is evidence of a change.
//!
//! One recording: the interval is that of its sampling. Several: the mean, with Student's t interval of the recordings' own spread, which
//! holds sampling and run-to-run variation alike. The difference of two sides has margins added in quadrature.

use serde::Serialize;

use crate::estimate::{Estimate, student};

/// A figure over some recordings of the same state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeated {
    /// Its mean, with a 95 % interval.
    pub estimate: Estimate,
    /// Recordings behind it.
    pub runs: usize,
}

impl Repeated {
    /// Nothing at all, in each of so many recordings.
    #[must_use]
    pub fn nothing(runs: usize) -> Repeated {
        Repeated { estimate: Estimate::exact(0.0), runs }
    }
}

/// Mean and interval of a figure over recordings; `values` must not be empty, and none is negative: so the interval ends at 0.
#[must_use]
pub fn repeated(values: &[Estimate]) -> Repeated {
    let runs = values.len();
    if let [only] = values {
        return Repeated { estimate: *only, runs };
    }
    let count = runs as f64;
    let mean = values.iter().map(|value| value.value).sum::<f64>() / count;
    let variance = values.iter().map(|value| (value.value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let margin = student(runs - 1) * (variance / count).sqrt();
    Repeated { estimate: Estimate { value: mean, low: (mean - margin).max(0.0), high: mean + margin }, runs }
}

/// Whether a figure changed. Of every figure here, less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeVerdict {
    /// It fell.
    Better,
    /// It rose.
    Worse,
    /// The interval of the difference holds zero: no evidence either way.
    NoEvidence,
}

/// A figure on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Before.
    pub before: Estimate,
    /// After.
    pub after: Estimate,
    /// After minus before.
    pub difference: Estimate,
    /// After over before, minus one; `None` where there was nothing before.
    pub relative: Option<Estimate>,
    /// What it says.
    pub verdict: ChangeVerdict,
}

impl Change {
    /// The change from one side to the other.
    #[must_use]
    pub fn of(before: Repeated, after: Repeated) -> Change {
        let (before, after) = (before.estimate, after.estimate);
        let value = after.value - before.value;
        let below = (after.value - after.low).hypot(before.high - before.value);
        let above = (after.high - after.value).hypot(before.value - before.low);
        let difference = Estimate { value, low: value - below, high: value + above };
        let verdict = if difference.high < 0.0 {
            ChangeVerdict::Better
        } else if difference.low > 0.0 {
            ChangeVerdict::Worse
        } else {
            ChangeVerdict::NoEvidence
        };
        Change { before, after, difference, relative: ratio(after, before), verdict }
    }

    /// The same, for a figure whose uncertainty is not known: two different numbers are no evidence then.
    #[must_use]
    pub fn without_verdict(mut self) -> Change {
        self.verdict = ChangeVerdict::NoEvidence;
        self
    }
}

/// Run time gained: before over after, minus one.
#[must_use]
pub fn gain(before: &Repeated, after: &Repeated) -> Option<Estimate> {
    ratio(before.estimate, after.estimate)
}

/// `over / under - 1`, with relative margins added in quadrature.
fn ratio(over: Estimate, under: Estimate) -> Option<Estimate> {
    if under.value <= 0.0 {
        return None;
    }
    let value = over.value / under.value;
    let relative = |of: &Estimate| if of.value > 0.0 { of.margin() / of.value } else { 0.0 };
    let margin = value * relative(&over).hypot(relative(&under));
    Some(Estimate { value: value - 1.0, low: value - margin - 1.0, high: value + margin - 1.0 })
}

#[cfg(test)]
mod tests {
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
        let noisy = Change::of(repeated(&exact(&[9.0, 10.0, 11.0])), repeated(&exact(&[9.5, 10.5, 11.5])));
        assert_eq!(noisy.verdict, ChangeVerdict::NoEvidence);
        let clear = Change::of(repeated(&exact(&[10.0, 10.1, 9.9])), repeated(&exact(&[5.0, 5.1, 4.9])));
        assert_eq!(clear.verdict, ChangeVerdict::Better);
        assert!((clear.relative.expect("a ratio").value + 0.5).abs() < 1e-12);
        let back = Change::of(repeated(&exact(&[5.0, 5.1, 4.9])), repeated(&exact(&[10.0, 10.1, 9.9])));
        assert_eq!(back.verdict, ChangeVerdict::Worse);
    }

    #[test]
    fn intervals_cover_the_true_difference_at_their_rate() {
        // 2,000 pairs of five normal draws each, true difference 1: the interval must hold it in 95 % of them, or somewhat more
        // (each side's own t is wider than Welch's).
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut uniform = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        let mut normal = move || (-2.0 * uniform().ln()).sqrt() * (2.0 * std::f64::consts::PI * uniform()).cos();
        let covered = (0..2000)
            .filter(|_| {
                let mut draw = |mean: f64| repeated(&exact(&(0..5).map(|_| mean + normal()).collect::<Vec<_>>()));
                let change = Change::of(draw(10.0), draw(11.0));
                change.difference.low <= 1.0 && change.difference.high >= 1.0
            })
            .count();
        assert!((1880..=1990).contains(&covered), "{covered} of 2000");
    }
}
