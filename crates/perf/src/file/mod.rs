//! `perf.data`: what `perf record` writes, in both of its forms (file, and stream for pipes), in both byte orders, compressed or not.
//! `tools/perf/Documentation/perf.data-file-format.txt` of the kernel's sources describes it.
//!
//! Damage costs only the damaged records: [`Walker`] finds where records continue after it, and counts what it skipped ([`Damage`]).
//!
//! [`Walker`] returns the records in the order of the file, and the descriptions of the events and the machine. Why it is not the crate `linux-perf-data`:
//! `docs/design/0010-own-code-or-library.md`.

mod block;
mod expand;
mod features;
mod header;
mod resync;
mod walker;

pub use features::{CacheFact, Features, MemoryNode, NodeFact, feature};
pub use resync::Damage;
pub use walker::{Item, Part, Walker};

use std::path::PathBuf;

use thiserror::Error;

use crate::error::DecodeError;

/// Why a file cannot be read.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("{}: at byte {offset}: cannot be read: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Byte offset at which reading failed.
        offset: u64,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file does not begin with perf.data's magic number.
    #[error("{}: is not a perf.data file (it does not begin with PERFILE2): give the file that `perf record` wrote", .0.display())]
    NotPerfData(PathBuf),
    /// The file is empty.
    #[error("{}: is empty: perf wrote nothing into it, or its copy failed; record again, and end perf with Ctrl-C rather than `kill -9`", .0.display())]
    Empty(PathBuf),
    /// The format before Linux 3.4.
    #[error("{}: is in version 1 of the format (PERFFILE), which perf wrote before Linux 3.4 and which numapilot does not read; record again with a newer perf",
        .0.display())]
    Version1(PathBuf),
    /// The file is compressed as a whole.
    #[error("{}: was compressed as a whole by {tool}: unpack it first (`{command} <FILE >unpacked.data`)", path.display())]
    Packed {
        /// Path of the file.
        path: PathBuf,
        /// The tool that compressed the file.
        tool: &'static str,
        /// The command that decompresses it.
        command: &'static str,
    },
    /// The file contradicts itself or the format.
    #[error("{}: {error}; the file is damaged: record again, or copy it again if it came from another machine", path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong, and at which byte.
        error: DecodeError,
    },
    /// A folder, but none that `perf record --threads` writes.
    #[error("{}: is a folder without the file `data` that `perf record --threads` writes; give the file or folder that perf wrote", .0.display())]
    Folder(PathBuf),
}
