//! Binds threads to the CPUs of nodes, and restores their affinities. A thread is bound only within its previous affinity, which is recorded before it changes.
//! A thread whose affinity another program has changed since is not touched.

use std::time::Instant;

use numapilot_kernel::KernelError;
use numapilot_kernel::affinity;
use numapilot_kernel::affinity::CpuMask;
use numapilot_kernel::task;
use numapilot_machine::Machine;
use numapilot_placement::Refusal;

use super::bound::Bound;
use super::targets::Targets;
use super::undo_log::Binding;
use super::undo_log::ThreadId;
use super::undo_log::UndoLog;

/// A thread that was moved, with what is needed to undo the move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadMove {
    /// Number of the thread, as policies use it.
    pub thread: u32,
    /// Affinity before this move.
    previous: CpuMask,
}

/// An order to move a thread to a node, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadOrder {
    /// Number of the thread, as policies use it.
    pub thread: u32,
    /// Index of the destination node.
    pub to: usize,
}

/// The outcome of orders.
#[derive(Debug, Default)]
pub struct Moves {
    /// One result per order, in the same order: its duration in nanoseconds.
    pub results: Vec<Result<f64, Refusal>>,
    /// Threads that were moved, in order.
    pub moved: Vec<ThreadMove>,
    /// Error messages.
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

    /// Carries out orders. The threads' affinities are recorded before the first of them changes.
    pub fn carry_out(&self, orders: &[ThreadOrder], targets: &mut Targets, undo_log: &mut dyn UndoLog) -> Moves {
        let mut moves = Moves::default();
        let planned: Vec<Result<Binding, Refusal>> = orders
            .iter()
            .map(|order| {
                let (thread, bound) = find(targets, order.thread).ok_or(Refusal::Gone)?;
                planned(thread, bound.as_ref(), &self.cpus[order.to], &mut moves.troubles)
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
                let Some(thread) = thread_mut(targets, order.thread) else { return Err(Refusal::Gone) };
                thread.node = order.to;
                thread.bound = Some(Bound::after(&binding, thread.bound.take()));
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
        let (mut taken_back, mut free) = (0, Vec::new());
        for back in moves.iter().rev() {
            let Some((id, Some(bound))) = find(targets, back.thread) else { continue };
            let done = is_ours(id, &bound) && affinity::set_thread(id.tid, &back.previous).is_ok();
            taken_back += u64::from(done);
            let Some(thread) = thread_mut(targets, back.thread) else { continue };
            if done && back.previous != bound.before {
                thread.bound = Some(Bound { ours: back.previous.clone(), ..bound });
            } else {
                thread.bound = None;
                free.push(id);
            }
        }
        if !free.is_empty() {
            undo_log.unbound(&free);
        }
        taken_back
    }

    /// Restores the affinities of the threads of one process (`None`: of all). Returns their number.
    pub fn release(&self, pid: Option<u32>, targets: &mut Targets, undo_log: &mut dyn UndoLog) -> u64 {
        let (mut released, mut free) = (0, Vec::new());
        for (_, managed) in targets.all.iter_mut().filter(|(number, _)| pid.is_none_or(|pid| pid == **number)) {
            for (tid, thread) in &mut managed.threads {
                let Some(bound) = thread.bound.take() else { continue };
                let id = ThreadId { pid: managed.target.pid, tid: *tid, start_ticks: thread.start_ticks };
                let is_free = !is_ours(id, &bound) || affinity::set_thread(*tid, &bound.before).is_ok();
                if is_free {
                    released += 1;
                    free.push(id);
                }
            }
        }
        if !free.is_empty() {
            undo_log.unbound(&free);
        }
        released
    }
}

/// Whether the thread id still belongs to this thread.
fn is_that(id: ThreadId) -> bool {
    task::stat_of_thread(id.pid, id.tid).is_ok_and(|stat| stat.start_ticks == id.start_ticks)
}

/// Whether the thread still has the affinity that this program set.
pub(crate) fn is_ours(id: ThreadId, bound: &Bound) -> bool {
    is_that(id) && affinity::of_thread(id.tid).is_ok_and(|mask| mask == bound.ours)
}

/// Finds a thread by the number that policies use, with its binding.
fn find(targets: &Targets, number: u32) -> Option<(ThreadId, Option<Bound>)> {
    targets.all.values().find_map(|managed| {
        let (tid, thread) = managed.threads.iter().find(|(_, thread)| thread.number == number)?;
        Some((ThreadId { pid: managed.target.pid, tid: *tid, start_ticks: thread.start_ticks }, thread.bound.clone()))
    })
}

fn thread_mut(targets: &mut Targets, number: u32) -> Option<&mut super::targets::Thread> {
    targets.all.values_mut().flat_map(|managed| managed.threads.values_mut()).find(|thread| thread.number == number)
}

/// The affinity for a thread on a node: within its affinity before the first binding, or within the one that another program has set since.
pub(crate) fn planned(
    id: ThreadId,
    bound: Option<&Bound>,
    cpus: &CpuMask,
    troubles: &mut Vec<String>,
) -> Result<Binding, Refusal> {
    let was = affinity::of_thread(id.tid).map_err(|error| refusal(id, &error, troubles))?;
    let own = bound.filter(|bound| bound.ours == was).map_or(&was, |bound| &bound.before);
    let now = own.and(cpus);
    if now.is_empty() {
        return Err(Refusal::Unsupported);
    }
    Ok(Binding { thread: id, was, now })
}

pub(crate) fn bind(binding: &Binding) -> Result<(), KernelError> {
    if !is_that(binding.thread) {
        return Err(KernelError::Gone { pid: binding.thread.tid });
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
mod tests {
    //! A sleeping child, bound and let go.

    use std::process::Child;
    use std::process::Command;

    use numapilot_machine::CpuId;

    use super::*;
    use crate::system::undo_log::tests::Kept;

    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A managed child; `None`: this machine has one CPU, so nothing can be bound.
    fn sleeper() -> Option<(Sleeper, Targets, CpuMask, u32)> {
        let child = Sleeper(Command::new("sleep").arg("100").spawn().unwrap());
        let all = affinity::of_thread(child.0.id()).unwrap();
        if all.cpus().len() < 2 {
            numapilot_not_run::not_run!(TwoCpus, "one CPU leaves nothing to bind");
            return None;
        }
        let mut targets = Targets::default();
        targets.add(child.0.id()).unwrap();
        targets.look(&Machine::live().unwrap());
        let number = targets.all[&child.0.id()].threads[&child.0.id()].number;
        Some((child, targets, all, number))
    }

    fn binder(masks: &[&[CpuId]]) -> Binder {
        Binder { cpus: masks.iter().map(|cpus| cpus.iter().copied().collect()).collect() }
    }

    #[test]
    fn threads_are_kept_moved_taken_back_and_released() {
        let Some((child, mut targets, all, thread)) = sleeper() else { return };
        let tid = child.0.id();
        let cpus = all.cpus();
        let binder = binder(&[&cpus[..1], &cpus[1..2], &[CpuId(8000)]]);
        let mut undo_log = Kept::default();
        let to = |to| [ThreadOrder { thread, to }];
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
        let tid = child.0.id();
        let cpus = all.cpus();
        let binder = binder(&[&cpus[..1], &cpus[1..2]]);
        let mut full = Kept { is_full: true, ..Kept::default() };
        let refused = binder.carry_out(&[ThreadOrder { thread, to: 0 }], &mut targets, &mut full);
        assert_eq!((refused.results, affinity::of_thread(tid).unwrap()), (vec![Err(Refusal::Unsupported)], all));
        assert!(refused.troubles[0].contains("no space left"));

        let mut undo_log = Kept::default();
        let moves = binder.carry_out(&[ThreadOrder { thread, to: 0 }], &mut targets, &mut undo_log);
        let theirs: CpuMask = cpus[1..2].iter().copied().collect();
        affinity::set_thread(tid, &theirs).unwrap();
        assert_eq!(binder.take_back(&moves.moved, &mut targets, &mut undo_log), 0);
        assert_eq!((affinity::of_thread(tid).unwrap(), undo_log.threads.len()), (theirs, 0));
        drop(child);
        targets.look(&Machine::live().unwrap());
        let gone = binder.carry_out(&[ThreadOrder { thread, to: 0 }], &mut targets, &mut undo_log);
        assert_eq!((gone.results, gone.troubles.len()), (vec![Err(Refusal::Gone)], 0));
    }
}
