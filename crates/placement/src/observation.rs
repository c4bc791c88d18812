//! The input of a policy. A real machine can supply every value: counters, samples, NUMA hinting faults, `/proc`.

use numapilot_host::PageNumber;
use numapilot_machine::{NodeIndex, NodeSet};
use numapilot_traffic::Load;

use crate::action::Outcome;
pub use crate::page::{PageKey, PageSize};

/// One sampled memory access (served by memory, not by a cache), as a PMU reports it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Page that holds the address, as mapped.
    pub page: PageKey,
    /// Small page within it that was accessed.
    pub small_page: PageNumber,
    /// Thread, by its number in the observation.
    pub thread: u32,
    /// Node on which it ran.
    pub from: NodeIndex,
    /// Node whose memory served the access: the page's home node, or that of a copy.
    pub home: NodeIndex,
    /// True for a store or a read-modify-write.
    pub is_write: bool,
    /// Measured latency in nanoseconds, where the sampler supplies it.
    pub latency_ns: Option<f32>,
}

/// An access to a page that was unmapped for it ([`crate::Action::Unmap`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HintFault {
    /// When, in nanoseconds of program time.
    pub time_ns: u64,
    /// The page, as mapped.
    pub page: PageKey,
    /// Thread, by its number in the observation.
    pub thread: u32,
    /// Node on which it ran.
    pub from: NodeIndex,
    /// Home node of the page.
    pub home: NodeIndex,
    /// Whether the access was a store.
    pub is_write: bool,
    /// Nanoseconds between the unmapping and this access.
    pub age_ns: u64,
}

/// Counters of one node since the last observation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeCounters {
    /// Memory reads (lines of 64 bytes) that this node's CPUs made, by home node.
    pub reads_to: Vec<f64>,
    /// Memory writes that this node's CPUs made, by home node.
    pub writes_to: Vec<f64>,
    /// Bytes of memory free at the end of the interval.
    pub free_bytes: u64,
    /// Share of the time in which the memory controller was busy, where a counter exists.
    pub controller_utilisation: Option<f64>,
}

/// Counters of one thread since the last observation.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadState {
    /// Number of the thread, the same in all observations.
    pub thread: u32,
    /// Number of the thread's process.
    pub process: u32,
    /// Node on which it runs now.
    pub node: NodeIndex,
    /// Nodes that it may be moved to: a program that binds its threads leaves them no other.
    pub allowed: NodeSet,
    /// Nanoseconds in which it ran (not waiting for other threads).
    pub busy_ns: f64,
    /// Instructions that it retired: the measure of progress.
    pub instructions: f64,
    /// Memory accesses that it made.
    pub memory_accesses: f64,
}

/// A range of a process that is mapped read-only, of which there may be copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOnlyRange {
    /// Process, by its number in the observation.
    pub process: u32,
    /// First page.
    pub first: PageNumber,
    /// Number of pages of 4 KiB.
    pub pages: u64,
    /// Nodes that have copies of all its pages now; empty: there is only one.
    pub copies: NodeSet,
}

/// Neighbouring pages of a process with one home and one size: a piece of the page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeRun {
    /// Process, by its number in the observation.
    pub process: u32,
    /// First page; of large pages, the first small page of the first.
    pub first: PageNumber,
    /// Number of pages of 4 KiB.
    pub pages: u64,
    /// Size of each page, as mapped.
    pub size: PageSize,
    /// Node whose memory holds them.
    pub node: NodeIndex,
}

impl HomeRun {
    /// The pages of the run as mapped, ascending.
    pub fn keys(&self) -> impl Iterator<Item = PageKey> + use<> {
        let HomeRun { process, first, pages, size, .. } = *self;
        let step = size.small_pages();
        (0..pages.div_ceil(step)).map(move |index| PageKey { process, page: first + index * step, size })
    }

    /// The page as mapped that holds a small page of the run.
    #[must_use]
    pub fn key_of(&self, page: PageNumber) -> PageKey {
        let step = self.size.small_pages();
        PageKey { process: self.process, page: self.first + (page - self.first) / step * step, size: self.size }
    }
}

/// Everything that a policy sees at one decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Program time in nanoseconds.
    pub now_ns: u64,
    /// Nanoseconds since the observation before this one.
    pub elapsed_ns: u64,
    /// Every node, in index order.
    pub nodes: Vec<NodeCounters>,
    /// Every thread alive, in order of number.
    pub threads: Vec<ThreadState>,
    /// Samples in order of time. Each stands for `sample_period` memory accesses.
    pub samples: Vec<Sample>,
    /// Memory accesses per sample.
    pub sample_period: f64,
    /// Samples that the sampler lost.
    pub samples_lost: u64,
    /// Hint faults in order of time.
    pub hint_faults: Vec<HintFault>,
    /// Replicated pages that a write collapsed, with the node that kept the page.
    pub collapses: Vec<(PageKey, NodeIndex)>,
    /// Ranges that are mapped: (process, first page, pages of 4 KiB), ascending. Empty unless the policy requires it.
    pub mapped: Vec<(u32, PageNumber, u64)>,
    /// Where every page that has a home is, ascending by process and page. Empty unless the policy requires it, and where the environment does not know.
    pub homes: Vec<HomeRun>,
    /// Pages that were accessed since their accessed bit was cleared ([`crate::Action::ClearAccessed`]), each once, ascending.
    pub accessed: Vec<PageKey>,
    /// Ranges that are mapped read-only, ascending by process and first page.
    pub read_only: Vec<ReadOnlyRange>,
    /// Outcomes of the actions of the last decision, in their order.
    pub outcomes: Vec<Outcome>,
    /// Utilisation of each directed link in the machine's order, where counters tell.
    pub links: Option<Vec<f64>>,
    /// What the environment takes to be asked of the memory system now, where it can tell: from counters, one class per thread group.
    pub load: Option<Load>,
}
