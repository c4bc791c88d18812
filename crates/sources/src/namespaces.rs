//! Namespaces of process numbers: threads of a program that runs processes in namespaces of their own (containers, `unshare --pid`, sandboxes of build tools
//! and browsers) tell their numbers as they see them. Here are the numbers that this process has for them (proc(5): `NSpid` in `/proc/PID/status`).

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_host::innermost_number;

/// A namespace in which nothing was found is not searched again before this has passed: a search looks at every process.
const PAUSE: Duration = Duration::from_secs(1);

/// Processes of other namespaces, by their numbers there, which their records have: ours, of those that were found.
pub(crate) type Foreign = HashMap<Pid, Option<Pid>>;

/// This process's namespace, by the inode of its file; 0 where there is no `/proc`.
pub(crate) fn own() -> u32 {
    of_process(Path::new("/proc/self")).unwrap_or(0)
}

/// Whether this process's namespace is another than the machine's first, by whose numbers the processor's own traces tell threads.
pub(crate) fn is_inner() -> bool {
    /// `PROC_PID_INIT_INO` of `include/linux/proc_ns.h`.
    const FIRST: u32 = 0xefff_fffc;
    !matches!(own(), 0 | FIRST)
}

fn of_process(folder: &Path) -> Option<u32> {
    // The runtime keeps as much of it (np_slot.pid_namespace); the kernel's own numbers are no longer.
    fs::metadata(folder.join("ns/pid")).ok().map(|meta| meta.ino() as u32)
}

fn numbered(folder: &Path) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(folder).ok();
    entries.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// What is known of processes in other namespaces.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    /// Our number of a process, by namespace and its number there.
    processes: HashMap<(u32, Pid), Pid>,
    /// Namespaces in which the last search found nothing.
    failed: HashMap<u32, Instant>,
}

impl Namespaces {
    /// Our numbers of the thread that is (pid, tid) in `namespace`. `None`: it has gone, or may not be looked at.
    pub(crate) fn translate(&mut self, namespace: u32, pid: Pid, tid: Tid) -> Option<(Pid, Tid)> {
        self.translate_under(Path::new("/proc"), namespace, pid, tid, Instant::now())
    }

    fn translate_under(&mut self, proc: &Path, namespace: u32, pid: Pid, tid: Tid, now: Instant) -> Option<(Pid, Tid)> {
        let is_it = |ours: Pid| {
            let folder = proc.join(ours.to_string());
            of_process(&folder) == Some(namespace) && innermost_number(&folder) == Some(pid.0)
        };
        let known = self.processes.get(&(namespace, pid)).copied().filter(|ours| is_it(*ours));
        let ours = match known {
            Some(ours) => ours,
            None if self.failed.get(&namespace).is_some_and(|then| now.duration_since(*then) < PAUSE) => return None,
            None => {
                let Some(ours) = numbered(proc).map(Pid).find(|ours| is_it(*ours)) else {
                    self.failed.insert(namespace, now);
                    return None;
                };
                self.processes.insert((namespace, pid), ours);
                ours
            }
        };
        let tasks = proc.join(ours.to_string()).join("task");
        let task = numbered(&tasks).find(|task| innermost_number(&tasks.join(task.to_string())) == Some(tid.0))?;
        Some((ours, Tid(task)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_our_own_namespace_has_its_own_numbers() {
        let own_pid = Pid::own();
        // SAFETY: gettid has no conditions.
        let tid = Tid(u32::try_from(unsafe { libc::gettid() }).unwrap());
        let mut names = Namespaces::default();
        assert_ne!(own(), 0);
        assert_eq!(names.translate(own(), own_pid, tid), Some((own_pid, tid)));
        assert_eq!(names.translate(own(), own_pid, tid), Some((own_pid, tid)), "from what is known");
    }

    #[test]
    fn numbers_of_another_namespace_are_found_in_the_status_of_threads() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, numbers: &str| {
            let folder = folder.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("status"), format!("Name:\tx\nNSpid:\t{numbers}\nThreads:\t2\n")).unwrap();
        };
        for (process, numbers) in [("100", "100\t1"), ("200", "200\t1"), ("300", "300")] {
            put(process, numbers);
            fs::create_dir_all(folder.path().join(process).join("ns")).unwrap();
            fs::write(folder.path().join(process).join("ns/pid"), "").unwrap();
        }
        put("200/task/200", "200\t1");
        put("200/task/207", "207\t5");
        let namespace = of_process(&folder.path().join("200")).unwrap();
        let now = Instant::now();
        let mut names = Namespaces::default();
        assert_eq!(names.translate_under(folder.path(), namespace, Pid(1), Tid(5), now), Some((Pid(200), Tid(207))));
        assert_eq!(names.translate_under(folder.path(), namespace, Pid(1), Tid(9), now), None, "no such thread");
        fs::remove_dir_all(folder.path().join("200")).unwrap();
        assert_eq!(names.translate_under(folder.path(), namespace, Pid(1), Tid(5), now), None, "it has gone");
        assert!(names.failed.contains_key(&namespace));
    }
}
