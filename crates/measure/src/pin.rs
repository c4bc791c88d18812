//! Threads on chosen CPUs.

use std::io;

use numapilot_machine::CpuId;

use crate::error::MeasureError;

/// Words of the mask: 8,192 CPUs, what the largest kernels are built for.
const MASK_WORDS: usize = 8192 / 64;

/// Puts the calling thread on one CPU, and waits until it runs there.
///
/// # Errors
/// The CPU is offline, or not this process's.
pub fn pin(cpu: CpuId) -> Result<(), MeasureError> {
    let mut mask = [0_u64; MASK_WORDS];
    let index = cpu.0 as usize;
    if index >= MASK_WORDS * 64 {
        return Err(MeasureError::Pin { cpu, error: io::Error::from_raw_os_error(libc::EINVAL) });
    }
    mask[index / 64] = 1 << (index % 64);
    // SAFETY: the mask is as long as the call is told. The kernel moves the thread before it returns.
    let done = unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) };
    if done != 0 {
        return Err(MeasureError::Pin { cpu, error: io::Error::last_os_error() });
    }
    Ok(())
}

/// Whether the calling thread still has the CPU that [`pin`] gave it, and no other.
///
/// # Errors
/// The kernel has moved it: the CPU went offline, or left this process's cpuset.
pub fn still_on(cpu: CpuId) -> Result<(), MeasureError> {
    let mut mask = [0_u64; MASK_WORDS];
    // SAFETY: the mask is as long as the call is told.
    let bytes = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr()) };
    let index = cpu.0 as usize;
    let others = |(word, bits): (usize, &u64)| *bits & !(if word == index / 64 { 1 << (index % 64) } else { 0 }) != 0;
    // A kernel that does not answer says nothing about the thread.
    if bytes > 0 && mask.iter().enumerate().any(others) {
        let error = io::Error::other("the kernel moved its thread to others during the measurement");
        return Err(MeasureError::Pin { cpu, error });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! A thread of this process.

    use super::*;

    #[test]
    fn a_pinned_thread_is_where_it_was_put() {
        let cpu = *crate::Permit::of_this_process().cpus.iter().next().expect("a CPU");
        let seen = std::thread::spawn(move || {
            pin(cpu).expect("a CPU of ours");
            // SAFETY: no precondition.
            unsafe { libc::sched_getcpu() }
        });
        assert_eq!(seen.join().expect("no panic"), cpu.0 as i32);
    }

    #[test]
    fn a_thread_that_lost_its_cpu_is_noticed() {
        let cpus: Vec<CpuId> = crate::Permit::of_this_process().cpus.into_iter().collect();
        if cpus.len() < 2 {
            return numapilot_not_run::not_run!(TwoCpus, "one CPU only");
        }
        let seen = std::thread::spawn(move || {
            pin(cpus[0]).expect("a CPU of ours");
            let before = still_on(cpus[0]);
            // What the kernel does when a CPU leaves the cpuset.
            pin(cpus[1]).expect("a CPU of ours");
            (before, still_on(cpus[0]))
        });
        let (before, after) = seen.join().expect("no panic");
        assert!(before.is_ok() && matches!(after, Err(MeasureError::Pin { .. })), "{before:?} {after:?}");
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        for cpu in [CpuId(8191), CpuId(u32::MAX)] {
            let refused = std::thread::spawn(move || pin(cpu)).join().expect("no panic");
            assert!(matches!(refused, Err(MeasureError::Pin { .. })));
        }
    }
}
