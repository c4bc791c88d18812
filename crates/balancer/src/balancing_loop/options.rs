//! Options of the loop.

use std::time::Duration;

use numapilot_host::Group;
use numapilot_kernel::actuator::MoveOptions;

/// Which processes are managed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Processes that belong together, and their descendants (which `Group::Processes` leaves out).
    Group(Group),
    /// Every process of the machine that has memory of its own.
    System,
    /// The program that the calling thread starts next, and its descendants.
    Child,
}

impl Who {
    /// Whether new targets may appear after all have ended.
    #[must_use]
    pub fn may_grow(&self) -> bool {
        match self {
            Who::System => true,
            Who::Group(group) => group.takes_unrelated(),
            Who::Child => false,
        }
    }
}

/// Options that may change while the loop runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Tunables {
    /// Share of the targets' time that may be lost to moves that bring nothing, such as 0.01.
    pub max_harm: f64,
    /// Minimum time between two observations.
    pub interval: Duration,
    /// Maximum rate of moves in bytes per second; `None`: unlimited.
    pub bytes_per_s: Option<u64>,
    /// Bytes of memory to leave available on every node.
    pub keep_bytes: u64,
    /// Memory pressure above which nothing is moved: share of the last 10 s in which tasks waited for memory, 0 to 1; 1: pages move whatever it is.
    pub max_pressure: f64,
}

impl Default for Tunables {
    fn default() -> Tunables {
        Tunables {
            max_harm: 0.01,
            interval: Duration::from_millis(100),
            bytes_per_s: None,
            keep_bytes: 16 << 20,
            max_pressure: 0.1,
        }
    }
}

impl Tunables {
    /// Options of the actuator: orders beyond the rate are left to the next decision.
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

/// All options of the loop.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which processes are managed.
    pub who: Who,
    /// The policy with its options, as given.
    pub policy: String,
    /// Options that may change while the loop runs.
    pub tunables: Tunables,
    /// Dry run: decisions are reported; nothing is moved and no setting changed.
    pub dry_run: bool,
    /// Whether the loop may turn on the kernel's NUMA balancing and change its scan period.
    pub steers_scanning: bool,
    /// Whether loaded latencies are probed.
    pub probes: bool,
    /// Whether the processor's access samples are used as evidence, where available.
    pub samples: bool,
    /// Whether memory for which a program has set a memory policy is moved too.
    pub moves_bound: bool,
    /// Maximum number of pages in the evidence table.
    pub table_pages: usize,
    /// Duration after which the loop ends; `None`: no limit.
    pub until: Option<Duration>,
    /// Seed of random numbers.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            who: Who::Group(Group::Processes(Vec::new())),
            policy: "pilot".to_owned(),
            tunables: Tunables::default(),
            dry_run: false,
            steers_scanning: true,
            probes: true,
            samples: true,
            moves_bound: false,
            table_pages: 4 << 20,
            until: None,
            seed: 1,
        }
    }
}
