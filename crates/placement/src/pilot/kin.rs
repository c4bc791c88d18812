//! Pages without samples in a mapping whose sampled pages are shared by all nodes: they are assumed to be shared, too. Spreading them before their first
//! sample helps programs whose traffic comes in bursts, each on other pages.
//!
//! The assumption can be wrong, so the mapping's own surplus must pay for the moves: delay that its pages have caused beyond the cost of moving them.

use std::collections::BTreeMap;

use numapilot_host::PageNumber;

use super::Pilot;
use super::groups::{Group, Member};
use super::memory::{BLOCK_PAGES, Block, Memory, range_of};
use super::search::Plan;
use super::shares::{GOLDEN, share_at};
use crate::action::Action;
use crate::observation::{Observation, PageKey, PageSize};

/// A mapping is shared by all nodes if no node gets more than this share of its accesses.
const SPREAD_MAX: f64 = 0.6;

/// Where the accesses to each mapped range should be served, by node, in accesses per second.
#[derive(Default)]
pub(super) struct Kin {
    ranges: BTreeMap<(u32, PageNumber, u64), Vec<f64>>,
}

impl Kin {
    /// Notes a group's plan, as far as its blocks had one home.
    pub fn note(&mut self, memory: &Memory, seen: &Observation, group: &Group, plan: &Plan) {
        for (member, rate) in &group.members {
            let (Member::Seen(block, _) | Member::Unseen(block)) = member else { continue };
            let first = PageNumber::first_of_large(block.1);
            let ends = [first, first + (BLOCK_PAGES - 1)];
            if memory.blocks.get(block).is_none_or(|block| block.common_home(plan.at.len()).is_none()) {
                continue;
            }
            let Some(range) = ends.into_iter().find_map(|page| range_of(&seen.mapped, block.0, page)) else { continue };
            let at = self.ranges.entry(range).or_insert_with(|| vec![0.0; plan.at.len()]);
            for (sum, share) in at.iter_mut().zip(&plan.at) {
                *sum += rate * share;
            }
        }
    }
}

impl Pilot {
    /// Spreads blocks without samples over nodes, as far as their range's surplus and `left_ns` pay for it.
    pub(super) fn deal_to_kin(&mut self, kin: &Kin, mut left_ns: f64, orders: &mut Vec<Action>) {
        // A block that is not known may be one that was forgotten, and be where it should be.
        if self.memory.forgotten > 0 {
            return;
        }
        let price_ns = self.ledger.price_ns(PageSize::Small) * self.guard.caution;
        for (range, at) in &kin.ranges {
            let total: f64 = at.iter().sum();
            let most = at.iter().copied().fold(0.0, f64::max);
            let Some(surplus_ns) = self.surplus_ns.get_mut(&(range.0, range.1)) else { continue };
            if total <= 0.0 || most > SPREAD_MAX * total {
                continue;
            }
            let shares: Vec<f64> = at.iter().map(|rate| rate / total).collect();
            let last = range.1 + range.2;
            for block in range.1.large()..last.0.div_ceil(BLOCK_PAGES) {
                let first = PageNumber::first_of_large(block).max(range.1);
                let pages = PageNumber::first_of_large(block + 1).min(last) - first;
                let cost_ns = price_ns * pages as f64;
                let is_known = self.memory.blocks.contains_key(&(range.0, block));
                if is_known || self.memory.is_of_copied_range(range.0, first) {
                    continue;
                }
                if cost_ns > *surplus_ns || cost_ns > left_ns || !self.memory.has_room() {
                    break;
                }
                *surplus_ns -= cost_ns;
                left_ns -= cost_ns;
                let mut dealt = Block::new(self.nodes, PageSize::Small);
                dealt.unseen_dealt = true;
                self.memory.insert((range.0, block), dealt);
                orders.extend(first.run(pages).map(|page| {
                    let key = PageKey { process: range.0, page, size: PageSize::Small };
                    Action::Migrate { page: key, to: share_at(&shares, (page.0 as f64 * GOLDEN).fract()) }
                }));
            }
        }
    }
}
