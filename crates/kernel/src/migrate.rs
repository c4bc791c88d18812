//! Moves all pages of a process from some nodes to others, as `migratepages` does, and accounts for every page; and moves them back.

use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::VirtAddr;
use numapilot_machine::NodeId;

use crate::actuator::MoveOutcome;
use crate::actuator::MoveRequest;
use crate::actuator::Moved;
use crate::actuator::Mover;
use crate::actuator::NodeRefusal;
use crate::actuator::PageOutcomes;
use crate::actuator::page_bytes;
use crate::census;
use crate::error::KernelError;
use crate::memory::PageQuery;
use crate::origins::Origins;
use crate::pagemap::PageMap;
use crate::task::Process;

/// Pages that are gathered before they are moved.
const GATHERED: usize = 64 << 10;

/// Which pages go where. With as many targets as origins, pages of the i-th origin go to the i-th target; else they are dealt round robin over the targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    from: Vec<NodeId>,
    to: Vec<NodeId>,
    dealt: usize,
    /// Ranges of addresses that are left out, ascending and disjoint.
    without: Vec<(VirtAddr, VirtAddr)>,
}

impl Route {
    /// From these nodes to those. `None` if one of the lists is empty.
    #[must_use]
    pub fn new(from: &[NodeId], to: &[NodeId]) -> Option<Route> {
        (!from.is_empty() && !to.is_empty()).then(|| Route {
            from: from.to_vec(),
            to: to.to_vec(),
            dealt: 0,
            without: Vec::new(),
        })
    }

    /// Leaves out mappings that begin in these ranges of addresses, which are ascending and disjoint.
    #[must_use]
    pub fn without(mut self, ranges: Vec<(VirtAddr, VirtAddr)>) -> Route {
        self.without = ranges;
        self
    }

    fn leaves_out(&self, address: VirtAddr) -> bool {
        numapilot_ranges::find(&self.without, |range| *range, address).is_some()
    }

    /// Where a page that lies on `home` goes; `None`: it stays.
    pub fn target(&mut self, home: NodeId) -> Option<NodeId> {
        let at = self.from.iter().position(|node| *node == home)?;
        if self.from.len() == self.to.len() {
            return Some(self.to[at]).filter(|to| *to != home);
        }
        if self.to.contains(&home) {
            return None;
        }
        self.dealt += 1;
        Some(self.to[(self.dealt - 1) % self.to.len()])
    }
}

/// How it went, or how it stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Migration {
    /// Pages in memory that were looked at.
    pub looked_at: u64,
    /// Of these on other nodes than those named: they stay.
    pub elsewhere: u64,
    /// Pages that were to move (or would be, in a dry run), by origin and target.
    pub wanted: BTreeMap<(NodeId, NodeId), u64>,
    /// Outcomes of the pages.
    pub pages: PageOutcomes,
    /// Time spent in the system calls that move pages.
    pub moving: Duration,
    /// Total time.
    pub took: Duration,
    /// Whether the process ended during the migration.
    pub ended: bool,
    /// It was stopped before its end.
    pub stopped: bool,
    /// Bytes in memory of the mappings that the route leaves out.
    pub left_out_bytes: u64,
    /// Bytes in pages of the hugetlb pool, on whatever nodes: they are not looked at, and stay.
    pub hugetlb_bytes: u64,
    /// Nodes that took none of the pages, with the reason.
    pub refused: BTreeMap<NodeId, NodeRefusal>,
}

impl Migration {
    /// Adds what came of some of the pages.
    ///
    /// # Errors
    /// That which ended it half-way; what has moved before is added.
    fn add(&mut self, moved: Moved) -> Result<(), KernelError> {
        self.pages.add(&moved.pages);
        self.refused.extend(moved.refused);
        self.moving += Duration::from_nanos(moved.moving_ns);
        moved.failed.map_or(Ok(()), Err)
    }
}

/// What carries out the moves, and what remembers where pages were.
struct Execution<'a> {
    mover: Option<&'a mut Mover>,
    origins: Option<&'a mut Origins>,
}

/// Pages that wait to be moved.
#[derive(Default)]
struct Gathered {
    requests: Vec<MoveRequest>,
    /// The nodes on which they are, ascending by address.
    homes: Vec<(VirtAddr, NodeId)>,
}

impl Gathered {
    fn add(&mut self, address: VirtAddr, home: NodeId, to: NodeId) {
        self.requests.push(MoveRequest { to, address });
        self.homes.push((address, home));
    }

    fn clear(&mut self) {
        self.requests.clear();
        self.homes.clear();
    }

    /// Adds where those pages were that have moved.
    fn remember(&self, outcomes: &[MoveOutcome], origins: &mut Origins) {
        let has_moved = |(_, outcome): &(&MoveRequest, &MoveOutcome)| **outcome == MoveOutcome::Moved;
        let moved = self.requests.iter().zip(outcomes).filter(has_moved);
        let mut moved: Vec<VirtAddr> = moved.map(|(request, _)| request.address).collect();
        moved.sort_unstable();
        for address in moved {
            if let Ok(at) = self.homes.binary_search_by_key(&address, |(address, _)| *address) {
                origins.moved(address, self.homes[at].1);
            }
        }
    }
}

/// Moves pages of `process` along `route`; `mover` `None`: only looks. `goes_on` is asked with how it stands before every call that moves, ten times a second
/// while the rate makes it wait, and after every stretch of memory that was looked through. The account is in `done`: where it fails, what it has moved until
/// then is there.
///
/// # Errors
/// The process may not be looked into or moved, or a target cannot take pages.
pub fn run_into(
    done: &mut Migration,
    process: &Process,
    route: &mut Route,
    mover: Option<&mut Mover>,
    goes_on: &mut dyn FnMut(&Migration) -> bool,
) -> Result<(), KernelError> {
    timed(done, |done| all(process, route, &mut Execution { mover, origins: None }, done, goes_on))
}

/// As [`run_into`]; where the pages were that have moved is added to `origins`.
///
/// # Errors
/// As [`run_into`].
pub fn run_remembering(
    done: &mut Migration,
    process: &Process,
    route: &mut Route,
    (mover, origins): (&mut Mover, &mut Origins),
    goes_on: &mut dyn FnMut(&Migration) -> bool,
) -> Result<(), KernelError> {
    let mut execution = Execution { mover: Some(mover), origins: Some(origins) };
    timed(done, |done| all(process, route, &mut execution, done, goes_on))
}

/// Moves pages back to where they were, those that moved last first. Pages in the ranges `without`, ascending and disjoint, stay. `goes_on` is asked as by
/// [`run_into`]; where it ends the work, what was not begun stays in `origins`.
///
/// # Errors
/// As [`run_into`].
pub fn back(
    done: &mut Migration,
    process: &Process,
    origins: &mut Origins,
    without: &[(VirtAddr, VirtAddr)],
    mover: &mut Mover,
    goes_on: &mut dyn FnMut(&Migration) -> bool,
) -> Result<(), KernelError> {
    timed(done, |done| all_back(done, process, (origins, without), mover, goes_on))
}

/// Does some of a migration. That the process has ended is no error.
fn timed(
    done: &mut Migration,
    work: impl FnOnce(&mut Migration) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let begun = Instant::now();
    let result = work(done);
    done.took = begun.elapsed();
    match result {
        Err(KernelError::Gone { .. }) => done.ended = true,
        other => other?,
    }
    Ok(())
}

fn all_back(
    done: &mut Migration,
    process: &Process,
    (origins, without): (&mut Origins, &[(VirtAddr, VirtAddr)]),
    mover: &mut Mover,
    goes_on: &mut dyn FnMut(&Migration) -> bool,
) -> Result<(), KernelError> {
    let huge = may_be_huge(&census::residents(process.pid())?);
    while !origins.is_empty() && may_go_on(done, 0, goes_on) {
        let mut pages = origins.take_last(GATHERED);
        let taken = pages.len();
        pages.retain(|(address, _)| numapilot_ranges::find(without, |range| *range, *address).is_none());
        done.left_out_bytes += (taken - pages.len()) as u64 * page_bytes();
        done.looked_at += pages.len() as u64;
        let requests = pages.into_iter().map(|(address, to)| MoveRequest { to, address });
        let requests: Vec<MoveRequest> = requests.collect();
        if !requests.is_empty() {
            let moved = mover.run(Some(process), &requests, &huge, &mut |moved| may_go_on(done, moved, goes_on))?;
            done.add(moved)?;
        }
    }
    Ok(())
}

/// Asks whether to go on, with how it stands: `moved` pages have moved beside those in the account.
fn may_go_on(done: &mut Migration, moved: u64, goes_on: &mut dyn FnMut(&Migration) -> bool) -> bool {
    let pages = PageOutcomes { moved: done.pages.moved + moved, ..done.pages };
    let so_far = Migration { pages, ..done.clone() };
    done.stopped |= !goes_on(&so_far);
    !done.stopped
}

/// The ranges in which huge pages may be.
fn may_be_huge(ranges: &[census::Range]) -> Vec<(VirtAddr, VirtAddr)> {
    ranges.iter().filter(|range| range.huge_bytes > 0).map(|range| (range.start, range.end)).collect()
}

fn all(
    process: &Process,
    route: &mut Route,
    execution: &mut Execution<'_>,
    done: &mut Migration,
    goes_on: &mut dyn FnMut(&Migration) -> bool,
) -> Result<(), KernelError> {
    let pid = process.pid();
    let ranges = census::residents(pid)?;
    done.hugetlb_bytes += ranges.iter().map(|range| range.hugetlb_bytes).sum::<u64>();
    let huge = may_be_huge(&ranges);
    let (mut map, mut query) = (PageMap::open(pid)?, PageQuery::new());
    let (mut gathered, mut states) = (Gathered::default(), Vec::new());
    for range in ranges.iter().filter(|range| range.resident_bytes > 0) {
        if route.leaves_out(range.start) {
            done.left_out_bytes += range.resident_bytes;
            continue;
        }
        let mut failed = None;
        census::present(&mut map, range.start, range.end, &mut |addresses| {
            states.clear();
            if failed.is_some() || done.stopped {
                return;
            }
            if !goes_on(done) {
                done.stopped = true;
                return;
            }
            if let Err(error) = query.states(pid, addresses, &mut states) {
                failed = Some(error);
                return;
            }
            for (address, state) in addresses.iter().zip(&states) {
                let Some(home) = state.node() else { continue };
                done.looked_at += 1;
                match route.target(home) {
                    Some(to) => {
                        *done.wanted.entry((home, to)).or_default() += 1;
                        gathered.add(VirtAddr(*address), home, to);
                    }
                    None => done.elsewhere += 1,
                }
            }
            if gathered.requests.len() >= GATHERED {
                failed = flush(process, execution, &mut gathered, &huge, done, goes_on).err();
            }
        })?;
        failed.map_or(Ok(()), Err)?;
        if done.stopped {
            break;
        }
    }
    flush(process, execution, &mut gathered, &huge, done, goes_on)
}

fn flush(
    process: &Process,
    execution: &mut Execution<'_>,
    gathered: &mut Gathered,
    huge: &[(VirtAddr, VirtAddr)],
    done: &mut Migration,
    goes_on: &mut dyn FnMut(&Migration) -> bool,
) -> Result<(), KernelError> {
    if gathered.requests.is_empty() {
        return Ok(());
    }
    if let Some(mover) = &mut execution.mover {
        let requests = &mut gathered.requests;
        requests.sort_unstable();
        let moved = mover.run_known(Some(process), requests, huge, &mut |moved| may_go_on(done, moved, goes_on))?;
        if let Some(origins) = &mut execution.origins {
            gathered.remember(&moved.outcomes, origins);
        }
        done.add(moved)?;
    }
    gathered.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Routes, and a look at this process.

    use numapilot_host::Pid;

    use super::*;

    /// It was left out of the account of those who go on after an error, and of the journal.
    #[test]
    fn what_has_moved_before_an_error_is_counted() {
        let pages = PageOutcomes { moved: 3, not_tried: 1, ..PageOutcomes::default() };
        let failed = Some(KernelError::Gone { pid: Pid(7) });
        let moved = Moved { pages, moving_ns: 5, failed, ..Moved::default() };
        let mut done = Migration { pages, ..Migration::default() };
        assert!(matches!(done.add(moved), Err(KernelError::Gone { .. })));
        assert_eq!((done.pages.moved, done.pages.not_tried, done.moving.as_nanos()), (6, 2, 5));
        assert!(done.add(Moved::default()).is_ok() && done.pages.total() == 8);
    }

    fn nodes(ids: &[u16]) -> Vec<NodeId> {
        ids.iter().map(|id| NodeId(*id)).collect()
    }

    #[test]
    fn pages_go_pairwise_or_round_robin() {
        let mut pairwise = Route::new(&nodes(&[0, 1]), &nodes(&[1, 2])).unwrap();
        assert_eq!([0, 1, 2].map(|home| pairwise.target(NodeId(home))), [Some(NodeId(1)), Some(NodeId(2)), None]);
        let mut dealt = Route::new(&nodes(&[0]), &nodes(&[2, 3])).unwrap();
        let targets: Vec<_> = (0..4).map(|_| dealt.target(NodeId(0)).unwrap().0).collect();
        assert_eq!(targets, [2, 3, 2, 3]);
        let mut gather = Route::new(&nodes(&[0, 1, 2]), &nodes(&[1])).unwrap();
        assert_eq!([0, 1, 2].map(|home| gather.target(NodeId(home))), [Some(NodeId(1)), None, Some(NodeId(1))]);
        assert_eq!(Route::new(&[], &nodes(&[1])), None);
    }

    /// Looks through this process, and moves nothing.
    fn look(route: &mut Route, goes_on: &mut dyn FnMut(&Migration) -> bool) -> Result<Migration, KernelError> {
        let (process, mut done) = (Process::open(Pid::own()).unwrap(), Migration::default());
        run_into(&mut done, &process, route, None, goes_on)?;
        Ok(done)
    }

    #[test]
    fn a_stop_ends_the_look_through_a_large_process_too() {
        let mut route = Route::new(&nodes(&[999]), &nodes(&[0])).unwrap();
        let mut asked = 0;
        let done = look(&mut route, &mut |_| {
            asked += 1;
            false
        });
        match done {
            Ok(done) => assert!(done.stopped && done.looked_at == 0 && asked == 1, "{done:?}, asked {asked} times"),
            Err(error) => numapilot_not_run::not_run!(MovePages, "{error}"),
        }
    }

    #[test]
    fn mappings_that_are_left_out_are_counted_and_not_looked_at() {
        let ranges = [(0x1000, 0x3000), (0x5000, u64::MAX)].map(|(start, end)| (VirtAddr(start), VirtAddr(end)));
        let mut route = Route::new(&nodes(&[0]), &nodes(&[1])).unwrap().without(ranges.to_vec());
        let left_out = [0, 0x1000, 0x2fff, 0x3000, 0x5000].map(|address| route.leaves_out(VirtAddr(address)));
        assert_eq!(left_out, [false, true, true, false, true]);
        match look(&mut route, &mut |_| true) {
            Ok(done) => assert!(done.looked_at == 0 && done.left_out_bytes > 100 << 10, "{done:?}"),
            Err(error) => numapilot_not_run::not_run!(MovePages, "{error}"),
        }
    }

    /// Nobody knew where a process's pages had been once they had moved.
    #[test]
    fn where_pages_were_that_have_moved_is_remembered_in_the_order_of_their_addresses() {
        let (size, mut gathered, mut origins) = (page_bytes(), Gathered::default(), Origins::default());
        origins.limit(9);
        // Dealt over two nodes, of which one takes all but one of its pages.
        for (page, home, to) in [(1, 0, 8), (2, 0, 7), (3, 0, 8), (4, 5, 7), (5, 5, 8)] {
            gathered.add(VirtAddr(page * size), NodeId(home), NodeId(to));
        }
        gathered.requests.sort_unstable();
        let outcome = |request: &MoveRequest| match request.address.0 / size {
            3 => MoveOutcome::NoRoom,
            _ => MoveOutcome::Moved,
        };
        let outcomes: Vec<MoveOutcome> = gathered.requests.iter().map(outcome).collect();
        gathered.remember(&outcomes, &mut origins);
        assert_eq!(origins.len(), 2, "pages 1 and 2 were on node 0, 4 and 5 on node 5");
        let was = [(1, 0), (2, 0), (4, 5), (5, 5)].map(|(page, home)| (VirtAddr(page * size), NodeId(home)));
        assert_eq!(origins.take_last(9), was);
    }

    #[test]
    fn pages_go_back_to_where_they_were_but_for_those_that_are_to_stay() {
        let (size, process) = (page_bytes(), Process::open(Pid::own()).unwrap());
        let memory = vec![7_u8; 9 * size as usize];
        let first = (memory.as_ptr() as u64).div_ceil(size) * size;
        let addresses: Vec<u64> = (0..8).map(|page| first + page * size).collect();
        let (mut query, mut states, mut origins) = (PageQuery::new(), Vec::new(), Origins::default());
        if let Err(error) = query.states(Pid::own(), &addresses, &mut states) {
            return numapilot_not_run::not_run!(MovePages, "{error}");
        }
        origins.limit(8);
        for (address, state) in addresses.iter().zip(&states) {
            origins.moved(VirtAddr(*address), state.node().expect("a page that was written"));
        }
        let (mut done, mut mover) = (Migration::default(), Mover::new(Default::default()));
        let stays = [(VirtAddr(addresses[2]), VirtAddr(addresses[4]))];
        let mut left = origins.clone();
        back(&mut done, &process, &mut left, &stays, &mut mover, &mut |_| false).unwrap();
        assert!(done.stopped && done.looked_at == 0 && left == origins, "{done:?}");
        done = Migration::default();
        back(&mut done, &process, &mut origins, &stays, &mut mover, &mut |_| true).unwrap();
        // The kernel's own balancing may have moved one of them since.
        let are_there = done.pages.already_there + done.pages.moved;
        assert!(origins.is_empty() && !done.stopped && are_there == 6, "{done:?}");
        assert_eq!((done.looked_at, done.left_out_bytes), (6, 2 * size));
        drop(memory);
    }

    #[test]
    fn a_look_counts_every_page_and_moves_none() {
        let mut route = Route::new(&nodes(&[999]), &nodes(&[0])).unwrap();
        match look(&mut route, &mut |_| true) {
            Ok(done) => assert!(done.looked_at > 100 && done.elsewhere == done.looked_at && done.pages.total() == 0),
            Err(error) => numapilot_not_run::not_run!(MovePages, "{error}"),
        }
    }
}
