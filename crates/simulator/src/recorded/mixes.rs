//! From samples to mixes: for each thread and window of time, which pages it reads and writes how often. Sparse samples are shrunk from pages towards
//! blocks, and from blocks towards objects ([`super::shrink`]).

use std::collections::BTreeMap;

use numapilot_flows::{AccessRef, Trace};
use numapilot_host::PageNumber;

use super::shrink;
use super::space::Space;
use super::windows::Windows;
use crate::program::{Builder, MixPart, Slice};

/// Greatest number of blocks of an object; blocks have at least [`BLOCK_PAGES`].
const BLOCKS: u64 = 64;
const BLOCK_PAGES: u64 = 16;
/// Parts of a mix below this share are left out; the others make up for them.
const SMALLEST_SHARE: f64 = 1e-5;

/// Sampled accesses of one group of pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Samples and their weights, by thread (position among the window's threads).
    pub(super) samples: Vec<u32>,
    pub(super) weights: Vec<f64>,
    /// The part of the weights that is from writes.
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

    pub(super) fn count(&self) -> f64 {
        self.samples.iter().map(|&n| f64::from(n)).sum()
    }

    pub(super) fn weight(&self) -> f64 {
        self.weights.iter().sum()
    }
}

/// Sampled accesses of one object in one window.
#[derive(Debug, Default)]
pub(super) struct Object {
    pub(super) process: u32,
    pub(super) first: PageNumber,
    pub(super) end: PageNumber,
    label: u32,
    pub(super) all: Seen,
    pub(super) blocks: BTreeMap<u64, Seen>,
    pub(super) pages: BTreeMap<PageNumber, Seen>,
}

/// How blocks of an object scatter around it, and pages around their blocks: rates (shapes) and threads (concentrations).
pub(super) struct Shapes {
    pub(super) of_blocks: f64,
    pub(super) of_pages: f64,
    pub(super) trust_in_blocks: f64,
    pub(super) trust_in_pages: f64,
}

impl Object {
    /// Pages of its blocks, but for the last.
    pub(super) fn block_pages(&self) -> u64 {
        block_pages(self.first, self.end)
    }

    /// First page and end of a block.
    pub(super) fn range_of(&self, block: u64) -> (PageNumber, PageNumber) {
        let first = self.first + block * self.block_pages();
        (first, (first + self.block_pages()).min(self.end))
    }

    pub(super) fn shapes(&self, threads: usize) -> Shapes {
        let count = (self.end - self.first).div_ceil(self.block_pages());
        let units = |block: u64| {
            let (first, end) = self.range_of(block);
            (self.blocks.get(&block).map_or(0.0, Seen::count), (end - first) as f64)
        };
        Shapes {
            of_blocks: shrink::shape((0..count).map(units)),
            of_pages: page_shape(self),
            trust_in_blocks: shrink::concentration(self.blocks.values().map(|seen| seen.samples.as_slice()), threads),
            trust_in_pages: page_concentration(self, threads),
        }
    }
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
    cuts: &Windows,
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
        let window = cuts.at(access.time.0 as f64);
        if window != present {
            flush(&mut batch, present);
            present = window;
        }
        batch.push(access);
    }
    flush(&mut batch, present);
    windows
}

/// The threads that made these accesses, ascending.
pub(super) fn threads_of(batch: &[AccessRef]) -> Vec<u32> {
    let mut threads: Vec<u32> = batch.iter().map(|access| access.thread.0).collect();
    threads.sort_unstable();
    threads.dedup();
    threads
}

/// What was seen of each object in a window, by process, first page and end.
pub(super) fn objects(
    trace: &Trace,
    labels: &[u32],
    unknown: u32,
    threads: &[u32],
    batch: &[AccessRef],
) -> BTreeMap<(u32, PageNumber, PageNumber), Object> {
    let mut objects: BTreeMap<(u32, PageNumber, PageNumber), Object> = BTreeMap::new();
    for access in batch {
        let page = access.address.page();
        let process = trace.thread(access.thread).map_or(0, |thread| thread.process.0);
        let known = access.object.and_then(|id| trace.object(id));
        let (first, end, label) = known.map_or((page, page + 1, unknown), |object| {
            let first = object.address.page();
            let end = PageNumber::at_or_after(object.address.0 + object.bytes.max(1));
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
    objects
}

fn window_mixes(
    trace: &Trace,
    space: &Space,
    labels: &[u32],
    unknown: u32,
    builder: &mut Builder,
    batch: &[AccessRef],
) -> WindowMixes {
    let threads = threads_of(batch);
    let objects = objects(trace, labels, unknown, &threads, batch);
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

fn block_pages(first: PageNumber, end: PageNumber) -> u64 {
    (end - first).div_ceil(BLOCKS).max(BLOCK_PAGES)
}

/// Pages of an object that each thread accesses alike.
pub(super) struct Run {
    pub(super) first: PageNumber,
    pub(super) end: PageNumber,
    /// By thread, on each page: reads and writes, in the weights of the window's samples.
    pub(super) per_page: Vec<(f64, f64)>,
}

/// Adds an object's accesses to the threads' mixes.
fn spread(object: &Object, space: &Space, builder: &mut Builder, parts: &mut [Vec<MixPart>]) {
    for run in runs(object, parts.len()) {
        for slice in space.slices(object.process, run.first, run.end, object.label) {
            let pages = slice.pages as f64;
            let slice = builder.slice(Slice { label: object.label, ..slice });
            for (parts, (reads, writes)) in parts.iter_mut().zip(&run.per_page).filter(|(_, of)| of.0 + of.1 > 0.0) {
                parts.push(MixPart { slice, reads: reads * pages, writes: writes * pages });
            }
        }
    }
}

/// Estimates who accesses which page of an object how often. Every page has one estimate, the closest that there is: its own if it was sampled, its
/// block's if that was, the object's else. So a thread that is known to stay away from some block or page has no part of it, however much of the
/// object it uses elsewhere. A thread's samples of the whole object are the best known: its estimates are scaled to sum to that.
pub(super) fn runs(object: &Object, threads: usize) -> Vec<Run> {
    let pages = (object.end - object.first) as f64;
    let of_all: Vec<f64> = object.all.weights.iter().map(|weight| weight / object.all.weight()).collect();
    let shapes = object.shapes(threads);
    let write_trust = shrink::concentration(object.pages.values().map(|seen| &seen.kinds[..]), 2);
    let write_share = f64::from(object.all.kinds[1]) / object.all.count();
    // Each thread has its own: one that fills an object and many that read it may meet in one window.
    let own_writes: Vec<f64> = (object.all.writes.iter().zip(&object.all.weights))
        .map(|(writes, all)| if *all > 0.0 { writes / all } else { 0.0 })
        .collect();

    let mean = object.all.count() / pages;
    let of_no_block = shrink::rate(0.0, object.block_pages() as f64, mean, shapes.of_blocks);
    let mut runs: Vec<Run> = Vec::new();
    // `written`: how much more of it is written than of the whole object.
    let mut add = |first: PageNumber, end: PageNumber, rate: f64, who: &[f64], written: f64| {
        let of = |(share, writes): (&f64, &f64)| {
            let writes = (writes * written).min(1.0);
            (rate * share * (1.0 - writes), rate * share * writes)
        };
        if first < end {
            runs.push(Run { first, end, per_page: who.iter().zip(&own_writes).map(of).collect() });
        }
    };
    let mut next = object.first;
    for (&block, seen) in &object.blocks {
        let (first, end) = object.range_of(block);
        add(next, first, of_no_block, &of_all, 1.0);
        let of_block = shrink::distribution(&seen.weights, seen.count(), &of_all, shapes.trust_in_blocks);
        let block_mean = shrink::rate(seen.count(), (end - first) as f64, mean, shapes.of_blocks);
        let unseen = shrink::rate(0.0, 1.0, block_mean, shapes.of_pages);
        next = first;
        for (&page, seen) in object.pages.range(first..end) {
            add(next, page, unseen, &of_block, 1.0);
            let of_page = shrink::distribution(&seen.weights, seen.count(), &of_block, shapes.trust_in_pages);
            let page_rate = shrink::rate(seen.count(), 1.0, block_mean, shapes.of_pages);
            let kinds = [f64::from(seen.kinds[0]), f64::from(seen.kinds[1])];
            let writes = shrink::distribution(&kinds, seen.count(), &[1.0 - write_share, write_share], write_trust)[1];
            add(page, page + 1, page_rate, &of_page, if write_share > 0.0 { writes / write_share } else { 0.0 });
            next = page + 1;
        }
        add(next, end, unseen, &of_block, 1.0);
        next = end;
    }
    add(next, object.end, of_no_block, &of_all, 1.0);
    scale(&mut runs, object);
    runs
}

/// Makes each thread's reads and writes sum to what was seen of it.
fn scale(runs: &mut [Run], object: &Object) {
    for (thread, (all, writes)) in object.all.weights.iter().zip(&object.all.writes).enumerate() {
        let sum = |of: fn(&(f64, f64)) -> f64| -> f64 {
            runs.iter().map(|run| of(&run.per_page[thread]) * (run.end - run.first) as f64).sum()
        };
        let factor = |seen: f64, estimated: f64| if estimated > 0.0 { seen / estimated } else { 0.0 };
        let factors = (factor(all - writes, sum(|of| of.0)), factor(*writes, sum(|of| of.1)));
        for run in runs.iter_mut() {
            run.per_page[thread].0 *= factors.0;
            run.per_page[thread].1 *= factors.1;
        }
    }
}

/// Shape of pages' rates around those of their blocks: every page of every block, seen or not, against its block's own mean.
fn page_shape(object: &Object) -> f64 {
    let mut members: Vec<(f64, f64)> = Vec::new();
    for (&block, seen) in &object.blocks {
        let (first, end) = object.range_of(block);
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
fn page_concentration(object: &Object, threads: usize) -> f64 {
    let (mut weight, mut sum) = (0.0, 0.0);
    for (&block, seen) in &object.blocks {
        let (first, end) = object.range_of(block);
        let pages = object.pages.range(first..end);
        let pages: Vec<&Seen> = pages.map(|(_, seen)| seen).collect();
        let k = shrink::concentration(pages.iter().map(|seen| seen.samples.as_slice()), threads);
        // What is pooled is k / (k + 1), the share that is common: it lies between 0 and 1.
        weight += seen.count();
        sum += seen.count() * k / (k + 1.0);
    }
    let common = sum / weight;
    if common >= 1.0 - 1.0 / shrink::ALIKE { shrink::ALIKE } else { common / (1.0 - common) }
}
