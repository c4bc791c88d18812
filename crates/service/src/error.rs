//! The error type of this crate: each message names the file or address, the place, and the remedy.

use std::io;
use std::path::PathBuf;

use numapilot_host::Pid;
use thiserror::Error;

/// An error of the service.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// A text is not an address.
    #[error(
        "{text:?} is not an address ({what}); use 127.0.0.1:PORT, [::1]:PORT, a PORT of the loopback, or unix:/PATH"
    )]
    Address {
        /// The given text.
        text: String,
        /// What is wrong, as a clause of the message.
        what: String,
    },
    /// An address can be reached from other machines.
    #[error(
        "{address} can be reached from other machines, without encryption or a password; listen on 127.0.0.1 or a unix socket behind \
         a proxy, or allow remote readers explicitly"
    )]
    NotLocal {
        /// The given address.
        address: String,
    },
    /// The server cannot listen on an address.
    #[error("cannot listen on {address}: {what}")]
    Listen {
        /// The address.
        address: String,
        /// What is wrong, and the remedy.
        what: String,
    },
    /// A file cannot be read or written.
    #[error("{}: cannot {doing}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The content of a file cannot be used.
    #[error("{}{}: {what}", path.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Number of the line, from 1, if known.
        line: Option<usize>,
        /// What is wrong, and the remedy.
        what: String,
    },
    /// Another numapilot uses the state folder.
    #[error("numapilot (process {pid}) already uses {}; control it with `numapilot ctl`, or name another folder with --state-dir", path.display())]
    Taken {
        /// The state folder.
        path: PathBuf,
        /// Process id of the other; 0: unknown.
        pid: Pid,
    },
    /// The daemon refuses; the message is its answer.
    #[error("{0}")]
    Refused(String),
    /// The answer cannot be interpreted.
    #[error("the answer from {address} cannot be understood ({what}); is another program listening there?")]
    Answer {
        /// Address of the server.
        address: String,
        /// What is wrong, as a clause of the message.
        what: String,
    },
    /// There is no journal at this path.
    #[error(
        "{}: there is no journal; a single `balance` writes one if started with `--journal FILE`: name that file with `--journal`",
        .0.display()
    )]
    NoJournal(PathBuf),
    /// The journal does not hold what was asked for.
    #[error("{0}")]
    NotInJournal(String),
    /// Another system call failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl ServiceError {
    /// Makes the error of a failed operation on a file.
    #[must_use]
    pub fn file(path: &std::path::Path, doing: &'static str, source: io::Error) -> ServiceError {
        ServiceError::File { path: path.to_owned(), doing, source }
    }
}
