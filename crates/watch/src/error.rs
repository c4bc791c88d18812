//! The error type of this crate.

use numapilot_host::FileError;
use numapilot_host::Pid;
use numapilot_kernel::KernelError;
use thiserror::Error;

/// Why a machine or process cannot be watched.
#[derive(Debug, Error)]
pub enum WatchError {
    /// An error of the kernel about a process.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A kernel file that must exist does not, or cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The process does not exist at the start.
    #[error("there is no process {pid}: it has ended, or never ran; look it up with `pgrep` or `ps`")]
    NoProcess {
        /// Process id.
        pid: Pid,
    },
    /// The kernel does not report memory by node.
    #[error(
        "process {pid} has no numa_maps: this kernel was built without NUMA support, so it does not report memory by node"
    )]
    NoNumaMaps {
        /// Process id.
        pid: Pid,
    },
    /// An option's value cannot be used.
    #[error("{option}: {why}")]
    Option {
        /// Name of the option, as on the command line.
        option: &'static str,
        /// What is wrong, and what is accepted.
        why: String,
    },
}
