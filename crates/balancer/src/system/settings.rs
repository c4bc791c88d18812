//! Settings of the system that the loop changes while it runs: written down before they are changed, put back after.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use super::undo_log::UndoLog;
use crate::event::Setting;
use crate::event::SettingDone;

/// The kernel's NUMA balancing: whether it is on.
pub const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";
/// How often it unmaps pages (debugfs, Linux 5.13).
pub const SCAN_PERIOD_MIN: &str = "/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms";
/// At most how seldom.
pub const SCAN_PERIOD_MAX: &str = "/sys/kernel/debug/sched/numa_balancing/scan_period_max_ms";
/// How old a program is when it is scanned first.
pub const SCAN_DELAY: &str = "/sys/kernel/debug/sched/numa_balancing/scan_delay_ms";

struct Changed {
    file: PathBuf,
    was: String,
    now: String,
}

/// What was changed by us.
#[derive(Default)]
pub struct Settings {
    changed: Vec<Changed>,
}

/// What a settings file holds; `None`: there is no such file, or it may not be read.
#[must_use]
pub fn read(file: &str) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

impl Settings {
    /// Sets a file to a value, unless it has it.
    ///
    /// # Errors
    /// It is not there, may not be written, or what it was cannot be kept; in words.
    pub fn set(&mut self, file: &str, value: &str, undo_log: &mut dyn UndoLog) -> Result<Option<Setting>, String> {
        let was = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?.trim().to_owned();
        if was == value {
            return Ok(None);
        }
        let known = self.changed.iter_mut().find(|changed| changed.file.as_os_str() == file);
        undo_log.will_change(file, &was, value)?;
        write(Path::new(file), value).map_err(|error| {
            let remedy = "run as root, or with the right to write there (CAP_SYS_ADMIN or CAP_SYS_RESOURCE)";
            format!("{file}: {error}; {remedy}")
        })?;
        match known {
            Some(changed) => value.clone_into(&mut changed.now),
            None => self.changed.push(Changed { file: file.into(), was: was.clone(), now: value.to_owned() }),
        }
        Ok(Some(Setting { name: file.to_owned(), was, now: value.to_owned(), done: SettingDone::Changed }))
    }

    /// Puts one setting back.
    pub fn put_back(&mut self, file: &str, undo_log: &mut dyn UndoLog) -> Option<Setting> {
        let at = self.changed.iter().position(|changed| changed.file.as_os_str() == file)?;
        Some(restore(&self.changed.remove(at), undo_log))
    }

    /// Puts everything back, last change first. What somebody else has changed since is left alone.
    pub fn put_all_back(&mut self, undo_log: &mut dyn UndoLog) -> Vec<Setting> {
        self.changed.drain(..).rev().map(|changed| restore(&changed, undo_log)).collect()
    }
}

/// An end of line behind the value, so that an empty one is written too.
fn write(file: &Path, value: &str) -> io::Result<()> {
    fs::write(file, format!("{value}\n"))
}

fn restore(changed: &Changed, undo_log: &mut dyn UndoLog) -> Setting {
    let name = changed.file.display().to_string();
    let found = fs::read_to_string(&changed.file).map(|text| text.trim().to_owned());
    let (now, done) = match found {
        Ok(found) if found != changed.now => (found, SettingDone::LeftAlone),
        Ok(_) => match write(&changed.file, &changed.was) {
            Ok(()) => (changed.was.clone(), SettingDone::Restored),
            Err(_) => (changed.now.clone(), SettingDone::Failed),
        },
        Err(_) => (changed.now.clone(), SettingDone::Failed),
    };
    if done != SettingDone::Failed {
        undo_log.restored(&name);
    }
    Setting { name, was: changed.now.clone(), now, done }
}

#[cfg(test)]
mod tests {
    //! Files in a folder of our own.

    use super::*;
    use crate::system::undo_log::tests::Kept;

    #[test]
    fn what_is_changed_is_kept_and_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (a, b) = (path("a"), path("b"));
        fs::write(&a, "0\n").unwrap();
        fs::write(&b, "1000\n").unwrap();
        let (mut settings, mut undo_log) = (Settings::default(), Kept::default());
        assert!(settings.set(&a, "0", &mut undo_log).unwrap().is_none());
        assert!(settings.set(&a, "1", &mut undo_log).unwrap().is_some());
        assert!(settings.set(&b, "100", &mut undo_log).unwrap().is_some());
        assert!(settings.set(&b, "200", &mut undo_log).unwrap().is_some());
        assert_eq!(undo_log.files, [(a.clone(), "0".to_owned()), (b.clone(), "1000".to_owned())]);
        fs::write(&a, "2").unwrap();
        let done = settings.put_all_back(&mut undo_log);
        assert_eq!(
            done.iter().map(|done| done.done).collect::<Vec<_>>(),
            [SettingDone::Restored, SettingDone::LeftAlone]
        );
        assert_eq!((read(&a).unwrap().as_str(), read(&b).unwrap().as_str()), ("2", "1000"));
        assert!(undo_log.files.is_empty() && settings.put_all_back(&mut undo_log).is_empty());
        assert!(settings.set(&path("none"), "1", &mut undo_log).unwrap_err().contains("none"));
    }
}
