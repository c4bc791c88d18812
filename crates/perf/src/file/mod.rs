//! `perf.data`: what `perf record` writes, in both of its forms (file, and stream for pipes), in both byte orders, compressed or not.
//! `tools/perf/Documentation/perf.data-file-format.txt` of the kernel's sources describes it.
//!
//! Damage costs what it hit: [`Walker`] finds where records go on behind it, and counts what it skipped ([`Damage`]).
//!
//! [`Walker`] gives the records in the order of the file, with the events and the facts about the machine beside it. The crate for this
//! (`linux-perf-data`) gives neither the place of a record in the file, which our messages name, nor the traces of AUX buffers.

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
    /// The system refused.
    #[error("{}: at byte {offset}: cannot be read: {source}", path.display())]
    Io {
        /// File.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Another kind of file.
    #[error("{}: is no perf.data (it does not begin with PERFILE2): give the file that `perf record` wrote", .0.display())]
    NotPerfData(PathBuf),
    /// Nothing in it.
    #[error("{}: is empty: perf wrote nothing into it, or its copy failed; record again, and end perf with Ctrl-C rather than `kill -9`", .0.display())]
    Empty(PathBuf),
    /// The format before Linux 3.4.
    #[error("{}: is in version 1 of the format (PERFFILE), which perf wrote before Linux 3.4 and which is not read here; record again with a newer perf",
        .0.display())]
    Version1(PathBuf),
    /// A packed file.
    #[error("{}: was compressed as a whole by {tool}: unpack it first (`{command} <FILE >unpacked.data`)", path.display())]
    Packed {
        /// File.
        path: PathBuf,
        /// What packed it.
        tool: &'static str,
        /// What unpacks it.
        command: &'static str,
    },
    /// The file contradicts itself or the format.
    #[error("{}: {error}; the file is damaged: record again, or copy it again if it came from another machine", path.display())]
    Malformed {
        /// File.
        path: PathBuf,
        /// What, and where.
        error: DecodeError,
    },
    /// A folder, but none that `perf record --threads` writes.
    #[error("{}: is a folder without the file `data` that `perf record --threads` writes; give the file or folder that perf wrote", .0.display())]
    Folder(PathBuf),
}
