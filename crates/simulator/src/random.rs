//! Seeded randomness: one small generator (xoshiro256++ by Blackman and Vigna, 2019, seeded by SplitMix64), and the draws that the simulator needs.
//! Same seed, same run, on every machine.

/// A seeded generator of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Mixes a number into 64 evenly distributed bits.
pub(crate) fn scramble(number: u64) -> u64 {
    split_mix(&mut number.wrapping_mul(2).wrapping_add(1))
}

impl Random {
    /// A generator with this seed.
    pub(crate) fn new(seed: u64) -> Random {
        let mut mixed = seed;
        Random { state: std::array::from_fn(|_| split_mix(&mut mixed)) }
    }

    fn next(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Evenly in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Evenly among 0 to `count` - 1; `count` is at least 1.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(count)) >> 64) as u64
    }

    /// Time until the first event at rate 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Number of events where `mean` are expected: by waiting times up to 32, above that by the rounded normal approximation.
    pub(crate) fn poisson(&mut self, mean: f64) -> u64 {
        if mean > 32.0 {
            let normal = (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
            return (mean + mean.sqrt() * normal).round().max(0.0) as u64;
        }
        let mut left = mean - self.exponential();
        let mut count = 0;
        while left > 0.0 {
            count += 1;
            left -= self.exponential();
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_their_means() {
        let mut random = Random::new(7);
        let draws = 20_000;
        for mean in [0.3, 4.0, 100.0] {
            let sum: u64 = (0..draws).map(|_| random.poisson(mean)).sum();
            let error = (sum as f64 / f64::from(draws) - mean).abs();
            assert!(error < 4.0 * (mean / f64::from(draws)).sqrt(), "poisson({mean}) is off by {error}");
        }
        let sum: f64 = (0..draws).map(|_| random.exponential()).sum();
        assert!((sum / f64::from(draws) - 1.0).abs() < 0.03);
        assert!((0..1000).all(|_| random.below(3) < 3));
    }
}
