//! The nodes that use each page: at most [`BYTES_PER_PAGE`] bytes per page, a bounded number of pages, and counts that halve with time.
//!
//! An entry has 24 bytes, in an open-addressed table that is between 78 and 90 % full once it has grown past its first size. A page remembers four nodes; a
//! fifth replaces the least used one. Beside the pages the table holds the flow: evidence by accessing node and home node, aged likewise.

use numapilot_host::PageNumber;
use numapilot_machine::{NodeIndex, Packed};

/// Maximum number of bytes per page, once there are some thousand pages.
pub const BYTES_PER_PAGE: usize = 32;
/// Number of nodes remembered per page.
const USERS: usize = 4;
/// Ticks after which counts are halved.
const HALF_LIFE: u16 = 100;
/// Halvings after which a count is 0.
const GONE_AFTER: u16 = 8;
/// A move back to the previous node within this many ticks (after its rest, if it had one) is a bounce; so is another move away from it, because somebody has
/// taken the page back meanwhile: the kernel's own balancing, say.
const BOUNCE_TICKS: u32 = 600;
/// Bounces after which a page is not moved for a time.
const BOUNCES: u8 = 2;
/// Ticks for which such a page is not moved; doubled with each further bounce.
pub(crate) const REST_TICKS: u32 = 300;
/// Doublings of that, at most.
pub(crate) const REST_DOUBLINGS: u8 = 6;
/// Ticks for which a page that the kernel could not move is not tried again; doubled with each further failure, up to [`STAYED_DOUBLINGS`] times.
const STAYED_TICKS: u32 = 20;
const STAYED_DOUBLINGS: u8 = 6;
/// Ticks after which moves and attempts are forgotten: later than any rest ends, and before the counter of ticks comes round to them.
const OLD_TICKS: u32 = 40_000;
const FIRST_CAPACITY: usize = 1024;
const EMPTY: u64 = u64::MAX;

/// A node of an entry.
type EntryNode = Packed<NodeIndex, u8>;

/// A page of one program image of a process: exec and exit begin a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(u64);

impl PageId {
    /// `slot`: number of the process, below 4,096. `generation`: number of its program image, modulo 256. `page`: below 2^44.
    #[must_use]
    pub fn new(slot: u16, generation: u8, page: PageNumber) -> PageId {
        PageId(u64::from(slot & 0xfff) << 52 | u64::from(generation) << 44 | page.0 & ((1 << 44) - 1))
    }

    /// Slot of the process.
    #[must_use]
    pub fn slot(self) -> u16 {
        (self.0 >> 52) as u16
    }

    /// Number of the program image, modulo 256.
    #[must_use]
    pub fn generation(self) -> u8 {
        (self.0 >> 44) as u8
    }

    /// Number of the page, in units of 4 KiB.
    #[must_use]
    pub fn page(self) -> PageNumber {
        PageNumber(self.0 & ((1 << 44) - 1))
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    nodes: [EntryNode; USERS],
    counts: [u8; USERS],
    /// Tick up to which the counts are aged.
    aged: u16,
    /// Tick of the last move, or of the last attempt that failed.
    moved: u16,
    home: EntryNode,
    /// Home node before the last move.
    before: EntryNode,
    /// Number of moves back, whoever made them, within [`BOUNCE_TICKS`]; the top bit is set once the page has moved.
    bounces: u8,
    /// Number of attempts to move it that failed, since the last move.
    stayed: u8,
}

const MOVED: u8 = 0x80;
const _: () = assert!(size_of::<Entry>() == 24);

impl Entry {
    const NONE: Entry = Entry {
        key: EMPTY,
        nodes: [EntryNode::NONE; USERS],
        counts: [0; USERS],
        aged: 0,
        moved: 0,
        home: EntryNode::NONE,
        before: EntryNode::NONE,
        bounces: 0,
        stayed: 0,
    };

    fn age(&mut self, tick: u16) {
        let halvings = tick.wrapping_sub(self.aged) / HALF_LIFE;
        if halvings > 0 {
            let shift = u32::from(halvings.min(GONE_AFTER));
            self.counts.iter_mut().for_each(|count| *count = count.checked_shr(shift).unwrap_or(0));
            self.aged = self.aged.wrapping_add(halvings * HALF_LIFE);
        }
    }

    /// Moves to and fro.
    fn bounces(&self) -> u8 {
        self.bounces & !MOVED
    }

    /// Ticks for which it is not moved after its last move, because it went to and fro.
    fn rest_ticks(&self) -> u32 {
        let bounces = self.bounces();
        if bounces < BOUNCES { 0 } else { REST_TICKS << (bounces - BOUNCES).min(REST_DOUBLINGS) }
    }

    /// Forgets moves, and attempts to move it, `since` ticks after the last of them.
    fn forget_old_moves(&mut self, since: u32) {
        if since >= OLD_TICKS {
            (self.bounces, self.before, self.stayed) = (0, EntryNode::NONE, 0);
        }
    }

    /// Ticks for which it is not tried again after the last attempt.
    fn stayed_ticks(&self) -> u32 {
        if self.stayed == 0 { 0 } else { STAYED_TICKS << (self.stayed - 1).min(STAYED_DOUBLINGS) }
    }

    /// Counts a use from `node`; a new node replaces the least used one.
    fn add(&mut self, node: EntryNode) {
        let at = (0..USERS).find(|&at| self.nodes[at] == node && self.counts[at] > 0);
        let at = at.or_else(|| (0..USERS).find(|&at| self.counts[at] == 0));
        let at = at.unwrap_or_else(|| (0..USERS).min_by_key(|&at| self.counts[at]).unwrap_or(0));
        if self.nodes[at] != node || self.counts[at] == 0 {
            (self.nodes[at], self.counts[at]) = (node, 0);
        }
        if self.counts[at] == u8::MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
        self.counts[at] += 1;
    }
}

/// The evidence about a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Each using node with its aged count, the most frequent first.
    pub users: Vec<(NodeIndex, u8)>,
    /// Its home node, if known.
    pub home: Option<NodeIndex>,
    /// How often it moved back to its previous node.
    pub bounces: u8,
}

/// Whether a page may be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovePermission {
    /// The page may be moved.
    Granted,
    /// The page moved back and forth this many times, and is not moved for this many further ticks.
    LeftAlone(u8, u32),
    /// The kernel could not move the page, which is not tried again for this many further ticks.
    Stayed(u32),
}

/// The evidence about all pages.
#[derive(Clone, Debug)]
pub struct PageTable {
    entries: Vec<Entry>,
    used: usize,
    limit: usize,
    tick: u16,
    nodes: usize,
    flow: Vec<f64>,
    /// Evidence of the present tick alone, with the homes that the pages had then.
    seen_flow: Vec<f64>,
    /// Evidence of all ticks, the older the less it counts; with the homes that the pages had at the time.
    observed_flow: Vec<f64>,
    /// Total number of pages that were not added because the table is full.
    pub dropped: u64,
}

impl PageTable {
    /// Makes a table for a machine of `nodes` nodes, with at most `limit` pages.
    #[must_use]
    pub fn new(nodes: usize, limit: usize) -> PageTable {
        let limit = limit.max(1);
        PageTable {
            entries: vec![Entry::NONE; FIRST_CAPACITY],
            used: 0,
            limit,
            tick: 0,
            nodes,
            flow: vec![0.0; nodes * nodes],
            seen_flow: vec![0.0; nodes * nodes],
            observed_flow: vec![0.0; nodes * nodes],
            dropped: 0,
        }
    }

    /// Number of pages in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Size of the table in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// Aged evidence by accessing node (row) and home node (column). What was seen of a page follows it when it moves, so this says where the accesses
    /// would go if they went on, not where any went: see [`PageTable::seen_flow`].
    #[must_use]
    pub fn flow(&self) -> &[f64] {
        &self.flow
    }

    /// Uses that were seen since the last tick, by accessing node (row) and the home node that the page had then (column). Changes are judged by these:
    /// evidence from before a move says nothing of what came after it, whatever node its pages are on by now.
    #[must_use]
    pub fn seen_flow(&self) -> &[f64] {
        &self.seen_flow
    }

    /// The flow of all ticks, the older the less it counts. Users are shown this one, because it was observed.
    #[must_use]
    pub fn observed_flow(&self) -> &[f64] {
        &self.observed_flow
    }

    /// Advances time by one tick.
    pub fn tick(&mut self) {
        self.seen_flow.fill(0.0);
        self.tick = self.tick.wrapping_add(1);
        let keep = 0.5_f64.powf(1.0 / f64::from(HALF_LIFE));
        self.flow.iter_mut().chain(&mut self.observed_flow).for_each(|flow| *flow *= keep);
    }

    /// Counts a use from node `from` of a page on node `home`. False: the table is full and does not hold the page.
    pub fn saw(&mut self, id: PageId, from: NodeIndex, home: NodeIndex) -> bool {
        for flow in [&mut self.flow, &mut self.seen_flow, &mut self.observed_flow] {
            if let Some(flow) = flow.get_mut(from.0 * self.nodes + home.0) {
                *flow += 1.0;
            }
        }
        let tick = self.tick;
        let Some(at) = self.slot_for(id) else {
            self.dropped += 1;
            return false;
        };
        let entry = &mut self.entries[at];
        entry.age(tick);
        entry.add(from.into());
        entry.home = home.into();
        true
    }

    /// Sets the home node of a page and moves its share of the flow there. Does nothing if the page is not in the table.
    pub fn is_at(&mut self, id: PageId, home: NodeIndex) {
        let Some(at) = self.find(id) else { return };
        let before = std::mem::replace(&mut self.entries[at].home, home.into());
        let Some(before) = before.index().filter(|before| *before != home) else { return };
        let entry = self.entries[at];
        for (node, count) in entry.nodes.into_iter().zip(entry.counts) {
            let Some(node) = node.index() else { continue };
            let row = node.0 * self.nodes;
            let (was, is) = (row + before.0, row + home.0);
            if count > 0 && was.max(is) < self.flow.len() {
                let moving = f64::from(count).min(self.flow[was]);
                self.flow[was] -= moving;
                self.flow[is] += moving;
            }
        }
    }

    /// Registers a move of a page from one node to another by this program.
    pub fn moved(&mut self, id: PageId, from: NodeIndex, to: NodeIndex) {
        self.is_at(id, to);
        let [from, to] = [from, to].map(EntryNode::from);
        let tick = self.tick;
        let Some(at) = self.slot_for(id) else { return };
        let entry = &mut self.entries[at];
        let is_again = entry.before == to || entry.before == from;
        let since = u32::from(tick.wrapping_sub(entry.moved));
        let is_bounce = entry.bounces & MOVED != 0 && is_again && since <= BOUNCE_TICKS + entry.rest_ticks();
        let bounces = entry.bounces().saturating_add(u8::from(is_bounce)).min(20);
        entry.bounces = MOVED | bounces;
        entry.stayed = 0;
        (entry.before, entry.home, entry.moved) = (from, to, tick);
    }

    /// Registers that the kernel could not move a page: it is pinned for a device, say, or other processes map it. Each attempt unmaps it for a moment.
    pub fn stayed(&mut self, id: PageId) {
        let tick = self.tick;
        let Some(at) = self.slot_for(id) else { return };
        let entry = &mut self.entries[at];
        (entry.stayed, entry.moved) = (entry.stayed.saturating_add(1), tick);
    }

    /// Forgets a page that was freed: its users and moves were of other memory than comes to its address. Its share of the flow goes with it.
    pub fn forget(&mut self, id: PageId) {
        let Some(at) = self.find(id) else { return };
        let tick = self.tick;
        let mut entry = std::mem::replace(&mut self.entries[at], Entry { key: id.0, aged: tick, ..Entry::NONE });
        // As the flow is: else uses of long ago would take the shares of other pages with them.
        entry.age(tick);
        let Some(home) = entry.home.index() else { return };
        for (node, count) in entry.nodes.into_iter().zip(entry.counts) {
            let Some(node) = node.index() else { continue };
            if let Some(flow) = self.flow.get_mut(node.0 * self.nodes + home.0) {
                *flow -= f64::from(count).min(*flow);
            }
        }
    }

    /// Whether a page may be moved now, given its previous moves.
    #[must_use]
    pub fn permission(&self, id: PageId) -> MovePermission {
        let Some(entry) = self.find(id).map(|at| &self.entries[at]) else { return MovePermission::Granted };
        let since = u32::from(self.tick.wrapping_sub(entry.moved));
        if since < entry.stayed_ticks() {
            return MovePermission::Stayed(entry.stayed_ticks() - since);
        }
        let (bounces, rest) = (entry.bounces(), entry.rest_ticks());
        if since < rest { MovePermission::LeftAlone(bounces, rest - since) } else { MovePermission::Granted }
    }

    /// Returns the evidence about a page.
    #[must_use]
    pub fn known(&self, id: PageId) -> Option<Known> {
        let mut entry = self.entries[self.find(id)?];
        entry.age(self.tick);
        let users = entry.nodes.into_iter().zip(entry.counts).filter(|(_, count)| *count > 0);
        let mut users: Vec<(NodeIndex, u8)> = users.filter_map(|(node, count)| Some((node.index()?, count))).collect();
        users.sort_by_key(|(node, count)| (std::cmp::Reverse(*count), *node));
        Some(Known { users, home: entry.home.index(), bounces: entry.bounces() })
    }

    /// Drops pages without recent uses, and those for which `keep` is false (a process that has ended). Must be called at least every 10,000 ticks.
    pub fn sweep(&mut self, keep: impl Fn(PageId) -> bool) {
        let tick = self.tick;
        let kept = |mut entry: Entry| {
            entry.age(tick);
            let since = u32::from(tick.wrapping_sub(entry.moved));
            entry.forget_old_moves(since);
            let moves_count = (BOUNCE_TICKS + entry.rest_ticks()).max(2 * REST_TICKS);
            let rests = (entry.bounces & MOVED != 0 && since < moves_count) || since < 2 * entry.stayed_ticks();
            let stays = (rests || entry.counts.iter().any(|count| *count > 0)) && keep(PageId(entry.key));
            stays.then_some(entry)
        };
        let old = std::mem::take(&mut self.entries);
        let kept: Vec<Entry> = old.into_iter().filter(|entry| entry.key != EMPTY).filter_map(kept).collect();
        self.rebuild(kept.into_iter(), capacity_for);
    }

    fn rebuild(&mut self, entries: impl ExactSizeIterator<Item = Entry>, capacity: impl Fn(usize) -> usize) {
        self.used = entries.len();
        self.entries = vec![Entry::NONE; capacity(self.used)];
        for entry in entries {
            let at = self.probe(entry.key);
            self.entries[at] = entry;
        }
    }

    fn start(&self, key: u64) -> usize {
        // The high half of the hash's product with the capacity, which works for any capacity.
        numapilot_random::below_of(numapilot_random::hashed(key), self.entries.len() as u64) as usize
    }

    /// Index of a key's entry, or of the empty entry where it belongs.
    fn probe(&self, key: u64) -> usize {
        let mut at = self.start(key);
        while self.entries[at].key != key && self.entries[at].key != EMPTY {
            at += 1;
            if at == self.entries.len() {
                at = 0;
            }
        }
        at
    }

    fn find(&self, id: PageId) -> Option<usize> {
        let at = self.probe(id.0);
        (self.entries[at].key == id.0).then_some(at)
    }

    /// Index of a page's entry, which is created if the table is not full.
    fn slot_for(&mut self, id: PageId) -> Option<usize> {
        let at = self.probe(id.0);
        if self.entries[at].key == id.0 {
            return Some(at);
        }
        if self.used >= self.limit {
            return None;
        }
        let mut at = at;
        if self.used + 1 > self.entries.len() * 9 / 10 {
            let old = std::mem::take(&mut self.entries);
            let kept: Vec<Entry> = old.into_iter().filter(|entry| entry.key != EMPTY).collect();
            self.rebuild(kept.into_iter(), capacity_for);
            at = self.probe(id.0);
        }
        self.used += 1;
        self.entries[at] = Entry { key: id.0, aged: self.tick, ..Entry::NONE };
        Some(at)
    }
}

/// Capacity of a table for `used` pages that may grow by a seventh before it is 90 % full.
fn capacity_for(used: usize) -> usize {
    (used * 128 / 100 + 1).max(FIRST_CAPACITY)
}

#[cfg(test)]
mod tests {
    //! Against a plain map, and the figures that the module promises.

    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const N0: NodeIndex = NodeIndex(0);
    const N1: NodeIndex = NodeIndex(1);

    fn page(number: u64) -> PageId {
        PageId::new(1, 0, PageNumber(number))
    }

    proptest! {
        #[test]
        fn the_table_counts_as_a_map_does(uses in prop::collection::vec((0..5000_u64, 0..4_usize), 1..3000)) {
            let mut table = PageTable::new(4, 1 << 20);
            let mut map: BTreeMap<u64, [u8; 4]> = BTreeMap::new();
            for (number, node) in &uses {
                prop_assert!(table.saw(page(*number), NodeIndex(*node), N0));
                map.entry(*number).or_default()[*node] += 1;
            }
            prop_assert_eq!(table.len(), map.len());
            table.sweep(|_| true);
            prop_assert_eq!(table.len(), map.len());
            for (number, counts) in map {
                let mut want: Vec<(NodeIndex, u8)> = NodeIndex::all(4).zip(counts).filter(|(_, count)| *count > 0).collect();
                want.sort_by_key(|(node, count)| (std::cmp::Reverse(*count), *node));
                prop_assert_eq!(table.known(page(number)).unwrap().users, want);
            }
            let flow: f64 = table.flow().iter().sum();
            prop_assert!((flow - uses.len() as f64).abs() < 1e-6);
        }

        #[test]
        fn a_page_takes_32_bytes_at_most(pages in 4000..200_000_u64) {
            let mut table = PageTable::new(2, 1 << 20);
            for number in 0..pages {
                table.saw(page(number.wrapping_mul(7919)), N1, N0);
                let (bytes, len) = (table.bytes(), table.len());
                prop_assert!(len < 2000 || bytes <= BYTES_PER_PAGE * len, "{} bytes for {} pages", bytes, len);
            }
        }
    }

    #[test]
    fn the_number_of_pages_is_bounded_and_what_is_left_out_is_counted() {
        let mut table = PageTable::new(2, 100);
        let held = (0..150).filter(|number| table.saw(page(*number), N0, N0)).count();
        assert_eq!(held, 100);
        assert_eq!((table.len(), table.dropped), (100, 50));
        (0..10_000).for_each(|_| table.tick());
        table.sweep(|_| true);
        assert!(table.is_empty() && table.saw(page(149), N0, N0));
    }

    /// A move relabels the flow, by which the next orders are planned. A gain that is computed from that would be there though nothing is accessed.
    #[test]
    fn what_was_seen_is_seen_in_one_tick_only_and_moves_relabel_none_of_it() {
        let mut table = PageTable::new(2, 1 << 10);
        let probes = [[Some(100.0), Some(200.0)], [Some(200.0), Some(100.0)]].map(Vec::from);
        let measure = |table: &PageTable| crate::evidence::estimate::mean_latency_ns(table.seen_flow(), &probes);
        (0..100).for_each(|number| assert!(table.saw(page(number), N1, N0)));
        assert_eq!(measure(&table), Some(200.0));
        (0..100).for_each(|number| table.moved(page(number), N0, N1));
        assert_eq!((table.flow(), table.observed_flow()), (&[0.0, 0.0, 0.0, 100.0][..], &[0.0, 0.0, 100.0, 0.0][..]));
        assert_eq!(measure(&table), Some(200.0), "they were seen before the move");
        table.tick();
        assert_eq!(measure(&table), None, "nobody has accessed anything since");
        table.saw(page(3), N1, N1);
        assert_eq!(measure(&table), Some(100.0));
    }

    #[test]
    fn counts_halve_with_time_and_other_lives_are_other_pages() {
        let mut table = PageTable::new(2, 100);
        assert!((0..8).all(|_| table.saw(page(1), N1, N0)));
        (0..HALF_LIFE).for_each(|_| table.tick());
        assert_eq!(table.known(page(1)).unwrap().users, [(N1, 4)]);
        assert_eq!(table.known(PageId::new(1, 1, PageNumber(1))), None);
        table.sweep(|id| id.generation() == 1);
        assert!(table.is_empty());
    }

    #[test]
    fn the_flow_follows_the_page() {
        let mut table = PageTable::new(2, 100);
        assert!((0..6).all(|_| table.saw(page(1), N1, N0)));
        table.is_at(page(1), N1);
        assert_eq!(table.flow(), [0.0, 0.0, 0.0, 6.0]);
    }

    #[test]
    fn a_page_that_goes_to_and_fro_is_left_alone_for_longer_and_longer() {
        let mut table = PageTable::new(2, 100);
        let mut rests = Vec::new();
        let (mut from, mut to) = (N0, N1);
        for _ in 0..8 {
            while let MovePermission::LeftAlone(_, rest) = table.permission(page(1)) {
                rests.push(rest);
                (0..rest).for_each(|_| table.tick());
            }
            table.moved(page(1), from, to);
            (from, to) = (to, from);
        }
        // From the third rest on, the next move counted as none to and fro, and rests grew no longer.
        assert_eq!(rests, [1, 2, 4, 8, 16].map(|times| times * REST_TICKS));
        assert_eq!(table.permission(page(2)), MovePermission::Granted);
    }

    /// The kernel's balancing and this one moved a page to and fro without end: only moves back by this one were counted.
    #[test]
    fn a_page_that_the_kernel_takes_back_is_left_alone() {
        let mut table = PageTable::new(4, 100);
        for _ in 0..=BOUNCES {
            assert_eq!(table.permission(page(1)), MovePermission::Granted);
            table.moved(page(1), N0, N1);
            table.tick();
            table.is_at(page(1), N0);
        }
        assert!(matches!(table.permission(page(1)), MovePermission::LeftAlone(BOUNCES, _)));
        // One that goes on from where it was moved to, or is moved again much later, does not go to and fro.
        (0..3).for_each(|node| table.moved(page(2), NodeIndex(node), NodeIndex(node + 1)));
        for _ in 0..3 {
            table.moved(page(3), N0, N1);
            (0..=BOUNCE_TICKS).for_each(|_| table.tick());
            table.is_at(page(3), N0);
        }
        assert_eq!([2, 3].map(|number| table.permission(page(number))), [MovePermission::Granted; 2]);
    }

    /// A page that nobody used for two rests was dropped with its moves, and moved again before its own rest was over.
    #[test]
    fn a_rest_lasts_though_nobody_uses_the_page() {
        let mut table = PageTable::new(2, 100);
        (0..5).for_each(|turn| table.moved(page(1), NodeIndex(turn % 2), NodeIndex((turn + 1) % 2)));
        (0..700).for_each(|_| table.tick());
        table.sweep(|_| true);
        assert_eq!(table.permission(page(1)), MovePermission::LeftAlone(4, 4 * REST_TICKS - 700));
        (0..10_000).for_each(|_| table.tick());
        table.sweep(|_| true);
        assert!(table.is_empty());
    }

    /// Ticks are counted in 16 bits: a page in use that went to and fro two hours ago was left alone again.
    #[test]
    fn a_rest_does_not_begin_anew_when_the_counter_of_ticks_comes_round() {
        let mut table = PageTable::new(2, 100);
        (0..3).for_each(|turn| table.moved(page(1), NodeIndex(turn % 2), NodeIndex((turn + 1) % 2)));
        table.stayed(page(2));
        for tick in 0..=u32::from(u16::MAX) {
            if tick % 100 == 0 {
                assert!([1, 2].into_iter().all(|number| table.saw(page(number), N1, N0)));
            }
            if tick % 500 == 0 {
                table.sweep(|_| true);
            }
            table.tick();
        }
        assert_eq!([1, 2].map(|number| table.permission(page(number))), [MovePermission::Granted; 2]);
    }

    /// Users and moves of memory that was freed were taken for those of what came to its address.
    #[test]
    fn what_is_known_of_a_page_goes_with_it() {
        let mut table = PageTable::new(2, 100);
        assert!((0..6).all(|_| table.saw(page(1), N1, N0)) && table.saw(page(2), N1, N0));
        (0..3).for_each(|turn| table.moved(page(1), NodeIndex(turn % 2), NodeIndex((turn + 1) % 2)));
        assert_eq!(table.flow(), [0.0, 0.0, 1.0, 6.0]);
        table.forget(page(1));
        table.forget(page(3));
        assert_eq!(table.known(page(1)), Some(Known::default()));
        assert_eq!((table.flow(), table.permission(page(1))), (&[0.0, 0.0, 1.0, 0.0][..], MovePermission::Granted));
        table.sweep(|_| true);
        assert_eq!((table.len(), table.known(page(2)).unwrap().users), (1, vec![(N1, 1)]));
        // Of what was seen long ago, nothing is left in the flow to take from others.
        assert!((0..100).all(|_| table.saw(page(4), N1, N0)));
        (0..1000).for_each(|_| table.tick());
        assert!((0..10).all(|_| table.saw(page(5), N1, N0)));
        table.forget(page(4));
        assert!(table.flow()[2] > 9.9, "{:?}", table.flow());
    }

    /// A page that is pinned was ordered, unmapped and mapped again at every decision.
    #[test]
    fn a_page_that_cannot_be_moved_is_tried_again_more_and_more_seldom() {
        let mut table = PageTable::new(2, 100);
        let mut rests = Vec::new();
        for _ in 0..10 {
            assert_eq!(table.permission(page(1)), MovePermission::Granted);
            table.stayed(page(1));
            let MovePermission::Stayed(rest) = table.permission(page(1)) else { panic!("it is tried again at once") };
            rests.push(rest);
            (0..rest).for_each(|_| table.tick());
            table.sweep(|_| true);
        }
        assert_eq!(rests[..3], [20, 40, 80]);
        assert!(rests.iter().all(|rest| *rest <= 1280) && rests[9] == 1280, "{rests:?}");
        table.moved(page(1), N0, N1);
        table.stayed(page(1));
        assert_eq!(table.permission(page(1)), MovePermission::Stayed(20), "it could be moved meanwhile");
    }
}
