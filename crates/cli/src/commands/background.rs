//! Recordings without a terminal: `record --detach` starts a recorder in a session of its own, `record --stop` ends one, as Ctrl-C would.

use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitCode;
use std::process::ExitStatus;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use indicatif::ProgressBar;
use numapilot_host::Pid;
use numapilot_kernel::inherited;
use numapilot_kernel::task;
use numapilot_kernel::task::Process;
use numapilot_launch::Exit;
use numapilot_trace::chunk::Activity;
use numapilot_trace::chunk::RAW_FOLDER;
use numapilot_trace::chunk::RECORDER_FILE;
use numapilot_trace::chunk::Recorder;
use numapilot_trace::chunk::activity;
use numapilot_trace::meta::META_FILE;
use numapilot_trace::name;
use numapilot_trace::output::is_being_completed;

use crate::output::tell;

/// Between two looks at a recorder that starts or ends.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A recorder that fails after it has begun (the program does not exist, say) mostly does so within this time: its messages are shown here then.
const FAILS_WITHIN: Duration = Duration::from_millis(300);
/// A recorder that has ended its recording begins to make the tables within this time.
const COMPLETES_WITHIN: Duration = Duration::from_secs(2);
/// A start that takes longer than this is explained.
const EXPLAINED_AFTER: Duration = Duration::from_secs(2);

/// Starts this command line again without `--detach`, as a recorder that outlives the terminal and this process, and waits until it records. Its messages and
/// the program's output go to a file beside the trace.
///
/// # Errors
/// Another recording is being written to `folder`, or the recorder cannot be started.
pub fn start(folder: &Path, is_quiet: bool) -> Result<ExitCode> {
    refuse_if_written(folder)?;
    let log = log_of(folder);
    let mut child = spawn(&log).inspect_err(|_| drop_log(folder, &log))?;
    let begun = Instant::now();
    let (mut ready_since, mut is_explained) = (None, is_quiet);
    while ready_since.is_none_or(|since: Instant| since.elapsed() < FAILS_WITHIN) {
        if let Some(status) = child.try_wait().context("the recorder's end")? {
            let code = ended(status, &log);
            drop_log(folder, &log);
            return code;
        }
        if ready_since.is_none() && records(folder, &child) {
            ready_since = Some(Instant::now());
        }
        if ready_since.is_none() && !is_explained && begun.elapsed() >= EXPLAINED_AFTER {
            tell!("numapilot: process {} starts recording; its messages go to {}", child.id(), log.display());
            is_explained = true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    if !is_quiet {
        tell!(
            "numapilot: recording to {} in the background (process {}); messages and the program's output go to {}; \
             `numapilot record --stop {}` ends the recording",
            folder.display(),
            child.id(),
            log.display(),
            folder.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails where another recording is being written: its messages would be lost, too.
fn refuse_if_written(folder: &Path) -> Result<()> {
    let shown = folder.display();
    if let Activity::Recording(recorder) = activity(folder) {
        bail!(
            "{shown}: another recording is being written there, by process {}; end it with `numapilot record --stop {shown}`, or choose another name (-o)",
            recorder.pid
        );
    }
    if is_being_completed(folder) {
        bail!(
            "{shown}: another recording is being written there, whose tables are being made; wait for them with `numapilot record --stop {shown}`, \
             or choose another name (-o)"
        );
    }
    Ok(())
}

/// `run.numatrace.log` of `run.numatrace`.
fn log_of(folder: &Path) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(".log");
    PathBuf::from(name)
}

fn spawn(log: &Path) -> Result<Child> {
    let file = File::create(log).with_context(|| format!("{}: cannot be written", log.display()))?;
    let program = std::env::current_exe().context("numapilot's own file")?;
    let mut command = Command::new(program);
    command.args(without_detach(std::env::args_os().skip(1)));
    command.stdin(Stdio::null()).stderr(file.try_clone().context("the recorder's messages")?).stdout(file);
    inherited::restored(&mut command);
    // SAFETY: both calls are async-signal-safe and change only the new process: a session without a terminal, and an interrupt that arrives, which shells
    // ignore in background jobs.
    unsafe {
        command.pre_exec(|| {
            if libc::setsid() < 0 {
                return Err(io::Error::last_os_error());
            }
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    command.spawn().context("the recorder cannot be started")
}

/// The arguments of the recorder: all but `--detach`; the program's own, behind `--`, stay as they are.
fn without_detach(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut is_own = true;
    arguments
        .filter(|argument| {
            is_own &= argument != "--";
            !is_own || argument != "--detach"
        })
        .collect()
}

/// Whether the child has begun to write the trace.
fn records(folder: &Path, child: &Child) -> bool {
    matches!(activity(folder), Activity::Recording(recorder) if recorder.pid == Pid::of_child(child))
}

/// Removes the messages of a recorder that completed no trace: they have been shown.
fn drop_log(folder: &Path, log: &Path) {
    if !folder.join(META_FILE).is_file() {
        // Best effort: a file that stays does no harm.
        let _ = fs::remove_file(log);
    }
}

/// The messages and exit status of a recorder that has ended already.
fn ended(status: ExitStatus, log: &Path) -> Result<ExitCode> {
    let text = fs::read(log).with_context(|| format!("{}: cannot be read", log.display()))?;
    // Nobody may read it.
    let _ = io::stderr().write_all(&text);
    let code = Exit::from_wait(status.into_raw()).map_or(1, Exit::shell_code);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Ends the recording that is being written to a trace, as Ctrl-C would, and waits until the trace is complete.
///
/// # Errors
/// No recording is running there, its recorder is out of reach, or it ends without a complete trace.
pub fn stop(trace: &Path, is_quiet: bool) -> Result<ExitCode> {
    let folder = name::find(trace);
    let shown = folder.display();
    let recorder = match activity(&folder) {
        Activity::Recording(recorder) | Activity::Unknown(recorder) => recorder,
        Activity::Ended if is_unfinished(&folder) => {
            await_tables(&folder, is_quiet);
            return completed(&folder, is_quiet);
        }
        Activity::Ended if folder.join(META_FILE).is_file() => {
            bail!("{shown}: no recording is running there; it has ended: numapilot report {shown}")
        }
        Activity::Ended => bail!("{shown}: no recording is running there"),
    };
    let process = opened(&recorder).with_context(|| shown.to_string())?;
    process.signal(interrupt_of(recorder.pid)).with_context(|| shown.to_string())?;
    let bar = spinner(format!("process {} ends the recording and writes the trace", recorder.pid), is_quiet);
    while process.is_running() {
        process.wait(LOOK_EVERY);
    }
    bar.finish_and_clear();
    completed(&folder, is_quiet)
}

fn spinner(message: String, is_quiet: bool) -> ProgressBar {
    let bar = if is_quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    bar.set_message(message);
    crate::output::animate(&bar);
    bar
}

/// Whether the recording of a trace has ended by itself, and its tables are being made, or are about to be. A recorder that was killed leaves its file.
fn is_unfinished(folder: &Path) -> bool {
    let raw = folder.join(RAW_FOLDER);
    let is_ended = raw.is_dir() && !raw.join(RECORDER_FILE).exists() && !folder.join(META_FILE).is_file();
    is_ended || is_being_completed(folder)
}

/// Waits until the tables of a recording that has ended are made.
fn await_tables(folder: &Path, is_quiet: bool) {
    let bar = spinner("the recording has ended, and its trace is being written".to_owned(), is_quiet);
    let begun = Instant::now();
    while is_being_completed(folder) || (is_unfinished(folder) && begun.elapsed() < COMPLETES_WITHIN) {
        std::thread::sleep(LOOK_EVERY);
    }
    bar.finish_and_clear();
}

/// Says that a trace is complete.
///
/// # Errors
/// It is not.
fn completed(folder: &Path, is_quiet: bool) -> Result<ExitCode> {
    let shown = folder.display();
    if !folder.join(META_FILE).is_file() {
        let log = log_of(folder);
        let more = if log.is_file() { format!(": {} says why", log.display()) } else { String::new() };
        bail!("{shown}: the recorder has ended without completing the trace{more}");
    }
    if !is_quiet {
        tell!("numapilot: the recording to {shown} has ended; next: numapilot report {shown}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The recorder by a descriptor, which cannot come to mean another process.
fn opened(recorder: &Recorder) -> Result<Process> {
    let elsewhere = || {
        format!(
            "its recorder, process {} on {}, runs in another container or on another machine: end it there",
            recorder.pid, recorder.host
        )
    };
    if recorder.is_alive() != Some(true) {
        bail!(elsewhere());
    }
    let process = Process::open(recorder.pid)?;
    // The id may have gone to another process before it was opened.
    if recorder.is_alive() != Some(true) {
        bail!("its recorder, process {}, has just ended", recorder.pid);
    }
    Ok(process)
}

/// The signal that ends a recorder: an interrupt, or where the recorder was started with interrupts ignored (`nohup`, a script's background job), SIGTERM.
fn interrupt_of(pid: Pid) -> i32 {
    if task::ignores(pid, libc::SIGINT) { libc::SIGTERM } else { libc::SIGINT }
}

#[cfg(test)]
mod tests {
    use numapilot_trace::tables::FolderLock;

    use super::*;

    #[test]
    fn the_programs_own_arguments_stay() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let of = |text: &str| without_detach(words(text).into_iter());
        assert_eq!(of("record --detach -o run -- ./app --detach"), words("record -o run -- ./app --detach"));
        assert_eq!(of("record --pid 7 --detach"), words("record --pid 7"));
    }

    /// While the tables were made, `record --stop` said that no recording was running, and a reader had to guess when there was one to read.
    #[test]
    fn a_recording_that_ended_by_itself_is_awaited_until_its_tables_are_made() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("run.numatrace");
        fs::create_dir_all(folder.join(RAW_FOLDER)).unwrap();
        let meta = folder.join(META_FILE);
        let is_awaited = |pause: Duration| {
            // Of the time before.
            let _ = fs::remove_file(&meta);
            let (held, written) = (FolderLock::take(&folder), meta.clone());
            let refused = refuse_if_written(&folder).unwrap_err().to_string();
            assert!(refused.contains("numapilot record --stop"), "{refused}");
            let recorder = std::thread::spawn(move || {
                std::thread::sleep(pause);
                fs::write(written, "{}").unwrap();
                drop(held);
            });
            let is_awaited = stop(&folder, true).is_ok();
            assert!(!is_awaited || meta.is_file());
            recorder.join().unwrap();
            is_awaited
        };
        // Where no CPU is free, the recorder may be done before it is looked for: then it takes longer.
        assert!([1_u32, 10, 100].into_iter().any(|times| is_awaited(LOOK_EVERY * times)));
        assert!(refuse_if_written(&folder).is_ok());
        let ended = stop(&folder, true).unwrap_err().to_string();
        assert!(ended.contains("it has ended: numapilot report"), "{ended}");
    }

    /// A recorder that was killed is not waited for.
    #[test]
    fn a_killed_recorder_leaves_nothing_to_wait_for() {
        let place = tempfile::tempdir().unwrap();
        let raw = place.path().join(RAW_FOLDER);
        fs::create_dir(&raw).unwrap();
        assert!(is_unfinished(place.path()));
        fs::write(raw.join(RECORDER_FILE), "{}").unwrap();
        assert!(!is_unfinished(place.path()));
    }

    /// `record --detach -- ./no-such-program` left a `.log` of nothing, which the next listing took for that of a trace.
    #[test]
    fn messages_stay_only_beside_a_trace() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("run.numatrace");
        let log = log_of(&folder);
        fs::write(&log, "no such program\n").unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(META_FILE), "{}").unwrap();
        drop_log(&folder, &log);
        assert!(log.exists());
        fs::remove_dir_all(&folder).unwrap();
        drop_log(&folder, &log);
        assert!(!log.exists());
    }

    #[test]
    fn messages_go_beside_the_trace() {
        assert_eq!(log_of(Path::new("a/run.numatrace")), Path::new("a/run.numatrace.log"));
    }
}
