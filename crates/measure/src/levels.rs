//! From a staircase (latency against array size) to the levels behind it: the flat stretches, and where each ends.

use serde::{Deserialize, Serialize};

/// A size lies on a flat stretch where latency grows by less than this (as a logarithm) over the doubling around it. Between two levels of one machine it
/// at least doubles over two doublings.
const FLAT_PER_OCTAVE: f64 = 0.24;
/// Stretches whose latencies differ by less than this are one level.
const SAME_LEVEL: f64 = 0.25;
/// A level must be flat over this part of a doubling.
const OCTAVES_MIN: f64 = 0.45;

/// A level of the memory hierarchy, as a staircase shows it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Nanoseconds per load on its flat stretch (median).
    pub ns: f64,
    /// Bytes at which latency is half-way (in proportion) to the next level's: about its capacity. `None` for the last.
    pub bytes: Option<f64>,
}

/// The levels of ascending (bytes, nanoseconds) points.
#[must_use]
pub fn levels(points: &[(f64, f64)]) -> Vec<Level> {
    let smooth = monotone(points);
    let mut stretches = flat_stretches(&smooth);
    merge(&mut stretches, &smooth);
    let median_ns = |range: &std::ops::Range<usize>| {
        let mut values: Vec<f64> = smooth[range.clone()].iter().map(|point| point.1).collect();
        values.sort_by(f64::total_cmp);
        crate::stats::median(&values)
    };
    let ns: Vec<f64> = stretches.iter().map(median_ns).collect();
    let ends = stretches.windows(2).zip(ns.windows(2)).map(|(pair, ns)| {
        let half = (ns[0] * ns[1]).sqrt();
        Some(crossing(&smooth[pair[0].start..pair[1].end], half))
    });
    let ends: Vec<Option<f64>> = ends.chain([None]).collect();
    ns.into_iter().zip(ends).map(|(ns, bytes)| Level { ns, bytes }).collect()
}

/// Latency never falls as arrays grow; where it seems to, noise did it: pool adjacent violators (Ayer and others, 1955), on logarithms.
fn monotone(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for (_, ns) in points {
        pools.push((ns.max(1e-3).ln(), 1));
        while let [.., (a, n), (b, m)] = pools[..]
            && a > b
        {
            pools.truncate(pools.len() - 2);
            pools.push(((a * n as f64 + b * m as f64) / (n + m) as f64, n + m));
        }
    }
    let flat = pools.into_iter().flat_map(|(value, count)| std::iter::repeat_n(value.exp(), count));
    points.iter().zip(flat).map(|((bytes, _), ns)| (*bytes, ns)).collect()
}

/// Runs of sizes around which latency hardly grows.
fn flat_stretches(points: &[(f64, f64)]) -> Vec<std::ops::Range<usize>> {
    let is_flat = |index: usize| {
        let around = [-0.5, 0.5].map(|octaves| at(points, points[index].0 * 2_f64.powf(octaves)));
        let octaves = (around[1].0 / around[0].0).log2();
        (around[1].1 / around[0].1).ln() <= FLAT_PER_OCTAVE * octaves
    };
    let mut out: Vec<std::ops::Range<usize>> = Vec::new();
    let mut start = None;
    for index in 0..=points.len() {
        if index < points.len() && is_flat(index) {
            start.get_or_insert(index);
            continue;
        }
        let Some(first) = start.take() else { continue };
        // What lies beyond all caches may have only its beginning among the sizes.
        if (points[index - 1].0 / points[first].0).log2() >= OCTAVES_MIN
            || (index == points.len() && index - first >= 2)
        {
            out.push(first..index);
        }
    }
    out
}

/// The point at a size, between known ones on logarithmic scales; the nearest end beyond them.
fn at(points: &[(f64, f64)], bytes: f64) -> (f64, f64) {
    let upper = points.partition_point(|point| point.0 < bytes);
    if upper == 0 || upper == points.len() {
        return points[upper.min(points.len() - 1)];
    }
    let ((x0, y0), (x1, y1)) = (points[upper - 1], points[upper]);
    let part = (bytes / x0).ln() / (x1 / x0).ln();
    (bytes, y0 * (y1 / y0).powf(part))
}

/// Joins neighbouring stretches of nearly one latency.
fn merge(stretches: &mut Vec<std::ops::Range<usize>>, points: &[(f64, f64)]) {
    let middle = |range: &std::ops::Range<usize>| points[range.start + range.len() / 2].1;
    let mut index = 1;
    while index < stretches.len() {
        if (middle(&stretches[index]) / middle(&stretches[index - 1])).ln() < SAME_LEVEL {
            stretches[index - 1].end = stretches[index].end;
            stretches.remove(index);
        } else {
            index += 1;
        }
    }
}

/// The size at which latency passes `ns`, between points on logarithmic scales.
fn crossing(points: &[(f64, f64)], ns: f64) -> f64 {
    let Some(pair) = points.windows(2).find(|pair| pair[0].1 <= ns && pair[1].1 > ns) else {
        return points.last().map_or(0.0, |point| point.0);
    };
    let part = (ns / pair[0].1).ln() / (pair[1].1 / pair[0].1).ln();
    pair[0].0 * (pair[1].0 / pair[0].0).powf(part)
}

#[cfg(test)]
mod tests {
    //! Made-up staircases, clean and noisy, and ones shaped like real machines'.

    use proptest::prelude::*;

    use super::*;

    /// Latency of a random chase through `bytes` of caches of these sizes: each answers its share.
    fn model(bytes: f64, caches: &[(f64, f64)], memory_ns: f64) -> f64 {
        let (mut ns, mut covered) = (0.0, 0.0);
        for &(size, level_ns) in caches {
            let share = (size / bytes).min(1.0);
            ns += (share - covered) * level_ns;
            covered = share;
        }
        ns + (1.0 - covered) * memory_ns
    }

    fn stair(
        caches: &[(f64, f64)],
        memory_ns: f64,
        per_octave: f64,
        mut noise: impl FnMut() -> f64,
    ) -> Vec<(f64, f64)> {
        let sizes =
            (0..).map(|index| 4096.0 * 2_f64.powf(f64::from(index) / per_octave)).take_while(|size| *size <= 1.2e9);
        sizes.map(|size| (size, model(size, caches, memory_ns) * (1.0 + noise()))).collect()
    }

    const SERVER: [(f64, f64); 3] = [(49_152.0, 1.5), (2_097_152.0, 5.0), (41_943_040.0, 25.0)];

    #[test]
    fn a_servers_four_levels_are_found_with_their_latencies_and_sizes() {
        let found = levels(&stair(&SERVER, 110.0, 2.0, || 0.0));
        assert_eq!(found.len(), 4, "{found:?}");
        for (level, (bytes, ns)) in found.iter().zip(SERVER) {
            assert!((level.ns / ns - 1.0).abs() < 0.25, "{level:?} for {ns} ns");
            let ratio = level.bytes.expect("an end") / bytes;
            assert!((0.8..2.2).contains(&ratio), "{level:?} for {bytes} bytes");
        }
        assert!((found[3].ns / 110.0 - 1.0).abs() < 0.1 && found[3].bytes.is_none());
    }

    #[test]
    fn flat_memory_is_one_level_and_nothing_is_none() {
        let flat: Vec<(f64, f64)> = (0..20).map(|index| (4096.0 * 2_f64.powi(index), 80.0)).collect();
        let found = levels(&flat);
        assert!(found.len() == 1 && (found[0].ns - 80.0).abs() < 1e-6 && found[0].bytes.is_none(), "{found:?}");
        assert!(levels(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn noise_neither_makes_levels_nor_hides_them(seed in any::<u64>(), per_octave in 2.0_f64..4.0) {
            let mut state = seed;
            let noise = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Slower by up to 4 %.
                (state >> 40) as f64 / (1_u64 << 24) as f64 * 0.04
            };
            let found = levels(&stair(&SERVER, 110.0, per_octave, noise));
            prop_assert_eq!(found.len(), 4, "{:?}", found);
            prop_assert!(found.windows(2).all(|pair| pair[0].ns < pair[1].ns));
        }
    }
}
