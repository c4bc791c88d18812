//! Starting the program, and knowing when it and everything that it started has ended.
//!
//! The program runs in the recorder's process group with the recorder's standard streams, as it would without it. The
//! recorder becomes a *subreaper*: processes that outlive their parents come to it instead of to init, so that the last
//! descendant's end is seen.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use numapilot_emulator::Emulator;
use numapilot_host::Pid;
use numapilot_kernel::inherited;
use numapilot_runtime::loader_can_take;

use crate::children::children;
use crate::error::LaunchError;
use crate::processor_time::ProcessorTimes;
use crate::resolve::Target;
use crate::resolve::resolve_target;
use crate::signals::Blocked;
use crate::signals::Guard;

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this status.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

impl Exit {
    /// The status that a shell reports: the program's own, or 128 + signal.
    pub fn shell_code(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }

    /// From a status of `wait(2)`; `None`: the process was only stopped or continued.
    pub fn from_wait(status: libc::c_int) -> Option<Exit> {
        if libc::WIFEXITED(status) {
            Some(Exit::Code(libc::WEXITSTATUS(status)))
        } else if libc::WIFSIGNALED(status) {
            Some(Exit::Signal(libc::WTERMSIG(status)))
        } else {
            None
        }
    }
}

/// Inputs of [`spawn`].
#[derive(Debug)]
pub struct Launch<'a> {
    /// The program to start.
    pub target: &'a Target,
    /// Its arguments, the first as the user wrote it.
    pub command: &'a [OsString],
    /// Our libraries, in the order in which the loader shall find them.
    pub preload: &'a [&'a Path],
    /// Path under which the program's processes open the arena, where something is recorded.
    pub arena: Option<&'a Path>,
    /// Set in the program's environment, beside what the recorder needs.
    pub environment: &'a [(OsString, OsString)],
    /// What runs the program, where it does not run by itself.
    pub emulator: Option<&'a Emulator>,
    /// Threads that wait shall sleep: a spinning thread would burn program time that the simulated machine has not got.
    pub passive_waits: bool,
    /// No transparent huge pages: the pages of the simulated machine are small, and the kernel is asked which of them are there.
    pub small_pages: bool,
}

/// Variables of OpenMP runtimes that say how idle threads wait, and our choice for each where the user made none in any of them.
const PASSIVE_WAITS: [(&str, &str); 3] =
    [("OMP_WAIT_POLICY", "passive"), ("GOMP_SPINCOUNT", "0"), ("KMP_BLOCKTIME", "0")];

/// A started program.
#[derive(Debug)]
pub struct Program {
    /// Process id of the main process.
    pub pid: Pid,
    exit: Option<Exit>,
    /// Children that this process had before: not part of the recording.
    foreign: Vec<Pid>,
    /// Of the program's processes, as far as they were looked at.
    pub times: ProcessorTimes,
    /// What this process's children had used before, seconds.
    waited_before_s: f64,
}

/// State of the program and its processes, as `Program::reap` found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The main process is running.
    Running,
    /// It ended; these descendants have not, and some share our session: background jobs that will end.
    Outlived(Vec<Pid>),
    /// It ended; these descendants have made sessions of their own: daemons that may run for ever.
    Daemons(Vec<Pid>),
    /// All processes have ended.
    Ended,
}

/// Starts the program.
///
/// # Errors
/// The system refuses to run it: with its reason.
pub fn spawn(launch: &Launch<'_>, guard: &Guard) -> Result<Program, LaunchError> {
    let foreign = own_children().unwrap_or_default();
    let waited_before_s = waited_s();
    become_subreaper()?;
    let preload = (!launch.preload.is_empty()).then(|| preload_list(launch)).transpose()?;
    let mut command = match launch.emulator {
        Some(emulator) => emulated(emulator, launch, preload.as_deref().unwrap_or_default())?,
        None => {
            let mut command = Command::new(&launch.target.exec_path);
            command.arg0(&launch.command[0]).args(&launch.command[1..]);
            command
        }
    };
    command.envs(inherited::taken_variables());
    if let Some(arena) = launch.arena.filter(|_| preload.is_some()) {
        command.env("NUMAPILOT_ARENA", arena);
    }
    if launch.passive_waits {
        command.envs(passive_waits());
    }
    command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
    match (launch.emulator, preload) {
        // The emulator's own environment: the tracker belongs into the program inside.
        (Some(_), _) => command.env_remove("LD_PRELOAD"),
        (None, Some(list)) => command.env("LD_PRELOAD", list),
        (None, None) => &mut command,
    };
    let blocked = Blocked::new();
    let in_child = blocked.for_child();
    let replaced = guard.replaced();
    let small_pages = launch.small_pages;
    // SAFETY: the hook runs between fork and exec and calls only async-signal-safe functions on memory made before.
    unsafe {
        command.pre_exec(move || {
            in_child.reset_in_child(&replaced);
            if small_pages {
                // Kept across exec and inherited. A kernel that knows no such pages refuses, and has none.
                libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
            }
            Ok(())
        });
    }
    let child = command.spawn().map_err(|source| cannot_run(command.get_program(), &source))?;
    drop(blocked);
    let (pid, times) = (Pid::of_child(&child), ProcessorTimes::default());
    Ok(Program { pid, exit: None, foreign, times, waited_before_s })
}

/// Becomes the program: returns only if that fails.
#[must_use]
pub fn exec_here(command: &[OsString]) -> LaunchError {
    let target = match resolve_target(command) {
        Ok(target) => target,
        Err(error) => return error,
    };
    let mut program = Command::new(&target.exec_path);
    let source = inherited::restored(program.arg0(&command[0]).args(&command[1..])).exec();
    cannot_run(target.exec_path.as_os_str(), &source)
}

fn cannot_run(path: &OsStr, source: &io::Error) -> LaunchError {
    LaunchError::NotExecutable {
        path: path.into(),
        reason: format!("the system cannot run it ({source})"),
        remedy: "run it without numapilot to see whether it works at all".to_owned(),
    }
}

/// The command that runs the program in an emulator.
fn emulated(emulator: &Emulator, launch: &Launch<'_>, preload: &OsStr) -> Result<Command, LaunchError> {
    let program = &launch.target.exec_path;
    emulator.command(program, launch.command, preload).map_err(|error| LaunchError::NotExecutable {
        path: program.clone(),
        reason: error.to_string(),
        remedy: "run it without numapilot to see whether it works at all".to_owned(),
    })
}

/// Variables that keep idle threads from spinning; none where the user has chosen in any of them.
pub fn passive_waits() -> impl Iterator<Item = (&'static str, &'static str)> {
    let is_chosen = PASSIVE_WAITS.iter().any(|(name, _)| std::env::var_os(name).is_some());
    PASSIVE_WAITS.into_iter().filter(move |_| !is_chosen)
}

/// Our libraries first, then what the user preloads (an allocator, say), from the additions or the environment.
fn preload_list(launch: &Launch<'_>) -> Result<OsString, LaunchError> {
    if let Some(path) = launch.preload.iter().find(|path| !loader_can_take(path)) {
        let reason =
            format!("the dynamic loader cannot preload {}, because its path holds a blank or a colon", path.display());
        return Err(numapilot_runtime::UnpackError { reason }.into());
    }
    let ours: Vec<&OsStr> = launch.preload.iter().map(|path| path.as_os_str()).collect();
    let added = launch.environment.iter().rev().find(|(name, _)| name == "LD_PRELOAD").map(|(_, value)| value.clone());
    let mut list = ours.join(OsStr::new(":"));
    if let Some(theirs) = added.or_else(|| inherited::variable("LD_PRELOAD")).filter(|v| !v.is_empty()) {
        list.push(OsStr::new(":"));
        list.push(theirs);
    }
    Ok(list)
}

fn become_subreaper() -> Result<(), LaunchError> {
    // SAFETY: prctl with integer arguments only.
    let result = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    if result == 0 {
        return Ok(());
    }
    let source = io::Error::last_os_error();
    Err(LaunchError::System {
        what: "cannot become the reaper of orphaned processes",
        source,
        remedy: "Linux 3.4 or later is needed",
    })
}

/// This process's children now. `None` where the kernel does not list them (CONFIG_PROC_CHILDREN).
fn own_children() -> Option<Vec<Pid>> {
    children("self")
}

/// Processor time, seconds, of all processes that ended and were waited for so far: by this process, or by one that was itself waited for (getrusage(2)).
fn waited_s() -> f64 {
    // SAFETY: all-zero is a valid value of this struct of numbers, and the call only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// A child that has ended and was not reaped yet: its accounts are still there.
fn ended_child() -> Option<Pid> {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: an all-zero siginfo_t is a valid value, and the kernel fills in ours; WNOWAIT leaves the child as it is. Where no child has ended, the
    // process id stays zero.
    let pid = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let result = libc::waitid(libc::P_ALL, 0, &raw mut info, flags);
        if result == 0 { info.si_pid() } else { 0 }
    };
    (pid > 0).then(|| Pid(pid.cast_unsigned()))
}

impl Program {
    /// How the main process ended, once `reap` saw it.
    pub fn exit(&self) -> Option<Exit> {
        self.exit
    }

    /// Collects processes that ended and says who is left. Never blocks.
    pub fn reap(&mut self) -> Standing {
        let childless = loop {
            if let Some(pid) = ended_child() {
                self.times.look(pid);
            }
            let mut status = 0;
            // SAFETY: `status` is ours; WNOHANG makes the call return at once.
            match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
                0 => break false,
                pid if pid > 0 => {
                    if Pid(pid.cast_unsigned()) == self.pid {
                        self.exit = Exit::from_wait(status).or(self.exit);
                    }
                }
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => break true,
            }
        };
        if self.exit.is_none() {
            if childless {
                // Somebody else in this process collected it: its status is lost, its end is not.
                self.exit = Some(Exit::Code(1));
            } else {
                return Standing::Running;
            }
        }
        if childless {
            return Standing::Ended;
        }
        let Some(left) = own_children() else { return Standing::Daemons(Vec::new()) };
        let left: Vec<Pid> = left.into_iter().filter(|pid| !self.foreign.contains(pid)).collect();
        if left.is_empty() {
            return Standing::Ended;
        }
        // SAFETY: getsid takes an integer; it fails with -1 for a process that is gone.
        let sessions =
            unsafe { (libc::getsid(0), left.iter().map(|pid| libc::getsid(pid.0.cast_signed())).collect::<Vec<_>>()) };
        if sessions.1.contains(&sessions.0) { Standing::Outlived(left) } else { Standing::Daemons(left) }
    }

    /// Looks at all of the program's processes, with libraries of ours or without: the main one, those that came to us when their parents ended, and all below.
    pub fn look_at_all(&mut self) {
        let mut ours = own_children().unwrap_or_default();
        ours.retain(|pid| !self.foreign.contains(pid));
        self.times.look_below(ours);
    }

    /// The program that was seen to use most processor time, and its share, 0 to 1, of all that is known: see [`ProcessorTimes::busiest`].
    #[must_use]
    pub fn busiest(&self) -> Option<(&Path, f64)> {
        self.times.busiest(waited_s() - self.waited_before_s)
    }

    /// Passes a signal on to the main process, if it still runs.
    pub fn signal(&self, signal: libc::c_int) {
        if self.exit.is_none() {
            // SAFETY: `pid` is a child that was not reaped, so the number is still its own.
            unsafe { libc::kill(self.pid.0.cast_signed(), signal) };
        }
    }
}

#[cfg(test)]
mod tests {
    //! Statuses as shells count them.

    use super::*;

    #[test]
    fn exits_become_shell_codes() {
        assert_eq!(Exit::from_wait(3 << 8).map(Exit::shell_code), Some(3));
        assert_eq!(Exit::from_wait(libc::SIGKILL).map(Exit::shell_code), Some(137));
        assert_eq!(Exit::from_wait(0x137f), None, "a stop is no end");
    }
}
