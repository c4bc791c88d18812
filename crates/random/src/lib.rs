//! Seeded random numbers. Simulations, ensembles of machines, synthetic traces and generated tests must come out the same for the same seed, on every
//! machine and in every release, so no sequence here changes: tests compare each with published numbers.
//!
//! [`Random`] (SplitMix64) is what new code takes. [`Xoshiro`] draws for the simulator, [`Linear`] the restarts of the balancer's packing, [`Xorshift`] the
//! input of tests: what was made with them stays comparable, so they keep their generators.
//!
//! [`fnv1a`] hashes bytes, for names of files. [`quantile`] says how far random errors reach.
//!
//! Only operations that IEEE 754 fixes to the last bit are used. A draw is brought into a range in one of two ways, which give different numbers:
//! [`Random::below`] takes the high half of a product, [`Random::remainder`] the remainder of a division.

pub mod quantile;

/// The odd number nearest to 2^64 divided by the golden ratio: SplitMix64's step.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The bits of a number, each of which depends on all of its bits: SplitMix64's finaliser. 0 stays 0.
#[inline]
#[must_use]
pub const fn mixed(number: u64) -> u64 {
    let mut bits = number;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A hash of a number: the first draw of [`Random`] with this seed.
#[inline]
#[must_use]
pub const fn hashed(number: u64) -> u64 {
    mixed(number.wrapping_add(STEP))
}

/// A hash of bytes that names files and their versions: FNV-1a of 64 bits (Fowler, Noll and Vo). Whoever chooses the bytes can choose its value, too.
#[inline]
#[must_use]
pub fn fnv1a(bytes: &[u8]) -> u64 {
    fnv1a_more(0xcbf2_9ce4_8422_2325, bytes)
}

/// [`fnv1a`] of what has this hash, and these bytes behind it.
#[inline]
#[must_use]
pub fn fnv1a_more(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// 64 random bits as a number from 0 (inside) to 1 (outside).
#[inline]
#[must_use]
pub fn unit_of(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// 64 random bits as a number from 0 to `limit` - 1, by the high half of their product; 0 if `limit` is 0.
#[inline]
#[must_use]
pub fn below_of(bits: u64, limit: u64) -> u64 {
    ((u128::from(bits) * u128::from(limit)) >> 64) as u64
}

/// A stream of random numbers: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). Every seed will do.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mixed(self.0)
    }

    /// Evenly from 0 (inside) to 1 (outside).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        unit_of(self.bits())
    }

    /// Evenly among 0 to `limit` - 1, by the high half of a product; 0 if `limit` is 0.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        below_of(self.bits(), limit)
    }

    /// Among 0 to `limit` - 1, by the remainder of a division; 0 if `limit` is 0. Its bias is below `limit` / 2^64.
    #[inline]
    pub fn remainder(&mut self, limit: u64) -> u64 {
        self.bits().checked_rem(limit).unwrap_or(0)
    }

    /// An index of a list of this length, by [`Random::below`]; 0 if it is empty.
    #[inline]
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// True once in this many times, by [`Random::below`].
    #[inline]
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// A stream of random numbers: xoshiro256++ (Blackman and Vigna, 2019), seeded by SplitMix64.
#[derive(Clone, Debug)]
pub struct Xoshiro([u64; 4]);

impl Xoshiro {
    /// The stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Xoshiro {
        let mut seeds = Random::new(seed);
        Xoshiro(std::array::from_fn(|_| seeds.bits()))
    }

    /// The next 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
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
}

/// A stream of random numbers: the linear congruential generator of Knuth's MMIX. Its low bits repeat soon: a draw takes the high 31.
#[derive(Clone, Debug)]
pub struct Linear(u64);

impl Linear {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Linear {
        Linear(seed)
    }

    /// An index of a list of this length, by the remainder of a division; 0 if it is empty.
    #[inline]
    pub fn index(&mut self, length: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize).checked_rem(length).unwrap_or(0)
    }
}

/// A stream of random numbers: xorshift64* (Vigna, 2016). The seed 0 gives nothing but 0.
#[derive(Clone, Debug)]
pub struct Xorshift(u64);

impl Xorshift {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Xorshift {
        Xorshift(seed)
    }

    /// The next 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Evenly among 0 to `limit` - 1, by the high half of a product; 0 if `limit` is 0.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        below_of(self.bits(), limit)
    }
}

#[cfg(test)]
mod tests {
    //! Against numbers that others published for the same generators, and against the reductions written out.

    use super::*;

    #[test]
    fn splitmix64_gives_the_published_numbers() {
        let mut random = Random::new(1_234_567);
        let published: [u64; 5] = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!([0; 5].map(|_| random.bits()), published);
        let mut random = Random::new(0);
        let published: [u64; 3] = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!([0; 3].map(|_| random.bits()), published);
        assert_eq!((hashed(1_234_567), hashed(0)), (6_457_827_717_110_365_317, 0xe220_a839_7b1d_cdaf));
        assert_eq!((mixed(0), mixed(1)), (0, 0x5692_161d_100b_05e5));
    }

    #[test]
    fn fnv1a_gives_the_published_numbers() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(fnv1a_more(fnv1a(b"foo"), b"bar"), fnv1a(b"foobar"));
    }

    #[test]
    fn draws_are_reduced_in_two_ways() {
        // The stream of 7 begins with 7191089600892374487, 309689372594955804, 16616101746815609346, 10753165928301472203.
        let mut random = Random::new(7);
        assert_eq!([0; 4].map(|_| random.below(10)), [3, 0, 9, 5]);
        let mut random = Random::new(7);
        assert_eq!([0; 4].map(|_| random.remainder(10)), [7, 4, 6, 3]);
        let mut random = Random::new(7);
        assert_eq!([0; 2].map(|_| random.unit()), [0.389_829_748_391_271_5, 0.016_788_294_528_156_11]);
        let mut random = Random::new(7);
        assert_eq!((random.index(10), random.one_in(10), random.one_in(10)), (3, true, false));
        // Nothing to choose from: a draw is taken all the same, and nothing panics.
        let mut random = Random::new(7);
        assert_eq!((random.below(0), random.remainder(0), random.below(10)), (0, 0, 9));
    }

    #[test]
    fn the_other_generators_give_the_published_numbers() {
        let mut xoshiro = Xoshiro([1, 2, 3, 4]);
        let published: [u64; 5] =
            [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386, 9_228_616_714_210_784_205];
        assert_eq!([0; 5].map(|_| xoshiro.bits()), published);
        let seeded = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f, 0xf88b_b8a8_724c_81ec];
        assert_eq!(Xoshiro::new(0).0, seeded);
        let mut xorshift = Xorshift::new(1);
        let published: [u64; 3] = [5_180_492_295_206_395_165, 12_380_297_144_915_551_517, 13_389_498_078_930_870_103];
        assert_eq!([0; 3].map(|_| xorshift.bits()), published);
        // 12380297144915551517 times 10 divided by 2^64.
        let mut xorshift = Xorshift::new(1);
        assert_eq!([0; 2].map(|_| xorshift.below(10)), [2, 6]);
        // States 1442695040888963407, 1876011003808476466 and 11166244414315200793, without their low 33 bits.
        let mut linear = Linear::new(0);
        let states: [u64; 3] = [1_442_695_040_888_963_407, 1_876_011_003_808_476_466, 11_166_244_414_315_200_793];
        assert_eq!([0; 3].map(|_| linear.index(1 << 31)), states.map(|state| (state >> 33) as usize));
        assert_eq!(linear.index(0), 0);
    }
}
