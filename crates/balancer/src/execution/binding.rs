//! Binds threads to the CPUs of nodes, and restores their affinities. A thread is bound only within its previous affinity, which is recorded before it changes.
//! A thread whose affinity another program has changed since is not touched.
//!
//! What a bound thread creates, threads and processes, inherits its affinity. It is recognised at its first look ([`adopt`]), recorded as bound threads are,
//! and gets back what its creator was allowed before: when the creator's binding is undone or released, or the loop ends.

use std::time::Instant;

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_kernel::KernelError;
use numapilot_kernel::affinity;
use numapilot_kernel::affinity::CpuMask;
use numapilot_kernel::task;
use numapilot_kernel::thread_cpus;
use numapilot_machine::Machine;
use numapilot_machine::NodeIndex;
use numapilot_machine::NodeSet;
use numapilot_placement::Refusal;

use crate::system::bound::Bound;
use crate::system::targets::ManagedProcess;
use crate::system::targets::Targets;
use crate::system::undo_log::Binding;
use crate::system::undo_log::ThreadId;
use crate::system::undo_log::UndoLog;

/// Passes over a process's threads at its release, because new ones may be created meanwhile.
const PASSES: usize = 4;

/// A thread that was moved, with what is needed to undo the move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadMove {
    /// Number of the thread, as policies use it.
    pub thread: u32,
    /// Affinity before this move.
    previous: CpuMask,
}

/// An order to move a thread to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadOrder {
    /// Number of the thread, as policies use it.
    pub thread: u32,
    /// Position of the node that it is bound to.
    pub to: NodeIndex,
}

/// The outcome of orders.
#[derive(Debug, Default)]
pub struct Moves {
    /// One result per order, in the same order: its duration in nanoseconds.
    pub results: Vec<Result<f64, Refusal>>,
    /// Threads that were moved, in order.
    pub moved: Vec<ThreadMove>,
    /// What failed, a sentence each.
    pub troubles: Vec<String>,
}

/// Binds threads to the CPUs of nodes.
#[derive(Debug)]
pub struct Binder {
    cpus: Vec<CpuMask>,
}

impl Binder {
    /// Makes a binder for this machine.
    #[must_use]
    pub fn new(machine: &Machine) -> Binder {
        Binder { cpus: machine.nodes().iter().map(|node| node.cpus.iter().copied().collect()).collect() }
    }

    /// Nodes that an order may name for a thread; none where any would be refused. `online`: the CPUs that are, read once for many threads.
    #[must_use]
    pub fn nodes_for(&self, id: ThreadId, bound: Option<&Bound>, online: Option<&CpuMask>) -> NodeSet {
        // What the kernel answers to an order is said when there is one.
        let Ok(reach) = Reach::of(id, bound, online, &mut Vec::new()) else { return NodeSet::default() };
        let nodes = NodeIndex::all(self.cpus.len());
        nodes.filter(|node| !reach.cpus.and(&self.cpus[*node]).is_empty()).collect()
    }

    /// Carries out orders. The threads' affinities are recorded before the first of them changes.
    pub fn carry_out(&self, orders: &[ThreadOrder], targets: &mut Targets, undo_log: &mut dyn UndoLog) -> Moves {
        let mut moves = Moves::default();
        let online = if orders.is_empty() { None } else { affinity::online() };
        let planned: Vec<Result<Binding, Refusal>> = orders
            .iter()
            .map(|order| {
                let (thread, bound) = find(targets, order.thread).ok_or(Refusal::Gone)?;
                planned(thread, bound.as_ref(), &self.cpus[order.to], online.as_ref(), &mut moves.troubles)
            })
            .collect();
        let bindings: Vec<Binding> = planned.iter().filter_map(|plan| plan.as_ref().ok().cloned()).collect();
        let kept = if bindings.is_empty() { Ok(()) } else { undo_log.will_bind(&bindings) };
        let mut useless = Vec::new();
        for (order, plan) in orders.iter().zip(planned) {
            let result = plan.and_then(|binding| {
                kept.as_ref().map_err(|_| Refusal::Unsupported)?;
                let begun = Instant::now();
                bind(&binding).map_err(|error| {
                    useless.push(binding.thread);
                    refusal(binding.thread, &error, &mut moves.troubles)
                })?;
                let Some((managed, tid)) = thread_mut(targets, order.thread) else { return Err(Refusal::Gone) };
                let Some(thread) = managed.threads.get_mut(&tid) else { return Err(Refusal::Gone) };
                thread.node = order.to;
                let bound = Bound::after(&binding, thread.bound.take());
                thread.bound = Some(bound.clone());
                managed.was_bound(&bound);
                moves.moved.push(ThreadMove { thread: order.thread, previous: binding.was });
                Ok(begun.elapsed().as_nanos() as f64)
            });
            moves.results.push(result);
        }
        if let Err(why) = kept {
            moves.troubles.push(format!("threads are not moved: {why}"));
        }
        // A binding that was recorded and then failed needs no undo, unless an earlier one does.
        useless.retain(|id| {
            let thread = targets.all.get(&id.pid).and_then(|managed| managed.threads.get(&id.tid));
            thread.is_none_or(|thread| thread.bound.is_none())
        });
        if !useless.is_empty() {
            undo_log.unbound(&useless);
        }
        moves
    }

    /// Undoes moves, the last first. Returns the number of threads with their affinity restored.
    pub fn take_back(&self, moves: &[ThreadMove], targets: &mut Targets, undo_log: &mut dyn UndoLog) -> u64 {
        let (mut taken_back, mut free, mut undone) = (0, Vec::new(), Vec::new());
        for back in moves.iter().rev() {
            let Some((id, Some(bound))) = find(targets, back.thread) else { continue };
            let done = is_ours(id, &bound) && thread_cpus::restore(id.pid, id.tid, &back.previous).is_ok();
            taken_back += u64::from(done);
            let Some(thread) =
                thread_mut(targets, back.thread).and_then(|(managed, tid)| managed.threads.get_mut(&tid))
            else {
                continue;
            };
            undone.push((id.pid, bound.clone()));
            if done && back.previous != bound.before {
                thread.bound = Some(Bound { ours: back.previous.clone(), ..bound });
            } else {
                thread.bound = None;
                free.push(id);
            }
        }
        for (pid, bound) in undone {
            release_heirs(pid, &bound, targets, &mut free);
        }
        if !free.is_empty() {
            undo_log.unbound(&free);
        }
        taken_back
    }

    /// Restores the affinities of the threads of one process (`None`: of all), and those that others inherited from them. Returns the number of the former.
    pub fn release(&self, pid: Option<Pid>, targets: &mut Targets, undo_log: &mut dyn UndoLog) -> u64 {
        let (mut released, mut free, mut given_up) = (0, Vec::new(), Vec::new());
        for (_, managed) in targets.all.iter_mut().filter(|(number, _)| pid.is_none_or(|pid| pid == **number)) {
            let bindings = std::mem::take(&mut managed.bindings);
            for (tid, thread) in &mut managed.threads {
                let Some(bound) = thread.bound.take() else { continue };
                let id = ThreadId { pid: managed.target.pid, tid: *tid, start_ticks: thread.start_ticks };
                let is_free = !is_ours(id, &bound) || thread_cpus::restore(id.pid, *tid, &bound.before).is_ok();
                if is_free {
                    released += 1;
                    free.push(id);
                }
            }
            if !bindings.is_empty() {
                release_unseen(managed.target.pid, |tid| managed.threads.contains_key(&tid), &bindings);
            }
            given_up.extend(bindings.into_iter().map(|bound| (managed.target.pid, bound)));
        }
        for (pid, bound) in given_up {
            release_heirs(pid, &bound, targets, &mut free);
        }
        if !free.is_empty() {
            undo_log.unbound(&free);
        }
        released
    }
}

/// Registers new threads that have inherited the affinity of a bound one: recorded like bindings, and restored with them; at once, where no thread has that
/// binding any more. Returns error messages.
pub fn adopt(targets: &mut Targets, undo_log: &mut dyn UndoLog) -> Vec<String> {
    if !targets.has_bindings() {
        targets
            .all
            .values_mut()
            .flat_map(|managed| managed.threads.values_mut())
            .for_each(|thread| thread.is_new = false);
        return Vec::new();
    }
    let threads = targets.all.values().flat_map(|managed| managed.threads.values());
    let mut held: Vec<CpuMask> = Vec::new();
    for bound in threads.filter_map(|thread| thread.bound.as_ref()) {
        if !held.contains(&bound.ours) {
            held.push(bound.ours.clone());
        }
    }
    let mut adopted = Vec::new();
    for managed in targets.all.values_mut() {
        let pid = managed.target.pid;
        for (tid, thread) in managed.threads.iter_mut().filter(|(_, thread)| thread.is_new) {
            thread.is_new = false;
            if managed.bindings.is_empty() || thread.bound.is_some() {
                continue;
            }
            let id = ThreadId { pid, tid: *tid, start_ticks: thread.start_ticks };
            let Ok(mask) = affinity::of_thread(*tid) else { continue };
            let inherited = Bound::inherited(&mask, &managed.bindings).filter(|bound| is_ours(id, bound));
            let Some(bound) = inherited else { continue };
            // Its creator's binding was undone, or has ended with it, before this thread was seen.
            if !held.contains(&bound.ours) && thread_cpus::restore(pid, *tid, &bound.before).is_ok() {
                continue;
            }
            adopted.push(Binding { thread: id, was: bound.before.clone(), now: bound.ours.clone() });
            thread.bound = Some(bound);
        }
    }
    if adopted.is_empty() {
        return Vec::new();
    }
    // They are bound already; without a record they get back their affinities at the end, but not after a kill.
    let kept = undo_log.will_bind(&adopted);
    kept.err().map(|why| format!("affinities that new threads inherited are not recorded: {why}")).into_iter().collect()
}

/// Restores the affinities that other threads inherited from a binding of a process that is no more: those of the process, and of the processes that it
/// started. While another thread of the process is bound alike, any of them may be that thread's, and they stay.
fn release_heirs(pid: Pid, gone: &Bound, targets: &mut Targets, free: &mut Vec<ThreadId>) {
    let is_bound_alike = |managed: &ManagedProcess| {
        let mut bindings = managed.threads.values().filter_map(|thread| thread.bound.as_ref());
        bindings.any(|bound| !bound.is_inherited && bound.ours == gone.ours)
    };
    if targets.all.get(&pid).is_some_and(is_bound_alike) {
        return;
    }
    let heirs: Vec<Pid> = targets.all.keys().copied().filter(|heir| targets.is_of(*heir, pid)).collect();
    for heir in heirs {
        let Some(managed) = targets.all.get_mut(&heir) else { continue };
        for (tid, thread) in &mut managed.threads {
            let Some(bound) = thread.bound.take_if(|bound| bound.is_inherited && bound.ours == gone.ours) else {
                continue;
            };
            let id = ThreadId { pid: heir, tid: *tid, start_ticks: thread.start_ticks };
            if !is_ours(id, &bound) || thread_cpus::restore(heir, *tid, &bound.before).is_ok() {
                free.push(id);
            } else {
                thread.bound = Some(bound);
            }
        }
    }
}

/// Restores the affinities of a process's threads that have inherited one of these bindings and are not `known`: they were created since the last look, or
/// their process was never looked at.
pub(crate) fn release_unseen(pid: Pid, known: impl Fn(Tid) -> bool, bindings: &[Bound]) {
    let passes = if bindings.is_empty() { 0 } else { PASSES };
    for _ in 0..passes {
        let mut restored = 0;
        for tid in task::threads_of(pid).unwrap_or_default().into_iter().filter(|tid| !known(*tid)) {
            let inherited = affinity::of_thread(tid).ok().and_then(|mask| Bound::inherited(&mask, bindings));
            restored += u32::from(inherited.is_some_and(|bound| thread_cpus::restore(pid, tid, &bound.before).is_ok()));
        }
        if restored == 0 {
            return;
        }
    }
}

/// Whether the thread id still belongs to this thread.
fn is_that(id: ThreadId) -> bool {
    task::stat_of_thread(id.pid, id.tid).is_ok_and(|stat| stat.start_ticks == id.start_ticks)
}

/// Whether the thread still has the affinity that this program set.
pub(crate) fn is_ours(id: ThreadId, bound: &Bound) -> bool {
    let is_still = |mask: CpuMask| {
        mask == bound.ours || thread_cpus::is_still(id.pid, &mask, &bound.ours, affinity::online().as_ref())
    };
    is_that(id) && affinity::of_thread(id.tid).is_ok_and(is_still)
}

/// As [`is_ours`], with the CPUs that are online, which are read once for many threads.
pub(crate) fn is_ours_with(id: ThreadId, bound: &Bound, online: Option<&CpuMask>) -> bool {
    is_that(id) && affinity::of_thread(id.tid).is_ok_and(|mask| affinity::is_still_with(&mask, &bound.ours, online))
}

/// Finds a thread by the number that policies use, with its binding.
fn find(targets: &Targets, number: u32) -> Option<(ThreadId, Option<Bound>)> {
    targets.all.values().find_map(|managed| {
        let (tid, thread) = managed.threads.iter().find(|(_, thread)| thread.number == number)?;
        Some((ThreadId { pid: managed.target.pid, tid: *tid, start_ticks: thread.start_ticks }, thread.bound.clone()))
    })
}

/// Finds a thread by the number that policies use: its process and its id.
fn thread_mut(targets: &mut Targets, number: u32) -> Option<(&mut ManagedProcess, Tid)> {
    targets.all.values_mut().find_map(|managed| {
        let tid = managed.threads.iter().find(|(_, thread)| thread.number == number).map(|(tid, _)| *tid)?;
        Some((managed, tid))
    })
}

/// The affinity for a thread on a node: within its affinity before the first binding, or within the one that another program has set since. `online`: the CPUs
/// that are, read once for all threads of a pass.
pub(crate) fn planned(
    id: ThreadId,
    bound: Option<&Bound>,
    cpus: &CpuMask,
    online: Option<&CpuMask>,
    troubles: &mut Vec<String>,
) -> Result<Binding, Refusal> {
    Ok(Aim::of(id, bound, cpus, online, troubles)?.binding(id, online))
}

/// As [`planned`]; `None`: the thread has that affinity already. That is so of most threads at most looks, and their status files are then not read.
pub(crate) fn planned_change(
    id: ThreadId,
    bound: Option<&Bound>,
    cpus: &CpuMask,
    online: Option<&CpuMask>,
    troubles: &mut Vec<String>,
) -> Result<Option<Binding>, Refusal> {
    let aim = Aim::of(id, bound, cpus, online, troubles)?;
    Ok(if aim.is_reached(online) { None } else { Some(aim.binding(id, online)) })
}

/// A thread's affinity, and the CPUs on which this program may let it run.
struct Reach<'b> {
    shown: CpuMask,
    /// Its binding, if no other program has changed that since.
    bound: Option<&'b Bound>,
    cpus: CpuMask,
}

impl<'b> Reach<'b> {
    fn of(
        id: ThreadId,
        bound: Option<&'b Bound>,
        online: Option<&CpuMask>,
        troubles: &mut Vec<String>,
    ) -> Result<Reach<'b>, Refusal> {
        if affinity::is_real_time(id.tid) {
            return Err(Refusal::Unsupported);
        }
        let shown = affinity::of_thread(id.tid).map_err(|error| refusal(id, &error, troubles))?;
        let bound = bound.filter(|bound| thread_cpus::is_still(id.pid, &shown, &bound.ours, online));
        // Only CPUs that are online: kernels differ in whether they keep the others.
        let cpus = match (bound, online) {
            (None, _) => shown.clone(),
            (Some(bound), Some(online)) => bound.before.and(online),
            (Some(bound), None) => bound.before.clone(),
        };
        Ok(Reach { shown, bound, cpus })
    }
}

/// A thread's affinity, and the one that it is to have.
struct Aim<'b> {
    shown: CpuMask,
    /// Its binding, if no other program has changed that since.
    bound: Option<&'b Bound>,
    now: CpuMask,
}

impl<'b> Aim<'b> {
    fn of(
        id: ThreadId,
        bound: Option<&'b Bound>,
        cpus: &CpuMask,
        online: Option<&CpuMask>,
        troubles: &mut Vec<String>,
    ) -> Result<Aim<'b>, Refusal> {
        let Reach { shown, bound, cpus: within } = Reach::of(id, bound, online, troubles)?;
        let now = within.and(cpus);
        if now.is_empty() { Err(Refusal::Unsupported) } else { Ok(Aim { shown, bound, now }) }
    }

    /// Whether the thread has that affinity. What it may use of the CPUs that are offline is none of its nodes' today.
    fn is_reached(&self, online: Option<&CpuMask>) -> bool {
        affinity::is_still_with(&self.now, self.bound.map_or(&self.shown, |bound| &bound.ours), online)
    }

    fn binding(self, id: ThreadId, online: Option<&CpuMask>) -> Binding {
        // What was set, by which the binding is known afterwards: not without the CPUs that are offline now.
        let was = match self.bound {
            Some(bound) => bound.ours.clone(),
            None => affinity::with_offline(id.tid, &self.shown, online),
        };
        Binding { thread: id, was, now: self.now }
    }
}

pub(crate) fn bind(binding: &Binding) -> Result<(), KernelError> {
    if !is_that(binding.thread) {
        return Err(KernelError::Gone { pid: Pid::of_task(binding.thread.tid) });
    }
    affinity::set_thread(binding.thread.tid, &binding.now)
}

fn refusal(id: ThreadId, error: &KernelError, troubles: &mut Vec<String>) -> Refusal {
    if matches!(error, KernelError::Gone { .. }) {
        return Refusal::Gone;
    }
    troubles.push(format!("thread {} of process {}: {error}", id.tid, id.pid));
    Refusal::Unsupported
}

#[cfg(test)]
pub(crate) mod tests {
    //! A sleeping child, bound and let go.

    use std::process::Child;
    use std::process::Command;

    use numapilot_machine::CpuId;

    use super::*;
    use crate::system::targets::Started;
    use crate::system::undo_log::tests::Kept;

    /// A child that ends with its test.
    pub(crate) struct Sleeper(pub(crate) Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A managed child; `None`: this machine has one CPU, so nothing can be bound.
    fn sleeper() -> Option<(Sleeper, Targets, CpuMask, u32)> {
        let child = Sleeper(Command::new("sleep").arg("100").spawn().unwrap());
        let all = affinity::of_thread(Tid::first_of(Pid::of_child(&child.0))).unwrap();
        if all.cpus().len() < 2 {
            numapilot_not_run::not_run!(TwoCpus, "one CPU leaves nothing to bind");
            return None;
        }
        let mut targets = Targets::default();
        targets.add(Pid::of_child(&child.0)).unwrap();
        targets.look(&Machine::live().unwrap());
        let number = targets.all[&Pid::of_child(&child.0)].threads[&Tid::first_of(Pid::of_child(&child.0))].number;
        Some((child, targets, all, number))
    }

    /// A binder for nodes with these CPUs.
    pub(crate) fn binder(masks: &[&[CpuId]]) -> Binder {
        Binder { cpus: masks.iter().map(|cpus| cpus.iter().copied().collect()).collect() }
    }

    /// Orders for other nodes would be refused, and the policy's decision would be lost on them.
    #[test]
    fn a_program_that_binds_its_threads_leaves_them_their_nodes() {
        let Some((child, _, all, _)) = sleeper() else { return };
        let (pid, cpus) = (Pid::of_child(&child.0), all.cpus());
        let (tid, binder) = (Tid::first_of(pid), binder(&[&cpus[..1], &cpus[1..2], &[]]));
        let id = ThreadId { pid, tid, start_ticks: task::stat(pid).unwrap().start_ticks };
        let nodes = |bound: Option<&Bound>| {
            let nodes = binder.nodes_for(id, bound, affinity::online().as_ref());
            nodes.iter().map(|node| node.0).collect::<Vec<_>>()
        };
        assert_eq!(nodes(None), [0, 1], "none on a node without CPUs");
        let own: CpuMask = cpus[1..2].iter().copied().collect();
        affinity::set_thread(tid, &own).unwrap();
        assert_eq!(nodes(None), [1]);
        let bound = Bound { before: all.clone(), ours: own, is_inherited: false };
        assert_eq!(nodes(Some(&bound)), [0, 1], "what this program has bound it may bind otherwise");
    }

    /// The kernel shows an affinity without the CPUs that are offline: such threads were taken for another program's, and stayed bound for good.
    #[test]
    fn a_binding_is_known_after_one_of_its_cpus_went_offline() {
        let Some((child, _, all, _)) = sleeper() else { return };
        let (pid, cpus) = (Pid::of_child(&child.0), all.cpus());
        let tid = Tid::first_of(pid);
        let mask = |cpus: &[CpuId]| -> CpuMask { cpus.iter().copied().collect() };
        affinity::set_thread(tid, &mask(&cpus[..1])).unwrap();
        let id = ThreadId { pid, tid, start_ticks: task::stat(pid).unwrap().start_ticks };
        // No kernel has CPU 8191 online.
        let bound = Bound { before: all.clone(), ours: mask(&[cpus[0], CpuId(8191)]), is_inherited: false };
        assert!(is_ours(id, &bound));
        let online = affinity::online();
        let next = planned(id, Some(&bound), &mask(&cpus[1..2]), online.as_ref(), &mut Vec::new()).unwrap();
        assert_eq!((&next.was, &next.now), (&bound.ours, &mask(&cpus[1..2])), "within what it might do before");
        assert_eq!(Bound::after(&next, Some(bound)).before, all);
    }

    /// Threads with deadlines were bound to the CPUs of one node like any other.
    #[test]
    fn a_real_time_thread_stays_where_it_may_run() {
        let Some((child, mut targets, all, thread)) = sleeper() else { return };
        let fifo = libc::sched_param { sched_priority: 1 };
        let pid = child.0.id().cast_signed();
        // SAFETY: changes the policy of a child of this test, which sleeps; the parameter is only read.
        if unsafe { libc::sched_setscheduler(pid, libc::SCHED_FIFO, &raw const fifo) } != 0 {
            return numapilot_not_run::not_run!(Root, "no real-time policy may be set");
        }
        let (binder, mut undo_log) = (binder(&[&all.cpus()[..1]]), Kept::default());
        let moves = binder.carry_out(&[ThreadOrder { thread, to: NodeIndex(0) }], &mut targets, &mut undo_log);
        assert_eq!((moves.results, undo_log.threads.len()), (vec![Err(Refusal::Unsupported)], 0));
        assert_eq!(affinity::of_thread(Tid::first_of(Pid::of_child(&child.0))).unwrap(), all);
    }

    /// The list of online CPUs was read for every thread at every look, and the status of each thread, although nothing was to be bound.
    #[test]
    fn what_is_online_is_handed_down_and_a_thread_that_is_where_it_should_be_is_left() {
        let Some((child, _, all, _)) = sleeper() else { return };
        let (pid, cpus) = (Pid::of_child(&child.0), all.cpus());
        let tid = Tid::first_of(pid);
        let mask = |cpus: &[CpuId]| -> CpuMask { cpus.iter().copied().collect() };
        let id = ThreadId { pid, tid, start_ticks: task::stat(pid).unwrap().start_ticks };
        let change = |bound: Option<&Bound>, cpus: &CpuMask, online: &CpuMask| {
            planned_change(id, bound, cpus, Some(online), &mut Vec::new())
        };
        assert_eq!(change(None, &all, &all), Ok(None), "it may run on all of them");
        let first = change(None, &mask(&cpus[..1]), &all).unwrap().unwrap();
        assert!(first.now == mask(&cpus[..1]) && affinity::is_still(&all, &first.was));
        bind(&first).unwrap();
        let bound = Bound::after(&first, None);
        assert_eq!(change(Some(&bound), &mask(&cpus[..1]), &all), Ok(None), "bound already");
        assert!(is_ours_with(id, &bound, None));
        // Nothing is online but the first CPU, as far as it is told.
        let online = mask(&cpus[..1]);
        assert_eq!(change(Some(&bound), &mask(&cpus[1..2]), &online), Err(Refusal::Unsupported));
        let next = change(Some(&bound), &mask(&cpus[1..2]), &all).unwrap().unwrap();
        assert_eq!((next.was, next.now), (bound.ours, mask(&cpus[1..2])));
    }

    #[test]
    fn threads_are_kept_moved_taken_back_and_released() {
        let Some((child, mut targets, all, thread)) = sleeper() else { return };
        let tid = Tid::first_of(Pid::of_child(&child.0));
        let cpus = all.cpus();
        let binder = binder(&[&cpus[..1], &cpus[1..2], &[CpuId(8000)]]);
        let mut undo_log = Kept::default();
        let to = |to| [ThreadOrder { thread, to: NodeIndex(to) }];
        let first = binder.carry_out(&to(0), &mut targets, &mut undo_log);
        assert!(first.results[0].is_ok() && first.moved.len() == 1);
        assert_eq!((affinity::of_thread(tid).unwrap().cpus(), undo_log.threads.len()), (cpus[..1].to_vec(), 1));
        let second = binder.carry_out(&to(1), &mut targets, &mut undo_log);
        assert_eq!(affinity::of_thread(tid).unwrap().cpus(), cpus[1..2], "within what it might do before we came");
        assert_eq!(undo_log.threads[0].1, all, "the first is what is kept");
        let nowhere = binder.carry_out(&to(2), &mut targets, &mut undo_log);
        assert_eq!((nowhere.results, nowhere.moved.len()), (vec![Err(Refusal::Unsupported)], 0));

        assert_eq!(binder.take_back(&second.moved, &mut targets, &mut undo_log), 1);
        assert_eq!((affinity::of_thread(tid).unwrap().cpus(), undo_log.threads.len()), (cpus[..1].to_vec(), 1));
        assert_eq!(binder.take_back(&first.moved, &mut targets, &mut undo_log), 1);
        assert_eq!((affinity::of_thread(tid).unwrap(), undo_log.threads.len()), (all.clone(), 0));

        binder.carry_out(&to(1), &mut targets, &mut undo_log);
        assert_eq!((binder.release(None, &mut targets, &mut undo_log), undo_log.threads.len()), (1, 0));
        assert_eq!(affinity::of_thread(tid).unwrap(), all);
    }

    #[test]
    fn what_somebody_else_bound_is_left_alone_and_without_a_record_nothing_moves() {
        let Some((child, mut targets, all, thread)) = sleeper() else { return };
        let tid = Tid::first_of(Pid::of_child(&child.0));
        let cpus = all.cpus();
        let binder = binder(&[&cpus[..1], &cpus[1..2]]);
        let mut full = Kept { is_full: true, ..Kept::default() };
        let refused = binder.carry_out(&[ThreadOrder { thread, to: NodeIndex(0) }], &mut targets, &mut full);
        assert_eq!((refused.results, affinity::of_thread(tid).unwrap()), (vec![Err(Refusal::Unsupported)], all));
        assert!(refused.troubles[0].contains("no space left"));

        let mut undo_log = Kept::default();
        let moves = binder.carry_out(&[ThreadOrder { thread, to: NodeIndex(0) }], &mut targets, &mut undo_log);
        let theirs: CpuMask = cpus[1..2].iter().copied().collect();
        affinity::set_thread(tid, &theirs).unwrap();
        assert_eq!(binder.take_back(&moves.moved, &mut targets, &mut undo_log), 0);
        assert_eq!((affinity::of_thread(tid).unwrap(), undo_log.threads.len()), (theirs, 0));
        drop(child);
        targets.look(&Machine::live().unwrap());
        let gone = binder.carry_out(&[ThreadOrder { thread, to: NodeIndex(0) }], &mut targets, &mut undo_log);
        assert_eq!((gone.results, gone.troubles.len()), (vec![Err(Refusal::Gone)], 0));
    }

    /// A managed program that runs a shell's words, with two CPUs to bind it to.
    pub(crate) fn shell(words: &str) -> Option<(Sleeper, Targets, CpuMask, u32)> {
        let (sleeper, _, all, _) = sleeper()?;
        drop(sleeper);
        let mut command = Command::new("sh");
        command.args(["-c", words]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let child = Sleeper(command.spawn().unwrap());
        let mut targets = Targets::default();
        targets.add(Pid::of_child(&child.0)).unwrap();
        targets.look(&Machine::live().unwrap());
        let number = targets.all[&Pid::of_child(&child.0)].threads[&Tid::first_of(Pid::of_child(&child.0))].number;
        Some((child, targets, all, number))
    }

    /// Lets the shell go on; the process id that it prints.
    pub(crate) fn started_by(shell: &mut Sleeper) -> Pid {
        use std::io::BufRead;
        use std::io::Write;
        shell.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut line = String::new();
        std::io::BufReader::new(shell.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }

    /// Ends a process that the shell has started.
    pub(crate) struct Killed(pub(crate) Pid);

    impl Drop for Killed {
        fn drop(&mut self) {
            // SAFETY: a signal to a process that this test has started and nobody has waited for: the shell sleeps.
            unsafe { libc::kill(self.0.0.cast_signed(), libc::SIGKILL) };
        }
    }

    #[test]
    fn what_a_bound_program_starts_is_recognised_and_released_with_it() {
        let Some((mut child, mut targets, all, thread)) = shell("read x; sleep 100 & echo $!; wait") else { return };
        let cpus = all.cpus();
        let binder = binder(&[&cpus[..1]]);
        let mut undo_log = Kept::default();
        let moves = binder.carry_out(&[ThreadOrder { thread, to: NodeIndex(0) }], &mut targets, &mut undo_log);
        assert_eq!(moves.moved.len(), 1);
        let heir = Killed(started_by(&mut child));
        assert_eq!(affinity::of_thread(Tid::first_of(heir.0)).unwrap().cpus(), cpus[..1], "the kernel's rule");
        let started = targets.started(heir.0, Pid::of_child(&child.0), true);
        assert!(matches!(started, Started::Joined(Some(_))));
        targets.look(&Machine::live().unwrap());
        assert_eq!(adopt(&mut targets, &mut undo_log), Vec::<String>::new());
        let kept =
            undo_log.threads.iter().find(|(kept, _)| kept.tid == Tid::first_of(heir.0)).map(|(_, was)| was.clone());
        assert_eq!(kept, Some(all.clone()), "it would get back all of them after a kill, too");
        // Undone with its parent's.
        binder.take_back(&moves.moved, &mut targets, &mut undo_log);
        assert_eq!((affinity::of_thread(Tid::first_of(heir.0)).unwrap(), undo_log.threads.len()), (all, 0));
    }

    #[test]
    fn the_end_restores_what_was_inherited_and_leaves_what_was_chosen() {
        let Some((mut child, mut targets, all, thread)) = shell("read x; sleep 100 & echo $!; wait") else { return };
        let cpus = all.cpus();
        let binder = binder(&[&cpus[..1]]);
        let mut undo_log = Kept::default();
        binder.carry_out(&[ThreadOrder { thread, to: NodeIndex(0) }], &mut targets, &mut undo_log);
        let heir = Killed(started_by(&mut child));
        // Never looked at before the release: a process that was found in the rings at the end.
        targets.add(heir.0).unwrap();
        assert_eq!(targets.all[&heir.0].parent, Some(Pid::of_child(&child.0)));
        assert_eq!(binder.release(None, &mut targets, &mut undo_log), 1);
        assert_eq!((affinity::of_thread(Tid::first_of(heir.0)).unwrap(), undo_log.threads.len()), (all.clone(), 0));

        // One that has chosen other CPUs is not taken for an heir.
        binder.carry_out(&[ThreadOrder { thread, to: NodeIndex(0) }], &mut targets, &mut undo_log);
        let theirs: CpuMask = cpus[1..2].iter().copied().collect();
        affinity::set_thread(Tid::first_of(heir.0), &theirs).unwrap();
        let mut others = Targets::default();
        others.add(heir.0).unwrap();
        others.all.get_mut(&heir.0).unwrap().bindings = targets.all[&Pid::of_child(&child.0)].bindings.clone();
        others.look(&Machine::live().unwrap());
        assert!(adopt(&mut others, &mut undo_log).is_empty());
        assert!(others.all[&heir.0].threads[&Tid::first_of(heir.0)].bound.is_none());
        binder.release(None, &mut others, &mut undo_log);
        assert_eq!(affinity::of_thread(Tid::first_of(heir.0)).unwrap(), theirs);

        // One that is seen first when its creator's binding is no more is not bound for longer.
        affinity::set_thread(Tid::first_of(heir.0), &cpus[..1].iter().copied().collect()).unwrap();
        let mut late = Targets::default();
        late.add(heir.0).unwrap();
        late.all.get_mut(&heir.0).unwrap().bindings = targets.all[&Pid::of_child(&child.0)].bindings.clone();
        late.look(&Machine::live().unwrap());
        assert!(adopt(&mut late, &mut undo_log).is_empty());
        assert_eq!(affinity::of_thread(Tid::first_of(heir.0)).unwrap(), all);
    }
}
