//! Carries out a policy's orders by system calls, and reports the outcome of each.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_host::VirtAddr;
use numapilot_kernel::KernelError;
use numapilot_kernel::actuator::MoveOptions;
use numapilot_kernel::actuator::MoveOutcome;
use numapilot_kernel::actuator::MoveRequest;
use numapilot_kernel::actuator::Moved;
use numapilot_kernel::actuator::Mover;
use numapilot_kernel::actuator::PageOutcomes;
use numapilot_kernel::affinity::CpuMask;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_machine::NodeIndex;
use numapilot_machine::NodeSet;
use numapilot_placement::Action;
use numapilot_placement::Outcome;
use numapilot_placement::Refusal;

use crate::execution::binding;
use crate::execution::binding::Binder;
use crate::execution::binding::ThreadMove;
use crate::execution::binding::ThreadOrder;
use crate::execution::progress::Progress;
use crate::page_groups::SharedPages;
use crate::system::targets::ManagedProcess;
use crate::system::targets::Targets;
use crate::system::targets::Thread;
use crate::system::undo_log::ThreadId;
use crate::system::undo_log::UndoLog;

/// The outcome of a batch of orders.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// One outcome per order, in the same order.
    pub outcomes: Vec<Outcome>,
    /// Pages of 4 KiB that were moved: process, page number, the previous node (if known), new node.
    pub moved: Vec<(u32, PageNumber, Option<NodeIndex>, NodeIndex)>,
    /// Orders for pages that the kernel could not move: process, page number.
    pub stayed: Vec<(u32, PageNumber)>,
    /// Orders for pages that the kernel did not move because several processes map them, by their positions among the outcomes.
    pub not_permitted: Vec<usize>,
    /// What became of these.
    pub shared: SharedPages,
    /// Pages of 4 KiB that are there no longer: process, page number.
    pub gone: Vec<(u32, PageNumber)>,
    /// Number of ordered pages by outcome.
    pub pages: PageOutcomes,
    /// Bytes copied between nodes.
    pub moved_bytes: u64,
    /// Nanoseconds spent in the system calls that move.
    pub took_ns: u64,
    /// Threads that were moved.
    pub threads: Vec<ThreadMove>,
    /// Number of threads whose move was undone.
    pub threads_taken_back: u64,
    /// Number of threads that could not be moved.
    pub threads_refused: u64,
    /// Processes that did not answer, by their numbers: their pages were tried.
    pub unanswered: BTreeSet<u32>,
    /// What failed, a sentence each.
    pub troubles: Vec<String>,
}

/// Moves pages and threads.
#[derive(Debug)]
pub struct MigrationExecutor {
    mover: Mover,
    ids: Vec<NodeId>,
    binder: Binder,
}

/// A page order in progress: its index, and its range of move requests.
struct Part {
    order: usize,
    first: usize,
    count: usize,
}

impl MigrationExecutor {
    /// Makes an executor for this machine.
    #[must_use]
    pub fn new(machine: &Machine, options: MoveOptions) -> MigrationExecutor {
        MigrationExecutor {
            mover: Mover::new(options),
            ids: machine.nodes().iter().map(|node| node.id).collect(),
            binder: Binder::new(machine),
        }
    }

    /// Sets other options. What the rate has let through so far stays counted.
    pub fn set_options(&mut self, options: MoveOptions) {
        self.mover.set_options(options);
    }

    /// Carries out orders again, for pages of which the caller knows that all processes that map them may have them moved.
    pub fn carry_out_shared(
        &mut self,
        orders: Vec<Action>,
        targets: &mut Targets,
        progress: &mut dyn Progress,
    ) -> Done {
        let options = self.mover.options();
        self.mover.set_options(MoveOptions { shared: true, ..options });
        let done = self.carry_out(orders, targets, progress);
        self.mover.set_options(options);
        done
    }

    /// Carries out orders. Orders for the pages of one process are gathered into few system calls. If `progress` ends it, what has moved is in the account,
    /// and the other pages are [`MoveOutcome::NotTried`].
    pub fn carry_out(&mut self, orders: Vec<Action>, targets: &mut Targets, progress: &mut dyn Progress) -> Done {
        let mut done = Done::default();
        let mut results: Vec<Result<f64, Refusal>> = vec![Err(Refusal::Unsupported); orders.len()];
        let mut by_process: BTreeMap<u32, (Vec<MoveRequest>, Vec<Part>)> = BTreeMap::new();
        let mut threads: Vec<(usize, ThreadOrder)> = Vec::new();
        for (order, action) in orders.iter().enumerate() {
            match action {
                Action::Migrate { page, to } => {
                    let (requests, parts) = by_process.entry(page.process).or_default();
                    let count = page.size.small_pages();
                    parts.push(Part { order, first: requests.len(), count: count as usize });
                    let to = self.ids[*to];
                    requests
                        .extend(page.page.run(count).map(|page| MoveRequest { to, address: VirtAddr::of_page(page) }));
                }
                Action::MoveThread { thread, to } => {
                    threads.push((order, ThreadOrder { thread: *thread, to: *to }));
                }
                // A stock kernel has no interface to do these to another process.
                Action::Allocate { .. }
                | Action::Replicate { .. }
                | Action::Split { .. }
                | Action::Unmap { .. }
                | Action::ClearAccessed { .. } => {}
            }
        }
        // Threads first, so that memory that the kernel allocates for them meanwhile is local.
        self.move_threads(&threads, targets, progress.undo_log(), (&mut done, &mut results));
        for (process, (requests, parts)) in by_process {
            if progress.goes_on() {
                self.move_pages(process, &requests, &parts, targets, (&mut done, &mut results), progress);
            } else {
                parts.iter().for_each(|part| results[part.order] = Err(Refusal::Busy));
                done.pages.not_tried += parts.len() as u64;
            }
        }
        done.outcomes = orders.into_iter().zip(results).map(|(action, result)| Outcome { action, result }).collect();
        done
    }

    fn move_pages(
        &mut self,
        number: u32,
        requests: &[MoveRequest],
        parts: &[Part],
        targets: &mut Targets,
        (done, results): (&mut Done, &mut [Result<f64, Refusal>]),
        progress: &mut dyn Progress,
    ) {
        let Some(managed) = targets.all.values_mut().find(|managed| managed.number() == number) else {
            parts.iter().for_each(|part| results[part.order] = Err(Refusal::Gone));
            done.pages.gone += parts.len() as u64;
            return;
        };
        let huge = managed.huge.clone();
        let result = self.mover.run(Some(&managed.process), requests, &huge, &mut |_| progress.goes_on());
        match result {
            Ok(moved) => self.account(managed, (requests, parts), &moved, (done, results)),
            Err(error) => {
                let outcome = match error {
                    KernelError::Gone { .. } => MoveOutcome::Gone,
                    // Only for now.
                    ref error if error.is_unanswered() => MoveOutcome::Busy,
                    _ => MoveOutcome::NotPermitted,
                };
                parts.iter().for_each(|part| results[part.order] = Err(refusal_of(outcome)));
                *done.pages.count_mut(outcome) += parts.len() as u64;
                failed(managed, &error, done);
            }
        }
    }

    /// Accounts for the pages of one process.
    fn account(
        &self,
        managed: &mut ManagedProcess,
        (requests, parts): (&[MoveRequest], &[Part]),
        moved: &Moved,
        (done, results): (&mut Done, &mut [Result<f64, Refusal>]),
    ) {
        let number = managed.number();
        let page_ns = moved.moving_ns as f64 / moved.pages.moved.max(1) as f64;
        for part in parts {
            let outcomes = &moved.outcomes[part.first..part.first + part.count];
            let pages = PageOutcomes::of(outcomes);
            results[part.order] = result_of(&pages, outcomes[0], page_ns);
            // An order is about one page, of which one small one may have moved and the first not.
            let outcome = if results[part.order].is_ok() { MoveOutcome::Moved } else { outcomes[0] };
            *done.pages.count_mut(outcome) += 1;
            if outcome == MoveOutcome::NotPermitted {
                done.not_permitted.push(part.order);
            }
            if matches!(outcome, MoveOutcome::Busy | MoveOutcome::NotPermitted | MoveOutcome::Unmovable) {
                done.stayed.push((number, requests[part.first].address.page()));
            }
        }
        if !moved.refused.is_empty() {
            // Its cpuset was changed since it was last read.
            managed.look_at_nodes();
        }
        let pid = managed.target.pid;
        done.troubles.extend(moved.refused.iter().map(|(node, why)| why.error(pid, *node).to_string()));
        done.took_ns += moved.moving_ns;
        // What was not tried may be ordered again. If nothing moves then, that tells what to think of the process.
        if let Some(error) = &moved.failed {
            failed(managed, error, done);
        }
        self.note(managed, requests, moved, done);
    }

    /// Updates the known home nodes. Where a page was before is as it was found: of a large process, the known home of most pages is that of a neighbour.
    fn note(&self, managed: &mut ManagedProcess, requests: &[MoveRequest], moved: &Moved, done: &mut Done) {
        let index_of = |node: NodeId| self.ids.iter().position(|id| *id == node).map(NodeIndex);
        for (at, (request, outcome)) in requests.iter().zip(&moved.outcomes).enumerate() {
            let page = request.address.page();
            let Some(to) = index_of(request.to) else { continue };
            match outcome {
                MoveOutcome::Moved => {
                    let found = moved.from.get(at).copied().flatten().and_then(index_of);
                    done.moved.push((managed.number(), page, found.or_else(|| managed.homes.of(page)), to));
                    managed.homes.set(page, page + 1, to);
                    managed.moved_bytes += PageNumber::BYTES;
                    done.moved_bytes += PageNumber::BYTES;
                }
                MoveOutcome::AlreadyThere => managed.homes.set(page, page + 1, to),
                MoveOutcome::Gone => {
                    managed.homes.clear(page, page + 1);
                    done.gone.push((managed.number(), page));
                }
                _ => {}
            }
        }
    }

    fn move_threads(
        &self,
        orders: &[(usize, ThreadOrder)],
        targets: &mut Targets,
        undo_log: &mut dyn UndoLog,
        (done, results): (&mut Done, &mut [Result<f64, Refusal>]),
    ) {
        let wanted: Vec<ThreadOrder> = orders.iter().map(|(_, order)| *order).collect();
        let mut moves = self.binder.carry_out(&wanted, targets, undo_log);
        for ((order, _), result) in orders.iter().zip(moves.results) {
            done.threads_refused += u64::from(result.is_err());
            results[*order] = result;
        }
        done.threads = moves.moved;
        done.troubles.append(&mut moves.troubles);
    }

    /// Nodes that an order may name for a thread. One that has not run asks for no system call: nothing is gained by moving it, so none are named.
    #[must_use]
    pub fn nodes_for(&self, pid: Pid, tid: Tid, thread: &Thread, online: Option<&CpuMask>) -> NodeSet {
        if thread.busy <= 0.0 {
            return NodeSet::default();
        }
        self.binder.nodes_for(ThreadId { pid, tid, start_ticks: thread.start_ticks }, thread.bound.as_ref(), online)
    }

    /// Adopts threads that inherited an affinity from a bound thread. Returns error messages.
    pub fn adopt(&self, targets: &mut Targets, undo_log: &mut dyn UndoLog) -> Vec<String> {
        binding::adopt(targets, undo_log)
    }

    /// Undoes moves of threads.
    pub fn take_back(&self, moves: &[ThreadMove], targets: &mut Targets, undo_log: &mut dyn UndoLog) -> u64 {
        self.binder.take_back(moves, targets, undo_log)
    }

    /// Restores the affinities of the threads of one process (`None`: of all). Returns their number.
    pub fn release_threads(&self, pid: Option<Pid>, targets: &mut Targets, undo_log: &mut dyn UndoLog) -> u64 {
        self.binder.release(pid, targets, undo_log)
    }
}

impl Done {
    /// The orders about pages that were not tried: the rate left them, or the work was ended. Of those that were, nothing is ordered again.
    #[must_use]
    pub fn not_tried(&self) -> Vec<Action> {
        let stayed: BTreeSet<(u32, PageNumber)> = self.stayed.iter().copied().collect();
        let is_left = |outcome: &&Outcome| match outcome.action {
            Action::Migrate { page, .. } => {
                let was_tried = stayed.contains(&(page.process, page.page)) || self.unanswered.contains(&page.process);
                outcome.result == Err(Refusal::Busy) && !was_tried
            }
            _ => false,
        };
        self.outcomes.iter().filter(is_left).map(|outcome| outcome.action.clone()).collect()
    }

    /// Takes in what came of some of these orders, whose pages were not permitted, when they were carried out again. `orders`: their positions.
    pub fn take_in(&mut self, orders: &[usize], again: Done) {
        self.pages.not_permitted = self.pages.not_permitted.saturating_sub(orders.len() as u64);
        self.pages.add(&again.pages);
        self.shared.moved += again.pages.moved;
        let mut retried = BTreeSet::new();
        for (at, outcome) in orders.iter().zip(again.outcomes) {
            if let Action::Migrate { page, .. } = outcome.action {
                retried.insert((page.process, page.page));
            }
            self.outcomes[*at] = outcome;
        }
        self.stayed.retain(|page| !retried.contains(page));
        self.stayed.extend(again.stayed);
        self.moved.extend(again.moved);
        self.gone.extend(again.gone);
        self.moved_bytes += again.moved_bytes;
        self.took_ns += again.took_ns;
        self.unanswered.extend(again.unanswered);
        self.troubles.extend(again.troubles);
    }
}

/// Notes that the kernel refused to move pages of a process, all of them or from one on.
fn failed(managed: &mut ManagedProcess, error: &KernelError, done: &mut Done) {
    if error.is_unanswered() {
        done.unanswered.insert(managed.number());
    }
    managed.look_at_nodes();
    done.troubles.push(error.to_string());
}

/// Result of an order from the outcomes of its pages; if none moved, that of the first page.
fn result_of(pages: &PageOutcomes, first: MoveOutcome, page_ns: f64) -> Result<f64, Refusal> {
    if pages.moved > 0 {
        return Ok(page_ns * pages.moved as f64);
    }
    Err(refusal_of(first))
}

/// What a policy is told of a page that did not move: less than the kernel's answer, which other orders than moves and simulated machines do not have.
fn refusal_of(outcome: MoveOutcome) -> Refusal {
    match outcome {
        MoveOutcome::AlreadyThere => Refusal::AlreadyThere,
        MoveOutcome::NoRoom => Refusal::NoRoom,
        MoveOutcome::Busy | MoveOutcome::NotTried => Refusal::Busy,
        MoveOutcome::Gone => Refusal::Gone,
        MoveOutcome::Moved | MoveOutcome::NotPermitted | MoveOutcome::Unmovable | MoveOutcome::Other(_) => {
            Refusal::Unsupported
        }
    }
}

#[cfg(test)]
mod tests {
    //! Orders about processes and threads that are there, and that are not.

    use numapilot_placement::PageKey;
    use numapilot_placement::PageSize;

    use super::*;
    use crate::execution::progress::tests::Until;

    /// An executor, this process as its one target, and that one's number.
    fn of_this_process() -> (MigrationExecutor, Targets, u32) {
        let machine = Machine::live().unwrap();
        let mut targets = Targets::default();
        targets.add(Pid::own()).unwrap();
        targets.look(&machine);
        let number = targets.all[&Pid::own()].number();
        (MigrationExecutor::new(&machine, MoveOptions::default()), targets, number)
    }

    /// The same with nodes 0 to 2, and two pages of this process whose home is known to be node 0.
    fn of_two_pages() -> (MigrationExecutor, Targets, u32, [PageNumber; 2]) {
        let (migration_executor, mut targets, number) = of_this_process();
        let [first, second] = [16, 17].map(PageNumber);
        targets.all.get_mut(&Pid::own()).unwrap().homes.set(first, second + 1, NodeIndex(0));
        let ids = [0, 1, 2].map(NodeId).to_vec();
        (MigrationExecutor { ids, ..migration_executor }, targets, number, [first, second])
    }

    #[test]
    fn every_order_has_an_outcome() {
        let (mut migration_executor, mut targets, number) = of_this_process();
        let page = |process| PageKey { process, page: PageNumber(16), size: PageSize::Small };
        let orders = vec![
            Action::Migrate { page: page(number), to: NodeIndex(0) },
            Action::Migrate { page: page(number + 1), to: NodeIndex(0) },
            Action::MoveThread { thread: 4711, to: NodeIndex(0) },
            Action::Split { page: page(number) },
        ];
        let done = migration_executor.carry_out(orders.clone(), &mut targets, &mut Until::ever());
        assert_eq!(done.outcomes.iter().map(|outcome| outcome.action.clone()).collect::<Vec<_>>(), orders);
        assert_eq!(done.outcomes[1].result, Err(Refusal::Gone));
        assert_eq!(done.outcomes[2].result, Err(Refusal::Gone));
        assert_eq!(done.outcomes[3].result, Err(Refusal::Unsupported));
        assert!(done.outcomes[0].result.is_err() && done.moved.is_empty());
        assert_eq!(done.pages.total(), 2);
    }

    /// A new outcome does not compile before it has a refusal here.
    #[test]
    fn policies_are_told_why_a_page_stayed() {
        let told = MoveOutcome::ALL.map(refusal_of);
        let [_, already_there, gone, busy, no_room, not_permitted, unmovable, other, not_tried] = told;
        assert_eq!([already_there, gone, no_room], [Refusal::AlreadyThere, Refusal::Gone, Refusal::NoRoom]);
        assert_eq!([busy, not_tried], [Refusal::Busy; 2], "they may be ordered again");
        assert_eq!([not_permitted, unmovable, other], [Refusal::Unsupported; 3]);
    }

    /// What was undone went to where a neighbour had been: of large processes, the homes of one page in many are read, and stand for those up to the next.
    #[test]
    fn where_a_page_was_is_as_it_was_found() {
        let (migration_executor, mut targets, number, [first, second]) = of_two_pages();
        let managed = targets.all.get_mut(&Pid::own()).unwrap();
        let requests = [first, second].map(|page| MoveRequest { to: NodeId(2), address: VirtAddr::of_page(page) });
        let from = vec![Some(NodeId(1)), None];
        let moved = Moved { outcomes: vec![MoveOutcome::Moved; 2], from, ..Moved::default() };
        let mut done = Done::default();
        migration_executor.note(managed, &requests, &moved, &mut done);
        let was = |page, node| (number, page, Some(NodeIndex(node)), NodeIndex(2));
        assert_eq!(done.moved, [was(first, 1), was(second, 0)]);
        assert_eq!([first, second].map(|page| managed.homes.of(page)), [Some(NodeIndex(2)); 2]);
    }

    /// They were taken to be where they were: the time was not paid for, and what did harm was not undone.
    #[test]
    fn pages_that_moved_before_an_error_are_paid_for_and_can_be_undone() {
        let (migration_executor, mut targets, number, [first, second]) = of_two_pages();
        let managed = targets.all.get_mut(&Pid::own()).unwrap();
        let requests = [first, second].map(|page| MoveRequest { to: NodeId(2), address: VirtAddr::of_page(page) });
        let parts = [0, 1].map(|order| Part { order, first: order, count: 1 });
        let source = std::io::Error::from_raw_os_error(libc::EPERM);
        let moved = Moved {
            outcomes: vec![MoveOutcome::Moved, MoveOutcome::NotTried],
            from: vec![Some(NodeId(1)); 2],
            pages: PageOutcomes { moved: 1, not_tried: 1, ..PageOutcomes::default() },
            moving_ns: 4000,
            failed: Some(KernelError::MayNotMove { pid: Pid::own(), source }),
            ..Moved::default()
        };
        let mut done = Done::default();
        let mut results: Vec<Result<f64, Refusal>> = vec![Err(Refusal::Unsupported); 2];
        migration_executor.account(managed, (&requests, &parts), &moved, (&mut done, &mut results));
        assert_eq!(done.moved, [(number, first, Some(NodeIndex(1)), NodeIndex(2))]);
        assert_eq!((done.pages.moved, done.pages.not_tried, done.took_ns), (1, 1, 4000));
        assert_eq!(results, [Ok(4000.0), Err(Refusal::Busy)], "the other may be ordered again");
        assert!(done.troubles.len() == 1 && done.troubles[0].contains("may not be moved"), "{:?}", done.troubles);
    }

    #[test]
    fn what_came_of_shared_pages_replaces_their_refusal() {
        let page = |page| PageKey { process: 7, page: PageNumber(page), size: PageSize::Small };
        let outcome = |at, result| Outcome { action: Action::Migrate { page: page(at), to: NodeIndex(1) }, result };
        let refused = Err(Refusal::Unsupported);
        let mut done = Done {
            outcomes: vec![outcome(1, refused), outcome(2, Ok(3e3)), outcome(3, refused), outcome(4, refused)],
            stayed: [1, 3, 4].map(|page| (7, PageNumber(page))).into(),
            not_permitted: vec![0, 2, 3],
            pages: PageOutcomes { moved: 1, not_permitted: 3, ..PageOutcomes::default() },
            moved_bytes: 4096,
            ..Done::default()
        };
        let again = Done {
            outcomes: vec![outcome(1, Ok(5e3)), outcome(4, Err(Refusal::Busy))],
            stayed: vec![(7, PageNumber(4))],
            moved: vec![(7, PageNumber(1), Some(NodeIndex(0)), NodeIndex(1))],
            pages: PageOutcomes { moved: 1, busy: 1, ..PageOutcomes::default() },
            moved_bytes: 4096,
            ..Done::default()
        };
        done.take_in(&[0, 3], again);
        let results: Vec<Result<f64, Refusal>> = done.outcomes.iter().map(|outcome| outcome.result).collect();
        assert_eq!(results, [Ok(5e3), Ok(3e3), refused, Err(Refusal::Busy)]);
        assert_eq!(done.stayed, [(7, PageNumber(3)), (7, PageNumber(4))]);
        let pages = PageOutcomes { moved: 2, busy: 1, not_permitted: 1, ..PageOutcomes::default() };
        assert_eq!((done.pages, done.moved.len(), done.moved_bytes, done.shared.moved), (pages, 1, 8192, 1));
    }

    /// Of a batch that was undone at a limited rate, what the rate left stayed where it did harm.
    #[test]
    fn what_was_not_tried_is_known_to_be_left() {
        let order = |page| Action::Migrate {
            page: PageKey { process: 7, page: PageNumber(page), size: PageSize::Small },
            to: NodeIndex(1),
        };
        let results = [Ok(4e3), Err(Refusal::Busy), Err(Refusal::Gone), Err(Refusal::Busy), Err(Refusal::NoRoom)];
        let outcomes = (0..).zip(results).map(|(page, result)| Outcome { action: order(page), result }).collect();
        // The kernel was asked about page 1, which is busy.
        let mut done = Done { outcomes, stayed: vec![(7, PageNumber(1))], ..Done::default() };
        assert_eq!(done.not_tried(), [order(3)]);
        done.outcomes.truncate(3);
        assert!(done.not_tried().is_empty());
    }

    #[test]
    fn an_end_of_the_work_is_heeded_and_accounted_for() {
        let (mut migration_executor, mut targets, number) = of_this_process();
        let order =
            |page| Action::Migrate { page: PageKey { process: number, page, size: PageSize::Small }, to: NodeIndex(0) };
        let mut progress = Until::default();
        let done =
            migration_executor.carry_out(PageNumber(16).run(4).map(order).collect(), &mut targets, &mut progress);
        assert_eq!((done.pages.not_tried, done.pages.total(), progress.asked), (4, 4, 1));
        assert!(done.outcomes.iter().all(|outcome| outcome.result == Err(Refusal::Busy)), "they may be ordered again");
    }
}
