//! Errors of plans: each message names the file, the line and a remedy.

use std::path::PathBuf;

use thiserror::Error;

/// Why a plan cannot be used.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The file cannot be read.
    #[error("{}: cannot be read ({error}); give the path of a plan file (docs/plan-format.md)", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The text is not a valid plan.
    #[error("{file}:{line}: {what}; {remedy}")]
    Invalid {
        /// The file, as the user named it.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong, as a clause of the message.
        what: String,
        /// What to do about it.
        remedy: String,
    },
    /// The plan names nodes or CPUs that the machine does not have.
    #[error("{file}:{line}: {what}; {remedy}")]
    Misfit {
        /// The file, as the user named it.
        file: String,
        /// Line of the rule, from 1; 0: the rule was not read from a file.
        line: usize,
        /// What the machine lacks.
        what: String,
        /// What to do about it.
        remedy: String,
    },
}
