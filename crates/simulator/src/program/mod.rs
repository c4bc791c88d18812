//! The simulator's input: what a program does, free of any machine and of any placement. Pure data.
//!
//! A thread is a timeline of [`Step`]s. Work is given as what the thread needs (its own nanoseconds, its memory accesses, and how many of them
//! it keeps outstanding), so that under another placement time dilates by itself. Everything that orders threads is an [`Event`].
//!
//! Pages are units of 4 KiB everywhere; a region of large pages is a multiple of 512 of them.

mod build;
mod check;

pub use build::Builder;

use numapilot_machine::CpuId;
use numapilot_placement::PageSize;
use serde::Serialize;

/// Pages of 4 KiB in one of 2 MiB.
pub const SMALL_PER_LARGE: u64 = 512;
/// Bytes of a small page.
pub const PAGE_BYTES: u64 = 4096;

/// Where a program came from; shown with every result.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A synthetic description.
    Synthetic {
        /// File, or what stands for it.
        file: String,
    },
    /// A recorded trace.
    Recorded {
        /// The trace's folder.
        trace: String,
        /// Machine on which it was recorded.
        machine: String,
        /// Program time of the recording in nanoseconds.
        recorded_ns: u64,
        /// First nanosecond of the part that is repeated; `None`: nothing is.
        repeated_from_ns: Option<u64>,
        /// What had to be assumed, in whole sentences.
        assumptions: Vec<String>,
    },
}

/// A run of pages in one process that are mapped alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// What people call it.
    pub name: String,
    /// Process, as an index.
    pub process: u32,
    /// Virtual address over 4,096.
    pub first_page: u64,
    /// Pages of 4 KiB.
    pub pages: u64,
    /// How it is mapped at first.
    pub page_size: PageSize,
}

/// Pages that somebody accesses evenly: a run within a region. Slices may overlap; a page's rate is the sum over its slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice {
    /// Region, as an index.
    pub region: u32,
    /// First page, counted from the region's.
    pub first: u64,
    /// Pages of 4 KiB; at least 1.
    pub pages: u64,
    /// What its traffic is booked under: an index into [`Program::labels`].
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

/// Where a thread's accesses go, evenly within each slice. The shares of all parts sum to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mix {
    /// The parts.
    pub parts: Vec<MixPart>,
}

/// How a thread accesses memory in a stretch of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Behaviour {
    /// Mix, as an index.
    pub mix: u32,
    /// Memory accesses outstanding on average; at least 1 for a thread that waits for each.
    pub outstanding: f64,
}

/// A stretch of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Behaviour, as an index.
    pub behaviour: u32,
    /// Nanoseconds of the thread's own work, without waiting for memory.
    pub own_ns: f64,
    /// Memory accesses.
    pub accesses: f64,
    /// Instructions, or what stands for them ([`Program::counts_instructions`]).
    pub instructions: f64,
}

/// One step of a timeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Works.
    Work(Work),
    /// Touches pages for the first time: those of the slice that have no home get one. Takes no time (the accesses are work).
    Touch {
        /// Slice, as an index.
        slice: u32,
        /// Node number that the program itself asks for (`mbind`), over any policy.
        bound: Option<u16>,
        /// Pages that have a home lose it first: they were freed, or are moved by the program.
        anew: bool,
    },
    /// One more has arrived at an event.
    Arrive {
        /// Event, as an index.
        event: u32,
    },
    /// Waits until all have arrived.
    Await {
        /// Event, as an index.
        event: u32,
    },
    /// Waits until its fellows, on average, have come to the same point of the recording: [`Step::to_ns`].
    Follow,
    /// Sleeps.
    Sleep {
        /// Nanoseconds.
        ns: f64,
    },
}

/// A step with its place in the recording (or in an undisturbed run): what [`Action::Follow`] goes by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// What is done.
    pub action: Action,
    /// Where it began, in nanoseconds.
    pub from_ns: f64,
    /// Where it ended.
    pub to_ns: f64,
}

/// Who touches pages first, where that is known beforehand: whoever uses them first in a simulation, they go by this thread's node.
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
    /// Node number that the program itself asks for, over any policy.
    pub bound: Option<u16>,
}

/// Homes of some pages, given from outside: what if they were there?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedHomes {
    /// Region, as an index.
    pub region: u32,
    /// First page, counted from the region's.
    pub first: u64,
    /// Node number of each page from there on. A large page goes by its first.
    pub homes: Vec<u16>,
}

/// What a thread does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// Process, as an index.
    pub process: u32,
    /// CPU on which it ran, where that is known.
    pub cpu: Option<CpuId>,
    /// Done once.
    pub prologue: Vec<Step>,
    /// Done [`Program::repeat`] times.
    pub body: Vec<Step>,
    /// Done once after that.
    pub epilogue: Vec<Step>,
}

/// Where threads meet: complete when as many have arrived as are needed. An event in the body is used anew by each repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Arrivals that complete it.
    pub needed: u32,
}

/// A program.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Where it came from.
    pub origin: Origin,
    /// Names of processes.
    pub processes: Vec<String>,
    /// All mapped memory; regions of a process do not overlap.
    pub regions: Vec<Region>,
    /// What traffic is booked under: names of objects or regions.
    pub labels: Vec<String>,
    /// Slices.
    pub slices: Vec<Slice>,
    /// Mixes.
    pub mixes: Vec<Mix>,
    /// Behaviours.
    pub behaviours: Vec<Behaviour>,
    /// Threads.
    pub threads: Vec<Thread>,
    /// Events.
    pub events: Vec<Event>,
    /// First touches known beforehand. Of several for one page, the first in this order holds.
    pub first_touches: Vec<FirstTouch>,
    /// Homes that hold whoever touches the pages, over any policy and the program's own wish. Of several for one page, the last in this order holds.
    pub ordered_homes: Vec<OrderedHomes>,
    /// How often the bodies are done.
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
