//! The events that the loop records for each decision and its outcome: the lines of the journal, from which `explain` traces every move back to its evidence.
//!
//! A journal is JSON lines, one [`Entry`] each. Each decision has a number ([`Decision::decision`]), to which the orders, outcomes, comparisons and undo
//! actions that follow refer. Nodes are the kernel's numbers, addresses are hexadecimal strings, times are nanoseconds. Readers skip events that they do not
//! know ([`Event::Unknown`]) and refuse a greater [`VERSION`]. docs/service.md describes the format.
//!
//! A long decision is one [`Event::Decision`] and several [`Event::Orders`] of at most [`ORDERS_PER_LINE`] batches, so that no line grows without limit.

use numapilot_host::Pid;
use numapilot_host::Tid;
pub use numapilot_kernel::actuator::PageOutcomes;
use numapilot_machine::NodeId;
use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use serde::de::Error as _;
use serde_json::Map;
use serde_json::Value;

use crate::page_groups;
pub use crate::page_groups::SharedPages;
pub use crate::page_groups::by_group;

/// Version of the format. Adding a field keeps the version; changing the meaning of one increases it.
pub const VERSION: u32 = 1;

/// Maximum number of batches in one [`Event::Orders`].
pub const ORDERS_PER_LINE: usize = 256;

/// Receives events, the loop's only way to a journal. An implementation must not fail or block; it counts the events that it cannot keep.
pub trait Sink {
    /// Records one event.
    fn record(&mut self, event: Event);
}

/// Drops all events: for loops without a journal.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoJournal;

impl Sink for NoJournal {
    fn record(&mut self, _: Event) {}
}

/// Keeps events in memory: for tests, and for runs that report at their end.
impl Sink for Vec<Event> {
    fn record(&mut self, event: Event) {
        self.push(event);
    }
}

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Format version of the writer ([`VERSION`]).
    pub v: u32,
    /// Number of the line within its run, from 0; a gap means that lines were lost.
    pub line: u64,
    /// Nanoseconds since 1970 by the system clock. The clock may be set back, so lines are ordered by [`Entry::line`].
    pub unix_ns: u64,
    /// The event, whose fields are part of the same JSON object.
    #[serde(flatten)]
    pub event: Event,
}

/// An event of the loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A loop starts. Decisions are numbered from 1 again.
    Start(Start),
    /// The evidence of one interval.
    Observation(Observation),
    /// A decision of the policy on an observation.
    Decision(Decision),
    /// The orders of a decision, or some of them.
    Orders(Orders),
    /// The outcome of a decision's orders, or of undoing them.
    Action(Action),
    /// Windows with a decision's changes compared with windows without them.
    Comparison(Comparison),
    /// Copies of a file were made, refused or released.
    Copies(Copies),
    /// Pages that moved back and forth are excluded from moves for a time.
    PingPong(PingPong),
    /// The loop lengthens its interval, or returns to the usual one.
    BackOff(BackOff),
    /// Moves are put off because of memory pressure, or no longer.
    Pressure(Pressure),
    /// A setting of the system was changed or restored.
    Setting(Setting),
    /// Targets that were added or removed.
    Targets(Targets),
    /// A control command: pause, resume, reload, stop, add or remove.
    Steered(Steered),
    /// Data that was lost since the last such event.
    Losses(Losses),
    /// An error that does not end the loop.
    Trouble(Trouble),
    /// The loop ends.
    Stop(Stop),
    /// An event of a later version.
    #[serde(other)]
    Unknown,
}

/// The start of a run: machine, settings, targets and sources of evidence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Name of the run, unique within a journal.
    pub run: String,
    /// Version of numapilot.
    pub version: String,
    /// Release of the kernel, as `uname -r`.
    pub kernel: String,
    /// Process id of the loop.
    pub pid: Pid,
    /// User of the loop.
    pub uid: u32,
    /// Name of the machine.
    pub machine: String,
    /// Nodes of the machine.
    pub nodes: Vec<NodeFacts>,
    /// The policy with its options, as given.
    pub policy: String,
    /// Dry run: orders are reported and not carried out.
    pub dry_run: bool,
    /// Targets at the start.
    pub targets: Vec<Target>,
    /// Sources of evidence, including those that are not available.
    pub evidence: Vec<EvidenceSource>,
    /// Every setting in force, by name.
    pub settings: serde_json::Value,
}

/// A memory node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// The node.
    pub node: NodeId,
    /// Number of online CPUs.
    pub cpus: u32,
    /// Memory in bytes; 0 for a node without memory.
    pub memory_bytes: u64,
}

/// A managed process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Process id.
    pub pid: Pid,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`); with the process id it identifies the process.
    pub start_ticks: u64,
    /// Real user of the process.
    pub uid: u32,
    /// Name of the process (`comm`). Never its command line.
    pub name: String,
}

/// A source of evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceSource {
    /// Name of the source, such as `pmu`, `fault`, `probe` or `resctrl`.
    pub name: String,
    /// Whether it is used.
    pub used: bool,
    /// How the source is used, or why it is not and the remedy.
    pub detail: String,
}

/// The evidence of one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Number of the observation, from 1.
    pub observation: u64,
    /// Nanoseconds since the observation before.
    pub elapsed_ns: u64,
    /// Sampled accesses of all targets.
    pub samples: u64,
    /// Samples lost.
    pub samples_lost: u64,
    /// Number of hinting faults.
    pub hint_faults: u64,
    /// Uses of file pages that processes only read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub file_uses: u64,
    /// Accesses that one sample stands for; 0: not known (faults have no rate).
    pub accesses_per_sample: f64,
    /// Pages in the evidence table.
    pub pages_known: u64,
    /// Threads of all targets.
    pub threads: u64,
    /// One entry per node.
    pub nodes: Vec<NodeSeen>,
}

/// One node in one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeSeen {
    /// The node.
    pub node: NodeId,
    /// Evidence (samples or faults) of threads on this node, by home node in the order of [`Observation::nodes`].
    pub to: Vec<f64>,
    /// Available memory at the end of the interval, in bytes.
    pub available_bytes: u64,
    /// Latency of a probe access from this node in nanoseconds, by home node; `None`: not probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_ns: Option<Vec<Option<f64>>>,
    /// Estimated utilisation of the memory controller, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
}

/// A decision of the policy on an observation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Number of the decision within the run, from 1.
    pub decision: u64,
    /// Number of the observation that the decision is based on.
    pub observation: u64,
    /// The policy's explanation.
    pub because: String,
    /// Pages ordered to be moved, copied or split, of any size.
    pub pages: u64,
    /// Size of these pages in bytes.
    pub bytes: u64,
    /// Threads ordered to another node.
    pub threads: u64,
    /// Predicted gain in nanoseconds per second of running, summed over all threads; `None`: the policy does not predict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_gain_ns_per_s: Option<f64>,
    /// Predicted cost of carrying out the decision, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_cost_ns: Option<f64>,
    /// Why the decision is reported and not carried out (dry run, paused, rate limit reached); empty: it is carried out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub held_back: String,
}

/// Orders of a decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    /// Number of the decision.
    pub decision: u64,
    /// Orders about ranges of pages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<Batch>,
    /// Orders about threads and processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadOrder>,
}

/// Adjacent pages with the same order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Process id.
    pub pid: Pid,
    /// Address of the first byte.
    #[serde(with = "hexadecimal")]
    pub first: u64,
    /// Number of pages.
    pub pages: u64,
    /// Page size in bytes: 4,096, or that of a large page.
    pub page_bytes: u64,
    /// What is ordered for these pages.
    #[serde(flatten, deserialize_with = "page_decision")]
    pub order: PageDecision,
    /// Evidence: observed accesses to these pages, by accessing node; nodes without accesses are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<SeenFrom>,
    /// The reason, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// Predicted gain in nanoseconds per second of running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_gain_ns_per_s: Option<f64>,
}

impl Batch {
    /// Address after the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.pages.saturating_mul(self.page_bytes))
    }

    /// Size of the batch in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pages.saturating_mul(self.page_bytes)
    }
}

/// What is ordered for pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum PageDecision {
    /// The pages move.
    Move {
        /// Present home node; `None`: not known, or several nodes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<NodeId>,
        /// Destination node.
        to: NodeId,
    },
    /// The pages are copied to several nodes.
    Copy {
        /// Nodes that get a copy.
        nodes: Vec<NodeId>,
    },
    /// Large pages are split and stay on their node.
    Split,
    /// The pages are unmapped, so that their next accesses fault and are observed.
    Unmap,
}

/// Reads a batch's order, which older journals call its fate.
fn page_decision<'de, D: Deserializer<'de>>(input: D) -> Result<PageDecision, D::Error> {
    let mut fields: Map<String, Value> = Map::deserialize(input)?;
    if let Some(order) = fields.remove("fate") {
        fields.entry("order").or_insert(order);
    }
    PageDecision::deserialize(Value::Object(fields)).map_err(D::Error::custom)
}

/// Observed accesses from one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeenFrom {
    /// Node of the accessing threads.
    pub node: NodeId,
    /// Number of reads (or of all accesses, where the source does not distinguish), aged and therefore fractional.
    pub reads: f64,
    /// Number of writes, aged likewise.
    pub writes: f64,
}

/// An order to run a thread, or a whole process, on other nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadOrder {
    /// Process id.
    pub pid: Pid,
    /// Thread id; `None`: all threads of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<Tid>,
    /// Nodes whose CPUs the thread may use from now on.
    pub nodes: Vec<NodeId>,
    /// The reason, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
}

/// The outcome of orders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// Number of the decision.
    pub decision: u64,
    /// Whether the orders were undone (`true`) or carried out.
    pub undo: bool,
    /// Number of pages by the kernel's answer.
    #[serde(with = "page_groups")]
    pub pages: PageOutcomes,
    /// Of these, pages that several processes map.
    #[serde(default, skip_serializing_if = "SharedPages::is_empty")]
    pub shared: SharedPages,
    /// Number of threads that were moved.
    pub threads_moved: u64,
    /// Number of threads that could not be moved because they ended or the system refused.
    pub threads_refused: u64,
    /// Bytes copied from node to node.
    pub moved_bytes: u64,
    /// Duration in nanoseconds.
    pub took_ns: u64,
}

/// The processes' answers about copies of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    /// Number of the decision; 0: no decision, because a process moved to or from a node that has a copy.
    pub decision: u64,
    /// Path of the file, as the process maps it.
    pub file: String,
    /// One answer per mapping.
    pub processes: Vec<CopyTold>,
}

/// A process's answer for one mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyTold {
    /// Process id.
    pub pid: Pid,
    /// The node whose copy the mapping was to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Size of the mapping in bytes.
    pub bytes: u64,
    /// What the process did with the mapping.
    pub done: CopyDone,
    /// Why the mapping was left unchanged; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
}

/// What a process did with a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyDone {
    /// It shows the node's copy now.
    Copied,
    /// The mapping was left unchanged.
    #[default]
    Left,
    /// All processes went back to the original.
    Collapsed,
    /// It went back to its own file, because the orders no longer name the mapping.
    GivenBack,
}

impl CopyDone {
    /// Its name in the journal.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            CopyDone::Copied => "copied",
            CopyDone::Left => "left",
            CopyDone::Collapsed => "collapsed",
            CopyDone::GivenBack => "given-back",
        }
    }
}

/// A comparison of windows with changes and windows without.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Decisions that are evaluated together.
    pub decisions: Vec<u64>,
    /// What was measured, with its unit, such as `instructions per ns of running`.
    pub measure: String,
    /// Windows with the changes.
    pub with: Windows,
    /// Windows without the changes.
    pub without: Windows,
    /// Change of the measure in percent; a positive value is an improvement.
    pub change_percent: f64,
    /// Half-width of its 95 % confidence interval in percent; `None`: too few windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plus_minus_percent: Option<f64>,
    /// Whether the changes are kept.
    pub verdict: Verdict,
    /// The reason, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
}

impl Comparison {
    /// The change with its interval, such as `-2.5 ± 0.4 %`; `None`: there were too few windows, and `change_percent` is no figure.
    #[must_use]
    pub fn change(&self) -> Option<String> {
        self.plus_minus_percent.map(|margin| format!("{:+.1} ± {margin:.1} %", self.change_percent))
    }
}

/// Statistics of the windows on one side of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Windows {
    /// Number of windows.
    pub windows: u64,
    /// Total length in nanoseconds.
    pub elapsed_ns: u64,
    /// Mean of the measure over the windows.
    pub mean: f64,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The changes are kept.
    Kept,
    /// The changes are undone.
    Undone,
    /// The comparison is not complete yet.
    #[default]
    Undecided,
}

impl Verdict {
    /// Its name in text and in the journal.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Kept => "kept",
            Verdict::Undone => "undone",
            Verdict::Undecided => "undecided",
        }
    }
}

/// A range of pages that moved back and forth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingPong {
    /// Number of the decision that would have moved the pages again.
    pub decision: u64,
    /// Process id.
    pub pid: Pid,
    /// Address of the first byte.
    #[serde(with = "hexadecimal")]
    pub first: u64,
    /// Number of pages.
    pub pages: u64,
    /// Number of their moves so far.
    pub moves: u64,
    /// Nanoseconds for which the pages are not moved; `None`: they are not moved again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_alone_ns: Option<u64>,
}

/// A change of the loop's interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackOff {
    /// Previous interval between observations, in nanoseconds.
    pub was_ns: u64,
    /// New interval in nanoseconds.
    pub now_ns: u64,
    /// The reason, in a few words.
    pub because: String,
}

/// High memory pressure has begun or ended: while it is high, moves are put off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// Whether it is high from now on.
    pub is_high: bool,
    /// Share of the last 10 s in which tasks waited for memory, in percent.
    pub waited_percent: f64,
    /// Folder of the cgroup whose processes' pages stay; empty: the pages of all processes do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cgroup: String,
}

impl Pressure {
    /// What it means for moves, as a clause.
    #[must_use]
    pub fn words(&self) -> String {
        let (place, which) = match self.cgroup.as_str() {
            "" => (String::new(), "moves"),
            cgroup => (format!(" in {cgroup}"), "moves of pages of its processes"),
        };
        let waited = format!("tasks waited for memory for {:.1} % of the last 10 s", self.waited_percent);
        match self.is_high {
            true => format!("memory pressure is high{place} ({waited}): {which} are put off"),
            false => format!("memory pressure is no longer high{place} ({waited}): {which} are put off no more"),
        }
    }
}

/// A change of a system setting other than the targets' pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Name of the setting, such as `kernel.numa_balancing` or `affinity of 4711/4712`.
    pub name: String,
    /// Previous value.
    pub was: String,
    /// Present value.
    pub now: String,
    /// What was done to the setting.
    pub done: SettingDone,
}

/// What was done to a setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingDone {
    /// Changed; the previous value is recorded.
    #[default]
    Changed,
    /// Restored to the previous value.
    Restored,
    /// Not restored, because another program has changed it since.
    LeftAlone,
    /// Not changed, in a dry run.
    NotChanged,
    /// Could not be changed or restored.
    Failed,
}

impl SettingDone {
    /// What was done, in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            SettingDone::Changed => "changed",
            SettingDone::Restored => "restored",
            SettingDone::LeftAlone => "left as another program has set it",
            SettingDone::NotChanged => "not changed (dry run)",
            SettingDone::Failed => "could not be changed",
        }
    }
}

/// Targets that were added or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Targets {
    /// Added targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<Target>,
    /// Removed targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<Target>,
    /// The reason: ended, exec, command or found.
    pub because: String,
}

/// A control command and its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steered {
    /// The command: pause, resume, reload, stop, add or remove.
    pub command: String,
    /// User who gave the command; `None`: it came by a signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_uid: Option<u32>,
    /// What the daemon answered.
    pub answer: String,
}

/// Data lost since the last such event; every loss is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Losses by kind, such as `samples` and `journal lines`.
    pub lost: Vec<Loss>,
}

/// One kind of loss.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// What was lost, in words.
    pub what: String,
    /// Number of items lost.
    pub count: u64,
}

/// An error that does not end the loop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The error and its remedy.
    pub what: String,
    /// Number of occurrences since it was last reported.
    pub times: u64,
}

/// The end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// The reason: a signal, a command, the end of the targets, or a failure.
    pub because: String,
    /// Totals of the run.
    pub counters: crate::totals::Counters,
    /// Resources that the loop used.
    pub own: crate::totals::OwnUse,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Addresses as `"0x7f..."`, because many JSON readers keep numbers only up to 2^53.
mod hexadecimal {
    use serde::Deserialize;
    use serde::Deserializer;
    use serde::Serializer;
    use serde::de::Error;

    pub fn serialize<S: Serializer>(address: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{address:#x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        u64::from_str_radix(digits, 16)
            .map_err(|_| D::Error::custom(format!("{text:?} is not a hexadecimal address, such as \"0x7f0000000000\"")))
    }
}

#[cfg(test)]
mod tests {
    //! Lines are what they were written from, and later versions' are passed over.

    use super::*;

    fn entry(event: Event) -> Entry {
        Entry { v: VERSION, line: 7, unix_ns: 1_700_000_000_123_456_789, event }
    }

    #[test]
    fn a_line_reads_back() {
        let batch = Batch {
            pid: Pid(4711),
            first: 0x7fff_ffff_f000,
            pages: 3,
            page_bytes: 4096,
            order: PageDecision::Move { from: Some(NodeId(0)), to: NodeId(2) },
            seen: vec![SeenFrom { node: NodeId(2), reads: 12.5, writes: 3.0 }],
            because: "one remote user".to_owned(),
            predicted_gain_ns_per_s: Some(1e6),
        };
        assert_eq!(batch.end(), 0x8000_0000_2000);
        let written = entry(Event::Orders(Orders { decision: 3, batches: vec![batch], threads: Vec::new() }));
        let line = serde_json::to_string(&written).unwrap();
        assert!(
            line.starts_with(r#"{"v":1,"line":7,"unix_ns":1700000000123456789,"event":"orders","decision":3"#),
            "{line}"
        );
        assert!(
            line.contains(r#""first":"0x7ffffffff000""#) && line.contains(r#""order":"move","from":0,"to":2"#),
            "{line}"
        );
        assert_eq!(serde_json::from_str::<Entry>(&line).unwrap(), written);
        let older = line.replace(r#""order":"move""#, r#""fate":"move""#);
        assert_ne!(older, line);
        assert_eq!(serde_json::from_str::<Entry>(&older).unwrap(), written, "the older name");
    }

    #[test]
    fn a_dry_run_is_no_other_program() {
        let of = |done: SettingDone| (serde_json::to_string(&done).unwrap(), done.words());
        assert_eq!(of(SettingDone::LeftAlone), (r#""left-alone""#.to_owned(), "left as another program has set it"));
        assert_eq!(of(SettingDone::NotChanged), (r#""not-changed""#.to_owned(), "not changed (dry run)"));
    }

    #[test]
    fn pressure_is_told_with_its_place_and_what_it_means() {
        let of_all = Pressure { is_high: true, waited_percent: 12.34, cgroup: String::new() };
        let told = "memory pressure is high (tasks waited for memory for 12.3 % of the last 10 s): moves are put off";
        assert_eq!(of_all.words(), told);
        let of_one = Pressure { is_high: false, cgroup: "/sys/fs/cgroup/batch".to_owned(), ..of_all };
        assert!(
            of_one.words().contains("no longer high in /sys/fs/cgroup/batch (")
                && of_one.words().contains("its processes")
        );
    }

    #[test]
    fn a_comparison_of_too_few_windows_has_no_change() {
        let measured = Comparison { change_percent: -2.5, plus_minus_percent: Some(0.4), ..Comparison::default() };
        assert_eq!(measured.change().as_deref(), Some("-2.5 ± 0.4 %"));
        assert_eq!(Comparison { plus_minus_percent: None, ..measured }.change(), None);
    }

    #[test]
    fn every_event_reads_back_with_its_defaults() {
        let events = [
            Event::Start(Start::default()),
            Event::Observation(Observation::default()),
            Event::Decision(Decision::default()),
            Event::Orders(Orders::default()),
            Event::Action(Action::default()),
            Event::Comparison(Comparison::default()),
            Event::Copies(Copies::default()),
            Event::PingPong(PingPong::default()),
            Event::BackOff(BackOff::default()),
            Event::Pressure(Pressure::default()),
            Event::Setting(Setting::default()),
            Event::Targets(Targets::default()),
            Event::Steered(Steered::default()),
            Event::Losses(Losses::default()),
            Event::Trouble(Trouble::default()),
            Event::Stop(Stop::default()),
        ];
        for event in events {
            let line = serde_json::to_string(&entry(event.clone())).unwrap();
            assert_eq!(serde_json::from_str::<Entry>(&line).unwrap().event, event, "{line}");
        }
    }

    #[test]
    fn events_and_fields_of_later_versions_are_passed_over() {
        let line = r#"{"v":1,"line":0,"unix_ns":0,"event":"teleport","where":[1,2]}"#;
        assert_eq!(serde_json::from_str::<Entry>(line).unwrap().event, Event::Unknown);
        let line = r#"{"v":1,"line":0,"unix_ns":0,"event":"trouble","what":"x","times":1,"severity":"high"}"#;
        assert!(matches!(serde_json::from_str::<Entry>(line).unwrap().event, Event::Trouble(_)));
    }
}
