//! Interprets the results of `move_pages` (`do_pages_move` in `mm/migrate.c`). Pure: the two system calls are behind a trait.
//!
//! The call may return 0: every page has its status. It may return the number of pages that did not move; some or all statuses are then not written.
//! It may fail with ENOMEM after moving some pages. Statuses are preset to a value that the kernel never writes; pages that keep it are queried. All other
//! errors come before the first page of a call is moved, as all of them go to one node.

use std::fmt::Debug;

use numapilot_host::Pid;
use numapilot_machine::NodeId;

use super::MoveOutcome;
use crate::error::KernelError;
use crate::memory::PageState;

/// No errno and no node: a status that the kernel has not written.
pub(super) const UNWRITTEN: i32 = i32::MIN;

/// One call: pages of one process to one node.
pub(super) struct Batch<'a> {
    pub pid: Pid,
    pub addresses: &'a [u64],
    pub to: NodeId,
}

/// How a call ended as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEnd {
    /// The kernel wrote a status for every page.
    Complete,
    /// Some pages stayed; statuses may be missing.
    Partial,
    /// The target had no room for some; statuses may be missing.
    NoMemory,
}

/// The system calls that the actuator makes; tests replace them.
pub(super) trait Calls: Debug + Send + Sync {
    /// The state of each page: its node, or why it has none.
    fn query(&mut self, pid: Pid, addresses: &[u64]) -> Result<Vec<PageState>, KernelError>;
    /// Moves pages to one node. Statuses go to `status`, which has as many elements as there are addresses.
    fn move_to(&mut self, batch: &Batch<'_>, status: &mut [i32]) -> Result<CallEnd, KernelError>;
}

/// What a page's place before moving settles already.
pub(super) fn before(state: PageState, to: NodeId) -> Option<MoveOutcome> {
    match state {
        PageState::On(node) if node == to => Some(MoveOutcome::AlreadyThere),
        PageState::On(_) | PageState::Busy | PageState::Shared => None,
        PageState::Absent => Some(MoveOutcome::Gone),
        PageState::Unmapped => Some(MoveOutcome::Unmovable),
        PageState::Other(status) => Some(MoveOutcome::Other(-status)),
    }
}

/// Moves a batch. `None` for a page: busy, to be tried again; or not known, because the query failed: what the call has said of the others holds, and the
/// kernel says of a page that has moved that it is there when it is tried again.
pub(super) fn batch(calls: &mut dyn Calls, batch: &Batch<'_>) -> Result<Vec<Option<MoveOutcome>>, KernelError> {
    let mut status = vec![UNWRITTEN; batch.addresses.len()];
    let end = calls.move_to(batch, &mut status)?;
    let mut outcomes: Vec<Option<MoveOutcome>> = status.iter().map(|&status| after(status, batch.to)).collect();
    let unknown: Vec<usize> = (0..status.len()).filter(|&at| status[at] == UNWRITTEN).collect();
    if unknown.is_empty() {
        return Ok(outcomes);
    }
    let addresses: Vec<u64> = unknown.iter().map(|&at| batch.addresses[at]).collect();
    let states = match calls.query(batch.pid, &addresses) {
        Ok(states) => states,
        Err(error @ KernelError::Gone { .. }) => return Err(error),
        Err(_) => {
            unknown.into_iter().for_each(|at| outcomes[at] = None);
            return Ok(outcomes);
        }
    };
    for (at, state) in unknown.into_iter().zip(states) {
        outcomes[at] = match before(state, batch.to) {
            Some(MoveOutcome::AlreadyThere) => Some(MoveOutcome::Moved),
            None if end == CallEnd::NoMemory => Some(MoveOutcome::NoRoom),
            other => other,
        };
    }
    Ok(outcomes)
}

/// The outcome that a status of `move_pages` says for a page that was to move to node `to`; `None`: it did not move, and may be tried again.
fn after(status: i32, to: NodeId) -> Option<MoveOutcome> {
    match (u16::try_from(status), -i64::from(status) as i32) {
        (Ok(node), _) if node == to.0 => Some(MoveOutcome::Moved),
        // Not moved, without a reason: something held a reference to the page.
        (Ok(_), _) | (_, libc::EBUSY | libc::EAGAIN) => None,
        (_, libc::ENOENT) => Some(MoveOutcome::Gone),
        (_, libc::EACCES) => Some(MoveOutcome::NotPermitted),
        (_, libc::EFAULT) => Some(MoveOutcome::Unmovable),
        (_, libc::ENOMEM) => Some(MoveOutcome::NoRoom),
        (_, errno) => Some(MoveOutcome::Other(errno)),
    }
}

#[cfg(test)]
mod tests {
    //! A simulated kernel that returns what the real one may: every page must get an outcome, and the outcome must be true.

    use std::collections::BTreeMap;
    use std::io;

    use proptest::prelude::*;

    use super::*;

    /// What a page does when it is to be moved.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Page {
        Movable,
        Busy,
        Shared,
        Absent,
        Zero,
    }

    #[derive(Debug)]
    struct Kernel {
        pages: BTreeMap<u64, (Page, NodeId)>,
        room: usize,
        /// Whether it answers no queries.
        is_mute: bool,
    }

    impl Calls for Kernel {
        fn query(&mut self, pid: Pid, addresses: &[u64]) -> Result<Vec<PageState>, KernelError> {
            if self.is_mute {
                return Err(KernelError::Denied { pid, source: io::Error::from_raw_os_error(libc::EPERM) });
            }
            let state = |address| match self.pages[address] {
                (Page::Absent, _) => PageState::Absent,
                (Page::Zero, _) => PageState::Unmapped,
                (_, node) => PageState::On(node),
            };
            Ok(addresses.iter().map(state).collect())
        }

        /// As `do_pages_move`: pages are gathered until one cannot be, then the gathered ones move; if some of them stay, the call ends there.
        fn move_to(&mut self, batch: &Batch<'_>, status: &mut [i32]) -> Result<CallEnd, KernelError> {
            let mut start = 0;
            for at in 0..=batch.addresses.len() {
                let error = batch.addresses.get(at).and_then(|address| match self.pages[address].0 {
                    Page::Absent => Some(libc::ENOENT),
                    Page::Shared => Some(libc::EACCES),
                    Page::Zero => Some(libc::EFAULT),
                    Page::Movable | Page::Busy => None,
                });
                if at < batch.addresses.len() && error.is_none() {
                    continue;
                }
                let mut stayed = false;
                for address in &batch.addresses[start..at] {
                    let page = self.pages.get_mut(address).expect("a page");
                    if self.room == 0 && page.1 != batch.to {
                        return Ok(CallEnd::NoMemory);
                    }
                    if page.0 == Page::Busy {
                        stayed = true;
                    } else if page.1 != batch.to {
                        page.1 = batch.to;
                        self.room -= 1;
                    }
                }
                if stayed {
                    return Ok(CallEnd::Partial);
                }
                status[start..at].fill(i32::from(batch.to.0));
                if let Some(error) = error {
                    status[at] = -error;
                }
                start = at + 1;
            }
            Ok(CallEnd::Complete)
        }
    }

    /// The call's own answers were thrown away with it.
    #[test]
    fn what_a_call_says_holds_where_the_rest_cannot_be_queried() {
        let kinds = [Page::Movable, Page::Movable, Page::Absent, Page::Movable, Page::Busy];
        let pages = kinds.iter().enumerate().map(|(at, page)| (at as u64 * 4096, (*page, NodeId(0))));
        let mut kernel = Kernel { pages: pages.collect(), room: 80, is_mute: true };
        let addresses: Vec<u64> = kernel.pages.keys().copied().collect();
        let to_node_2 = Batch { pid: Pid(1), addresses: &addresses, to: NodeId(2) };
        let outcomes = batch(&mut kernel, &to_node_2).unwrap();
        let [moved, gone] = [Some(MoveOutcome::Moved), Some(MoveOutcome::Gone)];
        assert_eq!(outcomes, [moved, moved, gone, None, None], "the fourth has moved, which the kernel did not say");
    }

    proptest! {
        #[test]
        fn every_page_gets_its_true_fate(kinds in prop::collection::vec(0..12_u8, 1..60), room in 0..80_usize) {
            let kind = |number: &u8| match number {
                0 => Page::Busy,
                1 => Page::Shared,
                2 => Page::Absent,
                3 => Page::Zero,
                _ => Page::Movable,
            };
            let pages = kinds.iter().enumerate().map(|(at, number)| (at as u64 * 4096, (kind(number), NodeId(0))));
            let mut kernel = Kernel { pages: pages.collect(), room, is_mute: false };
            let addresses: Vec<u64> = kernel.pages.keys().copied().collect();
            let outcomes = batch(&mut kernel, &Batch { pid: Pid(1), addresses: &addresses, to: NodeId(2) }).unwrap();
            prop_assert_eq!(outcomes.len(), addresses.len());
            for (address, outcome) in addresses.iter().zip(outcomes) {
                let (page, node) = kernel.pages[address];
                match outcome {
                    Some(MoveOutcome::Moved) => prop_assert_eq!(node, NodeId(2)),
                    Some(MoveOutcome::Gone) => prop_assert_eq!(page, Page::Absent),
                    Some(MoveOutcome::Unmovable) => prop_assert_eq!(page, Page::Zero),
                    Some(MoveOutcome::NotPermitted) => prop_assert_eq!(page, Page::Shared),
                    Some(MoveOutcome::NoRoom) => prop_assert!(node == NodeId(0) && kernel.room == 0),
                    None => prop_assert_eq!(node, NodeId(0)),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
    }
}
