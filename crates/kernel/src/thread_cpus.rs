//! Affinities under cpusets that change meanwhile, as container managers change them: whether a thread has an affinity still, and giving back what it had.
//!
//! Since Linux 6.2 a thread keeps the affinity that was set for it (`user_cpus_ptr`), and runs on what its cpuset leaves of that; where that is nothing, on all
//! that the cpuset allows (`__set_cpus_allowed_ptr` in `kernel/sched/core.c`). A thread for which none was ever set follows its cpuset.

use std::path::Path;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::Tid;
use numapilot_host::cgroups;

use crate::affinity;
use crate::affinity::CpuMask;
use crate::cgroup;
use crate::error::KernelError;

/// The CPUs that threads can have.
#[derive(Clone, Debug)]
struct Available {
    online: CpuMask,
    /// Of these, what the process's cpuset allows.
    allowed: CpuMask,
}

impl Available {
    /// To threads of a process; `None`: the kernel does not say, or there is no cgroup of version 2.
    fn to(root: &Path, pid: Pid) -> Option<Available> {
        let online = affinity::online()?;
        let cpuset = cgroup::nearest_cpuset(&cgroups::of_process(&Root::new(root), pid)?);
        let allowed = cpuset.map_or_else(|| online.clone(), |cpuset| cpuset.effective_cpus.and(&online));
        Some(Available { online, allowed })
    }

    /// Whether a thread that was given `set` is shown as having `shown`.
    fn shows(&self, set: &CpuMask, shown: &CpuMask) -> bool {
        let left = set.and(&self.allowed);
        if left.is_empty() {
            !shown.is_empty() && *shown == self.allowed && !set.and(&self.online).is_empty()
        } else {
            left == *shown
        }
    }

    /// What to set for a thread that had `before`. If that was all that its cpuset allows, then most probably none was set: it is to follow its cpuset again.
    fn to_restore(&self, before: &CpuMask) -> CpuMask {
        if before.and(&self.online) == self.allowed { CpuMask::all() } else { before.clone() }
    }
}

/// Whether a thread of a process that was given `set` has it still, if it is shown as having `shown`: CPUs may have gone offline since, and its cpuset may have
/// been changed. `online`: the CPUs that are.
#[must_use]
pub fn is_still(pid: Pid, shown: &CpuMask, set: &CpuMask, online: Option<&CpuMask>) -> bool {
    affinity::is_still_with(shown, set, online)
        || Available::to(Path::new("/"), pid).is_some_and(|available| available.shows(set, shown))
}

/// Gives a thread of a process back the affinity that it had.
///
/// # Errors
/// It has ended, may not be steered, or its cpuset allows none of these CPUs.
pub fn restore(pid: Pid, tid: Tid, before: &CpuMask) -> Result<(), KernelError> {
    match Available::to(Path::new("/"), pid) {
        Some(available) => affinity::set_thread(tid, &available.to_restore(before)),
        None => affinity::set_thread(tid, before),
    }
}

#[cfg(test)]
mod tests {
    //! Cpusets made up, and this thread.

    use numapilot_machine::CpuId;

    use super::*;

    fn mask(cpus: &[u32]) -> CpuMask {
        cpus.iter().copied().map(CpuId).collect()
    }

    fn available(allowed: &[u32]) -> Available {
        Available { online: mask(&[0, 1, 2, 3, 4, 5]), allowed: mask(allowed) }
    }

    /// A thread whose cpuset was narrowed while it was bound was taken for bound by another program: it stayed bound for good.
    #[test]
    fn an_affinity_is_known_under_a_cpuset_that_has_changed() {
        let narrowed = available(&[1, 2, 3]);
        assert!(narrowed.shows(&mask(&[0, 1]), &mask(&[1])) && narrowed.shows(&mask(&[1, 2]), &mask(&[1, 2])));
        assert!(!narrowed.shows(&mask(&[0, 1, 2]), &mask(&[1])), "another program took one away");
        let elsewhere = available(&[4, 5]);
        assert!(elsewhere.shows(&mask(&[0, 1]), &mask(&[4, 5])), "nothing is left, so it has all of the cpuset's");
        assert!(!elsewhere.shows(&mask(&[0, 1]), &mask(&[4])) && !elsewhere.shows(&mask(&[8]), &mask(&[4, 5])));
        assert!(!available(&[]).shows(&mask(&[0]), &mask(&[])));
    }

    /// It was given the CPUs that its cpuset allowed at that time, and never ran on those that were added to the cpuset later.
    #[test]
    fn a_thread_that_followed_its_cpuset_does_so_again_and_one_with_an_affinity_gets_that() {
        let cpuset = available(&[1, 2, 3]);
        assert_eq!(cpuset.to_restore(&mask(&[1, 2, 3, 9])), CpuMask::all(), "CPU 9 is offline");
        assert_eq!(cpuset.to_restore(&mask(&[1, 2])), mask(&[1, 2]), "it had chosen these");
        assert_eq!(cpuset.to_restore(&mask(&[0, 1, 2, 3])), mask(&[0, 1, 2, 3]), "the cpuset has changed since");
        assert!(CpuMask::all().cpus().len() > 4096);
    }

    #[test]
    fn this_thread_gets_back_what_it_had() {
        std::thread::spawn(|| {
            // SAFETY: has no preconditions.
            let (pid, tid) = (Pid::own(), Tid(unsafe { libc::gettid() } as u32));
            let before = affinity::of_thread(tid).unwrap();
            let first: CpuMask = before.cpus().into_iter().take(1).collect();
            affinity::set_thread(tid, &first).unwrap();
            assert!(is_still(pid, &affinity::of_thread(tid).unwrap(), &first, affinity::online().as_ref()));
            restore(pid, tid, &before).unwrap();
            assert_eq!(affinity::of_thread(tid).unwrap(), before);
        })
        .join()
        .unwrap();
    }
}
