//! Access to settings: the running system, or a simulated one in tests.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::Tid;
use numapilot_kernel::{KernelError, affinity, thread_cpus};
use numapilot_machine::CpuId;

use super::Setting;
use crate::identity;

/// A system whose settings can be read and written.
pub trait System {
    /// Reads a setting; `None`: the thread or cgroup that it belongs to no longer exists.
    ///
    /// # Errors
    /// The setting may not be read.
    fn read(&self, setting: &Setting) -> io::Result<Option<String>>;

    /// Writes a setting.
    ///
    /// # Errors
    /// The setting may not be written, or does not accept this value.
    fn write(&self, setting: &Setting, value: &str) -> io::Result<()>;

    /// Whether two values of a setting mean the same.
    fn is_same(&self, setting: &Setting, a: &str, b: &str) -> bool {
        match setting {
            Setting::Sysctl { .. } => a.split_whitespace().eq(b.split_whitespace()),
            Setting::File { .. } | Setting::Affinity { .. } => match (numbers(a), numbers(b)) {
                (Some(a), Some(b)) => a == b,
                _ => a.trim() == b.trim(),
            },
        }
    }

    /// Whether a setting that was written as `value` has it still, if it reads as `held` now.
    fn is_still(&self, setting: &Setting, held: &str, value: &str) -> bool {
        self.is_same(setting, held, value)
    }

    /// Identifier of the present boot.
    fn boot(&self) -> String;
}

/// The numbers of a list such as `0-3,8`; an empty list has none.
pub(super) fn numbers(list: &str) -> Option<BTreeSet<u32>> {
    let mut out = BTreeSet::new();
    for piece in list.trim().split(',').filter(|piece| !piece.is_empty()) {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last.saturating_sub(first) > 1 << 16 {
            return None;
        }
        out.extend(first..=last);
    }
    Some(out)
}

/// The running system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live;

/// Upper bound on the number of CPUs of any kernel.
const CPUS: u32 = 8192;

impl System for Live {
    fn read(&self, setting: &Setting) -> io::Result<Option<String>> {
        match setting {
            Setting::Sysctl { .. } | Setting::File { .. } => match std::fs::read_to_string(file(setting)) {
                Ok(text) => Ok(Some(text.trim_end().to_owned())),
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => Ok(None),
                Err(error) => Err(error),
            },
            Setting::Affinity { pid, tid, start_ticks } => {
                if identity::start_of_thread(*pid, *tid) != Some(*start_ticks) {
                    return Ok(None);
                }
                affinity(*tid)
            }
        }
    }

    fn write(&self, setting: &Setting, value: &str) -> io::Result<()> {
        match setting {
            Setting::Sysctl { .. } | Setting::File { .. } => {
                // One write call, as these files require, with an end of line so that an empty value is written too; never creates a file.
                let mut file = std::fs::OpenOptions::new().write(true).open(file(setting))?;
                io::Write::write_all(&mut file, format!("{value}\n").as_bytes())
            }
            Setting::Affinity { pid, tid, .. } => set_affinity(*pid, *tid, value),
        }
    }

    /// Affinities are read without the CPUs that are offline, and without those that a cpuset excludes by now.
    fn is_still(&self, setting: &Setting, held: &str, value: &str) -> bool {
        if self.is_same(setting, held, value) {
            return true;
        }
        let mask = |list: &str| -> Option<affinity::CpuMask> { Some(numbers(list)?.into_iter().map(CpuId).collect()) };
        match (setting, mask(held), mask(value)) {
            (Setting::Affinity { pid, .. }, Some(held), Some(value)) => {
                thread_cpus::is_still(*pid, &held, &value, affinity::online().as_ref())
            }
            _ => false,
        }
    }

    fn boot(&self) -> String {
        Root::default().text("proc/sys/kernel/random/boot_id").unwrap_or_default()
    }
}

fn file(setting: &Setting) -> PathBuf {
    match setting {
        Setting::Sysctl { name } => PathBuf::from("/proc/sys").join(name.replace('.', "/")),
        Setting::File { file } => PathBuf::from(file),
        Setting::Affinity { pid, tid, .. } => PathBuf::from(format!("/proc/{pid}/task/{tid}")),
    }
}

fn affinity(tid: Tid) -> io::Result<Option<String>> {
    match affinity::of_thread(tid) {
        Ok(mask) => Ok(Some(mask.cpus().iter().map(ToString::to_string).collect::<Vec<_>>().join(","))),
        Err(KernelError::Gone { .. }) => Ok(None),
        Err(error) => Err(answer(error)),
    }
}

fn set_affinity(pid: Pid, tid: Tid, value: &str) -> io::Result<()> {
    let no_list = || io::Error::new(io::ErrorKind::InvalidInput, format!("{value:?} is not a list of CPUs"));
    let cpus = numbers(value).filter(|cpus| cpus.iter().all(|cpu| *cpu < CPUS)).ok_or_else(no_list)?;
    thread_cpus::restore(pid, tid, &cpus.into_iter().map(CpuId).collect()).map_err(answer)
}

/// Converts a kernel error to the underlying system error.
fn answer(error: KernelError) -> io::Error {
    match error {
        KernelError::Gone { .. } => io::Error::from_raw_os_error(libc::ESRCH),
        KernelError::Denied { source, .. }
        | KernelError::MayNotBind { source, .. }
        | KernelError::Unavailable { source, .. }
        | KernelError::Call { source, .. } => source,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    //! This thread's affinity, and lists.

    use super::*;

    #[test]
    fn lists_mean_sets() {
        assert_eq!(numbers("0-3,8\n").unwrap(), BTreeSet::from([0, 1, 2, 3, 8]));
        assert_eq!(numbers("").unwrap(), BTreeSet::new());
        assert_eq!(numbers("0-4000000000"), None);
        assert_eq!(numbers("a"), None);
        let setting = Setting::File { file: "x".to_owned() };
        assert!(Live.is_same(&setting, "0-3", "3,2,1,0") && !Live.is_same(&setting, "0-3", "0-2"));
        // No kernel has CPU 8191 online.
        let affinity = Setting::Affinity { pid: Pid(1), tid: Tid(1), start_ticks: 1 };
        let here = numapilot_kernel::affinity::online().unwrap().cpus()[0].0.to_string();
        let bound = format!("{here},8191");
        assert!(Live.is_still(&affinity, &here, &bound) && !Live.is_same(&affinity, &here, &bound));
        assert!(!Live.is_still(&setting, &here, &bound) && !Live.is_still(&affinity, &bound, &here));
        let setting = Setting::Sysctl { name: "x".to_owned() };
        assert!(Live.is_same(&setting, "1\n", "1") && !Live.is_same(&setting, "1 2", "12"));
    }

    #[test]
    fn affinity_is_read_and_written_and_a_thread_that_is_gone_is_none() {
        let pid = Pid::own();
        let setting = std::thread::spawn(move || {
            // SAFETY: has no preconditions.
            let tid = Tid(unsafe { libc::gettid() } as u32);
            let start_ticks = identity::start_of_thread(pid, tid).unwrap();
            let setting = Setting::Affinity { pid, tid, start_ticks };
            let before = Live.read(&setting).unwrap().unwrap();
            let first = before.split(',').next().unwrap();
            Live.write(&setting, first).unwrap();
            assert_eq!(Live.read(&setting).unwrap().unwrap(), first);
            Live.write(&setting, &before).unwrap();
            assert!(Live.write(&setting, "what").is_err());
            let other = Setting::Affinity { pid, tid, start_ticks: start_ticks + 1 };
            assert_eq!(Live.read(&other).unwrap(), None, "another thread of this number");
            setting
        })
        .join()
        .unwrap();
        assert_eq!(Live.read(&setting).unwrap(), None);
        let setting = Setting::Sysctl { name: "no.such".to_owned() };
        assert_eq!(Live.read(&setting).unwrap(), None);
        assert!(!Live.boot().is_empty());
    }
}
