//! What can go wrong between a trace on disk and flows in memory.

use std::path::PathBuf;

use numapilot_trace::chunk::ChunkError;
use numapilot_trace::tables::TableError;

/// Errors of finalising and opening a trace.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// The raw form cannot be used.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// The tables cannot be used.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Not a trace at all.
    #[error("{} is no trace: give the NAME.numatrace folder that `numapilot record` wrote", .0.display())]
    NotATrace(PathBuf),
    /// The tables contradict each other.
    #[error(
        "{}: {why}. If the trace has a raw/ folder, delete meta.json and open the trace again to rebuild the tables", path.display()
    )]
    Inconsistent {
        /// The trace.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// More rows than a trace in memory can hold.
    #[error("{} has {rows} accesses; at most 4,294,967,294 can be opened at once", path.display())]
    TooLarge {
        /// The trace.
        path: PathBuf,
        /// Its rows.
        rows: u64,
    },
    /// A helper thread died.
    #[error("writing the tables of {} ended in a programming error; please report it", .0.display())]
    Worker(PathBuf),
}

/// Errors of finalising a recording that is read piece by piece.
#[derive(Debug, thiserror::Error)]
pub enum StreamError<E> {
    /// The recording's own.
    #[error(transparent)]
    Source(E),
    /// The trace's.
    #[error(transparent)]
    Flow(#[from] FlowError),
}
