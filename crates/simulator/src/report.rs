//! The report of a simulation. Everything here is *simulated*, and the report says so in its first field. Serialises to JSON with stable field names;
//! nodes are indexes into [`Report::nodes`], links into [`Report::links`].

use numapilot_host::PageNumber;
use numapilot_machine::{NodeId, NodeIndex};
use numapilot_placement::{Action, PageSize, Refusal};
use numapilot_traffic::{Metrics, worse_residual};
use serde::Serialize;

use crate::options::Options;
use crate::program::Origin;

/// The result of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Always true: nothing here was measured.
    pub simulated: bool,
    /// Name of the program.
    pub program: String,
    /// Origin of the program.
    pub origin: Origin,
    /// Name of the machine.
    pub machine: String,
    /// Name of the policy.
    pub policy: String,
    /// Options of the simulation.
    pub options: Options,
    /// Whether the program came to its end; else it was cut off by [`Options::until_ns`].
    pub finished: bool,
    /// Simulated nanoseconds from the start to the end of the last thread.
    pub run_time_ns: f64,
    /// Share of the program's memory accesses that were made: 1 when it finished.
    pub progress: f64,
    /// The machine's nodes.
    pub nodes: Vec<NodeId>,
    /// Ends of the machine's directed links, as people write them.
    pub links: Vec<String>,
    /// Over the whole run.
    pub total: Traffic,
    /// Traffic until the policy's first action; `None`: the policy moved nothing.
    pub before: Option<Traffic>,
    /// Traffic in the last quarter of the run; `None`: the policy moved nothing.
    pub after: Option<Traffic>,
    /// Points in order of time, one for each [`Options::series_ns`].
    pub series: Vec<Point>,
    /// One entry per thread, in the program's order.
    pub threads: Vec<ThreadReport>,
    /// Objects or regions, those with most accesses first.
    pub labels: Vec<LabelReport>,
    /// Actions of the policy that were executed, and those that were refused.
    pub moves: Moves,
    /// Simulated cost of the policy's actions.
    pub cost: PolicyCost,
    /// How well the model's equations were solved.
    pub convergence: Convergence,
    /// Limits of the result, in whole sentences.
    pub notes: Vec<String>,
    /// Home nodes of all pages at the end, ascending by address. Not in the JSON, because there may be many.
    #[serde(skip)]
    pub homes: Vec<Homes>,
}

/// Neighbouring pages of a process with the same home at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Homes {
    /// Process, as an index.
    pub process: u32,
    /// The first of them.
    pub first_page: PageNumber,
    /// Pages of 4 KiB.
    pub pages: u64,
    /// Node, by its position in [`Report::nodes`].
    pub node: NodeIndex,
}

/// Traffic in an interval of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Traffic {
    /// Start in simulated nanoseconds.
    pub from_ns: f64,
    /// End in simulated nanoseconds.
    pub to_ns: f64,
    /// Memory accesses by accessing node (row) and home node (column).
    pub accesses: Vec<Vec<f64>>,
    /// The writes among `accesses`.
    pub writes: Vec<Vec<f64>>,
    /// Mean utilisation of each node's memory controller; `None` on nodes without memory.
    pub controllers: Vec<Option<f64>>,
    /// Mean utilisation of each link.
    pub links: Vec<f64>,
    /// Memory accesses per microsecond, whole machine.
    pub accesses_per_us: f64,
    /// The NUMA metrics of this traffic.
    pub metrics: Metrics,
}

/// One point of the series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Start in simulated nanoseconds.
    pub from_ns: f64,
    /// End in simulated nanoseconds.
    pub to_ns: f64,
    /// The NUMA metrics of the interval.
    pub metrics: Metrics,
    /// Memory accesses that each node's memory served.
    pub served: Vec<f64>,
    /// Mean utilisation of each node's memory controller; `None` on nodes without memory.
    pub controllers: Vec<Option<f64>>,
    /// Mean utilisation of each link.
    pub links: Vec<f64>,
    /// Pages that moved, counted as mapped.
    pub pages_moved: u64,
    /// Copies that were made.
    pub copies_made: u64,
    /// Threads that the policy moved to another node.
    pub threads_moved: u64,
    /// Processor time that the policy took from the program, ns.
    pub stolen_ns: f64,
}

/// Results of one thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadReport {
    /// Name of the thread.
    pub name: String,
    /// Index of the thread's process.
    pub process: u32,
    /// Node on which it ended, by its position in [`Report::nodes`].
    pub node: NodeIndex,
    /// When it ended, ns; `None`: the run was cut off before.
    pub end_ns: Option<f64>,
    /// Nanoseconds of processor time.
    pub busy_ns: f64,
    /// The part of it that was lost to the policy's actions.
    pub lost_ns: f64,
    /// Number of memory accesses.
    pub accesses: f64,
    /// Instructions, or what stands for them.
    pub instructions: f64,
}

/// One object, site or region.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabelReport {
    /// Name of the label.
    pub name: String,
    /// Memory accesses by accessing node (row) and home node (column).
    pub accesses: Vec<Vec<f64>>,
    /// Number of writes among them.
    pub writes: f64,
}

/// Actions that were executed and refused. Pages are counted as mapped: a large page is one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Moves {
    /// Pages of 4 KiB moved.
    pub small_pages: u64,
    /// Pages of 2 MiB moved.
    pub large_pages: u64,
    /// Pages that got copies, or other copies than before.
    pub replicated: u64,
    /// Copies of pages that were made.
    pub copies_made: u64,
    /// Pages whose copies a write ended.
    pub collapsed: u64,
    /// Large pages that were split.
    pub split: u64,
    /// Threads that were moved.
    pub threads: u64,
    /// Changes of a process's allocation policy.
    pub allocations: u64,
    /// Scans that unmapped pages.
    pub scans: u64,
    /// Pages of 4 KiB that they unmapped.
    pub unmapped_pages: u64,
    /// Pages, counted as mapped, whose accessed bit was cleared.
    pub cleared_pages: u64,
    /// Bytes that moves and replication copied.
    pub bytes: u64,
    /// TLB shootdowns.
    pub shootdowns: u64,
    /// NUMA hinting faults.
    pub hint_faults: u64,
    /// Access samples that were taken.
    pub samples: u64,
    /// Access samples that the sampler lost.
    pub samples_lost: u64,
    /// Actions that were refused, by reason.
    pub refused: Refused,
}

/// Numbers of refused actions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Refused {
    /// Page or thread is gone, or mapped otherwise.
    pub gone: u64,
    /// The page or thread was already on the target.
    pub already_there: u64,
    /// The target node had no free memory.
    pub no_room: u64,
    /// The page could not be moved at that time.
    pub busy: u64,
    /// The environment does not support the action.
    pub unsupported: u64,
}

/// Cost of a policy's actions, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PolicyCost {
    /// Time that the mover worked.
    pub mover_ns: f64,
    /// The part of it on CPUs that the program would have used.
    pub mover_stolen_ns: f64,
    /// Threads' time lost to TLB shootdowns.
    pub shootdowns_ns: f64,
    /// Threads' time lost waiting for pages that are being moved, and to their own moves.
    pub stalls_ns: f64,
    /// Threads' time lost to taking samples.
    pub sampling_ns: f64,
    /// Threads' time lost to NUMA hinting faults.
    pub faults_ns: f64,
    /// Threads' time lost to unmapping pages for hints.
    pub scanning_ns: f64,
    /// Threads' time lost to writes that ended copies.
    pub collapses_ns: f64,
}

/// How well the model was solved.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Convergence {
    /// Number of epochs.
    pub epochs: u64,
    /// Times that the memory system was solved.
    pub solves: u64,
    /// Bound on the error of the run time that unconverged latencies leave, ns: summed over epochs, the change that the last latencies would still
    /// have made in the time of the thread that they change most.
    pub doubt_ns: f64,
    /// Epochs that did not converge to [`crate::AGREEMENT`].
    pub unsettled_epochs: u64,
    /// Simulated time of these, ns.
    pub unsettled_ns: f64,
    /// Largest relative change in the last iteration of any solution; infinite where one is no number.
    pub worst_residual: f64,
    /// Waits for other threads that ended early because every thread was waiting (`docs/simulator.md`, "Synchronisation").
    pub let_go: u64,
}

impl Convergence {
    /// Counts a solution, which the last iteration changed so far.
    pub(crate) fn solved(&mut self, residual: f64) {
        self.solves += 1;
        self.worst_residual = worse_residual(self.worst_residual, residual);
    }
}

impl PolicyCost {
    /// Processor time that the program lost, ns.
    #[must_use]
    pub fn total_ns(&self) -> f64 {
        self.mover_stolen_ns
            + self.shootdowns_ns
            + self.stalls_ns
            + self.sampling_ns
            + self.faults_ns
            + self.scanning_ns
            + self.collapses_ns
    }
}

impl Moves {
    /// Pages moved, of both sizes.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.small_pages + self.large_pages
    }

    /// Counts an action, and whether it was refused.
    pub(crate) fn count(&mut self, action: &Action, refusal: Option<Refusal>) {
        let slot = match (refusal, action) {
            (Some(Refusal::Gone), _) => &mut self.refused.gone,
            (Some(Refusal::AlreadyThere), _) => &mut self.refused.already_there,
            (Some(Refusal::NoRoom), _) => &mut self.refused.no_room,
            (Some(Refusal::Busy), _) => &mut self.refused.busy,
            (Some(Refusal::Unsupported), _) => &mut self.refused.unsupported,
            (None, Action::Migrate { page, .. }) if page.size == PageSize::Small => &mut self.small_pages,
            (None, Action::Migrate { .. }) => &mut self.large_pages,
            (None, Action::Replicate { .. }) => &mut self.replicated,
            (None, Action::Split { .. }) => &mut self.split,
            (None, Action::MoveThread { .. }) => &mut self.threads,
            (None, Action::Allocate { .. }) => &mut self.allocations,
            // Scans are counted where they are made.
            (None, Action::Unmap { .. } | Action::ClearAccessed { .. }) => return,
        };
        *slot += 1;
    }
}
