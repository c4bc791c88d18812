//! System settings that the loop changes while it runs: recorded before they change, restored afterwards.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use crate::event::Setting;
use crate::event::SettingDone;
use crate::execution::progress::Progress;
use crate::system::undo_log::UndoLog;

/// Whether the kernel's NUMA balancing is on.
pub const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";
/// Its shortest scan period in milliseconds (debugfs, Linux 5.13).
pub const SCAN_PERIOD_MIN: &str = "/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms";
/// Its longest scan period in milliseconds.
pub const SCAN_PERIOD_MAX: &str = "/sys/kernel/debug/sched/numa_balancing/scan_period_max_ms";
/// Delay before a program's first scan in milliseconds.
pub const SCAN_DELAY: &str = "/sys/kernel/debug/sched/numa_balancing/scan_delay_ms";

/// Time between two questions whether to go on while a setting is written.
const ASK_EVERY: Duration = Duration::from_millis(100);

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
        let Some(was) = self.about_to_set(file, value, undo_log)? else { return Ok(None) };
        let result = write(Path::new(file), value);
        self.was_set((file, value), was, result, undo_log).map(Some)
    }

    /// Sets files that belong together, in this order: all of them, or none.
    ///
    /// # Errors
    /// As [`Settings::set`], for one of them. Those that this has changed have the values again that they had before this program changed them.
    pub fn set_together(
        &mut self,
        values: &[(&str, &str)],
        undo_log: &mut dyn UndoLog,
    ) -> (Vec<Setting>, Result<(), String>) {
        let mut settings = Vec::new();
        for (at, (file, value)) in values.iter().enumerate() {
            match self.set(file, value, undo_log) {
                Ok(setting) => settings.extend(setting),
                Err(why) => {
                    settings.extend(values[..at].iter().rev().filter_map(|(file, _)| self.put_back(file, undo_log)));
                    return (settings, Err(why));
                }
            }
        }
        (settings, Ok(()))
    }

    /// As [`Settings::set`], for a file whose writing may take long: a cpuset's waits for other changes of cgroups, and changes what every CPU schedules.
    /// That cannot be ended; `progress` is asked all the same, so that nobody takes this program for dead.
    ///
    /// # Errors
    /// As [`Settings::set`].
    pub fn set_slowly(
        &mut self,
        file: &str,
        value: &str,
        progress: &mut dyn Progress,
    ) -> Result<Option<Setting>, String> {
        let Some(was) = self.about_to_set(file, value, progress.undo_log())? else { return Ok(None) };
        let (path, text) = (PathBuf::from(file), value.to_owned());
        let result = aside(move || write(&path, &text), progress);
        self.was_set((file, value), was, result, progress.undo_log()).map(Some)
    }

    /// Records that a file is about to change. Returns its present value; `None`: it is `value` already.
    fn about_to_set(&mut self, file: &str, value: &str, undo_log: &mut dyn UndoLog) -> Result<Option<String>, String> {
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
        undo_log.will_change(file, &was, value)?;
        Ok(Some(was))
    }

    fn was_set(
        &mut self,
        (file, value): (&str, &str),
        was: String,
        result: io::Result<()>,
        undo_log: &mut dyn UndoLog,
    ) -> Result<Setting, String> {
        let known = self.changed.iter_mut().find(|changed| changed.file.as_os_str() == file);
        if let Err(error) = result {
            // It has its value still: nothing of it has to be put back, unless an earlier change has.
            if known.is_none() {
                undo_log.restored(file);
            }
            return Err(format!("{file}: {error}; {}", remedy(file, &error)));
        }
        match known {
            Some(changed) => value.clone_into(&mut changed.now),
            None => self.changed.push(Changed { file: file.into(), was: was.clone(), now: value.to_owned() }),
        }
        Ok(Setting { name: file.to_owned(), was, now: value.to_owned(), done: SettingDone::Changed })
    }

    /// Whether a setting that this program has changed has another value now: somebody else has changed it since.
    #[must_use]
    pub fn is_anothers(&self, file: &str) -> bool {
        let changed = self.changed.iter().find(|changed| changed.file.as_os_str() == file);
        changed.is_some_and(|changed| read(file).is_some_and(|now| now != changed.now))
    }

    /// Restores one setting that was changed; `None`: that file was not.
    pub fn put_back(&mut self, file: &str, undo_log: &mut dyn UndoLog) -> Option<Setting> {
        let at = self.changed.iter().position(|changed| changed.file.as_os_str() == file)?;
        Some(restore(&self.changed.remove(at), undo_log))
    }

    /// Restores all settings, the last change first. A setting that another program has changed since is not touched.
    pub fn put_all_back(&mut self, undo_log: &mut dyn UndoLog) -> Vec<Setting> {
        self.changed.drain(..).rev().map(|changed| restore(&changed, undo_log)).collect()
    }
}

/// What helps where a setting cannot be written.
fn remedy(file: &str, error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EROFS) if file.starts_with("/sys/fs/cgroup") => {
            "cgroups are read-only for this service (ProtectControlGroups= of its systemd unit): install the drop-in packaging/systemd/pack.conf \
             (docs/service.md), or leave out `pack`"
        }
        Some(libc::EACCES) if file.starts_with("/sys/fs/cgroup") => {
            "the cgroup's files belong to another user: run with CAP_DAC_OVERRIDE"
        }
        Some(libc::EROFS) => {
            "it is mounted read-only here (ProtectKernelTunables= of a systemd unit, or a container): allow it to be written, or use --keep-settings \
             (keep-settings = true)"
        }
        _ => "run as root, or with CAP_SYS_ADMIN or CAP_SYS_RESOURCE",
    }
}

/// Does something in a thread of its own, and asks `progress` meanwhile.
fn aside(work: impl FnOnce() -> io::Result<()> + Send + 'static, progress: &mut dyn Progress) -> io::Result<()> {
    let (done, result) = mpsc::channel();
    // The receiver stays until the answer has come.
    let run = move || drop(done.send(work()));
    std::thread::Builder::new().name("setting".to_owned()).spawn(run)?;
    loop {
        match result.recv_timeout(ASK_EVERY) {
            Ok(result) => return result,
            Err(mpsc::RecvTimeoutError::Timeout) => drop(progress.goes_on()),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the thread that writes it has ended"));
            }
        }
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
    use crate::execution::progress::tests::Until;
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
        assert!(!settings.is_anothers(&a) && !settings.is_anothers(&b));
        fs::write(&a, "5\n").unwrap();
        assert!(settings.is_anothers(&a));
        assert!(settings.set(&a, "2", &mut undo_log).unwrap().is_some());
        assert_eq!(undo_log.files, [(a.clone(), "5".to_owned())]);
        settings.put_all_back(&mut undo_log);
        assert_eq!(read(&a).unwrap(), "5");
        assert!(settings.set(&path("none"), "1", &mut undo_log).unwrap_err().contains("none"));
    }

    /// The shortest scan period stayed short until the end where the longest could not be recorded or written.
    #[test]
    fn settings_that_belong_together_are_all_set_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (least, most, none) = (path("least"), path("most"), path("none"));
        let (mut settings, mut undo_log) = (Settings::default(), Kept::default());
        fs::write(&least, "1000\n").unwrap();
        fs::write(&most, "60000\n").unwrap();
        let (told, result) = settings.set_together(&[(least.as_str(), "100"), (none.as_str(), "400")], &mut undo_log);
        assert!(result.unwrap_err().contains("none"));
        let done: Vec<SettingDone> = told.iter().map(|setting| setting.done).collect();
        assert_eq!(done, [SettingDone::Changed, SettingDone::Restored]);
        assert_eq!((read(&least).unwrap().as_str(), undo_log.files.len()), ("1000", 0));
        let (told, result) = settings.set_together(&[(least.as_str(), "100"), (most.as_str(), "400")], &mut undo_log);
        assert!(result.is_ok() && told.len() == 2 && undo_log.files.len() == 2);
        assert_eq!((read(&least).unwrap().as_str(), read(&most).unwrap().as_str()), ("100", "400"));
    }

    /// Says each time that it was asked.
    struct Telling(mpsc::Sender<()>, Until);

    impl Progress for Telling {
        fn goes_on(&mut self) -> bool {
            let _ = self.0.send(());
            self.1.goes_on()
        }

        fn undo_log(&mut self) -> &mut dyn UndoLog {
            self.1.undo_log()
        }
    }

    #[test]
    fn a_write_that_takes_long_keeps_nobody_waiting_for_a_sign_of_life() {
        let (tell, is_asked) = mpsc::channel();
        let mut telling = Telling(tell, Until::ever());
        // It takes until somebody was asked.
        let slow = move || is_asked.recv_timeout(Duration::from_secs(60)).map_err(io::Error::other);
        aside(slow, &mut telling).unwrap();
        let mut progress = telling.1;
        assert!(progress.asked >= 1, "{} times", progress.asked);
        // The same change as the quick one's.
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "0-1\n").unwrap();
        let (name, mut settings) = (file.path().display().to_string(), Settings::default());
        assert!(settings.set_slowly(&name, "1", &mut progress).unwrap().is_some());
        assert_eq!((read(&name).unwrap().as_str(), progress.kept.files.len()), ("1", 1));
        settings.put_all_back(&mut progress.kept);
        assert_eq!(read(&name).unwrap(), "0-1");
    }

    #[test]
    fn a_file_system_that_is_read_only_for_the_service_is_told_with_what_helps() {
        let read_only = io::Error::from_raw_os_error(libc::EROFS);
        assert!(remedy("/sys/fs/cgroup/batch/cpuset.mems", &read_only).contains("ProtectControlGroups="));
        assert!(remedy(NUMA_BALANCING, &read_only).contains("ProtectKernelTunables="));
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        assert!(remedy("/sys/fs/cgroup/batch/cpuset.mems", &denied).contains("root"));
        // A change that failed is none: nothing is left to be put back.
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "0-1\n").unwrap();
        let (name, mut settings, mut undo_log) =
            (file.path().display().to_string(), Settings::default(), Kept::default());
        let was = settings.about_to_set(&name, "1", &mut undo_log).unwrap().unwrap();
        assert_eq!(undo_log.files.len(), 1);
        let why = settings.was_set((&name, "1"), was, Err(read_only), &mut undo_log).unwrap_err();
        assert!(why.contains("read-only") && undo_log.files.is_empty(), "{why}");
        assert!(settings.put_all_back(&mut undo_log).is_empty());
    }
}
