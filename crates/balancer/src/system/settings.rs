//! System settings that the loop changes while it runs: recorded before they change, restored afterwards.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use super::undo_log::UndoLog;
use crate::event::Setting;
use crate::event::SettingDone;

/// Whether the kernel's NUMA balancing is on.
pub const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";
/// Its shortest scan period in milliseconds (debugfs, Linux 5.13).
pub const SCAN_PERIOD_MIN: &str = "/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms";
/// Its longest scan period in milliseconds.
pub const SCAN_PERIOD_MAX: &str = "/sys/kernel/debug/sched/numa_balancing/scan_period_max_ms";
/// Delay before a program's first scan in milliseconds.
pub const SCAN_DELAY: &str = "/sys/kernel/debug/sched/numa_balancing/scan_delay_ms";

struct Changed {
    file: PathBuf,
    was: String,
    now: String,
}

/// The settings that this program has changed.
#[derive(Default)]
pub struct Settings {
    changed: Vec<Changed>,
}

/// Content of a settings file; `None`: there is no such file, or it may not be read.
#[must_use]
pub fn read(file: &str) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

impl Settings {
    /// Writes a value to a file, unless the file has it already.
    ///
    /// # Errors
    /// The file does not exist or may not be written, or its previous value cannot be recorded; the message gives the reason.
    pub fn set(&mut self, file: &str, value: &str, undo_log: &mut dyn UndoLog) -> Result<Option<Setting>, String> {
        let was = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?.trim().to_owned();
        if was == value {
            return Ok(None);
        }
        // Another program has changed it since: what that wrote is what is put back.
        if let Some(at) = self.changed.iter().position(|changed| changed.file.as_os_str() == file && changed.now != was)
        {
            self.changed.remove(at);
            undo_log.restored(file);
        }
        let known = self.changed.iter_mut().find(|changed| changed.file.as_os_str() == file);
        undo_log.will_change(file, &was, value)?;
        write(Path::new(file), value).map_err(|error| {
            let remedy = "run as root, or with CAP_SYS_ADMIN or CAP_SYS_RESOURCE";
            format!("{file}: {error}; {remedy}")
        })?;
        match known {
            Some(changed) => value.clone_into(&mut changed.now),
            None => self.changed.push(Changed { file: file.into(), was: was.clone(), now: value.to_owned() }),
        }
        Ok(Some(Setting { name: file.to_owned(), was, now: value.to_owned(), done: SettingDone::Changed }))
    }

    /// Restores one setting.
    pub fn put_back(&mut self, file: &str, undo_log: &mut dyn UndoLog) -> Option<Setting> {
        let at = self.changed.iter().position(|changed| changed.file.as_os_str() == file)?;
        Some(restore(&self.changed.remove(at), undo_log))
    }

    /// Restores all settings, the last change first. A setting that another program has changed since is not touched.
    pub fn put_all_back(&mut self, undo_log: &mut dyn UndoLog) -> Vec<Setting> {
        self.changed.drain(..).rev().map(|changed| restore(&changed, undo_log)).collect()
    }
}

/// With an end of line after the value, so that an empty value is written too.
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
        // Its administrator changes a setting between two changes of ours.
        fs::write(&a, "0\n").unwrap();
        assert!(settings.set(&a, "1", &mut undo_log).unwrap().is_some());
        fs::write(&a, "5\n").unwrap();
        assert!(settings.set(&a, "2", &mut undo_log).unwrap().is_some());
        assert_eq!(undo_log.files, [(a.clone(), "5".to_owned())]);
        settings.put_all_back(&mut undo_log);
        assert_eq!(read(&a).unwrap(), "5");
        assert!(settings.set(&path("none"), "1", &mut undo_log).unwrap_err().contains("none"));
    }
}
