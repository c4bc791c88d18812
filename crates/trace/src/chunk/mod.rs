//! The raw form of a trace: append-only files of checksummed chunks, `NAME.numatrace/raw/NNNNN.chunks`.
//!
//! Each chunk holds a run of whole records of one ring together with the stamps' bases at its first byte, so it can be decoded by
//! itself. A recording that was killed at any instant is readable up to its last whole chunk; a chunk whose checksum does not match is
//! passed over and reported, and reading goes on. Format: `docs/trace-format.md`, section "raw/".

mod format;
mod merge;
mod reader;
mod recorder;
mod session;
mod writer;

pub use format::{ChunkHeader, ChunkKind, Compression, HEADER_BYTES, MAX_RAW_BYTES};
pub use merge::Merge;
pub use reader::{Damage, Problem, RawTrace, RingId, RingReader};
pub use recorder::{Activity, RECORDER_FILE, Recorder, activity};
pub use session::{SessionEnd, SessionStart};
pub use writer::{ChunkWriter, WriterOptions};

use std::path::PathBuf;

/// Folder of the chunk files in a trace's folder.
pub const RAW_FOLDER: &str = "raw";

/// What can go wrong with chunk files.
#[derive(Debug, thiserror::Error)]
pub enum ChunkError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// There is no raw trace here.
    #[error("{} holds no raw trace (no *.chunks file): give the NAME.numatrace folder that `numapilot record` wrote", .0.display())]
    NoChunks(PathBuf),
    /// There already is one.
    #[error("{} already holds a recording: choose another output name or remove it", .0.display())]
    Exists(PathBuf),
    /// No readable session header, so nothing says what the stamps mean.
    #[error(
        "{}: the session header is missing or damaged, so stamps cannot be converted to time: record again", .0.display()
    )]
    NoSession(PathBuf),
    /// Written by a newer version.
    #[error("{} has chunk format {version}, and this numapilot reads up to {supported}: use a newer numapilot", path.display())]
    Version {
        /// File.
        path: PathBuf,
        /// Its version.
        version: u8,
        /// What this build reads.
        supported: u8,
    },
    /// A message too large for a chunk.
    #[error("a chunk of {bytes} bytes is larger than the format's limit of {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

impl ChunkError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> ChunkError {
        let path = path.into();
        move |source| ChunkError::Io { action, path, source }
    }
}
