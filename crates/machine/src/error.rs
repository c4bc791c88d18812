//! What can go wrong in reading a machine: each message names the file, the place in it, and what to do.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a machine could not be had.
#[derive(Debug, Error)]
pub enum MachineError {
    /// Neither a model's name, nor a file, nor `live`.
    #[error(
        "no machine model is called {name:?}{}; known: {}, `live` for this machine, or the path of a model file (docs/machine-model.md)",
        closest.as_ref().map(|c| format!(" (did you mean {c:?}?)")).unwrap_or_default(),
        known.join(", ")
    )]
    UnknownName {
        /// What was asked for.
        name: String,
        /// The known name nearest to it, if any is near.
        closest: Option<String>,
        /// All known names.
        known: Vec<String>,
    },
    /// A file could not be read.
    #[error("cannot read {}: {error}; {remedy}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
        /// What to do.
        remedy: String,
    },
    /// A kernel file holds what no kernel writes.
    #[error("{}: {what}; {remedy}", path.display())]
    Sysfs {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// A model file is not TOML, or not of the model's shape.
    #[error("{file}{}: {what}; docs/machine-model.md describes the format", line.map(|l| format!(":{l}")).unwrap_or_default())]
    Syntax {
        /// The file, or `built-in model NAME`.
        file: String,
        /// Line, from 1.
        line: Option<usize>,
        /// What the reader says.
        what: String,
    },
    /// A description contradicts itself or cannot be.
    #[error("{file}{}: {place}: {what}; {remedy}", line.map(|l| format!(":{l}")).unwrap_or_default())]
    Invalid {
        /// The file, or `built-in model NAME`.
        file: String,
        /// Line, from 1, of the table or value.
        line: Option<usize>,
        /// TOML path.
        place: String,
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
}

/// A contradiction found in a machine's parts, before the file is known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {what}; {remedy}")]
pub struct Problem {
    /// TOML path.
    pub place: String,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl Problem {
    /// A problem at `place`.
    pub fn new(place: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into(), remedy: remedy.into() }
    }

    /// The same with the file, and the line where that is known.
    pub fn in_file(self, file: &str, line: Option<usize>) -> MachineError {
        MachineError::Invalid { file: file.to_owned(), line, place: self.place, what: self.what, remedy: self.remedy }
    }
}
