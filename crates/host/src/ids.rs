//! Ids of processes and threads.

use std::num::ParseIntError;
use std::str::FromStr;

use serde::Deserialize;
use serde::Serialize;

/// A process's id, as `getpid(2)` and `/proc/PID` have it: from 1 to below 2^22 (`PID_MAX_LIMIT`), and used again after the process's end. In files and JSON it
/// is a plain number.
///
/// The kernel numbers processes and threads alike, and what it calls a pid in many places is a thread's id. A [`Pid`] is that of a whole process (the kernel's
/// `tgid`); where one is used for the other, [`Tid::first_of`] and [`Pid::of_task`] say so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pid(pub u32);

impl Pid {
    /// In system calls: the process that makes the call. In what the kernel writes: a process outside of this namespace of process ids, or none.
    pub const CALLING: Pid = Pid(0);

    /// This process.
    #[must_use]
    pub fn own() -> Pid {
        Pid(std::process::id())
    }

    /// A process that this one has started.
    #[must_use]
    pub fn of_child(child: &std::process::Child) -> Pid {
        Pid(child.id())
    }

    /// The id of a thread where it stands for either: in errors about tasks, and where the kernel says of a thread what it says of a process.
    #[must_use]
    pub const fn of_task(tid: Tid) -> Pid {
        Pid(tid.0)
    }

    /// As system calls take it; `None`: no process has this number.
    #[must_use]
    pub fn raw(self) -> Option<libc::pid_t> {
        libc::pid_t::try_from(self.0).ok()
    }
}

impl std::fmt::Display for Pid {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

impl FromStr for Pid {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Pid, ParseIntError> {
        text.parse().map(Pid)
    }
}

/// A thread's id, as `gettid(2)` and `/proc/PID/task` have it: from 1 to below 2^22 (`PID_MAX_LIMIT`), and used again after the thread's end. In files and JSON
/// it is a plain number.
///
/// The kernel numbers processes and threads alike: the id of a process is that of its first thread. A call that is about one thread affects only the first one
/// where it is given the id of a process, so the two do not have the same type here ([`Pid`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tid(pub u32);

impl Tid {
    /// In system calls: the thread that makes the call.
    pub const CALLING: Tid = Tid(0);

    /// The first thread of a process.
    #[must_use]
    pub const fn first_of(pid: Pid) -> Tid {
        Tid(pid.0)
    }
}

impl std::fmt::Display for Tid {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_id_is_read_and_written_as_a_plain_number() {
        assert_eq!("4711".parse::<Pid>(), Ok(Pid(4711)));
        assert!("".parse::<Pid>().is_err() && "-1".parse::<Pid>().is_err() && "self".parse::<Pid>().is_err());
        assert_eq!(format!("{}|{:>6}|{:<6}|", Pid(7), Pid(8), Tid(9)), "7|     8|9     |");
        assert_eq!((Pid(7).raw(), Pid(u32::MAX).raw()), (Some(7), None));
        assert_eq!(Pid::of_task(Tid::first_of(Pid(7))), Pid(7));
    }
}
