//! What the loop is doing now, for whoever asks: the control socket and the metrics.
//!
//! The loop puts a [`Status`] on the [`Board`] once per observation; readers take the last one and never wait for the loop. Whoever steers sends
//! [`Steering`] through a channel that the loop looks into between two steps.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::Sender;

use serde::Deserialize;
use serde::Serialize;

use crate::event::EvidenceSource;
use crate::event::Loss;
use crate::event::PageOutcomes;
use crate::event::Target;

/// Version of the snapshot's JSON form.
pub const VERSION: u32 = 1;

/// A snapshot of the loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`VERSION`].
    pub v: u32,
    /// Which run, as in the journal.
    pub run: String,
    /// The loop's process.
    pub pid: u32,
    /// Whose it is.
    pub uid: u32,
    /// When it began, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// When this was written, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// What it does.
    pub state: State,
    /// Why it is in that state, in a few words.
    pub because: String,
    /// The policy with its options.
    pub policy: String,
    /// The policy's last words.
    pub policy_says: String,
    /// Nothing is moved.
    pub dry_run: bool,
    /// Nanoseconds between two observations now.
    pub interval_ns: u64,
    /// Every process looked after.
    pub targets: Vec<TargetStatus>,
    /// Every memory node.
    pub nodes: Vec<NodeStatus>,
    /// Where evidence comes from.
    pub evidence: Vec<EvidenceSource>,
    /// Totals since the start; they only grow.
    pub counters: Counters,
    /// Over the last interval.
    pub rates: Rates,
    /// What the loop itself takes.
    pub own: OwnUse,
    /// Everything lost since the start, by kind.
    pub losses: Vec<Loss>,
}

/// What the loop does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Not yet at its first observation.
    #[default]
    Starting,
    /// It looks, decides and acts.
    Running,
    /// Somebody paused it: it does nothing until resumed.
    Paused,
    /// There is nothing to look after, or too little traffic to care for.
    Idle,
    /// It looks less often, because looking brought nothing or did harm.
    BackedOff,
    /// It is putting things back and ends.
    Stopping,
}

impl State {
    /// All of them.
    pub const ALL: [State; 6] =
        [State::Starting, State::Running, State::Paused, State::Idle, State::BackedOff, State::Stopping];

    /// Its name, as in JSON.
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

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// Which.
    #[serde(flatten)]
    pub target: Target,
    /// Its threads.
    pub threads: u64,
    /// Pages of which something is remembered.
    pub pages_known: u64,
    /// Evidence seen of it in the last interval: samples or faults.
    pub samples: u64,
    /// Share of these that were local, 0 to 1; `None`: none seen.
    pub local_share: Option<f64>,
    /// Bytes moved for it since the start.
    pub moved_bytes: u64,
    /// Where its memory was seen used lately, the most first: the hottest stretches of 2 MiB.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hot: Vec<HotStretch>,
}

/// A stretch of a process's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HotStretch {
    /// Lowest address of a page that was seen used.
    pub address: u64,
    /// Uses seen; older ones count less.
    pub uses: f64,
    /// Share of them from the node where the page lay, 0 to 1.
    pub local_share: f64,
}

/// One memory node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The kernel's number.
    pub node: u16,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Free bytes (MemFree).
    pub free_bytes: u64,
    /// Bytes that could be given out without swapping, estimated as the guard does.
    pub available_bytes: u64,
    /// Bytes per second that this node's memory serves, estimated; `None`: no source tells rates.
    pub served_bytes_per_s: Option<f64>,
    /// Share of its peak that the controller carries, 0 to 1, estimated.
    pub utilisation: Option<f64>,
    /// Share of the accesses seen from this node's CPUs that were local, 0 to 1; `None`: none seen.
    pub local_share: Option<f64>,
    /// Nanoseconds of a probing access from this node, by home node in the order of [`Status::nodes`]; empty: not probed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probe_ns: Vec<Option<f64>>,
}

/// Totals since the start; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Observations made.
    pub observations: u64,
    /// Decisions that ordered something.
    pub decisions: u64,
    /// Sampled accesses.
    pub samples: u64,
    /// Samples lost.
    pub samples_lost: u64,
    /// Hinting faults.
    pub hint_faults: u64,
    /// Uses of files' pages that processes only read, as the kernel tells them (`--replicate`).
    #[serde(default)]
    pub file_uses: u64,
    /// Pages by what came of their orders; undoing not counted.
    pub pages: PageOutcomes,
    /// Pages moved back.
    pub pages_undone: u64,
    /// Bytes copied from node to node, undoing included.
    pub moved_bytes: u64,
    /// Bytes that the kernel's own NUMA balancing moved meanwhile, of all processes of the machine; `None`: the kernel does not tell.
    #[serde(default)]
    pub kernel_moved_bytes: Option<u64>,
    /// Nanoseconds spent in moving.
    pub moving_ns: u64,
    /// Processor nanoseconds spent in asking the policy.
    #[serde(default)]
    pub deciding_ns: u64,
    /// Processor nanoseconds spent before the first look: opening events, learning the machine, taking memory for probes.
    #[serde(default)]
    pub starting_ns: u64,
    /// Threads moved.
    pub threads_moved: u64,
    /// Comparisons after which changes were kept.
    pub kept: u64,
    /// Comparisons after which changes were taken back.
    pub undone: u64,
    /// Ranges left alone for going to and fro.
    pub ping_pongs: u64,
    /// Times that the loop slowed down.
    pub back_offs: u64,
}

/// Over the last interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Samples per second.
    pub samples_per_s: f64,
    /// Hinting faults per second.
    pub hint_faults_per_s: f64,
    /// Bytes moved per second.
    pub moved_bytes_per_s: f64,
    /// Share of the evidence that was local, 0 to 1; `None`: none seen.
    pub local_share: Option<f64>,
    /// Standard deviation (sample) over mean of the evidence by home node, percent; `None`: none seen.
    pub imbalance_percent: Option<f64>,
}

/// What the loop itself takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnUse {
    /// Processor time since the start, user and system, in nanoseconds.
    pub cpu_ns: u64,
    /// Of one CPU over the last interval, percent.
    pub cpu_percent: f64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Open file descriptors.
    pub open_files: u64,
}

impl OwnUse {
    /// What this process takes now. `before` is the last answer and how long ago it was, in nanoseconds; without it the share is over the whole life.
    #[must_use]
    pub fn now(before: Option<(OwnUse, u64)>) -> OwnUse {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the structure is large enough and plain data; RUSAGE_SELF is always valid.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        let ns = |t: libc::timeval| {
            u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_usec).unwrap_or(0) * 1000
        };
        let cpu_ns = ns(usage.ru_utime) + ns(usage.ru_stime);
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages: u64 = statm.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        // SAFETY: asks for a constant of the system.
        let page_bytes = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let open_files =
            std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count().saturating_sub(1) as u64);
        let share = |cpu: u64, elapsed: u64| if elapsed == 0 { 0.0 } else { 100.0 * cpu as f64 / elapsed as f64 };
        let cpu_percent =
            before.map_or(0.0, |(last, elapsed_ns)| share(cpu_ns.saturating_sub(last.cpu_ns), elapsed_ns));
        OwnUse { cpu_ns, cpu_percent, resident_bytes: pages * page_bytes, open_files }
    }
}

/// Where the loop leaves its last status for others.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<Arc<Status>>>);

impl Board {
    /// An empty one: a loop that has not started.
    #[must_use]
    pub fn new() -> Board {
        Board::default()
    }

    /// Replaces what is there.
    pub fn put(&self, status: Status) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(status);
    }

    /// What was put last.
    #[must_use]
    pub fn get(&self) -> Arc<Status> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What somebody asks of the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Do nothing until resumed; what was done stays.
    Pause,
    /// Go on.
    Resume,
    /// Read the configuration again, all of it or nothing.
    Reload,
    /// Put back what was changed system-wide, and end.
    Stop,
    /// Look after a process too.
    AddTarget(Target),
    /// Look after it no longer; its pages stay where they are.
    RemoveTarget(Target),
}

impl Command {
    /// Its name in the journal and on the control socket.
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

/// A command on its way to the loop. Who may give it was checked before.
#[derive(Debug)]
pub struct Steering {
    /// What is asked.
    pub command: Command,
    /// By which user; `None`: by a signal.
    pub by_uid: Option<u32>,
    /// Where the answer goes, in words: done, or why not. Nobody may be waiting any more.
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
            targets: vec![TargetStatus { local_share: Some(0.25), ..TargetStatus::default() }],
            nodes: vec![NodeStatus { probe_ns: vec![Some(90.0), None], ..NodeStatus::default() }],
            ..Status::default()
        };
        let text = serde_json::to_string(&status).unwrap();
        assert!(text.contains(r#""state":"backed-off""#), "{text}");
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
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
