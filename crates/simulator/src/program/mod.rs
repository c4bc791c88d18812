//! The simulator's input: what a program does, free of any machine and of any placement. Pure data.
//!
//! A thread is a timeline of [`Step`]s. Work is given as what the thread needs (its own nanoseconds, its memory accesses, and how many of them
//! it keeps outstanding), so that under another placement time dilates by itself. Everything that orders threads is an [`Event`].
//!
//! Pages are units of 4 KiB everywhere; a region of large pages is a multiple of 512 of them.

mod build;
mod check;

pub use build::Builder;

use numapilot_host::PageNumber;
use numapilot_machine::{CpuId, NodeId};
use numapilot_placement::PageSize;
use serde::Serialize;

/// Pages of 4 KiB in one of 2 MiB.
pub const SMALL_PER_LARGE: u64 = PageNumber::PER_LARGE;
/// Bytes of a small page.
pub const PAGE_BYTES: u64 = PageNumber::BYTES;

/// Origin of a program; shown with every result.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The program was read from a synthetic description.
    Synthetic {
        /// File, or what stands for it.
        file: String,
    },
    /// The program was read from a recorded trace.
    Recorded {
        /// Folder of the trace.
        trace: String,
        /// Machine on which it was recorded.
        machine: String,
        /// Program time of the recording in nanoseconds.
        recorded_ns: u64,
        /// First nanosecond of the part that is repeated; `None`: nothing is.
        repeated_from_ns: Option<u64>,
        /// Assumptions of the conversion, in whole sentences.
        assumptions: Vec<String>,
    },
}

/// A run of pages in one process that are mapped alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// Name of the region in reports.
    pub name: String,
    /// Process, as an index.
    pub process: u32,
    /// Its first page.
    pub first_page: PageNumber,
    /// Pages of 4 KiB.
    pub pages: u64,
    /// Page size of its first mapping.
    pub page_size: PageSize,
}

/// Pages that are accessed evenly: a run within a region. Slices may overlap; a page's rate is the sum over its slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice {
    /// Region, as an index.
    pub region: u32,
    /// First page, counted from the region's.
    pub first: u64,
    /// Pages of 4 KiB; at least 1.
    pub pages: u64,
    /// Label of its traffic: an index into [`Program::labels`].
    pub label: u32,
}

/// One part of a mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixPart {
    /// Slice, as an index.
    pub slice: u32,
    /// Share of the accesses that read from it.
    pub reads: f64,
    /// Share that writes to it.
    pub writes: f64,
}

/// The distribution of a thread's accesses over slices, even within each slice. The shares of all parts sum to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mix {
    /// Slices with their shares of the accesses.
    pub parts: Vec<MixPart>,
}

/// How a thread accesses memory during work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Behaviour {
    /// Mix, as an index.
    pub mix: u32,
    /// Memory accesses outstanding on average; at least 1 for a thread that waits for each.
    pub outstanding: f64,
}

/// Computation and memory accesses of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Behaviour, as an index.
    pub behaviour: u32,
    /// Nanoseconds of computation, without waiting for memory.
    pub own_ns: f64,
    /// Number of memory accesses.
    pub accesses: f64,
    /// Instructions, or what stands for them ([`Program::counts_instructions`]).
    pub instructions: f64,
}

/// One step of a timeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Executes work and accesses memory.
    Work(Work),
    /// Touches pages for the first time: pages of the slice without a home node get one. Takes no time (the accesses are work).
    Touch {
        /// Slice, as an index.
        slice: u32,
        /// Node that the program itself requests (`mbind`); overrides any policy.
        bound: Option<NodeId>,
        /// Whether pages lose their present home node first, because they were freed or the program moves them.
        anew: bool,
    },
    /// Signals an event: one more arrival.
    Arrive {
        /// Event, as an index.
        event: u32,
    },
    /// Waits until the event has all of its arrivals.
    Await {
        /// Event, as an index.
        event: u32,
    },
    /// Waits until the other threads of the group, on average, have reached the same point of the recording: [`Step::to_ns`].
    Follow,
    /// Waits for a fixed time without using a CPU.
    Sleep {
        /// Duration in simulated nanoseconds.
        ns: f64,
    },
}

/// A step with its place in the recording (or in an undisturbed run): [`Action::Follow`] uses it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The action.
    pub action: Action,
    /// Start in the recording or the undisturbed run, in nanoseconds.
    pub from_ns: f64,
    /// End in the recording or the undisturbed run, in nanoseconds.
    pub to_ns: f64,
}

/// A first toucher that is known beforehand: the pages are allocated by this thread's node, whichever thread accesses them first in the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstTouch {
    /// Region, as an index.
    pub region: u32,
    /// First page, counted from the region's.
    pub first: u64,
    /// Pages of 4 KiB.
    pub pages: u64,
    /// Thread, as an index.
    pub thread: u32,
    /// Node that the program itself requests; overrides any policy.
    pub bound: Option<NodeId>,
}

/// Home nodes of some pages, given by the caller of a what-if analysis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedHomes {
    /// Region, as an index.
    pub region: u32,
    /// First page, counted from the region's.
    pub first: u64,
    /// Node of each page from there on. A large page goes by its first.
    pub homes: Vec<NodeId>,
}

/// The timeline of a thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    /// Name of the thread.
    pub name: String,
    /// Process, as an index.
    pub process: u32,
    /// CPU on which it ran, where that is known.
    pub cpu: Option<CpuId>,
    /// Whether the program's end cuts it off wherever it is: the run does not last until it ends.
    pub is_cut_off: bool,
    /// Steps that are executed once, before the body.
    pub prologue: Vec<Step>,
    /// Steps that are executed [`Program::repeat`] times.
    pub body: Vec<Step>,
    /// Steps that are executed once, after the body.
    pub epilogue: Vec<Step>,
}

/// A synchronisation of threads: complete after the needed number of arrivals. Each repetition of the body uses its events anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Arrivals that complete it.
    pub needed: u32,
}

/// A program for the simulated machine: memory regions, threads and their work.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Name of the program.
    pub name: String,
    /// Origin of the program.
    pub origin: Origin,
    /// Names of the processes, by process index.
    pub processes: Vec<String>,
    /// All mapped memory; regions of a process do not overlap. Others name them by index.
    pub regions: Vec<Region>,
    /// Names of objects or regions, to which traffic is attributed; slices name them by index.
    pub labels: Vec<String>,
    /// Slices of regions; mixes name them by index.
    pub slices: Vec<Slice>,
    /// Mixes of slices; behaviours name them by index.
    pub mixes: Vec<Mix>,
    /// Behaviours; steps name them by index.
    pub behaviours: Vec<Behaviour>,
    /// All threads of all processes.
    pub threads: Vec<Thread>,
    /// Events that threads wait for; steps name them by index.
    pub events: Vec<Event>,
    /// First touches that are known beforehand. Of several for one page, the first in this order applies.
    pub first_touches: Vec<FirstTouch>,
    /// Fixed home nodes, which override first touch, any policy and the program's own requests. Of several for one page, the last in this order applies.
    pub ordered_homes: Vec<OrderedHomes>,
    /// Number of repetitions of the bodies.
    pub repeat: u32,
    /// Nanoseconds of the recording that one repetition covers.
    pub body_ns: f64,
    /// Whether [`Work::instructions`] are instructions; else they are a stand-in that grows with progress.
    pub counts_instructions: bool,
}

impl Program {
    /// Bytes of all regions.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.pages * PAGE_BYTES).sum()
    }

    /// Memory accesses of the whole run.
    #[must_use]
    pub fn accesses(&self) -> f64 {
        let sum = |steps: &[Step]| -> f64 {
            let of = |step: &Step| if let Action::Work(work) = step.action { work.accesses } else { 0.0 };
            steps.iter().map(of).sum()
        };
        let repeat = f64::from(self.repeat);
        self.threads.iter().map(|t| sum(&t.prologue) + repeat * sum(&t.body) + sum(&t.epilogue)).sum()
    }
}
