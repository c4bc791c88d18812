//! Identity and owner of the process that has a process id now.

use std::os::unix::fs::MetadataExt;

use numapilot_balancer::event::Target;
use numapilot_host::Pid;
use numapilot_host::ProcessPages;
use numapilot_host::Root;
use numapilot_host::TaskStat;
use numapilot_host::TaskStatus;
use numapilot_host::Tid;
use numapilot_kernel::task;

use crate::control::authority::ProcessFacts;

/// Start time of a thread in clock ticks since boot; `None`: it has ended.
#[must_use]
pub(crate) fn start_of_thread(pid: Pid, tid: Tid) -> Option<u64> {
    task::stat_of_thread(pid, tid).ok().map(|stat| stat.start_ticks)
}

/// Reads the facts about a process; `None`: there is none. The start time is read before and after the users, so that reuse of the id in between is noticed.
#[must_use]
pub fn process(pid: Pid) -> Option<ProcessFacts> {
    let (root, mut text) = (Root::default(), Vec::new());
    let before = task::start_ticks_of(pid)?;
    let owner = std::fs::metadata(root.path().join(format!("proc/{pid}"))).ok()?.uid();
    let status = TaskStatus::read(&root, pid, &mut text)?;
    if status.process() != Some(pid) {
        // A thread id does not name a process.
        return None;
    }
    let uids = status.users()?;
    let after = task::stat(pid).ok()?;
    let target = Target { pid, start_ticks: after.start_ticks, uid: uids[0], name: after.name };
    (before == after.start_ticks).then_some(ProcessFacts { target, uids, owner })
}

/// Why a process has no memory that could be moved; `None`: it has some.
#[must_use]
pub(crate) fn without_memory(root: &Root, pid: Pid) -> Option<&'static str> {
    if ProcessPages::read(root, pid)?.mapped > 0 {
        return None;
    }
    let mut text = Vec::new();
    let stat = TaskStat::read(root, pid, &mut text)?;
    // Where the first thread alone has ended, the process seems to have none.
    match (stat.is_zombie(), stat.has_ended()) {
        (true, _) => Some("has ended"),
        (false, true) => None,
        (false, false) => Some("is a thread of the kernel and has no memory of its own"),
    }
}

#[cfg(test)]
mod tests {
    //! This process, its threads, and one that is gone.

    use super::*;

    #[test]
    fn this_process_is_known_and_its_threads_are_none() {
        let pid = Pid::own();
        let facts = process(pid).unwrap();
        // SAFETY: has no preconditions.
        let uid = unsafe { libc::getuid() };
        assert_eq!((facts.target.pid, facts.target.uid, facts.uids), (pid, uid, [uid; 4]));
        assert!(facts.target.start_ticks > 0 && !facts.target.name.is_empty());
        std::thread::spawn(move || {
            // SAFETY: has no preconditions.
            let tid = Tid(unsafe { libc::gettid() } as u32);
            assert_eq!(process(Pid::of_task(tid)), None);
            assert!(start_of_thread(pid, tid).unwrap() >= facts.target.start_ticks);
        })
        .join()
        .unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(process(Pid::of_child(&child)), None);
    }

    /// `ctl add 2` was a success.
    #[test]
    fn threads_of_the_kernel_and_zombies_have_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        for (pid, pages, state) in [(7, 0, "S"), (8, 0, "Z"), (9, 50, "S")] {
            let of_process = folder.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&of_process).unwrap();
            std::fs::write(of_process.join("statm"), format!("{pages} 4 1 3 0 9 0\n")).unwrap();
            let zeros = " 0".repeat(48);
            std::fs::write(of_process.join("stat"), format!("{pid} (task) {state} 1{zeros}\n")).unwrap();
        }
        let told = [7, 8, 9, 10].map(|pid| without_memory(&root, Pid(pid)).unwrap_or_default());
        assert!(told[0].contains("thread of the kernel") && told[1] == "has ended", "{told:?}");
        assert_eq!(told[2..], ["", ""]);
        assert_eq!(without_memory(&Root::default(), Pid::own()), None);
    }
}
