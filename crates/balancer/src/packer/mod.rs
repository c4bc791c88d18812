//! Placement of whole processes on nodes, as numad does it. Every few seconds the packer reads the processes' processor use and memory, computes the best
//! assignment with [`crate::decision::packing`], and moves processes if the gain is worth it.
//!
//! It is controlled and reports like the loop, by a [`ControlPort`]. It records every change before making it, and restores affinities and cpusets at its end;
//! memory stays where it is. Moving is paid for as the loop's is, and each unit is judged after it was placed: what made it slower is undone.

mod capacity;
mod harm;
mod place;
mod put_off;
mod reminder;
#[cfg(test)]
mod tests;
mod trial;
mod units;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Group;
use numapilot_host::Members;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::has_memory;
use numapilot_kernel::actuator::Mover;
use numapilot_kernel::actuator::page_bytes;
use numapilot_kernel::affinity;
use numapilot_kernel::balancing::BalancingMoves;
use numapilot_kernel::task;
use numapilot_machine::Machine;
use numapilot_machine::NodeIndex;
use numapilot_machine::NodeSet;
use numapilot_machine::format_cpu_list;
use numapilot_perf_events::open::raise_descriptor_limit;

pub use capacity::Looker;
pub use units::allowed_here;

use crate::balancing_loop::BalancerError;
use crate::balancing_loop::Options;
use crate::balancing_loop::Who;
use crate::control_port::ControlPort;
use crate::control_port::answer_last;
use crate::control_port::answered;
use crate::decision::packing::Demand;
use crate::decision::packing::Packing;
use crate::decision::packing::PackingSettings;
use crate::decision::packing::pack;
use crate::decision::regression_guard::RegressionGuard;
use crate::event::Action;
use crate::event::Decision;
use crate::event::Event;
use crate::event::EvidenceSource;
use crate::event::PageOutcomes;
use crate::event::Setting;
use crate::event::SettingDone;
use crate::event::Start;
use crate::event::Stop;
use crate::event::Target;
use crate::event::Targets;
use crate::event::Trouble;
use crate::execution::progress::Progress;
use crate::status;
use crate::status::Command;
use crate::status::Counters;
use crate::status::OwnUse;
use crate::status::State;
use crate::status::Status;
use crate::status::Steering;
use crate::status::TARGETS_PER_USER;
use crate::status::TargetStatus;
use crate::status::guest;
use crate::status::has_room_for_target;
use crate::step_progress::StepProgress;
use crate::system::clock::unix_ns;
use crate::system::new_nodes;
use crate::system::pressure::MemoryPressure;
use crate::system::speed_meter;
use crate::unfit::Unfit;
use place::Held;
use place::Placed;
use reminder::Reminder;
use trial::Trial;
use units::Unit;
use units::Watched;

/// Minimum interval: processor time is counted in ticks of 10 ms.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);

/// Places whole processes (see the module's documentation).
pub struct Packer {
    /// The processes of [`Who::Group`].
    members: Option<Members>,
    machine: Machine,
    options: Options,
    settings: PackingSettings,
    watched: BTreeMap<Pid, Watched>,
    held: BTreeMap<Unit, Held>,
    /// Processes to leave alone, because another numapilot manages them or a user removed them: process id and start time.
    foreign: BTreeSet<(Pid, u64)>,
    /// Processes of the machine without memory of their own.
    unfit: Unfit,
    looker: Looker,
    mover: Mover,
    pressure: MemoryPressure,
    /// The account for moving.
    regression_guard: RegressionGuard,
    /// How fast units are before and after they are placed.
    trials: BTreeMap<Unit, Trial>,
    /// How that is measured, or why it is not.
    measuring: EvidenceSource,
    /// When their present windows began.
    windows_since: Instant,
    /// When it is told again that a packing is put off.
    reminder: Reminder,
    counters: Counters,
    kernel_moves: BalancingMoves,
    started: Instant,
    last: Instant,
    is_paused: bool,
    says: String,
    troubles: BTreeSet<String>,
    run: String,
    started_unix_ns: u64,
    /// Commands that came while a step was at work.
    waiting: VecDeque<Steering>,
}

impl Packer {
    /// Makes a packer without processes. It uses the options `who`, `tunables`, `dry_run` and `until`.
    ///
    /// # Errors
    /// The machine has one node, or a named process does not exist.
    pub fn new(machine: Machine, options: Options) -> Result<Packer, BalancerError> {
        if !options.dry_run && machine.nodes().iter().filter(|node| node.has_memory()).count() < 2 {
            return Err(BalancerError::OneNode);
        }
        task::require_own_proc()?;
        if let Who::Group(Group::Processes(pids) | Group::Trees(pids)) = &options.who {
            pids.iter().try_for_each(|pid| task::stat(*pid).map(drop))?;
        }
        let members = if let Who::Group(group) = &options.who { Some(Members::new(group.clone())) } else { None };
        // Each thread whose instructions are counted takes a descriptor.
        raise_descriptor_limit();
        let now = unix_ns();
        Ok(Packer {
            looker: Looker::new()?,
            mover: Mover::new(numapilot_kernel::actuator::MoveOptions { waits: true, ..options.tunables.moving() }),
            pressure: MemoryPressure::new(Root::default(), options.tunables.max_pressure),
            regression_guard: RegressionGuard::new(options.tunables.max_harm).with_measure(false),
            trials: BTreeMap::new(),
            measuring: speed_meter::source(),
            windows_since: Instant::now(),
            reminder: Reminder::default(),
            settings: PackingSettings::default(),
            watched: BTreeMap::new(),
            held: BTreeMap::new(),
            foreign: BTreeSet::new(),
            unfit: Unfit::default(),
            counters: Counters::default(),
            kernel_moves: BalancingMoves::from_now(Path::new("/")),
            started: Instant::now(),
            last: Instant::now(),
            is_paused: false,
            says: String::new(),
            troubles: BTreeSet::new(),
            run: format!("{:x}-{}", now / 1000, Pid::own()),
            started_unix_ns: now,
            machine,
            members,
            options,
            waiting: VecDeque::new(),
        })
    }

    /// Starts: claims the processes that are to be managed.
    ///
    /// # Errors
    /// Another numapilot manages one of them.
    pub fn begin(&mut self, control_port: &mut dyn ControlPort) -> Result<(), BalancerError> {
        if self.options.who == Who::System && !self.options.dry_run {
            control_port.claim(None).map_err(BalancerError::Claimed)?;
        }
        if let Some(members) = self.members.as_mut().filter(|members| !members.group().takes_unrelated()) {
            members.refresh(&Root::default());
            let pids = members.pids();
            pids.into_iter().try_for_each(|pid| self.watch(pid, control_port).map_err(BalancerError::Claimed))?;
        }
        let tunables = &self.options.tunables;
        control_port.record(Event::Start(Start {
            run: self.run.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: Pid::own(),
            machine: self.machine.name().to_owned(),
            policy: "packing".to_owned(),
            dry_run: self.options.dry_run,
            targets: self.watched.values().map(|one| one.target.clone()).collect(),
            evidence: vec![self.measuring.clone(), self.pressure.source()],
            settings: serde_json::json!({
                "interval_ms": self.interval().as_millis() as u64, "bytes_per_s": tunables.bytes_per_s, "keep_bytes": tunables.keep_bytes,
                "max_harm": tunables.max_harm, "max_pressure": tunables.max_pressure, "target": self.settings.target,
            }),
            ..Start::default()
        }));
        Ok(())
    }

    /// Sets the process id of the program that was started.
    pub fn child(&mut self, pid: Pid) {
        let group = Group::Trees(vec![pid]);
        self.members = Some(Members::new(group.clone()));
        self.options.who = Who::Group(group);
    }

    /// Runs until the control port stops it or all processes have ended. Returns a summary.
    pub fn run(&mut self, control_port: &mut dyn ControlPort) -> Stop {
        let because = loop {
            self.step(control_port);
            if let Some(because) = self.wait(control_port) {
                break because;
            }
            if self.watched.is_empty() && !self.options.who.may_grow() {
                break "every target has ended".to_owned();
            }
            if self.options.until.is_some_and(|until| self.started.elapsed() >= until) {
                break "the time limit is reached".to_owned();
            }
        };
        self.end(because, control_port)
    }

    /// Ends: restores the affinity or cpuset of every process.
    pub fn end(&mut self, because: String, control_port: &mut dyn ControlPort) -> Stop {
        answer_last(&mut self.waiting, control_port);
        self.release_children(None);
        for (_, mut held) in std::mem::take(&mut self.held) {
            held.release(control_port).into_iter().for_each(|setting| control_port.record(Event::Setting(setting)));
        }
        self.counters.kernel_moved_bytes = self.kernel_moves.bytes();
        let stop = Stop { because, counters: self.counters, own: OwnUse::now(None) };
        control_port.record(Event::Stop(stop.clone()));
        stop
    }

    fn interval(&self) -> Duration {
        self.options.tunables.interval.max(LEAST_INTERVAL)
    }

    fn wait(&mut self, control_port: &mut dyn ControlPort) -> Option<String> {
        loop {
            let left = self.interval().saturating_sub(self.last.elapsed());
            match self.waiting.pop_front().or_else(|| control_port.next(left)) {
                Some(steering) => {
                    let (stops, who) = (steering.command == Command::Stop, steering.by_uid);
                    self.handle_command(steering, control_port);
                    if stops {
                        return Some(who.map_or_else(|| "a signal".to_owned(), |uid| format!("stopped by user {uid}")));
                    }
                }
                None if self.last.elapsed() >= self.interval() => return None,
                None => {}
            }
        }
    }

    fn handle_command(&mut self, steering: Steering, control_port: &mut dyn ControlPort) {
        let answer = match &steering.command {
            Command::Pause | Command::Resume => {
                self.is_paused = steering.command == Command::Pause;
                Ok(if self.is_paused { "paused" } else { "resumed" }.to_owned())
            }
            Command::Stop => Ok("stopping".to_owned()),
            Command::Reload => {
                Err("packing reads its settings only at its start; restart the daemon to change them".to_owned())
            }
            Command::AddTarget(target) => self.add_for(steering.by_uid, target, control_port),
            Command::RemoveTarget(target) if self.is_watched(target) => {
                self.release_process(target.pid, control_port);
                // Else it would be found again.
                self.foreign.insert((target.pid, target.start_ticks));
                Ok("removed".to_owned())
            }
            Command::RemoveTarget(target) => Err(format!("process {} is not managed", target.pid)),
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
        if let Some(uid) = guest(who).filter(|_| !self.watched.contains_key(&target.pid)) {
            has_room_for_target(uid, self.watched.values().map(|one| one.target.uid), TARGETS_PER_USER)?;
        }
        self.foreign.remove(&(target.pid, target.start_ticks));
        self.watch(target.pid, control_port)?;
        let added = self.is_watched(target).then(|| "added".to_owned());
        added.ok_or_else(|| format!("process {} has ended", target.pid))
    }

    fn is_watched(&self, target: &Target) -> bool {
        self.watched.get(&target.pid).is_some_and(|one| one.target.start_ticks == target.start_ticks)
    }

    /// Adds a process.
    fn watch(&mut self, pid: Pid, control_port: &mut dyn ControlPort) -> Result<(), String> {
        if self.watched.contains_key(&pid) {
            return Ok(());
        }
        let one = Watched::new(pid).map_err(|error| error.to_string())?;
        if !self.options.dry_run
            && let Err(why) = control_port.claim(Some(pid))
        {
            self.foreign.insert((pid, one.target.start_ticks));
            return Err(why);
        }
        self.watched.insert(pid, one);
        Ok(())
    }

    /// Restores the affinities that processes without a unit of their own have inherited from their parent's unit (`None`: any): idle ones, and, where
    /// children are not managed, all of them.
    fn release_children(&self, of: Option<Pid>) {
        let is_unit = |pid: &Pid| self.held.contains_key(&Unit::Process(*pid));
        if !of.map_or(!self.held.is_empty(), |of| is_unit(&of)) {
            return;
        }
        for pid in task::processes().unwrap_or_default().into_iter().filter(|pid| !is_unit(pid)) {
            let parent = task::parent_of(pid).filter(|parent| of.is_none_or(|of| of == *parent));
            if let Some(held) = parent.and_then(|parent| self.held.get(&Unit::Process(parent))) {
                held.release_child(pid);
            }
        }
    }

    fn release_process(&mut self, pid: Pid, control_port: &mut dyn ControlPort) {
        self.release_children(Some(pid));
        if self.watched.remove(&pid).is_some() {
            control_port.unclaim(pid);
        }
        self.trials.remove(&Unit::Process(pid));
        if let Some(mut held) = self.held.remove(&Unit::Process(pid)) {
            held.release(control_port).into_iter().for_each(|setting| control_port.record(Event::Setting(setting)));
        }
    }

    fn step(&mut self, control_port: &mut dyn ControlPort) {
        let elapsed = self.last.elapsed();
        self.last = Instant::now();
        self.counters.observations += 1;
        self.find(control_port);
        let ended: Vec<Pid> = self.watched.iter_mut().filter_map(|(pid, one)| (!one.look()).then_some(*pid)).collect();
        if !ended.is_empty() {
            let removed: Vec<Target> =
                ended.iter().filter_map(|pid| self.watched.get(pid).map(|one| one.target.clone())).collect();
            ended.iter().for_each(|pid| self.release_process(*pid, control_port));
            control_port.record(Event::Targets(Targets { added: Vec::new(), removed, because: "ended".to_owned() }));
        }
        if let Some(what) = new_nodes::told(&Root::default(), &self.machine) {
            self.trouble(what, control_port);
        }
        let ran_ns = self.watched.values().map(|one| one.cpus).sum::<f64>() * elapsed.as_nanos() as f64;
        self.regression_guard.window(None, ran_ns);
        self.pressure.look().into_iter().for_each(|change| control_port.record(Event::Pressure(change)));
        if !self.is_paused {
            self.pack(control_port);
        }
        self.publish(control_port);
    }

    /// Brings the list of processes up to date.
    fn find(&mut self, control_port: &mut dyn ControlPort) {
        let mut missing = Vec::new();
        let pids = match &self.options.who {
            Who::System => task::processes().unwrap_or_default(),
            Who::Group(_) => {
                let members = self.members.as_mut();
                members.map_or_else(Vec::new, |members| {
                    members.refresh(&Root::default());
                    missing = members.missing();
                    members.pids()
                })
            }
            Who::Child => Vec::new(),
        };
        missing.into_iter().for_each(|what| self.trouble(what, control_port));
        let own = Pid::own();
        let is_listing = self.options.who == Who::System;
        if is_listing {
            self.unfit.keep_listed(&pids);
        }
        let mut added = Vec::new();
        for pid in pids.into_iter().filter(|pid| *pid != own) {
            let is_new = !self.watched.contains_key(&pid);
            let is_left_out = is_listing && self.unfit.is_left_out(pid, self.counters.observations);
            if !is_new || is_left_out || self.foreign.iter().any(|(foreign, _)| *foreign == pid) {
                continue;
            }
            let is_fit = has_memory(&Root::default(), pid);
            if is_listing {
                self.unfit.found(pid, is_fit);
            }
            if !is_fit {
                continue;
            }
            match self.watch(pid, control_port) {
                Ok(()) => added.extend(self.watched.get(&pid).map(|one| one.target.clone())),
                Err(why) => self.trouble(why, control_port),
            }
        }
        self.foreign.retain(|(pid, start)| task::start_ticks_of(*pid) == Some(*start));
        if !added.is_empty() {
            control_port.record(Event::Targets(Targets { added, removed: Vec::new(), because: "found".to_owned() }));
        }
    }

    fn pack(&mut self, control_port: &mut dyn ControlPort) {
        let held: BTreeSet<Unit> = self.held.keys().cloned().collect();
        let mut units = units::units(Path::new("/"), &self.watched, &held);
        let gone: Vec<Unit> = self.held.keys().filter(|unit| !units.contains_key(unit)).cloned().collect();
        for unit in gone {
            if let Some(mut held) = self.held.remove(&unit) {
                held.release(control_port).into_iter().for_each(|setting| control_port.record(Event::Setting(setting)));
            }
        }
        self.adopt(&units);
        let elapsed = self.windows_since.elapsed();
        // Right after a step that took long, a window would be too short to say anything.
        if !self.options.dry_run && elapsed >= self.interval() / 2 {
            self.windows_since = Instant::now();
            self.judge(&units, elapsed, control_port);
        }
        let all = units.len();
        units.retain(|unit, _| !self.is_left_out(unit));
        let left_out = all - units.len();
        let mut found = Vec::new();
        for (unit, pids) in units {
            if !self.look_at_memory(&pids, control_port) {
                return;
            }
            if let Some(held) = self.held.get_mut(&unit) {
                held.look_at_allowed(Path::new("/"), &unit, pids.first().copied());
            }
            let held = self.held.get(&unit);
            let before = held.and_then(|held| held.allowed_now.as_ref().or(held.allowed.as_ref()));
            let bound = held.map_or(NodeSet::default(), |held| held.nodes);
            if let Some((mut demand, allowed)) = units::demand(&self.machine, &pids, &self.watched, before, bound) {
                if self.is_resting(&unit) && !demand.bound.is_empty() {
                    demand.allowed = demand.bound;
                }
                found.push((unit, pids, demand, allowed));
            }
        }
        let demands: Vec<Demand> = found.iter().map(|(_, _, demand, _)| demand.clone()).collect();
        let capacity = match self.looker.capacity(&self.machine, &demands) {
            Ok(capacity) => capacity,
            Err(error) => return self.trouble(error.to_string(), control_port),
        };
        let unread: Vec<String> = self.looker.unread().values().cloned().collect();
        unread.into_iter().for_each(|what| self.trouble(what, control_port));
        let packing = pack(&capacity, &demands, &self.settings);
        self.says = words(&packing, demands.len(), left_out);
        let why = self.put_off(&found, &packing);
        if !packing.is_change || why.is_empty() {
            self.reminder = Reminder::default();
        }
        if packing.is_change && why.is_empty() {
            return self.carry_out(found, &packing, control_port);
        }
        self.bind_new_threads(&found, control_port);
        let is_pressed = self.pressure.is_high() && !self.options.dry_run;
        if packing.is_change {
            self.tell_put_off(self.bytes_to_move(&found, &packing), why, control_port);
            self.counters.put_offs += u64::from(is_pressed);
        }
        // What was begun is paid for when it is complete.
        if !is_pressed {
            self.finish(&found, control_port);
        }
    }

    /// Reads the memory of processes, as often as its cost allows. False: a stop or pause came meanwhile.
    fn look_at_memory(&mut self, pids: &[Pid], control_port: &mut dyn ControlPort) -> bool {
        let mut progress = StepProgress::new(control_port, &mut self.waiting);
        for pid in pids {
            if !progress.goes_on() {
                return false;
            }
            if let Some(one) = self.watched.get_mut(pid) {
                one.numa.of(*pid, LEAST_INTERVAL);
            }
        }
        true
    }

    /// Moves what a stop or pause has left.
    fn finish(&mut self, found: &[(Unit, Vec<Pid>, Demand, units::Allowed)], control_port: &mut dyn ControlPort) {
        let mut is_any = false;
        for (unit, pids, ..) in found {
            let unfinished = self.held.get(unit).filter(|held| held.is_unfinished);
            if let Some(decision) = unfinished.map(|held| held.decision) {
                let placed = self.place(unit, pids, control_port);
                self.put_on_trial(unit, decision, &placed);
                self.settle(decision, placed, control_port);
                is_any = true;
            }
        }
        if is_any {
            self.begin_windows();
        }
    }

    /// Registers children of placed processes: they inherit the placement, and get back their parent's previous affinity later. What was a unit before was left
    /// free, or its placement was undone.
    fn adopt(&mut self, units: &BTreeMap<Unit, Vec<Pid>>) {
        let is_new = |unit: &&Unit| !self.held.contains_key(*unit) && !self.trials.contains_key(*unit);
        for unit in units.keys().filter(is_new).cloned().collect::<Vec<_>>() {
            let Unit::Process(pid) = unit else { continue };
            let parent = task::parent_of(pid).and_then(|parent| self.held.get(&Unit::Process(parent)));
            if let Some(child) = parent.and_then(Held::of_child) {
                self.held.insert(unit, child);
            }
        }
    }

    /// The nodes on which a unit is: one that is not placed runs wherever it may.
    fn nodes_of(&self, unit: &Unit, demand: &Demand) -> NodeSet {
        self.held.get(unit).map_or(demand.allowed, |held| held.nodes)
    }

    /// Bytes that a packing moves.
    fn bytes_to_move(&self, found: &[(Unit, Vec<Pid>, Demand, units::Allowed)], packing: &Packing) -> u64 {
        let units = found.iter().map(|(unit, _, demand, _)| (unit, demand)).zip(&packing.nodes);
        let moves = units.filter(|((unit, demand), nodes)| self.nodes_of(unit, demand) != **nodes);
        moves.map(|((_, demand), nodes)| outside(demand, *nodes)).sum()
    }

    /// Records a decision of so many bytes. Returns its number.
    fn record_decision(
        &mut self,
        because: String,
        bytes: u64,
        held_back: String,
        control_port: &mut dyn ControlPort,
    ) -> u64 {
        self.counters.decisions += 1;
        control_port.record(Event::Decision(Decision {
            decision: self.counters.decisions,
            observation: self.counters.observations,
            because,
            pages: bytes / page_bytes(),
            bytes,
            held_back,
            ..Decision::default()
        }));
        self.counters.decisions
    }

    /// Carries out a packing.
    fn carry_out(
        &mut self,
        found: Vec<(Unit, Vec<Pid>, Demand, units::Allowed)>,
        packing: &Packing,
        control_port: &mut dyn ControlPort,
    ) {
        let bytes = self.bytes_to_move(&found, packing);
        let changes = found.into_iter().zip(&packing.nodes);
        let changes = changes.filter(|((unit, _, demand, _), nodes)| self.nodes_of(unit, demand) != **nodes);
        let changes: Vec<_> = changes.collect();
        let because = format!("{}{}", self.says, self.rate_words(bytes));
        let held_back = if self.options.dry_run { "dry run" } else { "" };
        let decision = self.record_decision(because, bytes, held_back.to_owned(), control_port);
        for ((unit, pids, demand, allowed), nodes) in changes {
            let list = |set| format_cpu_list(place::ids(&self.machine, set).iter().map(|node| u32::from(node.0)));
            let was = self.nodes_of(&unit, &demand);
            let (name, was, now) = (format!("nodes of {unit}"), list(was), list(*nodes));
            if self.options.dry_run {
                control_port.record(Event::Setting(Setting {
                    name,
                    was: was.clone(),
                    now: was,
                    done: SettingDone::NotChanged,
                }));
                continue;
            }
            let held = self.held.entry(unit.clone()).or_default();
            (held.nodes, held.decision) = (*nodes, decision);
            held.allowed.get_or_insert(allowed);
            let placed = self.place(&unit, &pids, control_port);
            let done = if placed.is_refused { SettingDone::Failed } else { SettingDone::Changed };
            control_port.record(Event::Setting(Setting { name, was, now, done }));
            let is_ended = placed.is_ended;
            self.put_on_trial(&unit, decision, &placed);
            self.settle(decision, placed, control_port);
            if is_ended {
                break;
            }
        }
        if !self.options.dry_run {
            self.begin_windows();
        }
    }

    /// Places a unit on its nodes. A stop or pause ends it: what has moved is in the account, and the rest is done later ([`Packer::finish`]).
    fn place(&mut self, unit: &Unit, pids: &[Pid], control_port: &mut dyn ControlPort) -> Placed {
        let mut placed = Placed::default();
        let Some(mut held) = self.held.remove(unit) else { return placed };
        held.is_unfinished = false;
        let mut room = self.room_for_origins();
        let mut progress = StepProgress::new(control_port, &mut self.waiting);
        let is_bound = match unit {
            Unit::Cgroup(folder) => held.by_cpuset(folder, &self.machine, &mut progress, &mut placed),
            Unit::Process(_) => false,
        };
        for pid in pids {
            if !progress.goes_on() {
                placed.is_ended = true;
                break;
            }
            if !is_bound {
                let online = affinity::online();
                held.by_affinity(*pid, &self.machine, online.as_ref(), progress.undo_log(), &mut placed);
            }
            if placed.is_refused {
                held.release(progress.undo_log());
                return placed;
            }
            let Some(one) = self.watched.get_mut(pid) else { continue };
            let wanted = (held.nodes, self.options.moves_bound);
            let known = one.origins.len();
            one.origins.limit(known + room);
            place::gather(one, &self.machine, wanted, &mut self.mover, &mut progress, &mut placed);
            room = room.saturating_sub(one.origins.len() - known);
        }
        held.is_unfinished = placed.is_ended;
        self.held.insert(unit.clone(), held);
        placed
    }

    /// No unit moves: new threads are bound like the threads that created them.
    fn bind_new_threads(
        &mut self,
        found: &[(Unit, Vec<Pid>, Demand, units::Allowed)],
        control_port: &mut dyn ControlPort,
    ) {
        let online = if self.held.is_empty() { None } else { affinity::online() };
        for (unit, pids, ..) in found {
            let Unit::Process(_) = unit else { continue };
            let Some(held) = self.held.get_mut(unit) else { continue };
            let mut placed = Placed::default();
            for pid in pids {
                held.by_affinity(*pid, &self.machine, online.as_ref(), control_port, &mut placed);
                control_port.alive();
            }
            self.counters.threads_moved += placed.threads;
            placed.troubles.into_iter().for_each(|what| self.trouble(what, control_port));
        }
    }

    fn settle(&mut self, decision: u64, placed: Placed, control_port: &mut dyn ControlPort) {
        let mut pages = PageOutcomes::default();
        placed.moved.iter().for_each(|moved| pages.add(&moved.pages));
        let took_ns = placed.moving_ns();
        let moved_bytes = pages.moved * page_bytes();
        if placed.is_undo {
            self.counters.pages_undone += pages.moved;
        } else {
            self.counters.pages.add(&pages);
            self.counters.threads_moved += placed.threads;
        }
        self.counters.moved_bytes += moved_bytes;
        self.counters.moving_ns += took_ns;
        self.regression_guard.spent(took_ns as f64);
        placed.settings.into_iter().for_each(|setting| control_port.record(Event::Setting(setting)));
        control_port.record(Event::Action(Action {
            decision,
            undo: placed.is_undo,
            pages,
            threads_moved: placed.threads,
            moved_bytes,
            took_ns,
            ..Action::default()
        }));
        placed.troubles.into_iter().for_each(|what| self.trouble(what, control_port));
    }

    /// Records an error; the same message is recorded once.
    fn trouble(&mut self, what: String, control_port: &mut dyn ControlPort) {
        if self.troubles.len() < 64 && self.troubles.insert(what.clone()) {
            control_port.record(Event::Trouble(Trouble { what, times: 1 }));
        }
    }

    fn publish(&self, control_port: &mut dyn ControlPort) {
        let target = |one: &Watched| TargetStatus {
            target: one.target.clone(),
            chosen_bytes: if self.options.moves_bound { 0 } else { one.numa.chosen_bytes() },
            ..TargetStatus::default()
        };
        control_port.status(Status {
            v: status::VERSION,
            run: self.run.clone(),
            pid: Pid::own(),
            uid: task::user_of(Pid::own()).unwrap_or(u32::MAX),
            started_unix_ns: self.started_unix_ns,
            unix_ns: unix_ns(),
            state: if self.is_paused { State::Paused } else { State::Running },
            policy: "packing".to_owned(),
            policy_says: self.says.clone(),
            dry_run: self.options.dry_run,
            interval_ns: self.interval().as_nanos() as u64,
            targets: self.watched.values().map(target).collect(),
            evidence: vec![self.measuring.clone(), self.pressure.source()],
            pressure: self.pressure.resources().to_vec(),
            is_put_off: self.pressure.is_high(),
            counters: self.counters,
            own: OwnUse::now(None),
            ..Status::default()
        });
    }
}

fn outside(demand: &Demand, nodes: NodeSet) -> u64 {
    let by_node = NodeIndex::all(demand.memory_bytes.len()).zip(&demand.memory_bytes);
    by_node.filter(|(node, _)| !nodes.contains(*node)).map(|(_, bytes)| bytes).sum()
}

/// `left_out`: units that are not packed for now.
fn words(packing: &Packing, units: usize, left_out: usize) -> String {
    let verdict = if packing.is_change { "worth the change" } else { "nothing to change" };
    let others = match left_out {
        0 => String::new(),
        count => format!("; {count} more are measured first, or left alone because their last placement was undone"),
    };
    format!(
        "{units} processes and cgroups: remote memory, crowded nodes and moves cost an estimated {:.2} processors in the present placement, {:.2} in the best \
         one found: {verdict}{others}",
        packing.loss_now, packing.loss
    )
}
