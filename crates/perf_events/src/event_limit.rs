//! The most events that are opened for tasks. A thread has one of each kind for each CPU, because the kernel lets inherited events share a ring only per CPU.
//! Each is an open file and more than a kilobyte of kernel memory, and a thread that is started copies all of its parent's: on a machine of 512 CPUs a server
//! of thousands of threads would have millions.

use std::fmt;
use std::io;

use numapilot_kernel::sysctl;

/// Some 150 MB of kernel memory.
const EVENTS_MAX: usize = 1 << 17;

/// Events of a thread from which they are told of: with 320, a fork took 830 microseconds instead of 120 (`numapilot-watch`, `live/layout.rs`).
const TOLD_FROM: usize = 256;

/// What so many events of a thread cost it, as a note; `None`: next to nothing.
pub(crate) fn cost_note(of_a_thread: usize) -> Option<String> {
    (of_a_thread >= TOLD_FROM).then(|| {
        format!(
            "each thread has {of_a_thread} events (one of each kind for each CPU), and every fork and every new thread copies them, which takes the program \
             some microseconds for each event; `--system` observes the whole machine without this cost"
        )
    })
}

/// Samples per second and CPU: those asked for, or the greatest rate that this kernel takes. It lowers that by itself where sampling took too long
/// (`perf_sample_event_took`), and refuses events that want more (EINVAL).
#[must_use]
pub fn allowed_rate(rate_hz: u32) -> u32 {
    at_most(rate_hz, sysctl::number("kernel.perf_event_max_sample_rate"))
}

fn at_most(rate_hz: u32, most: Option<i64>) -> u32 {
    rate_hz.min(most.and_then(|most| u32::try_from(most).ok()).unwrap_or(rate_hz)).max(1)
}

/// More events than that, as an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany {
    /// Events that are open.
    so_far: usize,
    /// Threads that get events.
    threads: usize,
    /// Events of each.
    of_a_thread: usize,
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {EVENTS_MAX}")
    }
}

impl std::error::Error for TooMany {}

impl TooMany {
    /// Checks whether as many threads may get as many events each. `so_far`: events that are open.
    ///
    /// # Errors
    /// They are too many.
    pub fn check(so_far: usize, threads: usize, of_a_thread: usize) -> io::Result<()> {
        let all = threads.saturating_mul(of_a_thread).saturating_add(so_far);
        if all <= EVENTS_MAX { Ok(()) } else { Err(io::Error::other(TooMany { so_far, threads, of_a_thread })) }
    }

    /// That of an error, if it is one.
    pub fn in_error(error: &io::Error) -> Option<&TooMany> {
        error.get_ref()?.downcast_ref()
    }

    /// What is in the way, as a clause.
    pub fn reason(&self) -> String {
        let TooMany { so_far, threads, of_a_thread } = self;
        let more = if *so_far > 0 { format!(", beside the {so_far} that are open") } else { String::new() };
        format!(
            "{threads} threads with {of_a_thread} events each (one of each kind for each CPU){more} would take too much of the kernel's memory"
        )
    }

    /// The next step, as a clause.
    pub fn remedy(&self) -> &'static str {
        "observe the whole machine (`--system`), which needs few events, or, with `--pid`, fewer processes (`--no-children`)"
    }
}

/// An event per thread and CPU takes many descriptors: as many as are allowed without asking. Failing that shows when they run out.
pub fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls read and write one rlimit of our own.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use numapilot_host::Pid;

    use super::*;
    use crate::open::EventSet;
    use crate::open::RingSize;
    use crate::open::Scope;

    /// Each process that joined a group later had a set of its own, of which none knew of the others: there was no limit on all of them.
    #[test]
    fn events_of_other_sets_count() {
        let own = Scope::Processes(vec![Pid::own()]);
        let error = EventSet::open_beside(EVENTS_MAX, &[], &own, RingSize { bytes: 1 << 16 }).unwrap_err().to_string();
        assert!(error.contains(&format!("beside the {EVENTS_MAX} that are open")), "{error}");
    }

    #[test]
    fn a_server_gets_no_more_events_than_the_kernel_has_memory_for() {
        let is_allowed = |so_far, threads, of_a_thread| TooMany::check(so_far, threads, of_a_thread).is_ok();
        // 512 CPUs, two events: 128 threads, and not one more.
        assert!(is_allowed(0, 128, 1024) && is_allowed(127 * 1024, 1, 1024) && is_allowed(1 << 17, 0, 1024));
        assert!(!is_allowed(0, 129, 1024) && !is_allowed(128 * 1024, 1, 1024) && !is_allowed(0, usize::MAX, 2));
        let error = TooMany::check(1024, 500, 1024).unwrap_err();
        let reason = TooMany::in_error(&error).unwrap().reason();
        assert!(reason.starts_with("500 threads with 1024 events each") && reason.contains("1024 that are open"));
        // Commands refuse `--no-children` with a unit or a cgroup.
        let remedy = TooMany::in_error(&error).unwrap().remedy();
        assert!(remedy.contains("or, with `--pid`, fewer processes (`--no-children`)"), "{remedy}");
        assert!(TooMany::in_error(&io::Error::from_raw_os_error(libc::EMFILE)).is_none());
    }

    #[test]
    fn no_rate_is_greater_than_the_kernel_takes() {
        let rates =
            [(2500, None), (2500, Some(100_000)), (2500, Some(1000)), (2500, Some(0)), (2500, Some(-1)), (0, None)];
        assert_eq!(rates.map(|(rate, most)| at_most(rate, most)), [2500, 2500, 1000, 1, 2500, 1]);
    }

    #[test]
    fn slow_forks_are_told_of() {
        assert_eq!(cost_note(2 * 16), None);
        assert!(cost_note(2 * 128).is_some_and(|note| note.starts_with("each thread has 256 events")));
    }
}
