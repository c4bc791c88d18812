//! What a detector found, as data; wording and layout are the report's.

use numapilot_flows::SiteId;
use numapilot_machine::{LinkId, NodeId};
use numapilot_trace::ids::{ProcessIndex, ThreadIndex};
use serde::Serialize;

use crate::estimate::Estimate;
use crate::fixes::Fix;

/// The patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatternKind {
    /// Allocated and placed by one node, used by another.
    RemoteAfterAllocation,
    /// Nodes use an object one after the other.
    AlternateRemote,
    /// Several nodes read an object at the same time; after its initialisation nobody writes.
    ConcurrentReadMostly,
    /// Several nodes read and write an object at the same time.
    ConcurrentWritten,
    /// A memory controller is where accesses wait, while others have room.
    SaturatedController,
    /// A link is where accesses wait.
    SaturatedLink,
    /// Objects of one thread each share pages with those of other nodes.
    PrivateOnSharedPages,
    /// One thread touched first what the threads of other nodes use, part by part.
    SerialFirstTouch,
    /// The allocator hands out memory of another node than the caller's.
    ArenasAcrossNodes,
    /// The scheduler moved threads away from their memory.
    ThreadsMoved,
    /// Threads of a process share its memory, and run on several nodes.
    ProcessWideSharing,
    /// One page draws more than its node's part of all accesses.
    HotPage,
    /// Nodes use different words of the same cache lines.
    FalseSharing,
    /// What is used often lies in the slow memory of a node without CPUs.
    TierMisplacement,
}

impl PatternKind {
    /// Every pattern, in the order of the documentation.
    pub const ALL: [PatternKind; 14] = [
        PatternKind::RemoteAfterAllocation,
        PatternKind::AlternateRemote,
        PatternKind::ConcurrentReadMostly,
        PatternKind::ConcurrentWritten,
        PatternKind::SaturatedController,
        PatternKind::SaturatedLink,
        PatternKind::PrivateOnSharedPages,
        PatternKind::SerialFirstTouch,
        PatternKind::ArenasAcrossNodes,
        PatternKind::ThreadsMoved,
        PatternKind::ProcessWideSharing,
        PatternKind::HotPage,
        PatternKind::FalseSharing,
        PatternKind::TierMisplacement,
    ];

    /// Its name, as in the documentation.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PatternKind::RemoteAfterAllocation => "remote use after allocation",
            PatternKind::AlternateRemote => "alternate remote accesses",
            PatternKind::ConcurrentReadMostly => "concurrent, read-mostly",
            PatternKind::ConcurrentWritten => "concurrent, written",
            PatternKind::SaturatedController => "saturated controller",
            PatternKind::SaturatedLink => "saturated link",
            PatternKind::PrivateOnSharedPages => "private objects on shared pages",
            PatternKind::SerialFirstTouch => "first touch by one thread",
            PatternKind::ArenasAcrossNodes => "allocator arenas across nodes",
            PatternKind::ThreadsMoved => "threads moved by the scheduler",
            PatternKind::ProcessWideSharing => "process-wide sharing",
            PatternKind::HotPage => "hot page",
            PatternKind::FalseSharing => "false sharing",
            PatternKind::TierMisplacement => "tier misplacement",
        }
    }
}

/// What a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// All objects of a site.
    Site(SiteId),
    /// Some threads.
    Threads(Vec<ThreadIndex>),
    /// Some processes.
    Processes(Vec<ProcessIndex>),
    /// A node's memory controller.
    Controller(NodeId),
    /// A directed link.
    Link(LinkId),
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A share, 0 to 1.
    Share,
    /// A bare number.
    Count,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
}

/// A figure that a pattern rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// What it is, in words.
    pub what: String,
    /// How much, with its 95 % interval where it was sampled.
    pub value: Estimate,
    /// Of what.
    pub unit: Unit,
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// The samples allow the contrary.
    Low,
    /// The statement holds within its interval, or the gain does, not both.
    Medium,
    /// Statement and gain hold within their intervals.
    High,
}

/// A pattern that was found, and what to do about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Which.
    pub pattern: PatternKind,
    /// Where.
    pub subject: Subject,
    /// Share of the threads' time that this subject's accesses take beyond idle local ones (modelled).
    pub at_stake: Estimate,
    /// Figures.
    pub evidence: Vec<Evidence>,
    /// How sure it is.
    pub confidence: Confidence,
    /// Why it is no more and no less sure than that.
    pub confidence_because: String,
    /// What would show that it is wrong.
    pub would_change: Vec<String>,
    /// What to do, best first. Those that would lose come last.
    pub fixes: Vec<Fix>,
}

/// Why there is nothing to fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Nothing {
    /// Too little was seen to judge by; `cannot_say` has the reason.
    Blind,
    /// No memory access was seen.
    NothingSeen,
    /// The program hardly waits for memory: whatever its remote share.
    HardlyWaits,
    /// Accesses are as good as local and unhindered.
    WellPlaced,
    /// There are remote or slow accesses, and no fix that is known gains enough.
    NoFixGains,
}

/// Everything found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Findings {
    /// By predicted gain of their best fix, best first.
    pub findings: Vec<Finding>,
    /// Why there are none; `None` where there are, or where nothing can be said.
    pub nothing: Option<Nothing>,
    /// Share of the threads' time spent waiting for memory (modelled); `None` where the rates of accesses are not known.
    pub memory_share: Option<f64>,
    /// Of the threads' time, what remote and congested accesses take beyond idle local ones (modelled).
    pub at_stake: Option<f64>,
    /// Run time of the recording under the traffic model, ns.
    pub modelled_ns: Option<f64>,
    /// What is often tried on a whole program, with its price, be it a loss.
    pub tried_by_many: Vec<Fix>,
    /// What could not be judged, and why, in whole sentences.
    pub cannot_say: Vec<String>,
}
