//! Do 95 % intervals hold the truth in 95 % of simulated samplings?

use numapilot_flows::AccessRef;
use numapilot_insight::Tally;
use numapilot_random::Random;

/// Geometric interval with this mean: each access is sampled with probability 1/mean.
fn interval(random: &mut Random, mean: f64) -> u64 {
    1 + ((1.0 - random.unit()).ln() / (1.0 - 1.0 / mean).ln()) as u64
}

/// One sampled run of `accesses` accesses, of which the share `share` (at random) belongs to the object; the first half is sampled with
/// period `periods.0`, the second with `periods.1`. Gives the object's tally, the whole tally, and the true number of the object's accesses.
fn run(random: &mut Random, accesses: u64, share: f64, periods: (f64, f64)) -> (Tally, Tally, u64) {
    let (mut object, mut all, mut truth) = (Tally::default(), Tally::default(), 0);
    let mut left = interval(random, periods.0);
    for index in 0..accesses {
        let period = if index * 2 < accesses { periods.0 } else { periods.1 };
        let is_object = random.unit() < share;
        truth += u64::from(is_object);
        left -= 1;
        if left == 0 {
            left = interval(random, period);
            all.add(period as u32);
            if is_object {
                object.add(period as u32);
            }
        }
    }
    (object, all, truth)
}

#[test]
fn shares_and_totals_are_covered_at_the_nominal_rate() {
    const RUNS: u32 = 500;
    for (seed, share, accesses, periods) in [
        (1, 0.809, 40_000, (50.0, 50.0)),
        (2, 0.5, 20_000, (100.0, 25.0)),
        (3, 0.02, 40_000, (40.0, 40.0)),
        (4, 0.98, 10_000, (100.0, 100.0)),
        (5, 0.1, 60_000, (200.0, 50.0)),
    ] {
        let mut random = Random::new(seed);
        let (mut share_covered, mut total_covered) = (0, 0);
        for _ in 0..RUNS {
            let (object, all, truth) = run(&mut random, accesses, share, periods);
            let interval = object.share_of(&all);
            let true_share = truth as f64 / accesses as f64;
            share_covered += u32::from(interval.low <= true_share && true_share <= interval.high);
            let total = object.total();
            total_covered += u32::from(total.low <= truth as f64 && truth as f64 <= total.high);
        }
        for (what, covered) in [("share", share_covered), ("total", total_covered)] {
            let rate = f64::from(covered) / f64::from(RUNS);
            // Three standard errors of the rate itself, and intervals for few samples err on the safe side.
            assert!((0.92..=0.997).contains(&rate), "seed {seed}, {what}: {rate}");
        }
    }
}

/// One cache line in eight is simulated, and of its accesses one in `period` kept. Lines are unequally hot; the object has the first
/// `own` of them. Gives the object's tally and the whole tally.
fn run_by_lines(random: &mut Random, lines: &[u64], own: usize, period: u32) -> (Tally, Tally) {
    const ONE_IN: u32 = 8;
    let (mut object, mut all) = (Tally::default(), Tally::default());
    for (line, &accesses) in lines.iter().enumerate() {
        if !random.bits().is_multiple_of(u64::from(ONE_IN)) {
            continue;
        }
        let kept = (0..accesses).filter(|_| random.bits().is_multiple_of(u64::from(period))).count() as u32;
        let weight = period * ONE_IN;
        let access = AccessRef { weight, cluster: f64::from(kept * weight), ..AccessRef::at(64 * line as u64) };
        for _ in 0..kept {
            all.add(access);
            if line < own {
                object.add(access);
            }
        }
    }
    (object, all)
}

#[test]
fn shares_are_covered_where_only_some_lines_were_simulated() {
    const RUNS: u32 = 400;
    for (seed, lines, own, hottest, period) in
        [(1, 2000, 600, 40, 4), (2, 1000, 200, 400, 50), (3, 4000, 3000, 5, 1), (4, 600, 300, 100, 10)]
    {
        let mut random = Random::new(seed);
        let heat: Vec<u64> = (0..lines).map(|_| 1 + random.bits() % hottest).collect();
        let truth = heat[..own].iter().sum::<u64>() as f64 / heat.iter().sum::<u64>() as f64;
        let mut covered = 0;
        let mut narrow = 0;
        for _ in 0..RUNS {
            let (object, all) = run_by_lines(&mut random, &heat, own, period);
            let interval = object.share_of(&all);
            covered += u32::from(interval.low <= truth && truth <= interval.high);
            narrow += u32::from(interval.margin() < 0.2);
        }
        let rate = f64::from(covered) / f64::from(RUNS);
        assert!((0.92..=0.999).contains(&rate), "seed {seed}: {rate}");
        assert_eq!(narrow, RUNS, "seed {seed}: intervals so wide that they say nothing");
    }
}

#[test]
fn nothing_seen_is_no_proof_of_nothing() {
    let mut all = Tally::default();
    (0..100).for_each(|_| all.add(1000));
    let none = Tally::default().share_of(&all);
    assert_eq!((none.value, none.low), (0.0, 0.0));
    assert!((0.02..0.05).contains(&none.high), "about 3.7 / 100: {none:?}");
    let everything = all.share_of(&all);
    assert_eq!((everything.value, everything.high), (1.0, 1.0));
    assert!((0.95..0.98).contains(&everything.low), "{everything:?}");
    let undefined = Tally::default().share_of(&Tally::default());
    assert_eq!((undefined.low, undefined.high), (0.0, 1.0));
}

#[test]
fn weights_of_one_are_exact() {
    let (mut part, mut all) = (Tally::default(), Tally::default());
    for index in 0..10 {
        all.add(1);
        if index < 3 {
            part.add(1);
        }
    }
    assert!(part.share_of(&all).is_exact() && part.total().is_exact());
    assert_eq!(part.share_of(&all).value, 0.3);
}
