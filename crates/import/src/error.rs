//! The one error type of this crate. Every message names the file, what is wrong with it, and the next step.

use std::io;
use std::path::PathBuf;

use numapilot_perf::file::FileError;
use numapilot_trace::chunk::ChunkError;
use numapilot_trace::output::OutputError;
use thiserror::Error;

/// Why a recording of perf could not be imported.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The recording cannot be opened.
    #[error("{}: {source}; {remedy}", path.display())]
    Input {
        /// Path of the recording.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
        /// What the user can do about it.
        remedy: &'static str,
    },
    /// The machine that was named is not the one of the recording.
    #[error(
        "machine {machine} is not the one of the recording: {what}; name the model that `numapilot measure --model` wrote there, or leave out --machine"
    )]
    OtherMachine {
        /// Name of the machine that was named.
        machine: String,
        /// How they differ, as a clause.
        what: String,
    },
    /// It is no sound `perf.data`.
    #[error(transparent)]
    File(#[from] FileError),
    /// The trace cannot be written where it was to be.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The trace cannot be written.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
}
