//! DAMON's operation schemes: which regions one moves, the hottest or the coldest first, and how much of them in a second (`mm/damon/core.c`,
//! `damon_hot_score` and `damon_cold_score` of `mm/damon/ops-common.c`).

use numapilot_host::PageNumber;

use super::regions::Region;

/// Greatest score of a region (`DAMOS_MAX_SCORE`), and of a part of it (`DAMON_MAX_SUBSCORE`).
pub(super) const MAX_SCORE: usize = 99;
const MAX_PART: u64 = 100;
/// Greatest logarithm of an age in seconds (`DAMON_MAX_AGE_IN_LOG`).
const MAX_AGE_LOG: i64 = 32;
/// A goal is met at this score, in ten-thousandths (`damon_feed_loop_next_input`), which is also the least input of the loop.
const GOAL: u64 = 10_000;

/// Which pages a scheme moves, and where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `DAMOS_MIGRATE_HOT`: accessed ones to the fastest tier.
    Hot,
    /// `DAMOS_MIGRATE_COLD`: others away from it.
    Cold,
}

/// What a scheme's regions must be like, and how much it may move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Accesses of a region from which on it is hot, of `most_accesses`.
    pub min_accesses: u32,
    /// Age of a region from which on it is cold if it was not accessed, aggregation intervals.
    pub min_cold_age: u32,
    /// Bytes per reset interval.
    pub quota_bytes: u64,
    /// Reset interval of the quota, nanoseconds.
    pub reset_ns: u64,
    /// Greatest access count.
    pub most_accesses: u32,
    /// Aggregation interval, nanoseconds.
    pub aggregation_ns: u64,
}

/// A scheme with its quota.
#[derive(Clone, Debug)]
pub(super) struct Scheme {
    pub kind: Kind,
    /// Present quota in ten-thousandths of a byte, where a goal tunes it.
    tuned: u64,
    /// Bytes that may move in this reset interval (`esz`).
    quota: u64,
    charged: u64,
    window_ns: Option<u64>,
    /// Where the quota ended the last time: process and page.
    pub resume: Option<(u32, PageNumber)>,
    min_score: usize,
}

impl Scheme {
    pub fn new(kind: Kind) -> Self {
        Self { kind, tuned: 0, quota: 0, charged: 0, window_ns: None, resume: None, min_score: 0 }
    }

    /// Bytes that may still move in this interval.
    pub fn left(&self) -> u64 {
        self.quota.saturating_sub(self.charged)
    }

    /// Charges a move, done or not, to the quota.
    pub fn charge(&mut self, bytes: u64) {
        self.charged += bytes;
    }

    /// Begins a new reset interval if the old one is over (`damos_adjust_quota`). `goal`: how far the goal is reached, in ten-thousandths; `None`: the quota
    /// is what the limits say.
    pub fn adjust(&mut self, now_ns: u64, goal: Option<u64>, limits: &Limits) {
        if self.window_ns.is_some_and(|began| now_ns < began + limits.reset_ns) {
            return;
        }
        (self.window_ns, self.charged) = (Some(now_ns), 0);
        self.quota = match goal {
            None => limits.quota_bytes,
            Some(score) => {
                self.tuned = next_input(self.tuned.max(GOAL), score);
                (self.tuned / GOAL).min(limits.quota_bytes)
            }
        };
    }

    /// Sets the least score at which regions are moved, so that the quota goes to the best ones. `sizes`: bytes of the regions that fit, with their scores.
    pub fn select(&mut self, sizes: impl Iterator<Item = (usize, u64)>) {
        let mut histogram = [0; MAX_SCORE + 1];
        sizes.for_each(|(score, bytes)| histogram[score.min(MAX_SCORE)] += bytes);
        let mut sum = 0;
        self.min_score = (0..=MAX_SCORE)
            .rev()
            .find(|&score| {
                sum += histogram[score];
                sum >= self.quota
            })
            .unwrap_or(0);
    }

    /// Whether the region's accesses and age are those that the scheme acts upon (`__damos_valid_target`).
    pub fn fits(&self, region: &Region, limits: &Limits) -> bool {
        match self.kind {
            Kind::Hot => region.accesses >= limits.min_accesses,
            Kind::Cold => region.accesses == 0 && region.age >= limits.min_cold_age,
        }
    }

    /// Whether its score is good enough for the quota, too.
    pub fn takes(&self, region: &Region, limits: &Limits) -> bool {
        self.fits(region, limits) && self.score(region, limits) >= self.min_score
    }

    /// How hot (or cold) the region is, 0 to 99: half by how often it was accessed, half by the logarithm of for how long (weights of both 100, of its size 0).
    pub fn score(&self, region: &Region, limits: &Limits) -> usize {
        let often = u64::from(region.accesses) * MAX_PART / u64::from(limits.most_accesses.max(1));
        let seconds = u64::from(region.age) * limits.aggregation_ns / 1_000_000_000;
        let log = i64::from(u64::BITS - seconds.leading_zeros()).min(MAX_AGE_LOG);
        let log = MAX_AGE_LOG + if often == 0 { -log } else { log };
        let age = log as u64 * MAX_PART / MAX_AGE_LOG as u64 / 2;
        let hot = ((often + age) / 2 * MAX_SCORE as u64 / MAX_PART) as usize;
        match self.kind {
            Kind::Hot => hot,
            Kind::Cold => MAX_SCORE - hot.min(MAX_SCORE),
        }
    }
}

/// The next quota of a goal that is reached so far (`damon_feed_loop_next_input`): more in proportion to what is missing, less to what is too much.
fn next_input(last: u64, score: u64) -> u64 {
    if score >= 2 * GOAL {
        return GOAL;
    }
    let change =
        (u128::from(last) * u128::from(score.abs_diff(GOAL)) / u128::from(GOAL)).min(u128::from(u64::MAX)) as u64;
    if score > GOAL { last.saturating_sub(change).max(GOAL) } else { last.saturating_add(change) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        min_accesses: 1,
        min_cold_age: 0,
        quota_bytes: 1000,
        reset_ns: 1_000_000_000,
        most_accesses: 20,
        aggregation_ns: 100_000_000,
    };

    fn region(accesses: u32, age: u32) -> Region {
        let first = PageNumber(0);
        Region { process: 1, first, pages: 1, accesses, last_accesses: accesses, age, sampled: first }
    }

    /// By the kernel's arithmetic: 20 of 20 accesses for no second are (100 + 50) / 2 = 75 of 100, 74 of 99; none for 100 s are (0 + 39) / 2.
    #[test]
    fn scores_are_the_kernels() {
        let (hot, cold) = (Scheme::new(Kind::Hot), Scheme::new(Kind::Cold));
        assert_eq!(hot.score(&region(20, 0), &LIMITS), 74);
        assert_eq!(hot.score(&region(0, 1000), &LIMITS), 18);
        assert_eq!(cold.score(&region(0, 1000), &LIMITS), 81);
        assert!(hot.score(&region(10, 100), &LIMITS) > hot.score(&region(10, 0), &LIMITS), "longer is hotter");
        assert!(cold.score(&region(0, 100), &LIMITS) > cold.score(&region(0, 0), &LIMITS), "and colder");
    }

    #[test]
    fn the_quota_goes_to_the_hottest() {
        let mut scheme = Scheme::new(Kind::Hot);
        scheme.adjust(0, None, &LIMITS);
        scheme.select([(70, 600), (60, 600), (50, 600)].into_iter());
        assert_eq!(scheme.min_score, 60, "700 bytes of both, and the third has to wait");
        scheme.charge(900);
        scheme.adjust(999_999_999, None, &LIMITS);
        assert_eq!(scheme.left(), 100);
        scheme.adjust(1_000_000_000, None, &LIMITS);
        assert_eq!(scheme.left(), 1000);
    }

    #[test]
    fn a_goal_tunes_the_quota_from_nothing_to_its_limit_and_back() {
        let mut scheme = Scheme::new(Kind::Hot);
        let mut quotas = Vec::new();
        for second in 0..12 {
            scheme.adjust(second * 1_000_000_000, Some(0), &LIMITS);
            quotas.push(scheme.left());
        }
        assert_eq!(quotas[..4], [2, 4, 8, 16], "doubled while nothing is reached");
        assert_eq!(quotas[11], 1000);
        scheme.adjust(20_000_000_000, Some(10_000), &LIMITS);
        assert_eq!(scheme.left(), 1000, "reached: as it is");
        for second in 21..60 {
            scheme.adjust(second * 1_000_000_000, Some(15_000), &LIMITS);
        }
        assert_eq!(scheme.left(), 1, "halved while there is too much");
    }
}
