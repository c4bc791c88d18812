//! The form of a trace at rest: one Parquet file per table in `NAME.numatrace/`, and `meta.json`, which is written last.
//!
//! Each table is one struct of columns here ([`AccessColumns`], [`ObjectColumns`], ...) with one row struct beside it; [`schema`] says how a
//! column is stored. Documented for outsiders in `docs/trace-format.md`. Files are checked against the sizes and checksums in `meta.json` before
//! they are parsed, so that damage gives an error and not wrong numbers.

mod dictionary;
mod element;
mod pages;
mod read;
mod rows;
pub mod schema;
mod write;

pub use element::{Cells, ColumnInput, ColumnOutput, Element, ReadFault, Values};
pub use read::{TableReader, TraceReader};
pub use rows::*;
pub use write::{Durability, FolderLock, TableWriter, TraceWriter};

use std::path::PathBuf;

/// What can go wrong with tables.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
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
    /// Not a folder with a `meta.json`.
    #[error(
        "{} has no meta.json, so its tables are not complete: if it has a raw/ folder, open it with `numapilot report` to rebuild them",
        .0.display()
    )]
    NotComplete(PathBuf),
    /// Its recorder is still at work.
    #[error("{} is still being recorded: open it when the recording has ended", .0.display())]
    StillRecording(PathBuf),
    /// `meta.json` cannot be used.
    #[error(transparent)]
    Meta(#[from] crate::meta::MetaError),
    /// A file is missing, cut, changed, or not Parquet.
    #[error("{}: {why}. The tables can be rebuilt from raw/: delete meta.json beside it and open the trace again", path.display())]
    Damaged {
        /// File.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A column is not there, or not of its type.
    #[error("{}: column `{column}` {why}: the file was not written by a compatible numapilot", path.display())]
    Column {
        /// File.
        path: PathBuf,
        /// Column.
        column: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A table was written twice.
    #[error("table `{0}` is written already")]
    WrittenTwice(&'static str),
    /// Parquet could not encode.
    #[error("cannot encode {}: {why}", path.display())]
    Encode {
        /// File.
        path: PathBuf,
        /// Why not.
        why: String,
    },
}

impl TableError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> TableError {
        let path = path.into();
        move |source| TableError::Io { action, path, source }
    }
}
