//! The record on disk, and the restoring of its settings at the end or at the next start.

use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

use numapilot_balancer::event::SettingDone;
use serde::Deserialize;
use serde::Serialize;

use super::Setting;
use super::System;
use crate::error::ServiceError;

const VERSION: u32 = 1;

/// Content of the record's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    v: u32,
    /// The boot for which the record is valid.
    boot: String,
    changes: Vec<Change>,
}

/// One setting that was changed, or was about to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    setting: Setting,
    /// Value before the first change.
    was: String,
    /// Values that show that no other program has changed it: the last value written, the one about to be written, and what the system made of it.
    ours: Vec<String>,
}

/// What was done to a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The setting.
    pub setting: Setting,
    /// Its value before.
    pub was: String,
    /// Its present value.
    pub now: String,
    /// Whether it was changed, restored or left alone.
    pub done: SettingDone,
    /// Why it failed; empty if it did not.
    pub why: String,
}

/// Keeps the record. Dropping it restores nothing, as when the process is killed.
#[derive(Debug)]
pub struct SettingsGuard<S: System> {
    system: S,
    folder: PathBuf,
    record: Record,
    prune_at: usize,
    /// Held as long as this lives.
    _lock: Lock,
}

impl<S: System> SettingsGuard<S> {
    /// Takes a state folder, creates it if necessary, and restores what an earlier, killed holder left changed.
    ///
    /// # Errors
    /// Another process uses the folder; it cannot be written; or it holds a record that cannot be read.
    pub fn open(folder: &Path, system: S) -> Result<(SettingsGuard<S>, Vec<Done>), ServiceError> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|source| {
            ServiceError::file(folder, "create this folder for the record of changed settings", source)
        })?;
        let lock = lock(folder)?;
        // SAFETY: has no preconditions.
        let uid = unsafe { libc::geteuid() };
        let record = read(&folder.join(FILE), uid)?.unwrap_or_default();
        let mut guard = SettingsGuard { system, folder: folder.to_owned(), record, prune_at: MANY, _lock: lock };
        if guard.record.boot != guard.system.boot() {
            guard.record.changes.clear();
        }
        guard.record.v = VERSION;
        guard.record.boot = guard.system.boot();
        let done = guard.restore()?;
        Ok((guard, done))
    }

    /// The state folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether a folder holds a record of settings to restore.
    #[must_use]
    pub fn has_record(folder: &Path) -> bool {
        folder.join(FILE).exists()
    }

    /// Whether a process uses a folder.
    #[must_use]
    pub fn is_held(folder: &Path) -> bool {
        folder.join(LOCK).exists() && matches!(lock(folder), Err(ServiceError::Taken { .. }))
    }

    /// Records settings that are about to change: setting, present value, new value. When this returns, the record is on disk. Must be called before every
    /// change.
    ///
    /// # Errors
    /// The record cannot be written: then no setting may be changed.
    pub fn intend(&mut self, changes: &[(Setting, String, String)]) -> Result<(), ServiceError> {
        let mut record = self.record.clone();
        if record.changes.len() >= self.prune_at {
            record.changes.retain(|change| !matches!(self.system.read(&change.setting), Ok(None)));
            self.prune_at = MANY.max(record.changes.len() * 2);
        }
        for (setting, held, value) in changes {
            note(&mut record, setting, held, value, &self.system);
        }
        self.save(&record)?;
        self.record = record;
        Ok(())
    }

    /// Records that the system changed a written value to another one, as a cpuset restricts an affinity.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn became(&mut self, setting: &Setting, now: &str) -> Result<(), ServiceError> {
        let system = &self.system;
        let change = self.record.changes.iter_mut().find(|change| change.setting == *setting);
        if let Some(change) = change.filter(|c| !c.ours.iter().any(|ours| system.is_same(setting, ours, now))) {
            change.ours.push(now.to_owned());
            return self.write_record();
        }
        Ok(())
    }

    /// Removes settings that have their previous values again, or are no longer to be restored.
    ///
    /// # Errors
    /// The record cannot be written: the next start checks these settings again, and finds nothing to do.
    pub fn settled(&mut self, settings: &[Setting]) -> Result<(), ServiceError> {
        self.record.changes.retain(|change| !settings.contains(&change.setting));
        self.write_record()
    }

    /// Restores every setting that still has this program's value, and empties the record.
    ///
    /// # Errors
    /// The record cannot be written; what could be put back was.
    pub fn restore(&mut self) -> Result<Vec<Done>, ServiceError> {
        let mut out = Vec::new();
        let mut left = Vec::new();
        for change in std::mem::take(&mut self.record.changes).into_iter().rev() {
            if let Some(done) = self.put_back(&change) {
                if done.done == SettingDone::Failed {
                    left.push(change);
                }
                out.push(done);
            }
        }
        left.reverse();
        self.record.changes = left;
        self.write_record()?;
        Ok(out)
    }

    /// Writes the record; an empty record has no file.
    fn write_record(&self) -> Result<(), ServiceError> {
        if !self.record.changes.is_empty() {
            return self.save(&self.record);
        }
        let file = self.folder.join(FILE);
        match std::fs::remove_file(&file) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(ServiceError::file(&file, "remove the record of changed settings", source))
            }
            _ => Ok(()),
        }
    }

    /// Restores one setting; `None`: there is nothing to restore.
    fn put_back(&self, change: &Change) -> Option<Done> {
        let setting = &change.setting;
        let held = match self.system.read(setting) {
            Ok(Some(held)) => held,
            Ok(None) => return None,
            Err(error) => return Some(failed(setting, String::new(), &error)),
        };
        if self.system.is_same(setting, &held, &change.was) {
            return None;
        }
        let is_still = |value: &String| self.system.is_still(setting, &held, value);
        let is_ours = change.ours.iter().any(is_still);
        // It was never written, if the earlier holder was killed just before that; the value may name CPUs that are offline.
        if !is_ours && is_still(&change.was) {
            return None;
        }
        if !is_ours {
            let why = String::new();
            return Some(Done {
                setting: setting.clone(),
                was: held.clone(),
                now: held,
                done: SettingDone::LeftAlone,
                why,
            });
        }
        Some(match self.system.write(setting, &change.was) {
            Ok(()) => {
                let now = change.was.clone();
                Done { setting: setting.clone(), was: held, now, done: SettingDone::Restored, why: String::new() }
            }
            Err(error) => failed(setting, held, &error),
        })
    }

    fn save(&self, record: &Record) -> Result<(), ServiceError> {
        let file = self.folder.join(FILE);
        let temporary = self.folder.join(format!("{FILE}.tmp"));
        let write = || -> io::Result<()> {
            let mut text = serde_json::to_vec_pretty(record)?;
            text.push(b'\n');
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
            let mut out = options.open(&temporary)?;
            out.write_all(&text)?;
            out.sync_all()?;
            std::fs::rename(&temporary, &file)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(|source| {
            let _ = std::fs::remove_file(&temporary);
            ServiceError::file(&file, "record the settings to restore, so nothing system-wide is changed", source)
        })
    }
}

const FILE: &str = "changed.json";
const LOCK: &str = "lock";
/// Number of recorded changes beyond which those of ended threads and cgroups are removed.
const MANY: usize = 256;

fn failed(setting: &Setting, held: String, error: &io::Error) -> Done {
    Done { setting: setting.clone(), was: held.clone(), now: held, done: SettingDone::Failed, why: error.to_string() }
}

/// Adds an intended change to a record.
fn note(record: &mut Record, setting: &Setting, held: &str, value: &str, system: &impl System) {
    if let Some(change) = record.changes.iter_mut().find(|change| change.setting == *setting) {
        if change.ours.iter().any(|ours| system.is_still(setting, held, ours)) {
            change.ours = vec![held.to_owned(), value.to_owned()];
        } else {
            // Another program set this value in between, so it is the one to restore.
            *change = Change { setting: setting.clone(), was: held.to_owned(), ours: vec![value.to_owned()] };
        }
        return;
    }
    record.changes.push(Change { setting: setting.clone(), was: held.to_owned(), ours: vec![value.to_owned()] });
}

/// Reads a record of this user (`uid`). What another one wrote is no record of ours: who could plant it would have files written with our rights.
fn read(file: &Path, uid: u32) -> Result<Option<Record>, ServiceError> {
    let failed = |source| ServiceError::file(file, "read the record of changed settings", source);
    // Without a wait for a writer, if it is a pipe.
    let mut opened = match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    let bad = |what: String| ServiceError::Content { path: file.to_owned(), line: None, what };
    let owner = opened.metadata().map_err(failed)?.uid();
    if owner != uid {
        return Err(bad(format!(
            "user {owner} wrote this record of changed settings, and this is user {uid}: start numapilot as that user, name another folder with \
             --state-dir, or remove the file"
        )));
    }
    let mut text = Vec::new();
    opened.read_to_end(&mut text).map_err(failed)?;
    let remedy = "it lists settings that an earlier numapilot changed: restore them by hand, then remove the file";
    let record: Record = serde_json::from_slice(&text).map_err(|error| bad(format!("{error}; {remedy}")))?;
    if record.v != VERSION {
        return Err(bad(format!("version {} of another numapilot; start that one, or {remedy}", record.v)));
    }
    Ok(Some(record))
}

/// A lock on a file, given up when this is dropped. Closing the file is not enough: what another thread starts at that moment has the descriptor, too, until it
/// executes its program.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // SAFETY: the file is open. Nothing is left to do if this fails.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// Locks the folder for one process at a time.
fn lock(folder: &Path) -> Result<Lock, ServiceError> {
    let path = folder.join(LOCK);
    let mut options = OpenOptions::new();
    // A link that another user put there must not have its file emptied.
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let mut file = options.open(&path).map_err(|source| ServiceError::file(&path, "take the lock", source))?;
    // SAFETY: `file` is open; the lock goes with its last descriptor, or before (`Lock`).
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        let mut pid = String::new();
        let _ = file.read_to_string(&mut pid);
        return Err(ServiceError::Taken { path: folder.to_owned(), pid: pid.trim().parse().unwrap_or_default() });
    }
    let write = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    write.map_err(|source| ServiceError::file(&path, "take the lock", source))?;
    Ok(Lock(file))
}

#[cfg(test)]
mod tests {
    //! A made system, whose keeper dies at every step.

    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use proptest::prelude::*;

    use numapilot_host::Pid;
    use numapilot_host::Tid;

    use super::*;

    /// A system whose settings are a table in memory.
    #[derive(Clone, Debug, Default)]
    struct Made {
        values: Rc<RefCell<BTreeMap<Setting, String>>>,
        boot: String,
        read_only: bool,
    }

    impl System for Made {
        fn read(&self, setting: &Setting) -> io::Result<Option<String>> {
            Ok(self.values.borrow().get(setting).cloned())
        }

        fn write(&self, setting: &Setting, value: &str) -> io::Result<()> {
            if self.read_only {
                return Err(io::Error::from_raw_os_error(libc::EACCES));
            }
            // A cpuset without CPU 9.
            let value = value.replace(",9", "");
            self.values.borrow_mut().insert(setting.clone(), value);
            Ok(())
        }

        fn is_still(&self, setting: &Setting, held: &str, value: &str) -> bool {
            super::super::Live.is_still(setting, held, value)
        }

        fn boot(&self) -> String {
            self.boot.clone()
        }
    }

    fn sysctl(name: &str) -> Setting {
        Setting::Sysctl { name: name.to_owned() }
    }

    fn made(values: &[(&str, &str)]) -> Made {
        let values = values.iter().map(|(name, value)| (sysctl(name), (*value).to_owned())).collect();
        Made { values: Rc::new(RefCell::new(values)), boot: "b".to_owned(), read_only: false }
    }

    fn to(name: &str, value: &str) -> (Setting, String) {
        (sysctl(name), value.to_owned())
    }

    /// As a loop changes settings: what is there already or absent is passed over.
    fn change(guard: &mut SettingsGuard<Made>, wanted: &[(Setting, String)]) -> Result<usize, ServiceError> {
        let mut changed = 0;
        for (setting, value) in wanted {
            let Some(held) = guard.system.read(setting).unwrap().filter(|held| held != value) else { continue };
            guard.intend(&[(setting.clone(), held.clone(), value.clone())])?;
            guard.system.write(setting, value).unwrap();
            let made = guard.system.read(setting).unwrap().unwrap();
            guard.became(setting, &made)?;
            changed += 1;
        }
        Ok(changed)
    }

    fn values(system: &Made) -> Vec<String> {
        system.values.borrow().values().cloned().collect()
    }

    #[test]
    fn what_was_changed_comes_back_at_the_end_or_at_the_next_start() {
        for is_killed in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let system = made(&[("a", "1"), ("b", "0")]);
            let (mut guard, done) = SettingsGuard::open(folder.path(), system.clone()).unwrap();
            assert_eq!(done, []);
            assert_eq!(change(&mut guard, &[to("a", "0"), to("b", "0"), to("absent", "5")]).unwrap(), 1);
            change(&mut guard, &[to("a", "2")]).unwrap();
            assert_eq!(values(&system), ["2", "0"]);
            let done = if is_killed {
                drop(guard);
                assert_eq!(values(&system), ["2", "0"]);
                SettingsGuard::open(folder.path(), system.clone()).unwrap().1
            } else {
                guard.restore().unwrap()
            };
            assert_eq!((done.len(), done[0].done, done[0].now.as_str()), (1, SettingDone::Restored, "1"));
            assert_eq!(values(&system), ["1", "0"]);
            assert!(!folder.path().join(FILE).exists());
        }
    }

    #[test]
    fn somebody_elses_later_change_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let system = made(&[("a", "1")]);
        let (mut guard, _) = SettingsGuard::open(folder.path(), system.clone()).unwrap();
        change(&mut guard, &[to("a", "0")]).unwrap();
        system.write(&sysctl("a"), "3").unwrap();
        let done = guard.restore().unwrap();
        assert_eq!((done[0].done, values(&system)), (SettingDone::LeftAlone, vec!["3".to_owned()]));
        // Changed once more over somebody's value: that one comes back.
        change(&mut guard, &[to("a", "0")]).unwrap();
        system.write(&sysctl("a"), "4").unwrap();
        change(&mut guard, &[to("a", "0")]).unwrap();
        guard.restore().unwrap();
        assert_eq!(values(&system), ["4"]);
    }

    #[test]
    fn what_the_system_made_of_a_value_is_ours_too() {
        let folder = tempfile::tempdir().unwrap();
        let system = made(&[("a", "0,1,9")]);
        let (mut guard, _) = SettingsGuard::open(folder.path(), system.clone()).unwrap();
        change(&mut guard, &[to("a", "1,9")]).unwrap();
        assert_eq!(values(&system), ["1"]);
        drop(guard);
        let (_, done) = SettingsGuard::open(folder.path(), system.clone()).unwrap();
        assert_eq!(done[0].done, SettingDone::Restored);
    }

    #[test]
    fn an_earlier_boots_record_is_void_and_a_damaged_one_stops_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let system = made(&[("a", "1")]);
        let (mut guard, _) = SettingsGuard::open(folder.path(), system.clone()).unwrap();
        change(&mut guard, &[to("a", "0")]).unwrap();
        drop(guard);
        let later = Made { boot: "c".to_owned(), ..system.clone() };
        let (guard, done) = SettingsGuard::open(folder.path(), later).unwrap();
        assert_eq!((done, values(&system)), (vec![], vec!["0".to_owned()]));
        drop(guard);
        std::fs::write(folder.path().join(FILE), "{\"v\":1,").unwrap();
        let error = SettingsGuard::open(folder.path(), system).unwrap_err().to_string();
        assert!(error.contains(FILE) && error.contains("by hand"), "{error}");
    }

    /// In a folder that others may write to, such as one below `/tmp`, another user could have files overwritten.
    #[test]
    fn a_record_that_another_user_wrote_restores_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (mut guard, _) = SettingsGuard::open(folder.path(), made(&[("a", "1")])).unwrap();
        change(&mut guard, &[to("a", "0")]).unwrap();
        let file = folder.path().join(FILE);
        let owner = std::fs::metadata(&file).unwrap().uid();
        assert_eq!(read(&file, owner).unwrap().map(|record| record.changes.len()), Some(1));
        let error = read(&file, owner + 1).unwrap_err().to_string();
        assert!(error.contains(FILE) && error.contains(&format!("user {owner} wrote")), "{error}");
    }

    /// In such a folder, a link in the place of a file that is written had another file emptied.
    #[test]
    fn links_in_the_folder_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        std::fs::write(&other, "precious").unwrap();
        let state = folder.path().join("state");
        std::fs::create_dir(&state).unwrap();
        std::os::unix::fs::symlink(&other, state.join(LOCK)).unwrap();
        assert!(SettingsGuard::open(&state, made(&[("a", "1")])).is_err());
        std::fs::remove_file(state.join(LOCK)).unwrap();
        let (mut guard, _) = SettingsGuard::open(&state, made(&[("a", "1")])).unwrap();
        std::os::unix::fs::symlink(&other, state.join(format!("{FILE}.tmp"))).unwrap();
        assert!(change(&mut guard, &[to("a", "0")]).is_err());
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "precious");
    }

    #[test]
    fn one_process_at_a_time_and_what_fails_stays_on_record() {
        let folder = tempfile::tempdir().unwrap();
        let system = made(&[("a", "1")]);
        let (mut guard, _) = SettingsGuard::open(folder.path(), system.clone()).unwrap();
        let error = SettingsGuard::open(folder.path(), system.clone()).unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()) && error.contains("numapilot ctl"), "{error}");
        change(&mut guard, &[to("a", "0")]).unwrap();
        drop(guard);
        let without_rights = Made { read_only: true, ..system.clone() };
        let (guard, done) = SettingsGuard::open(folder.path(), without_rights).unwrap();
        assert_eq!(done[0].done, SettingDone::Failed);
        drop(guard);
        let (_, done) = SettingsGuard::open(folder.path(), system.clone()).unwrap();
        assert_eq!((done[0].done, values(&system)), (SettingDone::Restored, vec!["1".to_owned()]));
    }

    /// A process killed between its record and the change: the affinity before it named CPUs that are offline, and was taken for another program's.
    #[test]
    fn what_was_recorded_and_never_changed_is_no_ones_later_change() {
        let online = super::super::system::numbers(&std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap());
        let first = online.unwrap().first().copied().unwrap();
        let setting = Setting::Affinity { pid: Pid(1), tid: Tid(1), start_ticks: 1 };
        let folder = tempfile::tempdir().unwrap();
        let system = made(&[]);
        system.values.borrow_mut().insert(setting.clone(), first.to_string());
        let (mut guard, _) = SettingsGuard::open(folder.path(), system.clone()).unwrap();
        // No kernel has CPUs 8190 and 8191 online.
        guard.intend(&[(setting.clone(), format!("{first},8191"), "8190".to_owned())]).unwrap();
        assert_eq!(guard.restore().unwrap(), [], "not written yet");
        // What shows as both is ours: it is to get back all that it had.
        guard.intend(&[(setting.clone(), format!("{first},8191"), format!("{first},8190"))]).unwrap();
        let done = guard.restore().unwrap();
        assert_eq!(
            (done.len(), done[0].done, done[0].now.clone()),
            (1, SettingDone::Restored, format!("{first},8191"))
        );
    }

    #[test]
    fn without_a_record_nothing_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let system = made(&[("a", "1")]);
        let (mut guard, _) = SettingsGuard::open(folder.path(), system.clone()).unwrap();
        std::fs::create_dir(folder.path().join(format!("{FILE}.tmp"))).unwrap();
        let error = change(&mut guard, &[to("a", "0")]).unwrap_err().to_string();
        assert!(error.contains("nothing system-wide is changed"), "{error}");
        assert_eq!(values(&system), ["1"]);
    }

    proptest! {
        // Each step waits for the disk.
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Whatever is changed in whatever order, with deaths in between, ends as it was, unless somebody else's hand was last.
        #[test]
        fn everything_comes_back(steps in prop::collection::vec((0..3_usize, 0..4_u32, 0..4_u8), 1..20)) {
            let folder = tempfile::tempdir().unwrap();
            let names = ["a", "b", "c"];
            let system = made(&[("a", "10"), ("b", "11"), ("c", "12")]);
            let mut guard = Some(SettingsGuard::open(folder.path(), system.clone()).unwrap().0);
            for (which, value, what) in steps {
                match what {
                    0 | 1 => drop(change(guard.as_mut().unwrap(), &[to(names[which], &value.to_string())]).unwrap()),
                    2 => drop(guard.as_mut().unwrap().restore().unwrap()),
                    _ => {
                        drop(guard.take());
                        guard = Some(SettingsGuard::open(folder.path(), system.clone()).unwrap().0);
                    }
                }
            }
            guard.unwrap().restore().unwrap();
            prop_assert_eq!(values(&system), ["10", "11", "12"]);
        }
    }
}
