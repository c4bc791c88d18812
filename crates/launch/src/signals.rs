//! Signals while recording. Terminal signals reach the program and the recorder alike (one process group, as under `time`
//! and `perf record`), and the recorder outlives them to finish the trace. A signal sent to the recorder alone is passed on.
//!
//! Handlers are process-wide, so only one recording runs at a time in a process.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use numapilot_kernel::inherited;

use crate::error::LaunchError;

/// The signals that would end the recorder and must not.
pub const HANDLED: [libc::c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

const NOT_PENDING: i32 = 0;
const FROM_TERMINAL: i32 = 1;
const FROM_PROCESS: i32 = 2;

static PENDING: [AtomicI32; HANDLED.len()] = [const { AtomicI32::new(NOT_PENDING) }; HANDLED.len()];
static WAKE_FD: AtomicI32 = AtomicI32::new(-1);
static RECORDING: AtomicBool = AtomicBool::new(false);

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo; errno is this thread's own.
    let (code, errno) = unsafe { ((*info).si_code, *libc::__errno_location()) };
    if let Some(index) = HANDLED.iter().position(|s| *s == signal) {
        // The kernel's terminal driver sends SI_KERNEL to the whole foreground group: the program has it already.
        PENDING[index].store(if code == libc::SI_KERNEL { FROM_TERMINAL } else { FROM_PROCESS }, Ordering::Release);
    }
    let one = 1_u64;
    // SAFETY: write(2) is async-signal-safe; a closed descriptor (-1) only fails.
    unsafe {
        libc::write(WAKE_FD.load(Ordering::Relaxed), ptr::from_ref(&one).cast(), 8);
        *libc::__errno_location() = errno;
    }
}

/// Wakes the thread that waits in [`Guard::wait`]; may be called from any thread. Without a guard it does nothing.
pub fn wake() {
    let one = 1_u64;
    // SAFETY: writes eight bytes of our own; a closed descriptor (-1) only fails.
    unsafe { libc::write(WAKE_FD.load(Ordering::Acquire), ptr::from_ref(&one).cast(), 8) };
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Signal number.
    pub signal: libc::c_int,
    /// The program has not seen it: pass it on.
    pub forward: bool,
}

/// Handlers for the length of one recording; the old ones come back on drop.
#[derive(Debug)]
pub struct Guard {
    wake: OwnedFd,
    old: Vec<(libc::c_int, SavedAction)>,
}

struct SavedAction(libc::sigaction);

impl std::fmt::Debug for SavedAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SavedAction")
    }
}

impl Guard {
    /// Installs the handlers, except for signals that the caller ignores (`nohup`): those stay ignored, in the program too.
    ///
    /// # Errors
    /// Another recording runs in this process, or the system is out of descriptors.
    pub fn install() -> Result<Guard, LaunchError> {
        if RECORDING.swap(true, Ordering::AcqRel) {
            return Err(LaunchError::Busy);
        }
        // SAFETY: eventfd takes two integers and returns a new descriptor or -1.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            RECORDING.store(false, Ordering::Release);
            let source = io::Error::last_os_error();
            return Err(LaunchError::System {
                what: "cannot make an event descriptor",
                source,
                remedy: "raise `ulimit -n`",
            });
        }
        // SAFETY: `fd` is open and owned by nobody else.
        let wake = unsafe { OwnedFd::from_raw_fd(fd) };
        WAKE_FD.store(fd, Ordering::Release);
        PENDING.iter().for_each(|p| p.store(NOT_PENDING, Ordering::Relaxed));
        let mut old = Vec::new();
        for signal in HANDLED.into_iter().chain([libc::SIGCHLD]) {
            old.extend(install_one(signal).map(|action| (signal, SavedAction(action))));
        }
        Ok(Guard { wake, old })
    }

    /// Sleeps until a signal (SIGCHLD included) or the timeout; then `arrived` lists the signals.
    pub fn wait(&self, timeout: Duration) {
        let mut poll = libc::pollfd { fd: self.wake.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // Rounded up, because a caller with less than a millisecond left would otherwise poll in a busy loop.
        let milliseconds = i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
        let mut count = 0_u64;
        // SAFETY: `poll` is one valid pollfd; the read goes to eight bytes of our own from a non-blocking descriptor.
        unsafe {
            if libc::poll(&mut poll, 1, milliseconds) > 0 {
                libc::read(self.wake.as_raw_fd(), ptr::from_mut(&mut count).cast(), 8);
            }
        }
    }

    /// Takes the signals that arrived since the last call.
    pub fn arrived(&self) -> Vec<Arrived> {
        HANDLED
            .iter()
            .zip(&PENDING)
            .filter_map(|(signal, pending)| match pending.swap(NOT_PENDING, Ordering::AcqRel) {
                NOT_PENDING => None,
                origin => Some(Arrived { signal: *signal, forward: origin == FROM_PROCESS }),
            })
            .collect()
    }

    /// The signals whose handlers were replaced: the child sets them back to their default before `exec`.
    pub fn replaced(&self) -> Vec<libc::c_int> {
        self.old.iter().map(|(signal, _)| *signal).collect()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        for (signal, action) in &self.old {
            // SAFETY: restores an action that sigaction itself gave us.
            unsafe { libc::sigaction(*signal, &action.0, ptr::null_mut()) };
        }
        WAKE_FD.store(-1, Ordering::Release);
        RECORDING.store(false, Ordering::Release);
    }
}

/// Installs the handler for one signal and gives the action it replaced; `None` where the signal is ignored.
fn install_one(signal: libc::c_int) -> Option<libc::sigaction> {
    // SAFETY: a zeroed sigaction is a valid value; both pointers are to our own structures.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        if inherited::is_ignored(signal) && signal != libc::SIGCHLD {
            return None;
        }
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = handler as *const () as usize;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigemptyset(&mut new.sa_mask);
        libc::sigaction(signal, &new, &mut old);
        Some(old)
    }
}

/// Blocks the handled signals in this thread until dropped, and remembers the mask that was: held around fork, so that no
/// signal meets our handler in the child.
#[derive(Debug)]
pub struct Blocked {
    previous: SavedMask,
}

#[derive(Clone, Copy)]
struct SavedMask(libc::sigset_t);

impl std::fmt::Debug for SavedMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SavedMask")
    }
}

impl Blocked {
    /// Blocks the signals of this thread until the value is dropped.
    pub fn new() -> Blocked {
        // SAFETY: sets of our own, filled in by the calls.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut previous: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in HANDLED {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut previous);
            Blocked { previous: SavedMask(previous) }
        }
    }

    /// For the child between fork and exec: default actions for `replaced`, what this process's caller ignored, how many files it may open, then the mask that
    /// was. Async-signal-safe.
    pub fn reset_in_child(&self, replaced: &[libc::c_int]) {
        inherited::dispositions_in_child();
        inherited::files_in_child();
        // SAFETY: signal and sigprocmask are async-signal-safe; the mask is one the kernel gave us.
        unsafe {
            for signal in replaced {
                libc::signal(*signal, libc::SIG_DFL);
            }
            libc::sigprocmask(libc::SIG_SETMASK, &self.previous.0, ptr::null_mut());
        }
    }

    /// A copy that may be moved into the child's hook.
    pub fn for_child(&self) -> std::mem::ManuallyDrop<Blocked> {
        std::mem::ManuallyDrop::new(Blocked { previous: self.previous })
    }
}

impl Default for Blocked {
    fn default() -> Self {
        Blocked::new()
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: restores the mask that pthread_sigmask gave us.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.previous.0, ptr::null_mut()) };
    }
}
