//! The one error type of this crate.

use numapilot_host::FileError;
use numapilot_kernel::KernelError;
use thiserror::Error;

/// Why something cannot be watched.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The kernel's answer about a process.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A file of the kernel's that must be there is not, or cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// No such process, from the beginning.
    #[error("there is no process {pid}; `pgrep` or `ps` tell numbers of processes")]
    NoProcess {
        /// The number.
        pid: u32,
    },
    /// The kernel tells no memory by node.
    #[error(
        "process {pid} has no numa_maps: this kernel was built without NUMA support, so it does not tell on which node memory lies"
    )]
    NoNumaMaps {
        /// The process.
        pid: u32,
    },
    /// An option's value cannot be used.
    #[error("{option}: {why}")]
    Option {
        /// As on the command line.
        option: &'static str,
        /// What is wrong and what would do.
        why: String,
    },
}
