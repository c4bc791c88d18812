//! The orders of one period: which pages move to the other tier, within the room of its nodes and what may move in a period.

use std::collections::BTreeMap;

use numapilot_host::PageNumber;
use numapilot_machine::NodeIndex;

use super::known::{APART, Known, NEAR, Page};
use crate::action::Action;
use crate::cold::{BlockKey, Coldest, OwnSamples, at_least, at_most};
use crate::observation::{Observation, PageKey, PageSize};

/// Samples of a page, as they are after they were halved, from which on it counts as used.
const USED: f64 = 1.0;

/// A page that may move.
#[derive(Clone, Copy, Debug)]
struct Movable<'a> {
    key: PageKey,
    page: &'a Page,
    /// Samples of each small page in it.
    heat: f64,
    /// Its share of all samples, 0 to 1.
    share: f64,
}

/// What bounds the moves of one period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Share of a node's memory that they leave free, 0 to 1.
    pub spare_share: f64,
    /// Most pages of 4 KiB that move.
    pub pages: u64,
}

/// The orders of one period, as they are made.
pub(super) struct Orders<'a> {
    known: &'a Known,
    seen: &'a Observation,
    /// Pages of near memory that may make room, by their node and size: made when the first is needed.
    cold: BTreeMap<(NodeIndex, PageSize), Coldest>,
    /// Samples of all pages, as they are after they were halved.
    samples: f64,
    /// Bytes that may still be used on each node.
    room: Vec<f64>,
    /// Small pages that may still move.
    pages_left: u64,
    pub actions: Vec<Action>,
    /// Small pages that go to near memory, go away from it, and that should go but have nowhere to.
    pub up: u64,
    pub down: u64,
    pub without_room: u64,
}

impl<'a> Orders<'a> {
    /// Without an order yet.
    pub fn new(known: &'a Known, limits: Limits, seen: &'a Observation) -> Orders<'a> {
        let room = |node: NodeIndex| {
            let free = seen.nodes.get(node.0).map_or(0, |node| node.free_bytes);
            free as f64 - known.facts.memory_bytes[node] as f64 * limits.spare_share
        };
        Orders {
            known,
            seen,
            cold: BTreeMap::new(),
            samples: known.pages.values().map(Page::heat).sum(),
            room: NodeIndex::all(known.facts.count()).map(room).collect(),
            pages_left: limits.pages,
            actions: Vec::new(),
            up: 0,
            down: 0,
            without_room: 0,
        }
    }

    /// Orders pages to near memory that make up `share` of all samples, the hottest first. Where there is no room, colder ones of their size have to go.
    /// `saves_ns`: what it would save in a period if all accesses went there.
    pub fn promote(&mut self, share: f64, saves_ns: f64) {
        let mut left = share;
        for hot in self.movable(APART).into_iter().filter(|movable| movable.page.heat() >= USED) {
            if self.pages_left < hot.key.size.small_pages() {
                break;
            }
            if hot.share > left + 1e-9 {
                continue;
            }
            let to = self.with_room(NEAR, hot).or_else(|| self.make_room(hot, saves_ns));
            let is_ordered = to.is_some_and(|to| self.order(hot.key, hot.page.home, to));
            if is_ordered {
                left -= hot.share;
                self.up += hot.key.size.small_pages();
            } else {
                self.without_room += hot.key.size.small_pages();
            }
        }
    }

    /// Orders pages away from near memory that make up `share` of all samples, the hottest first: few pages then carry much of the load.
    pub fn demote(&mut self, share: f64) {
        let mut left = share;
        for hot in self.movable(NEAR).into_iter().filter(|movable| movable.page.heat() >= USED) {
            if self.pages_left < hot.key.size.small_pages() {
                break;
            }
            if hot.share > left + 1e-9 {
                continue;
            }
            if self.with_room(APART, hot).is_some_and(|to| self.order(hot.key, hot.page.home, to)) {
                left -= hot.share;
                self.down += hot.key.size.small_pages();
            } else {
                self.without_room += hot.key.size.small_pages();
            }
        }
    }

    /// Pages of a tier that are known, the hottest first.
    fn movable(&self, tier: usize) -> Vec<Movable<'a>> {
        let known = self.known;
        let all = self.samples;
        let movable = |(key, page): (&PageKey, &'a Page)| {
            let heat = page.heat();
            Movable { key: *key, page, heat: heat / key.size.small_pages() as f64, share: heat / all }
        };
        let of_tier = known.pages.iter().filter(|(_, page)| known.tier(page.home) == tier);
        let mut found: Vec<Movable<'a>> = of_tier.map(movable).collect();
        found.sort_by(|a, b| b.heat.total_cmp(&a.heat).then(a.key.cmp(&b.key)));
        found
    }

    /// The node of a tier that has room for a page: the nearest to the page's main user.
    fn with_room(&self, tier: usize, movable: Movable<'_>) -> Option<NodeIndex> {
        let bytes = movable.key.size.bytes() as f64;
        let nodes = &self.known.nearest[tier][movable.page.main_user()];
        nodes.iter().copied().find(|&node| self.room[node] >= bytes)
    }

    /// Orders the coldest page of the same size away from near memory, if both moves together save more than they cost before a period has passed; the node on
    /// which it was. What is likely of the one at least is held against what is likely of the other at most.
    fn make_room(&mut self, hot: Movable<'_>, saves_ns: f64) -> Option<NodeIndex> {
        let known = self.known;
        if self.pages_left < 2 * hot.key.size.small_pages() {
            return None;
        }
        let price_ns = 2.0 * known.price.of(hot.key.size) * f64::from(1_u32 << hot.page.returns);
        let least = at_least(hot.page.heat()) / self.samples;
        for &node in &known.nearest[NEAR][hot.page.main_user()] {
            let cold = self.cold_pages(node, hot.key.size);
            let Some((key, share)) = cold.first() else { continue };
            if (least - share) * saves_ns < price_ns {
                continue;
            }
            let bytes = key.size.bytes() as f64;
            let apart = &known.nearest[APART][node];
            let Some(to) = apart.iter().copied().find(|&to| self.room[to] >= bytes) else { continue };
            cold_pass(&mut self.cold, node, key.size);
            if self.order(key, node, to) {
                self.down += key.size.small_pages();
                return Some(node);
            }
        }
        None
    }

    /// The pages of a node of near memory, the coldest first: all of them where the environment tells which there are, else those that were sampled.
    fn cold_pages(&mut self, node: NodeIndex, size: PageSize) -> &Coldest {
        let (known, homes, samples) = (self.known, &self.seen.homes, self.samples);
        self.cold.entry((node, size)).or_insert_with(|| {
            if !homes.is_empty() {
                return known.cold.pages(homes, node, size, |block| own_samples(known, block));
            }
            let there = known.pages.iter().filter(|(key, page)| page.home == node && key.size == size);
            Coldest::of(size, there.map(|(key, page)| (*key, at_most(page.heat()) / samples)))
        })
    }

    /// Orders one move, if it is still allowed in this period.
    fn order(&mut self, key: PageKey, from: NodeIndex, to: NodeIndex) -> bool {
        let (pages, bytes) = (key.size.small_pages(), key.size.bytes() as f64);
        if self.pages_left < pages {
            return false;
        }
        self.pages_left -= pages;
        self.room[to] -= bytes;
        self.room[from] += bytes;
        self.actions.push(Action::Migrate { page: key, to });
        true
    }
}

/// Leaves out the coldest page of a node.
fn cold_pass(cold: &mut BTreeMap<(NodeIndex, PageSize), Coldest>, node: NodeIndex, size: PageSize) {
    if let Some(cold) = cold.get_mut(&(node, size)) {
        cold.pass();
    }
}

/// The samples of a block's small pages.
fn own_samples(known: &Known, (process, block): BlockKey) -> OwnSamples {
    let key = |block| PageKey { process, page: PageNumber::first_of_large(block), size: PageSize::Small };
    let pages = known.pages.range(key(block)..key(block + 1)).filter(|(key, _)| key.size == PageSize::Small);
    OwnSamples { pages: pages.map(|(key, page)| (key.page, page.heat())).collect() }
}
