//! A trace in memory: every table joined, with the two orders of its accesses.
//!
//! A *Thread Event Flow* ([`Trace::tef`]) is one thread's accesses in order of program time, an *Object Event Flow*
//! ([`Trace::oef`]) one object instance's. Both are views of the same rows.

use foldhash::HashMap;
use numapilot_host::workers;
use numapilot_machine::{Machine, NodeId};
use numapilot_trace::ids::{ObjectId, ProcessIndex, StackId, ThreadIndex, TimeNs};
use numapilot_trace::meta::{Evidence, Meta};

use crate::access::{AccessRef, Accesses, Order};
use crate::instrumentation::Instrumentation;
pub use crate::losses::Losses;
use crate::model::{
    CountersAt, Location, LocationId, Object, ObjectKind, Placement, Process, Site, SiteId, Thread, Wait,
};
use crate::shared_memory;
use crate::sizes::{self, HeapPeak, Life, SiteSize};

/// Key in `meta.json` of the number of sampled accesses to memory that another process had touched first, elsewhere: what threads count by home node takes them
/// for accesses to the home that their own process would have given it.
pub(crate) const HOMES_OF_OTHERS: &str = "homes_of_other_processes";
/// Number of accesses from which two threads put them in order.
const PARALLEL_FROM: usize = 1 << 20;

/// The tables of a trace; [`Trace::from_tables`] adds the flows. Row numbers are ids: `objects[3].id` is 3.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Accesses, in any order.
    pub accesses: Accesses,
    /// Object instances, by id.
    pub objects: Vec<Object>,
    /// Sites, by id: what the instances of one place in the source share.
    pub sites: Vec<Site>,
    /// Memory of each site's objects; if empty, it is computed from the program times of births and deaths.
    pub site_sizes: Vec<SiteSize>,
    /// The peak of all heap blocks; computed where `site_sizes` is.
    pub heap_peak: HeapPeak,
    /// Threads, by index.
    pub threads: Vec<Thread>,
    /// Process images, by index.
    pub processes: Vec<Process>,
    /// Resolved code addresses; row 0 is "unknown".
    pub locations: Vec<Location>,
    /// Call stacks, innermost location first; row 0 is "unknown" and empty.
    pub stacks: Vec<Vec<LocationId>>,
    /// Exact totals over time, by thread, in order of time.
    pub counters: Vec<CountersAt>,
    /// Pages that got a home or changed it, in order; only of traces whose accesses are page faults ([`Trace::holds_faults`]).
    pub placements: Vec<Placement>,
    /// Waits for other threads, locks and time, in any order.
    pub waits: Vec<Wait>,
    /// Marks that the program set: when, and their text.
    pub marks: Vec<(TimeNs, String)>,
    /// Program time at which the recording ended.
    pub end: TimeNs,
    /// Counts of what was lost or is unknown.
    pub losses: Losses,
}

/// A trace in memory, with its flows.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    tables: Tables,
    by_thread: Order,
    by_object: Order,
    nodes: Vec<NodeId>,
    meta: Meta,
    was_rebuilt: bool,
}

impl Trace {
    /// Builds the flows over these tables; accesses are put in order of time.
    #[must_use]
    pub fn from_tables(mut tables: Tables) -> Trace {
        tables.accesses.sort_by_time();
        if tables.locations.is_empty() {
            tables.locations.push(Location::default());
        }
        if tables.stacks.is_empty() {
            tables.stacks.push(Vec::new());
        }
        if tables.site_sizes.len() != tables.sites.len() {
            (tables.site_sizes, tables.heap_peak) = sizes_by_program_time(&tables);
        }
        let (by_thread, by_object) = orders(&tables.accesses);
        let nodes = nodes_seen(&tables);
        Trace { tables, by_thread, by_object, nodes, meta: Meta::default(), was_rebuilt: false }
    }

    /// The same flows with what is known about the recording as a whole, for builders and tests.
    #[must_use]
    pub fn with_meta(mut self, meta: Meta) -> Trace {
        self.set_origin(meta, false);
        self
    }

    pub(crate) fn set_origin(&mut self, meta: Meta, was_rebuilt: bool) {
        self.meta = meta;
        self.was_rebuilt = was_rebuilt;
        if self.line_sampling() > 1 {
            let spaces: Vec<u32> = self.tables.threads.iter().map(|thread| thread.process.0).collect();
            self.tables.accesses.cluster_by_line(|thread| spaces.get(thread.0 as usize).copied().unwrap_or(0));
        }
    }

    /// One cache line in this many was simulated (chosen by a hash of its address); 1: all of them, so that totals are exact.
    #[must_use]
    pub fn line_sampling(&self) -> u64 {
        self.meta.config.get("line_sampling").and_then(serde_json::Value::as_u64).unwrap_or(1).max(1)
    }

    /// Whether the threads' counts by home node are of the homes that accesses have. They are not where processes share memory that one of them touched first
    /// and others elsewhere.
    #[must_use]
    pub fn counts_by_home_hold(&self) -> bool {
        !self.meta.more.contains_key(HOMES_OF_OTHERS)
    }

    /// What is known about the recording as a whole: command, engine, machine, clock. Empty for a trace made by
    /// [`Trace::from_tables`].
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Which parts of the recorded programs were instrumented; `None` for engines that need no instrumentation, and in older traces.
    #[must_use]
    pub fn instrumentation(&self) -> Option<Instrumentation> {
        Instrumentation::read(&self.meta.more)
    }

    /// The machine that the trace describes; `None` in a trace without one.
    #[must_use]
    pub fn machine(&self) -> Option<Machine> {
        serde_json::from_value(self.meta.machine.clone()).ok()
    }

    /// Whether the tables had to be made from `raw/` at opening, because the recorder was killed.
    #[must_use]
    pub fn was_rebuilt(&self) -> bool {
        self.was_rebuilt
    }

    /// Every access, in order of program time.
    pub fn accesses(&self) -> impl ExactSizeIterator<Item = AccessRef> + '_ {
        self.tables.accesses.iter()
    }

    /// Thread Event Flow: the thread's accesses in order of time; empty for an unknown thread.
    pub fn tef(&self, thread: ThreadIndex) -> impl ExactSizeIterator<Item = AccessRef> + '_ {
        self.tables.accesses.walk(self.by_thread.group(thread.0).iter().copied())
    }

    /// Object Event Flow: the instance's accesses in order of time; empty for an unknown object.
    pub fn oef(&self, object: ObjectId) -> impl ExactSizeIterator<Item = AccessRef> + '_ {
        self.tables.accesses.walk(self.by_object.group(object.0).iter().copied())
    }

    #[inline]
    pub(crate) fn rows_of_thread(&self, thread: ThreadIndex) -> &[u32] {
        self.by_thread.group(thread.0)
    }

    #[inline]
    pub(crate) fn rows_of_object(&self, object: ObjectId) -> &[u32] {
        self.by_object.group(object.0)
    }

    /// Prefetches these rows into the caches, before they are read one by one.
    #[inline]
    pub(crate) fn fetch(&self, rows: &[u32]) {
        self.tables.accesses.fetch(rows);
    }

    /// The access in this row, which must exist.
    #[inline]
    pub(crate) fn row(&self, row: usize) -> AccessRef {
        self.tables.accesses.get(row)
    }

    /// The access in this row; `None` past the last row.
    #[must_use]
    pub fn access(&self, row: u32) -> Option<AccessRef> {
        ((row as usize) < self.tables.accesses.len()).then(|| self.tables.accesses.get(row as usize))
    }

    /// Object instances, by id.
    #[must_use]
    pub fn objects(&self) -> &[Object] {
        &self.tables.objects
    }

    /// The object with this id; `None` if there is none.
    #[must_use]
    pub fn object(&self, id: ObjectId) -> Option<&Object> {
        self.tables.objects.get(id.0 as usize)
    }

    /// Sites, by id.
    #[must_use]
    pub fn sites(&self) -> &[Site] {
        &self.tables.sites
    }

    /// The site with this id; `None` if there is none.
    #[must_use]
    pub fn site(&self, id: SiteId) -> Option<&Site> {
        self.tables.sites.get(id.0 as usize)
    }

    /// Memory of a site's objects in the whole recording, whether sampled or not; zeros for an unknown site.
    #[must_use]
    pub fn site_size(&self, id: SiteId) -> SiteSize {
        self.tables.site_sizes.get(id.0 as usize).copied().unwrap_or_default()
    }

    /// The moment at which all heap blocks together took most memory, whatever was sampled.
    #[must_use]
    pub fn heap_peak(&self) -> &HeapPeak {
        &self.tables.heap_peak
    }

    /// The site of an object.
    #[must_use]
    pub fn site_of(&self, object: ObjectId) -> Option<&Site> {
        self.site(self.object(object)?.site)
    }

    /// The mappings of shared memory that may show the same memory as the first mapping of their site, with that one: all of a site, unless a process has two
    /// of them at once. Whether they do show the same is for names or homes to tell.
    #[must_use]
    pub fn first_mappings(&self) -> HashMap<ObjectId, ObjectId> {
        shared_memory::first_mappings(&self.tables.objects, &self.tables.sites)
    }

    /// Kind of an object; [`ObjectKind::Unknown`] for an id that does not exist.
    #[must_use]
    pub fn kind_of(&self, object: Option<ObjectId>) -> ObjectKind {
        object.and_then(|id| self.site_of(id)).map_or(ObjectKind::Unknown, |site| site.kind)
    }

    /// Threads, by index.
    #[must_use]
    pub fn threads(&self) -> &[Thread] {
        &self.tables.threads
    }

    /// The thread with this index; `None` if there is none.
    #[must_use]
    pub fn thread(&self, index: ThreadIndex) -> Option<&Thread> {
        self.tables.threads.get(index.0 as usize)
    }

    /// Processes, by index.
    #[must_use]
    pub fn processes(&self) -> &[Process] {
        &self.tables.processes
    }

    /// The process with this index; `None` if there is none.
    #[must_use]
    pub fn process(&self, index: ProcessIndex) -> Option<&Process> {
        self.tables.processes.get(index.0 as usize)
    }

    /// A call stack: locations, innermost first; empty where unknown.
    #[must_use]
    pub fn stack(&self, id: StackId) -> &[LocationId] {
        self.tables.stacks.get(id.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// Number of call stacks, "unknown" included: ids are below it.
    #[must_use]
    pub fn stack_count(&self) -> usize {
        self.tables.stacks.len()
    }

    /// Resolved code addresses, by id.
    #[must_use]
    pub fn locations(&self) -> &[Location] {
        &self.tables.locations
    }

    /// The resolved code address with this id; "unknown" for an id that does not exist.
    #[must_use]
    pub fn location(&self, id: LocationId) -> &Location {
        self.tables.locations.get(id.0 as usize).unwrap_or(&self.tables.locations[0])
    }

    /// Exact totals over time, by thread, in order of time.
    #[must_use]
    pub fn counters(&self) -> &[CountersAt] {
        &self.tables.counters
    }

    /// Whether its accesses are page faults: first touches and NUMA hinting faults, at rates that do not measure memory traffic.
    #[must_use]
    pub fn holds_faults(&self) -> bool {
        holds_faults(&self.meta)
    }

    /// What its samples are evidence of. If it is not [`Evidence::Accesses`], no figure about accesses is known.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        self.meta.evidence()
    }

    /// Pages that got a home or changed it, in order, if accesses are page faults; other traces do not keep them in memory.
    #[must_use]
    pub fn placements(&self) -> &[Placement] {
        &self.tables.placements
    }

    /// Waits for other threads, locks and time, in any order.
    #[must_use]
    pub fn waits(&self) -> &[Wait] {
        &self.tables.waits
    }

    /// Marks that the program set: program time and text.
    #[must_use]
    pub fn marks(&self) -> &[(TimeNs, String)] {
        &self.tables.marks
    }

    /// Counts of what was lost or is unknown.
    #[must_use]
    pub fn losses(&self) -> &Losses {
        &self.tables.losses
    }

    /// Program time at which the recording ended.
    #[must_use]
    pub fn end(&self) -> TimeNs {
        self.tables.end
    }

    /// Nodes that appear in the trace as accessing node, home or thread's node, ascending.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }
}

/// Implements [`Trace::holds_faults`], from the trace's metadata.
pub(crate) fn holds_faults(meta: &Meta) -> bool {
    meta.evidence() == Evidence::PageFaults
}

fn sizes_by_program_time(tables: &Tables) -> (Vec<SiteSize>, HeapPeak) {
    let is_block =
        |object: &Object| tables.sites.get(object.site.0 as usize).is_some_and(|site| site.kind == ObjectKind::Heap);
    let lives = tables.objects.iter().map(|object| Life {
        site: object.site.0,
        is_block: is_block(object),
        bytes: object.bytes,
        birth: object.birth.0,
        death: object.death.map(|death| death.0),
    });
    let lives: Vec<Life> = lives.collect();
    let process_of: Vec<u32> = tables.objects.iter().map(|object| object.process.0).collect();
    sizes::sizes(&lives, &process_of, &tables.sites)
}

/// The orders by thread and by object: of many accesses at the same time.
fn orders(accesses: &Accesses) -> (Order, Order) {
    if accesses.len() < PARALLEL_FROM {
        return (accesses.thread_order(), accesses.object_order());
    }
    workers::both(|| accesses.thread_order(), || accesses.object_order())
}

fn nodes_seen(tables: &Tables) -> Vec<NodeId> {
    let mut of_accesses = vec![false; 1 << u16::BITS];
    for access in tables.accesses.iter() {
        for node in access.node.into_iter().chain(access.home) {
            of_accesses[usize::from(node.0)] = true;
        }
    }
    let numbered = (0..=u16::MAX).zip(of_accesses).filter(|&(_, is_seen)| is_seen);
    let mut seen: std::collections::BTreeSet<NodeId> = numbered.map(|(number, _)| NodeId(number)).collect();
    for thread in &tables.threads {
        seen.extend(thread.node);
        if let Some(counters) = &thread.counters {
            let touched = counters.by_home.iter().enumerate().filter(|&(_, &count)| count > 0);
            seen.extend(touched.map(|(node, _)| NodeId(node as u16)));
        }
    }
    seen.into_iter().collect()
}
