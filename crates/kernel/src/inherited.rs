//! How this process was started: the signals that its caller ignored or blocked, how many files it may have open, and its environment. A program that numapilot
//! starts must find them as it would without numapilot.
//!
//! The Rust runtime ignores SIGPIPE before `main`, and its `Command` gives every child the default for SIGPIPE and an empty mask, whatever was inherited.
//! A service (systemd ignores SIGPIPE in all of them), say, would die at the first connection that its client closes. So a binary remembers both before the
//! runtime starts, by a function pointer in its `.init_array`, and its children get them back between fork and exec. In a process where [`remember`] was not
//! called (a library of ours in a host program), nothing is given back.
//!
//! Events of many threads and CPUs are many open files, so that numapilot raises its limit on them. A program that has the higher limit may close so many files
//! at its start, one by one, or make a table of so many.
//!
//! For a program with capabilities of its file (`setcap cap_perfmon+ep numapilot`) the loader takes variables out of the environment, `LD_PRELOAD` and
//! `LD_LIBRARY_PATH` among them (ld.so(8), secure-execution mode). The programs that it starts have no such rights, and run with them: without its
//! `LD_LIBRARY_PATH` a program would not start or have another library.

use std::env;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use numapilot_host::Root;

/// Signals that numapilot or its runtime ignores for itself, without handlers that exec would reset: SIGXFSZ, so that a limit on file sizes does not kill the
/// balancer, nor a recorder.
const SIGNALS: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];
/// `AT_SECURE` of the auxiliary vector (`linux/auxvec.h`): the process has more rights than its caller.
const AT_SECURE: libc::c_ulong = 23;
/// Signals have numbers from 1 to 64, on every architecture of ours.
const SIGNAL_MAX: libc::c_int = 64;

static IS_KNOWN: AtomicBool = AtomicBool::new(false);
/// Bit `n - 1`: signal `n` was ignored.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// Bit `n - 1`: signal `n` was blocked.
static BLOCKED: AtomicU64 = AtomicU64::new(0);
/// The soft limit on open files.
static FILES: AtomicU64 = AtomicU64::new(0);

const fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// Remembers the dispositions, the mask and the limit on open files of now. To be called from `.init_array`: it uses nothing of the Rust runtime.
pub extern "C" fn remember() {
    let ignored = SIGNALS.into_iter().filter(|signal| is_ignored(*signal)).fold(0, |set, signal| set | bit(signal));
    // SAFETY: an all-zero set is a valid value; the call only reads this thread's mask into it.
    let blocked = unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
        (1..=SIGNAL_MAX)
            .filter(|signal| libc::sigismember(&raw const mask, *signal) == 1)
            .fold(0, |set, signal| set | bit(signal))
    };
    FILES.store(files().map_or(libc::RLIM_INFINITY, |limit| limit.rlim_cur), Ordering::Relaxed);
    IGNORED.store(ignored, Ordering::Relaxed);
    BLOCKED.store(blocked, Ordering::Relaxed);
    IS_KNOWN.store(true, Ordering::Release);
}

/// Whether this process ignores the signal now.
#[must_use]
pub fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: a structure of integers and pointers, for which zeroes are valid; the call only reads the signal's action into it.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action);
        action
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// For the child between fork and exec: the remembered dispositions. Async-signal-safe.
pub fn dispositions_in_child() {
    if !IS_KNOWN.load(Ordering::Acquire) {
        return;
    }
    let ignored = IGNORED.load(Ordering::Relaxed);
    for signal in SIGNALS {
        let disposition = if ignored & bit(signal) != 0 { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: signal(2) is async-signal-safe.
        unsafe { libc::signal(signal, disposition) };
    }
}

/// For the child between fork and exec: the remembered mask. Async-signal-safe.
fn mask_in_child() {
    if !IS_KNOWN.load(Ordering::Acquire) {
        return;
    }
    let blocked = BLOCKED.load(Ordering::Relaxed);
    // SAFETY: the calls are async-signal-safe and work on a set of our own.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut mask);
        for signal in (1..=SIGNAL_MAX).filter(|signal| blocked & bit(*signal) != 0) {
            libc::sigaddset(&raw mut mask, signal);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
    }
}

/// The limit on open files of this process now; `None`: the system does not say.
#[must_use]
pub fn files() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one rlimit of our own.
    (unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0).then_some(limit)
}

/// Files that this process has open now; 0: the system does not say. `root`: that of the running system.
#[must_use]
pub fn open_files(root: &Root) -> usize {
    // The listing itself is one of them.
    fs::read_dir(root.path().join("proc/self/fd")).map_or(0, |entries| entries.count().saturating_sub(1))
}

/// For the child between fork and exec: the remembered limit on open files, where this process has raised its own. Two system calls, on memory of our own.
pub fn files_in_child() {
    if !IS_KNOWN.load(Ordering::Acquire) {
        return;
    }
    let remembered = FILES.load(Ordering::Relaxed);
    if let Some(limit) = files().filter(|limit| limit.rlim_cur > remembered) {
        let limit = libc::rlimit { rlim_cur: remembered, ..limit };
        // SAFETY: the call reads one rlimit of our own.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

/// The variables that the loader took out of this process's environment, as the caller set them; none unless this process has rights of its file.
#[must_use]
pub fn taken_variables() -> Vec<(OsString, OsString)> {
    // SAFETY: reads a word that the kernel has passed to this process.
    if unsafe { libc::getauxval(AT_SECURE) } == 0 {
        return Vec::new();
    }
    missing(&first_environment().unwrap_or_default(), |name| env::var_os(name).is_none())
}

/// The environment's text as the kernel has put it on the stack, of which the loader takes away pointers only. (Such a process may not open its own
/// /proc/self/environ.)
fn first_environment() -> Option<Vec<u8>> {
    let stat = fs::read("/proc/self/stat").ok()?;
    let rest = &stat[stat.iter().rposition(|byte| *byte == b')')? + 1..];
    // Fields 50 and 51 of proc(5), where the one after the name is field 3.
    let mut fields = rest.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty()).skip(50 - 3);
    let mut address = || usize::try_from(numapilot_host::number(fields.next()?)?).ok();
    let (start, end) = (address()?, address()?);
    let mut text = vec![0; end.checked_sub(start)?];
    let ours = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
    let theirs = libc::iovec { iov_base: start as *mut libc::c_void, iov_len: text.len() };
    // SAFETY: the call writes to `text` only, and fails where there is nothing to read.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const ours, 1, &raw const theirs, 1, 0) };
    (usize::try_from(read) == Ok(text.len())).then_some(text)
}

/// Variables of the text of an environment, whose names `is_missing`.
fn missing(text: &[u8], is_missing: impl Fn(&OsStr) -> bool) -> Vec<(OsString, OsString)> {
    let of_entry = |entry: &[u8]| {
        let equals = entry.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        let (name, value) = (OsStr::from_bytes(&entry[..equals]), OsStr::from_bytes(&entry[equals + 1..]));
        is_missing(name).then(|| (name.to_owned(), value.to_owned()))
    };
    text.split(|byte| *byte == 0).filter_map(of_entry).collect()
}

/// A variable of the environment as the caller set it.
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).or_else(|| taken_variables().into_iter().find(|(taken, _)| taken == name).map(|(_, value)| value))
}

/// Gives the command's process, or the program that takes this one's place (`exec`), the caller's variables, and the remembered dispositions, mask and limit on
/// open files.
pub fn restored(command: &mut Command) -> &mut Command {
    for (name, value) in taken_variables() {
        // What was chosen for this command stays.
        if !command.get_envs().any(|(set, _)| set == name) {
            command.env(name, value);
        }
    }
    // SAFETY: the hook runs between fork and exec and calls only async-signal-safe functions.
    unsafe {
        command.pre_exec(|| {
            dispositions_in_child();
            mask_in_child();
            files_in_child();
            Ok(())
        })
    }
}

/// A closed pipe makes writes fail from now on, and so does a limit on the size of files (`ulimit -f`), as a full disk would; neither ends this process: for
/// commands that have more to do than to print, such as to put back the settings that they changed, or to wait for a program.
pub fn outlive_readers() {
    for signal in SIGNALS {
        // SAFETY: ignoring a signal has no precondition.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

#[cfg(test)]
mod tests {
    //! What a child of this process finds.

    use super::*;

    /// Ignored and blocked signals of a child, as hexadecimal numbers in its status file have them.
    fn of_child() -> (u64, u64) {
        let mut command = Command::new("cat");
        let output = restored(command.arg("/proc/self/status")).output().expect("cat");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).expect("a line of the status");
            u64::from_str_radix(line.rsplit('\t').next().expect("a value"), 16).expect("hexadecimal")
        };
        (field("SigIgn:"), field("SigBlk:"))
    }

    #[test]
    fn variables_that_were_taken_are_found_in_what_the_kernel_shows() {
        let text = b"PATH=/bin\0LD_LIBRARY_PATH=/a=b\0=odd\0none\0EMPTY=\0";
        let found = missing(text, |name| name != "PATH");
        let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        assert_eq!(found, [pair("LD_LIBRARY_PATH", "/a=b"), pair("EMPTY", "")]);
        assert!(taken_variables().is_empty(), "this process has no rights of its file");
        assert_eq!(first_environment().as_deref(), fs::read("/proc/self/environ").ok().as_deref());
        assert_eq!(variable("PATH"), env::var_os("PATH"));
    }

    #[test]
    fn open_files_are_counted_and_within_the_limit() {
        let held: Vec<fs::File> = (0..20).map(|_| fs::File::open("/dev/null").expect("a device")).collect();
        let limit = files().expect("a limit").rlim_cur;
        assert!((held.len()..=usize::try_from(limit).unwrap_or(usize::MAX)).contains(&open_files(&Root::default())));
    }

    #[test]
    fn children_get_what_was_remembered() {
        // This test's own runtime ignores SIGPIPE, as a caller may; the child has it so only if it is remembered.
        assert!(is_ignored(libc::SIGPIPE));
        assert_eq!(of_child().0 & bit(libc::SIGPIPE), 0, "the runtime's default");
        // SAFETY: blocks a signal of this thread alone, which nobody sends, and unblocks it below.
        let mask = unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut mask);
            libc::sigaddset(&raw mut mask, libc::SIGWINCH);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const mask, std::ptr::null_mut());
            mask
        };
        remember();
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const mask, std::ptr::null_mut()) };
        let (ignored, blocked) = of_child();
        assert_eq!(ignored & (bit(libc::SIGPIPE) | bit(libc::SIGXFSZ)), bit(libc::SIGPIPE));
        assert_eq!(blocked & bit(libc::SIGWINCH), bit(libc::SIGWINCH));
    }
}
