//! Numbers with their uncertainty, from weighted samples.
//!
//! A sample of weight `w` stands for `w` accesses: it was taken with probability `1/w`. A [`Tally`] holds the three sums from
//! which totals, shares and their 95 % intervals follow; `docs/metrics.md` gives the formulas. Weight 1 throughout means
//! that nothing was left out, so intervals shrink to a point.
//!
//! Where only some cache lines were simulated, the samples of one line come or stay away together: such a *cluster* counts as
//! one draw of its whole weight.

use numapilot_flows::AccessRef;
use numapilot_random::quantile::{Z, student};
use serde::Serialize;

/// Below this many samples on either side of a share, the observed variance says little and the cautious one is used.
const FEW: u64 = 5;

/// A value with its 95 % interval. Unit and meaning are those of the field that holds it; shares lie between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// The estimate itself.
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
}

impl Estimate {
    /// A number that was counted, not sampled.
    #[must_use]
    pub fn exact(value: f64) -> Estimate {
        Estimate { value, low: value, high: value }
    }

    /// A value with the interval that its values without each part of the data give: the jackknife's variance (Efron, 1982), `(n - 1) / n` times the
    /// sum of squared deviations, by Student's t. At least two parts.
    #[must_use]
    pub fn jackknife(value: f64, parts: &[f64]) -> Estimate {
        let count = parts.len() as f64;
        let mean = parts.iter().sum::<f64>() / count;
        let squares: f64 = parts.iter().map(|part| (part - mean).powi(2)).sum();
        let half = student(parts.len() - 1) * ((count - 1.0) / count * squares).sqrt();
        Estimate { value, low: value - half, high: value + half }
    }

    /// Factor by which the half of a jackknife's interval over `parts` random parts of the data is wider where the data are only so many independent draws (of
    /// equal weight): Student's t with the degrees of freedom of as many parts of equal weight as tell as much. 1 where there are many draws.
    #[must_use]
    pub fn widened_by_few(parts: usize, draws: f64) -> f64 {
        let count = parts as f64;
        // Draws that fall into parts at random: of (sum of weights)^2 / (sum of their squares), the number of parts of equal weight, the expected denominator.
        let equal = count / (1.0 + (count - 1.0) / draws);
        student((equal.round() as usize).saturating_sub(1)) / student(parts.saturating_sub(1))
    }

    /// Whether the interval is a point.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.low == self.high
    }

    /// Whether it is a share of nothing, such as the remote share of accesses none of whose home nodes is known: anything from 0 to 1.
    #[must_use]
    pub fn is_share_of_nothing(&self) -> bool {
        self.low <= 0.0 && self.high >= 1.0
    }

    /// Half the interval's width: what stands behind a ±.
    #[must_use]
    pub fn margin(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// The same number in another unit.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Estimate {
        Estimate { value: self.value * factor, low: self.low * factor, high: self.high * factor }
    }

    /// One minus a share.
    #[must_use]
    pub fn complement(&self) -> Estimate {
        Estimate { value: 1.0 - self.value, low: 1.0 - self.high, high: 1.0 - self.low }
    }
}

/// The number of accesses that a sample stands for, alone and with its cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    /// Accesses that it stands for.
    count: f64,
    /// Accesses that all samples drawn together with it stand for, itself included.
    cluster: f64,
}

impl From<u32> for Weight {
    fn from(weight: u32) -> Weight {
        let count = f64::from(weight.max(1));
        Weight { count, cluster: count }
    }
}

impl From<&AccessRef> for Weight {
    fn from(access: &AccessRef) -> Weight {
        let count = f64::from(access.weight.max(1));
        Weight { count, cluster: access.cluster.max(count) }
    }
}

impl From<AccessRef> for Weight {
    fn from(access: AccessRef) -> Weight {
        Weight::from(&access)
    }
}

/// Sums over some samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Tally {
    /// Number of samples.
    pub samples: u64,
    /// Sum of their weights: the accesses that they stand for.
    pub weight: f64,
    /// Sum of `w (c - 1)`, `c` the weight of the sample's cluster: the sampling variance of `weight`. A part of a cluster counts with
    /// the whole cluster's weight, which errs on the wide side.
    pub variance: f64,
}

impl Tally {
    /// Adds a sample.
    #[inline]
    pub fn add(&mut self, weight: impl Into<Weight>) {
        let Weight { count, cluster } = weight.into();
        self.samples += 1;
        self.weight += count;
        self.variance += count * (cluster - 1.0);
    }

    /// Adds another tally's samples.
    pub fn merge(&mut self, other: &Tally) {
        self.samples += other.samples;
        self.weight += other.weight;
        self.variance += other.variance;
    }

    /// These samples without `part`, which must be among them.
    #[must_use]
    pub fn without(&self, part: &Tally) -> Tally {
        Tally {
            samples: self.samples.saturating_sub(part.samples),
            weight: (self.weight - part.weight).max(0.0),
            variance: (self.variance - part.variance).max(0.0),
        }
    }

    /// Number of independent draws of equal weight that know the sum as well as these samples do: where only some cache lines were simulated, of lines.
    /// Infinite where nothing was left out.
    #[must_use]
    pub fn draws(&self) -> f64 {
        if self.variance > 0.0 { self.weight * self.weight / self.variance } else { f64::INFINITY }
    }

    /// Estimates the number of accesses.
    #[must_use]
    pub fn total(&self) -> Estimate {
        if self.variance <= 0.0 {
            return Estimate::exact(self.weight);
        }
        // The square root of a count has nearly constant variance (Anscombe), which holds for few samples too.
        let effective = self.draws();
        let per_sample = self.weight / effective;
        let root = (effective + 0.375).sqrt();
        let low = (root - Z / 2.0).max(0.0).powi(2) - 0.375;
        let high = (root + Z / 2.0).powi(2) - 0.375;
        let sampled_at_least = self.samples as f64;
        Estimate {
            value: self.weight,
            low: (low * per_sample).max(sampled_at_least).min(self.weight),
            high: (high * per_sample).max(self.weight),
        }
    }

    /// Which share of `all` these samples are; they must be among them. Of nothing, the share is 0 and may be anything.
    #[must_use]
    pub fn share_of(&self, all: &Tally) -> Estimate {
        if all.weight <= 0.0 {
            return Estimate { value: 0.0, low: 0.0, high: 1.0 };
        }
        let share = (self.weight / all.weight).clamp(0.0, 1.0);
        if all.variance <= 0.0 {
            return Estimate::exact(share);
        }
        wilson(share, self.effective_samples(all, share))
    }

    /// Size of the simple random sample that would know the share as well as these weighted ones do.
    fn effective_samples(&self, all: &Tally, share: f64) -> f64 {
        let by_weights = all.weight * all.weight / all.variance;
        let rest = all.without(self);
        let variance =
            (self.variance * (1.0 - share).powi(2) + rest.variance * share.powi(2)) / (all.weight * all.weight);
        let by_variance = share * (1.0 - share) / variance;
        if !by_variance.is_finite() {
            return by_weights;
        }
        if self.samples < FEW || rest.samples < FEW { by_weights.min(by_variance) } else { by_variance }
    }
}

/// Wilson's interval for a share seen in `samples` draws: sound for few samples and for shares near 0 and 1.
fn wilson(share: f64, samples: f64) -> Estimate {
    let z2 = Z * Z;
    let centre = (share + z2 / (2.0 * samples)) / (1.0 + z2 / samples);
    let half = Z / (1.0 + z2 / samples) * (share * (1.0 - share) / samples + z2 / (4.0 * samples * samples)).sqrt();
    Estimate { value: share, low: (centre - half).clamp(0.0, share), high: (centre + half).clamp(share, 1.0) }
}

/// Size of the simple random sample that would know a share as well as its interval does, where nothing of the share was seen: Wilson's upper end of none. With
/// samples that are drawn together, fewer than there are; infinite where nothing was left out.
pub(crate) fn draws_without(none: Estimate) -> f64 {
    Z * Z * (1.0 / none.high - 1.0)
}

/// The sum of two shares of one whole, whose errors have nothing to do with each other. The ends keep their own distances, in quadrature.
pub(crate) fn sum_of_shares(a: Estimate, b: Estimate) -> Estimate {
    let value = a.value + b.value;
    let below = (a.value - a.low).hypot(b.value - b.low);
    let above = (a.high - a.value).hypot(b.high - b.value);
    Estimate { value, low: (value - below).max(0.0), high: (value + above).min(1.0) }
}

/// The share `part` of the share `whole`, as a share of what the latter is of. Of few samples, and near 0, half of the interval's width is far less than the
/// distance to its upper end, so that has its own.
pub(crate) fn share_of_share(whole: Estimate, part: Estimate) -> Estimate {
    let value = whole.value * part.value;
    let margin = (whole.margin() * part.value).hypot(whole.value * part.margin());
    let above = ((whole.high - whole.value) * part.value).hypot(whole.value * (part.high - part.value)).max(margin);
    Estimate { value, low: (value - margin).max(0.0), high: (value + above).min(1.0) }
}

/// Net share of `whole` that changes when `gained` (part of `whole`) is won and `lost` (not part of it) is lost: the ratio
/// `(gained - lost) / whole` by its linearised variance. Never below 0.
pub(crate) fn net_share(gained: &Tally, lost: &Tally, whole: &Tally) -> Estimate {
    if whole.weight <= 0.0 {
        return Estimate::exact(0.0);
    }
    let ratio = (gained.weight - lost.weight) / whole.weight;
    let rest = whole.without(gained);
    let spread = gained.variance * (1.0 - ratio).powi(2) + rest.variance * ratio.powi(2) + lost.variance;
    let half = Z * spread.sqrt() / whole.weight;
    let clamp = |share: f64| share.clamp(0.0, 1.0);
    // A plain interval collapses where everything or nothing is gained: borrow Wilson's there.
    let wilson = gained.share_of(whole);
    let (low, high) = if lost.samples == 0 { (wilson.low, wilson.high) } else { (ratio - half, ratio + half) };
    Estimate { value: clamp(ratio), low: clamp(low), high: clamp(high) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jackknife_of_a_mean_is_the_interval_of_the_mean() {
        // Leaving out one of five values 1..5: the jackknife's variance of their mean is their variance over five.
        let without = [1.0f64, 2.0, 3.0, 4.0, 5.0].map(|value| (15.0 - value) / 4.0);
        let expected = 2.776 * (2.5f64 / 5.0).sqrt();
        assert!((Estimate::jackknife(3.0, &without).margin() - expected).abs() < 1e-9);
    }

    #[test]
    fn few_draws_are_worth_few_parts() {
        // Two of five parts, three of them, and all; more draws than can be told apart from infinitely many.
        for (draws, freedom) in [(1.0, 1), (3.0, 1), (8.0, 2), (20.0, 3), (40.0, 4), (1e9, 4), (f64::INFINITY, 4)] {
            assert_eq!(Estimate::widened_by_few(5, draws), student(freedom) / student(4), "{draws}");
        }
        let mut lines = Tally::default();
        let line = Weight { count: 8.0, cluster: 80.0 };
        (0..30).for_each(|_| lines.add(line));
        assert!((lines.draws() - 3.0).abs() < 0.1, "ten samples of each of three lines: {}", lines.draws());
        assert_eq!(Tally { samples: 1, weight: 1.0, variance: 0.0 }.draws(), f64::INFINITY);
    }

    /// Two remote samples of twenty, among a thousand: by half of the interval's width, the upper end lay below the truth in one case of six.
    #[test]
    fn the_share_of_a_share_reaches_as_far_up_as_that_share_does() {
        let (whole, part) = (wilson(0.02, 1000.0), wilson(0.1, 20.0));
        let found = share_of_share(whole, part);
        assert!((found.value - 0.002).abs() < 1e-12 && found.high - found.value > found.value - found.low, "{found:?}");
        assert!(found.high > 0.02 * part.high && found.low < 0.02 * part.low, "{found:?} of {part:?}");
        // None of twenty: the same as of these alone.
        let none = share_of_share(whole, wilson(0.0, 20.0));
        assert!((none.high - 0.02 * wilson(0.0, 20.0).high).abs() < 1e-12 && none.low == 0.0, "{none:?}");
        assert_eq!(share_of_share(Estimate::exact(0.5), Estimate::exact(0.5)), Estimate::exact(0.25));
    }
}
