//! Empirical Bayes for sparse samples: how far to trust what was seen of a small group (a page) against what was seen of its parent (its block, its object).
//!
//! **Who accesses.** The members of a parent have distributions over threads that scatter around the parent's: Dirichlet with concentration k. Two samples of
//! one member are of the same thread with probability `S + (1 - S) / (k + 1)`, where S is that of two samples of the whole parent. So k follows from counting
//! pairs, and a member's distribution is estimated as `(n f + k F) / (n + k)`: n samples with frequencies f, parent's frequencies F. Evenly shared members
//! give a large k (a page seen once is taken for shared like its object), private ones a small k.
//!
//! **How often.** Members' rates scatter around the parent's mean m: Gamma with shape s, so that counts have variance `m + m^2 / s`.
//! A member of u units seen n times is estimated at `(n + s) / (u + s / m)` per unit.

/// Pairs that are taken to have been seen in evidence of no scatter at all: with fewer pairs than that, one believes the parent.
const PRIOR_PAIRS: f64 = 4.0;
/// A concentration beyond all samples: members do not differ.
pub(crate) const ALIKE: f64 = 1e12;

/// Concentration of members around their parent. Each member is given as its samples by category (thread; read or write).
pub(crate) fn concentration<'a>(members: impl Iterator<Item = &'a [u32]>, categories: usize) -> f64 {
    let mut total = vec![0.0; categories];
    let (mut same, mut pairs) = (0.0, 0.0);
    for member in members {
        let count: f64 = member.iter().map(|&n| f64::from(n)).sum();
        pairs += count * (count - 1.0);
        same += member.iter().map(|&n| f64::from(n) * (f64::from(n) - 1.0)).sum::<f64>();
        total.iter_mut().zip(member).for_each(|(sum, &n)| *sum += f64::from(n));
    }
    let count: f64 = total.iter().sum();
    if count < 2.0 {
        return ALIKE;
    }
    let whole = total.iter().map(|n| n * (n - 1.0)).sum::<f64>() / (count * (count - 1.0));
    let within = (same + PRIOR_PAIRS * whole) / (pairs + PRIOR_PAIRS);
    if within - whole <= 1.0 / ALIKE { ALIKE } else { (1.0 - within) / (within - whole) }
}

/// The estimate of a member's distribution: `weights` of its samples by category (of whatever sum), how many samples they are, and the parent's.
pub(crate) fn distribution(weights: &[f64], samples: f64, parent: &[f64], concentration: f64) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    let trust = if sum > 0.0 { samples / (samples + concentration) } else { 0.0 };
    let own = |weight: f64| if sum > 0.0 { weight / sum } else { 0.0 };
    weights.iter().zip(parent).map(|(&weight, &parent)| trust * own(weight) + (1.0 - trust) * parent).collect()
}

/// Shape of the members' rates around the mean: (samples, units) of each member.
pub(crate) fn shape(members: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let (mut samples, mut units) = (0.0, 0.0);
    for (n, u) in members.clone() {
        samples += n;
        units += u;
    }
    if samples <= 0.0 {
        return ALIKE;
    }
    let mean = samples / units;
    let (mut excess, mut squares) = (0.0, 0.0);
    for (n, u) in members {
        excess += (n - mean * u).powi(2) - mean * u;
        squares += (mean * u).powi(2);
    }
    // The squares that would have been expected without any excess, for the prior pairs.
    if excess <= squares / ALIKE { ALIKE } else { (squares + PRIOR_PAIRS * mean * units / samples) / excess }
}

/// Estimated rate per unit of a member.
pub(crate) fn rate(samples: f64, units: f64, mean: f64, shape: f64) -> f64 {
    if mean <= 0.0 { 0.0 } else { (samples + shape) / (units + shape / mean) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Draws `per` samples for each of `members`, of thread `who(member)`.
    fn draw(members: usize, per: usize, mut who: impl FnMut(&mut Random, usize) -> usize) -> Vec<[u32; 4]> {
        let mut random = Random::new(11);
        let mut seen = vec![[0; 4]; members];
        for (member, counts) in seen.iter_mut().enumerate() {
            (0..per).for_each(|_| counts[who(&mut random, member)] += 1);
        }
        seen
    }

    fn concentration_of(seen: &[[u32; 4]]) -> f64 {
        concentration(seen.iter().map(<[u32; 4]>::as_slice), 4)
    }

    #[test]
    fn shared_members_are_pulled_to_their_parent_and_private_ones_are_not() {
        let shared = concentration_of(&draw(400, 2, |random, _| random.below(4) as usize));
        let private = concentration_of(&draw(400, 2, |_, member| member % 4));
        assert!(shared > 10.0, "members shared evenly: {shared}");
        assert!(private < 0.05, "private members: {private}");
        let even = [0.25; 4];
        assert!(distribution(&[1.0, 0.0, 0.0, 0.0], 1.0, &even, shared)[0] < 0.35);
        assert!(distribution(&[1.0, 0.0, 0.0, 0.0], 1.0, &even, private)[0] > 0.95);
    }

    #[test]
    fn members_seen_once_say_nothing_about_their_scatter() {
        assert!(concentration_of(&draw(50, 1, |random, _| random.below(4) as usize)) >= ALIKE);
    }

    #[test]
    fn even_rates_have_no_scatter_and_hot_members_do() {
        let mut random = Random::new(3);
        let even: Vec<(f64, f64)> = (0..500).map(|_| (random.poisson(2.0) as f64, 1.0)).collect();
        assert!(shape(even.iter().copied()) > 10.0);
        let hot: Vec<(f64, f64)> =
            (0..500).map(|k| (random.poisson(if k < 10 { 60.0 } else { 1.0 }) as f64, 1.0)).collect();
        let mean = hot.iter().map(|member| member.0).sum::<f64>() / 500.0;
        let shape = shape(hot.iter().copied());
        assert!(shape < 0.5, "{shape}");
        assert!(rate(60.0, 1.0, mean, shape) > 50.0 && rate(0.0, 1.0, mean, shape) < 1.0);
    }
}
