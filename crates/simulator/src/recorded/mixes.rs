//! From samples to mixes: for each thread and window of time, which pages it reads and writes how often. Sparse samples are shrunk from pages towards
//! blocks, and from blocks towards objects ([`super::shrink`]).

use std::collections::BTreeMap;

use numapilot_flows::{AccessRef, Trace};

use super::shrink;
use super::space::Space;
use crate::program::{Builder, MixPart, PAGE_BYTES, Slice};

/// An object is cut into so many blocks at most; blocks have at least [`BLOCK_PAGES`].
const BLOCKS: u64 = 64;
const BLOCK_PAGES: u64 = 16;
/// Parts of a mix below this share are left out; the others make up for them.
const SMALLEST_SHARE: f64 = 1e-5;

/// What was seen of one group of pages.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Samples and their weights, by thread (position among the window's threads).
    samples: Vec<u32>,
    weights: Vec<f64>,
    /// Of the weights, those of writes.
    writes: Vec<f64>,
    /// Samples by read and write.
    kinds: [u32; 2],
}

impl Seen {
    fn add(&mut self, thread: usize, threads: usize, weight: f64, is_write: bool) {
        self.samples.resize(threads, 0);
        self.weights.resize(threads, 0.0);
        self.writes.resize(threads, 0.0);
        self.samples[thread] += 1;
        self.weights[thread] += weight;
        self.writes[thread] += if is_write { weight } else { 0.0 };
        self.kinds[usize::from(is_write)] += 1;
    }

    fn count(&self) -> f64 {
        self.samples.iter().map(|&n| f64::from(n)).sum()
    }

    fn weight(&self) -> f64 {
        self.weights.iter().sum()
    }
}

/// What was seen of one object in one window.
#[derive(Debug, Default)]
struct Object {
    process: u32,
    first: u64,
    end: u64,
    label: u32,
    all: Seen,
    blocks: BTreeMap<u64, Seen>,
    pages: BTreeMap<u64, Seen>,
}

/// Mixes of one window: for each thread that was sampled in it, its mix.
pub(super) type WindowMixes = BTreeMap<u32, u32>;

/// Builds the mixes of all windows. Of the samples, those that `keep` admits are used.
pub(super) fn mixes(
    trace: &Trace,
    space: &Space,
    labels: &[u32],
    unknown: u32,
    builder: &mut Builder,
    window_ns: f64,
    keep: &dyn Fn(&AccessRef) -> bool,
) -> Vec<WindowMixes> {
    let mut windows: Vec<WindowMixes> = Vec::new();
    let mut batch: Vec<AccessRef> = Vec::new();
    let mut flush = |batch: &mut Vec<AccessRef>, window: usize| {
        if !batch.is_empty() {
            windows.resize(window + 1, WindowMixes::new());
            windows[window] = window_mixes(trace, space, labels, unknown, builder, batch);
            batch.clear();
        }
    };
    let mut present = 0;
    for access in trace.accesses().filter(keep) {
        let window = (access.time.0 as f64 / window_ns) as usize;
        if window != present {
            flush(&mut batch, present);
            present = window;
        }
        batch.push(access);
    }
    flush(&mut batch, present);
    windows
}

fn window_mixes(
    trace: &Trace,
    space: &Space,
    labels: &[u32],
    unknown: u32,
    builder: &mut Builder,
    batch: &[AccessRef],
) -> WindowMixes {
    let mut threads: Vec<u32> = batch.iter().map(|access| access.thread.0).collect();
    threads.sort_unstable();
    threads.dedup();
    let mut objects: BTreeMap<(u32, u64, u64), Object> = BTreeMap::new();
    for access in batch {
        let page = access.address.0 / PAGE_BYTES;
        let process = trace.thread(access.thread).map_or(0, |thread| thread.process.0);
        let known = access.object.and_then(|id| trace.object(id));
        let (first, end, label) = known.map_or((page, page + 1, unknown), |object| {
            let first = object.address.0 / PAGE_BYTES;
            let end = (object.address.0 + object.bytes.max(1)).div_ceil(PAGE_BYTES);
            (first.min(page), end.max(page + 1), labels[object.site.0 as usize])
        });
        let object = objects.entry((process, first, end)).or_insert_with(|| Object {
            process,
            first,
            end,
            label,
            ..Object::default()
        });
        let thread = threads.binary_search(&access.thread.0).unwrap_or(0);
        let weight = f64::from(access.weight);
        let block = (page - first) / block_pages(first, end);
        for seen in [&mut object.all, object.blocks.entry(block).or_default(), object.pages.entry(page).or_default()] {
            seen.add(thread, threads.len(), weight, access.is_write);
        }
    }
    let mut parts: Vec<Vec<MixPart>> = vec![Vec::new(); threads.len()];
    for object in objects.values() {
        spread(object, space, builder, &mut parts);
    }
    let mut mixes = WindowMixes::new();
    for (thread, mut parts) in threads.into_iter().zip(parts) {
        let total: f64 = parts.iter().map(|part| part.reads + part.writes).sum();
        parts.retain(|part| part.reads + part.writes >= SMALLEST_SHARE * total);
        mixes.insert(thread, builder.mix(&parts));
    }
    mixes
}

fn block_pages(first: u64, end: u64) -> u64 {
    (end - first).div_ceil(BLOCKS).max(BLOCK_PAGES)
}

/// Adds an object's accesses to the threads' mixes: evenly over the object, more on blocks and pages that were seen more often.
fn spread(object: &Object, space: &Space, builder: &mut Builder, parts: &mut [Vec<MixPart>]) {
    let pages = (object.end - object.first) as f64;
    let threads = parts.len();
    let per_sample = object.all.weight() / object.all.count();
    let of_all: Vec<f64> = object.all.weights.iter().map(|weight| weight / object.all.weight()).collect();
    let block_pages = block_pages(object.first, object.end);
    let block_count = (object.end - object.first).div_ceil(block_pages);
    let block_range = |block: u64| {
        let first = object.first + block * block_pages;
        (first, (first + block_pages).min(object.end))
    };
    // How blocks scatter within the object, and pages within their blocks.
    let none = vec![0.0; threads];
    let no_one = Seen { samples: vec![0; threads], weights: none.clone(), writes: none, kinds: [0; 2] };
    let block_units = |block: u64| {
        let (first, end) = block_range(block);
        (object.blocks.get(&block).unwrap_or(&no_one).count(), (end - first) as f64)
    };
    let block_shape = shrink::shape((0..block_count).map(block_units));
    let block_trust = shrink::concentration(object.blocks.values().map(|seen| seen.samples.as_slice()), threads);
    let page_shape = page_shape(object, block_pages);
    let page_trust = page_concentration(object, block_pages, threads);
    let write_trust = shrink::concentration(object.pages.values().map(|seen| &seen.kinds[..]), 2);
    let write_share = f64::from(object.all.kinds[1]) / object.all.count();
    // Each thread has its own: one that fills an object and many that read it may meet in one window.
    let shares_of = |seen: &Seen| -> Vec<f64> {
        seen.writes.iter().zip(&seen.weights).map(|(w, all)| if *all > 0.0 { w / all } else { 0.0 }).collect()
    };
    let own_writes = shares_of(&object.all);

    let mean = object.all.count() / pages;
    let base = shrink::rate(0.0, block_pages as f64, mean, block_shape).min(mean);
    // `written`: how much more of it is written than of the whole object.
    let mut add = |first: u64, end: u64, per_page: &[f64], written: f64| {
        for slice in space.slices(object.process, first, end, object.label) {
            let weight = per_sample * slice.pages as f64;
            let slice = builder.slice(Slice { label: object.label, ..slice });
            for (thread, parts) in parts.iter_mut().enumerate().filter(|(thread, _)| per_page[*thread] > 0.0) {
                let (of, writes) = (weight * per_page[thread], (own_writes[thread] * written).min(1.0));
                parts.push(MixPart { slice, reads: of * (1.0 - writes), writes: of * writes });
            }
        }
    };
    let scaled = |rate: f64, shares: &[f64]| -> Vec<f64> { shares.iter().map(|share| rate * share).collect() };
    let over =
        |rates: &[f64], base: &[f64]| -> Vec<f64> { rates.iter().zip(base).map(|(r, b)| (r - b).max(0.0)).collect() };
    let object_rates = scaled(base, &of_all);
    add(object.first, object.end, &object_rates, 1.0);
    for (&block, seen) in &object.blocks {
        let (first, end) = block_range(block);
        let of_block = shrink::distribution(&seen.weights, seen.count(), &of_all, block_trust);
        let block_mean = shrink::rate(seen.count(), (end - first) as f64, mean, block_shape);
        let block_base = shrink::rate(0.0, 1.0, block_mean, page_shape).min(block_mean);
        let block_rates = scaled(block_base, &of_block);
        add(first, end, &over(&block_rates, &object_rates), 1.0);
        let beneath: Vec<f64> = block_rates.iter().zip(&object_rates).map(|(a, b)| a.max(*b)).collect();
        for (&page, seen) in object.pages.range(first..end) {
            let of_page = shrink::distribution(&seen.weights, seen.count(), &of_block, page_trust);
            let page_rate = shrink::rate(seen.count(), 1.0, block_mean, page_shape);
            let kinds = [f64::from(seen.kinds[0]), f64::from(seen.kinds[1])];
            let writes = shrink::distribution(&kinds, seen.count(), &[1.0 - write_share, write_share], write_trust)[1];
            let written = if write_share > 0.0 { writes / write_share } else { 0.0 };
            add(page, page + 1, &over(&scaled(page_rate, &of_page), &beneath), written);
        }
    }
}

/// Shape of pages' rates around those of their blocks: every page of every block, seen or not, against its block's own mean.
fn page_shape(object: &Object, block_pages: u64) -> f64 {
    let mut members: Vec<(f64, f64)> = Vec::new();
    for (&block, seen) in &object.blocks {
        let first = object.first + block * block_pages;
        let end = (first + block_pages).min(object.end);
        // Units are chosen so that each block has the mean 1: then all blocks can be pooled.
        let unit = seen.count() / (end - first) as f64;
        let mut seen_pages = 0;
        for page in object.pages.range(first..end).map(|(_, seen)| seen.count()) {
            members.push((page, unit));
            seen_pages += 1;
        }
        members.extend((seen_pages..end - first).map(|_| (0.0, unit)));
    }
    shrink::shape(members.iter().copied())
}

/// Concentration of pages around their blocks: pairs are compared within each block by itself.
fn page_concentration(object: &Object, block_pages: u64, threads: usize) -> f64 {
    let (mut weight, mut sum) = (0.0, 0.0);
    for (&block, seen) in &object.blocks {
        let first = object.first + block * block_pages;
        let pages = object.pages.range(first..(first + block_pages).min(object.end));
        let pages: Vec<&Seen> = pages.map(|(_, seen)| seen).collect();
        let k = shrink::concentration(pages.iter().map(|seen| seen.samples.as_slice()), threads);
        // What is pooled is k / (k + 1), the share that is common: it lies between 0 and 1.
        weight += seen.count();
        sum += seen.count() * k / (k + 1.0);
    }
    let common = sum / weight;
    if common >= 1.0 - 1.0 / shrink::ALIKE { shrink::ALIKE } else { common / (1.0 - common) }
}
