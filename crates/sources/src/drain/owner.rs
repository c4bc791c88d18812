//! The thread that a slot belongs to: whether the system still knows it, and whether, having written its end, it may still add to its ring.
//!
//! The C library frees a thread's dynamic storage after the last destructor, in which the thread has closed its slot. A detached thread does so itself,
//! and on a busy machine it may not run for seconds in between. So time alone does not show that it is over.

use std::time::Duration;
use std::time::Instant;

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_host::now_ticks;
use numapilot_kernel::task;

use crate::arena::Slot;
use crate::namespaces::Namespaces;

/// A closed slot stays its thread's while the system knows the thread, for this long without a further question ...
const PATIENCE: Duration = Duration::from_secs(1);
/// ... and for this long while the thread can still run: a thread id may also be one of another pid namespace, and then nothing is known of it.
const LONGEST: Duration = Duration::from_secs(60);
/// How often the system is asked in between.
const LOOK: Duration = Duration::from_millis(250);

/// The thread that a slot belongs to, as far as this process can name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Process and thread id, as they are here.
    Known(Pid, Tid),
    /// A thread of another namespace of process numbers that was not to be found: nothing is known of its life.
    Hidden,
}

impl Owner {
    /// The owner of a slot that says (pid, tid).
    pub(super) fn of(slot: &Slot<'_>, namespaces: &mut Namespaces) -> Owner {
        let (pid, tid, namespace) = (Pid(slot.pid()), Tid(slot.tid()), slot.pid_namespace());
        if slot.is_of_our_namespace() || (namespace == 0 && !is_gone(pid, tid)) {
            return Owner::Known(pid, tid);
        }
        match namespaces.translate(namespace, pid, tid) {
            Some((pid, tid)) => Owner::Known(pid, tid),
            None => Owner::Hidden,
        }
    }

    /// Whether the system knows no such thread. A hidden one is never known to have gone.
    pub(super) fn is_gone(self) -> bool {
        matches!(self, Owner::Known(pid, tid) if is_gone(pid, tid))
    }
}

/// Whether the system knows no such thread.
fn is_gone(pid: Pid, tid: Tid) -> bool {
    let (Some(pid), Ok(tid)) = (pid.raw(), libc::pid_t::try_from(tid.0)) else { return false };
    if pid <= 0 || tid <= 0 {
        return false;
    }
    // SAFETY: signal 0 sends nothing; the call only looks whether the thread exists.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) };
    result == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// A slot that its thread has closed, from when the recorder first saw it so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    since: Instant,
    /// The same moment in clock ticks since boot, on the scale of `/proc/PID/stat`.
    ticks: u64,
    next_look: Instant,
}

impl Closed {
    /// A slot that is seen closed for the first time.
    pub(super) fn seen(now: Instant) -> Self {
        Self { since: now, ticks: now_ticks(), next_look: now + PATIENCE }
    }

    /// Whether the thread adds nothing to its ring any more, as far as the system shows.
    pub(super) fn is_over(&mut self, owner: Owner, now: Instant) -> bool {
        if owner.is_gone() || now.duration_since(self.since) >= LONGEST {
            return true;
        }
        if now < self.next_look {
            return false;
        }
        self.next_look = now + LOOK;
        let shown = match owner {
            Owner::Known(pid, tid) => task::stat_of_thread(pid, tid).ok().map(|stat| (stat.state, stat.start_ticks)),
            Owner::Hidden => None,
        };
        has_left(shown, self.ticks)
    }
}

/// Whether a thread that closed its slot at `closed`, in clock ticks, has left the C library; `shown`: state and start of the thread that has its id now.
///
/// A zombie has (a first thread that called `pthread_exit` stays one until the last thread ends), and so has one whose id is another thread's by now.
/// Where the system shows nothing of a thread that exists (`hidepid`), it is taken to have left.
fn has_left(shown: Option<(u8, u64)>, closed: u64) -> bool {
    shown.is_none_or(|(state, start)| matches!(state, b'Z' | b'X' | b'x') || start > closed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_a_cpu_or_a_lock_has_not_left() {
        for state in [b'R', b'S', b'D', b'T', b't'] {
            assert!(!has_left(Some((state, 90)), 100), "{}", char::from(state));
            // The recorder sees a slot closed up to one clock tick after the thread began.
            assert!(!has_left(Some((state, 100)), 100));
        }
    }

    #[test]
    fn zombies_successors_and_hidden_threads_have() {
        assert!(has_left(Some((b'Z', 90)), 100));
        assert!(has_left(Some((b'R', 101)), 100), "another thread has its id");
        assert!(has_left(None, 100));
    }

    /// Make sure that a thread which is slow keeps its slot beyond the time without questions, and not for ever.
    #[test]
    fn patience_ends_with_the_thread_or_at_the_limit() {
        let own = Pid::own();
        let main = Tid::first_of(own);
        let start = Instant::now();
        let mut closed = Closed::seen(start);
        for seconds in [0, 1, 2, 30, 59] {
            assert!(!closed.is_over(Owner::Known(own, main), start + Duration::from_secs(seconds)), "{seconds} s");
        }
        assert!(closed.is_over(Owner::Known(own, main), start + LONGEST));
        let mut hidden = Closed::seen(start);
        assert!(!hidden.is_over(Owner::Hidden, start));
        assert!(hidden.is_over(Owner::Hidden, start + PATIENCE), "nothing is known of it");

        let mut child = std::process::Command::new("true").spawn().unwrap();
        let (pid, deadline) = (Pid::of_child(&child), Instant::now() + Duration::from_secs(60));
        while task::stat(pid).is_ok_and(|stat| stat.state != b'Z') && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let main = Tid::first_of(pid);
        let mut closed = Closed::seen(start);
        assert!(
            !closed.is_over(Owner::Known(pid, main), start),
            "a zombie's slot is its own for a while: the id alone does not show it"
        );
        assert!(closed.is_over(Owner::Known(pid, main), start + PATIENCE));
        child.wait().unwrap();
        assert!(Closed::seen(start).is_over(Owner::Known(pid, main), start));
    }
}
