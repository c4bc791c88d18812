//! Groups of pages with the same behaviour: the unit of the search. A group has one home node and one kind of users; its plan is divided
//! among single pages when it is executed.

use std::collections::BTreeMap;

use numapilot_host::PageNumber;
use numapilot_machine::{NodeIndex, NodeSet};

use super::memory::{BLOCK_PAGES, Block, Memory};
use crate::observation::PageSize;

/// Samples of a block's own that count as much as its pages' neighbourhood when its users are estimated from one interval.
const BLOCK_PRIOR: f32 = 16.0;
/// A node that makes at least this share of a page's accesses is its main user.
const MAIN_SHARE: f32 = 0.6;
/// A member of a group: one page, or several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Member {
    /// A sampled page: its block and its position there.
    Seen((u32, u64), usize),
    /// The pages of a block without samples.
    Unseen((u32, u64)),
    /// A large page, by (process, block).
    Large((u32, u64)),
}

impl Member {
    /// The block of the member, as (process, block).
    pub fn block(self) -> (u32, u64) {
        match self {
            Member::Seen(block, _) | Member::Unseen(block) | Member::Large(block) => block,
        }
    }

    /// The regret of the member, stored in its block.
    pub fn regret_ns(self, block: &mut Block) -> Option<&mut f32> {
        match self {
            Member::Seen(_, position) => block.pages.get_mut(position).map(|page| &mut page.regret_ns),
            Member::Large(_) => block.pages.first_mut().map(|page| &mut page.regret_ns),
            Member::Unseen(_) => Some(&mut block.unseen_regret_ns),
        }
    }
}

/// A group of pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// Home node of its pages.
    pub home: NodeIndex,
    /// Reads per second by accessing node.
    pub reads: Vec<f64>,
    /// Writes per second by accessing node.
    pub writes: Vec<f64>,
    /// Whether no sample of its blocks wrote, and there were enough of them to say so.
    pub read_only: bool,
    /// The pages, each with its accesses per second.
    pub members: Vec<(Member, f64)>,
}

impl Group {
    /// Accesses per second to the group's pages.
    pub fn rate(&self) -> f64 {
        self.reads.iter().sum::<f64>() + self.writes.iter().sum::<f64>()
    }
}

/// Who makes most accesses to a page. In order, pages without a main user come last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MainUser {
    Node(NodeIndex),
    Nobody,
}

/// The key of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    home: NodeIndex,
    large: bool,
    read_only: bool,
    main: MainUser,
    /// Nodes with at least half of an equal share.
    users: NodeSet,
}

/// Splits this interval's accesses (`rate_of_node`: memory accesses per second that each node makes) among groups of pages by the samples.
pub(super) fn groups_of(memory: &Memory, mapped: &[(u32, PageNumber, u64)], rate_of_node: &[f64]) -> Vec<Group> {
    let nodes = rate_of_node.len();
    let mut samples_of_node = vec![0.0f64; nodes];
    for block in memory.active.iter().filter_map(|key| memory.blocks.get(key)) {
        for (node, samples) in samples_of_node.iter_mut().enumerate() {
            *samples += f64::from(block.fresh[node] + block.fresh[nodes + node]);
        }
    }
    let per_sample: Vec<f64> =
        rate_of_node.iter().zip(&samples_of_node).map(|(rate, samples)| rate / samples.max(1.0)).collect();
    let mut groups = Grouping::default();
    for (key, block) in memory.active.iter().filter_map(|key| Some((*key, memory.blocks.get(key)?))) {
        Shares::of(block, nodes, &per_sample).each(key, memory.is_read_only(key, mapped), &mut groups);
    }
    groups.into_groups()
}

/// Groups under construction, by kind of page.
#[derive(Default)]
struct Grouping {
    position: BTreeMap<Kind, usize>,
    groups: Vec<Group>,
    /// Neighbours are mostly of one kind.
    last: Option<(Kind, usize)>,
}

impl Grouping {
    fn of(&mut self, kind: Kind, nodes: usize) -> &mut Group {
        let at = match self.last {
            Some((last, at)) if last == kind => at,
            _ => *self.position.entry(kind).or_insert_with(|| {
                self.groups.push(Group {
                    home: kind.home,
                    reads: vec![0.0; nodes],
                    writes: vec![0.0; nodes],
                    read_only: kind.read_only,
                    ..Group::default()
                });
                self.groups.len() - 1
            }),
        };
        self.last = Some((kind, at));
        &mut self.groups[at]
    }

    /// The groups, in the order of their kinds.
    fn into_groups(mut self) -> Vec<Group> {
        self.position.into_values().map(|at| std::mem::take(&mut self.groups[at])).collect()
    }
}

/// One block's accesses, ready to be split among its pages.
struct Shares<'b> {
    block: &'b Block,
    nodes: usize,
    /// Accesses per second by node: reads, then writes.
    rates: Vec<f64>,
    /// Users of an average page: shares by node.
    users: Vec<f32>,
    /// Goes to [`Block::users_by_home`].
    by_home: Vec<Option<Vec<f32>>>,
    /// See [`Block::likeness`].
    likeness: f32,
    /// Share of the accesses that goes to pages never seen (Good and Turing: the share of pages seen once among all samples).
    unseen: f64,
    /// Share of the accesses that write.
    write_share: f64,
}

impl<'b> Shares<'b> {
    fn of(block: &'b Block, nodes: usize, per_sample: &[f64]) -> Shares<'b> {
        let rates: Vec<f64> = (0..2 * nodes).map(|at| f64::from(block.fresh[at]) * per_sample[at % nodes]).collect();
        let total: f64 = rates.iter().sum();
        let write_share = if total > 0.0 { rates[nodes..].iter().sum::<f64>() / total } else { 0.0 };
        let remembered: f32 = block.remembered.iter().sum::<f32>().max(1.0);
        let latest: Vec<f32> =
            (0..nodes).map(|node| (block.fresh[node] + block.fresh[nodes + node]).max(block.pane[node])).collect();
        let prior = if block.remembered.iter().all(|count| *count == 0.0) { 0.0 } else { BLOCK_PRIOR };
        let fresh = latest.iter().sum::<f32>();
        let prior = prior * block.run_length(fresh);
        let all = fresh + prior;
        let users = latest
            .iter()
            .zip(&block.remembered)
            .map(|(latest, old)| (latest + prior * old / remembered) / all)
            .collect();
        let all: u32 = block.pages.iter().map(|page| u32::from(page.samples)).sum();
        let once = block.pages.iter().filter(|page| page.samples == 1).count();
        let left = BLOCK_PAGES as usize > block.pages.len();
        let unseen = if left && block.common_home(nodes).is_some() { once as f64 / f64::from(all.max(1)) } else { 0.0 };
        let by_home = block.users_by_home(nodes);
        let likeness = block.likeness(&by_home, nodes);
        Shares { block, nodes, rates, users, by_home, likeness, unseen: unseen.min(0.95), write_share }
    }

    fn each(&self, key: (u32, u64), read_only: bool, groups: &mut Grouping) {
        let total: f64 = self.rates.iter().sum();
        if self.block.size == PageSize::Large {
            let home = self.block.pages.first().map_or(NodeIndex(0), |page| page.home.index());
            self.add(Member::Large(key), home, &self.users, total, read_only, groups);
            return;
        }
        let all: f64 = self.block.pages.iter().map(|page| f64::from(page.samples.max(1))).sum();
        let mut users = vec![0.0f32; self.nodes];
        for (position, page) in self.block.pages.iter().enumerate() {
            let counts = self.block.counts_of(position, self.nodes);
            let usual = self.by_home[page.home.index()].as_ref().unwrap_or(&self.users);
            let weight = f32::from(page.samples) + self.likeness;
            for (node, user) in users.iter_mut().enumerate() {
                *user = (f32::from(counts[node]) + f32::from(counts[self.nodes + node]) + self.likeness * usual[node])
                    / weight;
            }
            let rate = total * (1.0 - self.unseen) * f64::from(page.samples.max(1)) / all;
            self.add(Member::Seen(key, position), page.home.index(), &users, rate, read_only, groups);
        }
        if let Some(home) = self.block.common_home(self.nodes).filter(|_| self.unseen > 0.0 && !self.block.unseen_dealt)
        {
            self.add(Member::Unseen(key), home, &self.users, total * self.unseen, read_only, groups);
        }
    }

    fn add(&self, member: Member, home: NodeIndex, users: &[f32], rate: f64, read_only: bool, groups: &mut Grouping) {
        let main = NodeIndex::all(users.len()).find(|node| users[*node] >= MAIN_SHARE);
        let main = main.map_or(MainUser::Nobody, MainUser::Node);
        let equal = 0.5 / self.nodes as f32;
        let sharers: NodeSet = NodeIndex::all(users.len()).filter(|node| users[*node] >= equal).collect();
        let page = match member {
            Member::Seen(_, position) => self.block.pages.get(position),
            Member::Large(_) => self.block.pages.first(),
            Member::Unseen(_) => None,
        };
        // Everybody who uses it has a copy of his own: there is no better place for it.
        if page.is_some_and(|page| !page.copies.is_empty() && sharers.is_subset(page.copies)) {
            return;
        }
        let large = matches!(member, Member::Large(_));
        let kind = Kind { home, large, read_only, main, users: sharers };
        let group = groups.of(kind, self.nodes);
        for (node, share) in users.iter().enumerate() {
            group.reads[node] += rate * f64::from(*share) * (1.0 - self.write_share);
            group.writes[node] += rate * f64::from(*share) * self.write_share;
        }
        group.members.push((member, rate));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{PageKey, Sample};

    /// 512 pages at home on node 0; the first half is used by node 1 alone, the rest by all nodes.
    fn memory() -> Memory {
        let mut memory = Memory::default();
        for round in 0..10u64 {
            let samples = (0..1024u64).map(|n| {
                let page = n / 2;
                let from = if page < 256 { 1 } else { ((n + round) % 4) as usize };
                let small_page = PageNumber(page);
                let key = PageKey { process: 1, page: small_page, size: PageSize::Small };
                let (from, home) = (NodeIndex(from), NodeIndex(0));
                Sample { page: key, small_page, thread: 0, from, home, is_write: page < 256, latency_ns: None }
            });
            memory.learn(&samples.collect::<Vec<_>>(), &[], 4);
        }
        memory
    }

    #[test]
    fn pages_whose_users_all_have_copies_are_where_they_should_be() {
        let mut memory = memory();
        let key = |page| PageKey { process: 1, page: PageNumber(page), size: PageSize::Small };
        memory.has_copies(key(300), &[0, 1, 2, 3].map(NodeIndex));
        memory.has_copies(key(301), &[0, 1, 2].map(NodeIndex));
        let groups = groups_of(&memory, &[], &[100.0, 400.0, 100.0, 100.0]);
        assert_eq!(groups.iter().map(|group| group.members.len()).sum::<usize>(), 511, "node 3 still has to go far");
    }

    #[test]
    fn groups_hold_all_accesses_and_tell_private_pages_from_shared_ones() {
        let groups = groups_of(&memory(), &[], &[100.0, 400.0, 100.0, 100.0]);
        let total: f64 = groups.iter().map(Group::rate).sum();
        assert!((total - 700.0).abs() < 1e-3, "{total}");
        let pages: usize = groups.iter().map(|group| group.members.len()).sum();
        assert_eq!(pages, 512, "every page was seen, none is counted twice");
        let private = groups.iter().filter(|group| group.reads[1] + group.writes[1] > 0.6 * group.rate());
        let private: usize = private.map(|group| group.members.len()).sum();
        assert!((250..=262).contains(&private), "{private}");
        assert!(groups.iter().all(|group| group.home == NodeIndex(0) && !group.read_only));
    }
}
