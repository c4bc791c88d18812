//! The page statistics of `pilot`: the sampled users of each page, its home node, and the delay that leaving it there has caused so far.
//!
//! Small pages are kept in blocks of 2 MiB (512 pages), the unit in which memory is mapped, split and alike. Counts are forgotten by
//! *samples*, not by time: a page that is used in bursts is remembered through the pauses. A block whose users change is forgotten at once.

mod freed;

use std::collections::{BTreeMap, BTreeSet};

use numapilot_host::PageNumber;
use numapilot_machine::{NodeIndex, NodeSet};

use super::packed::PackedNode;
use crate::observation::{PageKey, PageSize, ReadOnlyRange, Sample};

/// Small pages in a block, which is as large as a large page.
pub(super) const BLOCK_PAGES: u64 = PageSize::Large.small_pages();
/// Counts of a page are halved when their sum reaches this.
const PAGE_COUNT_MAX: u16 = 64;
/// Counts of a block are halved when their sum reaches this.
const BLOCK_COUNT_MAX: f32 = 2048.0;
/// Counts by thread are halved when their sum reaches this.
const THREAD_COUNT_MAX: f32 = 256.0;
/// Samples that are held against the remembered ones together: fewer do not tell a change of users from chance.
const PANE_SAMPLES: f32 = 8.0;
/// Distance (total variation) between remembered and fresh users beyond which they have changed; to it comes 1 / sqrt(samples), samples that come in
/// runs counting less ([`Block::run_length`]).
const CHANGE_DISTANCE: f32 = 0.3;
/// Weight of the latest in the running mean of how much a block's users change from one set of samples to the next.
const UNREST_WEIGHT: f32 = 0.5;
/// Samples without a write from which on a mapping is first taken for read-only: a share of writes below 0.1 %.
const READ_ONLY_RANGE_SAMPLES: f32 = 3_000.0;
/// Samples without a write from which on a block is first taken for read-only.
const READ_ONLY_SAMPLES: f32 = 300.0;
/// Pages of a block that have to be seen before anything is said of the others.
const SEEN_MIN: usize = 8;
/// Samples that a block's users count among those of its pages with one home.
const HOME_PRIOR: f32 = 4.0;
/// Pairs of samples that the first guess of the likeness counts.
const PRIOR_PAIRS: f32 = 10.0;
/// Bounds of the likeness.
const LIKENESS_MIN: f32 = 3.0;
const LIKENESS_MAX: f32 = 200.0;
/// Marks an absent page.
const NONE: u16 = u16::MAX;
/// Where the bound on memory is reached, this share of it is kept, so that the coldest blocks are searched for seldom.
const KEPT_SHARE: f64 = 0.875;
/// Mappings beyond which the evidence about those that are no longer mapped is dropped: programs that map and unmap would add to it for ever.
pub(super) const RANGES_MAX: usize = 1 << 16;

/// Statistics of a sampled small page.
#[derive(Clone, Debug)]
pub(super) struct PageMemory {
    /// Index of the page in its block.
    pub index: u16,
    /// Node that answered last.
    pub home: PackedNode,
    /// Node that answered first: where the program had put it.
    pub first_home: PackedNode,
    /// The price of moving it is doubled this many times: it moved before and that did not pay.
    pub doublings: u8,
    /// Number of samples in the page's history.
    pub samples: u16,
    /// Nanoseconds of delay that another home would have saved since it came here.
    pub regret_ns: f32,
    /// Program time of its last move, in nanoseconds; 0: never moved.
    pub moved_ns: u64,
    /// Nanoseconds after which that move has paid for itself, as predicted then.
    pub payback_ns: f32,
    /// Nodes that have copies of it; empty: there is only one.
    pub copies: NodeSet,
}

impl PageMemory {
    /// Nothing is known of it but its home.
    fn new(index: u16, home: PackedNode) -> PageMemory {
        PageMemory {
            index,
            home,
            first_home: home,
            doublings: 0,
            samples: 0,
            regret_ns: 0.0,
            moved_ns: 0,
            payback_ns: 0.0,
            copies: NodeSet::default(),
        }
    }
}

/// 2 MiB of a process.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Size of its pages as mapped; a large page is one unit of placement.
    pub size: PageSize,
    /// Pages seen, in order of discovery.
    pub pages: Vec<PageMemory>,
    /// Remembered samples of each page by node: reads, then writes; `2 * nodes` a page.
    counts: Vec<u8>,
    /// Position in `pages` by index in the block.
    position: Box<[u16]>,
    /// Remembered samples by node.
    pub remembered: Vec<f32>,
    /// Latest samples by node, not yet among the remembered.
    pub pane: Vec<f32>,
    /// The set of samples before: shares by node; empty: there was none.
    last_pane: Vec<f32>,
    /// Share of the users that changes from one set of samples to the next, beyond chance: a running mean. Hinting faults tell who came first of all that
    /// use a page, and that is one thread for long runs of pages, another one the next time.
    unrest: f32,
    /// Samples by thread, the oldest counting least.
    pub threads: Vec<(u32, f32)>,
    /// Samples of this interval by node: reads, then writes.
    pub fresh: Vec<f32>,
    /// Samples since the last that wrote.
    pub reads_since_write: f32,
    /// How many of them it takes to believe that nobody writes any more: the bound on the share of writes is 3 over their number, with 95 %
    /// confidence (`docs/metrics.md`, read-only bound).
    pub reads_needed: f32,
    /// Regret of each page that was not seen, in nanoseconds.
    pub unseen_regret_ns: f32,
    /// Whether its pages without samples were spread over nodes already.
    pub unseen_dealt: bool,
    /// Of a large page: nanoseconds of delay that its parts, each at its own best home, would have saved.
    pub split_regret_ns: f32,
    /// The interval of its last sample ([`Memory::turn`]).
    used: u64,
    /// Its bytes as they are part of [`Memory::bytes`].
    counted: usize,
}

impl Block {
    pub fn new(nodes: usize, size: PageSize) -> Block {
        Block {
            size,
            pages: Vec::new(),
            counts: Vec::new(),
            position: vec![NONE; BLOCK_PAGES as usize].into(),
            remembered: vec![0.0; nodes],
            pane: vec![0.0; nodes],
            last_pane: Vec::new(),
            unrest: 0.0,
            threads: Vec::new(),
            fresh: vec![0.0; 2 * nodes],
            reads_since_write: 0.0,
            reads_needed: READ_ONLY_SAMPLES,
            unseen_regret_ns: 0.0,
            unseen_dealt: false,
            split_regret_ns: 0.0,
            used: 0,
            counted: 0,
        }
    }

    /// Bytes that it takes, its share of the map's own included.
    fn bytes(&self) -> usize {
        // `remembered`, `pane` and `last_pane` (once there is one) for each node, `fresh` for reads and writes.
        let floats = self.fresh.len() / 2 * 5;
        // The nodes of the map are between half and wholly full.
        let own = size_of::<Block>() * 3 / 2 + size_of_val(&*self.position) + self.counts.capacity();
        own + self.pages.capacity() * size_of::<PageMemory>() + floats * 4 + self.threads.capacity() * 8
    }

    /// Pages with statistics.
    fn known_pages(&self) -> u64 {
        self.pages.len().max(1) as u64
    }

    /// Remembered samples of a page by node: reads, then writes.
    pub fn counts_of(&self, position: usize, nodes: usize) -> &[u8] {
        &self.counts[position * 2 * nodes..(position + 1) * 2 * nodes]
    }

    /// Position in [`Block::pages`] of one of the block's small pages, if it was seen.
    pub fn position_of(&self, index: u16) -> Option<usize> {
        Some(self.position[usize::from(index)]).filter(|position| *position != NONE).map(usize::from)
    }

    /// The one node on which the program had put the block's pages, as far as those seen can tell for the others: at least [`SEEN_MIN`] of them, nine in
    /// ten there. Where homes differ, every page has its own reason to be where it is.
    pub fn common_home(&self, nodes: usize) -> Option<NodeIndex> {
        let mut homes = vec![0usize; nodes];
        self.pages.iter().for_each(|page| homes[page.first_home.index()] += 1);
        let most = NodeIndex::all(nodes).max_by_key(|node| homes[*node])?;
        (self.pages.len() >= SEEN_MIN && homes[most] * 10 >= self.pages.len() * 9).then_some(most)
    }

    /// Fresh samples in all.
    pub fn fresh_total(&self) -> f32 {
        self.fresh.iter().sum()
    }

    fn add(&mut self, sample: &Sample, nodes: usize) {
        let index = sample.small_page.in_large() as u16;
        let position = self.position_of(index).unwrap_or_else(|| {
            self.position[usize::from(index)] = self.pages.len() as u16;
            self.counts.resize(self.counts.len() + 2 * nodes, 0);
            self.pages.push(PageMemory::new(index, sample.home.into()));
            self.pages.len() - 1
        });
        let page = &mut self.pages[position];
        if page.home.index() != sample.home {
            page.home = sample.home.into();
            page.regret_ns = 0.0;
        }
        let counts = &mut self.counts[position * 2 * nodes..(position + 1) * 2 * nodes];
        counts[sample.from.0 + if sample.is_write { nodes } else { 0 }] += 1;
        page.samples += 1;
        if page.samples >= PAGE_COUNT_MAX {
            halve(counts);
            page.samples = counts.iter().map(|count| u16::from(*count)).sum();
        }
        self.fresh[sample.from.0 + if sample.is_write { nodes } else { 0 }] += 1.0;
        match self.threads.iter_mut().find(|(thread, _)| *thread == sample.thread) {
            Some((_, count)) => *count += 1.0,
            None => self.threads.push((sample.thread, 1.0)),
        }
    }

    /// Takes the interval's samples into the memory, after forgetting what no longer holds.
    fn settle(&mut self, nodes: usize) {
        if self.threads.iter().map(|(_, count)| count).sum::<f32>() > THREAD_COUNT_MAX {
            self.threads.iter_mut().for_each(|(_, count)| *count /= 2.0);
            self.threads.retain(|(_, count)| *count >= 0.5);
        }
        let fresh: Vec<f32> = (0..nodes).map(|node| self.fresh[node] + self.fresh[nodes + node]).collect();
        let wrote = self.fresh[nodes..].iter().any(|count| *count > 0.0);
        self.reads_since_write = if wrote { 0.0 } else { self.reads_since_write + self.fresh_total() };
        for (pane, fresh) in self.pane.iter_mut().zip(&fresh) {
            *pane += fresh;
        }
        let (new, old) = (self.pane.iter().sum::<f32>(), self.remembered.iter().sum::<f32>());
        if new < PANE_SAMPLES {
            return;
        }
        let latest: Vec<f32> = self.pane.iter().map(|count| count / new).collect();
        if old >= PANE_SAMPLES {
            let remembered: Vec<f32> = self.remembered.iter().map(|count| count / old).collect();
            if distance(&latest, &remembered) > CHANGE_DISTANCE + (self.run_length(new.min(old)) / new.min(old)).sqrt()
            {
                self.forget(nodes);
            }
        }
        if !self.last_pane.is_empty() {
            let changed = (distance(&latest, &self.last_pane) - 1.0 / new.sqrt()).max(0.0);
            self.unrest += UNREST_WEIGHT * (changed - self.unrest);
        }
        self.last_pane = latest;
        for (remembered, pane) in self.remembered.iter_mut().zip(&mut self.pane) {
            *remembered += std::mem::take(pane);
        }
        if self.remembered.iter().sum::<f32>() > BLOCK_COUNT_MAX {
            self.remembered.iter_mut().for_each(|count| *count /= 2.0);
        }
    }

    /// How many samples of one interval say as much of the block's users as one that is drawn alone: where they come in runs, nearly all of them (Kish's
    /// design effect, 1 + (n - 1) times their correlation).
    pub fn run_length(&self, samples: f32) -> f32 {
        1.0 + (samples - 1.0).max(0.0) * self.unrest
    }

    /// Whether the block is read-only, as far as samples show.
    pub fn is_read_only(&self) -> bool {
        self.reads_since_write >= self.reads_needed
    }

    /// Keeps an eighth of everything counted before this interval.
    fn forget(&mut self, nodes: usize) {
        self.remembered.iter_mut().for_each(|count| *count /= 8.0);
        for (position, page) in self.pages.iter_mut().enumerate() {
            let counts = &mut self.counts[position * 2 * nodes..(position + 1) * 2 * nodes];
            for _ in 0..3 {
                halve(counts);
            }
            page.samples = counts.iter().map(|count| u16::from(*count)).sum();
            page.regret_ns = 0.0;
        }
        self.unseen_regret_ns = 0.0;
        self.unseen_dealt = false;
    }

    /// Users of the block's pages by their home: for each home that any has, shares by node. Where a page is says much about who uses it, in
    /// programs that are placed well. The block as a whole counts as [`HOME_PRIOR`] samples.
    pub fn users_by_home(&self, nodes: usize) -> Vec<Option<Vec<f32>>> {
        let known = |node: usize| self.remembered[node] + self.pane[node];
        let total = (0..nodes).map(known).sum::<f32>().max(1.0);
        let mut users: Vec<Option<Vec<f32>>> = vec![None; nodes];
        for (position, page) in self.pages.iter().enumerate() {
            let counts = self.counts_of(position, nodes);
            let users = users[page.home.index()]
                .get_or_insert_with(|| (0..nodes).map(|node| HOME_PRIOR * known(node) / total).collect());
            for (node, user) in users.iter_mut().enumerate() {
                *user += f32::from(counts[node]) + f32::from(counts[nodes + node]);
            }
        }
        for users in users.iter_mut().flatten() {
            let sum = users.iter().sum::<f32>().max(1e-6);
            users.iter_mut().for_each(|user| *user /= sum);
        }
        users
    }

    /// How alike pages of one home are, as a pseudo-count: a page's users are estimated from its own samples and this many of the usual ones of its
    /// home (`by_home`). Two samples of one page come from one node with a chance `within`, two of such pages with `across`; for pages drawn from a
    /// Dirichlet distribution of concentration k, `within = across + (1 - across) / (k + 1)`. At least [`LIKENESS_MIN`]: one or two samples of a page are
    /// no reason to take it for another kind than its neighbours.
    pub fn likeness(&self, by_home: &[Option<Vec<f32>>], nodes: usize) -> f32 {
        // A weak prior of ten pairs at a likeness of 4 decides until there are pairs.
        let (mut within, mut across, mut pairs) = (0.0f32, 0.0f32, 0.0f32);
        for (position, page) in self.pages.iter().enumerate().filter(|(_, page)| page.samples > 1) {
            let Some(users) = &by_home[page.home.index()] else { continue };
            let counts = self.counts_of(position, nodes);
            let of = |node: usize| f32::from(counts[node]) + f32::from(counts[nodes + node]);
            let own_pairs = f32::from(page.samples) * (f32::from(page.samples) - 1.0);
            within += (0..nodes).map(|node| of(node) * (of(node) - 1.0)).sum::<f32>();
            across += own_pairs * users.iter().map(|share| share * share).sum::<f32>();
            pairs += own_pairs;
        }
        let usual = if pairs > 0.0 { across / pairs } else { 1.0 / nodes as f32 };
        let (within, across) = ((within + PRIOR_PAIRS * (usual + (1.0 - usual) / 5.0)) / (pairs + PRIOR_PAIRS), usual);
        ((1.0 - within) / (within - across).max(1e-3)).clamp(LIKENESS_MIN, LIKENESS_MAX)
    }
}

/// The mapping (process, first page) that holds a block, or its first part.
fn range_of_block(mapped: &[(u32, PageNumber, u64)], block: (u32, u64)) -> Option<(u32, PageNumber)> {
    let first = PageNumber::first_of_large(block.1);
    let found = [first, first + (BLOCK_PAGES - 1)].into_iter().find_map(|page| range_of(mapped, block.0, page));
    found.map(|range| (range.0, range.1))
}

/// The range (process, first page, pages) that holds a page; ranges are ascending.
pub(super) fn range_of(
    mapped: &[(u32, PageNumber, u64)],
    process: u32,
    page: PageNumber,
) -> Option<(u32, PageNumber, u64)> {
    range_at(mapped, |range| *range, process, page).copied()
}

/// The one of ascending ranges that holds a page. `extent`: its process, first page and number of pages.
fn range_at<R>(
    ranges: &[R],
    extent: impl Fn(&R) -> (u32, PageNumber, u64),
    process: u32,
    page: PageNumber,
) -> Option<&R> {
    let bounds = |range: &R| {
        let (process, first, pages) = extent(range);
        ((process, first), (process, first + pages))
    };
    numapilot_ranges::find(ranges, bounds, (process, page)).map(|at| &ranges[at])
}

/// Nodes that have copies of a page as part of a range that is mapped read-only; `None`: it is not of such a range.
fn copies_at(read_only: &[ReadOnlyRange], process: u32, page: PageNumber) -> Option<NodeSet> {
    range_at(read_only, |range| (range.process, range.first, range.pages), process, page).map(|range| range.copies)
}

/// Whether any part of a block is mapped.
fn is_block_mapped(mapped: &[(u32, PageNumber, u64)], (process, block): (u32, u64)) -> bool {
    let (first, last) = (PageNumber::first_of_large(block), PageNumber::first_of_large(block + 1));
    let next = mapped.partition_point(|range| (range.0, range.1) < (process, last));
    next.checked_sub(1)
        .and_then(|at| mapped.get(at))
        .is_some_and(|range| range.0 == process && range.1 + range.2 > first)
}

/// Total variation between two distributions.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f32>() / 2.0
}

fn halve(counts: &mut [u8]) {
    counts.iter_mut().for_each(|count| *count /= 2);
}

/// Everything remembered, by process and block number. Ordered, so that every walk is the same in every run.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// All blocks with samples, by (process, block).
    pub blocks: BTreeMap<(u32, u64), Block>,
    /// Blocks with samples in this interval.
    pub active: Vec<(u32, u64)>,
    /// What was mapped at the last decision: blocks that are not active were held against it then.
    mapped: Vec<(u32, PageNumber, u64)>,
    /// Ranges that are mapped read-only.
    read_only: Vec<ReadOnlyRange>,
    /// Evidence that a mapping (process, first page) is read-only: one of its blocks says little about the next phase of the others.
    ranges: BTreeMap<(u32, PageNumber), Reading>,
    /// Bytes that the blocks may take; 0: any number.
    limit_bytes: usize,
    /// Bytes that they take.
    bytes: usize,
    /// Number of the interval.
    turn: u64,
    /// Pages that got copies since the last interval was taken in: its samples may be of the time before.
    copied_now: BTreeSet<PageKey>,
    /// Whether any page ever got copies.
    has_copied: bool,
    /// Pages whose statistics were dropped, or not begun, because the bound was reached.
    pub forgotten: u64,
}

/// Evidence that a block or mapping is read-only.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Samples since the last that wrote.
    since_write: f32,
    /// Number of reads without a write that is needed.
    needed: f32,
}

/// Whether a process has anything mapped; ranges are ascending.
pub(super) fn has_process(mapped: &[(u32, PageNumber, u64)], process: u32) -> bool {
    let at = mapped.partition_point(|range| range.0 < process);
    mapped.get(at).is_some_and(|range| range.0 == process)
}

impl Memory {
    /// A memory whose blocks take at most `limit_bytes` (0: any number). Where that is too little, the blocks that were used longest ago are forgotten.
    pub fn within(limit_bytes: usize) -> Memory {
        Memory { limit_bytes, ..Memory::default() }
    }

    /// Whether another block may be added.
    pub fn has_room(&self) -> bool {
        self.limit_bytes == 0 || self.bytes < self.limit_bytes
    }

    /// Adds a block, or replaces it.
    pub fn insert(&mut self, key: (u32, u64), mut block: Block) {
        (block.used, block.counted) = (self.turn, block.bytes());
        self.bytes += block.counted;
        if let Some(old) = self.blocks.insert(key, block) {
            self.bytes -= old.counted;
        }
    }

    /// Forgets the blocks that were used longest ago, of these those with the fewest samples first, until [`KEPT_SHARE`] of the bound is left; those with
    /// samples of this interval last, and only if `even_active`.
    fn make_room(&mut self, even_active: bool) {
        let kept = (self.limit_bytes as f64 * KEPT_SHARE) as usize;
        let turn = self.turn;
        let may_go = self.blocks.iter().filter(|(_, block)| even_active || block.used < turn);
        let mut coldest: Vec<(u64, u64, (u32, u64))> =
            may_go.map(|(key, block)| (block.used, block.remembered.iter().sum::<f32>() as u64, *key)).collect();
        coldest.sort_unstable();
        for (.., key) in coldest {
            if self.bytes <= kept {
                break;
            }
            if let Some(block) = self.blocks.remove(&key) {
                self.bytes -= block.counted;
                self.forgotten += block.known_pages();
            }
        }
        if even_active {
            let blocks = &self.blocks;
            self.active.retain(|key| blocks.contains_key(key));
        }
    }

    /// The block of a sample, made if there is room for it.
    fn block_for(&mut self, key: (u32, u64), size: PageSize, nodes: usize, is_full: &mut bool) -> Option<&mut Block> {
        if !self.blocks.contains_key(&key) {
            if !*is_full && !self.has_room() {
                self.make_room(false);
                // To look again at every sample would take long: until the next interval there is no room.
                *is_full = !self.has_room();
            }
            if *is_full {
                self.forgotten += 1;
                return None;
            }
            self.insert(key, Block::new(nodes, size));
        }
        self.blocks.get_mut(&key)
    }

    /// Takes in which ranges are mapped read-only, and on which nodes they have copies: a file is copied as a whole, not only the pages for which
    /// copies were ordered.
    pub fn know_read_only(&mut self, ranges: &[ReadOnlyRange]) {
        if self.read_only != ranges {
            self.read_only = ranges.to_vec();
        }
    }

    /// Whether a page is of a range that is mapped read-only and has copies.
    pub fn is_of_copied_range(&self, process: u32, page: PageNumber) -> bool {
        copies_at(&self.read_only, process, page).is_some_and(|copies| !copies.is_empty())
    }

    /// Gives the pages of the blocks with samples the copies that their ranges have.
    fn note_copies(&mut self) {
        for key in self.active.iter().filter(|_| !self.read_only.is_empty()) {
            let Some(block) = self.blocks.get_mut(key) else { continue };
            for page in &mut block.pages {
                let number = PageNumber::first_of_large(key.1) + u64::from(page.index);
                if let Some(copies) = copies_at(&self.read_only, key.0, number) {
                    page.copies = copies;
                }
            }
        }
    }

    /// Whether all sampled pages of a block are of ranges that are mapped read-only. A page whose copies collapsed needs as many reads as others.
    fn cannot_be_written(&self, key: (u32, u64)) -> bool {
        let Some(block) = self.blocks.get(&key).filter(|_| !self.read_only.is_empty()) else { return false };
        let first = PageNumber::first_of_large(key.1);
        let is_within = |page: PageNumber| copies_at(&self.read_only, key.0, page).is_some();
        block.reads_since_write >= block.reads_needed - READ_ONLY_SAMPLES
            && block.pages.iter().all(|page| is_within(first + u64::from(page.index)))
    }

    /// Whether a block or the mapping around it is read-only, as far as samples show, or by its protection.
    pub fn is_read_only(&self, key: (u32, u64), mapped: &[(u32, PageNumber, u64)]) -> bool {
        if self.cannot_be_written(key) {
            return true;
        }
        let range = range_of_block(mapped, key).and_then(|range| self.ranges.get(&range));
        range.is_none_or(|reading| reading.since_write >= reading.needed)
            && self.blocks.get(&key).is_some_and(Block::is_read_only)
    }

    /// Notes for each mapping whether this interval's samples wrote to it.
    fn note_writes(&mut self, mapped: &[(u32, PageNumber, u64)], nodes: usize) {
        for key in &self.active {
            let (Some(block), Some(range)) = (self.blocks.get(key), range_of_block(mapped, *key)) else { continue };
            let reading =
                self.ranges.entry(range).or_insert(Reading { since_write: 0.0, needed: READ_ONLY_RANGE_SAMPLES });
            let wrote = block.fresh[nodes..].iter().any(|count| *count > 0.0);
            reading.since_write = if wrote { 0.0 } else { reading.since_write + block.fresh_total() };
        }
    }

    /// Takes in an interval's samples; those from or on nodes that the machine does not have are left out.
    pub fn learn(&mut self, samples: &[Sample], mapped: &[(u32, PageNumber, u64)], nodes: usize) {
        for key in self.active.drain(..) {
            if let Some(block) = self.blocks.get_mut(&key) {
                block.fresh.iter_mut().for_each(|count| *count = 0.0);
            }
        }
        self.turn += 1;
        self.forget_freed_copies(samples, nodes);
        let (turn, mut is_full) = (self.turn, false);
        for sample in samples.iter().filter(|sample| sample.from.0 < nodes && sample.home.0 < nodes) {
            let key = (sample.page.process, sample.small_page.large());
            let Some(block) = self.block_for(key, sample.page.size, nodes, &mut is_full) else { continue };
            let is_first = block.fresh.iter().all(|count| *count == 0.0);
            (block.size, block.used) = (sample.page.size, turn);
            block.add(sample, nodes);
            let (before, now) = (block.counted, block.bytes());
            block.counted = now;
            self.bytes = self.bytes - before + now;
            if is_first {
                self.active.push(key);
            }
        }
        if !self.has_room() {
            self.make_room(true);
        }
        self.active.sort_unstable();
        for key in &self.active {
            if let Some(block) = self.blocks.get_mut(key) {
                block.settle(nodes);
            }
        }
        self.note_writes(mapped, nodes);
        self.note_copies();
    }

    /// Forgets what is no longer mapped: blocks outside of `mapped` (process, first page, pages), which is ascending.
    pub fn keep_mapped(&mut self, mapped: &[(u32, PageNumber, u64)]) {
        if mapped.is_empty() {
            return;
        }
        if self.mapped == mapped {
            let gone: Vec<(u32, u64)> =
                self.active.iter().copied().filter(|key| !is_block_mapped(mapped, *key)).collect();
            for key in gone {
                self.bytes -= self.blocks.remove(&key).map_or(0, |block| block.counted);
            }
        } else {
            self.blocks.retain(|key, _| is_block_mapped(mapped, *key));
            self.bytes = self.blocks.values().map(|block| block.counted).sum();
            self.mapped = mapped.to_vec();
            let stays = |key: &(u32, PageNumber)| has_process(mapped, key.0);
            self.ranges.retain(|key, _| stays(key));
            if self.ranges.len() > RANGES_MAX {
                self.ranges.retain(|key, _| range_of(mapped, key.0, key.1).is_some());
            }
        }
        let blocks = &self.blocks;
        self.active.retain(|key| blocks.contains_key(key));
    }

    /// The page that holds a small page of a block, as mapped.
    pub fn key(&self, block: (u32, u64), index: u16) -> PageKey {
        let first = PageNumber::first_of_large(block.1);
        match self.blocks.get(&block).map(|found| found.size) {
            Some(PageSize::Large) => PageKey { process: block.0, page: first, size: PageSize::Large },
            _ => PageKey { process: block.0, page: first + u64::from(index), size: PageSize::Small },
        }
    }

    /// Notes that a page was moved.
    pub fn now_at(&mut self, page: PageKey, to: NodeIndex) {
        let Some(block) = self.blocks.get_mut(&(page.process, page.page.large())) else { return };
        let moved =
            |memory: &&mut PageMemory| page.size == PageSize::Large || u64::from(memory.index) == page.page.in_large();
        for memory in block.pages.iter_mut().filter(moved) {
            memory.home = to.into();
            memory.regret_ns = 0.0;
        }
    }

    /// Nodes that have copies of a page now.
    pub fn has_copies(&mut self, page: PageKey, nodes: &[NodeIndex]) {
        if !nodes.is_empty() {
            self.has_copied = true;
            self.copied_now.insert(page);
        }
        if let Some(memory) = self.page_memory_mut(page) {
            memory.copies = nodes.iter().copied().collect();
        }
    }

    /// Notes that a write collapsed the copies of a page: four times the evidence before its block is taken for read-only again.
    pub fn was_written(&mut self, page: PageKey, home: NodeIndex, mapped: &[(u32, PageNumber, u64)]) {
        self.now_at(page, home);
        self.has_copies(page, &[]);
        let range = range_of_block(mapped, (page.process, page.page.large()));
        if let Some(reading) =
            range.and_then(|range| self.ranges.get_mut(&range)).filter(|reading| reading.since_write > 0.0)
        {
            // The first collapse of many counts: `since_write` is 0 for the others.
            *reading = Reading { since_write: 0.0, needed: reading.needed * 4.0 };
        }
        if let Some(block) = self.blocks.get_mut(&(page.process, page.page.large())) {
            block.reads_since_write = 0.0;
            block.reads_needed *= 4.0;
        }
    }

    /// The statistics of a page as mapped, if it was seen: those of a large page stand at the first of its small pages that was.
    pub fn page_memory_mut(&mut self, page: PageKey) -> Option<&mut PageMemory> {
        match page.size {
            PageSize::Small => self.page_mut(page.process, page.page),
            PageSize::Large => self.blocks.get_mut(&(page.process, page.page.large()))?.pages.first_mut(),
        }
    }

    /// The statistics of a small page, if it was seen.
    fn page_mut(&mut self, process: u32, page: PageNumber) -> Option<&mut PageMemory> {
        let block = self.blocks.get_mut(&(process, page.large()))?;
        let position = block.position_of(page.in_large() as u16)?;
        block.pages.get_mut(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(small_page: u64, from: usize, home: usize) -> Sample {
        let small_page = PageNumber(small_page);
        let page = PageKey { process: 1, page: small_page, size: PageSize::Small };
        let (from, home) = (NodeIndex(from), NodeIndex(home));
        Sample { page, small_page, thread: 0, from, home, is_write: false, latency_ns: None }
    }

    #[test]
    fn pages_that_differ_are_told_from_pages_that_are_alike() {
        let (mut alike, mut private) = (Memory::default(), Memory::default());
        for round in 0..8 {
            alike.learn(&(0..400).map(|n| sample(n / 4, ((n + round) % 4) as usize, 0)).collect::<Vec<_>>(), &[], 4);
            private.learn(&(0..400).map(|n| sample(n / 4, (n / 4 % 4) as usize, 0)).collect::<Vec<_>>(), &[], 4);
        }
        let likeness = |memory: &Memory| {
            let block = &memory.blocks[&(1, 0)];
            block.likeness(&block.users_by_home(4), 4)
        };
        assert!(
            likeness(&alike) > 20.0 && likeness(&private) <= LIKENESS_MIN,
            "{} {}",
            likeness(&alike),
            likeness(&private)
        );
    }

    #[test]
    fn a_change_of_users_is_noticed_at_once_and_a_pause_changes_nothing() {
        let mut memory = Memory::default();
        let use_by = |node| (0..64).map(|n| sample(n, node, 0)).collect::<Vec<_>>();
        for _ in 0..6 {
            memory.learn(&use_by(1), &[], 2);
        }
        let before = memory.blocks[&(1, 0)].remembered.clone();
        for _ in 0..50 {
            memory.learn(&[], &[], 2);
        }
        assert_eq!(memory.blocks[&(1, 0)].remembered, before);
        memory.learn(&use_by(0), &[], 2);
        let after = &memory.blocks[&(1, 0)].remembered;
        assert!(after[0] > after[1], "{after:?}");
    }

    #[test]
    fn what_cannot_be_written_is_read_only_at_once_until_its_copies_fail() {
        let mut memory = Memory::default();
        memory.learn(&[sample(10, 0, 0), sample(700, 1, 0)], &[], 2);
        assert!(!memory.is_read_only((1, 0), &[]), "one read says little");
        let range = |process, first, pages| ReadOnlyRange {
            process,
            first: PageNumber(first),
            pages,
            copies: NodeSet::default(),
        };
        memory.know_read_only(&[range(0, 0, 1 << 20), range(1, 8, 4), range(1, 600, 50)]);
        assert!(memory.is_read_only((1, 0), &[]) && !memory.is_read_only((1, 1), &[]), "page 700 is outside");
        memory.was_written(PageKey { process: 1, page: PageNumber(10), size: PageSize::Small }, NodeIndex(0), &[]);
        assert!(!memory.is_read_only((1, 0), &[]));
        memory.learn(&(0..900).map(|n| sample(8 + n % 4, 0, 0)).collect::<Vec<_>>(), &[], 2);
        assert!(memory.is_read_only((1, 0), &[]), "four times the evidence");
    }

    #[test]
    fn memory_is_bounded_and_what_was_used_longest_ago_is_forgotten() {
        let bytes_of = |memory: &Memory| memory.blocks.values().map(Block::bytes).sum::<usize>();
        let blocks = |first: u64, count: u64| (first..first + count).map(|block| sample(block * BLOCK_PAGES, 0, 0));
        let limit = 256 << 10;
        let mut memory = Memory::within(limit);
        for round in 0..50 {
            let hot = blocks(0, 10).cycle().take(100);
            memory.learn(&hot.chain(blocks(1_000 + round * 20, 20)).collect::<Vec<_>>(), &[], 2);
            assert_eq!(memory.bytes, bytes_of(&memory));
            assert!(memory.bytes <= limit, "{} bytes", memory.bytes);
        }
        assert!((0..10).all(|block| memory.blocks.contains_key(&(1, block))), "in use all the time");
        assert!(memory.blocks.contains_key(&(1, 1_000 + 49 * 20)) && !memory.blocks.contains_key(&(1, 1_000)));
        assert_eq!(memory.forgotten + memory.blocks.len() as u64, 10 + 50 * 20, "each was counted, one page each");
        assert!(memory.active.iter().all(|key| memory.blocks.contains_key(key)));
        // More than fits in one interval: the memory never takes it all in before it forgets.
        let (before, held) = (memory.forgotten, memory.blocks.len() as u64);
        memory.learn(&blocks(10_000, 5_000).collect::<Vec<_>>(), &[], 2);
        assert!(bytes_of(&memory) <= limit && memory.bytes == bytes_of(&memory));
        assert_eq!(memory.forgotten - before + memory.blocks.len() as u64, held + 5_000);
        memory.keep_mapped(&[(2, PageNumber(0), 1)]);
        assert_eq!((memory.bytes, memory.blocks.len()), (0, 0));
        // Without a bound nothing is forgotten.
        let mut memory = Memory::default();
        memory.learn(&blocks(0, 5_000).collect::<Vec<_>>(), &[], 2);
        assert_eq!((memory.blocks.len(), memory.forgotten), (5_000, 0));
    }

    #[test]
    fn what_is_unmapped_is_forgotten() {
        let mut memory = Memory::default();
        memory.learn(&[sample(10, 0, 0), sample(5000, 0, 0)], &[], 1);
        let (start, first) = (PageNumber(0), PageNumber(4000));
        memory.keep_mapped(&[(0, start, 100_000), (1, first, 2000)]);
        assert_eq!(memory.blocks.keys().copied().collect::<Vec<_>>(), [(1, 5000 / BLOCK_PAGES)]);
        assert!(has_process(&[(0, start, 1), (2, start, 1)], 2) && !has_process(&[(0, start, 1), (2, start, 1)], 1));
        let mapped = [(1, first, 2000)];
        memory.learn(&[sample(5000, 0, 0)], &mapped, 1);
        assert_eq!(memory.ranges.len(), 1);
        memory.keep_mapped(&[(2, start, 100)]);
        assert!(memory.ranges.is_empty(), "nor is a process that has ended remembered");
    }
}
