//! Who records into a trace at this moment: a file beside the chunks, locked by the recorder for as long as it lives.
//!
//! The lock (`flock(2)`) answers: the kernel drops it when the recorder ends, however it ends. A process number alone would not do, since numbers are used
//! again. Where the file system has no locks, the file's content answers: the recorder's process with its start time, on this boot of this machine. In a copy
//! of a trace nobody holds the lock; the content then tells that the recorder of the original goes on.

use numapilot_host::TaskStat;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::RAW_FOLDER;

/// Its name in `raw/`. There while the recording goes on, and after a recorder was killed.
pub const RECORDER_FILE: &str = "recorder.json";

/// A recorder, as it tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recorder {
    /// Its process.
    pub pid: u32,
    /// When that process started, in clock ticks since the boot (`/proc/PID/stat`, field 22).
    pub start_ticks: u64,
    /// Which boot of which machine (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
    /// In which process numbers `pid` counts (`/proc/self/ns/pid`).
    pub pid_namespace: String,
    /// Name of the machine.
    pub host: String,
    /// It holds a lock on the file.
    pub is_locked: bool,
}

/// Whether a trace is being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Nobody writes to it: the recording has ended, or its recorder was killed.
    Ended,
    /// A recorder is at it.
    Recording(Recorder),
    /// The file system has no locks, and the recorder is of another machine or container: it cannot be told from here.
    Unknown(Recorder),
}

/// A recorder's hold on its trace. Dropped, it removes the file.
#[derive(Debug)]
pub(super) struct Hold {
    path: PathBuf,
    _locked: File,
}

impl Hold {
    /// Takes it, in the folder `raw`.
    ///
    /// # Errors
    /// The system refuses to write, or somebody else records here (`WouldBlock`).
    pub fn take(raw: &Path) -> io::Result<Hold> {
        let path = raw.join(RECORDER_FILE);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        let is_locked = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            // No locks on this file system.
            Err(TryLockError::Error(_)) => false,
        };
        let text = serde_json::to_vec(&Recorder { is_locked, ..Recorder::here() }).map_err(io::Error::other)?;
        file.set_len(0)?;
        file.write_all(&text)?;
        Ok(Hold { path, _locked: file })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Left behind, it names a process that has ended: readers see that.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether somebody records into the trace in `folder` (`NAME.numatrace`) now.
#[must_use]
pub fn activity(folder: &Path) -> Activity {
    let Ok(file) = File::open(folder.join(RAW_FOLDER).join(RECORDER_FILE)) else { return Activity::Ended };
    let lock = file.try_lock_shared();
    let mut text = Vec::new();
    let read = (&file).take(1 << 16).read_to_end(&mut text);
    let told: Option<Recorder> = read.ok().and_then(|_| serde_json::from_slice(&text).ok());
    match (lock, told) {
        (Err(TryLockError::WouldBlock), told) => Activity::Recording(told.unwrap_or_default()),
        (_, None) => Activity::Ended,
        (lock, Some(told)) => match told.is_alive() {
            Some(true) => Activity::Recording(told),
            None if lock.is_err() || !told.is_locked => Activity::Unknown(told),
            _ => Activity::Ended,
        },
    }
}

impl Recorder {
    /// This process.
    fn here() -> Recorder {
        let pid = std::process::id();
        Recorder {
            pid,
            start_ticks: start_ticks(pid).unwrap_or(0),
            boot_id: line("/proc/sys/kernel/random/boot_id"),
            pid_namespace: pid_namespace(),
            host: line("/proc/sys/kernel/hostname"),
            is_locked: false,
        }
    }

    /// Whether that process still runs; `None`: it is of another machine or container, and nobody here knows.
    fn is_alive(&self) -> Option<bool> {
        let here = Recorder::here();
        let is_here =
            !self.boot_id.is_empty() && self.boot_id == here.boot_id && self.pid_namespace == here.pid_namespace;
        is_here.then(|| start_ticks(self.pid) == Some(self.start_ticks))
    }
}

fn line(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn pid_namespace() -> String {
    let link = std::fs::read_link("/proc/self/ns/pid");
    link.map(|link| link.to_string_lossy().into_owned()).unwrap_or_default()
}

/// `None`: there is no such process, or it is a zombie.
fn start_ticks(pid: u32) -> Option<u64> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    TaskStat::parse(&text).filter(|stat| !stat.is_zombie()).map(|stat| stat.start_ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let raw = folder.path().join(RAW_FOLDER);
        std::fs::create_dir(&raw).expect("made");
        (folder, raw)
    }

    fn write(raw: &Path, recorder: &Recorder) {
        std::fs::write(raw.join(RECORDER_FILE), serde_json::to_vec(recorder).expect("JSON")).expect("written");
    }

    #[test]
    fn a_trace_is_held_by_one_recorder_until_it_ends() {
        let (folder, raw) = raw();
        assert_eq!(activity(folder.path()), Activity::Ended);
        let hold = Hold::take(&raw).expect("it is free");
        let Activity::Recording(recorder) = activity(folder.path()) else { panic!("nobody records") };
        assert_eq!((recorder.pid, recorder.is_locked), (std::process::id(), true));
        assert_eq!(Hold::take(&raw).map(|_| ()).map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
        drop(hold);
        assert_eq!(activity(folder.path()), Activity::Ended);
        assert!(!raw.join(RECORDER_FILE).exists());
    }

    #[test]
    fn what_a_killed_recorder_left_behind_holds_nothing() {
        let (folder, raw) = raw();
        // The number is in use again, by this very process: the start time tells them apart.
        let other = Recorder { start_ticks: 1, is_locked: true, ..Recorder::here() };
        write(&raw, &other);
        assert_eq!(activity(folder.path()), Activity::Ended);
        // Moved here from another machine, where it was locked: nobody holds the lock any more.
        write(&raw, &Recorder { boot_id: "another".to_owned(), is_locked: true, ..Recorder::here() });
        assert_eq!(activity(folder.path()), Activity::Ended);
        std::fs::write(raw.join(RECORDER_FILE), "{torn").expect("written");
        assert_eq!(activity(folder.path()), Activity::Ended);
    }

    #[test]
    fn without_locks_the_process_answers() {
        let (folder, raw) = raw();
        let unlocked = Recorder { is_locked: false, ..Recorder::here() };
        write(&raw, &unlocked);
        assert_eq!(activity(folder.path()), Activity::Recording(unlocked.clone()));
        write(&raw, &Recorder { start_ticks: 1, ..unlocked.clone() });
        assert_eq!(activity(folder.path()), Activity::Ended);
        let elsewhere = Recorder { boot_id: "another".to_owned(), ..unlocked };
        write(&raw, &elsewhere);
        assert_eq!(activity(folder.path()), Activity::Unknown(elsewhere));
    }
}
