//! Access patterns: how often a thread accesses each page of a region.

use crate::program::{Builder, MixPart, Slice};

/// Pages that have a Zipf weight each; further ranks share the mean weight of a step.
const ZIPF_SINGLE: u64 = 64;
/// Steps in which the rank doubles, beyond the single pages.
const ZIPF_STEPS: f64 = 8.0;

/// Part `index` of `count` equal parts of a run: first page and pages; every part has at least one page.
pub(super) fn part(pages: u64, index: u64, count: u64) -> (u64, u64) {
    let at = |k: u64| (u128::from(pages) * u128::from(k) / u128::from(count)) as u64;
    let first = at(index).min(pages - 1);
    (first, (at(index + 1) - at(index)).max(1))
}

/// Parts of a mix that make `share` of the accesses on a slice follow Zipf's law: page k (from 1) has the weight 1 / k^exponent. The first
/// pages are kept apart, later ones in runs of nearly equal rank, each with its mean weight.
pub(super) fn zipf(builder: &mut Builder, whole: Slice, share: f64, writes: f64, exponent: f64) -> Vec<MixPart> {
    let weight = |rank: u64| (rank as f64).powf(-exponent);
    let mut runs = Vec::new();
    let mut first = 1u64;
    while first <= whole.pages {
        let grown = (first as f64 * 2f64.powf(1.0 / ZIPF_STEPS)) as u64;
        let last = if first <= ZIPF_SINGLE { first } else { grown.clamp(first, whole.pages) };
        let sum: f64 = (first..=last).map(weight).sum();
        runs.push((first - 1, last - first + 1, sum));
        first = last + 1;
    }
    let total: f64 = runs.iter().map(|run| run.2).sum();
    let mut parts = Vec::with_capacity(runs.len());
    for (first, pages, sum) in runs {
        let slice = builder.slice(Slice { first: whole.first + first, pages, ..whole });
        let of = share * sum / total;
        parts.push(MixPart { slice, reads: of * (1.0 - writes), writes: of * writes });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Origin;

    #[test]
    fn parts_cover_every_page_once() {
        for (pages, count) in [(512u64, 48u64), (1000, 7), (48, 48), (4096, 3)] {
            let mut next = 0;
            for index in 0..count {
                let (first, length) = part(pages, index, count);
                assert_eq!(first, next, "{pages} pages in {count} parts");
                next = first + length;
            }
            assert_eq!(next, pages);
        }
        assert_eq!(part(2, 5, 8), (1, 1), "with fewer pages than threads, threads share pages");
    }

    #[test]
    fn zipf_weights_are_those_of_the_law() {
        let mut builder = Builder::new("z", Origin::Synthetic { file: "z".into() });
        let whole = Slice { region: 0, first: 10, pages: 10_000, label: 0 };
        let parts = zipf(&mut builder, whole, 0.5, 0.25, 1.0);
        let sum: f64 = parts.iter().map(|part| part.reads + part.writes).sum();
        assert!((sum - 0.5).abs() < 1e-12);
        let harmonic: f64 = (1..=10_000).map(|k| 1.0 / f64::from(k)).sum();
        assert!((parts[0].reads - 0.5 * 0.75 / harmonic).abs() < 1e-12, "the hottest page");
        let slices = &builder.program_mut().slices;
        assert_eq!(slices.iter().map(|slice| slice.pages).sum::<u64>(), 10_000);
        assert!(slices.len() < 200, "{} slices", slices.len());
    }
}
