//! `kernel-balancing`: a model of Linux NUMA balancing (`kernel/sched/fair.c`, `mm/mempolicy.c`, mode `NUMA_BALANCING_NORMAL`), with the
//! kernel's constants and rules, driven by [`Action::Unmap`] and the resulting NUMA hinting faults.
//!
//! What differs from the kernel, and why, is in `docs/policies.md`: decisions fall every `step-ms` and not inside the fault; one unit of load per running
//! thread stands for the scheduler's averages; memory tiering and the per-area scan filter of Linux 6.x are left out. `docs/kernel-balancing.md` holds it
//! against Linux 6.12.

mod faults;
mod loads;
mod place;
mod preference;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use numapilot_machine::NodeIndex;

use crate::action::{Action, Refusal};
use crate::error::PlacementError;
use crate::nodes::NodeFacts;
use crate::observation::{HintFault, Observation, PageKey};
use crate::options::{OptionInfo, Options};
use crate::policy::{Policy, PolicyRequirements};
use crate::scan_limits::{ScanLimits, TWO_TICKS_NS};
use crate::scan_process::ScannedProcess;
use faults::{ACTIVE_NODE_FRACTION, FaultTable, Group, is_active_node};
use loads::NodeLoads;

/// A task's first scans may move pages on the first fault (`should_numa_migrate_memory`).
const EARLY_SCANS: u64 = 4;
/// Longest time in nanoseconds between tries to move a task to its preferred node (`numa_migrate_preferred`: `HZ`, one second).
const RETRY_NS: u64 = 1_000_000_000;

/// Policy `kernel-balancing`: a model of Linux's automatic NUMA balancing.
pub(crate) struct KernelBalancing {
    /// Greatest distance between nodes with CPUs, if these are not all equally far ([`NodeFacts::farthest_on_mesh`]).
    farthest: Option<u32>,
    facts: NodeFacts,
    limits: ScanLimits,
    step_ns: u64,
    move_threads: bool,
    processes: BTreeMap<u32, ScannedProcess>,
    tasks: BTreeMap<u32, Task>,
    groups: BTreeMap<u32, Group>,
    /// The last fault on each page: the kernel's `last_cpupid`, without its truncation to eight bits.
    last_fault: HashMap<PageKey, LastFault>,
    /// Tasks that caused the moves of pages ordered last, in order, to charge failures to.
    pending: Vec<(PageKey, u32)>,
    explanation: String,
}

/// The last fault on a page.
#[derive(Clone, Copy, Debug)]
struct LastFault {
    thread: u32,
    from: NodeIndex,
    /// Where the page may be since: where it was, and where it was ordered to.
    homes: [NodeIndex; 2],
}

/// State of a task, as in the kernel's `task_struct`.
#[derive(Clone, Debug)]
struct Task {
    process: u32,
    node: NodeIndex,
    /// Share of the time in which it runs.
    load: f64,
    runtime_ns: u64,
    /// Runtime at which the next scan falls due, less the period (`node_stamp`).
    stamp_ns: u64,
    period_ms: u64,
    period_max_ms: u64,
    passes: u64,
    faults: FaultTable,
    /// Remote, local and failed faults since the period was adapted (`numa_faults_locality`).
    locality: [i64; 3],
    preferred: Option<NodeIndex>,
    group: Option<u32>,
    retry_ns: u64,
    /// Time and runtime of the last placement.
    placed: Option<(u64, u64)>,
}

impl KernelBalancing {
    /// The options of the policy.
    pub const OPTIONS: &[OptionInfo] = &[
        ScanLimits::DELAY,
        ScanLimits::PERIOD_MIN,
        ScanLimits::PERIOD_MAX,
        ScanLimits::SIZE,
        ScanLimits::NS_PER_PAGE,
        OptionInfo::new("move-threads", "on", "whether threads are moved to their memory"),
        OptionInfo::new(
            "step-ms",
            "100",
            "milliseconds between decisions; the kernel decides in each fault, and scans at most every 100 ms",
        ),
    ];

    /// Makes the policy from its options.
    pub fn new(options: &Options, facts: NodeFacts) -> Result<Self, PlacementError> {
        Ok(Self {
            farthest: facts.farthest_on_mesh(),
            facts,
            limits: ScanLimits::new(options)?,
            step_ns: options.whole("step-ms", 1, 60_000)? * 1_000_000,
            move_threads: options.flag("move-threads")?,
            processes: BTreeMap::new(),
            tasks: BTreeMap::new(),
            groups: BTreeMap::new(),
            last_fault: HashMap::new(),
            pending: Vec::new(),
            explanation: String::new(),
        })
    }

    /// Takes in who lives, where, and for how long it ran.
    fn update_tasks(&mut self, seen: &Observation) {
        let start_ns = seen.now_ns.saturating_sub(seen.elapsed_ns);
        let nodes = self.facts.count();
        for thread in seen.threads.iter().filter(|t| t.node.0 < nodes) {
            self.enter(thread.thread, thread.process, thread.node, start_ns);
            let Some(task) = self.tasks.get_mut(&thread.thread) else { continue };
            let busy_ns = if thread.busy_ns.is_finite() { thread.busy_ns.max(0.0) } else { 0.0 };
            task.runtime_ns += busy_ns as u64;
            task.load = (busy_ns / seen.elapsed_ns.max(1) as f64).min(1.0);
            if task.node != thread.node {
                let from = task.node;
                task.node = thread.node;
                self.restart_period(thread.thread, from, thread.node);
            }
        }
        self.retire(seen, start_ns);
        for (process, state) in &mut self.processes {
            state.resident = seen.mapped.iter().filter(|(p, ..)| p == process).map(|(_, _, pages)| pages).sum();
        }
    }

    /// Makes the state of a task, and of its process, where they are new. `start_ns`: when the step began.
    fn enter(&mut self, thread: u32, process_number: u32, node: NodeIndex, start_ns: u64) {
        let nodes = self.facts.count();
        let is_first = !self.processes.contains_key(&process_number);
        let process =
            self.processes.entry(process_number).or_insert_with(|| ScannedProcess::new(start_ns, self.limits.delay_ms));
        self.tasks.entry(thread).or_insert_with(|| Task {
            process: process_number,
            node,
            load: 0.0,
            runtime_ns: 0,
            // A process's first task starts scanning after the delay, later ones soon: another task's scans serve them.
            stamp_ns: if is_first { 0 } else { TWO_TICKS_NS },
            period_ms: self.limits.delay_ms,
            period_max_ms: self.limits.period_max_ms,
            passes: process.passes,
            faults: FaultTable::new(nodes),
            locality: [0; 3],
            preferred: None,
            group: None,
            retry_ns: 0,
            placed: None,
        });
    }

    /// Tasks that ended in this step, of which some began in it: their faults count as the kernel counts them, when they come. They take no CPU any more, and
    /// nothing is placed for them.
    fn retire(&mut self, seen: &Observation, start_ns: u64) {
        let nodes = self.facts.count();
        let alive: BTreeSet<u32> = seen.threads.iter().map(|t| t.thread).collect();
        for fault in seen.hint_faults.iter().filter(|fault| fault.from.0 < nodes && !alive.contains(&fault.thread)) {
            self.enter(fault.thread, fault.page.process, fault.from, start_ns);
        }
        for (_, task) in self.tasks.iter_mut().filter(|(thread, _)| !alive.contains(thread)) {
            (task.load, task.retry_ns) = (0.0, u64::MAX);
        }
    }

    /// Drops what belonged to ended tasks and processes.
    fn forget(&mut self, seen: &Observation) {
        let alive: BTreeSet<u32> = seen.threads.iter().map(|t| t.thread).collect();
        let ended: Vec<u32> = self.tasks.keys().filter(|t| !alive.contains(t)).copied().collect();
        for thread in ended {
            if let Some(task) = self.tasks.remove(&thread) {
                self.leave_group(&task);
            }
        }
        let living: BTreeSet<u32> = self.tasks.values().map(|t| t.process).collect();
        if self.processes.len() > living.len() {
            self.processes.retain(|process, _| living.contains(process));
            self.last_fault.retain(|page, _| living.contains(&page.process));
        }
    }

    fn leave_group(&mut self, task: &Task) {
        let Some(id) = task.group else { return };
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.faults.subtract(&task.faults);
        group.tasks -= 1;
        if group.tasks == 0 {
            self.groups.remove(&id);
        }
    }

    /// A task that comes to another node may have to look again (`update_scan_period`).
    fn restart_period(&mut self, thread: u32, from: NodeIndex, to: NodeIndex) {
        let Some(task) = self.tasks.get(&thread) else { return };
        let settled = Some(to) == task.preferred || task.preferred.is_some_and(|preferred| preferred != from);
        if task.passes > 0 && settled {
            return;
        }
        let start = self.period_start_ms(task);
        if let Some(task) = self.tasks.get_mut(&thread) {
            task.period_ms = start;
        }
    }

    /// Charges moves that failed to the tasks whose faults ordered them: failures slow scanning down.
    fn charge_failures(&mut self, seen: &Observation) {
        let mut pending = std::mem::take(&mut self.pending).into_iter();
        for outcome in &seen.outcomes {
            let Action::Migrate { page, .. } = outcome.action else { continue };
            let Some((_, thread)) = pending.by_ref().find(|(ordered, _)| *ordered == page) else { break };
            let has_failed = matches!(outcome.result, Err(Refusal::NoRoom | Refusal::Busy));
            if let Some(task) = self.tasks.get_mut(&thread).filter(|_| has_failed) {
                task.locality[2] += pages_of(page);
            }
        }
    }

    /// One hint fault (`do_numa_page`): whether the page moves, and what is learnt. May order moves of threads.
    fn fault(&mut self, fault: &HintFault, actions: &mut Vec<Action>) {
        if fault.from.0 >= self.facts.count()
            || fault.home.0 >= self.facts.count()
            || !self.tasks.contains_key(&fault.thread)
        {
            return;
        }
        // The kernel notes who faulted only on pages of another node: `mpol_misplaced` returns before that for a page that the policy in force, "prefer
        // the node one runs on", finds in place (Linux 5.15 and later, and seen there: docs/kernel-balancing.md).
        // Nor on a node without memory, to which no page can move (`should_numa_migrate_memory`, Linux 6.9 and later).
        let last = self.last_fault_on(fault);
        if fault.home != fault.from && self.facts.has_memory(fault.from) {
            let noted = LastFault { thread: fault.thread, from: fault.from, homes: [fault.home, fault.from] };
            self.last_fault.insert(fault.page, noted);
        }
        let goes = self.page_may_move(fault, last) && fault.home != fault.from;
        if goes {
            actions.push(Action::Migrate { page: fault.page, to: fault.from });
            self.pending.push((fault.page, fault.thread));
        }
        let is_private = match last {
            None => true,
            Some((thread, _)) if thread == fault.thread => true,
            Some((thread, _)) => !self.join_group(fault.thread, thread),
        };
        let home_after = if goes { fault.from } else { fault.home };
        let is_local = fault.home == fault.from || self.is_settled(fault.thread, is_private, fault.from, home_after);
        let is_due = self.tasks.get(&fault.thread).is_some_and(|task| fault.time_ns > task.retry_ns);
        if is_due {
            self.place_task(fault.thread, fault.time_ns);
            self.move_to_preferred(fault.thread, fault.time_ns, actions);
        }
        if let Some(task) = self.tasks.get_mut(&fault.thread) {
            let pages = pages_of(fault.page);
            task.faults.count(home_after, fault.from, is_private, pages);
            task.locality[usize::from(is_local)] += pages;
        }
    }

    /// Thread and node of the last fault on a page; `None`: there was none on this memory. A page that is where neither it was nor a fault took it was freed,
    /// and other memory has its address.
    fn last_fault_on(&mut self, fault: &HintFault) -> Option<(u32, NodeIndex)> {
        let last = *self.last_fault.get(&fault.page)?;
        if last.homes.contains(&fault.home) {
            return Some((last.thread, last.from));
        }
        self.last_fault.remove(&fault.page);
        None
    }

    /// Shared faults inside the set of nodes on which a group is active count as local (`task_numa_fault`).
    fn is_settled(&self, thread: u32, is_private: bool, from: NodeIndex, home: NodeIndex) -> bool {
        let group = self.tasks.get(&thread).and_then(|t| t.group).and_then(|id| self.groups.get(&id));
        !is_private && group.is_some_and(|g| g.active_nodes > 1 && is_active_node(g, from) && is_active_node(g, home))
    }

    /// The filter of `should_numa_migrate_memory`: the same node twice in a row, and for shared pages a balance of faults.
    fn page_may_move(&self, fault: &HintFault, last: Option<(u32, NodeIndex)>) -> bool {
        let Some(task) = self.tasks.get(&fault.thread) else { return false };
        if !self.facts.has_memory(fault.from) {
            return false;
        }
        let is_own = last.is_some_and(|(thread, _)| thread == fault.thread);
        let is_early = task.preferred.is_none() || task.passes <= EARLY_SCANS;
        if is_early && (last.is_none() || is_own) {
            return true;
        }
        if last.is_some_and(|(_, node)| node != fault.from) {
            return false;
        }
        let Some(group) = task.group.and_then(|id| self.groups.get(&id)) else { return true };
        if is_own {
            return true;
        }
        let (source, target) = (fault.home, fault.from);
        let (cpu_source, cpu_target) = (group.faults.cpu(source), group.faults.cpu(target));
        if cpu_target > cpu_source * ACTIVE_NODE_FRACTION {
            return true;
        }
        cpu_target * group.faults.memory(source) * 3 > cpu_source * group.faults.memory(target) * 4
    }

    /// Puts two tasks that share a page into one group, if the other's is at least as large (`task_numa_group`). Whether they are in one now or share memory;
    /// tasks of different processes do not join here, because observations do not tell which mappings are shared.
    fn join_group(&mut self, thread: u32, other: u32) -> bool {
        let Some(task) = self.tasks.get(&thread) else { return false };
        let process = task.process;
        let mine = task.group.unwrap_or_else(|| {
            let group = Group::of(task.faults.clone());
            self.groups.insert(thread, group);
            thread
        });
        if let Some(task) = self.tasks.get_mut(&thread) {
            task.group = Some(mine);
        }
        // An ended thread has no group to join, and the page is not private for that: the kernel leaves its verdict "shared" (`no_join`).
        let Some(peer) = self.tasks.get(&other) else { return true };
        let (peer_process, theirs) = (peer.process, peer.group);
        let Some(theirs) = theirs.filter(|id| *id != mine) else { return process == peer_process };
        let size = |id: u32| self.groups.get(&id).map_or(0, |g| g.tasks);
        let is_smaller = (size(mine), mine) <= (size(theirs), theirs);
        if !is_smaller || process != peer_process {
            return process == peer_process;
        }
        if let Some(task) = self.tasks.get(&thread).cloned() {
            self.leave_group(&task);
            if let Some(group) = self.groups.get_mut(&theirs) {
                group.faults.add(&task.faults);
                group.tasks += 1;
            }
        }
        if let Some(task) = self.tasks.get_mut(&thread) {
            task.group = Some(theirs);
        }
        true
    }

    /// Orders a try to run a task on its preferred node, and remembers when to try again (`numa_migrate_preferred`).
    fn move_to_preferred(&mut self, thread: u32, now_ns: u64, actions: &mut Vec<Action>) {
        let Some(task) = self.tasks.get_mut(&thread) else { return };
        let Some(preferred) = task.preferred else { return };
        task.retry_ns = now_ns + RETRY_NS.min(task.period_ms * 1_000_000 / 16);
        if task.node == preferred || !self.move_threads {
            return;
        }
        let loads = NodeLoads::of(&self.facts, self.tasks.values().map(|t| (t.node, t.load)));
        for (moved, to) in self.migrate_task(thread, preferred, &loads) {
            actions.push(Action::MoveThread { thread: moved, to });
            let from = self.tasks.get_mut(&moved).map(|task| std::mem::replace(&mut task.node, to));
            if let Some(from) = from {
                self.restart_period(moved, from, to);
            }
        }
    }
}

/// Pages of 4 KiB that a page stands for in fault statistics.
fn pages_of(page: PageKey) -> i64 {
    page.size.small_pages() as i64
}

impl Policy for KernelBalancing {
    fn name(&self) -> &str {
        "kernel-balancing"
    }

    fn requirements(&self) -> PolicyRequirements {
        PolicyRequirements { next_ns: self.step_ns, samples_per_s_and_cpu: 0.0, mapped: true, homes: false }
    }

    fn decide(&mut self, seen: &Observation) -> Vec<Action> {
        self.charge_failures(seen);
        self.update_tasks(seen);
        let mut actions = Vec::new();
        for fault in &seen.hint_faults {
            self.fault(fault, &mut actions);
        }
        self.forget(seen);
        let moves = self.pending.len();
        let threads = actions.len() - moves;
        let unmapped = self.scan(seen, &mut actions);
        let periods = || self.tasks.values().map(|t| t.period_ms);
        self.explanation = format!(
            "{} faults moved {moves} pages and {threads} threads; unmapped {unmapped} pages; scan periods {}-{} ms; {} groups",
            seen.hint_faults.len(),
            periods().min().unwrap_or(0),
            periods().max().unwrap_or(0),
            self.groups.len()
        );
        actions
    }

    fn explain(&self) -> String {
        self.explanation.clone()
    }
}
