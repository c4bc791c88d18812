//! The one error type of this crate. Every message names the file or option, what is wrong with it, and the next step.

use std::io;
use std::path::PathBuf;

use numapilot_apply::ApplyError;
use numapilot_launch::LaunchError;
use numapilot_perf_events::EventsError;
use numapilot_trace::engine::Engine;
use numapilot_trace::output::OutputError;
use thiserror::Error;

/// Why a program could not be recorded (or built for recording).
#[derive(Debug, Error)]
pub enum SourceError {
    /// The program cannot be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The plan cannot be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// An engine that was asked for by name refuses this program.
    #[error("engine {engine} cannot record {}: {reason}; {remedy}", path.display())]
    EngineRefused {
        /// The engine's name.
        engine: &'static str,
        /// The binary that would be recorded.
        path: PathBuf,
        /// What is wrong, as part of a sentence.
        reason: String,
        /// What the user can do about it.
        remedy: String,
    },
    /// An engine cannot work on this machine, whatever the program.
    #[error("engine {engine} does not work here: {reason}; {remedy}")]
    EngineUnavailable {
        /// The engine.
        engine: Engine,
        /// What is wrong, as part of a sentence.
        reason: String,
        /// What the user can do about it.
        remedy: String,
    },
    /// A known engine that cannot be given to `--engine`.
    #[error(
        "engine `{name}` is not available in this version; use `auto`, `instrument`, `emulate`, `pmu`, `fault` or `track`"
    )]
    EngineNotAvailable {
        /// The name as the user wrote it.
        name: String,
    },
    /// There is no engine of that name.
    #[error("unknown engine `{name}`; use `auto`, `instrument`, `emulate`, `pmu`, `fault` or `track`")]
    EngineUnknown {
        /// The name as the user wrote it.
        name: String,
    },
    /// An option's value is out of its range.
    #[error("{option}: {reason}; {remedy}")]
    Option {
        /// The option as on the command line.
        option: &'static str,
        /// What is wrong, as part of a sentence.
        reason: String,
        /// What the user can do about it.
        remedy: String,
    },
    /// The trace cannot be written where it was to be.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The machine cannot be simulated with the arena's fixed tables.
    #[error("machine {machine}: {reason}; {remedy}")]
    Machine {
        /// Name of the machine.
        machine: String,
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
    /// Events of the kernel cannot be opened.
    #[error(transparent)]
    Events(#[from] EventsError),
    /// The raw trace cannot be written.
    #[error(transparent)]
    Chunk(#[from] numapilot_trace::chunk::ChunkError),
}

impl SourceError {
    /// The exit status by which shells know this failure: 127 not found, 126 not executable, 2 for bad options, 1 otherwise.
    pub fn exit_code(&self) -> i32 {
        match self {
            SourceError::Launch(error) => error.exit_code(),
            SourceError::Apply(error) => error.exit_code(),
            SourceError::EngineNotAvailable { .. }
            | SourceError::EngineUnknown { .. }
            | SourceError::Option { .. }
            | SourceError::Machine { .. } => 2,
            SourceError::Events(error) => error.exit_code(),
            _ => 1,
        }
    }
}
