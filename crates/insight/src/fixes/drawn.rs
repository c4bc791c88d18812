//! How well the sampling knows the gain of a fix: the jackknife's interval, and where the accesses that the fix concerns are few independent draws, none
//! narrower than these support. `docs/patterns.md`, "Interval".

use std::collections::BTreeMap;

use numapilot_random::quantile::Z;

use crate::estimate::{Estimate, Tally};

/// Fewer draws than this, of two kinds that are equally frequent, are all of one kind in more than one recording of twenty (five: in 2 of 32). Then no
/// interval follows from how they differ.
const TELLING: f64 = 6.0;

/// The accesses that fixes concern.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    /// Number of independent draws of equal weight that tell as much of them: of cache lines, where only some of these were simulated.
    draws: f64,
    /// Standard error of their share of all accesses, relative to that share.
    error: f64,
}

impl Drawn {
    /// `by_group`: all accesses. The fixes concern the groups for which `is_about` holds.
    pub fn of(by_group: &BTreeMap<u32, Tally>, is_about: impl Fn(u32) -> bool) -> Drawn {
        let (mut about, mut others) = (Tally::default(), Tally::default());
        for (group, tally) in by_group {
            let of_which = if is_about(*group) { &mut about } else { &mut others };
            of_which.merge(tally);
        }
        Drawn::among(about.draws(), others.draws(), about.weight / (about.weight + others.weight).max(1.0))
    }

    /// So many `draws`, which make up this `share` of all accesses, beside those of the `others`: the error of a share of two sums that were drawn separately.
    fn among(draws: f64, others: f64, share: f64) -> Drawn {
        Drawn { draws, error: (1.0 - share) * (1.0 / draws + 1.0 / others).sqrt() }
    }

    /// Half of the 95 % interval that the sampling gives a gain, from the gains without each part of the lines.
    pub fn margin(&self, gain: f64, parts: &[f64]) -> f64 {
        let wider = Estimate::widened_by_few(parts.len(), self.draws);
        let of_parts = Estimate::jackknife(gain, parts).margin() * wider;
        if wider > 1.0 { of_parts.max(self.least() * gain.abs()) } else { of_parts }
    }

    /// The least that it is as a share of the gain where draws are few: parts may agree by chance, or all but one be empty. A gain is in proportion to the
    /// number of accesses that change, which is known only as well as so many draws know their share of all.
    fn least(&self) -> f64 {
        if self.draws < TELLING { 1.0 } else { (Z * self.error).min(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use numapilot_random::Random;

    use super::*;
    use crate::estimate::Weight;

    const PARTS: usize = 5;
    const RUNS: u32 = 300;
    /// One line in so many is simulated.
    const ONE_IN: u32 = 8;

    /// The accesses of a made-up recording, the gain that they give with and without each part, and the true one.
    type Run = (Drawn, f64, [f64; PARTS], f64);

    /// Shares of the runs whose interval holds the truth, as they are now and with Student's t of four degrees of freedom throughout.
    fn covered(seed: u64, mut run: impl FnMut(&mut Random) -> Option<Run>) -> (f64, f64) {
        let mut random = Random::new(seed);
        let (mut runs, mut held, mut held_by_parts) = (0, 0, 0);
        while runs < RUNS {
            let Some((drawn, gain, parts, truth)) = run(&mut random) else { continue };
            runs += 1;
            held += u32::from((gain - truth).abs() <= drawn.margin(gain, &parts));
            held_by_parts += u32::from((gain - truth).abs() <= Estimate::jackknife(gain, &parts).margin());
        }
        (f64::from(held) / f64::from(RUNS), f64::from(held_by_parts) / f64::from(RUNS))
    }

    /// Recordings of an object's `own` lines, each with many accesses, among 400 others. The gain is half of the object's share of the accesses.
    fn of_an_object(random: &mut Random, own: u32, heat: u32) -> Option<Run> {
        const OTHERS: u32 = 400;
        let (mut of_object, mut all) = ([0.0; PARTS], [0.0; PARTS]);
        let mut groups: BTreeMap<u32, Tally> = BTreeMap::new();
        for line in 0..own + OTHERS {
            if !random.bits().is_multiple_of(u64::from(ONE_IN)) {
                continue;
            }
            let part = random.remainder(PARTS as u64) as usize;
            let is_own = line < own;
            let weight = ONE_IN * if is_own { heat } else { 1 };
            all[part] += f64::from(weight);
            of_object[part] += if is_own { f64::from(weight) } else { 0.0 };
            groups.entry(u32::from(is_own)).or_default().add(Weight::from(weight));
        }
        let gain = |own: f64, all: f64| 0.5 * own / all;
        let (own_sum, all_sum): (f64, f64) = (of_object.iter().sum(), all.iter().sum());
        let parts = std::array::from_fn(|part| gain(own_sum - of_object[part], all_sum - all[part]));
        let truth = gain(f64::from(own * heat), f64::from(own * heat + OTHERS));
        (own_sum > 0.0).then(|| (Drawn::of(&groups, |group| group == 1), gain(own_sum, all_sum), parts, truth))
    }

    #[test]
    fn few_lines_of_an_object_hold_the_truth_as_often_as_stated() {
        for (seed, own, heat) in [(1, 8, 200), (2, 16, 100), (3, 40, 40), (4, 80, 20), (5, 160, 10), (6, 400, 2)] {
            let (now, _) = covered(seed, |random| of_an_object(random, own, heat));
            assert!(now >= 0.92, "{own} lines: {now}");
        }
    }

    /// Recordings of `lines` lines that have all accesses. Half of all lines gain 1, the others nothing.
    fn of_two_kinds(random: &mut Random, lines: usize) -> Run {
        let (mut gains, mut all) = ([0.0; PARTS], [0.0; PARTS]);
        let mut tally = Tally::default();
        for _ in 0..lines {
            let part = random.remainder(PARTS as u64) as usize;
            all[part] += 1.0;
            gains[part] += if random.unit() < 0.5 { 1.0 } else { 0.0 };
            tally.add(Weight::from(1000_u32));
        }
        let (sum, count): (f64, f64) = (gains.iter().sum(), all.iter().sum());
        let without = |part: usize| (sum - gains[part], count - all[part]);
        let of_rest = |(sum, count): (f64, f64)| if count > 0.0 { sum / count } else { 0.0 };
        let parts = std::array::from_fn(|part| of_rest(without(part)));
        let drawn = Drawn::of(&BTreeMap::from([(0, tally)]), |_| true);
        (drawn, sum / count, parts, 0.5)
    }

    /// Two or three lines of a recording had the interval of five parts: it held the truth in three or four runs of five.
    #[test]
    fn few_lines_that_differ_hold_the_truth_as_often_as_stated() {
        for (seed, lines) in [(11, 6), (12, 8), (13, 12), (14, 20), (15, 35)] {
            let (now, _) = covered(seed, |random| Some(of_two_kinds(random, lines)));
            assert!(now >= 0.9, "{lines} lines: {now}");
        }
        // Of three and fewer, all that the interval can say is that a gain is not sure; where there is none, it says nothing either way.
        for (seed, lines) in [(16, 2), (17, 3)] {
            let gaining = |random: &mut Random| Some(of_two_kinds(random, lines)).filter(|run| run.1 > 0.0);
            let (now, of_parts) = covered(seed, gaining);
            assert!(now >= 0.97 && of_parts < 0.92, "{lines} lines: {now}, {of_parts} by the parts alone");
        }
    }

    #[test]
    fn what_lies_on_one_line_is_not_sure() {
        // A fifth of all accesses, on lines as hot as the others.
        let drawn = |draws: f64| Drawn::among(draws, 4.0 * draws, 0.2);
        // Without any of the parts the same gain, as of accesses that caches answer.
        let margin = |draws: f64| drawn(draws).margin(0.4, &[0.4; PARTS]);
        assert_eq!((margin(1.0), margin(5.0)), (0.4, 0.4));
        assert!((margin(20.0) - 0.4 * Z * 0.2).abs() < 1e-12, "{}", margin(20.0));
        assert_eq!((margin(1e6), margin(f64::INFINITY)), (0.0, 0.0));
        // All accesses, of which the share is known; and the same fifth beside one line that has all the others.
        assert_eq!(Drawn::among(20.0, f64::INFINITY, 1.0).margin(0.4, &[0.4; PARTS]), 0.0);
        assert_eq!(Drawn::among(20.0, 1.0, 0.2).margin(0.4, &[0.4; PARTS]), 0.4);
    }

    /// Parts whose gains differ by as much, of more and more lines: nothing of the interval becomes wider for that.
    #[test]
    fn more_draws_never_widen_an_interval() {
        for (parts, others) in [([0.4; PARTS], 1.0), ([0.4; PARTS], 500.0), ([0.38, 0.39, 0.4, 0.41, 0.42], 500.0)] {
            let margin = |tenths: u32| Drawn::among(f64::from(tenths) / 10.0, others, 0.2).margin(0.4, &parts);
            let margins: Vec<f64> = (1..1_000).map(margin).collect();
            assert!(margins.windows(2).all(|pair| pair[0] >= pair[1]), "{margins:?}");
            // Of many lines, it is the jackknife's to the digit.
            assert_eq!(margins[998], Estimate::jackknife(0.4, &parts).margin());
        }
    }
}
