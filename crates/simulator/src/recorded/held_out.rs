//! Cross-validation of the estimated accesses by page: an estimate from four fifths of the cache lines predicts the accesses of the last fifth.

use std::path::PathBuf;

use numapilot_flows::{AccessRef, Trace};
use numapilot_host::PageNumber;

use super::mixes::{Object, Run, objects, runs, threads_of};
use super::shrink;

/// A page that an estimate holds impossible for a thread: one access in a million.
const IMPOSSIBLE: f64 = 1e-6;
const WINDOW_NS: u64 = 50_000_000;
const PARTS: u64 = 5;

/// What [`runs`] is held against: every thread's share of the object is spread evenly over it, and blocks and pages only add to that. Runs overlap; the
/// rates of a page are summed.
fn over_an_even_base(object: &Object, threads: usize) -> Vec<Run> {
    let pages = (object.end - object.first) as f64;
    let of_all: Vec<f64> = object.all.weights.iter().map(|weight| weight / object.all.weight()).collect();
    let mean = object.all.count() / pages;
    let shapes = object.shapes(threads);
    let base = shrink::rate(0.0, object.block_pages() as f64, mean, shapes.of_blocks);
    let reads = |rates: Vec<f64>| rates.into_iter().map(|rate| (rate, 0.0)).collect();
    let scaled = |rate: f64, shares: &[f64]| -> Vec<f64> { shares.iter().map(|share| rate * share).collect() };
    let over = |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| (a - b).max(0.0)).collect() };
    let of_object = scaled(base, &of_all);
    let mut runs = vec![Run { first: object.first, end: object.end, per_page: reads(of_object.clone()) }];
    for (&block, seen) in &object.blocks {
        let (first, end) = object.range_of(block);
        let who = shrink::distribution(&seen.weights, seen.count(), &of_all, shapes.trust_in_blocks);
        let block_mean = shrink::rate(seen.count(), (end - first) as f64, mean, shapes.of_blocks);
        let of_block = scaled(shrink::rate(0.0, 1.0, block_mean, shapes.of_pages), &who);
        runs.push(Run { first, end, per_page: reads(over(&of_block, &of_object)) });
        let beneath: Vec<f64> = of_block.iter().zip(&of_object).map(|(a, b)| a.max(*b)).collect();
        for (&page, seen) in object.pages.range(first..end) {
            let of_page = shrink::distribution(&seen.weights, seen.count(), &who, shapes.trust_in_pages);
            let rate = shrink::rate(seen.count(), 1.0, block_mean, shapes.of_pages);
            let per_page = reads(over(&scaled(rate, &of_page), &beneath));
            runs.push(Run { first: page, end: page + 1, per_page });
        }
    }
    runs
}

/// Of each access, the logarithm of how likely an estimate held its page for its thread and object.
fn log_likelihoods(runs: &[Run], held_out: &[(usize, PageNumber)]) -> Vec<f64> {
    let threads = runs.first().map_or(0, |run| run.per_page.len());
    let mut sums = vec![0.0; threads];
    for run in runs {
        for (sum, of) in sums.iter_mut().zip(&run.per_page) {
            *sum += (of.0 + of.1) * (run.end - run.first) as f64;
        }
    }
    let likelihood = |&(thread, page): &(usize, PageNumber)| {
        let here = runs.iter().filter(|run| (run.first..run.end).contains(&page));
        let rate: f64 = here.map(|run| run.per_page[thread].0 + run.per_page[thread].1).sum();
        (rate / sums[thread].max(f64::MIN_POSITIVE)).max(IMPOSSIBLE).ln()
    };
    held_out.iter().map(likelihood).collect()
}

/// Of each access held out of one trace, its log-likelihood by the estimate and over an even base.
fn scores(trace: &Trace) -> Vec<(f64, f64)> {
    let labels: Vec<u32> = (0..trace.sites().len() as u32).collect();
    let unknown = labels.len() as u32;
    let mut windows: Vec<Vec<AccessRef>> = Vec::new();
    for access in trace.accesses() {
        let window = (access.time.0 / WINDOW_NS) as usize;
        windows.resize(windows.len().max(window + 1), Vec::new());
        windows[window].push(access);
    }
    let mut scores = Vec::new();
    for part in 0..PARTS {
        for window in &windows {
            let is_out = |access: &AccessRef| crate::random::scramble(access.address.0 / 64) % PARTS == part;
            let seen: Vec<AccessRef> = window.iter().copied().filter(|access| !is_out(access)).collect();
            let threads = threads_of(&seen);
            for object in objects(trace, &labels, unknown, &threads, &seen).into_values() {
                let of_object = |access: &&AccessRef| {
                    let page = access.address.page();
                    let process = trace.thread(access.thread).map_or(0, |thread| thread.process.0);
                    is_out(access) && process == object.process && (object.first..object.end).contains(&page)
                };
                let known = |access: &AccessRef| {
                    let thread = threads.binary_search(&access.thread.0).ok()?;
                    (object.all.weights[thread] > 0.0).then_some((thread, access.address.page()))
                };
                let held_out: Vec<(usize, PageNumber)> = window.iter().filter(of_object).filter_map(known).collect();
                let estimated = log_likelihoods(&runs(&object, threads.len()), &held_out);
                let even = log_likelihoods(&over_an_even_base(&object, threads.len()), &held_out);
                scores.extend(estimated.into_iter().zip(even));
            }
        }
    }
    scores
}

#[test]
fn what_was_seen_foretells_the_rest_better_than_an_even_base() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces");
    let (mut all, mut gained) = (0.0, 0.0);
    for name in ["facerec", "mg", "psearchy", "streamcluster", "webserver"] {
        let trace = Trace::open(&folder.join(format!("{name}.numatrace"))).expect("a committed trace");
        let scores = scores(&trace);
        let count = scores.len() as f64;
        let mean = |of: &dyn Fn(&(f64, f64)) -> f64| scores.iter().map(of).sum::<f64>() / count;
        let (estimated, even) = (mean(&|score| score.0), mean(&|score| score.1));
        let gain = estimated - even;
        let error = (mean(&|score| (score.0 - score.1 - gain).powi(2)) / count).sqrt();
        eprintln!(
            "{name}: {count} accesses, mean log-likelihood {estimated:.4}, {even:.4} over an even base: {gain:+.4}, standard error {error:.4}"
        );
        // Small objects that all threads share by chance are foretold a little better by an even base: by 1 % of an access's likelihood in webserver.
        assert!(gain > -0.02, "{name}: worse than an even base");
        (all, gained) = (all + count, gained + gain * count);
    }
    assert!(gained > 0.1 * all, "an access's page became likelier by {:.4} only", gained / all);
}
