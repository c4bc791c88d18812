//! Moving pages between nodes: [`Mover`] carries out many requests for single pages in few system calls.
//!
//! * It first queries where pages are and drops those on their target node: the kernel flushes its list at each of them, which costs as much as a small
//!   move. A caller that has just queried skips this ([`Mover::run_known`]).
//! * It sorts by target and address, so that a call moves up to thousands of pages ([`MoveOptions::batch_pages`]).
//! * Where huge pages may be, it sends one address of each and queries the others afterwards: two addresses of one huge page in one call end the batch.
//! * Every page gets one [`MoveOutcome`]. After a call that reports only the number of pages that did not move, it queries where they are. Busy pages are
//!   retried in smaller and smaller calls, so that one of them does not delay the others.
//! * It limits the rate ([`Pace`]) and leaves memory free on every node ([`free_memory`]).
//!
//! Processes may end, exec and remap at any instant: pages that are gone are counted, and a process that has ended is no error.

pub mod free_memory;
mod interpret;
mod outcome;
pub mod pace;
mod page;
mod syscall;

use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Pid;
use numapilot_host::VirtAddr;
use numapilot_machine::NodeId;

use crate::error::KernelError;
use crate::task::Process;
pub use outcome::MoveOutcome;
pub use outcome::PageOutcomes;
pub use page::huge_bytes;
pub use page::page_bytes;

use free_memory::NodeFreeMemory;
use interpret::Batch;
use interpret::Calls;
use pace::Pace;
use syscall::System;

/// Longest sleep until it is asked again whether to go on: whoever asked for a stop should not wait for a slow rate.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// A page that is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MoveRequest {
    /// Target node.
    pub to: NodeId,
    /// Address of the page's first byte.
    pub address: VirtAddr,
}

/// Options of a move: batches, rate, retries and free memory to keep.
#[derive(Clone, Copy, Debug)]
pub struct MoveOptions {
    /// Pages per system call.
    pub batch_pages: usize,
    /// Largest rate in bytes per second; `None`: unlimited.
    pub bytes_per_s: Option<u64>,
    /// Whether to wait when the rate is exceeded; otherwise the remaining pages stay [`MoveOutcome::NotTried`].
    pub waits: bool,
    /// Largest number of calls for a page that is busy.
    pub tries: u32,
    /// Time between two retries.
    pub retry_wait: Duration,
    /// Bytes that stay available on every node.
    pub keep_bytes: u64,
    /// Whether to move pages that several processes map as well (MPOL_MF_MOVE_ALL); needs CAP_SYS_NICE.
    pub shared: bool,
}

impl Default for MoveOptions {
    fn default() -> MoveOptions {
        MoveOptions {
            batch_pages: 4096,
            bytes_per_s: None,
            waits: true,
            tries: 4,
            retry_wait: Duration::from_millis(2),
            keep_bytes: 16 << 20,
            shared: false,
        }
    }
}

/// Why a node took no pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeRefusal {
    /// The process's cpuset excludes it.
    Forbidden,
    /// It has no memory.
    NoMemory,
}

impl NodeRefusal {
    /// The same as an error about a process, whose message says what helps.
    #[must_use]
    pub fn error(self, pid: Pid, node: NodeId) -> KernelError {
        match self {
            NodeRefusal::Forbidden => KernelError::ForbiddenNode { pid, node },
            NodeRefusal::NoMemory => KernelError::NoMemoryNode { node },
        }
    }

    /// The error number that its pages have as their outcome.
    fn errno(self) -> i32 {
        match self {
            NodeRefusal::Forbidden => libc::EACCES,
            NodeRefusal::NoMemory => libc::ENODEV,
        }
    }
}

/// Result of a run over move requests.
#[derive(Debug, Default)]
pub struct Moved {
    /// Outcome of each request, in the order of the requests.
    pub outcomes: Vec<MoveOutcome>,
    /// The node on which each page was found before, in the order of the requests; `None`: on none, or on its target. Empty where pages were not queried
    /// ([`Mover::run_known`]).
    pub from: Vec<Option<NodeId>>,
    /// The outcomes, counted.
    pub pages: PageOutcomes,
    /// Nanoseconds in system calls that move.
    pub moving_ns: u64,
    /// Number of system calls that move pages.
    pub calls: u64,
    /// Nodes that took none of the pages, with the reason.
    pub refused: BTreeMap<NodeId, NodeRefusal>,
    /// The error that ended it when some pages had moved; those that were left are [`MoveOutcome::NotTried`]. `None`: it was not ended by an error.
    pub failed: Option<KernelError>,
}

/// Moves pages. Keeps its buffers, the state of the rate limit and the nodes' free memory from call to call.
#[derive(Debug)]
pub struct Mover {
    options: MoveOptions,
    pace: Pace,
    started: Instant,
    huge_bytes: u64,
    system: Box<dyn Calls>,
    free_memory: NodeFreeMemory,
}

impl Mover {
    /// A mover with these options and empty buffers.
    #[must_use]
    pub fn new(options: MoveOptions) -> Mover {
        let system = Box::new(System::new(options.shared));
        Mover {
            options,
            pace: Pace::new(options.bytes_per_s),
            started: Instant::now(),
            huge_bytes: huge_bytes(),
            system,
            free_memory: NodeFreeMemory::default(),
        }
    }

    /// The options that were set last.
    #[must_use]
    pub fn options(&self) -> MoveOptions {
        self.options
    }

    /// Sets other options. What the rate has let through so far stays counted.
    pub fn set_options(&mut self, options: MoveOptions) {
        if options.shared != self.options.shared {
            self.system = Box::new(System::new(options.shared));
        }
        self.pace.set_rate(self.now_ns(), options.bytes_per_s);
        self.options = options;
    }

    /// Moves pages of `process` (`None`: this process). `may_be_huge` are address ranges, ascending and disjoint, in which huge pages may be.
    /// `goes_on` is asked before every call, and ten times a second while the rate makes it wait, with the pages that moved so far; after a `false` the rest
    /// is not tried.
    ///
    /// # Errors
    /// Nothing moved, and the caller may not move this process's pages, or a target node has no memory or is forbidden by the process's cpuset. Where other
    /// nodes took their pages, such a node's are [`MoveOutcome::Other`] (EACCES, ENODEV); where an error came after some pages had moved, it is
    /// [`Moved::failed`]. A process that has ended is not an error: its pages are gone.
    pub fn run(
        &mut self,
        process: Option<&Process>,
        requests: &[MoveRequest],
        may_be_huge: &[(VirtAddr, VirtAddr)],
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Moved, KernelError> {
        self.carry_out(process, (requests, true), may_be_huge, goes_on)
    }

    /// As [`Mover::run`], for pages that were just found on other nodes: they are not queried again, which would take a fifteenth of the time.
    /// A page that has reached its target meanwhile counts as moved.
    ///
    /// # Errors
    /// As [`Mover::run`].
    pub fn run_known(
        &mut self,
        process: Option<&Process>,
        requests: &[MoveRequest],
        may_be_huge: &[(VirtAddr, VirtAddr)],
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Moved, KernelError> {
        self.carry_out(process, (requests, false), may_be_huge, goes_on)
    }

    fn carry_out(
        &mut self,
        process: Option<&Process>,
        (requests, asks_first): (&[MoveRequest], bool),
        may_be_huge: &[(VirtAddr, VirtAddr)],
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Moved, KernelError> {
        let pid = process.map_or(Pid::CALLING, Process::pid);
        let mut work = Work {
            requests,
            outcomes: vec![MoveOutcome::NotTried; requests.len()],
            from: vec![None; if asks_first { requests.len() } else { 0 }],
            moving: Duration::ZERO,
            calls: 0,
            moved: 0,
            free_memory: BTreeMap::new(),
            refused: BTreeMap::new(),
            pid,
        };
        let result = self.work_through(&mut work, process, asks_first, may_be_huge, goes_on);
        work.done(result.err())
    }

    /// Queries where the pages are, if that is not known, and moves them. What was done until an error is in `work`.
    fn work_through(
        &mut self,
        work: &mut Work<'_>,
        process: Option<&Process>,
        asks_first: bool,
        may_be_huge: &[(VirtAddr, VirtAddr)],
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), KernelError> {
        let requests = work.requests;
        let looked = if asks_first { self.look(work) } else { Ok(in_order(requests)) };
        let pending = match looked {
            Ok(pending) => pending,
            Err(KernelError::Gone { .. }) => {
                work.outcomes.fill(MoveOutcome::Gone);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let (mut now, mut later) = self.heads(requests, pending, may_be_huge);
        let mut tries: u32 = 0;
        while !now.is_empty() {
            let batch = (self.options.batch_pages.max(1) >> (3 * tries).min(31)).max(1);
            let are_heads = !later.is_empty();
            let pages_of = |index: &usize| match are_heads && is_inside(requests[*index].address, may_be_huge) {
                true => self.huge_bytes / page_bytes(),
                false => 1,
            };
            let parts = parts(requests, &now, batch as u64, pages_of);
            let again = self.pass(work, process, &parts, &mut later, goes_on)?;
            let Some(mut again) = again else { return Ok(()) };
            tries += 1;
            if are_heads {
                // Pages whose head did not move, or whose huge page is none.
                again.append(&mut later);
                again.sort_unstable();
                tries = tries.saturating_sub(1);
            }
            if tries >= self.options.tries {
                again.iter().for_each(|&index| work.outcomes[index] = MoveOutcome::Busy);
                break;
            }
            if tries > 0 && !again.is_empty() {
                std::thread::sleep(self.options.retry_wait);
            }
            now = again;
        }
        Ok(())
    }

    /// Queries where the pages are. Returns the indexes of the requests that remain, sorted by target and address.
    fn look(&mut self, work: &mut Work<'_>) -> Result<Vec<usize>, KernelError> {
        let order = in_order(work.requests);
        let addresses: Vec<u64> = order.iter().map(|&index| work.requests[index].address.0).collect();
        let states = self.system.query(work.pid, &addresses)?;
        let mut left = Vec::with_capacity(order.len());
        for (index, state) in order.into_iter().zip(states) {
            match interpret::before(state, work.requests[index].to) {
                Some(outcome) => work.outcomes[index] = outcome,
                None => {
                    work.from[index] = state.node();
                    left.push(index);
                }
            }
        }
        Ok(left)
    }

    /// Splits requests into those to send first, and those whose page may move with one of the first (same huge page).
    fn heads(
        &self,
        requests: &[MoveRequest],
        pending: Vec<usize>,
        ranges: &[(VirtAddr, VirtAddr)],
    ) -> (Vec<usize>, Vec<usize>) {
        if ranges.is_empty() || self.huge_bytes <= page_bytes() {
            return (pending, Vec::new());
        }
        let mut last = None;
        pending.into_iter().partition(|&index| {
            let MoveRequest { to, address } = requests[index];
            let block = (to, address.0 / self.huge_bytes);
            let is_head = !is_inside(address, ranges) || last != Some(block);
            last = Some(block);
            is_head
        })
    }

    /// Queries where the pages of `later` are whose huge pages `heads` were sent for. Those that moved along leave the list and are accounted as the heads
    /// are: a huge page is 512 pages or more of the rate and of the target's free memory. Returns how many. Where the query fails, they stay in the list: the
    /// call that tries them then tells why, and the account of the heads is kept.
    fn came_along(&mut self, work: &mut Work<'_>, heads: &[usize], later: &mut Vec<usize>) -> u64 {
        let block = |index: usize| (work.requests[index].to, work.requests[index].address.0 / self.huge_bytes);
        let (Some(first), Some(last)) = (heads.first(), heads.last()) else { return 0 };
        let (first, last) = (block(*first), block(*last));
        let from = later.partition_point(|index| block(*index) < first);
        let to = later.partition_point(|index| block(*index) <= last);
        let candidates: Vec<usize> = later[from..to].to_vec();
        if candidates.is_empty() {
            return 0;
        }
        let addresses: Vec<u64> = candidates.iter().map(|&index| work.requests[index].address.0).collect();
        let states = match self.system.query(work.pid, &addresses) {
            Ok(states) => states,
            Err(KernelError::Gone { .. }) => {
                later.drain(from..to).for_each(|index| work.outcomes[index] = MoveOutcome::Gone);
                return 0;
            }
            Err(_) => return 0,
        };
        let (mut moved, mut left) = (0, Vec::new());
        for (&index, state) in candidates.iter().zip(states) {
            match interpret::before(state, work.requests[index].to) {
                Some(MoveOutcome::AlreadyThere) => {
                    work.outcomes[index] = MoveOutcome::Moved;
                    moved += 1;
                }
                Some(outcome) => work.outcomes[index] = outcome,
                None => left.push(index),
            }
        }
        later.splice(from..to, left);
        moved
    }

    /// Moves the pages of `parts`, one after the other, and accounts for those of `later` that move with them. Returns those to retry; `None`: stop, whatever
    /// remains.
    fn pass(
        &mut self,
        work: &mut Work<'_>,
        process: Option<&Process>,
        parts: &[Part],
        later: &mut Vec<usize>,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Vec<usize>>, KernelError> {
        let mut again = Vec::new();
        for Part { indexes: part, pages } in parts {
            let to = work.requests[part[0]].to;
            if !self.may_go(work.moved, goes_on) {
                return Ok(None);
            }
            if process.is_some_and(|process| !process.is_running()) {
                work.outcomes
                    .iter_mut()
                    .filter(|outcome| **outcome == MoveOutcome::NotTried)
                    .for_each(|outcome| *outcome = MoveOutcome::Gone);
                return Ok(None);
            }
            let room = self.fits(work, to, *pages);
            let fits = match room < *pages {
                // How much each takes is known on average only.
                true => room / pages.div_ceil(part.len() as u64),
                false => part.len() as u64,
            };
            let (part, too_many) = part.split_at(usize::try_from(fits).unwrap_or(usize::MAX).min(part.len()));
            too_many.iter().for_each(|&index| work.outcomes[index] = MoveOutcome::NoRoom);
            if part.is_empty() {
                continue;
            }
            let addresses: Vec<u64> = part.iter().map(|&index| work.requests[index].address.0).collect();
            let begun = Instant::now();
            let answer = interpret::batch(&mut *self.system, &Batch { pid: work.pid, addresses: &addresses, to });
            work.moving += begun.elapsed();
            work.calls += 1;
            let answer = match answer {
                Err(KernelError::Gone { .. }) => vec![Some(MoveOutcome::Gone); part.len()],
                // One node that refuses is no reason to forget what has moved to others.
                Err(KernelError::ForbiddenNode { .. }) => work.refuse(to, NodeRefusal::Forbidden, part.len()),
                Err(KernelError::NoMemoryNode { .. }) => work.refuse(to, NodeRefusal::NoMemory, part.len()),
                other => other?,
            };
            let mut moved = 0;
            for (&index, outcome) in part.iter().zip(answer) {
                moved += u64::from(outcome == Some(MoveOutcome::Moved));
                match outcome {
                    Some(outcome) => work.outcomes[index] = outcome,
                    None => again.push(index),
                }
            }
            moved += self.came_along(work, part, later);
            work.moved += moved;
            let bytes = moved * page_bytes();
            self.pace.spend(self.now_ns(), bytes);
            work.free_memory.entry(to.0).and_modify(|left| *left = left.saturating_sub(bytes));
        }
        Ok(Some(again))
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether the caller and the rate allow another call. Waits until the rate does if [`MoveOptions::waits`] is set.
    fn may_go(&self, moved: u64, goes_on: &mut dyn FnMut(u64) -> bool) -> bool {
        loop {
            if !goes_on(moved) {
                return false;
            }
            let wait = self.pace.wait_ns(self.now_ns());
            if wait == 0 {
                return true;
            }
            if !self.options.waits {
                return false;
            }
            std::thread::sleep(Duration::from_nanos(wait).min(LONGEST_SLEEP));
        }
    }

    /// How many of `pages` fit into a node's free memory beyond what is kept free. Where its memory cannot be read, the kernel alone decides.
    fn fits(&mut self, work: &mut Work<'_>, to: NodeId, pages: u64) -> u64 {
        let need = pages * page_bytes();
        let left = work.free_memory.get(&to.0).copied().filter(|left| *left >= need);
        let left = left.unwrap_or_else(|| match self.free_memory.of_node(to) {
            Ok(memory) => memory.available_bytes().saturating_sub(self.options.keep_bytes),
            Err(_) => u64::MAX,
        });
        work.free_memory.insert(to.0, left);
        (left / page_bytes()).min(pages)
    }
}

/// Requests that one system call carries out, all to one node.
struct Part {
    indexes: Vec<usize>,
    /// How many pages move with them, at most.
    pages: u64,
}

/// Cuts requests into parts of one target and at most `batch` pages each (or of one request).
fn parts(requests: &[MoveRequest], indexes: &[usize], batch: u64, pages_of: impl Fn(&usize) -> u64) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for index in indexes {
        let pages = pages_of(index);
        match parts.last_mut() {
            Some(part) if requests[part.indexes[0]].to == requests[*index].to && part.pages + pages <= batch => {
                part.indexes.push(*index);
                part.pages += pages;
            }
            _ => parts.push(Part { indexes: vec![*index], pages }),
        }
    }
    parts
}

/// Whether an address is in one of these ranges, which ascend and are disjoint.
fn is_inside(address: VirtAddr, ranges: &[(VirtAddr, VirtAddr)]) -> bool {
    numapilot_ranges::find(ranges, |range| *range, address).is_some()
}

/// Indexes of requests, sorted by target and address.
fn in_order(requests: &[MoveRequest]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..requests.len()).collect();
    if !requests.is_sorted() {
        order.sort_unstable_by_key(|&index| requests[index]);
    }
    order
}

/// State of one run.
struct Work<'a> {
    requests: &'a [MoveRequest],
    outcomes: Vec<MoveOutcome>,
    /// Nodes on which pages were found, as in [`Moved::from`].
    from: Vec<Option<NodeId>>,
    moving: Duration,
    calls: u64,
    moved: u64,
    /// Bytes that each node can accept: as last read, less what was moved there since.
    free_memory: BTreeMap<u16, u64>,
    /// Nodes that refused pages.
    refused: BTreeMap<NodeId, NodeRefusal>,
    pid: Pid,
}

impl Work<'_> {
    fn refuse(&mut self, node: NodeId, why: NodeRefusal, pages: usize) -> Vec<Option<MoveOutcome>> {
        self.refused.entry(node).or_insert(why);
        vec![Some(MoveOutcome::Other(why.errno())); pages]
    }

    /// The account, with the error that ended the work; that error alone where nothing has moved, or the reason of a node that refused.
    fn done(self, failed: Option<KernelError>) -> Result<Moved, KernelError> {
        if self.moved == 0 {
            if let Some(error) = failed {
                return Err(error);
            }
            if let Some((node, why)) = self.refused.first_key_value() {
                return Err(why.error(self.pid, *node));
            }
        }
        let pages = PageOutcomes::of(&self.outcomes);
        let moving_ns = u64::try_from(self.moving.as_nanos()).unwrap_or(u64::MAX);
        let Work { outcomes, from, calls, refused, .. } = self;
        Ok(Moved { outcomes, from, pages, moving_ns, calls, refused, failed })
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::interpret::CallEnd;
    use super::*;
    use crate::memory::PageState;

    /// A kernel that answers so many queries and moves, and no more.
    #[derive(Debug)]
    struct Answers {
        queries: u32,
        moves: u32,
    }

    impl Answers {
        fn take(left: &mut u32, pid: Pid) -> Result<(), KernelError> {
            let source = io::Error::from_raw_os_error(libc::EPERM);
            *left = left.checked_sub(1).ok_or(KernelError::MayNotMove { pid, source })?;
            Ok(())
        }
    }

    impl Calls for Answers {
        fn query(&mut self, pid: Pid, addresses: &[u64]) -> Result<Vec<PageState>, KernelError> {
            Answers::take(&mut self.queries, pid)?;
            Ok(vec![PageState::On(NodeId(0)); addresses.len()])
        }

        fn move_to(&mut self, batch: &Batch<'_>, status: &mut [i32]) -> Result<CallEnd, KernelError> {
            Answers::take(&mut self.moves, batch.pid)?;
            status.fill(i32::from(batch.to.0));
            Ok(CallEnd::Complete)
        }
    }

    /// Five pages to a node that this machine does not have, two in a call, under a kernel that answers so often.
    fn of_five(answers: Answers, may_be_huge: &[(VirtAddr, VirtAddr)]) -> Result<Moved, KernelError> {
        let requests: Vec<MoveRequest> =
            (1..6).map(|page| MoveRequest { to: NodeId(999), address: VirtAddr(page << 12) }).collect();
        let options = MoveOptions { batch_pages: 2, ..MoveOptions::default() };
        let mut mover = Mover { system: Box::new(answers), huge_bytes: 2 << 20, ..Mover::new(options) };
        mover.run(None, &requests, may_be_huge, &mut |_| true)
    }

    /// All that had moved before was forgotten: it was neither paid for nor undone.
    #[test]
    fn an_error_keeps_the_account_of_what_has_moved_before_it() {
        let some = of_five(Answers { queries: 1, moves: 2 }, &[]).unwrap();
        assert_eq!((some.pages.moved, some.pages.not_tried, some.pages.total()), (4, 1, 5));
        assert_eq!((some.outcomes[3], some.outcomes[4]), (MoveOutcome::Moved, MoveOutcome::NotTried));
        assert_eq!(some.from, [Some(NodeId(0)); 5]);
        assert!(matches!(some.failed, Some(KernelError::MayNotMove { .. })), "{:?}", some.failed);
        let all = of_five(Answers { queries: 1, moves: 3 }, &[]).unwrap();
        assert!(all.pages.moved == 5 && all.failed.is_none(), "{all:?}");
        for (queries, moves) in [(0, 3), (1, 0)] {
            let none = of_five(Answers { queries, moves }, &[]);
            assert!(matches!(none, Err(KernelError::MayNotMove { .. })), "nothing has moved: {none:?}");
        }
    }

    /// The pages of one huge page: the first one is moved, and whether the others came along is not answered.
    #[test]
    fn a_query_that_fails_after_a_call_keeps_what_the_call_has_moved() {
        let huge = [(VirtAddr(0), VirtAddr(2 << 20))];
        let some = of_five(Answers { queries: 1, moves: 1 }, &huge).unwrap();
        assert_eq!((some.pages.moved, some.pages.not_tried, some.failed.is_some()), (1, 4, true));
        let all = of_five(Answers { queries: 1, moves: 3 }, &huge).unwrap();
        assert_eq!((all.pages.moved, all.failed.is_some()), (5, false), "tried one by one");
    }

    #[test]
    fn a_slow_rate_does_not_keep_a_stop_waiting() {
        let mut mover = Mover::new(MoveOptions { bytes_per_s: Some(1), ..MoveOptions::default() });
        mover.pace.spend(0, 3600);
        let (begun, mut asked) = (Instant::now(), 0);
        let may = mover.may_go(7, &mut |moved| {
            asked += 1;
            assert_eq!(moved, 7);
            asked < 4
        });
        assert!(!may && asked == 4 && begun.elapsed() < Duration::from_secs(600), "an hour is left of the rate");
    }

    /// Each reload of the daemon's configuration let another call through, however low the rate.
    #[test]
    fn other_options_keep_what_the_rate_has_let_through() {
        let options = MoveOptions { bytes_per_s: Some(1), waits: false, ..MoveOptions::default() };
        let mut mover = Mover::new(options);
        mover.pace.spend(0, 3600);
        mover.set_options(MoveOptions { keep_bytes: 7, ..options });
        assert!(!mover.may_go(0, &mut |_| true) && mover.options.keep_bytes == 7, "an hour is left of the rate");
        mover.set_options(MoveOptions { bytes_per_s: None, ..options });
        assert!(mover.may_go(0, &mut |_| true));
    }

    #[test]
    fn which_node_refused_is_kept_beside_what_moved_to_others() {
        let requests = [MoveRequest { to: NodeId(1), address: VirtAddr(0) }; 3];
        let work = |moved| Work {
            requests: &requests,
            outcomes: vec![MoveOutcome::Moved; 3],
            from: Vec::new(),
            moving: Duration::ZERO,
            calls: 2,
            moved,
            free_memory: BTreeMap::new(),
            refused: BTreeMap::new(),
            pid: Pid(7),
        };
        let mut some = work(2);
        assert_eq!(some.refuse(NodeId(3), NodeRefusal::Forbidden, 1), [Some(MoveOutcome::Other(libc::EACCES))]);
        let moved = some.done(None).unwrap();
        assert_eq!(moved.refused, BTreeMap::from([(NodeId(3), NodeRefusal::Forbidden)]));
        let why = moved.refused[&NodeId(3)].error(Pid(7), NodeId(3)).to_string();
        assert!(why.contains("process 7") && why.contains("node 3") && why.contains("cpuset"), "{why}");
        let mut none = work(0);
        none.refuse(NodeId(3), NodeRefusal::NoMemory, 3);
        assert!(matches!(none.done(None), Err(KernelError::NoMemoryNode { node: NodeId(3) })));
    }

    #[test]
    fn parts_are_of_one_target_and_weigh_huge_pages_as_what_moves_with_them() {
        let request = |to: u16, address: u64| MoveRequest { to: NodeId(to), address: VirtAddr(address) };
        let huge = 2 << 20;
        let requests: Vec<MoveRequest> =
            (0..20).map(|n| request(0, n * huge)).chain((0..5000).map(|n| request(1, (1 << 40) + n * 4096))).collect();
        let indexes: Vec<usize> = (0..requests.len()).collect();
        let parts = parts(&requests, &indexes, 4096, |index| if requests[*index].to == NodeId(0) { 512 } else { 1 });
        let shape: Vec<(usize, u64)> = parts.iter().map(|part| (part.indexes.len(), part.pages)).collect();
        assert_eq!(shape, [(8, 4096), (8, 4096), (4, 2048), (4096, 4096), (904, 904)]);
    }
}
