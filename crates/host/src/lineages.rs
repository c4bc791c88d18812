//! Which processes of a group inherit the events that were opened for one of them: these may be closed once none of them runs any more.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::Member;
use crate::Pid;

/// A process, with the one from which it has its events.
#[derive(Clone, Copy, Debug)]
struct Heir {
    start_ticks: u64,
    /// The process for which they were opened; `None`: not known.
    root: Option<Pid>,
}

/// The processes that have events, by process id.
#[derive(Debug, Default)]
pub struct Lineages {
    heirs: BTreeMap<Pid, Heir>,
}

impl Lineages {
    /// Takes what a look at the group found: who is a member, and who of them has joined since the last look. Returns the processes for which events were
    /// opened that nobody has any more. While it is not known from whom a member has its events, there are none.
    pub fn update(&mut self, members: &[Member], joined: &[Member]) -> Vec<Pid> {
        let before = self.roots();
        let started: BTreeMap<Pid, u64> = members.iter().map(|member| (member.pid, member.start_ticks)).collect();
        self.heirs.retain(|pid, heir| started.get(pid) == Some(&heir.start_ticks));
        // Of those that are new together, parents come before their children.
        let mut joined = joined.to_vec();
        joined.sort_by_key(|member| (member.start_ticks, member.pid));
        for member in joined {
            let root = match member.is_child {
                true => self.heirs.get(&member.parent).and_then(|parent| parent.root),
                false => Some(member.pid),
            };
            self.heirs.insert(member.pid, Heir { start_ticks: member.start_ticks, root });
        }
        if self.heirs.values().any(|heir| heir.root.is_none()) {
            // Events of processes that ended meanwhile stay open for good.
            return Vec::new();
        }
        let now = self.roots();
        before.difference(&now).copied().collect()
    }

    fn roots(&self) -> BTreeSet<Pid> {
        self.heirs.values().filter_map(|heir| heir.root).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(pid: u32, parent: u32, start_ticks: u64, is_child: bool) -> Member {
        Member { pid: Pid(pid), parent: Pid(parent), start_ticks, is_child }
    }

    #[test]
    fn events_are_closed_when_the_last_that_inherits_them_has_ended() {
        let (server, worker, other) = (member(10, 1, 100, false), member(11, 10, 110, true), member(20, 1, 120, false));
        let mut lineages = Lineages::default();
        assert!(lineages.update(&[server], &[server]).is_empty());
        // The grandchild has the lowest id, and all three are new together.
        let grandchild = member(5, 11, 130, true);
        assert!(lineages.update(&[grandchild, server, worker, other], &[grandchild, worker, other]).is_empty());
        assert!(lineages.update(&[grandchild, other], &[]).is_empty(), "the grandchild has the server's events");
        assert_eq!(lineages.update(&[other], &[]), [Pid(10)]);
        assert_eq!(lineages.update(&[], &[]), [Pid(20)]);
        assert!(lineages.update(&[], &[]).is_empty(), "once");
    }

    #[test]
    fn a_process_with_an_id_that_was_used_before_is_another_one() {
        let mut lineages = Lineages::default();
        let (first, again) = (member(10, 1, 100, false), member(10, 1, 900, false));
        lineages.update(&[first], &[first]);
        assert!(lineages.update(&[again], &[again]).is_empty(), "what is opened by that id now is its own, too");
        assert_eq!(lineages.update(&[], &[]), [Pid(10)]);
    }

    #[test]
    fn nothing_is_closed_while_it_is_not_known_whose_events_a_member_has() {
        let mut lineages = Lineages::default();
        let (server, lost) = (member(10, 1, 100, false), member(12, 11, 140, true));
        lineages.update(&[server], &[server]);
        assert!(lineages.update(&[lost], &[lost]).is_empty());
    }
}
