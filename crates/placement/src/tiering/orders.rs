//! The orders of one period: which pages move to the other tier, within the room of its nodes and what may move in a period.

use numapilot_machine::NodeIndex;

use super::known::{APART, Known, NEAR, Page};
use crate::action::Action;
use crate::observation::{Observation, PageKey};

/// Samples of a page, as they are after they were halved, from which on it counts as used.
const USED: f64 = 1.0;
/// How many times as hot, per byte, a page must be as the one that makes room for it.
const HOTTER: f64 = 2.0;

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
    pub fn new(known: &'a Known, limits: Limits, seen: &Observation) -> Orders<'a> {
        let room = |node: NodeIndex| {
            let free = seen.nodes.get(node.0).map_or(0, |node| node.free_bytes);
            free as f64 - known.facts.memory_bytes[node] as f64 * limits.spare_share
        };
        Orders {
            known,
            room: NodeIndex::all(known.facts.count()).map(room).collect(),
            pages_left: limits.pages,
            actions: Vec::new(),
            up: 0,
            down: 0,
            without_room: 0,
        }
    }

    /// Orders pages to near memory that make up `share` of all samples, the hottest first. Where there is no room, colder ones of their size have to go.
    pub fn promote(&mut self, share: f64) {
        let mut left = share;
        let mut cold = self.movable(NEAR);
        for hot in self.movable(APART).into_iter().filter(|movable| movable.page.heat() >= USED) {
            if self.pages_left < hot.key.size.small_pages() {
                break;
            }
            if hot.share > left + 1e-9 {
                continue;
            }
            let to = self.with_room(NEAR, hot).or_else(|| self.make_room(&mut cold, hot));
            let is_ordered = to.is_some_and(|to| self.order(hot, to));
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
            if self.with_room(APART, hot).is_some_and(|to| self.order(hot, to)) {
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
        let all: f64 = known.pages.values().map(Page::heat).sum();
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

    /// Orders the coldest page of the same size away from near memory, if the other one is far hotter; the node on which it was. `cold`: pages that may go,
    /// the coldest last.
    fn make_room(&mut self, cold: &mut Vec<Movable<'a>>, hot: Movable<'_>) -> Option<NodeIndex> {
        let at = cold.iter().rposition(|movable| movable.key.size == hot.key.size)?;
        let coldest = cold[at];
        // Two moves.
        let fits = self.pages_left >= 2 * hot.key.size.small_pages();
        if !fits || hot.heat < HOTTER * coldest.heat {
            return None;
        }
        let to = self.with_room(APART, coldest)?;
        cold.remove(at);
        self.order(coldest, to).then(|| {
            self.down += coldest.key.size.small_pages();
            coldest.page.home
        })
    }

    /// Orders one move, if it is still allowed in this period.
    fn order(&mut self, movable: Movable<'_>, to: NodeIndex) -> bool {
        let (pages, bytes) = (movable.key.size.small_pages(), movable.key.size.bytes() as f64);
        if self.pages_left < pages {
            return false;
        }
        self.pages_left -= pages;
        self.room[to] -= bytes;
        self.room[movable.page.home] += bytes;
        self.actions.push(Action::Migrate { page: movable.key, to });
        true
    }
}
