//! The balancing loop as a service: combines this process's signals and output with the daemon's journal, control socket, metrics and undo log.

use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use crate::config;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::daemon::DaemonSettings;
use crate::daemon::NOTIFY_EVERY;
use crate::error::ServiceError;
use numapilot_balancer::balancing_loop::Options;
use numapilot_balancer::balancing_loop::Tunables;
use numapilot_balancer::balancing_loop::Who;
use numapilot_balancer::control_port::ControlPort;
use numapilot_balancer::event::Event;
use numapilot_balancer::event::Sink;
use numapilot_balancer::status::Status;
use numapilot_balancer::status::Steering;
use numapilot_balancer::system::undo_log::Binding;
use numapilot_balancer::system::undo_log::ThreadId;
use numapilot_balancer::system::undo_log::UndoLog;
use numapilot_host::Group;
use numapilot_host::Pid;

/// The settings of a run of `balance`, from its arguments or from a configuration file.
pub struct Plan {
    /// Settings of the balancing loop.
    pub options: Options,
    /// Name or file of a model of this machine.
    pub machine: Option<String>,
    /// Whether whole processes are placed (`--pack`).
    pub pack: bool,
    daemon: DaemonSettings,
    config: Option<(PathBuf, Config)>,
}

impl Plan {
    /// Settings from a configuration file; `dry_run` and `until` (how long it runs) come from the caller.
    ///
    /// # Errors
    /// The file cannot be read, or its settings are not valid.
    pub fn of_config(file: &Path, dry_run: bool, until: Option<Duration>) -> Result<Plan, ServiceError> {
        let config = Config::load(file)?;
        let options = Options {
            who: match config.who.clone() {
                config::Who::System => Who::System,
                config::Who::Cgroup(folder) => Who::Group(Group::Cgroups(vec![folder])),
                config::Who::Units(units) => Who::Group(Group::Units(units)),
                config::Who::Processes(pids) => Who::Group(Group::Trees(pids)),
            },
            policy: config.policy.clone(),
            tunables: tunables(&config),
            dry_run: config.dry_run || dry_run,
            steers_scanning: !config.keep_settings,
            probes: config.probes,
            samples: config.samples,
            moves_bound: config.bound_memory,
            table_pages: config.table_pages,
            until,
            seed: config.seed,
        };
        let daemon = DaemonSettings {
            journal: config.journal.clone(),
            control: config.control.clone(),
            metrics: config.metrics.clone(),
            state: (!options.dry_run).then(|| config.state.clone()),
            needs_state: true,
        };
        let (machine, pack) = (config.machine.clone(), config.pack);
        Ok(Plan { options, machine, pack, daemon, config: Some((file.to_owned(), config)) })
    }

    /// Settings without a configuration file.
    #[must_use]
    pub fn new(options: Options, machine: Option<String>, pack: bool, daemon: DaemonSettings) -> Plan {
        Plan { options, machine, pack, daemon, config: None }
    }
}

fn tunables(of: &Config) -> Tunables {
    Tunables { interval: interval(of.pack, of.tunables.interval), ..of.tunables.clone() }
}

/// The interval between two observations. The packer's is at least 2 s, because demand shows over seconds only; numad takes 5 to 15 s.
pub fn interval(pack: bool, asked: Duration) -> Duration {
    if pack { asked.max(Duration::from_secs(2)) } else { asked }
}

/// Control and output of this process itself: its signals and standard streams.
pub trait LocalPort: Sink {
    /// Waits at most `wait` for a command.
    fn next(&mut self, wait: Duration) -> Option<Steering>;

    /// Receives the loop's present status.
    fn status(&mut self, status: Status);
}

/// A control port that serves this process's own port and the daemon's.
pub struct Served<C: LocalPort> {
    /// This process's own signals and output.
    pub inner: C,
    daemon: Daemon,
    config: Option<(PathBuf, Config)>,
}

impl<C: LocalPort> Served<C> {
    /// Starts the daemon's parts that the plan names, and restores settings that a killed daemon left changed. `wake` ends the wait of
    /// [`LocalPort::next`] when the daemon has something to do.
    ///
    /// # Errors
    /// A part cannot be started.
    pub fn start(inner: C, plan: Plan, wake: fn()) -> Result<Served<C>, ServiceError> {
        let mut daemon = Daemon::start(&plan.daemon, wake)?;
        daemon.begins(plan.options.tunables.interval);
        Ok(Served { inner, daemon, config: plan.config })
    }

    /// Ends the daemon's parts, after the loop has ended.
    pub fn end(&mut self) {
        self.daemon.end();
    }
}

impl<C: LocalPort> Sink for Served<C> {
    fn record(&mut self, event: Event) {
        self.daemon.record(event.clone());
        self.inner.record(event);
    }
}

impl<C: LocalPort> UndoLog for Served<C> {
    fn will_change(&mut self, file: &str, was: &str, now: &str) -> Result<(), String> {
        self.daemon.will_change(file, was, now)
    }

    fn restored(&mut self, file: &str) {
        self.daemon.restored(file);
    }

    fn will_bind(&mut self, bindings: &[Binding]) -> Result<(), String> {
        self.daemon.will_bind(bindings)
    }

    fn unbound(&mut self, threads: &[ThreadId]) {
        self.daemon.unbound(threads);
    }

    fn claim(&mut self, pid: Option<Pid>) -> Result<(), String> {
        self.daemon.claim(pid)
    }

    fn unclaim(&mut self, pid: Pid) {
        self.daemon.unclaim(pid);
    }
}

impl<C: LocalPort> ControlPort for Served<C> {
    /// Waits for a part of `wait` if that is long: the loop waits again, and systemd hears of the daemon in between.
    fn next(&mut self, wait: Duration) -> Option<Steering> {
        self.daemon.waits();
        let wait = wait.min(NOTIFY_EVERY);
        self.daemon.steering().or_else(|| self.inner.next(wait)).or_else(|| self.daemon.steering())
    }

    fn status(&mut self, status: Status) {
        self.daemon.status(status.clone());
        self.inner.status(status);
    }

    fn alive(&mut self) {
        self.daemon.alive();
    }

    fn reload(&mut self) -> Result<Option<Tunables>, String> {
        let Some((file, old)) = &mut self.config else { return Ok(None) };
        self.daemon.reloading(false);
        let read = Config::load(file).map_err(|error| error.to_string());
        let answer = read.and_then(|new| match old.needs_restart(&new).as_slice() {
            [] => {
                let changed = tunables(&new);
                *old = new;
                Ok(Some(changed))
            }
            names => {
                let (file, names) = (file.display(), names.join(", "));
                Err(format!("{file}: nothing was changed, because a change of {names} needs a restart"))
            }
        });
        self.daemon.reloading(true);
        answer
    }
}

#[cfg(test)]
mod tests {
    //! A service manager of our own, and a port that notes how long it was to wait.

    use super::*;
    use crate::notify::tests::Manager;

    #[derive(Default)]
    struct Waits(Vec<Duration>);

    impl Sink for Waits {
        fn record(&mut self, _: Event) {}
    }

    impl LocalPort for Waits {
        fn next(&mut self, wait: Duration) -> Option<Steering> {
            self.0.push(wait);
            None
        }

        fn status(&mut self, _: Status) {}
    }

    #[test]
    fn an_interval_longer_than_the_watchdogs_is_waited_for_in_parts_and_the_manager_hears_of_each() {
        let manager = Manager::new();
        let mut daemon = Daemon::start(&DaemonSettings::default(), || ()).unwrap();
        daemon.notify = manager.connection();
        let mut served = Served { inner: Waits::default(), daemon, config: None };
        let hear = || manager.hear();
        assert!(served.next(Duration::from_secs(3600)).is_none());
        assert_eq!(hear().unwrap(), "READY=1\nSTATUS=waiting for the first interval to end");
        std::thread::sleep(NOTIFY_EVERY);
        assert!(served.next(Duration::from_millis(20)).is_none());
        assert_eq!(hear().unwrap(), "WATCHDOG=1");
        assert_eq!(served.inner.0, [NOTIFY_EVERY, Duration::from_millis(20)]);
    }
}
