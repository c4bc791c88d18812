//! The one error type of this crate. Every message names the event or file, what is wrong with it, and the next step.

use std::io;
use std::path::PathBuf;

use numapilot_host::Pid;
use thiserror::Error;

/// Why events could not be opened or read.
#[derive(Debug, Error)]
pub enum EventsError {
    /// An event that the kernel does not open.
    #[error("event {event}: {reason} ({source}); {remedy}")]
    Event {
        /// Name of the event, as perf writes it.
        event: String,
        /// The system call's error.
        source: io::Error,
        /// What is wrong, as a clause of the message.
        reason: String,
        /// What the user can do about it, as a clause of the message.
        remedy: String,
    },
    /// No such process, or it has ended.
    #[error("--pid: there is no process {pid}, or it has ended; look it up with `pgrep` or `ps`")]
    NoProcess {
        /// Process id.
        pid: Pid,
    },
    /// What the kernel says of its PMUs does not fit together.
    #[error(transparent)]
    Pmu(#[from] numapilot_perf::pmu::PmuError),
    /// A file that events depend on cannot be read.
    #[error("{}: {source}; {remedy}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system call's error.
        source: io::Error,
        /// What the user can do about it, as a clause of the message.
        remedy: &'static str,
    },
    /// The system refused something else.
    #[error("{what}: {source}; {remedy}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system call's error.
        source: io::Error,
        /// What the user can do about it, as a clause of the message.
        remedy: &'static str,
    },
}

impl EventsError {
    /// The exit status that says so: 2 for options that cannot be followed, 1 otherwise.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self {
            EventsError::NoProcess { .. } => 2,
            _ => 1,
        }
    }
}
