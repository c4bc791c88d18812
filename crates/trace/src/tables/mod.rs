//! The tables of a finished trace: one Parquet file per table in `NAME.numatrace/`, and `meta.json`, which is written last.
//!
//! Each table is one struct of columns here ([`AccessColumns`], [`ObjectColumns`], ...) with one row struct beside it; [`schema`] defines how a
//! column is stored. `docs/trace-format.md` documents the format. Files are checked against the sizes and checksums in `meta.json` before they
//! are parsed, so that damage gives an error instead of wrong numbers.

mod claims;
mod dictionary;
mod element;
mod held;
mod pages;
mod read;
mod rows;
pub mod schema;
mod write;

pub use element::{Cells, ColumnInput, ColumnOutput, Element, ReadFault, Values};
pub use read::{TableReader, TraceReader};
pub use rows::*;
pub(crate) use write::is_temporary;
pub use write::{Durability, FolderLock, TableWriter, TraceWriter};

use std::path::PathBuf;

/// An error while reading or writing tables.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A system call failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb: `open`, `read`, `rename`.
        action: &'static str,
        /// File or folder of the operation.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The folder has no `meta.json`.
    #[error(
        "{} has no meta.json, so its tables are not complete: if it has a raw/ folder, open it with `numapilot report` to rebuild them",
        .0.display()
    )]
    NotComplete(PathBuf),
    /// The recorder of the trace is still running.
    #[error("{} is still being recorded: open it when the recording has ended", .0.display())]
    StillRecording(PathBuf),
    /// `meta.json` cannot be read or written.
    #[error(transparent)]
    Meta(#[from] crate::meta::MetaError),
    /// A table's file is missing, truncated, changed, or not Parquet.
    #[error(
        "{}: {why}. If the trace has a raw/ folder, delete meta.json and open the trace again to rebuild the tables", path.display()
    )]
    Damaged {
        /// The table's file.
        path: PathBuf,
        /// What is wrong with it; completes a sentence whose subject is the file.
        why: String,
    },
    /// A column is missing, or has another type.
    #[error("{}: column `{column}` {why}: the file was not written by a compatible numapilot", path.display())]
    Column {
        /// The table's file.
        path: PathBuf,
        /// Name of the column.
        column: &'static str,
        /// What is wrong with it; completes a sentence whose subject is the column.
        why: String,
    },
    /// A table was written twice.
    #[error("table `{0}` was already written")]
    WrittenTwice(&'static str),
    /// The rows cannot be encoded as Parquet.
    #[error("cannot encode {}: {why}", path.display())]
    Encode {
        /// The table's file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

impl TableError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> TableError {
        let path = path.into();
        move |source| TableError::Io { action, path, source }
    }
}
