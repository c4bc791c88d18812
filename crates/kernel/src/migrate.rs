//! Moves all pages of a process from some nodes to others, as `migratepages` does, and accounts for every page.

use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

use numapilot_machine::NodeId;

use crate::actuator::MoveRequest;
use crate::actuator::Mover;
use crate::actuator::PageOutcomes;
use crate::census;
use crate::error::KernelError;
use crate::memory::PageQuery;
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
}

impl Route {
    /// From these nodes to those. `None` if one of the lists is empty.
    #[must_use]
    pub fn new(from: &[NodeId], to: &[NodeId]) -> Option<Route> {
        (!from.is_empty() && !to.is_empty()).then(|| Route { from: from.to_vec(), to: to.to_vec(), dealt: 0 })
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
}

/// Moves pages of `process` along `route`; `mover` `None`: only looks. `goes_on` is asked before every call that moves, with how it stands.
///
/// # Errors
/// The process may not be looked into or moved, or a target cannot take pages.
pub fn run(
    process: &Process,
    route: &mut Route,
    mut mover: Option<&mut Mover>,
    goes_on: &mut dyn FnMut(&Migration) -> bool,
) -> Result<Migration, KernelError> {
    let begun = Instant::now();
    let mut done = Migration::default();
    let result = all(process, route, &mut mover, &mut done, goes_on);
    done.took = begun.elapsed();
    match result {
        Err(KernelError::Gone { .. }) => done.ended = true,
        other => other?,
    }
    Ok(done)
}

fn all(
    process: &Process,
    route: &mut Route,
    mover: &mut Option<&mut Mover>,
    done: &mut Migration,
    goes_on: &mut dyn FnMut(&Migration) -> bool,
) -> Result<(), KernelError> {
    let pid = process.pid();
    let ranges = census::residents(pid)?;
    let huge = ranges.iter().filter(|range| range.huge_bytes > 0).map(|range| (range.start, range.end));
    let huge: Vec<(u64, u64)> = huge.collect();
    let (mut map, mut query) = (PageMap::open(pid)?, PageQuery::new());
    let (mut requests, mut states) = (Vec::new(), Vec::new());
    for range in ranges.iter().filter(|range| range.resident_bytes > 0) {
        let mut failed = None;
        census::present(&mut map, range.start, range.end, &mut |addresses| {
            states.clear();
            if failed.is_some() || done.stopped {
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
                        requests.push(MoveRequest { to, address: *address });
                    }
                    None => done.elsewhere += 1,
                }
            }
            if requests.len() >= GATHERED {
                failed = flush(process, mover, &mut requests, &huge, done, goes_on).err();
            }
        })?;
        failed.map_or(Ok(()), Err)?;
        if done.stopped {
            break;
        }
    }
    flush(process, mover, &mut requests, &huge, done, goes_on)
}

fn flush(
    process: &Process,
    mover: &mut Option<&mut Mover>,
    requests: &mut Vec<MoveRequest>,
    huge: &[(u64, u64)],
    done: &mut Migration,
    goes_on: &mut dyn FnMut(&Migration) -> bool,
) -> Result<(), KernelError> {
    if requests.is_empty() {
        return Ok(());
    }
    if let Some(mover) = mover {
        requests.sort_unstable();
        let moved = mover.run_known(Some(process), requests, huge, &mut |moved| {
            let pages = PageOutcomes { moved: done.pages.moved + moved, ..done.pages };
            let so_far = Migration { pages, ..done.clone() };
            done.stopped |= !goes_on(&so_far);
            !done.stopped
        })?;
        done.pages.add(&moved.pages);
        done.moving += Duration::from_nanos(moved.moving_ns);
    }
    requests.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Routes, and a look at this process.

    use super::*;

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

    #[test]
    fn a_look_counts_every_page_and_moves_none() {
        let process = Process::open(std::process::id()).unwrap();
        let mut route = Route::new(&nodes(&[999]), &nodes(&[0])).unwrap();
        match run(&process, &mut route, None, &mut |_| true) {
            Ok(done) => assert!(done.looked_at > 100 && done.elsewhere == done.looked_at && done.pages.total() == 0),
            Err(error) => numapilot_not_run::not_run!(MovePages, "{error}"),
        }
    }
}
