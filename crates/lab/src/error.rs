//! What can go wrong with the lab: each message says what was tried, what came of it, and what to do.

use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// Why the lab did not run a command to its end.
#[derive(Debug, Error)]
pub enum LabError {
    /// The user asked for a run without it.
    #[error("the lab was not used: NUMAPILOT_LAB=skip is set; unset it to run what needs a kernel with several nodes")]
    Skipped,
    /// A file or folder of the lab could not be read or written.
    #[error("{}: {what}: {error}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What was being done with it.
        what: &'static str,
        /// The system's answer.
        error: io::Error,
    },
    /// A program that the set-up needs is missing.
    #[error("cannot run {program}: {error}; {remedy}")]
    Missing {
        /// Its name.
        program: String,
        /// The system's answer.
        error: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A program of the set-up failed.
    #[error("{what} failed: {command}\n{output}\n{remedy}")]
    Failed {
        /// What it was to do.
        what: &'static str,
        /// The command line.
        command: String,
        /// The end of what it wrote.
        output: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Something that was downloaded is not as expected.
    #[error("{}: {what}", path.display())]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
    /// A machine that QEMU or the kernel cannot have.
    #[error("no such machine: {0}")]
    Topology(String),
    /// A command that the guest cannot be given.
    #[error("cannot run this in the lab: {0}")]
    Command(String),
    /// QEMU or the guest ended before the command did.
    #[error("the guest ended before its command did ({how})\n--- console ---\n{console}")]
    Died {
        /// How the guest was run.
        how: String,
        /// The end of its console and of what QEMU wrote.
        console: String,
    },
    /// The guest, or its command, took longer than it was given.
    #[error(
        "ended after {limit:?}: {what} ({how})\n--- standard error so far ---\n{stderr}\n--- console ---\n{console}"
    )]
    Hung {
        /// The time it was given.
        limit: Duration,
        /// What was waited for.
        what: &'static str,
        /// How the guest was run.
        how: String,
        /// The end of the command's standard error so far.
        stderr: String,
        /// The end of the guest's console.
        console: String,
    },
    /// A CPU of the guest no longer runs; the emulator has lost it.
    #[error(
        "CPU {cpu} of the guest has made no progress for {seconds} s, as its kernel says ({how}); the emulator lost a CPU, which starting anew mends\n\
         --- standard error so far ---\n{stderr}\n--- console ---\n{console}"
    )]
    Stuck {
        /// Which.
        cpu: u32,
        /// For how long, by the guest's clock.
        seconds: u64,
        /// How the guest was run.
        how: String,
        /// The end of the command's standard error so far.
        stderr: String,
        /// The end of the guest's console.
        console: String,
    },
    /// QEMU's monitor answered with an error.
    #[error("QEMU's monitor: {0}")]
    Monitor(String),
}

/// Gives a system error its file and what was being done.
pub(crate) trait AtPath<T> {
    /// The same result; an error names `path` and `what`.
    fn at(self, path: &Path, what: &'static str) -> Result<T, LabError>;
}

impl<T> AtPath<T> for io::Result<T> {
    fn at(self, path: &Path, what: &'static str) -> Result<T, LabError> {
        self.map_err(|error| LabError::File { path: path.to_path_buf(), what, error })
    }
}
