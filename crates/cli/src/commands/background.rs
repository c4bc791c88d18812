//! Recordings without a terminal: `record --detach` starts a recorder in a session of its own, `record --stop` ends one, as Ctrl-C would.

use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::fs::TryLockError;
use std::io;
use std::io::PipeReader;
use std::io::PipeWriter;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::RawFd;
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
/// A recording that is over at once (the program fails, say) mostly is so within this time: its messages are shown here then.
const ENDS_WITHIN: Duration = Duration::from_millis(300);
/// How long the tables of a recording that has ended are awaited although no recorder is seen that could make them: where the file system supports no locks.
const UNSEEN_AT_MOST: Duration = Duration::from_secs(2);
/// What takes longer than this is explained.
const EXPLAINED_AFTER: Duration = Duration::from_secs(2);

/// What a recorder lets others know from when it records until it ends.
#[derive(Debug)]
pub struct Sign {
    /// The trace's folder, until something is recorded there.
    folder: Option<PathBuf>,
    /// The command that has started it in the background, and waits until it records.
    starter: Option<File>,
    /// The folder of the chunks, locked: the recorder's own file there goes with the end of the recording, before the tables are begun.
    held: Option<File>,
}

impl Sign {
    /// Of a recorder that has yet to record to this folder. `tells_start`: the descriptor that [`start`] has handed down.
    ///
    /// # Errors
    /// It is none.
    pub fn new(folder: &Path, tells_start: Option<RawFd>) -> Result<Sign> {
        Ok(Sign { folder: Some(folder.to_owned()), starter: tells_start.map(handed_down).transpose()?, held: None })
    }

    /// The recorder records from now on. Further calls do nothing.
    pub fn records(&mut self) {
        let Some(folder) = self.folder.take() else { return };
        self.held = File::open(folder.join(RAW_FOLDER)).ok().filter(|raw| raw.try_lock().is_ok());
        if let Some(mut starter) = self.starter.take() {
            // It may have been interrupted meanwhile.
            let _ = starter.write_all(b"\n");
        }
    }
}

impl Drop for Sign {
    /// To close the folder is not enough: a process that was forked meanwhile has it open, too.
    fn drop(&mut self) {
        if let Some(held) = &self.held {
            let _ = held.unlock();
        }
    }
}

/// The pipe with this descriptor, which the recorder's programs do not get.
///
/// # Errors
/// There is none.
fn handed_down(descriptor: RawFd) -> Result<File> {
    // SAFETY: sets a flag of a descriptor, or fails where there is none.
    if descriptor <= libc::STDERR_FILENO || unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        bail!("--tells-start {descriptor}: this is no descriptor that was handed down; use --detach");
    }
    // SAFETY: it is open, and was before this process began: nothing else here owns it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Starts this command line again without `--detach`, as a recorder that outlives the terminal and this process, and waits until it records. Its messages and
/// the program's output go to a file beside the trace.
///
/// # Errors
/// Another recording is being written to `folder`, or the recorder cannot be started.
pub fn start(folder: &Path, is_quiet: bool) -> Result<ExitCode> {
    refuse_if_written(folder)?;
    let log = log_of(folder);
    let (mut told, tells) = io::pipe().context("a pipe to the recorder")?;
    let mut child = spawn(&log, tells).inspect_err(|_| drop_log(folder, &log))?;
    let pid = child.id();
    let explain = || {
        if !is_quiet {
            tell!("numapilot: process {pid} starts recording; its messages go to {}", log.display());
        }
    };
    let mut status = await_start(&mut child, &mut told, explain).context("the recorder's start")?;
    let begun = Instant::now();
    while status.is_none() && begun.elapsed() < ENDS_WITHIN {
        std::thread::sleep(LOOK_EVERY);
        status = child.try_wait().context("the recorder's end")?;
    }
    if let Some(status) = status {
        let code = ended(status, &log);
        drop_log(folder, &log);
        return code;
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
    refuse_if_unfinished(folder)
}

/// Fails where the tables of a recording that has ended are made, or its recorder is about to make them: they would come to lie in the new trace.
///
/// # Errors
/// It is so.
pub fn refuse_if_unfinished(folder: &Path) -> Result<()> {
    let shown = folder.display();
    if will_be_complete(folder, UNSEEN_AT_MOST) {
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

/// Waits until a recorder says that it records. Its status: it has ended before. `explain` is called where that takes long.
fn await_start(child: &mut Child, told: &mut PipeReader, explain: impl FnOnce()) -> io::Result<Option<ExitStatus>> {
    let mut poll = libc::pollfd { fd: told.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let wait_ms = i32::try_from(EXPLAINED_AFTER.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one valid pollfd.
    if unsafe { libc::poll(&raw mut poll, 1, wait_ms) } == 0 {
        explain();
    }
    match told.read_exact(&mut [0]) {
        Ok(()) => Ok(None),
        // The pipe ends with the recorder, however that ends.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => child.wait().map(Some),
        Err(error) => Err(error),
    }
}

/// Starts the recorder. `tells`: the pipe's end to which it says that it records.
fn spawn(log: &Path, tells: PipeWriter) -> Result<Child> {
    let file = File::create(log).with_context(|| format!("{}: cannot be written", log.display()))?;
    let program = std::env::current_exe().context("numapilot's own file")?;
    let mut command = Command::new(program);
    let tells_start = hand_down(&mut command, &tells);
    command.args(of_recorder(std::env::args_os().skip(1), tells_start));
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

/// Leaves a pipe open in the program of a command. Returns its descriptor there.
fn hand_down(command: &mut Command, tells: &PipeWriter) -> RawFd {
    let descriptor = tells.as_raw_fd();
    // SAFETY: the call is async-signal-safe, and changes a flag of a descriptor of the new process.
    unsafe {
        command.pre_exec(move || match libc::fcntl(descriptor, libc::F_SETFD, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    descriptor
}

/// The arguments of the recorder: `--tells-start` in place of `--detach`; the program's own, behind `--`, stay as they are.
fn of_recorder(arguments: impl Iterator<Item = OsString>, tells_start: RawFd) -> Vec<OsString> {
    let mut is_own = true;
    let own = |argument: OsString| {
        is_own &= argument != "--";
        if is_own && argument == "--detach" { format!("--tells-start={tells_start}").into() } else { argument }
    };
    arguments.map(own).collect()
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
    let mut waiting = Waiting::new(
        format!("process {} ends the recording, once a program that it started has ended", recorder.pid),
        is_quiet,
    );
    while process.is_running() {
        process.wait(LOOK_EVERY);
        if activity(&folder) == Activity::Ended {
            waiting.has_become(format!("process {} has ended the recording, and writes the trace", recorder.pid));
        }
        waiting.explain();
    }
    drop(waiting);
    completed(&folder, is_quiet)
}

/// Says what is waited for: on a terminal in a line that moves and goes with it, elsewhere once if it takes long.
struct Waiting {
    bar: ProgressBar,
    message: String,
    /// Since when this is waited for.
    begun: Instant,
    is_told: bool,
    /// Nothing is ever told in lines.
    is_silent: bool,
}

impl Waiting {
    fn new(message: String, is_quiet: bool) -> Waiting {
        let is_hidden = crate::output::hides_progress(is_quiet);
        let bar = if is_hidden { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.set_message(message.clone());
        crate::output::animate(&bar);
        let is_silent = is_quiet || !bar.is_hidden();
        Waiting { bar, message, begun: Instant::now(), is_told: is_silent, is_silent }
    }

    /// Something else is waited for now.
    fn has_become(&mut self, message: String) {
        if self.message != message {
            self.bar.set_message(message.clone());
            (self.message, self.begun, self.is_told) = (message, Instant::now(), self.is_silent);
        }
    }

    fn explain(&mut self) {
        if !self.is_told && self.begun.elapsed() >= EXPLAINED_AFTER {
            tell!("numapilot: {}", self.message);
            self.is_told = true;
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Whether the recording of a trace has ended by itself, and its tables are being made, or are about to be. A recorder that was killed leaves its file.
fn is_unfinished(folder: &Path) -> bool {
    let raw = folder.join(RAW_FOLDER);
    let is_ended = raw.is_dir() && !raw.join(RECORDER_FILE).exists() && !folder.join(META_FILE).is_file();
    is_ended || is_being_completed(folder)
}

/// Waits until the tables of a recording that has ended are made.
fn await_tables(folder: &Path, is_quiet: bool) {
    let mut waiting = Waiting::new("the recording has ended, and its trace is being written".to_owned(), is_quiet);
    while will_be_complete(folder, waiting.begun.elapsed()) {
        std::thread::sleep(LOOK_EVERY);
        waiting.explain();
    }
}

/// Whether the tables of a recording that has ended are still to come, which have been awaited for so long.
fn will_be_complete(folder: &Path, awaited: Duration) -> bool {
    is_being_completed(folder) || (is_unfinished(folder) && (has_recorder(folder) || awaited < UNSEEN_AT_MOST))
}

/// Whether the recorder of a trace, which may have ended its recording, runs: see [`Sign`].
fn has_recorder(folder: &Path) -> bool {
    let Ok(raw) = File::open(folder.join(RAW_FOLDER)) else { return false };
    let lock = raw.try_lock_shared();
    // To close it is not enough: a process that is forked at this moment keeps the lock, and the next recorder would not get it.
    let _ = raw.unlock();
    matches!(lock, Err(TryLockError::WouldBlock))
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
    use std::os::fd::IntoRawFd;

    use numapilot_trace::tables::FolderLock;

    use super::*;

    #[test]
    fn the_programs_own_arguments_stay() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let of = |text: &str| of_recorder(words(text).into_iter(), 5);
        assert_eq!(
            of("record --detach -o run -- ./app --detach"),
            words("record --tells-start=5 -o run -- ./app --detach")
        );
        assert_eq!(of("record --pid 7 --detach"), words("record --pid 7 --tells-start=5"));
    }

    /// It lasted until the recorder had its folder, which is before the events are on: `record --stop` right after it got a recording of nothing.
    #[test]
    fn a_start_lasts_until_the_recorder_says_that_it_records() {
        let start = |script: &str| {
            let (mut told, tells) = io::pipe().unwrap();
            let mut command = Command::new("sh");
            let descriptor = hand_down(&mut command, &tells).to_string();
            let mut child = command.args(["-c", script, "sh", &descriptor]).spawn().unwrap();
            drop(tells);
            let ended = await_start(&mut child, &mut told, || ()).unwrap();
            let is_running = child.try_wait().unwrap().is_none();
            let _ = child.kill();
            child.wait().unwrap();
            (ended.map(|status| status.code()), is_running)
        };
        assert_eq!(start("sleep 0.1; echo >/proc/self/fd/$1; exec sleep 600"), (None, true));
        assert_eq!(start("exit 7"), (Some(Some(7)), false));
        assert!(handed_down(libc::STDERR_FILENO).is_err() && handed_down(RawFd::MAX).is_err());
    }

    #[test]
    fn a_recorder_says_once_that_it_records() {
        let place = tempfile::tempdir().unwrap();
        let (mut told, tells) = io::pipe().unwrap();
        let mut sign = Sign::new(place.path(), Some(tells.into_raw_fd())).unwrap();
        sign.records();
        sign.records();
        let mut words = Vec::new();
        told.read_to_end(&mut words).unwrap();
        assert_eq!(words, b"\n");
    }

    /// On a busy machine the tables are begun later than two seconds after the recording's end: it was said that there would be none.
    #[test]
    fn a_recorder_that_runs_is_waited_for_however_late_it_begins_the_tables() {
        let place = tempfile::tempdir().unwrap();
        let (folder, long) = (place.path(), UNSEEN_AT_MOST * 100);
        fs::create_dir(folder.join(RAW_FOLDER)).unwrap();
        let mut sign = Sign::new(folder, None).unwrap();
        assert!(will_be_complete(folder, Duration::ZERO) && !will_be_complete(folder, long));
        sign.records();
        assert!(will_be_complete(folder, long) && refuse_if_unfinished(folder).is_err());
        drop(sign);
        assert!(!will_be_complete(folder, long) && refuse_if_unfinished(folder).is_ok());
        let mut sign = Sign::new(folder, None).unwrap();
        sign.records();
        fs::write(folder.join(META_FILE), "{}").unwrap();
        assert!(!will_be_complete(folder, Duration::ZERO), "it is complete");
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

    /// A program that ignores the interrupt was waited for as if its trace were being written.
    #[test]
    fn what_is_waited_for_is_told_anew_when_it_changes() {
        let mut waiting = Waiting::new("a program".to_owned(), true);
        (waiting.is_told, waiting.is_silent) = (true, false);
        waiting.has_become("a program".to_owned());
        assert!(waiting.is_told);
        waiting.has_become("its trace".to_owned());
        assert!(!waiting.is_told && waiting.message == "its trace");
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
