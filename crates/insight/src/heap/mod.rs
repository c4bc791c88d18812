//! The heap as a heap profiler shows it: by allocation site how much memory was live, allocated and freed, how fast, for how long, and by which threads.
//!
//! Exact where the tracker lost no record: these are counts of allocations and not of samples, so every engine with the tracker has them. Blocks are what
//! `malloc`, `new` and their kin returned; mappings, statics and stacks are none. Objects of Java are sampled, and their figures estimated (`sampled`).
//! Definitions: `docs/metrics.md`, "The heap".

mod draws;
mod sampled;
mod usage;

use std::collections::BTreeMap;

use numapilot_flows::{Evidence, Object, ObjectKind, SiteId, Trace};
use numapilot_trace::ids::{ThreadIndex, TimeNs};
use serde::Serialize;

use crate::context::Analysis;
pub use sampled::{SampledHeap, SampledRow, SampledUse};
pub use usage::HeapUse;
use usage::{Sums, is_remote_free};

/// The blocks of one allocation site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeapRow {
    /// The site.
    pub site: SiteId,
    /// Its name, such as `block`.
    pub name: String,
    /// Its place, such as `streamcluster.cpp:412`; empty where unknown.
    pub place: String,
    /// Function that allocates, or empty.
    pub function: String,
    /// What was done with its blocks.
    #[serde(flatten)]
    pub usage: HeapUse,
    /// Bytes of its blocks that were live when the whole heap was at its peak. In the whole recording, whatever the filter.
    pub at_peak_bytes: u64,
    /// Most bytes of its own that were live at one moment. In the whole recording, whatever the filter.
    pub peak_live_bytes: u64,
    /// Its blocks that were live at that moment.
    pub peak_live_blocks: u64,
}

/// The blocks that one thread allocated, and its frees.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeapThread {
    /// The thread.
    pub thread: ThreadIndex,
    /// Blocks that it allocated.
    pub allocations: u64,
    /// Sum of their sizes in bytes.
    pub allocated_bytes: u64,
    /// Of them, blocks that another thread freed; `None` as for [`HeapUse::remote_frees`].
    pub freed_by_others: Option<u64>,
    /// Blocks that it freed, whoever allocated them; `None` as for [`HeapUse::remote_frees`].
    pub frees: Option<u64>,
    /// Of these, blocks that another thread had allocated.
    pub frees_of_others: Option<u64>,
}

/// The heap of a recording, or of the part that a filter lets pass.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeapProfile {
    /// Sums over all blocks.
    pub total: HeapUse,
    /// Most bytes that were live at one moment, in the whole recording, all processes together.
    pub peak_bytes: u64,
    /// Blocks that were live then.
    pub peak_blocks: u64,
    /// Program time of that moment; `None` where there was no block.
    pub peak_time: Option<TimeNs>,
    /// Allocation sites: most at the heap's peak first, then by their own peak and by what they allocated.
    pub sites: Vec<HeapRow>,
    /// Threads that allocated or freed, most allocations first.
    pub threads: Vec<HeapThread>,
}

/// Counts of one thread.
#[derive(Clone, Copy, Default)]
struct OfThread {
    allocations: u64,
    bytes: u64,
    freed_by_others: u64,
    frees: u64,
    frees_of_others: u64,
}

impl Analysis<'_> {
    /// The heap; `None` where no block was recorded (an engine without the tracker, or a program that allocates none).
    ///
    /// The filter's site, object, process, thread (the one that allocated), node (the allocating thread's) and time (of the allocation) select blocks. Its
    /// conditions on accesses (home node, remote or local, loads or stores) do not apply to blocks.
    #[must_use]
    pub fn heap(&self) -> Option<HeapProfile> {
        let peak = self.trace.heap_peak();
        let first = self.trace.object(peak.object?)?;
        let knows_frees =
            self.trace.objects().iter().any(|object| object.death_thread.is_some() && is_block(self.trace, object));
        let seconds = self.heap_seconds();
        let mut total = Sums::default();
        let mut sites: BTreeMap<SiteId, Sums> = BTreeMap::new();
        let mut threads: BTreeMap<ThreadIndex, OfThread> = BTreeMap::new();
        for block in self.heap_blocks() {
            total.add(block);
            sites.entry(block.site).or_default().add(block);
            count_threads(&mut threads, block);
        }
        let mut rows: Vec<HeapRow> =
            sites.into_iter().map(|(site, sums)| self.heap_row(site, sums.finish(seconds, knows_frees))).collect();
        rows.sort_by_key(|row| {
            std::cmp::Reverse((
                row.at_peak_bytes,
                row.peak_live_bytes,
                row.usage.allocated_bytes,
                std::cmp::Reverse(row.site),
            ))
        });
        Some(HeapProfile {
            total: total.finish(seconds, knows_frees),
            peak_bytes: peak.bytes,
            peak_blocks: peak.blocks,
            peak_time: Some(first.birth),
            sites: rows,
            threads: thread_rows(threads, knows_frees),
        })
    }

    /// Whether the recording is of allocations alone: blocks were recorded, and no access was (engine `track`).
    #[must_use]
    pub fn is_heap_only(&self) -> bool {
        let none_counted = || {
            self.trace
                .threads()
                .iter()
                .all(|thread| thread.counters.as_ref().is_none_or(|totals| totals.memory_accesses == 0))
        };
        self.trace.evidence() == Evidence::Accesses
            && self.trace.heap_peak().object.is_some()
            && self.trace.accesses().len() == 0
            && none_counted()
    }

    /// The blocks that the filter lets pass.
    pub fn heap_blocks(&self) -> impl Iterator<Item = &Object> + '_ {
        self.trace.objects().iter().filter(|object| {
            is_block(self.trace, object) && self.admits_birth(object) && self.admits_origin(object, ObjectKind::Heap)
        })
    }

    fn admits_birth(&self, object: &Object) -> bool {
        self.filter.time.as_ref().is_none_or(|time| time.contains(&object.birth))
    }

    /// Whether the filter lets a block of this kind pass, whenever it was allocated.
    fn admits_origin(&self, object: &Object, kind: ObjectKind) -> bool {
        let filter = &self.filter;
        filter.node.is_none_or(|node| object.node == Some(node))
            && filter.thread.is_none_or(|thread| object.thread == Some(thread))
            && filter.process.is_none_or(|process| object.process == process)
            && filter.object.is_none_or(|wanted| object.id == wanted)
            && filter.site.is_none_or(|site| object.site == site)
            && filter.kind.is_none_or(|wanted| wanted == kind)
    }

    /// Seconds of program time that the filter lets pass.
    fn heap_seconds(&self) -> f64 {
        let end = self.trace.end();
        let time = self.filter.time.clone().unwrap_or(TimeNs(0)..end);
        time.end.min(end).0.saturating_sub(time.start.0) as f64 / 1e9
    }

    fn heap_row(&self, id: SiteId, usage: HeapUse) -> HeapRow {
        let site = self.trace.site(id).cloned().unwrap_or_default();
        let size = self.trace.site_size(id);
        HeapRow {
            site: id,
            name: site.name.to_string(),
            place: site.place(),
            function: site.function.to_string(),
            usage,
            at_peak_bytes: self.trace.heap_peak().by_site.get(id.0 as usize).copied().unwrap_or(0),
            peak_live_bytes: size.peak_live_bytes,
            peak_live_blocks: size.peak_live_instances,
        }
    }
}

fn is_block(trace: &Trace, object: &Object) -> bool {
    trace.site(object.site).is_some_and(|site| site.kind == ObjectKind::Heap)
}

fn count_threads(threads: &mut BTreeMap<ThreadIndex, OfThread>, object: &Object) {
    if let Some(thread) = object.thread {
        let own = threads.entry(thread).or_default();
        own.allocations += 1;
        own.bytes = own.bytes.saturating_add(object.bytes);
        own.freed_by_others += u64::from(is_remote_free(object));
    }
    if let Some(by) = object.death_thread {
        let freeing = threads.entry(by).or_default();
        freeing.frees += 1;
        freeing.frees_of_others += u64::from(is_remote_free(object));
    }
}

fn thread_rows(threads: BTreeMap<ThreadIndex, OfThread>, knows_frees: bool) -> Vec<HeapThread> {
    let known = |count: u64| knows_frees.then_some(count);
    let rows = threads.into_iter().map(|(thread, of)| HeapThread {
        thread,
        allocations: of.allocations,
        allocated_bytes: of.bytes,
        freed_by_others: known(of.freed_by_others),
        frees: known(of.frees),
        frees_of_others: known(of.frees_of_others),
    });
    let mut rows: Vec<HeapThread> = rows.collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.allocations, row.allocated_bytes, std::cmp::Reverse(row.thread))));
    rows
}
