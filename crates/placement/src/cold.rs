//! Pages that are surely cold, as far as samples can tell: what has to go where memory is full and hotter pages should come. Most of them have no sample, so
//! they are found by the absence of samples: where of n samples none was of a block of pages, its share of the accesses is below 4/n with 98 % confidence.
//!
//! That holds only if all accesses are sampled alike, and of memory that was there while they were drawn.

use std::collections::{BTreeMap, BTreeSet};

use numapilot_host::PageNumber;
use numapilot_machine::NodeIndex;

use crate::observation::{HomeRun, Observation, PageKey, PageSize};

/// Standard deviations between an estimate and its bounds.
const DEVIATIONS: f64 = 2.0;
/// Time after which samples count half, nanoseconds: what was cold for some seconds is cold.
const HALF_LIFE_NS: f64 = 1e9;
/// Most blocks of 2 MiB that are watched: those of 2 TiB. Others are never taken for cold.
const BLOCKS_MAX: usize = 1 << 20;

/// The greatest mean of a Poisson distribution from which so few samples are likely (score interval).
pub(crate) fn at_most(samples: f64) -> f64 {
    samples + DEVIATIONS * DEVIATIONS / 2.0 + DEVIATIONS * (samples + DEVIATIONS * DEVIATIONS / 4.0).sqrt()
}

/// The least mean from which so many samples are likely.
pub(crate) fn at_least(samples: f64) -> f64 {
    (samples + DEVIATIONS * DEVIATIONS / 2.0 - DEVIATIONS * (samples + DEVIATIONS * DEVIATIONS / 4.0).sqrt()).max(0.0)
}

/// A process and the number of 2 MiB of its memory.
pub(crate) type BlockKey = (u32, u64);

/// Samples of a block, the oldest counting least.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    /// Samples of the block itself.
    own: f64,
    /// Samples of everything that were drawn while it was watched.
    all: f64,
}

/// What a policy knows of the single pages of a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnSamples {
    /// The pages that were sampled, and how often.
    pub pages: Vec<(PageNumber, f64)>,
}

/// The blocks that are watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cold {
    blocks: BTreeMap<BlockKey, Watched>,
}

impl Cold {
    /// Takes in an interval: its samples, and what is mapped, where the environment tells (`homes`).
    pub fn learn(&mut self, seen: &Observation) {
        let kept = (-(seen.elapsed_ns as f64) / HALF_LIFE_NS).exp2();
        let drawn = seen.samples.len() as f64;
        for block in self.blocks.values_mut() {
            block.own *= kept;
            block.all = block.all * kept + drawn;
        }
        if !seen.homes.is_empty() {
            let mapped: BTreeSet<BlockKey> = seen.homes.iter().flat_map(blocks_of).collect();
            self.blocks.retain(|key, _| mapped.contains(key));
            for key in mapped {
                if self.blocks.len() < BLOCKS_MAX {
                    // It was not there, as far as is known, when this interval's samples were drawn.
                    self.blocks.entry(key).or_default();
                }
            }
        }
        for sample in &seen.samples {
            if let Some(block) = self.blocks.get_mut(&(sample.page.process, sample.small_page.large())) {
                block.own += 1.0;
            }
        }
    }

    /// Greatest likely share of all accesses that go to a block, 0 to 1.
    fn block_at_most(&self, key: BlockKey) -> f64 {
        self.blocks.get(&key).map_or(1.0, |block| (at_most(block.own) / block.all.max(1.0)).min(1.0))
    }

    /// The pages of a size on a node, with the greatest share of all accesses that they are likely to get. `own`: the policy's samples of single pages of a
    /// block.
    pub fn pages(
        &self,
        homes: &[HomeRun],
        node: NodeIndex,
        size: PageSize,
        own: impl Fn(BlockKey) -> OwnSamples,
    ) -> Coldest {
        let mut found = Vec::new();
        let mut runs: BTreeMap<BlockKey, Vec<(PageNumber, u64)>> = BTreeMap::new();
        for run in homes.iter().filter(|run| run.node == node && run.size == size) {
            if size == PageSize::Large {
                let keys = run.keys().map(|key| (self.block_at_most((key.process, key.page.large())), key.page, 1));
                found.extend(keys.map(|(share, page, pages)| Part { share, process: run.process, page, pages }));
                continue;
            }
            let end = run.first + run.pages;
            for (process, block) in blocks_of(run) {
                let first = PageNumber::first_of_large(block).max(run.first);
                let last = PageNumber::first_of_large(block + 1).min(end);
                runs.entry((process, block)).or_default().push((first, last - first));
            }
        }
        for (key, runs) in runs {
            self.small_parts(key, &runs, &own(key), &mut found);
        }
        Coldest::sorted(size, found)
    }

    /// The small pages of a block: those that were sampled one by one, and the others between them.
    fn small_parts(&self, key: BlockKey, runs: &[(PageNumber, u64)], own: &OwnSamples, found: &mut Vec<Part>) {
        let block = self.block_at_most(key);
        let samples: f64 = own.pages.iter().map(|page| page.1).sum();
        let once = own.pages.iter().filter(|page| page.1 <= 1.0).count() as f64;
        let others = PageNumber::PER_LARGE as f64 - own.pages.len() as f64;
        // Of what goes to pages without samples, as much as to those that were sampled once (Good and Turing).
        let share_of = |count: f64| if samples > 0.0 { (at_most(count) / samples).min(1.0) } else { 1.0 };
        let other = block * share_of(once) / others.max(1.0);
        let sampled: BTreeMap<PageNumber, f64> = own.pages.iter().copied().collect();
        let process = key.0;
        for &(first, pages) in runs {
            let mut from = first;
            for (&page, &count) in sampled.range(first..first + pages) {
                if page > from {
                    found.push(Part { share: other, process, page: from, pages: page - from });
                }
                found.push(Part { share: block * share_of(count), process, page, pages: 1 });
                from = page + 1;
            }
            if first + pages > from {
                found.push(Part { share: other, process, page: from, pages: first + pages - from });
            }
        }
    }
}

/// The blocks that a run touches.
fn blocks_of(run: &HomeRun) -> impl Iterator<Item = BlockKey> + use<> {
    let (process, end) = (run.process, (run.first + run.pages).0.div_ceil(PageNumber::PER_LARGE));
    (run.first.large()..end).map(move |block| (process, block))
}

/// Neighbouring pages of which equally much is known.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    /// Greatest likely share of all accesses that go to each of them, 0 to 1.
    share: f64,
    process: u32,
    page: PageNumber,
    /// Pages of the size that was asked for.
    pages: u64,
}

/// Pages of one node and one size, the coldest first.
#[derive(Clone, Debug)]
pub(crate) struct Coldest {
    parts: Vec<Part>,
    size: PageSize,
}

impl Coldest {
    /// These pages, each with the greatest share of all accesses that it is likely to get.
    pub fn of(size: PageSize, pages: impl Iterator<Item = (PageKey, f64)>) -> Coldest {
        let part = |(key, share): (PageKey, f64)| Part { share, process: key.process, page: key.page, pages: 1 };
        Coldest::sorted(size, pages.map(part).collect())
    }

    fn sorted(size: PageSize, mut parts: Vec<Part>) -> Coldest {
        // The coldest last.
        parts.sort_by(|a, b| b.share.total_cmp(&a.share).then((b.process, b.page).cmp(&(a.process, a.page))));
        Coldest { parts, size }
    }

    /// The coldest page that is left, with the greatest share of all accesses that it is likely to get.
    pub fn first(&self) -> Option<(PageKey, f64)> {
        self.parts.last().map(|part| (PageKey { process: part.process, page: part.page, size: self.size }, part.share))
    }

    /// Leaves out the coldest page.
    pub fn pass(&mut self) {
        let Some(part) = self.parts.last_mut() else { return };
        part.pages -= 1;
        part.page = part.page + self.size.small_pages();
        if part.pages == 0 {
            self.parts.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::Sample;

    fn key(page: u64) -> PageKey {
        PageKey { process: 1, page: PageNumber(page), size: PageSize::Small }
    }

    fn run(first: u64, pages: u64, node: usize) -> HomeRun {
        HomeRun { process: 1, first: PageNumber(first), pages, size: PageSize::Small, node: NodeIndex(node) }
    }

    /// A tenth of a second in which each of these pages was sampled once, of what is mapped.
    fn interval(pages: impl Iterator<Item = u64>, homes: &[HomeRun]) -> Observation {
        let sample = |page: u64| Sample {
            page: key(page),
            small_page: PageNumber(page),
            thread: 0,
            from: NodeIndex(0),
            home: NodeIndex(0),
            is_write: false,
            latency_ns: None,
        };
        Observation {
            elapsed_ns: 100_000_000,
            samples: pages.map(sample).collect(),
            homes: homes.to_vec(),
            ..Observation::default()
        }
    }

    /// Chances by the sums of the Poisson distribution's terms.
    #[test]
    fn bounds_hold_with_the_confidence_that_is_told() {
        for samples in 0..60_u32 {
            // The chance of at most, or at least, so many samples where the mean is the bound.
            let chance = |mean: f64, from: u32, to: u32| -> f64 {
                let term =
                    |n: u32| (f64::from(n) * mean.ln() - mean - (1..=n).map(|k| f64::from(k).ln()).sum::<f64>()).exp();
                (from..=to).map(term).sum()
            };
            let few = chance(at_most(f64::from(samples)), 0, samples);
            assert!(few < 0.03, "{samples}: {few}");
            if samples > 0 {
                let many = 1.0 - chance(at_least(f64::from(samples)), 0, samples - 1);
                assert!(many < 0.17, "{samples}: {many}");
            }
        }
        assert_eq!((at_most(0.0), at_least(0.0)), (4.0, 0.0));
    }

    #[test]
    fn memory_without_samples_is_cold_once_it_was_watched_long_enough() {
        let homes = [run(0, 1024, 0), run(1024, 512, 1)];
        let mut cold = Cold::default();
        let first = |cold: &Cold, homes: &[HomeRun]| {
            cold.pages(homes, NodeIndex(0), PageSize::Small, |_| OwnSamples::default()).first()
        };
        cold.learn(&interval(0..512, &homes));
        let (_, share) = first(&cold, &homes).expect("there are pages");
        assert_eq!(share, 1.0 / 512.0, "nothing was drawn since it is known to be there: all may go to one block");
        for _ in 0..4 {
            cold.learn(&interval(0..512, &[]));
        }
        let (page, share) = first(&cold, &homes).expect("there are pages");
        assert_eq!(page, key(512), "the first block is hot, and the third on another node");
        assert!(share > 0.0 && share < 4.0 / 1700.0 / 512.0 * 1.01, "{share}");
        // Other memory at its address.
        cold.learn(&interval(0..512, &homes[1..]));
        cold.learn(&interval(0..512, &homes));
        assert_eq!(first(&cold, &homes).map(|page| page.1), Some(1.0 / 512.0));
    }

    #[test]
    fn in_a_block_with_samples_pages_that_have_some_go_last() {
        let homes = [run(0, 512, 0)];
        let mut cold = Cold::default();
        cold.learn(&interval(0..1, &homes));
        (0..30).for_each(|_| cold.learn(&interval([3; 20].into_iter().chain(10..11), &[])));
        let own = |_| OwnSamples { pages: vec![(PageNumber(3), 600.0), (PageNumber(10), 30.0)] };
        let mut pages = cold.pages(&homes, NodeIndex(0), PageSize::Small, own);
        let mut found = Vec::new();
        while let Some(page) = pages.first() {
            found.push(page);
            pages.pass();
        }
        let order: Vec<u64> = found.iter().map(|page| page.0.page.0).collect();
        let without = (0..3).chain(4..10).chain(11..512);
        assert!(order.iter().copied().eq(without.chain([10, 3])), "{order:?}");
        let hottest = found[511].1;
        assert!(hottest > 0.9 && found[510].1 > 0.04 && found[0].1 < 2e-5, "{:?} {:?}", found[0], &found[510..]);
    }
}
