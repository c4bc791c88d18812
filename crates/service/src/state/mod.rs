//! The record of system-wide changes on disk, from which they are restored in all cases: at the end, or at the next start after a kill.
//!
//! The order matters: first the record (old and new value, on disk), then the change. Restoring compares first: a setting with neither this program's value nor
//! the old one was changed by another program since, and is not touched. A record of an earlier boot is void, as its settings are. One process at a time uses a
//! state folder (by a lock that ends with the process), and one at a time manages a process of the machine, or its settings ([`Claims`]). What a killed daemon
//! left is restored by the next, whatever folder it uses ([`folders`]).

mod claims;
pub mod folders;
mod record;
mod settings_guard;
mod system;

use numapilot_host::Pid;
use numapilot_host::Tid;
use serde::Deserialize;
use serde::Serialize;

pub use claims::Claims;
pub use record::Record;
pub use settings_guard::Done;
pub use settings_guard::SettingsGuard;
pub use system::Live;
pub use system::System;

/// A system setting other than the targets' pages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Setting {
    /// A number under /proc/sys, by its name with dots: `kernel.numa_balancing`.
    Sysctl {
        /// Name of the setting.
        name: String,
    },
    /// A file under /sys, such as `/sys/fs/cgroup/a/cpuset.mems`.
    File {
        /// Path of the file.
        file: String,
    },
    /// The CPUs on which a thread may run, as a list: `0-3,8`.
    Affinity {
        /// Process id.
        pid: Pid,
        /// Thread id.
        tid: Tid,
        /// Start time in clock ticks since boot; with the ids it identifies the thread.
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
