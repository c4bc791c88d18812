//! Programs from descriptions: machine-independent phases, groups of threads, regions, and how groups access regions. TOML, documented in
//! `docs/simulator.md`; `workloads/synthetic/` has one for each class of behaviour that is published.

mod build;
mod file;
mod patterns;
mod source;

use std::path::Path;

use crate::error::SimulatorError;
use crate::program::Program;
use file::File;
use source::Source;

/// Descriptions are a few KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a description from a file.
///
/// # Errors
/// If it cannot be read, or is wrong (with its line).
pub fn load(path: &Path) -> Result<Program, SimulatorError> {
    let failed = |source| SimulatorError::Read { path: path.to_owned(), source };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > FILE_BYTES_MAX {
        return Err(failed(std::io::Error::other(format!(
            "it has {length} bytes, which is too large for a program description"
        ))));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    parse(&text, &path.display().to_string())
}

/// Reads a description; `file` is what errors and reports call it.
///
/// # Errors
/// If it is wrong, with its line.
pub fn parse(text: &str, file: &str) -> Result<Program, SimulatorError> {
    let source = Source { text, file };
    let raw: File = toml::from_str(text)
        .map_err(|error| source.error(error.span().unwrap_or(0..0), error.message().replace('\n', ", ")))?;
    build::program(&source, &raw)
}
