//! What the loop says of each decision and of what came of it: the lines of its journal, from which `explain` tells every move back to its evidence.
//!
//! A journal is JSON lines, one [`Entry`] each. Whatever is decided has a number ([`Decision::decision`]), which the orders, outcomes, comparisons and
//! undoings that follow name. Nodes are the kernel's numbers, addresses are hexadecimal strings, times nanoseconds. Readers skip events that they do
//! not know ([`Event::Unknown`]) and refuse a greater [`VERSION`]. docs/service.md describes the format for people.
//!
//! A long decision is one [`Event::Decision`] and as many [`Event::Orders`] as [`ORDERS_PER_LINE`] makes of it, so that no line grows without limit.

use serde::Deserialize;
use serde::Serialize;

/// Version of the format. Fields may be added within one; a change of meaning makes a new one.
pub const VERSION: u32 = 1;

/// Batches in one [`Event::Orders`] at most.
pub const ORDERS_PER_LINE: usize = 256;

/// Takes events. The loop's only way to a journal: it must neither fail nor wait for long, and counts what it cannot keep.
pub trait Sink {
    /// Keeps one event.
    fn record(&mut self, event: Event);
}

/// Drops everything: for loops whose journal nobody wants.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoJournal;

impl Sink for NoJournal {
    fn record(&mut self, _: Event) {}
}

/// Keeps events in memory: for tests, and for runs that are told at their end.
impl Sink for Vec<Event> {
    fn record(&mut self, event: Event) {
        self.push(event);
    }
}

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// [`VERSION`] of the writer.
    pub v: u32,
    /// Number within its run, from 0; a gap is a loss.
    pub line: u64,
    /// Nanoseconds since 1970, by the system's clock, which may be set back: order is by [`Entry::line`].
    pub unix_ns: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A loop begins. Decisions are numbered anew from 1.
    Start(Start),
    /// What was seen in one interval.
    Observation(Observation),
    /// What the policy made of an observation.
    Decision(Decision),
    /// What was ordered by a decision, or a part of it.
    Orders(Orders),
    /// What came of a decision's orders, or of undoing them.
    Action(Action),
    /// Windows with a decision's changes held against windows without.
    Comparison(Comparison),
    /// Copies of a file were made, refused or given back.
    Copies(Copies),
    /// Pages that went to and fro are left alone.
    PingPong(PingPong),
    /// The loop looks less often, or as often as before.
    BackOff(BackOff),
    /// A setting of the system was changed or restored.
    Setting(Setting),
    /// Targets that came or went.
    Targets(Targets),
    /// Somebody steered: pause, resume, reload, stop.
    Steered(Steered),
    /// What was lost since the last such event.
    Losses(Losses),
    /// Something is wrong, and the loop goes on without it.
    Trouble(Trouble),
    /// The loop ends.
    Stop(Stop),
    /// An event of a later version.
    #[serde(other)]
    Unknown,
}

/// A loop begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Which run, distinct among all in one journal.
    pub run: String,
    /// Version of numapilot.
    pub version: String,
    /// Release of the kernel, as `uname -r`.
    pub kernel: String,
    /// The loop's own process.
    pub pid: u32,
    /// Whose it is.
    pub uid: u32,
    /// The machine's name.
    pub machine: String,
    /// Its nodes.
    pub nodes: Vec<NodeFacts>,
    /// The policy with its options, as given.
    pub policy: String,
    /// Nothing is moved: orders are only told.
    pub dry_run: bool,
    /// What it begins with.
    pub targets: Vec<Target>,
    /// Where evidence comes from, those that do not work here too.
    pub evidence: Vec<EvidenceSource>,
    /// Every setting in force, by name.
    pub settings: serde_json::Value,
}

/// A memory node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// The kernel's number.
    pub node: u16,
    /// Online CPUs.
    pub cpus: u32,
    /// Memory in bytes; 0: none.
    pub memory_bytes: u64,
}

/// A process that is looked after.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot (field 22 of `/proc/PID/stat`): with the number, which process is meant.
    pub start_ticks: u64,
    /// Whose it is (real user).
    pub uid: u32,
    /// Its name, as `comm` tells. Never its command line.
    pub name: String,
}

/// A source of evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceSource {
    /// Such as `pmu`, `fault`, `probe`, `resctrl`.
    pub name: String,
    /// Whether it is used.
    pub used: bool,
    /// How, or why not and what to do about it.
    pub detail: String,
}

/// What was seen in one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Number, from 1.
    pub observation: u64,
    /// Nanoseconds since the observation before.
    pub elapsed_ns: u64,
    /// Sampled accesses, all targets.
    pub samples: u64,
    /// Samples lost.
    pub samples_lost: u64,
    /// Hinting faults.
    pub hint_faults: u64,
    /// Uses of files' pages that processes only read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub file_uses: u64,
    /// Accesses that one sample stands for; 0: not known (faults tell no rate).
    pub accesses_per_sample: f64,
    /// Pages of which something is remembered.
    pub pages_known: u64,
    /// Threads of targets.
    pub threads: u64,
    /// Each node.
    pub nodes: Vec<NodeSeen>,
}

/// One node in one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeSeen {
    /// The kernel's number.
    pub node: u16,
    /// Evidence (samples or faults) of threads on this node, by home node in the order of [`Observation::nodes`].
    pub to: Vec<f64>,
    /// Memory that could be given out at the end of the interval, in bytes.
    pub available_bytes: u64,
    /// Nanoseconds that a probing access from here took, by home node; `None`: not probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_ns: Option<Vec<Option<f64>>>,
    /// Share of its peak that the memory controller carries, 0 to 1, estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
}

/// What the policy made of an observation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Number within the run, from 1.
    pub decision: u64,
    /// The observation that it rests on.
    pub observation: u64,
    /// The policy's own words.
    pub because: String,
    /// Pages that it orders to be moved, copied or split, of any size.
    pub pages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Threads that it orders elsewhere.
    pub threads: u64,
    /// Nanoseconds per second of running that it should save, over all threads; predicted, `None` where the policy does not predict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_gain_ns_per_s: Option<f64>,
    /// Nanoseconds that carrying it out should cost; predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_cost_ns: Option<f64>,
    /// It is told and not carried out, for this reason (dry run, paused, rate used up); empty: it is carried out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub held_back: String,
}

/// What was ordered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    /// By which decision.
    pub decision: u64,
    /// Ranges of pages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<Batch>,
    /// Threads and processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadOrder>,
}

/// Pages that lie beside each other and have the same fate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Whose.
    pub pid: u32,
    /// Address of the first byte.
    #[serde(with = "hexadecimal")]
    pub first: u64,
    /// How many pages.
    pub pages: u64,
    /// Bytes of one: 4,096, or those of a large page.
    pub page_bytes: u64,
    /// Their fate.
    #[serde(flatten)]
    pub fate: PageDecision,
    /// Evidence: accesses seen of these pages, by the node of the accessing thread; nodes without any are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<SeenFrom>,
    /// Why, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// Nanoseconds per second of running that it should save; predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_gain_ns_per_s: Option<f64>,
}

impl Batch {
    /// Address after the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.pages.saturating_mul(self.page_bytes))
    }

    /// Bytes in all.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pages.saturating_mul(self.page_bytes)
    }
}

/// What is to become of pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fate", rename_all = "kebab-case")]
pub enum PageDecision {
    /// They move.
    Move {
        /// Where they are; `None`: not known, or on several nodes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<u16>,
        /// Where to.
        to: u16,
    },
    /// Each of these nodes gets a copy.
    Copy {
        /// The nodes.
        nodes: Vec<u16>,
    },
    /// Large pages are split, and stay where they are.
    Split,
    /// Their next accesses are to fault, so as to be seen.
    Unmap,
}

/// Accesses seen from one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeenFrom {
    /// Node of the accessing threads.
    pub node: u16,
    /// Reads (or accesses of either kind, where the source cannot tell), aged: not whole numbers.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
}

/// A thread, or a whole process, is to run elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadOrder {
    /// Whose.
    pub pid: u32,
    /// Which thread; `None`: all of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// Nodes whose CPUs it may use from now on.
    pub nodes: Vec<u16>,
    /// Why, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
}

/// What came of orders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// Of which decision.
    pub decision: u64,
    /// Whether they were carried out or taken back.
    pub undo: bool,
    /// Pages by what the kernel said of them.
    pub pages: PageOutcomes,
    /// Threads moved.
    pub threads_moved: u64,
    /// Threads that could not be moved: ended, or not allowed.
    pub threads_refused: u64,
    /// Bytes copied from node to node.
    pub moved_bytes: u64,
    /// Nanoseconds that it took.
    pub took_ns: u64,
    /// Where pages did not move, and why; the first [`ORDERS_PER_LINE`] ranges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stayed: Vec<Stayed>,
}

/// Counts of pages by what the kernel answered: they add up to what was ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageOutcomes {
    /// Moved (or copied, or split) as ordered.
    pub moved: u64,
    /// There already.
    pub already_there: u64,
    /// No longer there: unmapped, given back, swapped out, or the process has ended.
    pub gone: u64,
    /// In use by the kernel or a device, after as many tries as the settings allow.
    pub busy: u64,
    /// The target had no room, or would have had less than the guard leaves free.
    pub no_room: u64,
    /// Not allowed: shared with other processes without the right to move such pages, locked away, or another user's.
    pub refused: u64,
    /// Not tried: the rate limit, a pause or the end came first.
    pub not_tried: u64,
    /// Anything else.
    pub other: u64,
}

impl PageOutcomes {
    /// Names and values, in the order in which they are shown.
    #[must_use]
    pub fn by_name(&self) -> [(&'static str, u64); 8] {
        [
            ("moved", self.moved),
            ("already-there", self.already_there),
            ("gone", self.gone),
            ("busy", self.busy),
            ("no-room", self.no_room),
            ("refused", self.refused),
            ("not-tried", self.not_tried),
            ("other", self.other),
        ]
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &PageOutcomes) {
        self.moved += other.moved;
        self.already_there += other.already_there;
        self.gone += other.gone;
        self.busy += other.busy;
        self.no_room += other.no_room;
        self.refused += other.refused;
        self.not_tried += other.not_tried;
        self.other += other.other;
    }

    /// All pages.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_name().iter().map(|(_, count)| count).sum()
    }
}

/// Pages that stayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stayed {
    /// Whose.
    pub pid: u32,
    /// Address of the first.
    #[serde(with = "hexadecimal")]
    pub first: u64,
    /// How many.
    pub pages: u64,
    /// A name of [`PageOutcomes::by_name`].
    pub outcome: String,
}

/// What processes said of copies of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    /// Of which decision; 0: by none, a process came to a node that has a copy, or left one.
    pub decision: u64,
    /// The file's path, as the process has it.
    pub file: String,
    /// Each mapping's answer.
    pub processes: Vec<CopyTold>,
}

/// What a process did with one mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyTold {
    /// The process.
    pub pid: u32,
    /// The node whose copy it was to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// The mapping's bytes.
    pub bytes: u64,
    /// `copied`, `left`, `collapsed` or `given-back`.
    pub done: String,
    /// Why it was left.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
}

/// Windows with changes against windows without.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Decisions that are judged together.
    pub decisions: Vec<u64>,
    /// What was measured, with its unit, such as `instructions per ns of running`.
    pub measure: String,
    /// With their changes.
    pub with: Windows,
    /// Without.
    pub without: Windows,
    /// Change of the measure by the changes, percent; above 0: better.
    pub change_percent: f64,
    /// Half of its 95 % interval, percent; `None`: too few windows to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plus_minus_percent: Option<f64>,
    /// What follows.
    pub verdict: Verdict,
    /// Why, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
}

/// Windows of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Windows {
    /// How many.
    pub windows: u64,
    /// Nanoseconds in all.
    pub elapsed_ns: u64,
    /// Mean of the measure.
    pub mean: f64,
}

/// What follows from a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The changes stay.
    Kept,
    /// They are taken back.
    Undone,
    /// It is not known yet.
    #[default]
    Undecided,
}

/// Pages that went to and fro.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingPong {
    /// The decision that would have moved them once more.
    pub decision: u64,
    /// Whose.
    pub pid: u32,
    /// Address of the first.
    #[serde(with = "hexadecimal")]
    pub first: u64,
    /// How many pages.
    pub pages: u64,
    /// How often they have moved.
    pub moves: u64,
    /// Nanoseconds for which they are left alone now; `None`: for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_alone_ns: Option<u64>,
}

/// The loop's pace changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackOff {
    /// Nanoseconds between observations before.
    pub was_ns: u64,
    /// And from now on.
    pub now_ns: u64,
    /// Why, in a few words.
    pub because: String,
}

/// A setting of the system, beyond the targets' pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Which, such as `kernel.numa_balancing` or `affinity of 4711/4712`.
    pub name: String,
    /// What it was.
    pub was: String,
    /// What it is.
    pub now: String,
    /// What happened to it.
    pub done: SettingDone,
}

/// What happened to a setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingDone {
    /// Changed; the earlier value is kept.
    #[default]
    Changed,
    /// Put back.
    Restored,
    /// Not put back: somebody else has changed it since.
    LeftAlone,
    /// Could not be changed or put back.
    Failed,
}

/// Targets that came or went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Targets {
    /// Came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<Target>,
    /// Went.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<Target>,
    /// Why: ended, exec, command, found.
    pub because: String,
}

/// Somebody steered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steered {
    /// What was asked: pause, resume, reload, stop, add, remove.
    pub command: String,
    /// By which user; `None`: by a signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_uid: Option<u32>,
    /// What came of it.
    pub answer: String,
}

/// What was lost since the last such event: nothing is lost silently.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Names and counts, such as `samples` and `journal lines`.
    pub lost: Vec<Loss>,
}

/// One kind of loss.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// What.
    pub what: String,
    /// How many.
    pub count: u64,
}

/// Something is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// What, with its remedy.
    pub what: String,
    /// How often since it was last told.
    pub times: u64,
}

/// The loop ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// Why: a signal, a command, the targets ended, a failure.
    pub because: String,
    /// What it did in all.
    pub counters: crate::status::Counters,
    /// What it took.
    pub own: crate::status::OwnUse,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Addresses as `"0x7f..."`: readable, and beyond what JSON readers keep of numbers.
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
            .map_err(|_| D::Error::custom(format!("{text:?} is no hexadecimal address, such as \"0x7f0000000000\"")))
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
            pid: 4711,
            first: 0x7fff_ffff_f000,
            pages: 3,
            page_bytes: 4096,
            fate: PageDecision::Move { from: Some(0), to: 2 },
            seen: vec![SeenFrom { node: 2, reads: 12.5, writes: 3.0 }],
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
            line.contains(r#""first":"0x7ffffffff000""#) && line.contains(r#""fate":"move","from":0,"to":2"#),
            "{line}"
        );
        assert_eq!(serde_json::from_str::<Entry>(&line).unwrap(), written);
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

    #[test]
    fn outcomes_add_up() {
        let mut sum = PageOutcomes { moved: 1, busy: 2, ..PageOutcomes::default() };
        sum.add(&PageOutcomes { moved: 1, gone: 3, other: 4, ..PageOutcomes::default() });
        assert_eq!(sum.total(), 11);
        assert_eq!(sum.by_name()[0], ("moved", 2));
    }
}
