//! The one error type of this crate. Every message names what failed, what is wrong with it, and the next step.

use std::io;

use numapilot_launch::LaunchError;
use thiserror::Error;

/// Why a plan or a policy could not be applied.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The program cannot be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The plan says more than the planner library can read.
    #[error("--plan: {reason}; {remedy}")]
    Plan {
        /// What is wrong, as part of a sentence.
        reason: String,
        /// What the user can do about it.
        remedy: String,
    },
    /// The planner library could not be put in place.
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
}

impl ApplyError {
    /// The exit status by which shells know this failure: that of a program that cannot be started, 2 for a plan that cannot be compiled, 1 otherwise.
    pub fn exit_code(&self) -> i32 {
        match self {
            ApplyError::Launch(error) => error.exit_code(),
            ApplyError::Plan { .. } => 2,
            ApplyError::Runtime(_) | ApplyError::System { .. } => 1,
        }
    }
}
