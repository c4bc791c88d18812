//! Where a recording goes: a new folder, with an older trace of that name kept as `NAME.old`, as perf does.
//!
//! A folder counts as a trace when it holds `raw/` or `meta.json`; nothing else is ever moved or deleted.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use thiserror::Error;

use crate::chunk::{Activity, activity, running_for};
use crate::ids::Pid;
use crate::meta::META_FILE;
use crate::name;
use crate::tables::is_temporary;

/// A pending trace that holds no lock (before its first table, and when it is complete), or one that is about to be replaced, may be of a process that is not
/// seen from here, if it was changed within this time.
const UNLOCKED_AT_MOST: Duration = Duration::from_secs(60);

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
    /// The new trace's folder, locked until its recorder holds another lock in it: whoever else is to write there is refused.
    held: Option<fs::File>,
}

#[derive(Debug)]
struct Moved {
    from: PathBuf,
    to: PathBuf,
    /// Whether it goes once the new trace is there.
    goes: bool,
    /// Its folder, locked where it goes: from another container or machine, this process is not seen, but the lock is.
    _held: Option<fs::File>,
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

/// Makes `output` an empty folder; an existing trace there is handled as `existing` says. What killed imports and recordings to it left behind goes.
///
/// # Errors
/// Something that is no trace is in the way, or the file system refuses. Everything is as it was then.
pub fn prepare(output: &Path, existing: Existing) -> Result<Room, OutputError> {
    check(output, existing)?;
    remove_leftovers(output, SystemTime::now());
    make_room(output, existing)
}

/// [`check`] has let it pass.
fn make_room(output: &Path, existing: Existing) -> Result<Room, OutputError> {
    let mut room = Room { output: output.to_owned(), is_made: false, moved: Vec::new(), held: None };
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
    fs::create_dir_all(output).map_err(refused(output))?;
    // Another recording may have made it: both began at the same moment, and each found nothing there.
    room.held = claim(output)?;
    room.is_made = true;
    Ok(room)
}

/// Locks a folder. `None`: the file system supports no locks.
///
/// # Errors
/// Somebody else has locked it, or it has given its place to another folder.
fn claim(folder: &Path) -> Result<Option<fs::File>, OutputError> {
    let Ok(file) = fs::File::open(folder) else { return Ok(None) };
    let is_there = || {
        let (locked, there) = (file.metadata(), fs::symlink_metadata(folder));
        locked.is_ok_and(|locked| there.is_ok_and(|there| (there.dev(), there.ino()) == (locked.dev(), locked.ino())))
    };
    match file.try_lock() {
        Ok(()) if is_there() => Ok(Some(file)),
        Ok(()) | Err(fs::TryLockError::WouldBlock) => Err(OutputError::Busy { path: folder.to_owned() }),
        Err(fs::TryLockError::Error(_)) => Ok(None),
    }
}

/// Fails where [`prepare`] would because of what is there.
fn check(output: &Path, existing: Existing) -> Result<(), OutputError> {
    match fs::symlink_metadata(output) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(refused(output)(e)),
        // The folder of a recording that has only just begun is empty, too.
        Ok(_) if is_empty_folder(output) && !is_being_completed(output) => return Ok(()),
        Ok(_) if is_empty_folder(output) => return Err(OutputError::Busy { path: output.to_owned() }),
        Ok(_) if !matches!(activity(output), Activity::Ended) => {
            return Err(OutputError::Busy { path: output.to_owned() });
        }
        Ok(_) if !is_trace(output) => return Err(OutputError::Foreign { path: output.to_owned() }),
        // Its tables would come to lie in the new trace: they are written by their paths.
        Ok(_) if is_being_completed(output) => return Err(OutputError::Busy { path: output.to_owned() }),
        Ok(_) => {}
    }
    let old = old_name(output);
    let is_in_the_way = fs::symlink_metadata(&old).is_ok() && !is_trace(&old) && !is_empty_folder(&old);
    match existing {
        Existing::Rotate if is_in_the_way => Err(OutputError::Foreign { path: old }),
        Existing::Rotate | Existing::Replace => Ok(()),
    }
}

/// Whether a process makes the tables of the trace in `folder` now: the recorder, whose recording has ended, or a reader of what a killed one left. It holds a
/// [`crate::tables::FolderLock`] meanwhile. Also where a recording is about to begin there.
#[must_use]
pub fn is_being_completed(folder: &Path) -> bool {
    let lock = fs::File::open(folder).map(|folder| folder.try_lock_shared());
    matches!(lock, Ok(Err(fs::TryLockError::WouldBlock)))
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

/// Removes the pending traces of `output` whose processes were killed, and the traces that killed recordings replaced. A failure is ignored: they are in
/// nobody's way.
fn remove_leftovers(output: &Path, now: SystemTime) {
    for (path, pid) in left_beside(output, ".tmp") {
        remove_if_left(&path, pid);
    }
    for place in [output.to_owned(), old_name(output)] {
        // While nothing has taken its place, it is all that there is of that name.
        if fs::symlink_metadata(&place).is_ok() && !is_empty_folder(&place) {
            for (path, pid) in left_beside(&place, ".replaced") {
                remove_if_replaced(&path, pid, now);
            }
        }
    }
}

/// What [`beside`] named after `output` with this ending, and whose processes' numbers it has.
fn left_beside(output: &Path, ending: &str) -> Vec<(PathBuf, Pid)> {
    let Some(name) = output.file_name() else { return Vec::new() };
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.path(), owner(name, &entry.file_name(), ending)?))).collect()
}

/// The process in a name that [`beside`] made for `output`: `NAME.PID` and the ending, perhaps with underscores.
fn owner(output: &OsStr, found: &OsStr, ending: &str) -> Option<Pid> {
    let rest = found.as_bytes().strip_prefix(output.as_bytes())?.strip_prefix(b".")?;
    let pid = std::str::from_utf8(rest).ok()?.trim_end_matches('_').strip_suffix(ending)?;
    pid.parse().ok().map(Pid).filter(|_| pid.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Removes a trace that a recording replaced, unless a process of that number is alive, which may be another by now, or one elsewhere may hold it. Where the
/// recording was killed while it removed it, some of its tables may be left.
fn remove_if_replaced(folder: &Path, pid: Pid, now: SystemTime) {
    let Ok(found) = fs::symlink_metadata(folder) else { return };
    // Its new name does not change when it was modified.
    let renamed = u64::try_from(found.ctime()).ok().map(Duration::from_secs);
    let Some(renamed) = renamed.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since)) else { return };
    let is_old = now.duration_since(renamed).is_ok_and(|ago| ago > UNLOCKED_AT_MOST);
    if !found.is_dir() || !is_old || running_for(pid).is_some() {
        return;
    }
    let Ok(held) = fs::File::open(folder) else { return };
    if held.try_lock().is_err() || !matches!(activity(folder), Activity::Ended) {
        return;
    }
    if is_trace(folder) || names_in(folder).is_some_and(|names| names.iter().all(|name| is_of_table(name))) {
        let _ = fs::remove_dir_all(folder);
    }
}

fn names_in(folder: &Path) -> Option<Vec<String>> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    Some(entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

/// Whether a writer of tables gives a file this name.
fn is_of_table(name: &str) -> bool {
    name.ends_with(".parquet") || is_temporary(name) || name.starts_with(META_FILE)
}

/// Removes a pending trace unless its process may be alive, or it has anything else in it than tables.
fn remove_if_left(folder: &Path, pid: Pid) {
    let Ok(found) = fs::symlink_metadata(folder) else { return };
    let Some(unchanged_for) = found.modified().ok().and_then(|changed| changed.elapsed().ok()) else { return };
    // A process that began after the last change has got the number of one that is gone. Its time is in hundredths of a second.
    let may_be_its = |running_for: Duration| running_for.saturating_add(Duration::from_secs(1)) >= unchanged_for;
    if !found.is_dir() || running_for(pid).is_some_and(may_be_its) {
        return;
    }
    // From another container or machine, the process is not seen, but its lock is. It is held here until the folder is gone.
    let Ok(held) = fs::File::open(folder) else { return };
    let Some(names) = names_in(folder) else { return };
    let is_unlocked_by_right = names.is_empty() || names.iter().any(|name| name == META_FILE);
    if held.try_lock().is_err() || (is_unlocked_by_right && unchanged_for < UNLOCKED_AT_MOST) {
        return;
    }
    if names.iter().all(|name| is_of_table(name)) {
        let _ = fs::remove_dir_all(folder);
    }
}

impl Room {
    /// The new trace stays; what it replaces goes.
    pub fn keep(mut self) {
        self.is_made = false;
        // A process that was just started may still share the open file. The lock goes in any case: whoever makes the tables waits for it.
        if let Some(folder) = self.held.take() {
            let _ = folder.unlock();
        }
        for moved in std::mem::take(&mut self.moved).iter().filter(|moved| moved.goes) {
            // What cannot be removed is in nobody's way.
            let _ = fs::remove_dir_all(&moved.to);
        }
    }

    fn rename(&mut self, from: &Path, to: PathBuf, goes: bool) -> Result<(), OutputError> {
        let held = match claim(from) {
            // Its tables have been begun since it was checked.
            Err(busy) if from == self.output => return Err(busy),
            held => held.ok().flatten(),
        };
        match fs::rename(from, &to) {
            Ok(()) => self.moved.push(Moved { from: from.to_owned(), to, goes, _held: held.filter(|_| goes) }),
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
            // Where another recording has begun meanwhile, or if that fails, it keeps the name that it has: an empty folder would be replaced.
            if fs::symlink_metadata(from).is_err() {
                let _ = fs::rename(to, from);
            }
        }
    }
}

impl Pending {
    /// Makes a folder beside `output`, or takes `output` itself where it is an empty folder. What killed imports and recordings to it left
    /// behind goes.
    ///
    /// # Errors
    /// Something that is no trace is in the way, or the file system refuses.
    pub fn create(output: &Path, existing: Existing) -> Result<Pending, OutputError> {
        check(output, existing)?;
        remove_leftovers(output, SystemTime::now());
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
            check(&self.output, self.existing)?;
            let room = make_room(&self.output, self.existing)?;
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
    is_folder && name::is_trace(path)
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

    /// A recording with the name of one whose tables were being made took the folder away from under it, and got its tables.
    #[test]
    fn a_trace_whose_tables_are_being_made_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.numatrace");
        trace(&output, "ended");
        assert!(!is_being_completed(&output) && !is_being_completed(&old_name(&output)));
        let held = crate::tables::FolderLock::take(&output);
        assert!(is_being_completed(&output));
        for existing in [Existing::Rotate, Existing::Replace] {
            assert!(matches!(prepare(&output, existing), Err(OutputError::Busy { .. })));
            assert!(matches!(Pending::create(&output, existing), Err(OutputError::Busy { .. })));
        }
        assert_eq!(names(folder.path()), ["a.numatrace"]);
        assert_eq!(fs::read_to_string(output.join("raw/mark")).unwrap(), "ended");
        drop(held);
        prepare(&output, Existing::Rotate).unwrap().keep();
        assert_eq!(names(folder.path()), ["a.numatrace", "a.numatrace.old"]);
    }

    /// Both found nothing there, and the one that began to write a moment later removed what the other recorded.
    #[test]
    fn of_two_recordings_that_begin_at_once_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.numatrace");
        trace(&old_name(&output), "old");
        let room = prepare(&output, Existing::Rotate).unwrap();
        for is_begun in [false, true] {
            if is_begun {
                fs::create_dir(output.join("raw")).unwrap();
            }
            for existing in [Existing::Rotate, Existing::Replace] {
                assert!(matches!(prepare(&output, existing), Err(OutputError::Busy { .. })), "{existing:?}");
                assert!(matches!(make_room(&output, existing), Err(OutputError::Busy { .. })), "{existing:?}");
                assert!(matches!(Pending::create(&output, existing), Err(OutputError::Busy { .. })), "{existing:?}");
                assert_eq!(names(folder.path()), ["a.numatrace", "a.numatrace.old"], "{existing:?}");
                assert_eq!(output.join("raw").exists(), is_begun, "{existing:?}");
            }
        }
        room.keep();
        prepare(&output, Existing::Replace).unwrap().keep();
        assert_eq!(fs::read_to_string(old_name(&output).join("raw/mark")).unwrap(), "old");
    }

    /// One that was refused put the older trace, which it had renamed, in the place of the other's new folder while that was empty.
    #[test]
    fn a_recording_that_is_refused_leaves_the_folder_of_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.numatrace");
        trace(&output, "older");
        let mut refused = Room { output: output.clone(), is_made: false, moved: Vec::new(), held: None };
        refused.rename(&output, old_name(&output), false).unwrap();
        let other = prepare(&output, Existing::Rotate).unwrap();
        assert!(matches!(claim(&output), Err(OutputError::Busy { .. })));
        drop(refused);
        assert!(is_empty_folder(&output));
        assert_eq!(fs::read_to_string(old_name(&output).join("raw/mark")).unwrap(), "older");
        other.keep();
    }

    /// Between the check and the renaming, tables were begun, which then came to lie in the new trace.
    #[test]
    fn a_trace_whose_tables_are_begun_after_the_check_stays() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.numatrace");
        trace(&output, "ended");
        trace(&old_name(&output), "old");
        let held = crate::tables::FolderLock::take(&output);
        for existing in [Existing::Rotate, Existing::Replace] {
            assert!(matches!(make_room(&output, existing), Err(OutputError::Busy { .. })), "{existing:?}");
            assert_eq!(names(folder.path()), ["a.numatrace", "a.numatrace.old"], "{existing:?}");
            assert_eq!(fs::read_to_string(output.join("raw/mark")).unwrap(), "ended");
            assert_eq!(fs::read_to_string(old_name(&output).join("raw/mark")).unwrap(), "old");
        }
        drop(held);
        make_room(&output, Existing::Rotate).unwrap().keep();
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

    /// No process has a number that large.
    const GONE: u32 = 1 << 22;

    /// A pending trace of `a.numatrace` with this in its name and these files, last changed that many seconds ago.
    fn pending(folder: &Path, ending: &str, files: &[&str], seconds: u64) -> PathBuf {
        let path = folder.join(format!("a.numatrace.{ending}"));
        fs::create_dir(&path).unwrap();
        files.iter().for_each(|file| fs::write(path.join(file), "half").unwrap());
        let changed = SystemTime::now() - Duration::from_secs(seconds);
        fs::File::open(&path).unwrap().set_times(fs::FileTimes::new().set_modified(changed)).unwrap();
        path
    }

    #[test]
    fn what_a_killed_import_left_goes_with_the_next_of_that_name() {
        let own = std::process::id();
        let half = format!("accesses.parquet.{GONE}.tmp");
        let torn = [half.as_str(), "objects.parquet"];
        let year = 365 * 86_400;
        let left = [
            (format!("{GONE}.tmp"), &torn[..], 0),
            (format!("{GONE}.tmp__"), &torn[..], 0),
            // The number is this process's by now, which has not been running for a year.
            (format!("{own}.tmp"), &torn[..], year),
            (format!("{}.tmp", GONE + 1), &["meta.json", "objects.parquet"][..], 3_600),
            (format!("{}.tmp", GONE + 2), &torn[..0], 3_600),
        ];
        for is_recording in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            for (ending, files, seconds) in &left {
                pending(folder.path(), ending, files, *seconds);
            }
            let output = folder.path().join("a.numatrace");
            if is_recording {
                drop(prepare(&output, Existing::Rotate).unwrap());
            } else {
                drop(Pending::create(&output, Existing::Rotate).unwrap());
            }
            assert_eq!(names(folder.path()), [""; 0], "is recording: {is_recording}");
        }
    }

    #[test]
    fn what_may_be_of_a_live_import_or_the_users_stays() {
        let folder = tempfile::tempdir().unwrap();
        let half = format!("accesses.parquet.{GONE}.tmp");
        let torn = &[half.as_str()];
        pending(folder.path(), &format!("{}.tmp", std::process::id()), torn, 0);
        // Of another container: its process is not seen here, but it holds the lock.
        let locked = fs::File::open(pending(folder.path(), &format!("{GONE}.tmp"), torn, 3_600)).unwrap();
        locked.lock().unwrap();
        // Not locked yet, and not any more.
        pending(folder.path(), &format!("{}.tmp", GONE + 1), &[], 0);
        pending(folder.path(), &format!("{}.tmp", GONE + 2), &["meta.json", "accesses.parquet"], 0);
        pending(folder.path(), &format!("{}.tmp", GONE + 3), &["accesses.parquet", "thesis.txt"], 3_600);
        pending(folder.path(), &format!("+{GONE}.tmp"), torn, 3_600);
        pending(folder.path(), "old.tmp", torn, 3_600);
        pending(folder.path(), &format!("{GONE}.replaced"), torn, 3_600);
        pending(folder.path(), &format!("x.{GONE}.tmp"), torn, 3_600);
        fs::write(folder.path().join(format!("a.numatrace.{}.tmp", GONE + 4)), "a file").unwrap();
        let before = names(folder.path());
        let output = folder.path().join("a.numatrace");
        drop(Pending::create(&output, Existing::Rotate).unwrap());
        drop(prepare(&output, Existing::Rotate).unwrap());
        assert_eq!(names(folder.path()), before);
        drop(locked);
        drop(prepare(&output, Existing::Rotate).unwrap());
        assert_eq!(names(folder.path()).len(), before.len() - 1, "the lock is gone with its holder");
    }

    #[test]
    fn what_a_killed_recording_replaced_goes_when_another_has_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.numatrace");
        let old = old_name(&output);
        let replaced = |of: &Path, pid: u32| {
            let path = of.with_file_name(format!("{}.{pid}.replaced", of.file_name().unwrap().to_str().unwrap()));
            trace(&path, "replaced");
            path
        };
        let (soon, later) = (SystemTime::now(), SystemTime::now() + UNLOCKED_AT_MOST + Duration::from_secs(9));
        let left = [replaced(&output, GONE), replaced(&old, GONE)];
        // Of this process; of one elsewhere that holds it; what has something else in it, or is a file.
        let live = replaced(&output, std::process::id());
        let locked = replaced(&output, GONE + 1);
        let held = fs::File::open(&locked).unwrap();
        held.lock().unwrap();
        let foreign = pending(folder.path(), &format!("{GONE}.replaced_"), &["meta.txt"], 3_600);
        let file = folder.path().join(format!("a.numatrace.{}.replaced", GONE + 2));
        fs::write(&file, "a file").unwrap();
        // What a killed recording had begun to remove.
        let half = pending(folder.path(), &format!("{}.replaced", GONE + 3), &["objects.parquet"], 0);
        let all = names(folder.path());
        remove_leftovers(&output, later);
        assert_eq!(names(folder.path()), all, "nothing has their places");
        trace(&output, "new");
        trace(&old, "old");
        remove_leftovers(&output, soon);
        assert!(left.iter().chain([&half]).all(|path| path.is_dir()), "they may be of a process elsewhere");
        remove_leftovers(&output, later);
        assert!(left.iter().chain([&half]).all(|path| !path.exists()), "{:?}", names(folder.path()));
        assert!([&output, &old, &live, &locked, &foreign, &file].iter().all(|path| path.exists()));
        drop(held);
        remove_leftovers(&output, later);
        assert!(!locked.exists() && live.exists());
    }

    #[test]
    fn what_is_about_to_be_replaced_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.numatrace");
        trace(&output, "old");
        let room = prepare(&output, Existing::Replace).unwrap();
        let moved = folder.path().join(format!("a.numatrace.{}.replaced", std::process::id()));
        assert!(fs::File::open(moved).unwrap().try_lock().is_err());
        room.keep();
        assert_eq!(names(folder.path()), ["a.numatrace"]);
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
