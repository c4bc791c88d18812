//! Use of pages by all objects together: which nodes share a page, which pages are hot, and which nodes had objects on a page before.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use numapilot_flows::{AccessRef, ObjectKind};
use numapilot_host::PageNumber;
use numapilot_machine::{Machine, NodeIndex};
use numapilot_text::units::exact_bytes;

use super::common::CommonMemory;
use crate::context::Analysis;
use crate::estimate::{Estimate, Tally, Weight};
use crate::usage::{PackedNode, Usage, index_of};

/// Share of a page's accesses below which a node does not count as a user. Where more than five nodes access it, half of their even share.
const PASSER_BY: f64 = 0.1;
/// Number of pages at each end of an object that are checked for earlier owners, because recycled blocks are small.
const RECYCLED_PAGES: u64 = 8;

/// A process and a page number: of memory that several processes have in common, those by which it is known ([`CommonMemory::place`]).
pub(crate) type ProcessPage = (u32, PageNumber);
/// A process and the number of a huge page ([`PageSizes::huge_of`]).
type LargePage = (u32, u64);

/// Sizes of the pages that recorded memory has, in pages of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageSizes {
    base: u64,
    huge: u64,
}

impl PageSizes {
    /// Of memory with base pages of so many bytes. A huge page is as many of them as one has entries of a page table, of eight bytes each: 2 MiB of 4 KiB,
    /// 512 MiB of 64 KiB.
    pub fn of(base_bytes: u64) -> PageSizes {
        let bytes = base_bytes.max(PageNumber::BYTES);
        let base = bytes / PageNumber::BYTES;
        PageSizes { base, huge: base * (bytes / 8) }
    }

    /// The first 4 KiB of the base page that a page of 4 KiB is part of.
    pub fn base_of(self, page: PageNumber) -> PageNumber {
        PageNumber(page.0 / self.base * self.base)
    }

    /// Number of the huge page that it is part of, or would be.
    fn huge_of(self, page: PageNumber) -> u64 {
        page.0 / self.huge
    }

    /// Sizes of base pages and huge ones, in words.
    pub fn words(self) -> [String; 2] {
        [self.base, self.huge].map(|pages| exact_bytes(pages * PageNumber::BYTES))
    }
}

impl Default for PageSizes {
    fn default() -> PageSizes {
        PageSizes::of(PageNumber::BYTES)
    }
}

/// A page with more accesses than one node's even share.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HotPage {
    pub page: ProcessPage,
    /// Share of all memory accesses.
    pub share: Estimate,
    /// Number of nodes that use it.
    pub nodes: u32,
}

/// Accesses of a page by one node.
#[derive(Clone, Copy, Debug, Default)]
struct NodeUse {
    count: f64,
    /// Sums of times and of their squares, in seconds, by count.
    times: f64,
    squares: f64,
}

impl NodeUse {
    /// Time in which the node mostly used the page: one standard deviation around the mean, which single accesses at other times hardly widen.
    fn span(&self) -> (f64, f64) {
        let mean = self.times / self.count;
        let deviation = (self.squares / self.count - mean * mean).max(0.0).sqrt();
        (mean - deviation, mean + deviation)
    }
}

/// The accesses to a page, by node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Use {
    from: Vec<NodeUse>,
    pub all: Tally,
    /// The last home node that is known.
    home: PackedNode,
    /// Whether the home node changed during the recording.
    moved: bool,
}

impl Use {
    fn add(&mut self, from: NodeIndex, home: Option<NodeIndex>, weight: Weight, access: &AccessRef) {
        if from.0 >= self.from.len() {
            self.from.resize(from.0 + 1, NodeUse::default());
        }
        let (count, time) = (f64::from(access.weight), access.time.0 as f64 * 1e-9);
        self.from[from].count += count;
        self.from[from].times += count * time;
        self.from[from].squares += count * time * time;
        // Where the home of an access is not known, the page has not moved for that.
        if let Some(home) = home {
            self.moved |= self.home.index().is_some_and(|before| before != home);
            self.home = home.into();
        }
        self.all.add(weight);
    }

    fn count(&self) -> f64 {
        self.from.iter().map(|node| node.count).sum()
    }

    /// The nodes that use it, without passers-by.
    fn main_users(&self) -> impl Iterator<Item = &NodeUse> {
        let accessing = self.from.iter().filter(|node| node.count > 0.0).count().max(1) as f64;
        let least = PASSER_BY.min(0.5 / accessing) * self.count();
        self.from.iter().filter(move |node| node.count > least)
    }

    /// Number of nodes that use it, without those below [`PASSER_BY`].
    pub fn users(&self) -> u32 {
        self.main_users().count() as u32
    }

    /// Whether several nodes use it in the same stretch of time; memory that was freed and handed on is used by one after the other.
    fn is_shared(&self) -> bool {
        let mut spans: Vec<(f64, f64)> = self.main_users().map(NodeUse::span).collect();
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        spans.windows(2).any(|pair| pair[1].0 < pair[0].1)
    }

    fn main_user(&self) -> Option<NodeIndex> {
        let all = NodeIndex::all(self.from.len());
        all.max_by(|&a, &b| self.from[a].count.total_cmp(&self.from[b].count).then(b.cmp(&a)))
    }
}

/// Use of all pages on which the wanted sites have objects, and of the large pages around them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageUse {
    pub sizes: PageSizes,
    pub common: CommonMemory,
    pub small: HashMap<ProcessPage, Use>,
    pub large: HashMap<LargePage, Use>,
    /// Large pages whose small pages are used by different nodes and all lie on one.
    mixed_large: HashSet<LargePage>,
    /// Of heap blocks on the page: by node of their threads, the earliest birth. Any earlier lifetime counts.
    earlier: HashMap<ProcessPage, Vec<(u64, NodeIndex)>>,
}

impl PageUse {
    /// Walks all accesses once. `wanted`: groups.
    pub fn of(
        analysis: &Analysis<'_>,
        machine: &Machine,
        seats: &[Option<NodeIndex>],
        wanted: &HashSet<u32>,
        usage: &Usage,
    ) -> PageUse {
        let trace = analysis.trace();
        let sizes = PageSizes::of(trace.meta().base_page_bytes());
        let common = CommonMemory::of(analysis, machine);
        let place_of = |access: &AccessRef| {
            let (process, address) = common.place(trace, access);
            (process, sizes.base_of(address.page()))
        };
        let mut pages = PageUse { sizes, ..PageUse::default() };
        let group_of = |access: &AccessRef| access.object.and_then(|id| trace.object(id)).map(|o| usage.group(o));
        let mut regions: HashSet<LargePage> = HashSet::new();
        for access in analysis.accesses().filter(|access| group_of(access).is_some_and(|group| wanted.contains(&group)))
        {
            let (process, page) = place_of(&access);
            regions.insert((process, sizes.huge_of(page)));
        }
        for access in analysis.accesses() {
            let (process, page) = place_of(&access);
            let huge = (process, sizes.huge_of(page));
            let Some(from) = index_of(machine, access.node).filter(|_| regions.contains(&huge)) else {
                continue;
            };
            let from = seats[access.thread.0 as usize].unwrap_or(from);
            let home = index_of(machine, access.home);
            let weight = Weight::from(&access);
            pages.small.entry((process, page)).or_default().add(from, home, weight, &access);
            pages.large.entry(huge).or_default().add(from, home, weight, &access);
        }
        pages.common = common;
        pages.find_mixed_large();
        pages.find_earlier(analysis, machine, wanted);
        pages
    }

    /// Large pages: all on one node, while their small pages have each one user, and not all the same.
    fn find_mixed_large(&mut self) {
        let mut users: HashMap<LargePage, (u64, f64, f64)> = HashMap::new();
        for ((process, page), used) in self.small.iter().filter(|(_, used)| used.all.samples > 1) {
            let Some(user) = used.main_user() else { continue };
            let entry = users.entry((*process, self.sizes.huge_of(*page))).or_default();
            entry.0 |= 1 << (user.0 % 64);
            entry.1 += used.from[user].count;
            entry.2 += used.all.weight;
        }
        let mixed = users.into_iter().filter(|(page, (users, own, all))| {
            users.count_ones() > 1
                && *own > (1.0 - PASSER_BY) * all
                && self.large.get(page).is_some_and(|used| !used.moved)
        });
        self.mixed_large = mixed.map(|(page, _)| page).collect();
    }

    /// Who allocated heap blocks on these pages, in order of birth.
    fn find_earlier(&mut self, analysis: &Analysis<'_>, machine: &Machine, wanted: &HashSet<u32>) {
        let trace = analysis.trace();
        let is_heap = |site: u32| trace.sites().get(site as usize).is_some_and(|site| site.kind == ObjectKind::Heap);
        let sites = trace.sites().len() as u32;
        // Instances that are groups of their own are beyond the sites.
        if !wanted.iter().any(|&group| group > sites || is_heap(group)) {
            return;
        }
        for object in trace.objects().iter().filter(|object| is_heap(object.site.0)) {
            let Some(node) = index_of(machine, object.node) else { continue };
            for page in end_pages(object.address.0, object.bytes) {
                let page = (object.process.0, self.sizes.base_of(page));
                if self.small.contains_key(&page) {
                    note(self.earlier.entry(page).or_default(), object.birth.0, node);
                }
            }
        }
    }

    /// Pages that draw more of `all` accesses than an even spread over the nodes would give a whole node: no placement of whole pages can then be even.
    pub fn hot(&self, machine: &Machine, all: &Tally) -> HashSet<ProcessPage> {
        let fair = 1.0 / machine.nodes().iter().filter(|node| node.has_memory()).count().max(1) as f64;
        let is_hot = |used: &Use| used.all.share_of(all).low > fair && used.users() > 1;
        self.small.iter().filter(|(_, used)| is_hot(used)).map(|(page, _)| *page).collect()
    }

    /// Whether several nodes' objects share the page; at the small size, and at the large one only.
    pub fn mixed(&self, page: ProcessPage) -> (bool, bool) {
        let small = self.small.get(&page).is_some_and(Use::is_shared);
        (small, !small && self.mixed_large.contains(&(page.0, self.sizes.huge_of(page.1))))
    }

    /// Whether a thread of `node` had a heap block on the page before `birth`.
    pub fn was_used_by(&self, page: ProcessPage, node: NodeIndex, birth: u64) -> bool {
        self.earlier.get(&page).is_some_and(|lives| lives.iter().any(|&(born, of)| born < birth && of == node))
    }
}

/// Notes the birth of a block of a node's thread. A page that a heap recycles has thousands of them, and each of its accesses asks.
fn note(earliest: &mut Vec<(u64, NodeIndex)>, birth: u64, node: NodeIndex) {
    match earliest.iter_mut().find(|(_, of)| *of == node) {
        Some((born, _)) => *born = birth.min(*born),
        None => earliest.push((birth, node)),
    }
}

/// The first and last pages of an object.
fn end_pages(address: u64, bytes: u64) -> impl Iterator<Item = PageNumber> {
    let (first, last) = (PageNumber::of(address).0, PageNumber::of(address + bytes.max(1) - 1).0);
    let head = first..(first + RECYCLED_PAGES).min(last + 1);
    let tail = head.end.max(last.saturating_sub(RECYCLED_PAGES - 1))..last + 1;
    head.chain(tail).map(PageNumber)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many accesses by each node, in turn, to a page at these homes in turn.
    fn used(by_node: &[u64], homes: &[Option<usize>]) -> Use {
        let mut used = Use::default();
        let mut homes = homes.iter().cycle();
        for turn in 0..by_node.iter().copied().max().unwrap_or(0) {
            for (node, _) in NodeIndex::all(by_node.len()).zip(by_node).filter(|(_, count)| turn < **count) {
                let access = AccessRef { time: numapilot_trace::ids::TimeNs(turn), weight: 1, ..AccessRef::at(0) };
                let home = homes.next().copied().flatten().map(NodeIndex);
                used.add(node, home, Weight::from(1), &access);
            }
        }
        used
    }

    /// Of sixteen nodes each makes a sixteenth of the accesses, which is less than a passer-by of four nodes makes.
    #[test]
    fn a_page_that_many_nodes_use_alike_has_them_all_for_users() {
        let many = used(&[10; 16], &[Some(0)]);
        assert!(many.users() == 16 && many.is_shared(), "{}", many.users());
        let few = used(&[95, 5, 0, 0], &[Some(0)]);
        assert!(few.users() == 1 && !few.is_shared(), "{}", few.users());
        let mostly_one = used(&[300, 5, 5, 5, 5, 5, 5, 5], &[Some(0)]);
        assert_eq!((mostly_one.users(), Use::default().users()), (1, 0));
    }

    #[test]
    fn a_page_of_which_some_homes_are_unknown_has_not_moved() {
        for homes in [&[Some(1), None, Some(1)][..], &[None, Some(1)], &[None]] {
            assert!(!used(&[4], homes).moved, "{homes:?}");
        }
        assert!(used(&[4], &[Some(1), None, Some(2)]).moved && used(&[2], &[Some(0), Some(1)]).moved);
    }

    #[test]
    fn of_recycled_memory_only_the_earliest_block_of_each_node_is_kept() {
        let page = (0, PageNumber(7));
        let mut pages = PageUse::default();
        for birth in (10..10_000).rev() {
            note(pages.earlier.entry(page).or_default(), birth, NodeIndex(birth as usize % 2));
        }
        assert_eq!(pages.earlier[&page].len(), 2);
        let was_used = |node, birth| pages.was_used_by(page, NodeIndex(node), birth);
        assert!(was_used(0, 11) && was_used(1, 12) && was_used(1, u64::MAX));
        assert!(!was_used(0, 10) && !was_used(1, 11) && !was_used(2, u64::MAX));
    }

    #[test]
    fn pages_have_the_sizes_of_the_hosts() {
        let sizes = [4096, 16_384, 65_536].map(PageSizes::of);
        assert_eq!(sizes[0], PageSizes::default());
        let words = sizes.map(PageSizes::words);
        assert_eq!(words, [["4 KiB", "2 MiB"], ["16 KiB", "32 MiB"], ["64 KiB", "512 MiB"]]);
        let page = PageNumber::of(0x7f00_2001_5000);
        assert_eq!(sizes.map(|sizes| sizes.base_of(page).address() & 0xf_ffff), [0x1_5000, 0x1_4000, 0x1_0000]);
        assert_eq!(sizes.map(|sizes| sizes.huge_of(page)), [21, 25, 29].map(|bits: u32| 0x7f00_2001_5000_u64 >> bits));
    }
}
