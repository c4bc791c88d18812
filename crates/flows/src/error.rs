//! What can go wrong between a trace on disk and flows in memory.

use std::path::PathBuf;

use numapilot_trace::chunk::{ChunkError, Recorder};
use numapilot_trace::ids::Pid;
use numapilot_trace::tables::TableError;

/// An error while finalising or opening a trace.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// The raw form (`raw/`) cannot be read.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// The tables cannot be read or written.
    #[error(transparent)]
    Table(#[from] TableError),
    /// There is nothing at that path.
    #[error(
        "{} does not exist: give the NAME.numatrace folder that `numapilot record` wrote (its last line names it; a recording that failed leaves none)",
        .0.display()
    )]
    NoSuchPath(PathBuf),
    /// The folder holds no trace.
    #[error("{} is not a trace: give the NAME.numatrace folder that `numapilot record` wrote", .0.display())]
    NotATrace(PathBuf),
    /// The recorder of the trace is still running.
    #[error(
        "{} is still being recorded{}: open it when the recording has ended; Ctrl-C, or `numapilot record --stop {}`, ends it",
        path.display(),
        by(recorder),
        path.display()
    )]
    StillRecording {
        /// The trace.
        path: PathBuf,
        /// The process that records it.
        recorder: Recorder,
    },
    /// The recorder ran on another host, and without file locks it is unknown whether it is still running.
    #[error(
        "{} was being recorded{} on {}, and its file system supports no file locks, so it is unknown whether the recording is still running: open the \
         trace on that host, or, if the recorder has ended, remove raw/recorder.json in the trace",
        path.display(),
        by(recorder),
        recorder.host
    )]
    MayBeRecording {
        /// The trace.
        path: PathBuf,
        /// The process that recorded it.
        recorder: Recorder,
    },
    /// The tables contradict each other.
    #[error(
        "{}: {why}. If the trace has a raw/ folder, delete meta.json and open the trace again to rebuild the tables", path.display()
    )]
    Inconsistent {
        /// The trace.
        path: PathBuf,
        /// What is wrong, as a clause of the message.
        why: String,
    },
    /// More rows than a trace in memory can hold.
    #[error("{} has {rows} accesses; at most 4,294,967,294 can be opened at once", path.display())]
    TooLarge {
        /// The trace.
        path: PathBuf,
        /// Rows of its table `accesses`.
        rows: u64,
    },
    /// A worker thread panicked.
    #[error("internal error while reading or writing the tables of {}; please report it", .0.display())]
    Worker(PathBuf),
}

impl FlowError {
    /// Whether the system refused to read or write a file: nothing is known to be wrong with the trace then.
    #[must_use]
    pub fn is_io(&self) -> bool {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            if error.is::<std::io::Error>() {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

/// ` by process N`, where that is known.
fn by(recorder: &Recorder) -> String {
    if recorder.pid == Pid(0) { String::new() } else { format!(" by process {}", recorder.pid) }
}

/// An error while finalising a recording that is read piece by piece.
#[derive(Debug, thiserror::Error)]
pub enum StreamError<E> {
    /// The source cannot be read.
    #[error(transparent)]
    Source(E),
    /// The trace cannot be written.
    #[error(transparent)]
    Flow(#[from] FlowError),
}
