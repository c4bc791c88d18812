//! What can go wrong between a trace on disk and flows in memory.

use std::path::PathBuf;

use numapilot_trace::chunk::{ChunkError, Recorder};
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
    /// Its recorder is still at work.
    #[error(
        "{} is still being recorded{}: open it when the recording has ended; the recorder's process ends it on an interrupt (Ctrl-C, `kill -INT`)",
        path.display(),
        by(recorder)
    )]
    StillRecording {
        /// The trace.
        path: PathBuf,
        /// Who records.
        recorder: Recorder,
    },
    /// Nobody can tell whether its recorder is still at work.
    #[error(
        "{} was being recorded{} on {}, and its file system has no locks that would tell whether that goes on: open it there, or, if that process has \
         ended, remove raw/recorder.json in it",
        path.display(),
        by(recorder),
        recorder.host
    )]
    MayBeRecording {
        /// The trace.
        path: PathBuf,
        /// Who recorded.
        recorder: Recorder,
    },
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

/// ` by process N`, where that is known.
fn by(recorder: &Recorder) -> String {
    if recorder.pid == 0 { String::new() } else { format!(" by process {}", recorder.pid) }
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
