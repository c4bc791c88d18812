//! The loop: observe, decide, act, measure, keep or undo, until it is stopped or its targets have ended.
//!
//! Runs in one thread. All communication with the rest of the program goes through its [`ControlPort`]. The port records each system-wide change before it is
//! made, so that the change can be undone after a kill; the loop itself restores everything at its end.

mod copying;
mod forbidden;
mod look;
mod node_memory;
mod options;
mod order_events;
mod pressed;
mod publishing;
mod run_stats;
mod scan;
mod scanning;
mod shared;
mod step;

use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Members;
use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_kernel::actuator::free_memory::NodeFreeMemory;
use numapilot_kernel::actuator::free_memory::NodeMemory;
use numapilot_kernel::actuator::page_bytes;
use numapilot_kernel::memory::PageQuery;
use numapilot_kernel::task;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_machine::NodeIndex;
use numapilot_perf_events::EventsError;
use numapilot_perf_events::open::Scope;
use numapilot_perf_events::rights::refused_note;
use numapilot_placement::Action as Order;
use numapilot_placement::Outcome;
use numapilot_placement::Policy;
use numapilot_replica::mappings::Mappings;
use thiserror::Error;

pub use options::Options;
pub use options::Tunables;
pub use options::Who;

use crate::allowance::Allowance;
use crate::control_port::ControlPort;
use crate::control_port::answer_last;
use crate::control_port::answered;
use crate::decision::regression_guard::RegressionGuard;
use crate::event::Event;
use crate::event::EvidenceSource;
use crate::event::Stop;
use crate::event::Target;
use crate::event::Trouble;
use crate::evidence::gate::Gate;
use crate::evidence::observe::Use;
use crate::evidence::table::PageTable;
use crate::execution::binding::ThreadMove;
use crate::execution::births::Heir;
use crate::execution::copies::Copies;
use crate::execution::migration_executor::MigrationExecutor;
use crate::execution::settings::Settings;
use crate::status::Command;
use crate::status::State;
use crate::status::Steering;
use crate::status::TARGETS_PER_USER;
use crate::status::guest;
use crate::status::has_room_for_target;
use crate::system::fault_sampler::FaultSampler;
use crate::system::online_cpus::OnlineCpus;
use crate::system::pressure::MemoryPressure;
use crate::system::probes::Probes;
use crate::system::samples::Samples;
use crate::system::targets::ManagedProcess;
use crate::system::targets::Targets;
use crate::unfit::Unfit;
use run_stats::RunStats;
use scanning::Scanning;

/// An error at the start of the loop.
#[derive(Debug, Error)]
pub enum BalancerError {
    /// An error of the kernel about a process or its memory.
    #[error(transparent)]
    Kernel(#[from] numapilot_kernel::KernelError),
    /// An event could not be opened.
    #[error(transparent)]
    Source(#[from] EventsError),
    /// The machine has only one node with memory.
    #[error("this machine has one memory node, so pages cannot be moved to another (`numapilot topo` lists the nodes)")]
    OneNode,
    /// The kernel's pages are not of 4 KiB.
    #[error(
        "this kernel has pages of {} KiB; evidence, moves and their limits are counted in pages of 4 KiB, so it cannot be balanced; \
         `numapilot move` works on it",
        bytes / 1024
    )]
    PageSize {
        /// Bytes of a page.
        bytes: u64,
    },
    /// A process is managed by another numapilot; the message names it.
    #[error("{0}")]
    Claimed(String),
}

/// The balancing loop and its state (see the module's documentation).
pub struct Balancer {
    machine: Machine,
    policy: Box<dyn Policy>,
    options: Options,
    targets: Targets,
    fault_sampler: FaultSampler,
    /// The sampler of the processor; `None`: not available or not used.
    samples: Option<Samples>,
    /// Why samples of a process that was added later were refused.
    refused: Option<String>,
    /// The processes of [`Who::Group`].
    members: Option<Members>,
    /// Processes that a user removed, by process id and start time: they are not found again.
    removed: BTreeSet<(Pid, u64)>,
    /// Processes that were found and cannot be managed.
    unfit: Unfit,
    /// Processes of these that this user may not observe: not managed.
    denied: Vec<Pid>,
    /// Nanoseconds for which targets ran without a sample.
    silent_ns: f64,
    /// Number of processor samples since the last decision.
    sampled: u64,
    /// Number of file uses since the last decision.
    file_uses: u64,
    /// Memory accesses that the samples since the last decision stand for, by accessing node.
    measured: Vec<f64>,
    migration_executor: MigrationExecutor,
    probes: Option<Probes>,
    pressure: MemoryPressure,
    online_cpus: OnlineCpus,
    settings: Settings,
    scanning: Scanning,
    table: PageTable,
    gate: Gate,
    /// Uses since the last decision.
    pending: Vec<Use>,
    query: PageQuery,
    regression_guard: RegressionGuard,
    run_stats: RunStats,
    evidence: Vec<EvidenceSource>,
    free_memory: NodeFreeMemory,
    /// Free memory of each node at the last reading.
    memory: Vec<NodeMemory>,
    /// Nodes whose memory could be read then.
    known_memory: BTreeSet<NodeId>,
    /// Share of the running time by node, as a running mean.
    runs_on: Vec<f64>,
    /// That share at the last large change.
    ran_on: Vec<f64>,
    /// Outcomes of the last decision's orders, for the policy.
    outcomes: Vec<Outcome>,
    /// Pages of the batch that is being evaluated: process, page, and previous home node.
    undo: Vec<(u32, PageNumber, NodeIndex)>,
    judged: Vec<u64>,
    /// Threads of that batch, with their previous affinities.
    undo_threads: Vec<ThreadMove>,
    /// Files copied by that batch, with the nodes that had copies before.
    undo_copies: Vec<(u64, BTreeSet<NodeIndex>)>,
    /// What is left to move back of the batch that was undone last, with its decision's number: the rate allows no more at once.
    taking_back: (u64, Vec<Order>),
    /// File copies on several nodes, if the program was started with the preload library.
    copies: Option<Copies>,
    started: Instant,
    last: Instant,
    decided: Instant,
    interval: Duration,
    /// Processor time of an observation, as a running mean, without the parts that have budgets of their own.
    look_took: Duration,
    /// Time budget of observations; they become less frequent when it is used up.
    look_allowance: Allowance,
    quiet: u32,
    /// Observations since orders were last carried out.
    since_orders: u32,
    state: State,
    because: String,
    is_paused: bool,
    /// Number of managed processes of a user beyond which that user may add no more; fewer in tests.
    added_max: usize,
    /// Commands that came while a step was at work.
    waiting: VecDeque<Steering>,
}

/// Maximum share of the time that observations may use as processor time, once the advance is used up (deciding and reading processes have budgets of their
/// own).
const LOOK_SHARE: f64 = 0.004;
const LOOK_ADVANCE: Duration = Duration::from_secs(2);
/// Maximum number of pages that can be moved back: 4 GiB of small pages.
const UNDO_MAX: usize = 1 << 20;

impl Balancer {
    /// Opens the events and probes. `machine` is this machine, completed with what the traffic model needs (`estimate::completed`); `notes` are the
    /// assumptions of that completion. No setting is changed yet.
    ///
    /// # Errors
    /// The machine has one memory node, a process does not exist, or rights are missing; the message contains the remedy.
    pub fn new(
        machine: Machine,
        policy: Box<dyn Policy>,
        options: Options,
        notes: &[String],
    ) -> Result<Balancer, BalancerError> {
        can_act_here(&machine, &options)?;
        let (fault_sampler, samples) = opened(&machine, &options)?;
        let sample_note = samples.as_ref().err().cloned();
        let of_cpus = options.who == Who::System || samples.as_ref().is_ok_and(|samples| samples.of_cpus);
        let (probes, probe_note) = probes(&machine, &options);
        let nodes = machine.nodes().len();
        let mut balancer = Balancer {
            removed: BTreeSet::new(),
            unfit: Unfit::default(),
            table: PageTable::new(nodes, options.table_pages),
            gate: Gate::new(nodes),
            pending: Vec::new(),
            query: PageQuery::new(),
            migration_executor: MigrationExecutor::new(&machine, options.tunables.moving()),
            regression_guard: RegressionGuard::new(options.tunables.max_harm).with_measure(probes.is_some()),
            scanning: Scanning::default(),
            run_stats: RunStats::new(&options),
            settings: Settings::default(),
            targets: Targets::default(),
            evidence: Vec::new(),
            free_memory: NodeFreeMemory::default(),
            memory: vec![NodeMemory::default(); nodes],
            known_memory: BTreeSet::new(),
            runs_on: Vec::new(),
            ran_on: Vec::new(),
            outcomes: Vec::new(),
            undo: Vec::new(),
            judged: Vec::new(),
            undo_threads: Vec::new(),
            undo_copies: Vec::new(),
            taking_back: (0, Vec::new()),
            copies: None,
            started: Instant::now(),
            last: Instant::now(),
            decided: Instant::now(),
            interval: options.tunables.interval,
            look_took: Duration::ZERO,
            look_allowance: Allowance::new(LOOK_ADVANCE, LOOK_SHARE),
            quiet: 0,
            since_orders: 0,
            state: State::Starting,
            because: String::new(),
            is_paused: false,
            added_max: TARGETS_PER_USER,
            waiting: VecDeque::new(),
            machine,
            policy,
            fault_sampler,
            samples: samples.ok(),
            refused: None,
            members: None,
            denied: Vec::new(),
            silent_ns: 0.0,
            sampled: 0,
            file_uses: 0,
            measured: vec![0.0; nodes],
            probes,
            pressure: MemoryPressure::new(Root::default(), options.tunables.max_pressure),
            online_cpus: OnlineCpus::read(&Root::default(), of_cpus),
            options,
        };
        balancer.evidence = balancer.sources(sample_note, &probe_note, notes);
        balancer.find_group().map(|()| balancer)
    }

    /// Enables copies of read-only files for the program that is started with the preload library of `mappings`.
    #[must_use]
    pub fn with_copies(mut self, mappings: Mappings) -> Balancer {
        let detail = "mapped files that processes use, read from the kernel every second".to_owned();
        self.evidence.push(EvidenceSource { name: "files".to_owned(), used: true, detail });
        let mut copies = Copies::new(mappings, &self.machine, self.options.tunables.keep_bytes);
        copies.set_rate(self.options.tunables.bytes_per_s);
        self.copies = Some(copies);
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
                "page faults: first touches, and hinting faults of the kernel's NUMA balancing".to_owned(),
            ),
            source("probe", self.probes.is_some(), probe_note.to_owned()),
            self.pressure.source(),
        ];
        let assumed = match sampled {
            Some(_) => "rates are estimated from the samples and their period",
            None => "rates are estimated, because no counter is read",
        };
        let outstanding = crate::evidence::estimate::OUTSTANDING;
        let assumed =
            format!("{assumed}; each running thread is assumed to have {outstanding} outstanding cache-line misses");
        sources.push(source("rates", false, assumed));
        sources.extend(notes.iter().map(|note| source("machine", false, note.clone())));
        sources
    }

    /// Sets the process id of the program that was started ([`Who::Child`]).
    ///
    /// # Errors
    /// The process has ended already.
    pub fn child(&mut self, pid: Pid) -> Result<(), BalancerError> {
        self.inherits(Heir { pid, parent: None, start_ticks: task::start_ticks_of(pid) });
        Ok(self.targets.add(pid).map(drop)?)
    }

    /// Starts the loop: records the start event, and changes the settings that sampling needs. A program that is to be managed from its start must be started
    /// after this, so that these settings apply to it.
    ///
    /// # Errors
    /// Another numapilot manages one of the processes. Then nothing is changed.
    pub fn begin(&mut self, control_port: &mut dyn ControlPort) -> Result<(), BalancerError> {
        if self.options.who == Who::System && !self.options.dry_run {
            control_port.claim(None).map_err(BalancerError::Claimed)?;
        }
        let pids: Vec<Pid> = self.targets.all.keys().copied().collect();
        pids.into_iter().try_for_each(|pid| self.claim(pid, control_port).map_err(BalancerError::Claimed))?;
        control_port.record(Event::Start(self.run_stats.start(
            &self.machine,
            &self.options,
            &self.targets,
            &self.evidence,
        )));
        if let Some(note) = refused_note(&self.denied) {
            self.trouble(note, control_port);
        }
        self.begin_scanning(control_port);
        self.run_stats.begun();
        self.pace_scanning(control_port);
        Ok(())
    }

    /// Runs after [`Balancer::begin`] until the control port stops it or all targets have ended. Returns a summary.
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
                break "the time limit is reached".to_owned();
            }
        };
        self.end(because, control_port)
    }

    /// Ends without having run: restores all settings.
    pub fn give_up(&mut self, because: &str, control_port: &mut dyn ControlPort) {
        self.end(because.to_owned(), control_port);
    }

    fn end(&mut self, because: String, control_port: &mut dyn ControlPort) -> Stop {
        self.state = State::Stopping;
        self.because.clone_from(&because);
        self.publish(control_port);
        answer_last(&mut self.waiting, control_port);
        self.record_last_answers(control_port);
        if self.targets.has_bindings() {
            // Processes that were started since the last look have their parents' affinities.
            self.look_at_rings(control_port);
        }
        self.migration_executor.release_threads(None, &mut self.targets, control_port);
        for setting in self.settings.put_all_back(control_port) {
            control_port.record(Event::Setting(setting));
        }
        let stop = self.run_stats.stop(because);
        control_port.record(Event::Stop(stop.clone()));
        stop
    }

    /// Waits for the next interval and answers control commands. `Some`: the loop has to end, with the reason.
    fn wait(&mut self, control_port: &mut dyn ControlPort) -> Option<String> {
        loop {
            let wait = self.interval.saturating_sub(self.last.elapsed()).min(self.fault_sampler.drains_in());
            let Some(steering) = self.waiting.pop_front().or_else(|| control_port.next(wait)) else {
                if self.last.elapsed() >= self.interval {
                    return None;
                }
                if self.fault_sampler.drains_in().is_zero() {
                    self.fault_sampler.drain();
                }
                continue;
            };
            let stops = steering.command == Command::Stop;
            let who = steering.by_uid;
            self.handle_command(steering, control_port);
            if stops {
                return Some(who.map_or_else(|| "a signal".to_owned(), |uid| format!("stopped by user {uid}")));
            }
        }
    }

    fn handle_command(&mut self, steering: Steering, control_port: &mut dyn ControlPort) {
        let who = steering.by_uid;
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
            Command::AddTarget(target) => self.add_for(who, target, control_port),
            Command::RemoveTarget(target) => match self.targets.all.get(&target.pid) {
                Some(managed) if managed.target.start_ticks == target.start_ticks => {
                    let bindings = managed.bindings.clone();
                    self.migration_executor.release_threads(Some(target.pid), &mut self.targets, control_port);
                    self.targets.let_go(target.pid, bindings);
                    self.close_events();
                    self.removed.insert((target.pid, target.start_ticks));
                    control_port.unclaim(target.pid);
                    Ok("removed".to_owned())
                }
                _ => Err(format!("process {} is not managed", target.pid)),
            },
        };
        answered(steering, answer, control_port);
    }

    /// Adds a process for a user (`None`: a signal's).
    fn add_for(
        &mut self,
        who: Option<u32>,
        target: &Target,
        control_port: &mut dyn ControlPort,
    ) -> Result<String, String> {
        let guest_of = guest(who);
        let is_new = !self.targets.all.contains_key(&target.pid);
        if let Some(uid) = guest_of.filter(|_| is_new) {
            let users = self.targets.all.values().map(|managed| managed.target.uid);
            has_room_for_target(uid, users, self.added_max)?;
        }
        let answer = self.add_exact_process(target, control_port);
        if let Some(managed) = self.targets.all.get_mut(&target.pid).filter(|_| is_new && answer.is_ok()) {
            managed.guest_of = guest_of;
        }
        answer
    }

    /// Adds exactly the process that was named, not one that has reused its id since: permission was checked for that process.
    fn add_exact_process(&mut self, target: &Target, control_port: &mut dyn ControlPort) -> Result<String, String> {
        let was_there = self.targets.all.contains_key(&target.pid);
        self.removed.remove(&(target.pid, target.start_ticks));
        self.add_process(target.pid).map_err(|error| error.to_string())?;
        let is_it = |managed: &ManagedProcess| {
            managed.target.start_ticks == target.start_ticks && managed.target.uid == target.uid
        };
        let answer = match self.targets.all.get(&target.pid) {
            Some(managed) if is_it(managed) => self.claim(target.pid, control_port).map(|()| "added".to_owned()),
            _ => Err(format!("process {} has ended", target.pid)),
        };
        if answer.is_err() && !was_there {
            self.targets.all.remove(&target.pid);
            self.close_events();
        }
        answer
    }

    /// Claims a process for this loop; a dry run claims none, because it moves nothing.
    fn claim(&mut self, pid: Pid, control_port: &mut dyn ControlPort) -> Result<(), String> {
        if !self.options.dry_run
            && let Some(managed) = self.targets.all.get_mut(&pid).filter(|managed| !managed.is_claimed)
        {
            control_port.claim(Some(pid))?;
            managed.is_claimed = true;
        }
        Ok(())
    }

    /// Claims the processes that were added since the last time. A process that another numapilot manages is removed, and that is recorded.
    fn claim_new(&mut self, control_port: &mut dyn ControlPort) {
        let new = |managed: &&ManagedProcess| !managed.is_claimed;
        let pids: Vec<Pid> = self.targets.all.values().filter(new).map(|managed| managed.target.pid).collect();
        for pid in pids {
            if let Err(why) = self.claim(pid, control_port) {
                self.targets.all.remove(&pid);
                self.close_events();
                self.trouble(why, control_port);
            }
        }
    }

    fn reload(&mut self, control_port: &mut dyn ControlPort) -> Result<String, String> {
        let tunables = reloaded(control_port)?;
        self.regression_guard.set_max_harm(tunables.max_harm);
        self.migration_executor.set_options(tunables.moving());
        self.pressure.set_most(tunables.max_pressure);
        if let Some(copies) = &mut self.copies {
            copies.set_keep_bytes(tunables.keep_bytes);
            copies.set_rate(tunables.bytes_per_s);
        }
        self.interval = tunables.interval;
        self.options.tunables = tunables;
        Ok("reloaded".to_owned())
    }

    /// Adds a process, and opens events for it unless it inherited them.
    fn add_process(&mut self, pid: Pid) -> Result<(), BalancerError> {
        let mut refused = None;
        let needs_events = !self.fault_sampler.sees(pid, task::start_ticks_of(pid));
        if needs_events {
            let scope = Scope::Processes(vec![pid]);
            self.fault_sampler.open(&scope)?;
            refused = self.samples.as_mut().and_then(|samples| samples.open(&scope, &self.machine).err());
        }
        if let Err(error) = self.targets.add(pid) {
            // Those of a whole group stay, of which none may be managed yet.
            if needs_events {
                self.close_events();
            }
            return Err(error.into());
        }
        // A process that has ended meanwhile fails here already.
        if let Some(error) = refused {
            self.refused = Some(format!("accesses of process {pid} cannot be sampled: {error}"));
        }
        Ok(())
    }

    /// Records an error that does not end the loop; the same message is recorded once, and later with its count.
    fn trouble(&mut self, what: String, control_port: &mut dyn ControlPort) {
        if let Some(times) = self.run_stats.trouble(&what) {
            control_port.record(Event::Trouble(Trouble { what, times }));
        }
    }
}

/// Whether this kernel, what it shows of processes, and the machine are such that pages can be moved at all.
fn can_act_here(machine: &Machine, options: &Options) -> Result<(), BalancerError> {
    sized_for(page_bytes())?;
    task::require_own_proc()?;
    // A dry run is useful on a machine with one node too.
    if !options.dry_run && machine.nodes().iter().filter(|node| node.has_memory()).count() < 2 {
        return Err(BalancerError::OneNode);
    }
    Ok(())
}

/// Whether pages are of the size in which evidence is counted (arm64 kernels may have others).
fn sized_for(page_bytes: u64) -> Result<(), BalancerError> {
    if page_bytes == PageNumber::BYTES { Ok(()) } else { Err(BalancerError::PageSize { bytes: page_bytes }) }
}

/// The events of the whole system, or of the child that this process is about to start; those of other processes are opened when they are added. The error in
/// place of samples says why there are none.
fn opened(machine: &Machine, options: &Options) -> Result<(FaultSampler, Result<Samples, String>), EventsError> {
    let mut fault_sampler = FaultSampler::new(machine);
    let mut samples = match options.samples {
        true => Samples::best(options.who == Who::System, machine),
        false => Err("not asked for".to_owned()),
    };
    match &options.who {
        Who::System => drop(fault_sampler.open(&Scope::System)?),
        Who::Child => {
            fault_sampler.open(&Scope::Children)?;
            if let Ok(found) = &mut samples
                && let Err(error) = found.open(&Scope::Children, machine)
            {
                samples = Err(error.to_string());
            }
        }
        Who::Group(_) => {}
    }
    Ok((fault_sampler, samples))
}

/// What the configuration file sets now.
///
/// # Errors
/// It has an error, or there is none.
fn reloaded(control_port: &mut dyn ControlPort) -> Result<Tunables, String> {
    let none = || "there is no configuration file to reload; start with --config to have one".to_owned();
    control_port.reload()?.ok_or_else(none)
}

/// The probes of every node's latency, and in words what they are or why there are none.
fn probes(machine: &Machine, options: &Options) -> (Option<Probes>, String) {
    match options.probes.then(|| Probes::new(machine, options.seed)) {
        Some(Ok(probes)) => (Some(probes), "a pointer chase from one node per interval".to_owned()),
        Some(Err(error)) => (None, format!("probe buffers cannot be allocated on every node: {error}")),
        None => (None, "not asked for".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use numapilot_host::Group;

    use super::*;
    use crate::control_port::tests::Desk;

    /// Every page fault of a process that a user had removed was sampled until another process ended.
    #[test]
    fn a_process_that_is_removed_is_sampled_no_longer() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = Pid::of_child(&child);
        let machine = crate::evidence::estimate::completed(&Machine::live().unwrap()).unwrap().0;
        let policy = numapilot_placement::policy_by_name("first-touch", &machine, 1).unwrap();
        let who = Who::Group(Group::Processes(vec![pid]));
        let options = Options { who, dry_run: true, probes: false, samples: false, ..Options::default() };
        let made = Balancer::new(machine, policy, options, &[]);
        let told = made.map(|mut balancer| {
            let was = balancer.fault_sampler.sees(pid, None);
            let command = Command::RemoveTarget(balancer.targets.all[&pid].target.clone());
            let mut desk = Desk::default();
            balancer.handle_command(Steering { command, by_uid: None, answer: None }, &mut desk);
            (was, balancer.fault_sampler.sees(pid, None))
        });
        child.kill().unwrap();
        child.wait().unwrap();
        match told {
            Err(BalancerError::Source(error)) => numapilot_not_run::not_run!(PageFaultEvents, "{error}"),
            seen => assert_eq!(seen.unwrap(), (true, false)),
        }
    }

    /// Only the processes of the last observation were counted, which may be long ago: all places could be taken between two.
    #[test]
    fn a_user_adds_no_more_processes_than_are_allowed() {
        let mut children = [(); 2].map(|()| std::process::Command::new("sleep").arg("100").spawn().unwrap());
        let pids = [&children[0], &children[1]].map(Pid::of_child);
        let machine = crate::evidence::estimate::completed(&Machine::live().unwrap()).unwrap().0;
        let policy = numapilot_placement::policy_by_name("first-touch", &machine, 1).unwrap();
        let who = Who::Group(Group::Processes(vec![pids[0]]));
        let options = Options { who, dry_run: true, probes: false, samples: false, ..Options::default() };
        let made = Balancer::new(machine, policy, options, &[]);
        let told = made.map(|mut balancer| {
            let stranger = u32::MAX - 7;
            balancer.added_max = 1;
            balancer.targets.all.get_mut(&pids[0]).unwrap().target.uid = stranger;
            let stat = task::stat(pids[1]).unwrap();
            let uid = task::users_of(pids[1]).unwrap()[0];
            let target = Target { pid: pids[1], start_ticks: stat.start_ticks, uid, name: stat.name };
            [Some(stranger), None].map(|who| balancer.add_for(who, &target, &mut Desk::default()))
        });
        children.iter_mut().for_each(|child| child.kill().and_then(|()| child.wait()).map(drop).unwrap());
        match told {
            Err(BalancerError::Source(error)) => numapilot_not_run::not_run!(PageFaultEvents, "{error}"),
            told => {
                let [of_stranger, of_signal] = told.unwrap();
                assert!(of_stranger.is_err_and(|why| why.contains("the most allowed per user")));
                assert_eq!(of_signal.as_deref(), Ok("added"));
            }
        }
    }

    /// It was a success.
    #[test]
    fn without_a_configuration_file_there_is_nothing_to_reload() {
        let why = reloaded(&mut Desk::default()).err();
        assert!(why.is_some_and(|why| why.contains("start with --config")));
    }

    #[test]
    fn pages_of_another_size_are_refused_with_the_reason() {
        assert!(super::sized_for(4096).is_ok());
        let why = super::sized_for(65_536).unwrap_err().to_string();
        assert!(why.contains("pages of 64 KiB") && why.contains("numapilot move"), "{why}");
    }
}
