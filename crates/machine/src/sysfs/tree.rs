//! Files under a root prefix: bounded reads, "missing" told apart from "nonsense", and errors that name the file.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use numapilot_host::Root;

use crate::cpulist::parse_cpu_list;
use crate::error::MachineError;
use crate::hardware::{Figure, FigureValue};

/// Kernel files that we read are far smaller; `/proc/cpuinfo` of a thousand CPUs is 1.5 MiB and only its head is wanted.
const READ_MAX: u64 = 256 * 1024;

/// A figure that a kernel file gave.
pub fn figure(place: &str, value: f64, unit: &str, source: &str) -> Figure {
    let value = FigureValue::Number(value);
    Figure {
        place: place.to_owned(),
        value,
        unit: unit.to_owned(),
        source: source.to_owned(),
        estimate: false,
        range: None,
    }
}

/// A root prefix, and what could not be read below it.
pub struct Tree {
    root: Root,
    pub notes: Vec<String>,
}

impl Tree {
    pub fn new(root: &Path) -> Self {
        Self { root: Root::new(root), notes: Vec::new() }
    }

    /// The full path of a file.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    /// An error about a file's content.
    pub fn malformed(&self, relative: &str, what: impl Into<String>) -> MachineError {
        MachineError::Sysfs {
            path: self.path(relative),
            what: what.into(),
            remedy: "the kernel never writes this: check what is mounted there, or use a model (`--machine NAME`)"
                .to_owned(),
        }
    }

    /// An error about a machine that is larger than this version can describe.
    pub fn too_large(&self, relative: &str, what: String, most: usize) -> MachineError {
        MachineError::Sysfs {
            path: self.path(relative),
            what,
            remedy: format!("this version describes machines with up to {most}; please report yours"),
        }
    }

    /// A file's text, trimmed. `None` if it is not there; also, with a note, if the system refuses to read it.
    pub fn text(&mut self, relative: &str) -> Result<Option<String>, MachineError> {
        let path = self.path(relative);
        let mut bytes = Vec::new();
        match File::open(&path).and_then(|file| file.take(READ_MAX).read_to_end(&mut bytes)) {
            Ok(_) => match String::from_utf8(bytes) {
                Ok(text) => Ok(Some(text.trim().to_owned())),
                // A cut in the middle of a character at the bound is no nonsense.
                Err(error) if error.utf8_error().error_len().is_none() => {
                    let valid = error.utf8_error().valid_up_to();
                    Ok(Some(String::from_utf8_lossy(&error.as_bytes()[..valid]).trim().to_owned()))
                }
                Err(_) => Err(self.malformed(relative, "it is not text")),
            },
            Err(error) if error.kind() == ErrorKind::NotFound || error.kind() == ErrorKind::NotADirectory => Ok(None),
            Err(error) => {
                self.notes
                    .push(format!("{} could not be read ({error}), therefore its value is unknown.", path.display()));
                Ok(None)
            }
        }
    }

    /// Reads a whole number; `None` if the file does not exist.
    pub fn number(&mut self, relative: &str) -> Result<Option<u64>, MachineError> {
        let Some(text) = self.text(relative)? else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|_| self.malformed(relative, format!("{:?} is not a whole number", shortened(&text))))
    }

    /// A list of ids (`0-3,8`).
    pub fn list(&mut self, relative: &str) -> Result<Option<Vec<u32>>, MachineError> {
        let Some(text) = self.text(relative)? else { return Ok(None) };
        parse_cpu_list(&text).map(Some).map_err(|error| self.malformed(relative, error.to_string()))
    }

    /// Names in a folder, sorted; empty if it is not there.
    pub fn names(&self, relative: &str) -> Vec<String> {
        self.root.names(relative)
    }

    /// The numbers N of a folder's entries called `prefixN`, ascending.
    pub fn numbered(&self, relative: &str, prefix: &str) -> Vec<u32> {
        let digits = |name: String| {
            let digits = name.strip_prefix(prefix)?;
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
        };
        let mut numbers: Vec<u32> = self.names(relative).into_iter().filter_map(digits).collect();
        numbers.sort_unstable();
        numbers
    }
}

/// Enough of a text to recognise it in a message.
pub fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}
