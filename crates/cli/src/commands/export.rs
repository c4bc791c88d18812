//! `numapilot export`: serves the machine's metrics to Prometheus, or prints them once.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_kernel::KernelError;
use numapilot_kernel::task::start_ticks_of;
use numapilot_machine::Machine;
use numapilot_service::Address;
use numapilot_service::metrics::MetricFamily;
use numapilot_service::metrics::encode;
use numapilot_service::metrics::page::MetricsPage;
use numapilot_watch::WatchError;
use numapilot_watch::export::families;
use numapilot_watch::live::Live;
use numapilot_watch::live::LiveOptions;
use numapilot_watch::live::Processes;
use numapilot_watch::live::counters::Scope;
use numapilot_watch::maps::Reader;
use numapilot_watch::signals;
use numapilot_watch::stat::Stat;

use super::group::require_memory;
use super::stat::options;
use crate::args::PrometheusArgs;
use crate::output;
use crate::output::tell;

/// Shortest interval between two readings. A scrape that comes sooner gets the previous figures, because rates over shorter times are noise.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Serves metrics until a signal arrives, or prints them once.
pub fn run(arguments: &PrometheusArgs) -> Result<()> {
    let mut exporter = Exporter::open(arguments)?;
    if let Some(hidden) = exporter.live.hidden().filter(|_| arguments.processes > 0) {
        tell!("numapilot: {hidden}");
    }
    if arguments.once {
        std::thread::sleep(INTERVAL_MIN);
        return output::print(&encode(&exporter.families()));
    }
    signals::catch().context("signals")?;
    let address: Address = arguments.listen.parse().context("--listen")?;
    let exporter = Arc::new(Mutex::new(exporter));
    let asked = Arc::clone(&exporter);
    let page = MetricsPage::start(&address, arguments.allow_remote, move || locked(&asked).families())?;
    tell!("numapilot: serving metrics at {}", page.address());
    while signals::caught().is_none() {
        signals::sleep(INTERVAL_MIN);
        // A CPU may be offline for a moment between two scrapes, which ends its events.
        locked(&exporter).live.look();
    }
    Ok(())
}

/// A scrape that panics while it holds the lock leaves consistent figures, because they are replaced as a whole.
fn locked(exporter: &Mutex<Exporter>) -> MutexGuard<'_, Exporter> {
    exporter.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Exporter {
    live: Live,
    /// What had changed of the machine at the last reading.
    changes: Vec<String>,
    processes: Option<(Processes, usize)>,
    reader: Reader,
    /// The named processes, with their start times.
    pids: Vec<(Pid, u64)>,
    began: Instant,
    last: Option<(Instant, Vec<MetricFamily>)>,
}

impl Exporter {
    fn open(arguments: &PrometheusArgs) -> Result<Exporter> {
        require_memory(&Root::default(), &arguments.pid)?;
        let mut exporter = Exporter {
            live: open(Machine::live()?),
            changes: Vec::new(),
            processes: (arguments.processes > 0).then(|| (Processes::default(), arguments.processes)),
            reader: Reader::default(),
            pids: arguments.pid.iter().filter_map(|pid| Some((*pid, start_ticks_of(*pid)?))).collect(),
            began: Instant::now(),
            last: None,
        };
        // One that cannot be read from the start is a mistake; those that end later are left out.
        for pid in &arguments.pid {
            exporter.reader.read(exporter.live.root(), exporter.live.machine(), *pid)?;
        }
        if let Some((processes, _)) = &mut exporter.processes {
            processes.refresh(exporter.live.root(), 0.0)?;
        }
        Ok(exporter)
    }

    fn families(&mut self) -> Vec<MetricFamily> {
        if let Some((at, families)) = &self.last
            && at.elapsed() < INTERVAL_MIN
        {
            return families.clone();
        }
        let mut stat = Stat { interval: self.live.interval(), memory: Vec::new() };
        let mut unlisted = None;
        if let Some((processes, most)) = &mut self.processes {
            let listed = processes.refresh(self.live.root(), self.began.elapsed().as_secs_f64());
            unlisted = listed.err().map(|error| format!("processes cannot be listed: {error}"));
            if unlisted.is_none() {
                stat.interval.processes = processes.figures(self.live.machine());
                stat.interval.processes.sort_by(|a, b| b.cpus.total_cmp(&a.cpus));
                stat.interval.processes.truncate(*most);
            }
        }
        // Processes that have ended are left out.
        let mut unread = Vec::new();
        for pid in running(&self.pids) {
            match self.reader.read(self.live.root(), self.live.machine(), pid) {
                Ok(map) => stat.memory.push(map),
                Err(WatchError::Kernel(KernelError::Gone { .. })) => {}
                Err(error) => unread.push((pid, error.to_string())),
            }
        }
        // Nodes and CPUs that have come are in the figures from the next scrape on, and those that have gone no longer.
        if is_news(&mut self.changes, self.live.changes()) {
            match Machine::live() {
                Ok(machine) => self.reopen(machine),
                // It is changing at this moment, perhaps: the next scrape tries again.
                Err(_) => self.changes.clear(),
            }
        }
        let mut families = families(&stat);
        tell_unread(&mut families, unlisted.as_deref(), &unread);
        self.last = Some((Instant::now(), families.clone()));
        families
    }

    fn reopen(&mut self, machine: Machine) {
        // First without events, which closes the old ones: many CPUs have too many for both to be open.
        self.live = Live::open(Root::default(), machine.clone(), &LiveOptions::default());
        self.live = open(machine);
    }
}

/// Adds why there are no busiest processes, and why the memory of processes that run cannot be read: they would seem to have ended.
fn tell_unread(families: &mut [MetricFamily], unlisted: Option<&str>, unread: &[(Pid, String)]) {
    let Some(missing) = families.iter_mut().find(|family| family.name == "numapilot_figure_missing") else { return };
    if let Some(why) = unlisted {
        missing.push(&[("figure", &"process_cpus"), ("because", &why)], 1.0);
    }
    for (pid, why) in unread {
        missing.push(&[("figure", &"process_memory_bytes"), ("pid", pid), ("because", why)], 1.0);
    }
}

/// The sources of the whole machine, as it is now.
fn open(machine: Machine) -> Live {
    let live_options = LiveOptions { scope: Some(Scope::System), ..options() };
    Live::open(Root::default(), machine, &live_options)
}

/// Whether these are other changes than the last ones, which opening the sources anew did not settle.
fn is_news(last: &mut Vec<String>, now: Vec<String>) -> bool {
    let is_news = !now.is_empty() && *last != now;
    *last = now;
    is_news
}

/// Those of the processes that still run: the id of one that has ended may be another's by now.
fn running(pids: &[(Pid, u64)]) -> impl Iterator<Item = Pid> {
    pids.iter().filter(|(pid, start_ticks)| start_ticks_of(*pid) == Some(*start_ticks)).map(|(pid, _)| *pid)
}

#[cfg(test)]
mod tests {
    use numapilot_watch::figures::Interval;

    use super::*;

    /// A process with its address space locked, or that runs a program with other rights by now, had no figures, and nothing said why.
    #[test]
    fn memory_that_cannot_be_read_is_missing_for_a_reason() {
        let mut found = families(&Stat { interval: Interval::default(), memory: Vec::new() });
        tell_unread(&mut found, Some("no /proc"), &[(Pid(7), "locked".to_owned())]);
        for line in [
            r#"numapilot_figure_missing{figure="process_memory_bytes",pid="7",because="locked"} 1"#,
            r#"numapilot_figure_missing{figure="process_cpus",because="no /proc"} 1"#,
        ] {
            assert!(encode(&found).lines().any(|told| told == line), "{}", encode(&found));
        }
    }

    #[test]
    fn a_process_that_has_the_id_of_one_that_ended_is_not_shown_in_its_place() {
        let own = Pid::own();
        let start_ticks = start_ticks_of(own).unwrap();
        assert_eq!(running(&[(own, start_ticks)]).collect::<Vec<_>>(), [own]);
        assert_eq!(running(&[(own, start_ticks - 1)]).count(), 0, "an earlier one");
    }

    #[test]
    fn sources_are_opened_anew_once_for_each_change() {
        let mut last = Vec::new();
        let [none, one, other] = [vec![], vec!["node 2".to_owned()], vec!["node 3".to_owned()]];
        let told = [&none, &one, &one, &other, &none, &other].map(|now| is_news(&mut last, now.clone()));
        assert_eq!(told, [false, true, false, true, false, true]);
    }
}
