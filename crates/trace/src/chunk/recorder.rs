//! Detects whether a recorder is writing a trace: a file beside the chunks, which the recorder keeps locked while it runs.
//!
//! The lock (`flock(2)`) decides: the kernel releases it when the recorder ends, in whatever way. A process id alone is not enough, because ids are
//! reused. Without file locks, the file's content decides: the recorder's process id, its start time, and the boot of the machine. A copy of a trace is not
//! locked; its content then shows whether the recorder of the original is running.

use numapilot_host::Root;
use numapilot_host::TaskStat;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::RAW_FOLDER;
use crate::ids::Pid;

/// Name of the file in `raw/`. It exists while a recording is running, and after a recorder was killed.
pub const RECORDER_FILE: &str = "recorder.json";

/// The recorder's description of itself, as in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recorder {
    /// Process id of the recorder.
    pub pid: Pid,
    /// When that process started, in clock ticks since the boot (`/proc/PID/stat`, field 22).
    pub start_ticks: u64,
    /// Identifies the boot of the recording machine (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
    /// PID namespace of `pid` (`/proc/self/ns/pid`).
    pub pid_namespace: String,
    /// Host name of the machine.
    pub host: String,
    /// Whether the recorder locked the file.
    pub is_locked: bool,
}

/// Whether a trace is being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// No recorder is running: the recording has ended, or its recorder was killed.
    Ended,
    /// A recorder is running.
    Recording(Recorder),
    /// Not known: the file system supports no locks, and the recorder ran on another machine or in another container.
    Unknown(Recorder),
}

/// A recorder's lock on its trace. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct Hold {
    path: PathBuf,
    _locked: File,
}

impl Hold {
    /// Creates and locks the file in the folder `raw`.
    ///
    /// # Errors
    /// The file cannot be written, or another recorder holds the lock (`WouldBlock`).
    pub fn take(raw: &Path) -> io::Result<Hold> {
        let path = raw.join(RECORDER_FILE);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        let is_locked = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            // This file system supports no locks.
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
        // If the file stays, it names a process that has ended, which readers detect.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether a recorder is writing the trace in `folder` (`NAME.numatrace`) now.
#[must_use]
pub fn activity(folder: &Path) -> Activity {
    let Ok(file) = File::open(folder.join(RAW_FOLDER).join(RECORDER_FILE)) else { return Activity::Ended };
    let lock = file.try_lock_shared();
    let mut text = Vec::new();
    let read = (&file).take(1 << 16).read_to_end(&mut text);
    let recorder: Option<Recorder> = read.ok().and_then(|_| serde_json::from_slice(&text).ok());
    match (lock, recorder) {
        (Err(TryLockError::WouldBlock), recorder) => Activity::Recording(recorder.unwrap_or_default()),
        (_, None) => Activity::Ended,
        (lock, Some(recorder)) => match recorder.is_alive() {
            Some(true) => Activity::Recording(recorder),
            None if lock.is_err() || !recorder.is_locked => Activity::Unknown(recorder),
            _ => Activity::Ended,
        },
    }
}

impl Recorder {
    /// The description of this process.
    fn here() -> Recorder {
        let (root, pid) = (Root::default(), Pid::own());
        let text = |file: &str| root.text(file).unwrap_or_default();
        Recorder {
            pid,
            start_ticks: start_ticks(pid).unwrap_or(0),
            boot_id: text("proc/sys/kernel/random/boot_id"),
            pid_namespace: pid_namespace(),
            host: text("proc/sys/kernel/hostname"),
            is_locked: false,
        }
    }

    /// Whether that process is still running; `None` if it belongs to another machine or container.
    #[must_use]
    pub fn is_alive(&self) -> Option<bool> {
        let here = Recorder::here();
        let is_here =
            !self.boot_id.is_empty() && self.boot_id == here.boot_id && self.pid_namespace == here.pid_namespace;
        is_here.then(|| start_ticks(self.pid) == Some(self.start_ticks))
    }
}

fn pid_namespace() -> String {
    let link = std::fs::read_link("/proc/self/ns/pid");
    link.map(|link| link.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Start time of a process, clock ticks since the boot; `None` if there is no such process, or it is a zombie.
fn start_ticks(pid: Pid) -> Option<u64> {
    let mut text = Vec::new();
    let stat = TaskStat::read(&Root::default(), pid, &mut text);
    stat.filter(|stat| !stat.is_zombie()).map(|stat| stat.start_ticks)
}

/// How long a process has been running; `None` if there is no such process, or it is a zombie.
pub(crate) fn running_for(pid: Pid) -> Option<Duration> {
    start_ticks(pid).map(numapilot_host::time_since)
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
        assert_eq!((recorder.pid, recorder.is_locked), (Pid::own(), true));
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
