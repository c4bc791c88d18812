//! Memory that the program's processes open under `/proc/PID/fd`: by the recorder, or by a process that holds it for them.
//!
//! The kernel lets a process follow such a path only if it may look into the process PID: same user, no capability that it lacks itself, and `dumpable`
//! (`ptrace_may_access`, PTRACE_MODE_READ_FSCREDS). A recorder with capabilities of its file (`setcap cap_perfmon+ep numapilot`) fails both of the latter, and
//! the program would run on without a tracker. So a child of the recorder that has neither capabilities nor anything else holds the memory then. A descriptor
//! that the program inherits would do too, but would be one more in the program, and gone where it closes those that it does not know.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::ptr;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::TaskStatus;

/// `_LINUX_CAPABILITY_VERSION_3` of `linux/capability.h`.
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;
/// Where `close_range` is missing, descriptors up to this one are closed one by one.
const DESCRIPTORS_MAX: libc::c_int = 1 << 16;

/// Where a program's processes find a descriptor of ours.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    /// The process that holds it, where that is not this one.
    _holder: Option<Holder>,
}

/// The holding process; it ends when this is dropped, or this process ends.
#[derive(Debug)]
struct Holder {
    pid: Pid,
    _end: OwnedFd,
}

impl Held {
    /// Makes a descriptor findable. Before the program starts.
    ///
    /// # Errors
    /// A process is needed to hold it, and the system has none.
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Held> {
        if is_hidden() { Held::by_another(fd) } else { Ok(Held { path: path(Pid::own(), fd), _holder: None }) }
    }

    fn by_another(fd: BorrowedFd<'_>) -> io::Result<Held> {
        let holder = Holder::start(fd)?;
        Ok(Held { path: path(holder.pid, fd), _holder: Some(holder) })
    }

    /// The path by which the program's processes open the descriptor.
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

fn path(pid: Pid, fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/fd/{}", fd.as_raw_fd()))
}

/// Whether programs that this process starts may not look into it.
fn is_hidden() -> bool {
    // SAFETY: prctl with integer arguments only.
    let is_dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) } == 1;
    hides(TaskStatus::read_own(&Root::default(), &mut Vec::new()).unwrap_or_default(), is_dumpable)
}

/// The same, from the process's status file.
fn hides(status: TaskStatus<'_>, is_dumpable: bool) -> bool {
    let set = |name: &str| status.mask(name).unwrap_or(0);
    let effective_uid = status.users().map(|[_, effective, ..]| effective);
    // Programs of root have its capabilities, and programs of others the ambient ones.
    effective_uid != Some(0) && (!is_dumpable || set("CapPrm") & !set("CapAmb") != 0)
}

impl Holder {
    fn start(fd: BorrowedFd<'_>) -> io::Result<Holder> {
        let mut ends = [-1; 2];
        // SAFETY: the call writes two descriptors into our array.
        if unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) } != 0
        {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both are open and owned by nobody else.
        let [ours, theirs] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // Its end is no child's of which anybody is told: without a signal, a wait for any child passes it over.
        // SAFETY: a child with a copy of our memory, as fork makes it, that makes system calls only. No signal meets a handler of ours in it.
        let pid = unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            let pid = libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0);
            if pid == 0 {
                hold(fd.as_raw_fd(), theirs.as_raw_fd());
            }
            let error = io::Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
            libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0).ok_or(error)?
        };
        drop(theirs);
        let holder = Holder { pid: Pid(pid.cast_unsigned()), _end: ours };
        let mut word = 0_u8;
        // SAFETY: at most one byte is written to `word`.
        let read = unsafe { libc::read(holder._end.as_raw_fd(), ptr::from_mut(&mut word).cast(), 1) };
        if read == 1 { Ok(holder) } else { Err(io::Error::other("the process that was to hold it has ended")) }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // SAFETY: `pid` is a child of ours that was not waited for, so the number is still its own.
        unsafe {
            libc::kill(self.pid.0.cast_signed(), libc::SIGKILL);
            libc::waitpid(self.pid.0.cast_signed(), ptr::null_mut(), libc::__WALL);
        }
    }
}

/// The holding process: gives up its capabilities and all descriptors but two, says so, and waits until the recorder ends.
///
/// # Safety
/// Only in a fresh copy of this process: it makes system calls only, and never returns.
unsafe fn hold(held: libc::c_int, end: libc::c_int) -> ! {
    let header = [CAPABILITY_VERSION_3, 0];
    let none = [0_u32; 6];
    let mut word = 1_u8;
    // SAFETY: system calls on descriptors and memory of this process; a name of less than 16 bytes.
    unsafe {
        let dropped = libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr());
        let seen = libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_NAME, c"numapilot-hold".as_ptr(), 0, 0, 0);
        let (low, high) = (held.min(end), held.max(end));
        close_between(0, low - 1);
        close_between(low + 1, high - 1);
        close_between(high + 1, libc::c_int::MAX);
        if dropped == 0 && seen == 0 {
            libc::write(end, ptr::from_ref(&word).cast(), 1);
            while libc::read(end, ptr::from_mut(&mut word).cast(), 1) > 0 {}
        }
        libc::_exit(0)
    }
}

/// Closes descriptors. By system calls only.
///
/// # Safety
/// Nobody may use them any more.
unsafe fn close_between(first: libc::c_int, last: libc::c_int) {
    if first > last {
        return;
    }
    // SAFETY: as the caller says.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, last, 0) != 0 {
            for fd in first..=last.min(DESCRIPTORS_MAX) {
                libc::close(fd);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    fn status(uid: u32, permitted: u64, ambient: u64) -> String {
        format!("Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapPrm:\t{permitted:016x}\nCapAmb:\t{ambient:016x}\n")
    }

    #[test]
    fn capabilities_that_programs_do_not_get_hide_the_recorder() {
        const PERFMON: u64 = 1 << 38;
        let hides = |text: String, is_dumpable: bool| hides(TaskStatus::of(text.as_bytes()), is_dumpable);
        assert!(!hides(status(1000, 0, 0), true));
        assert!(hides(status(1000, PERFMON, 0), true), "setcap");
        assert!(!hides(status(1000, PERFMON, PERFMON), true), "a service's AmbientCapabilities");
        assert!(hides(status(1000, 0, 0), false), "a program that may not be read");
        assert!(!hides(status(0, u64::MAX, 0), false));
        assert!(!hides(String::new(), true));
    }

    #[test]
    fn what_is_held_is_found_until_it_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut file = File::create_new(folder.path().join("x")).expect("a file");
        file.write_all(b"held").expect("written");
        let held = Held::by_another(file.as_fd()).expect("a process");
        let path = held.path();
        drop(file);
        assert_eq!(fs::read(&path).expect("it is open there"), b"held");
        let pid: u32 =
            path.components().nth(2).expect("a pid").as_os_str().to_str().expect("digits").parse().expect("a pid");
        assert_ne!(pid, std::process::id());
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        assert!(status.contains("CapPrm:\t0000000000000000\n"), "{status}");
        let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").count();
        assert_eq!(open, 2, "the file and its end");
        drop(held);
        assert!(fs::read(&path).is_err() && !fs::exists(format!("/proc/{pid}")).expect("proc"));
    }
}
