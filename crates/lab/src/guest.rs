//! One running QEMU: its process, its console, its monitor. `guest/init` is the other side of the console.

use std::fs;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;
use std::process::ChildStdin;
use std::process::Command;
use std::process::Stdio;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::error::AtPath;
use crate::error::LabError;
use crate::qmp::Monitor;
use crate::time_limit::TimeLimit;

/// The guest's init waits for a line from the host: snapshots are taken at this point.
pub(crate) const READY: &str = "numapilot-lab: ready";
/// The guest's init has read that line.
pub(crate) const GOING: &str = "numapilot-lab: going";
/// It has mounted the host's files; the command starts.
pub(crate) const RUNNING: &str = "numapilot-lab: running";
/// The command has ended, its output is written.
pub(crate) const DONE: &str = "numapilot-lab: done";
/// Init could not do its part; the reason follows.
const GAVE_UP: &str = "numapilot-lab: gave up";
/// How much of the console is kept, bytes: its end shows why a guest died.
const CONSOLE: usize = 64 * 1024;
/// Time limit for QEMU to answer on its monitor, by the host's clock: on a busy host it is late while it restores a guest.
const MONITOR: Duration = Duration::from_secs(300);
/// Time limit for QEMU to end: its plugins write what they have, to a disk that others may use.
const ENDING: Duration = Duration::from_secs(60);

/// Outcome of waiting for a line of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The guest printed the line.
    Seen,
    /// The time is over.
    TimedOut,
    /// QEMU has ended, or init gave up.
    Ended,
}

/// A guest; killed when dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    child: Child,
    stdin: Option<ChildStdin>,
    pieces: mpsc::Receiver<Vec<u8>>,
    console: Vec<u8>,
    searched: usize,
    errors: tempfile::NamedTempFile,
    pub(crate) monitor: Monitor,
}

impl Guest {
    /// Starts QEMU with the monitor and the console attached.
    pub(crate) fn start(mut command: Command) -> Result<Self, LabError> {
        let here = Path::new("QEMU");
        let errors = tempfile::NamedTempFile::new().at(here, "cannot make a file for its messages")?;
        let (ours, theirs) = UnixStream::pair().at(here, "cannot make its monitor")?;
        let fd = theirs.as_raw_fd();
        command
            .args(["-chardev", &format!("socket,id=monitor,fd={fd}"), "-mon", "chardev=monitor,mode=control"])
            .args(["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.reopen().at(errors.path(), "cannot be opened a second time")?);
        die_with_parent(&mut command, fd);
        let mut child = command.spawn().at(here, "cannot be started")?;
        drop(theirs);
        let stdin = child.stdin.take();
        let (sender, pieces) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || forward(stdout, &sender));
        }
        let monitor = Monitor::new(ours, MONITOR).at(here, "cannot talk to its monitor")?;
        let mut guest = Self { child, stdin, pieces, console: Vec::new(), searched: 0, errors, monitor };
        guest
            .monitor
            .start()
            .map_err(|_| LabError::Died { how: "QEMU ended at once".into(), console: guest.said() })?;
        Ok(guest)
    }

    /// A time limit in QEMU's own time, from now on.
    pub(crate) fn time_limit(&self, limit: Duration) -> TimeLimit {
        TimeLimit::new(self.child.id(), limit)
    }

    /// Waits until init says `mark`, at most `limit` of QEMU's time.
    pub(crate) fn wait_for(&mut self, mark: &str, limit: Duration) -> Waited {
        let time_limit = self.time_limit(limit);
        loop {
            if let Some(at) = find(&self.console[self.searched..], mark.as_bytes()) {
                self.searched += at + mark.len();
                return Waited::Seen;
            }
            if find(&self.console, GAVE_UP.as_bytes()).is_some() {
                // The reason is on its way.
                thread::sleep(Duration::from_millis(100));
                self.drain();
                return Waited::Ended;
            }
            match self.pieces.recv_timeout(time_limit.left()) {
                Ok(piece) => self.keep(&piece),
                Err(RecvTimeoutError::Timeout) if !time_limit.left().is_zero() => {}
                Err(RecvTimeoutError::Timeout) => return Waited::TimedOut,
                Err(RecvTimeoutError::Disconnected) => return Waited::Ended,
            }
        }
    }

    /// Gives init the word to go. Said again until it is heard: the first bytes after a restore may be lost.
    pub(crate) fn go(&mut self, limit: Duration) -> Waited {
        let time_limit = self.time_limit(limit);
        loop {
            if let Some(stdin) = &mut self.stdin
                && stdin.write_all(b"-\n\ngo\n").and_then(|()| stdin.flush()).is_err()
            {
                return Waited::Ended;
            }
            match self.wait_for(GOING, Duration::from_secs(1).min(time_limit.left())) {
                Waited::TimedOut if !time_limit.left().is_zero() => {}
                other => return other,
            }
        }
    }

    /// Ends QEMU in order, so that its plugins write what they have; kills it if it does not end.
    pub(crate) fn quit(&mut self) {
        let _ = self.monitor.execute("quit", json!({}));
        let time_limit = self.time_limit(ENDING);
        while !time_limit.left().is_zero() {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.kill();
    }

    /// The end of the console, and what QEMU itself wrote.
    pub(crate) fn said(&mut self) -> String {
        self.drain();
        let console = String::from_utf8_lossy(&self.console).replace('\r', "");
        let errors = fs::read(self.errors.path()).unwrap_or_default();
        let errors = String::from_utf8_lossy(&errors);
        if errors.trim().is_empty() { console } else { format!("{console}\n--- QEMU ---\n{errors}") }
    }

    fn drain(&mut self) {
        while let Ok(piece) = self.pieces.try_recv() {
            self.keep(&piece);
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        self.console.extend_from_slice(piece);
        if self.console.len() > CONSOLE {
            let cut = self.console.len() - CONSOLE / 2;
            self.console.drain(..cut);
            self.searched = self.searched.saturating_sub(cut);
        }
    }

    fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}

fn forward(mut from: impl Read, to: &mpsc::Sender<Vec<u8>>) {
    let mut buffer = [0; 4096];
    loop {
        match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
            Ok(count) => {
                if to.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

/// Lets QEMU inherit `kept` and die when the thread that started it does: no guest outlives a killed test.
fn die_with_parent(command: &mut Command, kept: RawFd) {
    let parent = std::process::id();
    let prepare = move || {
        // SAFETY: plain system calls, allowed between fork and exec; they touch no memory of ours.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 || libc::fcntl(kept, libc::F_SETFD, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the call above.
            if u32::try_from(libc::getppid()) != Ok(parent) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
        Ok(())
    };
    // SAFETY: `prepare` allocates nothing, takes no locks and calls only async-signal-safe functions.
    unsafe {
        command.pre_exec(prepare);
    }
}
