//! Findings as data. `numapilot-report` words and lays them out.

use numapilot_flows::SiteId;
use numapilot_machine::{LinkId, NodeId};
use numapilot_trace::ids::{ProcessIndex, ThreadIndex};
use serde::Serialize;

use crate::estimate::Estimate;
use crate::fixes::Fix;

/// The named patterns of misplaced memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatternKind {
    /// One node allocated and placed the memory, and another node uses it.
    RemoteAfterAllocation,
    /// Several nodes use an object one after the other.
    AlternateRemote,
    /// Several nodes read an object at the same time, and hardly any access writes it after its initialisation.
    ConcurrentReadMostly,
    /// Several nodes read and write an object at the same time.
    ConcurrentWritten,
    /// Accesses queue at a memory controller, while others have bandwidth to spare.
    SaturatedController,
    /// Accesses queue at an interconnect link.
    SaturatedLink,
    /// Objects of one thread each share pages with those of other nodes.
    PrivateOnSharedPages,
    /// One thread touched all pages first, and threads of other nodes use them part by part.
    SerialFirstTouch,
    /// The allocator returns memory that lies on another node than the calling thread's.
    ArenasAcrossNodes,
    /// The scheduler moved threads away from their memory.
    ThreadsMoved,
    /// Threads of a process share its memory, and run on several nodes.
    ProcessWideSharing,
    /// One page receives more than one node's even share of all accesses.
    HotPage,
    /// Nodes use different words of the same cache lines.
    FalseSharing,
    /// Frequently used memory lies on a node without CPUs, whose memory is slower.
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

    /// The name of the pattern, as in `docs/patterns.md`.
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
    /// All objects of an allocation site.
    Site(SiteId),
    /// Threads, by their indices in the trace.
    Threads(Vec<ThreadIndex>),
    /// Processes, by their indices in the trace.
    Processes(Vec<ProcessIndex>),
    /// A node's memory controller.
    Controller(NodeId),
    /// A directed link.
    Link(LinkId),
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A share, 0 to 1.
    Share,
    /// A number without a unit.
    Count,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
}

/// A figure that a finding rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// What the figure is: a predicate for shares (`of its accesses write`), else a noun phrase.
    pub what: String,
    /// The value, with its 95 % interval where it was sampled.
    pub value: Estimate,
    /// The unit of the value.
    pub unit: Unit,
}

/// [`Evidence::what`] of the share of remote accesses: where few are, a finding is of a part of the memory.
pub const OF_ITS_ACCESSES_REMOTE: &str = "of its accesses are remote";

/// Confidence in a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// The 95 % intervals of the deciding share and of the gain both allow the contrary.
    Low,
    /// Only one of the two lies beyond its threshold with its whole 95 % interval.
    Medium,
    /// The deciding share and the gain lie beyond their thresholds with their whole 95 % intervals.
    High,
}

/// A pattern that was found, and what to do about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The pattern.
    pub pattern: PatternKind,
    /// What the finding is about.
    pub subject: Subject,
    /// Share of the threads' time, 0 to 1, that accesses to this subject take beyond idle local accesses (modelled).
    pub at_stake: Estimate,
    /// The figures that the finding rests on.
    pub evidence: Vec<Evidence>,
    /// The confidence in the finding.
    pub confidence: Confidence,
    /// The reason for that confidence, as a clause: "the share of ... is at least ...".
    pub confidence_because: String,
    /// Conditions that would refute the finding, as clauses that continue "This finding would be wrong if ".
    pub would_change: Vec<String>,
    /// Fixes by predicted gain, best first; fixes that would lose come last.
    pub fixes: Vec<Fix>,
}

/// Why there is nothing to fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Nothing {
    /// Too few accesses were seen for a judgement; `cannot_say` has the reason.
    Blind,
    /// No memory access was seen.
    NothingSeen,
    /// The program hardly waits for memory, whatever its share of remote accesses.
    HardlyWaits,
    /// Accesses take hardly more time than idle local accesses.
    WellPlaced,
    /// There are remote or queued accesses, but no known fix gains enough.
    NoFixGains,
}

/// All findings of a recording, and what could not be judged.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Findings {
    /// The findings, by the predicted gain of their best fix, best first.
    pub findings: Vec<Finding>,
    /// Why there are no findings; `None` where there are some, or where only `cannot_say` has the reason.
    pub nothing: Option<Nothing>,
    /// Share of the threads' time spent waiting for memory (modelled); `None` where the rates of accesses are not known.
    pub memory_share: Option<f64>,
    /// Share of the threads' time that remote and queued accesses take beyond idle local accesses (modelled).
    pub at_stake: Option<f64>,
    /// Run time of the recording under the traffic model, ns.
    pub modelled_ns: Option<f64>,
    /// Common fixes of a whole program with their predicted gains, losses included.
    pub tried_by_many: Vec<Fix>,
    /// What could not be judged, and why, in whole sentences for the user.
    pub cannot_say: Vec<String>,
}
