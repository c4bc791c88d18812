//! Errors of the lab: each message says what was tried, what happened, and the remedy.

use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// Why the lab did not run a command to its end.
#[derive(Debug, Error)]
pub enum LabError {
    /// The user disabled the lab.
    #[error("the lab was not used: NUMAPILOT_LAB=skip is set; unset it to run what needs a kernel with several nodes")]
    Skipped,
    /// A file or folder of the lab could not be read or written.
    #[error("{}: {what}: {error}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// A program that the set-up needs is missing.
    #[error("cannot run {program}: {error}; {remedy}")]
    Missing {
        /// Name of the program.
        program: String,
        /// The system's error.
        error: io::Error,
        /// What the user can do about it, as a clause of the message.
        remedy: &'static str,
    },
    /// A program of the set-up failed.
    #[error("{what} failed: {command}\n{output}\n{remedy}")]
    Failed {
        /// Purpose of the program.
        what: &'static str,
        /// The command line.
        command: String,
        /// The end of what it wrote.
        output: String,
        /// What the user can do about it, as a clause of the message.
        remedy: &'static str,
    },
    /// A downloaded file does not have the expected content.
    #[error("{}: {what}", path.display())]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
    /// A topology that QEMU or the kernel does not support.
    #[error("no such machine: {0}")]
    Topology(String),
    /// A command that cannot run in the guest.
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
    /// The guest, or its command, exceeded its time limit.
    #[error(
        "ended after {limit:?}: {what} ({how})\n--- standard error so far ---\n{stderr}\n--- console ---\n{console}"
    )]
    Hung {
        /// The time it was given.
        limit: Duration,
        /// The event that did not happen in time.
        what: &'static str,
        /// How the guest was run.
        how: String,
        /// The end of the command's standard error so far.
        stderr: String,
        /// The end of the guest's console.
        console: String,
    },
    /// A CPU of the guest no longer runs, because of a defect of the emulator.
    #[error(
        "CPU {cpu} of the guest has made no progress for {seconds} s, as its kernel reports ({how}); the emulator stopped running it: start the guest again\n\
         --- standard error so far ---\n{stderr}\n--- console ---\n{console}"
    )]
    Stuck {
        /// Number of the CPU.
        cpu: u32,
        /// Duration without progress in seconds, by the guest's clock.
        seconds: u64,
        /// How the guest was run.
        how: String,
        /// The end of the command's standard error so far.
        stderr: String,
        /// The end of the guest's console.
        console: String,
    },
    /// A CPU of the guest executed code that its kernel had replaced, because of a defect of the emulator.
    #[error(
        "a CPU of the guest executed a breakpoint at {place} that its kernel had already removed ({how}); the emulator ran an old translation: start the \
         guest again\n--- standard error so far ---\n{stderr}\n--- console ---\n{console}"
    )]
    StaleCode {
        /// Function of the kernel and offset in it.
        place: String,
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

impl LabError {
    /// Whether a defect of the emulator ended the guest: neither the command nor the guest's kernel did, and it may go well another time.
    #[must_use]
    pub fn is_emulators(&self) -> bool {
        matches!(self, LabError::Stuck { .. } | LabError::StaleCode { .. })
    }
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
