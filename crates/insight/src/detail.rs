//! Drill-down: one object (its flow by thread and over time, its pages and who touches each) or one thread.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt};
use numapilot_flows::{AccessRef, Filter, LocationId, ObjectKind};
use numapilot_host::VirtAddr;
use numapilot_machine::NodeId;
use numapilot_trace::ids::{ObjectId, ThreadIndex, TimeNs};
use serde::Serialize;

use crate::callers::CallerRow;
use crate::context::{AllSums, Analysis};
use crate::decision::DecisionRow;
use crate::estimate::{Estimate, Tally};
use crate::rows::ThreadRow;
use crate::totals::Series;

/// Bytes of a small page, the unit of placement.
pub const PAGE_BYTES: u64 = numapilot_host::PageNumber::BYTES;

/// One thread's part in an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectThread {
    /// Index of the thread in the trace.
    pub thread: ThreadIndex,
    /// Node it was seen on most.
    pub node: Option<NodeId>,
    /// Number of samples.
    pub samples: u64,
    /// Share of the object's accesses.
    pub share: Estimate,
    /// Of its accesses to the object, the share that is remote.
    pub remote: Estimate,
    /// Of its accesses to the object, the share that writes.
    pub writes: Estimate,
    /// Time of the first sampled access.
    pub first: TimeNs,
    /// Time of the last sampled access.
    pub last: TimeNs,
    /// Accesses in each slice of the object's series.
    pub over_time: Vec<f64>,
}

/// A stretch of an object's pages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PageRow {
    /// Address of the first byte.
    pub address: VirtAddr,
    /// Number of pages.
    pub pages: u64,
    /// Number of samples.
    pub samples: u64,
    /// Share of the object's accesses.
    pub share: Estimate,
    /// Of its accesses, the share that is remote.
    pub remote: Estimate,
    /// Of its accesses, the share that writes.
    pub writes: Estimate,
    /// Number of accesses from each node.
    pub from_node: Vec<f64>,
    /// Accesses served by each node: where the pages were.
    pub on_node: Vec<f64>,
    /// Threads that were seen to access it, in order.
    pub threads: Vec<ThreadIndex>,
}

/// A place in the code that reaches an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CodeRow {
    /// One of its code addresses, as an index of the trace.
    pub location: LocationId,
    /// Number of samples.
    pub samples: u64,
    /// Share of the accesses looked at.
    pub share: Estimate,
    /// Share of its accesses that write.
    pub writes: Estimate,
    /// Share of its accesses that are remote.
    pub remote: Estimate,
}

/// One object's flow, summed up. The flow itself is `trace.oef(id)`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectDetail {
    /// The decision row of the object.
    pub row: DecisionRow,
    /// The objects looked at: one instance, or all of a site.
    pub objects: Vec<ObjectId>,
    /// Its threads, most accesses first.
    pub threads: Vec<ObjectThread>,
    /// Accesses over program time.
    pub series: Series,
    /// Its pages from low to high addresses, in at most as many stretches as asked for. Empty for a site with several instances.
    pub pages: Vec<PageRow>,
    /// Call stacks that allocated it, most accesses first; empty where there is only one.
    pub callers: Vec<CallerRow>,
    /// Code that reaches it, most accesses first.
    pub code: Vec<CodeRow>,
    /// Mean time in nanoseconds between two successive sampled accesses by *different* threads: whether moving the object from
    /// thread to thread could pay. `None` where only one thread was seen.
    pub mean_handover_ns: Option<f64>,
}

/// One thread's flow, summed up. The flow itself is `trace.tef(thread)`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadDetail {
    /// The row of the thread in the ranking of threads.
    pub row: ThreadRow,
    /// The sites that it reaches, most accesses first; shares are of this thread's accesses.
    pub sites: Vec<DecisionRow>,
    /// Code that makes its accesses, most first.
    pub code: Vec<CodeRow>,
    /// Accesses over program time.
    pub series: Series,
}

#[derive(Default)]
struct Part {
    sums: AllSums,
    from: Vec<f64>,
    home: Vec<f64>,
    over_time: Vec<f64>,
    threads: std::collections::BTreeSet<ThreadIndex>,
    first: Option<TimeNs>,
    last: TimeNs,
}

impl Part {
    fn add(&mut self, analysis: &Analysis<'_>, access: &AccessRef) {
        self.sums.add(access);
        let n = analysis.nodes.len();
        self.from.resize(n, 0.0);
        self.home.resize(n, 0.0);
        if let Some(node) = access.node.and_then(|node| analysis.node_position(node)) {
            self.from[node] += f64::from(access.weight);
        }
        if let Some(node) = access.home.and_then(|node| analysis.node_position(node)) {
            self.home[node] += f64::from(access.weight);
        }
        self.threads.insert(access.thread);
        self.first.get_or_insert(access.time);
        self.last = access.time;
    }
}

impl Analysis<'_> {
    /// One instance in detail: `bins` slices of time, its pages in at most `stretches`. `None` for an unknown id.
    #[must_use]
    pub fn object_detail(&self, id: ObjectId, bins: usize, stretches: usize) -> Option<ObjectDetail> {
        let object = self.trace.object(id)?;
        let own: Vec<AccessRef> = self.accesses_to(id).collect();
        let pages = if self.trace.kind_of(Some(id)) == ObjectKind::Unknown {
            Vec::new()
        } else {
            self.page_rows(object.address.0, object.bytes, &own, stretches)
        };
        Some(self.detail(self.object(id)?, vec![id], &own, bins, pages))
    }

    /// All instances of a site in detail. `None` for an unknown id or a site without accesses.
    #[must_use]
    pub fn site_detail(&self, site: numapilot_flows::SiteId, bins: usize, stretches: usize) -> Option<ObjectDetail> {
        let row = self.sites().into_iter().find(|row| row.key == crate::decision::RowKey::Site(site))?;
        let filter = Filter { site: Some(site), ..self.filter.clone() };
        let own: Vec<AccessRef> = self.trace.filtered(&filter).filter(AccessRef::is_memory_access).collect();
        let mut objects: Vec<ObjectId> = own.iter().filter_map(|access| access.object).collect();
        objects.sort();
        objects.dedup();
        let pages = match objects.as_slice() {
            [only] => self
                .trace
                .object(*only)
                .map(|object| self.page_rows(object.address.0, object.bytes, &own, stretches))
                .unwrap_or_default(),
            _ => Vec::new(),
        };
        let callers = self.caller_rows(site, &own);
        Some(ObjectDetail { callers, ..self.detail(row, objects, &own, bins, pages) })
    }

    fn detail(
        &self,
        row: DecisionRow,
        objects: Vec<ObjectId>,
        own: &[AccessRef],
        bins: usize,
        pages: Vec<PageRow>,
    ) -> ObjectDetail {
        let series = self.series_of(bins, own.iter().copied());
        ObjectDetail {
            row,
            objects,
            threads: self.thread_parts(own, &series),
            pages,
            callers: Vec::new(),
            code: self.code_rows(own),
            mean_handover_ns: mean_handover(own),
            series,
        }
    }

    /// One thread in detail. `None` for an unknown index.
    #[must_use]
    pub fn thread_detail(&self, thread: ThreadIndex, bins: usize) -> Option<ThreadDetail> {
        let row = self.threads().into_iter().find(|row| row.thread == thread)?;
        let mut own = self.clone();
        own.filter.thread = Some(thread);
        let accesses: Vec<AccessRef> = own.accesses().collect();
        Some(ThreadDetail {
            row,
            sites: own.sites(),
            code: self.code_rows(&accesses),
            series: own.series_of(bins, accesses.iter().copied()),
        })
    }

    fn thread_parts(&self, own: &[AccessRef], series: &Series) -> Vec<ObjectThread> {
        let mut all = Tally::default();
        let mut parts: BTreeMap<ThreadIndex, Part> = BTreeMap::new();
        let start = series.bins.first().map_or(0, |bin| bin.start.0);
        for access in own {
            all.add(access);
            let part = parts.entry(access.thread).or_default();
            part.add(self, access);
            part.over_time.resize(series.bins.len(), 0.0);
            let bin = (access.time.0.saturating_sub(start) / series.bin_ns).min(series.bins.len() as u64 - 1);
            part.over_time[bin as usize] += f64::from(access.weight);
        }
        let row = |(thread, part): (ThreadIndex, Part)| ObjectThread {
            thread,
            node: (0..part.from.len())
                .filter(|&node| part.from[node] > 0.0)
                .max_by(|&a, &b| part.from[a].total_cmp(&part.from[b]).then(b.cmp(&a)))
                .map(|node| self.nodes[node]),
            samples: part.sums.all.samples,
            share: part.sums.all.share_of(&all),
            remote: part.sums.remote.share_of(&part.sums.known),
            writes: part.sums.writes.share_of(&part.sums.all),
            first: part.first.unwrap_or_default(),
            last: part.last,
            over_time: part.over_time,
        };
        let mut rows: Vec<ObjectThread> = parts.into_iter().map(row).collect();
        rows.sort_by(|a, b| b.share.value.total_cmp(&a.share.value).then(a.thread.cmp(&b.thread)));
        rows
    }

    fn page_rows(&self, address: u64, bytes: u64, own: &[AccessRef], stretches: usize) -> Vec<PageRow> {
        let first = address / PAGE_BYTES;
        let count = (address.saturating_add(bytes.max(1) - 1) / PAGE_BYTES).saturating_sub(first) + 1;
        let per_stretch = count.div_ceil(stretches.max(1) as u64);
        let mut all = Tally::default();
        let mut parts: BTreeMap<u64, Part> = BTreeMap::new();
        for access in own {
            all.add(access);
            let stretch = (access.address.0 / PAGE_BYTES).saturating_sub(first).min(count - 1) / per_stretch;
            parts.entry(stretch).or_default().add(self, access);
        }
        let row = |(stretch, part): (u64, Part)| PageRow {
            address: VirtAddr((first + stretch * per_stretch) * PAGE_BYTES),
            pages: per_stretch.min(count - stretch * per_stretch),
            samples: part.sums.all.samples,
            share: part.sums.all.share_of(&all),
            remote: part.sums.remote.share_of(&part.sums.known),
            writes: part.sums.writes.share_of(&part.sums.all),
            from_node: part.from,
            on_node: part.home,
            threads: part.threads.into_iter().collect(),
        };
        parts.into_iter().map(row).collect()
    }

    /// By function and line: several instructions of one line, or several compilations of one function, are one place.
    fn code_rows(&self, own: &[AccessRef]) -> Vec<CodeRow> {
        let mut all = Tally::default();
        let mut firsts = HashMap::new();
        let mut places: HashMap<LocationId, LocationId> = HashMap::new();
        let mut parts: HashMap<LocationId, AllSums> = HashMap::new();
        for access in own {
            all.add(access);
            let place = *places.entry(access.location).or_insert_with(|| {
                let code = self.trace.location(access.location);
                let frame = code.frames.first().map(|frame| (&*frame.function, &*frame.file, frame.line));
                *firsts.entry((&*code.module, frame)).or_insert(access.location)
            });
            parts.entry(place).or_default().add(access);
        }
        let row = |(location, sums): (LocationId, AllSums)| CodeRow {
            location,
            samples: sums.all.samples,
            share: sums.all.share_of(&all),
            writes: sums.writes.share_of(&sums.all),
            remote: sums.remote.share_of(&sums.known),
        };
        let mut rows: Vec<CodeRow> = parts.into_iter().map(row).collect();
        rows.sort_by(|a, b| b.share.value.total_cmp(&a.share.value).then(a.location.cmp(&b.location)));
        rows
    }
}

/// Per instance, then averaged over all hand-overs.
fn mean_handover(own: &[AccessRef]) -> Option<f64> {
    let mut last: HashMap<Option<ObjectId>, (ThreadIndex, TimeNs)> = HashMap::new();
    let (mut handovers, mut sum) = (0u64, 0.0);
    for access in own {
        let before = last.insert(access.object, (access.thread, access.time));
        if let Some((_, time)) = before.filter(|(thread, _)| *thread != access.thread) {
            handovers += 1;
            sum += (access.time.0 - time.0) as f64;
        }
    }
    (handovers > 0).then(|| sum / handovers as f64)
}
