//! The loop: look, decide, act, measure, keep or undo; again and again, until somebody stops it or its targets have ended.
//!
//! Assumes one thread. Everything that it wants of the outside goes through its [`ControlPort`]; what it changes system-wide it puts back at its end, and the
//! conductor has kept it before, for the case that it is killed.

mod copying;
mod look;
mod options;
mod run_stats;
mod scan;
mod step;

use std::collections::BTreeSet;
use std::time::Duration;
use std::time::Instant;

use numapilot_kernel::actuator::free_memory::NodeFreeMemory;
use numapilot_kernel::actuator::free_memory::NodeMemory;
use numapilot_kernel::memory::PageQuery;
use numapilot_machine::Machine;
use numapilot_perf_events::EventsError;
use numapilot_perf_events::open::Scope;
use numapilot_placement::Outcome;
use numapilot_placement::Policy;
use numapilot_replica::mappings::Mappings;
use thiserror::Error;

pub use options::Options;
pub use options::Tunables;
pub use options::Who;

use crate::allowance::Allowance;
use crate::control_port::ControlPort;
use crate::copies::Copies;
use crate::event::Event;
use crate::event::EvidenceSource;
use crate::event::Steered;
use crate::event::Stop;
use crate::event::Target;
use crate::event::Trouble;
use crate::evidence::gate::Gate;
use crate::evidence::table::PageTable;
use crate::observe::Use;
use crate::regression_guard::RegressionGuard;
use crate::status::Command;
use crate::status::State;
use crate::status::Steering;
use crate::system::binding::ThreadMove;
use crate::system::fault_sampler::FaultSampler;
use crate::system::migration_executor::MigrationExecutor;
use crate::system::probes::Probes;
use crate::system::samples::Samples;
use crate::system::settings::Settings;
use crate::system::targets::ManagedProcess;
use crate::system::targets::Targets;
use run_stats::RunStats;
use scan::Scanning;

/// Why the loop could not begin.
#[derive(Debug, Error)]
pub enum BalancerError {
    /// A process, or its memory.
    #[error(transparent)]
    Kernel(#[from] numapilot_kernel::KernelError),
    /// The kernel's events.
    #[error(transparent)]
    Source(#[from] EventsError),
    /// There is nothing to move between.
    #[error("this machine has one memory node: there is nowhere to move pages to (`numapilot topo` shows it)")]
    OneNode,
    /// Somebody else's, in words.
    #[error("{0}")]
    Claimed(String),
    /// A cgroup's processes.
    #[error("{file}: {source}; give a folder under /sys/fs/cgroup that has cgroup.procs")]
    Cgroup {
        /// The file that lists them.
        file: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// See the module.
pub struct Balancer {
    machine: Machine,
    policy: Box<dyn Policy>,
    options: Options,
    targets: Targets,
    fault_sampler: FaultSampler,
    /// The processor's samples, where it has any; why not, else.
    samples: Option<Samples>,
    /// Samples of a process that was taken on since were refused: why.
    refused: Option<String>,
    /// For how long targets ran without bringing a sample.
    silent_ns: f64,
    /// Of the last decision's evidence: samples of the processor.
    sampled: u64,
    /// And uses of files.
    file_uses: u64,
    /// Memory accesses that samples since the last decision stand for, by node.
    measured: Vec<f64>,
    migration_executor: MigrationExecutor,
    probes: Option<Probes>,
    settings: Settings,
    scanning: Scanning,
    table: PageTable,
    gate: Gate,
    /// What was seen since the last decision.
    pending: Vec<Use>,
    query: PageQuery,
    regression_guard: RegressionGuard,
    run_stats: RunStats,
    evidence: Vec<EvidenceSource>,
    rooms: NodeFreeMemory,
    /// Each node's memory at the last look.
    memory: Vec<NodeMemory>,
    /// Share of the running time by node: now, a running mean, and when much changed last.
    runs_on: Vec<f64>,
    ran_on: Vec<f64>,
    /// What came of the last decision's orders.
    outcomes: Vec<Outcome>,
    /// Pages (process, page, where they were) of the batch under judgement, and its decisions.
    undo: Vec<(u32, u64, u8)>,
    judged: Vec<u64>,
    /// Threads of that batch, with where they might run before.
    undo_threads: Vec<ThreadMove>,
    /// Files that it copied, with the nodes that had copies before.
    undo_copies: Vec<(u64, BTreeSet<usize>)>,
    /// Copies of files on several nodes, where programs were started so that they may have some.
    copies: Option<Copies>,
    started: Instant,
    last: Instant,
    decided: Instant,
    interval: Duration,
    /// Processor time of a look, a running mean; without what limits itself.
    look_took: Duration,
    /// What looks may still take before they become rarer.
    look_allowance: Allowance,
    quiet: u32,
    /// Looks since orders were carried out.
    since_orders: u32,
    state: State,
    because: String,
    is_paused: bool,
}

/// Undoings that are remembered at most: 4 GiB of small pages.
const UNDO_MAX: usize = 1 << 20;

impl Balancer {
    /// Opens what it takes. `machine` is this machine with what the traffic model needs ([`crate::estimate::completed`]), `notes` what was assumed for
    /// that. Nothing is changed yet.
    ///
    /// # Errors
    /// There is one node, no such process, or rights are missing; with the remedy.
    pub fn new(
        machine: Machine,
        policy: Box<dyn Policy>,
        options: Options,
        notes: &[String],
    ) -> Result<Balancer, BalancerError> {
        // A dry run shows what would be seen and said anywhere.
        if !options.dry_run && machine.nodes().iter().filter(|node| node.has_memory()).count() < 2 {
            return Err(BalancerError::OneNode);
        }
        let mut fault_sampler = FaultSampler::new(&machine);
        let is_system = options.who == Who::System;
        let mut samples = match options.samples {
            true => Samples::best(is_system, &machine),
            false => Err("not asked for".to_owned()),
        };
        match &options.who {
            Who::System => fault_sampler.open(&Scope::System)?,
            Who::Child => {
                fault_sampler.open(&Scope::Children)?;
                if let Ok(found) = &mut samples
                    && let Err(error) = found.open(&Scope::Children, &machine)
                {
                    samples = Err(error.to_string());
                }
            }
            Who::Processes(_) | Who::Cgroup(_) => {}
        }
        let sample_note = samples.as_ref().err().cloned();
        let migration_executor = MigrationExecutor::new(&machine, options.tunables.moving());
        let (probes, probe_note) = match options.probes.then(|| Probes::new(&machine, options.seed)) {
            Some(Ok(probes)) => (Some(probes), "a chase of pointers per interval from one node".to_owned()),
            Some(Err(error)) => (None, format!("no memory on every node: {error}")),
            None => (None, "not asked for".to_owned()),
        };
        let nodes = machine.nodes().len();
        let mut balancer = Balancer {
            table: PageTable::new(nodes, options.table_pages),
            gate: Gate::new(nodes),
            pending: Vec::new(),
            query: PageQuery::new(),
            regression_guard: RegressionGuard::new(options.tunables.max_harm),
            scanning: Scanning::default(),
            run_stats: RunStats::new(&options),
            settings: Settings::default(),
            targets: Targets::default(),
            evidence: Vec::new(),
            rooms: NodeFreeMemory::default(),
            memory: vec![NodeMemory::default(); nodes],
            runs_on: Vec::new(),
            ran_on: Vec::new(),
            outcomes: Vec::new(),
            undo: Vec::new(),
            judged: Vec::new(),
            undo_threads: Vec::new(),
            undo_copies: Vec::new(),
            copies: None,
            started: Instant::now(),
            last: Instant::now(),
            decided: Instant::now(),
            interval: options.tunables.interval,
            look_took: Duration::ZERO,
            look_allowance: Allowance::new(step::LOOK_ADVANCE, step::LOOK_SHARE),
            quiet: 0,
            since_orders: 0,
            state: State::Starting,
            because: String::new(),
            is_paused: false,
            machine,
            policy,
            fault_sampler,
            samples: samples.ok(),
            refused: None,
            silent_ns: 0.0,
            sampled: 0,
            file_uses: 0,
            measured: vec![0.0; nodes],
            migration_executor,
            probes,
            options,
        };
        balancer.evidence = balancer.sources(sample_note, &probe_note, notes);
        if let Who::Processes(pids) = balancer.options.who.clone() {
            pids.iter().try_for_each(|pid| balancer.take_on(*pid))?;
        }
        Ok(balancer)
    }

    /// The program that is to be started may have copies of the files that it only reads, by these mappings' preload library.
    #[must_use]
    pub fn with_copies(mut self, mappings: Mappings) -> Balancer {
        let detail = "which files processes use: asked of the kernel every second".to_owned();
        self.evidence.push(EvidenceSource { name: "files".to_owned(), used: true, detail });
        self.copies = Some(Copies::new(mappings, &self.machine, self.options.tunables.keep_bytes));
        self
    }

    fn sources(&self, sample_note: Option<String>, probe_note: &str, notes: &[String]) -> Vec<EvidenceSource> {
        let source = |name: &str, used, detail: String| EvidenceSource { name: name.to_owned(), used, detail };
        let sampled = self.samples.as_ref().map(|samples| format!("memory accesses, sampled by {}", samples.source));
        let detail = sampled.clone().or(sample_note).unwrap_or_default();
        let mut sources = vec![
            source("pmu", sampled.is_some(), detail),
            source(
                "fault",
                true,
                "page faults; later ones are hinting faults of the kernel's NUMA balancing".to_owned(),
            ),
            source("probe", self.probes.is_some(), probe_note.to_owned()),
        ];
        let assumed = match sampled {
            Some(_) => "rates are estimated by what samples stand for",
            None => "rates are estimated: no counter is read",
        };
        let outstanding = crate::estimate::OUTSTANDING;
        let assumed = format!("{assumed}, each running thread is taken to wait for {outstanding} lines at once");
        sources.push(source("rates", false, assumed));
        sources.extend(notes.iter().map(|note| source("machine", false, note.clone())));
        sources
    }

    /// The process that was started under the loop's eyes ([`Who::Child`]) has this number.
    ///
    /// # Errors
    /// It has ended already.
    pub fn child(&mut self, pid: u32) -> Result<(), BalancerError> {
        self.fault_sampler.inherits(pid, None);
        if let Some(samples) = &mut self.samples {
            samples.inherits(pid, None);
        }
        Ok(self.targets.add(pid).map(drop)?)
    }

    /// Begins: tells what it starts with, and changes the settings that evidence takes. A program that is to be looked after from its start is started
    /// after this, so that it is born under these settings.
    ///
    /// # Errors
    /// Another numapilot looks after one of the processes. Nothing is changed then.
    pub fn begin(&mut self, control_port: &mut dyn ControlPort) -> Result<(), BalancerError> {
        if self.options.who == Who::System && !self.options.dry_run {
            control_port.claim(None).map_err(BalancerError::Claimed)?;
        }
        let pids: Vec<u32> = self.targets.all.keys().copied().collect();
        pids.into_iter().try_for_each(|pid| self.claim(pid, control_port).map_err(BalancerError::Claimed))?;
        control_port.record(Event::Start(self.run_stats.start(
            &self.machine,
            &self.options,
            &self.targets,
            &self.evidence,
        )));
        self.begin_scanning(control_port);
        self.run_stats.begun();
        self.pace_scanning(control_port);
        Ok(())
    }

    /// Runs after [`Balancer::begin`] until stopped, by its conductor or because its targets have ended. What it did.
    pub fn run(&mut self, control_port: &mut dyn ControlPort) -> Stop {
        let because = loop {
            if let Some(because) = self.wait(control_port) {
                break because;
            }
            self.step(control_port);
            if self.targets.all.is_empty() && !self.options.who.may_grow() {
                break "every target has ended".to_owned();
            }
            if self.options.until.is_some_and(|until| self.started.elapsed() >= until) {
                break "the time is over".to_owned();
            }
        };
        self.end(because, control_port)
    }

    /// Ends without having run: puts everything back.
    pub fn give_up(&mut self, because: &str, control_port: &mut dyn ControlPort) {
        self.end(because.to_owned(), control_port);
    }

    fn end(&mut self, because: String, control_port: &mut dyn ControlPort) -> Stop {
        self.state = State::Stopping;
        self.because.clone_from(&because);
        self.publish(control_port);
        self.hear_last_of_copies(control_port);
        self.migration_executor.release_threads(None, &mut self.targets, control_port);
        for setting in self.settings.put_all_back(control_port) {
            control_port.record(Event::Setting(setting));
        }
        let stop = self.run_stats.stop(because);
        control_port.record(Event::Stop(stop.clone()));
        stop
    }

    /// Waits for the next interval; answers whoever steers. `Some`: it is to end, and why.
    fn wait(&mut self, control_port: &mut dyn ControlPort) -> Option<String> {
        loop {
            let wait = self.interval.saturating_sub(self.last.elapsed());
            let Some(steering) = control_port.next(wait) else {
                if self.last.elapsed() >= self.interval {
                    return None;
                }
                continue;
            };
            let stops = steering.command == Command::Stop;
            let who = steering.by_uid;
            self.obey(steering, control_port);
            if stops {
                return Some(who.map_or_else(|| "a signal".to_owned(), |uid| format!("stopped by user {uid}")));
            }
        }
    }

    fn obey(&mut self, steering: Steering, control_port: &mut dyn ControlPort) {
        let answer = match &steering.command {
            Command::Pause => {
                self.is_paused = true;
                Ok("paused".to_owned())
            }
            Command::Resume => {
                self.is_paused = false;
                Ok("resumed".to_owned())
            }
            Command::Stop => Ok("stopping".to_owned()),
            Command::Reload => self.reload(control_port),
            Command::AddTarget(target) => self.take_on_exactly(target, control_port),
            Command::RemoveTarget(target) => match self.targets.all.get(&target.pid) {
                Some(managed) if managed.target.start_ticks == target.start_ticks => {
                    self.migration_executor.release_threads(Some(target.pid), &mut self.targets, control_port);
                    self.targets.all.remove(&target.pid);
                    control_port.unclaim(target.pid);
                    Ok("removed".to_owned())
                }
                _ => Err(format!("process {} is not looked after", target.pid)),
            },
        };
        let told = answer.clone().unwrap_or_else(|error| error);
        let command = steering.command.name().to_owned();
        control_port.record(Event::Steered(Steered { command, by_uid: steering.by_uid, answer: told }));
        if let Some(back) = steering.answer {
            // Nobody may be waiting any more.
            let _ = back.send(answer);
        }
    }

    /// Takes on the process that was named, and none that has got its number since: who may name it was checked for that one.
    fn take_on_exactly(&mut self, target: &Target, control_port: &mut dyn ControlPort) -> Result<String, String> {
        let was_there = self.targets.all.contains_key(&target.pid);
        self.take_on(target.pid).map_err(|error| error.to_string())?;
        let is_it = |managed: &ManagedProcess| {
            managed.target.start_ticks == target.start_ticks && managed.target.uid == target.uid
        };
        let answer = match self.targets.all.get(&target.pid) {
            Some(managed) if is_it(managed) => self.claim(target.pid, control_port).map(|()| "added".to_owned()),
            _ => Err(format!("process {} has ended", target.pid)),
        };
        if answer.is_err() && !was_there {
            self.targets.all.remove(&target.pid);
        }
        answer
    }

    /// A process that is looked after is ours from now on; a dry run places none.
    fn claim(&mut self, pid: u32, control_port: &mut dyn ControlPort) -> Result<(), String> {
        if !self.options.dry_run
            && let Some(managed) = self.targets.all.get_mut(&pid).filter(|managed| !managed.is_claimed)
        {
            control_port.claim(Some(pid))?;
            managed.is_claimed = true;
        }
        Ok(())
    }

    /// Claims whoever came since the last time; whoever is another's is let go, and that is told.
    fn claim_new(&mut self, control_port: &mut dyn ControlPort) {
        let new = |managed: &&ManagedProcess| !managed.is_claimed;
        let pids: Vec<u32> = self.targets.all.values().filter(new).map(|managed| managed.target.pid).collect();
        for pid in pids {
            if let Err(why) = self.claim(pid, control_port) {
                self.targets.all.remove(&pid);
                self.trouble(why, control_port);
            }
        }
    }

    fn reload(&mut self, control_port: &mut dyn ControlPort) -> Result<String, String> {
        match control_port.reload()? {
            None => Ok("there is nothing to read again".to_owned()),
            Some(tunables) => {
                self.regression_guard = RegressionGuard::new(tunables.max_harm);
                self.migration_executor = MigrationExecutor::new(&self.machine, tunables.moving());
                self.interval = tunables.interval;
                self.options.tunables = tunables;
                Ok("reloaded".to_owned())
            }
        }
    }

    /// Looks after a process from now on, with events of its own unless it has inherited some.
    fn take_on(&mut self, pid: u32) -> Result<(), BalancerError> {
        let mut refused = None;
        if !self.fault_sampler.sees(pid) {
            let scope = Scope::Processes(vec![pid]);
            self.fault_sampler.open(&scope)?;
            refused = self.samples.as_mut().and_then(|samples| samples.open(&scope, &self.machine).err());
        }
        self.targets.add(pid)?;
        // One that has ended meanwhile has got no further than this.
        if let Some(error) = refused {
            self.refused = Some(format!("no samples of process {pid}: {error}"));
        }
        Ok(())
    }

    /// Tells of something that went wrong and does not end the loop; the same words once, and then how often.
    fn trouble(&mut self, what: String, control_port: &mut dyn ControlPort) {
        if let Some(times) = self.run_stats.trouble(&what) {
            control_port.record(Event::Trouble(Trouble { what, times }));
        }
    }
}
