//! Observation: finds the targets' processes, their page uses, and the home nodes of these pages.

use std::collections::BTreeMap;

use numapilot_host::Group;
use numapilot_host::Members;
use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::has_memory;
use numapilot_host::now_ticks;
use numapilot_kernel::KernelError;
use numapilot_kernel::memory::PageState;
use numapilot_kernel::task;
use numapilot_perf_events::EventsError;
use numapilot_perf_events::open::Scope;

use super::Balancer;
use super::BalancerError;
use super::options::Who;
use crate::control_port::ControlPort;
use crate::event::Event;
use crate::event::Target;
use crate::event::Targets as TargetsEvent;
use crate::evidence::observe::Use;
use crate::execution::binding;
use crate::execution::births;
use crate::execution::births::Heir;
use crate::system::fault_sampler::Fault;
use crate::system::fault_sampler::Seen;

/// Maximum number of pages whose home node is read per observation. Other pages are assumed to be on the faulting thread's node until they are observed again.
const ASKED_MAX: usize = 1 << 16;
/// For local uses, the home node of 1 page in this many is read: the kernel moves pages to the nodes that access them, so it has no reason to move these.
const ASKED_IF_LOCAL: u64 = 16;
/// After several decisions without orders, 1 use in this many is evaluated.
const WEIGHED_IF_CALM: u64 = 4;
/// Observations between two listings of a cgroup's or the system's processes.
const LIST_EVERY: u64 = 10;
/// Observations between two listings by which ended processes are forgotten.
const PRUNE_EVERY: u64 = 100;

impl Balancer {
    /// Updates the set of managed processes.
    pub(super) fn look_at_targets(&mut self, control_port: &mut dyn ControlPort) {
        if self.run_stats.looks().is_multiple_of(LIST_EVERY) {
            self.find_targets(control_port);
        }
        if self.run_stats.looks() % PRUNE_EVERY == PRUNE_EVERY - 1 {
            self.forget_ended();
        }
        self.claim_new(control_port);
        let (changes, _) = self.targets.look_at_all(&self.machine, &mut || control_port.alive());
        changes.left.iter().for_each(|(pid, bindings)| binding::release_unseen(*pid, |_| false, bindings));
        let troubles = self.migration_executor.adopt(&mut self.targets, control_port);
        troubles.into_iter().for_each(|trouble| self.trouble(trouble, control_port));
        changes.ended.iter().for_each(|target| control_port.unclaim(target.pid));
        let record = |because: &str, added: Vec<Target>, removed: Vec<Target>, control_port: &mut dyn ControlPort| {
            if !added.is_empty() || !removed.is_empty() {
                let because = because.to_owned();
                control_port.record(Event::Targets(TargetsEvent { added, removed, because }));
            }
        };
        let ended = !changes.ended.is_empty();
        record("ended", Vec::new(), changes.ended, control_port);
        record("exec", changes.execs, Vec::new(), control_port);
        if ended {
            self.close_events();
        }
    }

    /// Closes the events of processes that are managed no longer: sampling slows a process down.
    pub(super) fn close_events(&mut self) {
        let all = &self.targets.all;
        let start_of = |pid: Pid| all.get(&pid).map(|managed| managed.target.start_ticks);
        self.fault_sampler.sets.close_ended(start_of);
        if let Some(samples) = &mut self.samples {
            samples.sets.close_ended(start_of);
        }
    }

    /// A process has inherited the events of the one that started it.
    pub(super) fn inherits(&mut self, heir: Heir) {
        self.fault_sampler.sets.inherits(heir.pid, heir.parent, heir.start_ticks);
        if let Some(samples) = &mut self.samples {
            samples.sets.inherits(heir.pid, heir.parent, heir.start_ticks);
        }
    }

    /// Forgets processes that have inherited events and ended: others get their numbers.
    fn forget_ended(&mut self) {
        // Events of the whole system have all processes.
        if self.options.who == Who::System {
            return;
        }
        let Ok(listed) = task::processes() else { return };
        let all = &self.targets.all;
        let start_of = |pid: Pid| match all.get(&pid) {
            Some(managed) => Some(managed.target.start_ticks),
            None => listed.binary_search(&pid).ok().and_then(|_| task::start_ticks_of(pid)),
        };
        self.fault_sampler.sets.prune(start_of);
        if let Some(samples) = &mut self.samples {
            samples.sets.prune(start_of);
        }
    }

    /// The processes of a group that is watched from its start, with one set of events for all of them.
    ///
    /// # Errors
    /// A named process does not exist, or the kernel refuses the events of all of them.
    pub(super) fn find_group(&mut self) -> Result<(), BalancerError> {
        let Who::Group(group) = self.options.who.clone() else { return Ok(()) };
        let root = &Root::default();
        let mut members = Members::new(group.clone());
        members.refresh(root);
        if let Group::Processes(pids) | Group::Trees(pids) = &group
            && let Some(gone) = pids.iter().find(|pid| !members.contains(**pid))
        {
            return Err(KernelError::Gone { pid: *gone }.into());
        }
        let own = Pid::own();
        let pids: Vec<Pid> = members.pids().into_iter().filter(|pid| *pid != own && has_memory(root, *pid)).collect();
        if !pids.is_empty() {
            let scope = Scope::Processes(pids.clone());
            self.denied = self.fault_sampler.open(&scope)?;
            if let Some(error) = self.samples.as_mut().and_then(|samples| samples.open(&scope, &self.machine).err()) {
                self.refused = Some(format!("accesses of these processes cannot be sampled: {error}"));
            }
        }
        let opened = now_ticks();
        for pid in pids.into_iter().filter(|pid| !self.denied.contains(pid)).collect::<Vec<_>>() {
            self.add_member(pid)?;
        }
        // Those that were started while events were opened, before their parents had any.
        for member in members.refresh(root).into_iter().filter(|member| member.start_ticks <= opened) {
            if has_memory(root, member.pid) && member.pid != own {
                self.add_member(member.pid)?;
            }
        }
        self.members = Some(members);
        Ok(())
    }

    /// A process that has ended meanwhile is no error.
    fn add_member(&mut self, pid: Pid) -> Result<(), BalancerError> {
        match self.add_process(pid) {
            Ok(()) | Err(BalancerError::Kernel(KernelError::Gone { .. })) => Ok(()),
            Err(BalancerError::Source(EventsError::NoProcess { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Members of the group that have joined. What a member has started inherits its events.
    fn joined(&mut self) -> Vec<Pid> {
        let Some(members) = &mut self.members else { return Vec::new() };
        let joined = members.refresh(&Root::default());
        for member in joined.iter().filter(|member| member.is_child) {
            let start_ticks = Some(member.start_ticks);
            self.inherits(Heir { pid: member.pid, parent: Some(member.parent), start_ticks });
        }
        joined.into_iter().map(|member| member.pid).collect()
    }

    fn find_targets(&mut self, control_port: &mut dyn ControlPort) {
        let found = match &self.options.who {
            Who::Child => return,
            Who::System => task::processes().map_err(BalancerError::from),
            Who::Group(_) => {
                let joined = self.joined();
                let missing = self.members.as_ref().map(Members::missing).unwrap_or_default();
                missing.into_iter().for_each(|what| self.trouble(what, control_port));
                Ok(joined)
            }
        };
        let pids = match found {
            Ok(pids) => pids,
            Err(error) => return self.trouble(error.to_string(), control_port),
        };
        self.removed.retain(|(pid, start)| task::start_ticks_of(*pid) == Some(*start));
        let is_removed = |pid: &Pid| self.removed.range((*pid, 0)..=(*pid, u64::MAX)).next().is_some();
        let own = Pid::own();
        // Members of a group are told once, when they join.
        let is_listing = self.options.who == Who::System;
        let listing = self.run_stats.looks() / LIST_EVERY;
        if is_listing {
            self.unfit.keep_listed(&pids);
        }
        let is_left_out = |pid: Pid| is_listing && self.unfit.is_left_out(pid, listing);
        let new: Vec<Pid> = pids
            .into_iter()
            .filter(|pid| *pid != own && !self.targets.all.contains_key(pid) && !is_removed(pid) && !is_left_out(*pid))
            .collect();
        let mut added = Vec::new();
        for pid in new {
            let found = self.add_found(pid, control_port);
            if is_listing {
                self.unfit.found(pid, found.is_some());
            }
            added.extend(found);
        }
        if !added.is_empty() {
            self.want_evidence();
            let because = "found".to_owned();
            control_port.record(Event::Targets(TargetsEvent { added, removed: Vec::new(), because }));
        }
    }

    /// Adds a process that was found, and claims it: what another numapilot manages is none of the targets for a moment either. `None`: it cannot be managed.
    fn add_found(&mut self, pid: Pid, control_port: &mut dyn ControlPort) -> Option<Target> {
        if !has_memory(&Root::default(), pid) {
            return None;
        }
        let why = match self.add_process(pid) {
            Ok(()) => match self.claim(pid, control_port) {
                Ok(()) => return self.targets.all.get(&pid).map(|managed| managed.target.clone()),
                Err(why) => why,
            },
            Err(BalancerError::Kernel(KernelError::Gone { .. })) => return None,
            Err(error) => error.to_string(),
        };
        self.targets.all.remove(&pid);
        self.close_events();
        self.trouble(why, control_port);
        None
    }

    /// Reads the rings. Children of targets become targets.
    pub(super) fn look_at_rings(&mut self, control_port: &mut dyn ControlPort) -> Seen {
        let mut seen = self.fault_sampler.look();
        if let Some(samples) = &mut self.samples {
            samples.look(&self.machine, &mut seen);
        }
        self.online_cpus.returned(&seen.returned);
        let takes_children = !matches!(self.options.who, Who::Group(Group::Processes(_)));
        let births = births::take_in(&mut self.targets, &seen.news, takes_children);
        births.heirs.into_iter().for_each(|heir| self.inherits(heir));
        self.run_stats.left_out(births.left_out);
        births.troubles.into_iter().for_each(|trouble| self.trouble(trouble, control_port));
        if !births.added.is_empty() {
            self.want_evidence();
            let because = "started by a target".to_owned();
            control_port.record(Event::Targets(TargetsEvent { added: births.added, removed: Vec::new(), because }));
        }
        seen
    }

    /// Returns the faults and samples that are uses of present pages, with these pages' home nodes, and the number of uses that were skipped. First touches
    /// only set home nodes.
    pub(super) fn uses(&mut self, faults: &[Fault]) -> (Vec<Use>, u64) {
        let mut uses = Vec::with_capacity(faults.len());
        let mut ask: Vec<(Pid, PageNumber)> = Vec::new();
        let turn = self.run_stats.looks() % ASKED_IF_LOCAL;
        let weighed = if self.gate.is_calm() { WEIGHED_IF_CALM } else { 1 };
        let mut passed_over = 0;
        for managed in self.targets.all.values_mut() {
            managed.samples = (0, 0);
            managed.hot.fade(self.interval.as_secs_f64());
        }
        for fault in faults {
            let Some(managed) = self.targets.all.get_mut(&fault.pid) else { continue };
            if fault.time_ns < managed.known_since_ns {
                continue;
            }
            if let Some(access) = fault.access {
                self.measured[fault.node] += access.weight as f64;
                if let Some(home) = access.home {
                    managed.homes.set(fault.page, fault.page + 1, home);
                }
            }
            let is_large = managed.is_huge(fault.page);
            let known = managed.homes.of(fault.page);
            // Pages take turns, so that no page is skipped every time.
            if known.is_some() && !(fault.page.0 + self.run_stats.looks()).is_multiple_of(weighed) {
                passed_over += 1;
                continue;
            }
            if known != Some(fault.node) || fault.page.0 % ASKED_IF_LOCAL == turn {
                ask.push((fault.pid, fault.page));
            }
            let Some(home) = known else {
                // A first touch places the page on the thread's node; a sampled access may be remote.
                if fault.access.is_none() {
                    managed.homes.set(fault.page, fault.page + 1, fault.node);
                }
                continue;
            };
            let thread = managed.threads.get(&fault.tid).map_or(0, |thread| thread.number);
            let used = Use {
                process: managed.number(),
                page: fault.page,
                is_large,
                thread,
                from: fault.node,
                home,
                is_sampled: fault.access.is_some(),
                is_read_only: false,
            };
            let id = managed.page_id(used.key().page);
            self.table.saw(id, used.from, home);
            managed.samples.0 += 1;
            managed.samples.1 += u64::from(home == fault.node);
            managed.hot.saw(fault.page, home == fault.node);
            uses.push(used);
        }
        if self.copies.is_some() {
            let pid_of: BTreeMap<u32, Pid> =
                self.targets.all.iter().map(|(pid, managed)| (managed.number(), *pid)).collect();
            let as_known = |used: Use| pid_of.get(&used.process).map_or(used, |pid| self.as_file_use(*pid, used));
            uses = uses.into_iter().map(as_known).collect();
        }
        ask.sort_unstable();
        ask.dedup();
        ask.truncate(ASKED_MAX);
        self.ask_homes(&ask);
        (uses, passed_over)
    }

    /// Reads the present home nodes of these pages: the kernel may have moved them at the fault.
    fn ask_homes(&mut self, ask: &[(Pid, PageNumber)]) {
        let (mut addresses, mut states) = (Vec::new(), Vec::new());
        for part in ask.chunk_by(|a, b| a.0 == b.0) {
            let pid = part[0].0;
            let Some(managed) = self.targets.all.get_mut(&pid) else { continue };
            addresses.clear();
            addresses.extend(part.iter().map(|(_, page)| page.address()));
            states.clear();
            if self.query.states(pid, &addresses, &mut states).is_err() {
                continue;
            }
            for (&(_, page), state) in part.iter().zip(&states) {
                let home = state.node().and_then(|node| self.machine.node_index(node));
                let (first, pages) =
                    if managed.is_huge(page) { (page.large_start(), PageNumber::PER_LARGE) } else { (page, 1) };
                match home {
                    Some(home) => {
                        managed.homes.set(first, first + pages, home);
                        self.table.is_at(managed.page_id(first), home);
                    }
                    None => {
                        managed.homes.clear(page, page + 1);
                        // Of a large page that lacks a part, the rest is there.
                        if pages == 1 && matches!(state, PageState::Absent | PageState::Unmapped) {
                            self.table.forget(managed.page_id(page));
                        }
                    }
                }
            }
        }
    }
}
