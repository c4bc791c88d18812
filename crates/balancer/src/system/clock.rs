//! Clocks: those of the kernel that the standard library does not offer, and calendar time.

use std::time::Duration;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours; these clocks always exist.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Nanoseconds on the clock of the kernel's event records (CLOCK_MONOTONIC_RAW).
#[must_use]
pub fn raw_ns() -> u64 {
    u64::try_from(read(libc::CLOCK_MONOTONIC_RAW).as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds since 1970.
#[must_use]
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Processor time used by this thread so far, with that of the helpers that have read processes' mappings for it.
#[must_use]
pub fn own_cpu() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID) + numapilot_host::helpers_cpu()
}

#[cfg(test)]
mod tests {
    use numapilot_host::Pid;

    use super::*;

    /// What reading mappings costs is limited by this clock.
    #[test]
    fn reading_mappings_takes_time_on_the_own_clock() {
        let pid = Pid::own();
        let (thread, own) = (read(libc::CLOCK_THREAD_CPUTIME_ID), own_cpu());
        for _ in 0..100 {
            numapilot_kernel::census::residents(pid).unwrap();
        }
        let of_thread = read(libc::CLOCK_THREAD_CPUTIME_ID) - thread;
        let of_both = own_cpu() - own;
        assert!(of_both > of_thread, "{of_both:?}, {of_thread:?}");
    }
}
