//! Where a recording goes: a new folder, with an older trace of that name kept as `NAME.old`, as perf does.
//!
//! A folder counts as a trace when it holds `raw/` or `meta.json`; nothing else is ever moved or deleted.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use thiserror::Error;

use crate::chunk::{Activity, activity};

/// Why a trace cannot be written where it was to be.
#[derive(Debug, Error)]
pub enum OutputError {
    /// The output exists and is not a numapilot trace, so it is not replaced.
    #[error("{}: exists and is not a numapilot trace, so it is left alone; give another name with `--output NAME.numatrace`", path.display())]
    Foreign {
        /// Path of the existing file or folder.
        path: PathBuf,
    },
    /// Another recording is writing there.
    #[error("{}: another recording is being written there; wait for its end, or give another name with `--output`", path.display())]
    Busy {
        /// Path of the folder.
        path: PathBuf,
    },
    /// The system refused an operation.
    #[error("{}: {source}; {remedy}", path.display())]
    Refused {
        /// Path of the file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
        /// What the user can do about it.
        remedy: &'static str,
    },
}

/// What becomes of an older trace with the output's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Kept as `NAME.old`; an older `NAME.old` goes.
    #[default]
    Rotate,
    /// The existing trace is replaced.
    Replace,
}

/// Makes `output` an empty folder; an existing trace there is handled as `existing` says.
///
/// # Errors
/// Something that is no trace is in the way, or the file system refuses.
pub fn prepare(output: &Path, existing: Existing) -> Result<(), OutputError> {
    let fail = |path: &Path, source: io::Error| OutputError::Refused {
        path: path.to_owned(),
        source,
        remedy: "check the folder's permissions and space, or give another place with `--output NAME.numatrace`",
    };
    match fs::symlink_metadata(output) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(fail(output, e)),
        Ok(_) if is_empty_folder(output) => return Ok(()),
        Ok(_) if !matches!(activity(output), Activity::Ended) => {
            return Err(OutputError::Busy { path: output.to_owned() });
        }
        Ok(_) if !is_trace(output) => return Err(OutputError::Foreign { path: output.to_owned() }),
        Ok(_) => match existing {
            Existing::Replace => fs::remove_dir_all(output).map_err(|e| fail(output, e))?,
            Existing::Rotate => {
                let old = old_name(output);
                if fs::symlink_metadata(&old).is_ok() {
                    if !is_trace(&old) && !is_empty_folder(&old) {
                        return Err(OutputError::Foreign { path: old });
                    }
                    fs::remove_dir_all(&old).map_err(|e| fail(&old, e))?;
                }
                fs::rename(output, &old).map_err(|e| fail(output, e))?;
            }
        },
    }
    fs::create_dir_all(output).map_err(|e| fail(output, e))
}

/// Removes a folder that `prepare` made, if the program could not be started: no empty trace is left behind.
pub fn discard(output: &Path) {
    if is_trace(output) || is_empty_folder(output) {
        let _ = fs::remove_dir_all(output);
    }
}

/// `NAME.numatrace.old` for `NAME.numatrace`.
pub fn old_name(output: &Path) -> PathBuf {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".old");
    output.with_file_name(name)
}

fn is_trace(path: &Path) -> bool {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|m| m.is_dir());
    is_folder && (path.join("raw").is_dir() || path.join("meta.json").is_file())
}

fn is_empty_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| m.is_dir())
        && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

#[cfg(test)]
mod tests {
    //! What is replaced, what is kept, what is left alone.

    use super::*;

    fn trace(path: &Path, mark: &str) {
        fs::create_dir_all(path.join("raw")).unwrap();
        fs::write(path.join("raw").join("mark"), mark).unwrap();
    }

    #[test]
    fn an_older_trace_is_rotated_and_only_one_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.numatrace");
        for mark in ["first", "second", "third"] {
            prepare(&output, Existing::Rotate).unwrap();
            assert!(is_empty_folder(&output));
            trace(&output, mark);
        }
        assert_eq!(fs::read_to_string(old_name(&output).join("raw/mark")).unwrap(), "second");
        prepare(&output, Existing::Replace).unwrap();
        assert_eq!(fs::read_to_string(old_name(&output).join("raw/mark")).unwrap(), "second");
    }

    #[test]
    fn what_is_no_trace_is_left_alone_even_by_force() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("thesis");
        fs::create_dir(&output).unwrap();
        fs::write(output.join("chapter-1"), "words").unwrap();
        for existing in [Existing::Rotate, Existing::Replace] {
            assert!(matches!(prepare(&output, existing), Err(OutputError::Foreign { .. })));
        }
        discard(&output);
        assert_eq!(fs::read_to_string(output.join("chapter-1")).unwrap(), "words");
        let file = folder.path().join("file");
        fs::write(&file, "words").unwrap();
        assert!(matches!(prepare(&file, Existing::Replace), Err(OutputError::Foreign { .. })));
        let output = folder.path().join("b.numatrace");
        trace(&output, "new");
        fs::write(old_name(&output), "a file of the user's").unwrap();
        assert!(matches!(prepare(&output, Existing::Rotate), Err(OutputError::Foreign { .. })));
        assert!(output.join("raw/mark").is_file());
    }
}
