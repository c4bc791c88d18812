//! The raw form of a trace: append-only files of checksummed chunks, `NAME.numatrace/raw/NNNNN.chunks`.
//!
//! Each chunk holds a run of whole records of one ring together with the stamps' bases at its first byte, so it can be decoded by
//! itself. A recording whose recorder was killed is readable up to its last whole chunk. The reader skips and reports a chunk whose checksum
//! does not match, and continues after it. Format: `docs/trace-format.md`, section "raw/".

mod format;
mod generated;
mod merge;
mod reader;
mod recorder;
mod session;
mod writer;

pub use format::{ChunkHeader, ChunkKind, Compression, HEADER_BYTES, MAX_RAW_BYTES};
pub use generated::{GeneratedCode, GeneratedFunction};
pub use merge::Merge;
pub use reader::{Damage, Problem, RawTrace, RingId, RingReader};
pub(crate) use recorder::running_for;
pub use recorder::{Activity, RECORDER_FILE, Recorder, activity};
pub use session::{SessionEnd, SessionStart};
pub use writer::{ChunkWriter, WriterOptions};

use std::path::PathBuf;

/// Folder of the chunk files in a trace's folder.
pub const RAW_FOLDER: &str = "raw";

/// An error while reading or writing chunk files.
#[derive(Debug, thiserror::Error)]
pub enum ChunkError {
    /// A system call failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb: `open`, `read`, `write to`.
        action: &'static str,
        /// File or folder of the operation.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The folder holds no raw trace.
    #[error("{} holds no raw trace (no *.chunks file): give the NAME.numatrace folder that `numapilot record` wrote", .0.display())]
    NoChunks(PathBuf),
    /// The folder already holds a recording.
    #[error("{} already holds a recording: choose another output name or remove it", .0.display())]
    Exists(PathBuf),
    /// No session header can be read, so stamps cannot be converted to time.
    #[error(
        "{}: the session header is missing or damaged, so stamps cannot be converted to time: record again", .0.display()
    )]
    NoSession(PathBuf),
    /// A newer numapilot wrote the chunks.
    #[error("{} has chunk format {version}, and this numapilot reads up to {supported}: use a newer numapilot", path.display())]
    Version {
        /// The chunk file.
        path: PathBuf,
        /// Version of its chunks.
        version: u8,
        /// Newest version that this build reads.
        supported: u8,
    },
    /// The payload is too large for a chunk.
    #[error("a chunk of {bytes} bytes is larger than the format's limit of {limit}")]
    TooLarge {
        /// Size of the payload.
        bytes: usize,
        /// Most bytes of a payload.
        limit: usize,
    },
}

impl ChunkError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> ChunkError {
        let path = path.into();
        move |source| ChunkError::Io { action, path, source }
    }
}
