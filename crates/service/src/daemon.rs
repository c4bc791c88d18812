//! Everything around a running loop, in one hand: journal, control socket, metrics, the record of what was changed, and the word to systemd.
//!
//! The loop's conductor passes on to it what it hears, and asks it who steers. It never waits and never fails once it has started.

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use std::time::Instant;

use numapilot_pilot::event::Event;
use numapilot_pilot::event::Setting as SettingEvent;
use numapilot_pilot::event::SettingDone;
use numapilot_pilot::event::Sink;
use numapilot_pilot::event::Trouble;
use numapilot_pilot::status::Board;
use numapilot_pilot::status::Status;
use numapilot_pilot::status::Steering;

use crate::address::Address;
use crate::config::MetricsSettings;
use crate::control::Control;
use crate::control::ControlSettings;
use crate::control::line;
use crate::error::ServiceError;
use crate::journal::HealthOf;
use crate::journal::Journal;
use crate::journal::JournalSettings;
use crate::metrics::MetricFamily;
use crate::metrics::page::MetricsPage;
use crate::metrics::pilot;
use crate::notify::Notify;
use crate::state::Done;
use crate::state::Keeper;
use crate::state::Live;
use crate::state::Setting;

/// Between two words to systemd.
const WORD_EVERY: Duration = Duration::from_secs(1);

/// What a daemon has.
#[derive(Clone, Debug, Default)]
pub struct DaemonSettings {
    /// Its journal.
    pub journal: Option<JournalSettings>,
    /// Its control socket.
    pub control: Option<ControlSettings>,
    /// Its figures.
    pub metrics: Option<MetricsSettings>,
    /// Folder of what has to be put back; `None`: nothing is changed system-wide.
    pub state: Option<PathBuf>,
    /// It cannot do without that folder; otherwise settings are left alone where another process has it, or it cannot be written.
    pub needs_state: bool,
}

/// See the module.
pub struct Daemon {
    board: Board,
    journal: Option<Journal>,
    keeper: Result<Keeper<Live>, String>,
    control: Option<Control>,
    page: Option<MetricsPage>,
    commands: Receiver<Steering>,
    notify: Notify,
    is_ready: bool,
    spoke: Option<Instant>,
}

impl Daemon {
    /// Opens everything, and puts back what an earlier daemon that was killed has left changed. `wake` is called, from other threads, when somebody steers.
    ///
    /// # Errors
    /// A file, socket or port cannot be had.
    pub fn start(settings: &DaemonSettings, wake: impl Fn() + Send + Sync + 'static) -> Result<Daemon, ServiceError> {
        if settings.journal.is_some() {
            ignore_file_size_signal();
        }
        for file in [settings.journal.as_ref().map(|j| &j.file), settings.control.as_ref().map(|c| &c.path)]
            .into_iter()
            .flatten()
        {
            make_folder(file)?;
        }
        let (keeper, restored) = match settings.state.as_deref().map(|folder| Keeper::open(folder, Live)) {
            None => (Err("no folder for what has to be put back".to_owned()), Vec::new()),
            Some(Ok((keeper, restored))) => (Ok(keeper), restored),
            Some(Err(error)) if settings.needs_state => return Err(error),
            Some(Err(error)) => (Err(error.to_string()), Vec::new()),
        };
        let mut journal = settings.journal.clone().map(Journal::start).transpose()?;
        if let Some(journal) = &mut journal {
            restored.iter().for_each(|done| journal.record(event_of(done)));
        }
        let board = Board::new();
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
        Ok(Daemon { board, journal, keeper, control, page, commands, notify, is_ready: false, spoke: None })
    }

    /// Where it can be reached: the control socket and the page of figures.
    #[must_use]
    pub fn reached_at(&self) -> (Option<&Path>, Option<&Address>) {
        (self.control.as_ref().map(Control::path), self.page.as_ref().map(MetricsPage::address))
    }

    /// What somebody asks of the loop, if anybody does.
    pub fn steering(&mut self) -> Option<Steering> {
        self.commands.try_recv().ok()
    }

    /// Takes what the loop does now.
    pub fn status(&mut self, status: Status) {
        if self.spoke.is_none_or(|spoke| spoke.elapsed() >= WORD_EVERY) {
            self.spoke = Some(Instant::now());
            let moved = status.counters.pages.moved;
            let words = format!("{}: {} processes, {moved} pages moved", status.state.name(), status.targets.len());
            if self.is_ready {
                self.notify.status(&words);
                self.notify.alive();
            } else {
                self.notify.ready(&words);
                self.is_ready = true;
            }
        }
        self.board.put(status);
    }

    /// The configuration is being read again, or has been.
    pub fn reloading(&mut self, is_over: bool) {
        if is_over { self.notify.ready("reloaded") } else { self.notify.reloading() }
    }

    /// A setting's file is about to be changed.
    ///
    /// # Errors
    /// That cannot be kept: it must be left as it is.
    pub fn will_change(&mut self, file: &str, was: &str, now: &str) -> Result<(), String> {
        let keeper = self.keeper.as_mut().map_err(|why| format!("{file} is left as it is: {why}"))?;
        keeper.intend(&[(setting_of(file), was.to_owned(), now.to_owned())]).map_err(|error| error.to_string())
    }

    /// A setting's file is as it was, or somebody else's.
    pub fn settled(&mut self, file: &str) {
        let settled = self.keeper.as_mut().map(|keeper| keeper.settled(&setting_of(file)));
        if let Ok(Err(error)) = settled {
            self.record(Event::Trouble(Trouble { what: error.to_string(), times: 1 }));
        }
    }

    /// The end: whatever is still changed is put back, and the journal goes to disk.
    pub fn end(&mut self) {
        self.notify.stopping();
        if let Ok(Ok(restored)) = self.keeper.as_mut().map(Keeper::restore) {
            restored.iter().for_each(|done| self.record(event_of(done)));
        }
        if let Some(journal) = &self.journal {
            journal.flush(Duration::from_secs(5));
        }
    }
}

impl Sink for Daemon {
    fn record(&mut self, event: Event) {
        if let Some(journal) = &mut self.journal {
            journal.record(event);
        }
    }
}

/// Files under /proc/sys go by their names as sysctls.
fn setting_of(file: &str) -> Setting {
    match file.strip_prefix("/proc/sys/") {
        Some(name) => Setting::Sysctl { name: name.replace('/', ".") },
        None => Setting::File { file: file.to_owned() },
    }
}

fn event_of(done: &Done) -> Event {
    if done.done == SettingDone::Failed {
        let what = format!("{} could not be put back: {}", done.setting, done.why);
        return Event::Trouble(Trouble { what, times: 1 });
    }
    let (was, now) = (done.was.clone(), done.now.clone());
    Event::Setting(SettingEvent { name: done.setting.to_string(), was, now, done: done.done })
}

/// The folder of a file, for this user alone if it has to be made (a control socket's may be passed through by everybody).
fn make_folder(file: &Path) -> Result<(), ServiceError> {
    use std::os::unix::fs::DirBuilderExt;
    let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
    made.map_err(|source| ServiceError::file(folder, "make this folder", source))
}

fn start_page(settings: &MetricsSettings, board: Board, health: Option<HealthOf>) -> Result<MetricsPage, ServiceError> {
    if let Address::Unix(path) = &settings.listen {
        make_folder(path)?;
    }
    let per_process = settings.per_process;
    MetricsPage::start(&settings.listen, settings.allow_remote, move || {
        let mut families = pilot::families(&board.get(), per_process);
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

/// A journal that reaches a limit of its size (RLIMIT_FSIZE) is a full disk, and no reason to die.
fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal has no precondition.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
