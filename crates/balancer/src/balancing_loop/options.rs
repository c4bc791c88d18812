//! What the loop is told.

use std::path::PathBuf;
use std::time::Duration;

use numapilot_kernel::actuator::MoveOptions;

/// Who is looked after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// These processes, and what they start.
    Processes(Vec<u32>),
    /// The processes of a cgroup, by its folder, and what they start.
    Cgroup(PathBuf),
    /// Every process of the machine that has memory of its own.
    System,
    /// What the calling thread starts next, and what that starts.
    Child,
}

impl Who {
    /// Whether targets may come after all have ended.
    #[must_use]
    pub fn may_grow(&self) -> bool {
        matches!(self, Who::System | Who::Cgroup(_))
    }
}

/// What may be changed while the loop runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Tunables {
    /// Share of the targets' time that may be lost to moves that bring nothing, such as 0.01.
    pub max_harm: f64,
    /// Between two looks at least.
    pub interval: Duration,
    /// Bytes moved per second at most; `None`: any number.
    pub bytes_per_s: Option<u64>,
    /// Bytes left available on every node.
    pub keep_bytes: u64,
}

impl Default for Tunables {
    fn default() -> Tunables {
        Tunables { max_harm: 0.01, interval: Duration::from_millis(100), bytes_per_s: None, keep_bytes: 16 << 20 }
    }
}

impl Tunables {
    /// For the actuator: what does not fit into the rate is left for the next decision.
    #[must_use]
    pub fn moving(&self) -> MoveOptions {
        MoveOptions {
            bytes_per_s: self.bytes_per_s,
            keep_bytes: self.keep_bytes,
            waits: false,
            tries: 2,
            ..MoveOptions::default()
        }
    }
}

/// Everything.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who is looked after.
    pub who: Who,
    /// The policy with its options, as given.
    pub policy: String,
    /// What may change.
    pub tunables: Tunables,
    /// Nothing is moved and no setting changed: decisions are told.
    pub dry_run: bool,
    /// Whether the kernel's NUMA balancing may be turned on and its pace changed, for evidence.
    pub steers_scanning: bool,
    /// Whether latencies are probed.
    pub probes: bool,
    /// Whether the processor's samples of accesses are taken for evidence, where it has any.
    pub samples: bool,
    /// Pages of which something is remembered at most.
    pub table_pages: usize,
    /// Ends by itself after so long.
    pub until: Option<Duration>,
    /// For what is drawn at random.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            who: Who::Processes(Vec::new()),
            policy: "pilot".to_owned(),
            tunables: Tunables::default(),
            dry_run: false,
            steers_scanning: true,
            probes: true,
            samples: true,
            table_pages: 4 << 20,
            until: None,
            seed: 1,
        }
    }
}
