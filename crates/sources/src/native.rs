//! Runs the program as it is built without call-outs. The processor time of these runs calibrates the simulated clock's charge for the program's own
//! work: a fixed charge of cycles per access knows neither vectorisation, which call-outs prevent, nor computation between accesses.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use numapilot_kernel::cpu_time;
use numapilot_kernel::inherited;
use numapilot_launch::LaunchError;
use numapilot_launch::passive_waits;
use numapilot_launch::resolve_target;
use numapilot_trace::native::Native;
use numapilot_trace::native::NativeRun;

use crate::error::SourceError;
use crate::recording_host::Host;

/// Largest number of runs: the shortest had the fewest disturbances, and their spread shows the uncertainty.
const RUNS: usize = 3;
/// No further run is begun after this time.
const ENOUGH: Duration = Duration::from_secs(20);
/// Ticks of all CPUs below which their kinds say nothing: each kind of each CPU is a whole number of ticks.
const TICKS_MIN: u64 = 40;

/// Runs `program` with these arguments and variables, up to three times, with no input and its output thrown away, in the current folder. `clock_hz` measures
/// the cores' clock; `progress` is called with the number of each run, from 1.
///
/// # Errors
/// There is no such program, it has call-outs itself, or it fails: then with the last words of its standard error.
pub fn run_natively(
    program: &OsStr,
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
    clock_hz: impl Fn() -> f64,
    mut progress: impl FnMut(usize),
) -> Result<Native, SourceError> {
    let target = resolve_target(&[program.to_owned()])?;
    let path = target.exec_path;
    let refused = |reason: String, remedy: &str| {
        SourceError::from(LaunchError::NotExecutable { path: path.clone(), reason, remedy: remedy.to_owned() })
    };
    if target.binary.instrumented {
        let remedy = "give the program as built by the plain compiler, with the same optimisation options";
        return Err(refused(
            "it is instrumented by numapilot, so its time would include the instrumentation".to_owned(),
            remedy,
        ));
    }
    let began = Instant::now();
    let mut runs = Vec::new();
    while runs.len() < RUNS && (runs.is_empty() || began.elapsed() < ENOUGH) {
        progress(runs.len() + 1);
        let mut command = Command::new(&path);
        command.args(arguments).envs(passive_waits()).envs(environment.iter().map(|(name, value)| (name, value)));
        let run = one(inherited::restored(&mut command), &clock_hz)
            .map_err(|error| refused(error.to_string(), "run it without numapilot"))?;
        match run {
            Ok(run) => runs.push(run),
            Err(words) => {
                return Err(refused(
                    format!("run alone, with the same arguments and no input, {words}"),
                    "nothing was recorded; check that it runs with these arguments and no input without numapilot",
                ));
            }
        }
    }
    Ok(Native { program: path.to_string_lossy().into_owned(), cpu_model: Host::read().cpu_model, runs })
}

/// One run. The inner error: how the program failed.
fn one(command: &mut Command, clock_hz: impl Fn() -> f64) -> io::Result<Result<NativeRun, String>> {
    // A file, because a program blocks on a pipe that nobody drains.
    let mut last_words = unnamed_file()?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(last_words.try_clone()?);
    let (before, began) = (Ticks::now(), Instant::now());
    let child = command.spawn()?;
    let pid = child.id().cast_signed();
    let mut status = 0;
    // SAFETY: all-zero is a valid value of this struct of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the child is ours and was not waited for; both pointers are to values that outlive the call.
    while unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let (wall, after) = (began.elapsed(), Ticks::now());
    let how = if libc::WIFSIGNALED(status) {
        Some(format!("it was killed by signal {}", libc::WTERMSIG(status)))
    } else {
        Some(libc::WEXITSTATUS(status)).filter(|code| *code != 0).map(|code| format!("it ended with status {code}"))
    };
    if let Some(how) = how {
        let said = read_all(&mut last_words).unwrap_or_default();
        let line = said.lines().rev().find(|line| !line.trim().is_empty());
        return Ok(Err(line.map_or_else(|| how.clone(), |line| format!("{how} (`{}`)", line.trim()))));
    }
    let (user_ns, system_ns) = (nanoseconds(usage.ru_utime), nanoseconds(usage.ru_stime));
    Ok(Ok(NativeRun {
        user_ns,
        system_ns,
        wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
        clock_mhz: clock_hz() / 1e6,
        others_share: before.zip(after).and_then(|(before, after)| after.others_since(&before, user_ns + system_ns)),
    }))
}

/// Ticks of all CPUs so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    /// In which they ran code, or a hypervisor took them.
    taken: u64,
    all: u64,
}

impl Ticks {
    /// `None` where the kernel does not say.
    fn now() -> Option<Ticks> {
        let times = cpu_time::all(Path::new("/")).ok()?;
        let sum = |of: fn(&cpu_time::CpuTime) -> u64| times.iter().map(of).sum();
        Some(Ticks { taken: sum(|time| time.busy_ticks + time.stolen_ticks), all: sum(|time| time.all_ticks) })
    }

    /// Share of the time since `before` that others took than the program, whose processor time is `own_ns`.
    fn others_since(&self, before: &Ticks, own_ns: u64) -> Option<f64> {
        // Counts of a CPU that went offline meanwhile are missing from the sum.
        let (all, taken) = (self.all.checked_sub(before.all)?, self.taken.checked_sub(before.taken)?);
        let own = own_ns as f64 / 1e9 * cpu_time::ticks_per_s();
        (all >= TICKS_MIN).then(|| ((taken as f64 - own) / all as f64).clamp(0.0, 1.0))
    }
}

fn unnamed_file() -> io::Result<fs::File> {
    use std::os::fd::FromRawFd;
    // SAFETY: the name is a C string; a descriptor that was just made belongs to nobody else.
    unsafe {
        let fd = libc::memfd_create(c"numapilot-native".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(fs::File::from_raw_fd(fd)) }
    }
}

fn read_all(file: &mut fs::File) -> io::Result<String> {
    use std::io::{Read, Seek, SeekFrom};
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn nanoseconds(time: libc::timeval) -> u64 {
    let part = |value: i64, factor: u64| u64::try_from(value).unwrap_or(0).saturating_mul(factor);
    part(time.tv_sec, 1_000_000_000).saturating_add(part(time.tv_usec, 1000))
}

#[cfg(test)]
mod tests {
    //! Real programs of the system.

    use super::*;

    fn words(list: &[&str]) -> Vec<OsString> {
        list.iter().map(OsString::from).collect()
    }

    #[test]
    fn processor_time_is_the_childs_and_its_childrens() {
        let script = words(&["-c", "(i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done) | cat; exit 0"]);
        let mut told = Vec::new();
        let native = run_natively(OsStr::new("sh"), &script, &[], || 2e9, |run| told.push(run)).expect("sh runs");
        assert_eq!(native.runs.len(), RUNS);
        assert_eq!(told, [1, 2, 3]);
        for run in &native.runs {
            assert!(run.user_ns >= 10_000_000 && run.user_ns <= run.wall_ns * 2, "{run:?}");
            assert_eq!(run.clock_mhz, 2000.0);
        }
    }

    #[test]
    fn what_others_took_is_what_the_program_did_not() {
        let second = cpu_time::ticks_per_s() as u64;
        let before = Ticks { taken: 1000, all: 5000 };
        let after = Ticks { taken: 1000 + 3 * second, all: 5000 + 4 * second };
        // Of four seconds three were taken, of which the program had one.
        assert_eq!(after.others_since(&before, 1_000_000_000), Some(0.5));
        assert_eq!(after.others_since(&before, 9_000_000_000), Some(0.0), "ticks are coarse");
        assert_eq!(Ticks { taken: 1010, all: 5000 + TICKS_MIN - 1 }.others_since(&before, 0), None);
        assert_eq!(before.others_since(&after, 0), None, "a CPU has gone");
        assert!(Ticks::now().expect("/proc/stat").all > 0);
    }

    #[test]
    fn a_program_that_fails_is_no_measurement_and_its_last_words_are_told() {
        let fails = words(&["-c", "echo first >&2; echo no such input >&2; exit 3"]);
        let error = run_natively(OsStr::new("sh"), &fails, &[], || 2e9, |_| ()).expect_err("it fails").to_string();
        assert!(error.contains("ended with status 3 (`no such input`)"), "{error}");
        let dies = words(&["-c", "kill -9 $$"]);
        let error = run_natively(OsStr::new("sh"), &dies, &[], || 2e9, |_| ()).expect_err("it dies").to_string();
        assert!(error.contains("killed by signal 9"), "{error}");
        assert!(run_natively(OsStr::new("/no/such/program"), &[], &[], || 2e9, |_| ()).is_err());
    }

    #[test]
    fn it_has_no_input_and_the_variables_that_recordings_have() {
        let asks = words(&["-c", "read line && exit 1; [ \"$MINE\" = yes ]"]);
        let variables = [("MINE".into(), "yes".into())];
        run_natively(OsStr::new("sh"), &asks, &variables, || 2e9, |_| ()).expect("no input, and the variable is set");
    }
}
