//! Errors of reading a machine: each message names the file, the place in it, and the remedy.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Errors of reading the description of a machine.
#[derive(Debug, Error)]
pub enum MachineError {
    /// The argument is neither a model's name, nor a file, nor `live`.
    #[error(
        "there is no machine model {name:?}{}; known: {}, `live` for this machine, or the path of a model file (docs/machine-model.md)",
        closest.as_ref().map(|c| format!(" (did you mean {c:?}?)")).unwrap_or_default(),
        known.join(", ")
    )]
    UnknownName {
        /// The name that was given.
        name: String,
        /// The known name with the smallest edit distance, if one is close.
        closest: Option<String>,
        /// Names of all built-in models.
        known: Vec<String>,
    },
    /// A file could not be read.
    #[error("cannot read {}: {error}; {remedy}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
        /// What the user can do about it, as a clause of the message.
        remedy: String,
    },
    /// A kernel file does not have the kernel's format.
    #[error("{}: {what}; {remedy}", path.display())]
    Sysfs {
        /// The file.
        path: PathBuf,
        /// What is wrong, as a clause of the message.
        what: String,
        /// What the user can do about it, as a clause of the message.
        remedy: String,
    },
    /// A model file is not TOML, or not of the model's shape.
    #[error("{file}{}: {what}; docs/machine-model.md describes the format", line.map(|l| format!(":{l}")).unwrap_or_default())]
    Syntax {
        /// The file, or `built-in model NAME`.
        file: String,
        /// Line, from 1.
        line: Option<usize>,
        /// Message of the TOML reader.
        what: String,
    },
    /// A description is inconsistent or impossible.
    #[error("{file}{}: {place}: {what}; {remedy}", line.map(|l| format!(":{l}")).unwrap_or_default())]
    Invalid {
        /// The file, or `built-in model NAME`.
        file: String,
        /// Line, from 1, of the table or value.
        line: Option<usize>,
        /// Path of the table or value in the TOML file.
        place: String,
        /// What is wrong, as a clause of the message.
        what: String,
        /// What the user can do about it, as a clause of the message.
        remedy: String,
    },
}

/// An inconsistency in a machine's parts, found before the file is known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {what}; {remedy}")]
pub struct Problem {
    /// Path of the table or value in the TOML file.
    pub place: String,
    /// What is wrong, as a clause of the message.
    pub what: String,
    /// What the user can do about it, as a clause of the message.
    pub remedy: String,
}

impl Problem {
    /// Makes a problem at `place`.
    pub fn new(place: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into(), remedy: remedy.into() }
    }

    /// Adds the file, and the line where that is known.
    pub fn in_file(self, file: &str, line: Option<usize>) -> MachineError {
        MachineError::Invalid { file: file.to_owned(), line, place: self.place, what: self.what, remedy: self.remedy }
    }
}
