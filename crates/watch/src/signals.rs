//! Requests to end: SIGINT, SIGTERM and SIGHUP set a flag, so that a summary is still printed and the terminal restored.

use std::io;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use numapilot_kernel::inherited;

static CAUGHT: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    CAUGHT.store(signal, Ordering::Relaxed);
}

/// Installs handlers so that these signals set the flag; system calls that they interrupt return. Signals that the caller ignores (`nohup`, a job in the
/// background of a script) stay ignored, in a program that is started too.
///
/// # Errors
/// The system refuses, which is not expected.
pub fn catch() -> io::Result<()> {
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP]
        .into_iter()
        .filter(|signal| !inherited::is_ignored(*signal))
        .try_for_each(|signal| set(signal, note as *const () as usize))
}

/// The signal that was caught.
#[must_use]
pub fn caught() -> Option<i32> {
    Some(CAUGHT.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}

/// Sleeps for `time`, or until a signal is caught.
pub fn sleep(time: Duration) {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(time.subsec_nanos().cast_signed()),
    };
    if caught().is_none() {
        // SAFETY: sleeps; a caught signal ends it early.
        unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
    }
}

static STOPPED: AtomicI32 = AtomicI32::new(0);

extern "C" fn note_stop(_: libc::c_int) {
    STOPPED.store(1, Ordering::Relaxed);
}

/// Installs a handler so that SIGTSTP sets a flag: see [`take_stop`] and [`stop`].
///
/// # Errors
/// The system refuses, which is not expected.
pub fn catch_stop() -> io::Result<()> {
    set(libc::SIGTSTP, note_stop as *const () as usize)
}

/// Whether this process was asked to stop since the last call.
#[must_use]
pub fn take_stop() -> bool {
    STOPPED.swap(0, Ordering::Relaxed) != 0
}

/// Stops this process as SIGTSTP does by default; returns when it continues.
pub fn stop() {
    if set(libc::SIGTSTP, libc::SIG_DFL).is_ok() {
        // SAFETY: a signal to this process.
        unsafe { libc::raise(libc::SIGTSTP) };
    }
    let _ = catch_stop();
}

fn set(signal: libc::c_int, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value; handlers here only store to atomics, and the structure outlives the call.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(signal, &raw const action, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
