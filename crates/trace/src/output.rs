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

/// Room for a new trace, which [`prepare`] made. Dropped without [`Room::keep`], it takes back the new trace, and the older one has its name again.
#[must_use]
#[derive(Debug)]
pub struct Room {
    output: PathBuf,
    /// Whether the folder is the new trace's.
    is_made: bool,
    /// Older traces that were renamed, in this order.
    moved: Vec<Moved>,
}

#[derive(Debug)]
struct Moved {
    from: PathBuf,
    to: PathBuf,
    /// Whether it goes once the new trace is there.
    goes: bool,
}

/// A trace that is written beside the place where it belongs. Dropped before [`Pending::complete`], it goes, and what is at that place stays.
#[must_use]
#[derive(Debug)]
pub struct Pending {
    output: PathBuf,
    existing: Existing,
    folder: PathBuf,
    is_complete: bool,
}

/// Makes `output` an empty folder; an existing trace there is handled as `existing` says.
///
/// # Errors
/// Something that is no trace is in the way, or the file system refuses. Everything is as it was then.
pub fn prepare(output: &Path, existing: Existing) -> Result<Room, OutputError> {
    check(output, existing)?;
    let mut room = Room { output: output.to_owned(), is_made: false, moved: Vec::new() };
    if fs::symlink_metadata(output).is_ok() && !is_empty_folder(output) {
        match existing {
            Existing::Replace => room.rename(output, beside(output, "replaced"), true)?,
            Existing::Rotate => {
                let old = old_name(output);
                if fs::symlink_metadata(&old).is_ok() {
                    room.rename(&old, beside(&old, "replaced"), true)?;
                }
                room.rename(output, old, false)?;
            }
        }
    }
    room.is_made = true;
    fs::create_dir_all(output).map_err(refused(output))?;
    Ok(room)
}

/// Fails where [`prepare`] would because of what is there.
fn check(output: &Path, existing: Existing) -> Result<(), OutputError> {
    match fs::symlink_metadata(output) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(refused(output)(e)),
        Ok(_) if is_empty_folder(output) => return Ok(()),
        Ok(_) if !matches!(activity(output), Activity::Ended) => {
            return Err(OutputError::Busy { path: output.to_owned() });
        }
        Ok(_) if !is_trace(output) => return Err(OutputError::Foreign { path: output.to_owned() }),
        Ok(_) => {}
    }
    let old = old_name(output);
    let is_in_the_way = fs::symlink_metadata(&old).is_ok() && !is_trace(&old) && !is_empty_folder(&old);
    match existing {
        Existing::Rotate if is_in_the_way => Err(OutputError::Foreign { path: old }),
        Existing::Rotate | Existing::Replace => Ok(()),
    }
}

fn refused(path: &Path) -> impl FnOnce(io::Error) -> OutputError {
    let path = path.to_owned();
    move |source| OutputError::Refused {
        path,
        source,
        remedy: "check the folder's permissions and space, or give another place with `--output NAME.numatrace`",
    }
}

/// A name beside `path` that nothing has: `NAME.PID.ENDING`.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let own = std::process::id();
    let mut ending = format!(".{own}.{ending}");
    loop {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(&ending);
        let free = path.with_file_name(name);
        if fs::symlink_metadata(&free).is_err() {
            return free;
        }
        // Of a process that was killed and had this one's number.
        ending.push('_');
    }
}

impl Room {
    /// The new trace stays; what it replaces goes.
    pub fn keep(mut self) {
        self.is_made = false;
        for moved in std::mem::take(&mut self.moved).iter().filter(|moved| moved.goes) {
            // What cannot be removed is in nobody's way.
            let _ = fs::remove_dir_all(&moved.to);
        }
    }

    fn rename(&mut self, from: &Path, to: PathBuf, goes: bool) -> Result<(), OutputError> {
        match fs::rename(from, &to) {
            Ok(()) => self.moved.push(Moved { from: from.to_owned(), to, goes }),
            // A folder of a container's image can have no other name.
            Err(e) if goes && e.kind() == io::ErrorKind::CrossesDevices => {
                fs::remove_dir_all(from).map_err(refused(from))?;
            }
            Err(e) => return Err(refused(from)(e)),
        }
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.is_made {
            discard(&self.output);
        }
        for Moved { from, to, .. } in self.moved.iter().rev() {
            // If that fails, it keeps the name that it has.
            let _ = fs::rename(to, from);
        }
    }
}

impl Pending {
    /// Makes a folder beside `output`, or takes `output` itself where it is an empty folder.
    ///
    /// # Errors
    /// Something that is no trace is in the way, or the file system refuses.
    pub fn create(output: &Path, existing: Existing) -> Result<Pending, OutputError> {
        check(output, existing)?;
        let folder = if is_empty_folder(output) { output.to_owned() } else { beside(output, "tmp") };
        fs::create_dir_all(&folder).map_err(refused(&folder))?;
        Ok(Pending { output: output.to_owned(), existing, folder, is_complete: false })
    }

    /// Where to write it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Puts the complete trace in its place, and handles an older one there as it was to be.
    ///
    /// # Errors
    /// Something that is no trace is in the way by now, or the file system refuses. The older trace stays then, and the new one goes.
    pub fn complete(mut self) -> Result<(), OutputError> {
        if self.folder != self.output {
            let room = prepare(&self.output, self.existing)?;
            fs::rename(&self.folder, &self.output).map_err(refused(&self.output))?;
            room.keep();
        }
        self.is_complete = true;
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.is_complete {
            return;
        }
        if self.folder == self.output {
            discard(&self.folder);
        } else {
            // Its name says whose it is.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Removes a trace or an empty folder.
fn discard(output: &Path) {
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
            let room = prepare(&output, Existing::Rotate).unwrap();
            assert!(is_empty_folder(&output));
            trace(&output, mark);
            room.keep();
        }
        assert_eq!(fs::read_to_string(old_name(&output).join("raw/mark")).unwrap(), "second");
        prepare(&output, Existing::Replace).unwrap().keep();
        assert_eq!(fs::read_to_string(old_name(&output).join("raw/mark")).unwrap(), "second");
        assert!(is_empty_folder(&output));
        assert_eq!(names(folder.path()), ["a.numatrace", "a.numatrace.old"]);
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.collect();
        names.sort();
        names
    }

    #[test]
    fn a_recording_that_fails_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.numatrace");
        drop(prepare(&output, Existing::Rotate).unwrap());
        assert!(names(folder.path()).is_empty());
        trace(&output, "new");
        trace(&old_name(&output), "old");
        for existing in [Existing::Rotate, Existing::Replace] {
            for begun in [false, true] {
                let room = prepare(&output, existing).unwrap();
                assert!(is_empty_folder(&output));
                if begun {
                    trace(&output, "failed");
                }
                drop(room);
                assert_eq!(names(folder.path()), ["a.numatrace", "a.numatrace.old"], "{existing:?}");
                assert_eq!(fs::read_to_string(output.join("raw/mark")).unwrap(), "new");
                assert_eq!(fs::read_to_string(old_name(&output).join("raw/mark")).unwrap(), "old");
            }
        }
    }

    #[test]
    fn a_pending_trace_takes_its_place_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.numatrace");
        let mark = |of: &Path| fs::read_to_string(of.join("raw/mark")).unwrap();
        for (existing, is_empty) in [(Existing::Rotate, true), (Existing::Rotate, false), (Existing::Replace, false)] {
            if is_empty {
                fs::create_dir(&output).unwrap();
            } else {
                trace(&output, "old");
            }
            let pending = Pending::create(&output, existing).unwrap();
            fs::write(pending.folder().join("accesses.parquet"), "half").unwrap();
            if is_empty {
                fs::remove_file(output.join("accesses.parquet")).unwrap();
                drop(pending);
                assert!(names(folder.path()).is_empty());
                continue;
            }
            drop(pending);
            assert_eq!((names(folder.path()), mark(&output)), (vec!["a.numatrace".to_owned()], "old".to_owned()));
            let pending = Pending::create(&output, existing).unwrap();
            trace(pending.folder(), "new");
            assert_eq!(mark(&output), "old", "until the other is complete");
            pending.complete().unwrap();
            assert_eq!(mark(&output), "new");
            let kept = names(folder.path()).len();
            assert_eq!(kept, if existing == Existing::Rotate { 2 } else { 1 });
            let _ = fs::remove_dir_all(old_name(&output));
        }
        fs::write(old_name(&output), "a file of the user's").unwrap();
        assert!(matches!(Pending::create(&output, Existing::Rotate), Err(OutputError::Foreign { .. })));
        assert_eq!(names(folder.path()).len(), 2);
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
