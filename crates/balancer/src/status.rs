//! The present status of the loop, for the control socket and the metrics.
//!
//! The loop publishes a [`Status`] on the [`Board`] once per observation; readers take the latest one and never block the loop. Clients send [`Steering`]
//! through a channel, which the loop reads between two steps.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::Sender;

use numapilot_host::Pid;
use numapilot_host::VirtAddr;
use numapilot_machine::NodeId;
use serde::Deserialize;
use serde::Serialize;

use crate::event::EvidenceSource;
use crate::event::Loss;
use crate::event::Target;
pub use crate::totals::Counters;
pub use crate::totals::OwnUse;

/// Version of the snapshot's JSON form.
pub const VERSION: u32 = 1;

/// Maximum number of managed processes of a user other than root and the daemon's own, beyond which that user may add no more.
pub const TARGETS_PER_USER: usize = 64;

/// Checks that a user may add another process. `users`: those of the managed processes; `most`: how many of them may be this user's.
///
/// # Errors
/// That many are managed already; the message is for the user.
pub fn has_room_for_target(uid: u32, users: impl Iterator<Item = u32>, most: usize) -> Result<(), String> {
    let own = users.filter(|user| *user == uid).count();
    if own < most {
        return Ok(());
    }
    Err(format!("{own} of your processes are managed already, the most allowed per user; remove one first"))
}

/// Who gave a command, if that is a user for whom limits hold: neither root nor the one as whom this process acts, nor a signal (`None`).
pub(crate) fn guest(who: Option<u32>) -> Option<u32> {
    // SAFETY: has no preconditions.
    let own_user = unsafe { libc::geteuid() };
    who.filter(|uid| *uid != 0 && *uid != own_user)
}

/// A snapshot of the loop. Its JSON form has every key always: what is not known is null, and what there is none of is empty, 0 or false.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the format ([`VERSION`]).
    pub v: u32,
    /// Name of the run, as in the journal.
    pub run: String,
    /// Process id of the loop.
    pub pid: Pid,
    /// User of the loop.
    pub uid: u32,
    /// Start time in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// Time of this status in nanoseconds since 1970.
    pub unix_ns: u64,
    /// State of the loop.
    pub state: State,
    /// The reason for the state, in a few words.
    pub because: String,
    /// The policy with its options.
    pub policy: String,
    /// The policy's last explanation.
    pub policy_says: String,
    /// Dry run: nothing is moved.
    pub dry_run: bool,
    /// Present interval between observations, in nanoseconds.
    pub interval_ns: u64,
    /// Every managed process.
    pub targets: Vec<TargetStatus>,
    /// Every memory node.
    pub nodes: Vec<NodeStatus>,
    /// Number of pages of all processes in the evidence table; `None`: the loop keeps none.
    pub pages_known: Option<u64>,
    /// Sources of evidence.
    pub evidence: Vec<EvidenceSource>,
    /// How long tasks of the whole system wait for what; empty: the kernel does not count it.
    #[serde(default)]
    pub pressure: Vec<ResourcePressure>,
    /// Whether moves are put off because of the whole system's memory pressure.
    #[serde(default)]
    pub is_put_off: bool,
    /// Totals since the start; they only grow.
    pub counters: Counters,
    /// Rates over the last interval.
    pub rates: Rates,
    /// Resources that the loop itself uses.
    pub own: OwnUse,
    /// Everything lost since the start, by kind.
    pub losses: Vec<Loss>,
}

/// Pressure on a resource of the whole system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourcePressure {
    /// The resource: `cpu`, `io` or `memory`.
    pub resource: String,
    /// Share of the last 10 s in which at least one task waited for it, 0 to 1.
    pub some: f64,
    /// Share in which all tasks waited that were not idle; `None`: not told.
    #[serde(default)]
    pub full: Option<f64>,
}

/// State of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Before its first observation.
    #[default]
    Starting,
    /// It observes, decides and acts.
    Running,
    /// Paused by a command: it does nothing until resumed.
    Paused,
    /// There are no targets, or they cause too little traffic.
    Idle,
    /// It observes less often, because the targets are idle.
    BackedOff,
    /// It restores settings and ends.
    Stopping,
}

impl State {
    /// All states.
    pub const ALL: [State; 6] =
        [State::Starting, State::Running, State::Paused, State::Idle, State::BackedOff, State::Stopping];

    /// Name of the state, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Running => "running",
            State::Paused => "paused",
            State::Idle => "idle",
            State::BackedOff => "backed-off",
            State::Stopping => "stopping",
        }
    }
}

/// Status of one managed process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// The process.
    #[serde(flatten)]
    pub target: Target,
    /// Number of its threads; `None`: the loop does not look at single threads.
    pub threads: Option<u64>,
    /// Evidence about it in the last interval: number of samples or faults; `None`: the loop uses none.
    pub samples: Option<u64>,
    /// Share of these that was local, 0 to 1; `None`: no evidence.
    pub local_share: Option<f64>,
    /// Bytes moved for it since the start; `None`: they are not counted by process.
    pub moved_bytes: Option<u64>,
    /// Bytes of its memory that stay where they are, because the program has set memory policies for them.
    #[serde(default)]
    pub chosen_bytes: u64,
    /// Memory nodes that its cpuset forbids: nothing is moved there.
    #[serde(default)]
    pub forbidden_nodes: Vec<NodeId>,
    /// Whether moves of its pages are put off because of memory pressure in its cgroup.
    #[serde(default)]
    pub is_put_off: bool,
    /// Its hottest 2 MiB ranges of memory by recent uses, the most used first.
    #[serde(default)]
    pub hot: Vec<HotStretch>,
}

/// A range of a process's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HotStretch {
    /// Lowest address of a page with an observed use.
    pub address: VirtAddr,
    /// Observed uses; older ones count less.
    pub uses: f64,
    /// Share of local uses, 0 to 1.
    pub local_share: f64,
}

/// Status of one memory node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node.
    pub node: NodeId,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Free bytes (MemFree); `None`: not known.
    pub free_bytes: Option<u64>,
    /// Bytes available without swapping, estimated as for the actuator's reserve; `None`: not known.
    pub available_bytes: Option<u64>,
    /// Local access ratio of the observed accesses from this node's CPUs, 0 to 1; `None`: no evidence.
    pub local_share: Option<f64>,
    /// Latency of a probe access from this node in nanoseconds, by home node in the order of [`Status::nodes`]; empty: not probed.
    #[serde(default)]
    pub probe_ns: Vec<Option<f64>>,
}

/// Rates over the last interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Samples per second.
    pub samples_per_s: f64,
    /// Hinting faults per second.
    pub hint_faults_per_s: f64,
    /// Bytes moved per second.
    pub moved_bytes_per_s: f64,
    /// Local access ratio of the evidence, 0 to 1; `None`: no evidence.
    pub local_share: Option<f64>,
    /// Sample standard deviation over mean of the evidence by home node, in percent; `None`: no evidence.
    pub imbalance_percent: Option<f64>,
}

/// Holds the loop's latest status for readers.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<Arc<Status>>>);

impl Board {
    /// Makes a board with the status of a loop that has not started.
    #[must_use]
    pub fn new() -> Board {
        Board::default()
    }

    /// Replaces the status.
    pub fn put(&self, status: Status) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(status);
    }

    /// Returns the latest status.
    #[must_use]
    pub fn get(&self) -> Arc<Status> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A control command to the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Do nothing until resumed; what was moved stays.
    Pause,
    /// Take actions again, after `Pause`.
    Resume,
    /// Read the configuration again; if it has an error, nothing changes.
    Reload,
    /// Restore system-wide settings, and end.
    Stop,
    /// Manage another process.
    AddTarget(Target),
    /// Stop managing a process; its pages stay where they are.
    RemoveTarget(Target),
}

impl Command {
    /// Name of the command in the journal and on the control socket.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Command::Pause => "pause",
            Command::Resume => "resume",
            Command::Reload => "reload",
            Command::Stop => "stop",
            Command::AddTarget(_) => "add",
            Command::RemoveTarget(_) => "remove",
        }
    }
}

/// A command on its way to the loop. The client's permission has been checked already.
#[derive(Debug)]
pub struct Steering {
    /// What the loop is to do.
    pub command: Command,
    /// User who gave the command; `None`: it came by a signal.
    pub by_uid: Option<u32>,
    /// Channel for the answer: what was done, or why it was refused. The receiver may be gone.
    pub answer: Option<Sender<Result<String, String>>>,
}

#[cfg(test)]
mod tests {
    //! The snapshot's form, and the board.

    use super::*;

    #[test]
    fn a_status_reads_back() {
        let status = Status {
            v: VERSION,
            state: State::BackedOff,
            targets: vec![TargetStatus {
                local_share: Some(0.25),
                forbidden_nodes: vec![NodeId(8)],
                is_put_off: true,
                hot: vec![HotStretch { address: VirtAddr(0x7000), uses: 2.0, local_share: 0.5 }],
                ..TargetStatus::default()
            }],
            nodes: vec![NodeStatus { probe_ns: vec![Some(90.0), None], ..NodeStatus::default() }],
            pressure: vec![ResourcePressure { resource: "memory".to_owned(), some: 0.5, full: None }],
            is_put_off: true,
            ..Status::default()
        };
        let text = serde_json::to_string(&status).unwrap();
        assert!(text.contains(r#""state":"backed-off""#), "{text}");
        assert!(text.contains(r#""forbidden_nodes":[8]"#) && text.contains(r#"{"node":0,"#), "{text}");
        assert!(text.contains(r#""hot":[{"address":28672,"uses":2.0,"local_share":0.5}]"#), "{text}");
        let pressure = r#""pressure":[{"resource":"memory","some":0.5,"full":null}],"is_put_off":true,"#;
        assert!(text.contains(pressure), "{text}");
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
        // Of a loop that has not begun: the same keys, and nothing is 0 that is not known.
        let nodes = vec![NodeStatus::default()];
        let begun = Status { targets: vec![TargetStatus::default()], nodes, ..Status::default() };
        let of = |status: &Status| serde_json::to_value(status).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let (full, empty) = (of(&status), of(&begun));
        for part in ["", "/targets/0", "/nodes/0"] {
            assert_eq!(full.pointer(part).map(keys), empty.pointer(part).map(keys), "{part}");
        }
        assert!(empty["nodes"][0]["free_bytes"].is_null() && empty["nodes"][0]["available_bytes"].is_null());
        // A status of a release before has fewer keys.
        let older = text.replace(r#","full":null"#, "").replace(r#""chosen_bytes":0,"#, "");
        assert_eq!(serde_json::from_str::<Status>(&older).unwrap(), status);
        for state in State::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("{:?}", state.name()));
        }
    }

    #[test]
    fn the_board_holds_the_last() {
        let board = Board::new();
        let reader = board.clone();
        assert_eq!(reader.get().state, State::Starting);
        board.put(Status { state: State::Running, ..Status::default() });
        assert_eq!(reader.get().state, State::Running);
    }

    #[test]
    fn own_use_grows_with_work() {
        let before = OwnUse::now(None);
        let start = std::time::Instant::now();
        let mut x = 1_u64;
        while start.elapsed().as_millis() < 30 {
            x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005));
        }
        let elapsed_ns = start.elapsed().as_nanos() as u64;
        let after = OwnUse::now(Some((before, elapsed_ns)));
        assert!(after.cpu_ns > before.cpu_ns && after.cpu_percent > 0.0, "{before:?} {after:?}");
        assert!(after.resident_bytes > 100_000 && after.open_files >= 3);
    }
}
