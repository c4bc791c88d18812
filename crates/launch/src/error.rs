//! The one error type of this crate. Every message names the file, what is wrong with it, and the next step.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a program could not be started.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// The command is empty.
    #[error("no program given; write it after `--`, as in `numapilot record -- ./program arguments`")]
    NoCommand,
    /// No file of that name, here or on PATH.
    #[error("{program}: not found{}",
        if *.on_path { format!(" in any folder of PATH; check the spelling, or give the path (`./{program}` for this folder)") }
        else { "; check the path".to_owned() })]
    NotFound {
        /// The program as the user wrote it.
        program: String,
        /// It was looked up on PATH (it has no slash).
        on_path: bool,
    },
    /// It exists, but cannot be executed.
    #[error("{}: {reason}; {remedy}", path.display())]
    NotExecutable {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong, as part of a sentence.
        reason: String,
        /// What the user can do about it.
        remedy: String,
    },
    /// The preload library could not be put in place.
    #[error(transparent)]
    Runtime(#[from] numapilot_runtime::UnpackError),
    /// The system refused an operation.
    #[error("{what}: {source}; {remedy}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
        /// What the user can do about it.
        remedy: &'static str,
    },
    /// One recording at a time per process: it owns signal handlers and children.
    #[error("this process is already recording; wait for that recording to end, or record from another process")]
    Busy,
}

impl LaunchError {
    /// The exit status by which shells know this failure: 127 not found, 126 not executable, 2 for no command, 1 otherwise.
    pub fn exit_code(&self) -> i32 {
        match self {
            LaunchError::NotFound { .. } => 127,
            LaunchError::NotExecutable { .. } => 126,
            LaunchError::NoCommand => 2,
            LaunchError::Runtime(_) | LaunchError::System { .. } | LaunchError::Busy => 1,
        }
    }
}
