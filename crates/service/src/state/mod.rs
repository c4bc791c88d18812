//! What was changed system-wide, kept on disk so that it is put back whatever happens: at the end, or by the next start after a kill.
//!
//! The order is the contract: first the record (old and new value, with the disk), then the change. Putting back compares first: a setting that holds
//! neither our value nor the old one was changed by somebody else since, and is left alone. A record of an earlier boot is void, as its settings
//! are. One process at a time works with a folder of state (a lock that goes with the process), and one at a time with a process of the machine, or with
//! its settings ([`Claims`]); what a killed one left is put back by the next, whatever folder that one works with ([`folders`]).

mod claims;
pub mod folders;
mod record;
mod settings_guard;
mod system;

use serde::Deserialize;
use serde::Serialize;

pub use claims::Claims;
pub use record::Record;
pub use settings_guard::Done;
pub use settings_guard::SettingsGuard;
pub use system::Live;
pub use system::System;

/// A setting of the system beyond the targets' pages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Setting {
    /// A number under /proc/sys, by its name with dots: `kernel.numa_balancing`.
    Sysctl {
        /// Its name.
        name: String,
    },
    /// A file under /sys, such as `/sys/fs/cgroup/a/cpuset.mems`.
    File {
        /// Its path.
        file: String,
    },
    /// The CPUs on which a thread may run, as a list: `0-3,8`.
    Affinity {
        /// Its process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// When it started, in clock ticks since boot: with the numbers, which thread is meant.
        start_ticks: u64,
    },
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Setting::Sysctl { name } => write!(f, "{name}"),
            Setting::File { file } => write!(f, "{file}"),
            Setting::Affinity { pid, tid, .. } => write!(f, "affinity of {pid}/{tid}"),
        }
    }
}
