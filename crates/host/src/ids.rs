//! Ids of threads.

/// A thread's id, as `gettid(2)` and `/proc/PID/task` have it: from 1 to below 2^22 (`PID_MAX_LIMIT`), and used again after the thread's end.
///
/// The kernel numbers processes and threads alike: the id of a process is that of its first thread. A call that is about one thread affects only the first one
/// where it is given the id of a process, so the two do not have the same type here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u32);

impl Tid {
    /// In system calls: the thread that makes the call.
    pub const CALLING: Tid = Tid(0);

    /// The first thread of a process.
    #[must_use]
    pub const fn first_of(pid: u32) -> Tid {
        Tid(pid)
    }
}

impl std::fmt::Display for Tid {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}
