//! On which CPUs threads may run: `sched_getaffinity` and `sched_setaffinity`, thread by thread.

use std::io;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::TaskStatus;
use numapilot_host::Tid;
use numapilot_machine::CpuId;
use numapilot_machine::parse_cpu_list;

use crate::error::KernelError;

/// Words of a mask: more CPUs than any kernel has (8,192).
const WORDS: usize = 8192 / 64;

/// A set of CPUs.
#[derive(Clone, PartialEq, Eq)]
pub struct CpuMask(Box<[u64; WORDS]>);

impl std::fmt::Debug for CpuMask {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "CpuMask({})", numapilot_machine::format_cpu_list(self.cpus().iter().map(|cpu| cpu.0)))
    }
}

impl FromIterator<CpuId> for CpuMask {
    /// CPUs past the largest that a mask holds are left out: no kernel has them.
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> CpuMask {
        let mut mask = Box::new([0; WORDS]);
        for cpu in cpus {
            if let Some(word) = mask.get_mut(cpu.0 as usize / 64) {
                *word |= 1 << (cpu.0 % 64);
            }
        }
        CpuMask(mask)
    }
}

impl CpuMask {
    /// Every CPU that a kernel can have.
    #[must_use]
    pub fn all() -> CpuMask {
        CpuMask(Box::new([u64::MAX; WORDS]))
    }

    /// The CPUs in the set, ascending.
    #[must_use]
    pub fn cpus(&self) -> Vec<CpuId> {
        let is_set = |cpu: &u32| self.0[*cpu as usize / 64] >> (cpu % 64) & 1 != 0;
        (0..(WORDS * 64) as u32).filter(is_set).map(CpuId).collect()
    }

    /// The intersection of both sets.
    #[must_use]
    pub fn and(&self, other: &CpuMask) -> CpuMask {
        let mut both = self.clone();
        both.0.iter_mut().zip(other.0.iter()).for_each(|(word, other)| *word &= other);
        both
    }

    /// Whether a thread that was given this set is shown as having `shown`, while only these CPUs are online: `sched_getaffinity` leaves out the others.
    #[must_use]
    pub fn shows_as(&self, shown: &CpuMask, online: &CpuMask) -> bool {
        self == shown || (!shown.is_empty() && self.and(online) == *shown)
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

/// The CPUs that are online; `None`: the kernel does not say (a container may hide the file).
#[must_use]
pub fn online() -> Option<CpuMask> {
    let text = Root::default().text("sys/devices/system/cpu/online")?;
    Some(parse_cpu_list(&text).ok()?.into_iter().map(CpuId).collect())
}

/// Whether a thread that was given `set` has it still, if it is shown as having `shown`: CPUs may have gone offline since.
#[must_use]
pub fn is_still(shown: &CpuMask, set: &CpuMask) -> bool {
    shown == set || is_still_with(shown, set, online().as_ref())
}

/// As [`is_still`], with the CPUs that are [`online`], which are read once for many threads.
#[must_use]
pub fn is_still_with(shown: &CpuMask, set: &CpuMask, online: Option<&CpuMask>) -> bool {
    shown == set || online.is_some_and(|online| set.shows_as(shown, online))
}

/// What a thread is shown as having, `shown`, with those of its CPUs that are offline or yet to be added: what it is to get back one day. Just `shown` where
/// the kernel says no more, or its affinity has changed since. `online`: the CPUs that are ([`online`]).
#[must_use]
pub fn with_offline(tid: Tid, shown: &CpuMask, online: Option<&CpuMask>) -> CpuMask {
    let Some(online) = online else { return shown.clone() };
    let mut text = Vec::new();
    let status = TaskStatus::read(&Root::default(), Pid::of_task(tid), &mut text).unwrap_or_default();
    named(status, shown, online).unwrap_or_else(|| shown.clone())
}

/// The affinity in a `status` file, if a thread that has it is shown as having `shown`.
fn named(status: TaskStatus<'_>, shown: &CpuMask, online: &CpuMask) -> Option<CpuMask> {
    let named: CpuMask = parse_cpu_list(status.allowed_cpus()?).ok()?.into_iter().map(CpuId).collect();
    named.shows_as(shown, online).then_some(named)
}

/// The CPUs on which a thread may run (`sched_getaffinity`), as far as they are online.
///
/// # Errors
/// It has ended, or may not be looked at.
pub fn of_thread(tid: Tid) -> Result<CpuMask, KernelError> {
    let number = libc::pid_t::try_from(tid.0).map_err(|_| KernelError::Gone { pid: Pid::of_task(tid) })?;
    let mut mask = Box::new([0_u64; WORDS]);
    // SAFETY: the mask has as many bytes as the call is told.
    let result = unsafe { libc::sched_getaffinity(number, WORDS * 8, mask.as_mut_ptr().cast()) };
    match result {
        0 => Ok(CpuMask(mask)),
        _ => Err(KernelError::of_thread_call("sched_getaffinity", tid, io::Error::last_os_error())),
    }
}

/// Lets a thread run on these CPUs only.
///
/// # Errors
/// It has ended, may not be steered, or its cpuset allows none of them.
pub fn set_thread(tid: Tid, mask: &CpuMask) -> Result<(), KernelError> {
    let number = libc::pid_t::try_from(tid.0).map_err(|_| KernelError::Gone { pid: Pid::of_task(tid) })?;
    // SAFETY: the mask has as many bytes as the call is told.
    let result = unsafe { libc::sched_setaffinity(number, WORDS * 8, mask.0.as_ptr().cast()) };
    match result {
        0 => Ok(()),
        _ => Err(KernelError::of_thread_call("sched_setaffinity", tid, io::Error::last_os_error())),
    }
}

/// Whether a thread is scheduled by a real-time policy (`SCHED_FIFO`, `SCHED_RR`, `SCHED_DEADLINE`): it has to run at once when it can, and with fewer CPUs it
/// may have to wait for others like it. False where the thread has ended.
#[must_use]
pub fn is_real_time(tid: Tid) -> bool {
    let Ok(number) = libc::pid_t::try_from(tid.0) else { return false };
    // SAFETY: takes an integer and returns one.
    is_real_time_policy(unsafe { libc::sched_getscheduler(number) })
}

fn is_real_time_policy(policy: libc::c_int) -> bool {
    let policy = if policy < 0 { libc::SCHED_OTHER } else { policy & !libc::SCHED_RESET_ON_FORK };
    matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE)
}

#[cfg(test)]
mod tests {
    //! This thread.

    use super::*;

    #[test]
    fn a_thread_goes_where_it_is_told_and_back() {
        std::thread::spawn(|| {
            let before = of_thread(Tid::CALLING).unwrap();
            let first: CpuMask = before.cpus().into_iter().take(1).collect();
            set_thread(Tid::CALLING, &first).unwrap();
            assert_eq!(of_thread(Tid::CALLING).unwrap(), first);
            set_thread(Tid::CALLING, &before).unwrap();
            assert_eq!(of_thread(Tid::CALLING).unwrap(), before);
            let none: CpuMask = [CpuId(8191)].into_iter().collect();
            assert!(set_thread(Tid::CALLING, &none).is_err() && before.and(&none).is_empty());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_set_is_known_without_its_cpus_that_are_offline() {
        let mask = |cpus: &[u32]| -> CpuMask { cpus.iter().copied().map(CpuId).collect() };
        let online = mask(&[0, 1, 2]);
        assert!(mask(&[1, 2, 3]).shows_as(&mask(&[1, 2]), &online) && mask(&[1, 2]).shows_as(&mask(&[1, 2]), &online));
        assert!(!mask(&[1, 2, 3]).shows_as(&mask(&[1]), &online), "another program took one away");
        assert!(!mask(&[3]).shows_as(&mask(&[]), &online));
        // No kernel has so many CPUs.
        let here = super::online().unwrap().cpus()[0].0;
        assert!(is_still(&mask(&[here]), &mask(&[here, 8191])) && !is_still(&mask(&[here, 8191]), &mask(&[here])));
        let with = |online: Option<&CpuMask>| is_still_with(&mask(&[1, 2]), &mask(&[1, 2, 3]), online);
        assert!(with(Some(&online)) && !with(Some(&mask(&[1, 2, 3]))) && !with(None));
    }

    /// A thread that might run anywhere was given back the CPUs that were online when it was bound: it never ran on those that were added later.
    #[test]
    fn an_affinity_has_cpus_that_are_yet_to_come() {
        let mask = |cpus: &[u32]| -> CpuMask { cpus.iter().copied().map(CpuId).collect() };
        let (text, online) = (b"Name:\tx\nCpus_allowed_list:\t0-3,8\nMems_allowed:\t1\n", mask(&[0, 1]));
        let status = TaskStatus::of(text);
        assert_eq!(named(status, &mask(&[0, 1]), &online), Some(mask(&[0, 1, 2, 3, 8])));
        assert_eq!(named(status, &mask(&[0]), &online), None, "another affinity");
        assert_eq!(named(TaskStatus::of(b"Name:\tx\n"), &mask(&[0]), &online), None);
        // SAFETY: has no preconditions.
        let tid = Tid(unsafe { libc::gettid() } as u32);
        let shown = of_thread(tid).unwrap();
        assert!(is_still(&shown, &with_offline(tid, &shown, super::online().as_ref())));
        assert_eq!(with_offline(tid, &shown, None), shown, "nobody says what is offline");
    }

    #[test]
    fn real_time_policies_are_told_from_others() {
        // SAFETY: has no preconditions.
        let tid = Tid(unsafe { libc::gettid() } as u32);
        assert!(!is_real_time(tid) && !is_real_time(Tid(u32::MAX)));
        for policy in [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 6] {
            assert!(is_real_time_policy(policy), "{policy}");
        }
        for policy in [-1, libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE, libc::SCHED_RESET_ON_FORK] {
            assert!(!is_real_time_policy(policy), "{policy}");
        }
    }

    #[test]
    fn the_dead_are_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(matches!(of_thread(Tid::first_of(Pid::of_child(&child))), Err(KernelError::Gone { .. })));
    }
}
