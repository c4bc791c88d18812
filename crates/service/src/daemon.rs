//! The services around a running loop: journal, control socket, metrics, record of changed settings, and notifications to systemd.
//!
//! The loop's control port passes events to it, and takes commands from it. It never blocks, and never fails once it has started.

use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use std::time::Instant;

use numapilot_balancer::event::Event;
use numapilot_balancer::event::Setting as SettingEvent;
use numapilot_balancer::event::SettingDone;
use numapilot_balancer::event::Sink;
use numapilot_balancer::event::Trouble;
use numapilot_balancer::status::Board;
use numapilot_balancer::status::Status;
use numapilot_balancer::status::Steering;
use numapilot_balancer::system::clock::unix_ns;
use numapilot_balancer::system::undo_log::Binding;
use numapilot_balancer::system::undo_log::ThreadId;
use numapilot_balancer::system::undo_log::UndoLog;
use numapilot_host::Pid;

use crate::address::Address;
use crate::config::MetricsSettings;
use crate::control::Control;
use crate::control::ControlSettings;
use crate::control::line;
use crate::error::ServiceError;
use crate::guest_lines::GuestLines;
use crate::journal::HealthOf;
use crate::journal::Journal;
use crate::journal::JournalSettings;
use crate::metrics::MetricFamily;
use crate::metrics::balancer;
use crate::metrics::page::MetricsPage;
use crate::notify::Notify;
use crate::state::Done;
use crate::state::Record;

/// Interval between two notifications to systemd; a wait is no longer than that, so that the watchdog hears of the daemon however long the loop's interval is.
pub(crate) const NOTIFY_EVERY: Duration = Duration::from_secs(1);

/// Settings of a daemon's services.
#[derive(Clone, Debug, Default)]
pub struct DaemonSettings {
    /// The journal; `None`: no journal.
    pub journal: Option<JournalSettings>,
    /// The control socket; `None`: no control socket.
    pub control: Option<ControlSettings>,
    /// The metrics page; `None`: no metrics.
    pub metrics: Option<MetricsSettings>,
    /// Folder for the record of settings to restore; `None`: no system-wide setting is changed.
    pub state: Option<PathBuf>,
    /// Whether that folder is required. If it is not, and another process uses it or it cannot be written, settings stay unchanged.
    pub needs_state: bool,
}

/// The services of a running daemon (see the module's documentation).
pub struct Daemon {
    board: Board,
    journal: Option<Journal>,
    guest_lines: GuestLines,
    record: Result<Record, String>,
    /// Held open: dropping them closes them.
    _servers: (Option<Control>, Option<MetricsPage>),
    commands: Receiver<Steering>,
    pub(crate) notify: Notify,
    is_ready: bool,
    notified_at: Option<Instant>,
    status_at: Option<Instant>,
}

impl Daemon {
    /// Starts all services, and restores settings that an earlier daemon left changed because it was killed. `wake` is called, from other threads, when a
    /// command arrives.
    ///
    /// # Errors
    /// A file, socket or port cannot be opened.
    pub fn start(settings: &DaemonSettings, wake: impl Fn() + Send + Sync + 'static) -> Result<Daemon, ServiceError> {
        if settings.journal.is_some() {
            ignore_file_size_signal();
        }
        if let Some(journal) = &settings.journal {
            make_folder(&journal.file, false)?;
        }
        if let Some(control) = &settings.control {
            make_folder(&control.path, true)?;
        }
        let (record, restored) =
            match settings.state.as_deref().map(|folder| Record::take(folder, settings.needs_state)) {
                None => (
                    Err("no state folder is set, in which settings to restore would be recorded".to_owned()),
                    Vec::new(),
                ),
                Some(Ok((record, restored))) => (Ok(record), restored),
                Some(Err(error)) if settings.needs_state => return Err(error),
                Some(Err(error)) => (Err(error.to_string()), Vec::new()),
            };
        let mut journal = settings.journal.clone().map(Journal::start).transpose()?;
        if let Some(journal) = &mut journal {
            restored.iter().for_each(|done| journal.record(event_of(done)));
        }
        let board = Board::new();
        board.put(Status { pid: Pid::own(), ..Status::default() });
        let health = journal.as_ref().map(Journal::health);
        let (steering, commands) = line(Arc::new(wake));
        let control = match &settings.control {
            Some(control) => Some(Control::start(control, board.clone(), steering, health.clone())?),
            None => None,
        };
        let page = match &settings.metrics {
            Some(metrics) => Some(start_page(metrics, board.clone(), health)?),
            None => None,
        };
        let notify = Notify::from_environment();
        // SAFETY: has no preconditions.
        let own_uid = unsafe { libc::geteuid() };
        Ok(Daemon {
            board,
            journal,
            guest_lines: GuestLines::new(own_uid),
            record,
            _servers: (control, page),
            commands,
            notify,
            is_ready: false,
            notified_at: None,
            status_at: None,
        })
    }

    /// Notes that the loop begins, which observes at this interval: its first figures are due from now on.
    pub fn begins(&mut self, interval: Duration) {
        let (now_ns, interval_ns) = (unix_ns(), u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX));
        self.board.put(Status {
            pid: Pid::own(),
            started_unix_ns: now_ns,
            unix_ns: now_ns,
            interval_ns,
            ..Status::default()
        });
    }

    /// Returns the next command to the loop, if there is one.
    pub fn steering(&mut self) -> Option<Steering> {
        self.commands.try_recv().ok()
    }

    /// Publishes the loop's status.
    pub fn status(&mut self, status: Status) {
        if is_due(self.status_at) {
            self.status_at = Some(Instant::now());
            let moved = status.counters.pages.moved;
            let words = format!("{}: processes: {}, pages moved: {moved}", status.state.name(), status.targets.len());
            if self.is_ready {
                self.notify.status(&words);
            }
            self.notify_alive(&words);
        }
        self.board.put(status);
    }

    /// Notifies systemd that a step is still at work, which publishes no status. The first step may be such a one, and a start is to end in time.
    pub fn alive(&mut self) {
        self.notify_alive("moving memory");
    }

    /// Notifies systemd that the loop waits for its next step. The first one may come an interval after the start, and intervals may be longer than systemd
    /// waits for a start, or for its watchdog's notification.
    pub fn waits(&mut self) {
        self.notify_alive("waiting for the first interval to end");
    }

    /// `words`: the status, if this is the first notification.
    fn notify_alive(&mut self, words: &str) {
        if is_due(self.notified_at) {
            self.notified_at = Some(Instant::now());
            if self.is_ready {
                self.notify.alive();
            } else {
                self.notify.ready(words);
                self.is_ready = true;
            }
        }
    }

    /// Notifies systemd that the configuration is being read again (`is_over`: has been read).
    pub fn reloading(&mut self, is_over: bool) {
        if is_over { self.notify.ready("reloaded") } else { self.notify.reloading() }
    }

    /// Ends: restores all settings that are still changed, and writes the journal to disk.
    pub fn end(&mut self) {
        self.notify.stopping();
        // They came after the loop's last look. Whoever gave one is not to wait any longer; without an answer they learn that the loop has ended.
        self.commands.try_iter().for_each(drop);
        if let Ok(Ok(restored)) = self.record.as_mut().map(Record::put_back) {
            self.tell(&restored);
        }
        if let Some(journal) = &mut self.journal {
            self.guest_lines.left_out(Instant::now(), true).into_iter().for_each(|event| journal.record(event));
            journal.flush(Duration::from_secs(5));
        }
    }
}

impl Daemon {
    fn tell(&mut self, restored: &[Done]) {
        restored.iter().for_each(|done| Sink::record(self, event_of(done)));
    }

    fn trouble(&mut self, what: String) {
        Sink::record(self, Event::Trouble(Trouble { what, times: 1 }));
    }
}

impl Drop for Daemon {
    /// A panic of the loop ends the process. What it has changed is restored now: the next start may never come.
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(record) = &mut self.record
        {
            // Nobody is left to tell; what fails stays on record.
            let _ = record.put_back();
        }
    }
}

impl UndoLog for Daemon {
    fn will_change(&mut self, file: &str, was: &str, now: &str) -> Result<(), String> {
        let left = |why: String| format!("{file} is left as it is: {why}");
        let record = self.record.as_mut().map_err(|why| left(why.clone()))?;
        let restored = record.will_change(file, was, now).map_err(left)?;
        self.tell(&restored);
        Ok(())
    }

    fn restored(&mut self, file: &str) {
        if let Ok(Err(why)) = self.record.as_mut().map(|record| record.restored(file)) {
            self.trouble(why);
        }
    }

    fn will_bind(&mut self, bindings: &[Binding]) -> Result<(), String> {
        self.record.as_mut().map_err(|why| why.clone())?.will_bind(bindings)
    }

    fn unbound(&mut self, threads: &[ThreadId]) {
        if let Ok(Err(why)) = self.record.as_mut().map(|record| record.unbound(threads)) {
            self.trouble(why);
        }
    }

    fn claim(&mut self, pid: Option<Pid>) -> Result<(), String> {
        // Without a record, no system-wide setting is changed and no thread bound; moves of pages need no record, because they do not conflict.
        let Ok(record) = &mut self.record else { return Ok(()) };
        let restored = record.claim(pid)?;
        self.tell(&restored);
        Ok(())
    }

    fn unclaim(&mut self, pid: Pid) {
        if let Ok(record) = &mut self.record {
            record.unclaim(pid);
        }
    }
}

impl Sink for Daemon {
    fn record(&mut self, event: Event) {
        let Some(journal) = &mut self.journal else { return };
        let now = Instant::now();
        self.guest_lines.left_out(now, false).into_iter().for_each(|told| journal.record(told));
        if self.guest_lines.lists(&event, now) {
            journal.record(event);
        }
    }
}

/// Whether a notification is due after that of this time.
fn is_due(notified_at: Option<Instant>) -> bool {
    notified_at.is_none_or(|notified_at| notified_at.elapsed() >= NOTIFY_EVERY)
}

fn event_of(done: &Done) -> Event {
    if done.done == SettingDone::Failed {
        let what = format!("{} could not be restored: {}", done.setting, done.why);
        return Event::Trouble(Trouble { what, times: 1 });
    }
    let (was, now) = (done.was.clone(), done.now.clone());
    Event::Setting(SettingEvent { name: done.setting.to_string(), was, now, done: done.done })
}

/// Creates the folder of a file, and those above it. Those of a socket are traversable by all users, whatever the umask: the socket's own mode says who may
/// connect. Folders that exist stay as they are.
fn make_folder(file: &Path, is_socket: bool) -> Result<(), ServiceError> {
    let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
    made.map_err(|source| ServiceError::file(folder, "create this folder", source))?;
    for folder in missing.into_iter().filter(|_| is_socket) {
        let opened = std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755));
        opened
            .map_err(|source| ServiceError::file(folder, "let other users reach the socket in this folder", source))?;
    }
    Ok(())
}

fn start_page(settings: &MetricsSettings, board: Board, health: Option<HealthOf>) -> Result<MetricsPage, ServiceError> {
    if let Address::Unix(path) = &settings.listen {
        make_folder(path, true)?;
    }
    let per_process = settings.per_process;
    MetricsPage::start(&settings.listen, settings.allow_remote, move || {
        let mut families = balancer::families(&board.get(), per_process);
        if let Some(health) = health.as_ref().map(HealthOf::get) {
            families.push(
                MetricFamily::counter("numapilot_journal_lines_total", "Lines written to the journal")
                    .value(health.lines as f64),
            );
            families.push(
                MetricFamily::counter("numapilot_journal_lost_total", "Lines that the journal could not keep")
                    .value(health.lost as f64),
            );
        }
        families
    })
}

/// A journal that reaches the file size limit (RLIMIT_FSIZE) is treated like a full disk, and must not end the daemon.
fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal has no precondition.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

#[cfg(test)]
mod tests {
    //! A service manager of our own, and a loop that panics.

    use std::panic::AssertUnwindSafe;
    use std::panic::catch_unwind;

    use numapilot_balancer::status::State;
    use numapilot_host::Tid;
    use numapilot_kernel::affinity;
    use numapilot_kernel::affinity::CpuMask;
    use numapilot_kernel::task;

    use super::*;
    use crate::notify::tests::Manager;

    /// Threads stayed bound, and settings changed, until another daemon started.
    #[test]
    fn a_loop_that_panics_leaves_no_thread_bound() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = Pid::of_child(&child);
        let was = affinity::of_thread(Tid::first_of(pid)).unwrap();
        let now: CpuMask = was.cpus().into_iter().take(1).collect();
        let folder = tempfile::tempdir().unwrap();
        let state = Some(folder.path().join("state"));
        let settings = DaemonSettings { state, needs_state: true, ..DaemonSettings::default() };
        let mut daemon = Daemon::start(&settings, || ()).unwrap();
        let start_ticks = task::stat(pid).unwrap().start_ticks;
        let thread = ThreadId { pid, tid: Tid::first_of(pid), start_ticks };
        daemon.will_bind(&[Binding { thread, was: was.clone(), now: now.clone() }]).unwrap();
        affinity::set_thread(Tid::first_of(pid), &now).unwrap();
        let ended = catch_unwind(AssertUnwindSafe(move || {
            let _daemon = daemon;
            panic!("a loop that ends in a test");
        }));
        let left = affinity::of_thread(Tid::first_of(pid)).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(ended.is_err());
        if was == now {
            return numapilot_not_run::not_run!(TwoCpus, "one CPU leaves nothing to bind");
        }
        assert_eq!(left, was);
    }

    /// A loop that hung in its first observation passed for one that was about to make it.
    #[test]
    fn a_daemon_says_since_when_its_first_figures_are_due() {
        let mut daemon = Daemon::start(&DaemonSettings::default(), || ()).unwrap();
        assert_eq!(daemon.board.get().unix_ns, 0);
        let before = unix_ns();
        daemon.begins(Duration::from_secs(3));
        let status = daemon.board.get();
        assert_eq!((status.state, status.interval_ns), (State::Starting, 3_000_000_000));
        assert!(status.unix_ns >= before && status.started_unix_ns == status.unix_ns);
    }

    #[test]
    fn the_watchdog_hears_of_a_step_that_takes_long_and_a_long_first_step_is_no_late_start() {
        let manager = Manager::new();
        let mut daemon = Daemon::start(&DaemonSettings::default(), || ()).unwrap();
        daemon.notify = manager.connection();
        let hear = || manager.hear();
        let begun = Instant::now();
        daemon.alive();
        assert_eq!(hear().unwrap(), "READY=1\nSTATUS=moving memory");
        (0..100).for_each(|_| daemon.alive());
        let more = std::iter::from_fn(&hear).count() as u64;
        assert!(more <= begun.elapsed().as_secs(), "{more} more within {:?}", begun.elapsed());
        daemon.notified_at = None;
        daemon.alive();
        assert_eq!(hear().unwrap(), "WATCHDOG=1");
        daemon.status(Status::default());
        assert!(hear().unwrap().starts_with("STATUS="), "a status is told although the watchdog was notified just now");
    }
}
