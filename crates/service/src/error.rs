//! The one error type of this crate: each message names the file or address, the place, and what to do.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why the service cannot do what it was asked.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// Text that is no address.
    #[error("{text:?} is no address ({what}); use 127.0.0.1:PORT, [::1]:PORT, a PORT of the loopback, or unix:/PATH")]
    Address {
        /// What was given.
        text: String,
        /// What is wrong.
        what: String,
    },
    /// An address that others could reach.
    #[error(
        "{address} can be reached from other machines, and there is neither encryption nor a password; listen on 127.0.0.1 or a unix socket \
         and put a proxy before it, or allow remote readers expressly"
    )]
    NotLocal {
        /// What was given.
        address: String,
    },
    /// An address that cannot be listened on.
    #[error("cannot listen on {address}: {what}")]
    Listen {
        /// The address.
        address: String,
        /// What is wrong and what to do.
        what: String,
    },
    /// A file that cannot be read or written.
    #[error("{}: cannot {doing}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        doing: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A file whose content cannot be used.
    #[error("{}{}: {what}", path.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Content {
        /// The file.
        path: PathBuf,
        /// The line, from 1, where it is known.
        line: Option<usize>,
        /// What is wrong and what to do.
        what: String,
    },
    /// Another one is at work.
    #[error("numapilot (process {pid}) already works with {}; steer that one with `numapilot ctl`, or name another folder with --state-dir", path.display())]
    Taken {
        /// The folder of state.
        path: PathBuf,
        /// The other's process; 0: unknown.
        pid: u32,
    },
    /// The daemon answers that it will not.
    #[error("{0}")]
    Refused(String),
    /// The daemon answers what cannot be understood.
    #[error("the answer from {address} cannot be understood ({what}); is another program listening there?")]
    Answer {
        /// Where it came from.
        address: String,
        /// What is wrong.
        what: String,
    },
    /// A journal that does not hold what was asked for.
    #[error("{0}")]
    NotInJournal(String),
    /// The system refuses something else.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

impl ServiceError {
    /// A failure on a file.
    #[must_use]
    pub fn file(path: &std::path::Path, doing: &'static str, source: io::Error) -> ServiceError {
        ServiceError::File { path: path.to_owned(), doing, source }
    }
}
