//! Large pages: whether a page of 2 MiB should be split. A large page whose small pages have different users is placed wrongly wherever it is (false
//! sharing of pages). It is split once the delay that this has caused exceeds the price of splitting it and of moving the parts.

use numapilot_machine::NodeIndex;

use super::Pilot;
use crate::action::Action;
use crate::observation::PageSize;

/// Nanoseconds to split one, before any was measured: unmapping, 512 new entries, one flush. An estimate.
const SPLIT_NS: f64 = 50_000.0;

impl Pilot {
    /// Adds this interval's delay to the regrets of large pages and orders the splits that are due.
    pub(super) fn splits(&mut self, seconds: f64, rates: &[f64], cost_ns: &[Vec<f64>]) -> Vec<Action> {
        if !self.ledger.can_split {
            return Vec::new();
        }
        let nodes = self.nodes;
        let price_ns = self.ledger.price_ns(PageSize::Small) * self.guard.caution;
        let mut orders = Vec::new();
        let samples: f32 = self
            .memory
            .active
            .iter()
            .filter_map(|key| self.memory.blocks.get(key))
            .map(super::memory::Block::fresh_total)
            .sum();
        let per_sample = rates.iter().sum::<f64>() / f64::from(samples.max(1.0));
        for key in &self.memory.active {
            let Some(block) = self.memory.blocks.get_mut(key).filter(|block| block.size == PageSize::Large) else {
                continue;
            };
            let rate = f64::from(block.fresh_total()) * per_sample;
            let all: f64 = block.pages.iter().map(|page| f64::from(page.samples.max(1))).sum();
            let by_home = block.users_by_home(nodes);
            let likeness = block.likeness(&by_home, nodes);
            let total = block.remembered.iter().sum::<f32>().max(1.0);
            // Delay per second by home: of the whole page, and of each part at its own best.
            let mut whole = vec![0.0f64; nodes];
            let (mut parts, mut moving) = (0.0f64, 0.0f64);
            let home = block.pages.first().map_or(NodeIndex(0), |page| page.home.index());
            for (position, page) in block.pages.iter().enumerate() {
                let counts = block.counts_of(position, nodes);
                let weight = f32::from(page.samples) + likeness;
                let share = |node: NodeIndex| {
                    let own = f32::from(counts[node]) + f32::from(counts[nodes + node.0]);
                    f64::from((own + likeness * block.remembered[node] / total) / weight)
                };
                let part = rate * f64::from(page.samples.max(1)) / all;
                let cost = |at: NodeIndex| {
                    NodeIndex::all(nodes)
                        .map(|from| if share(from) > 0.0 { share(from) * cost_ns[from][at] } else { 0.0 })
                        .sum::<f64>()
                        * part
                };
                let cost = |at| if self.model.has_memory(at) { cost(at) } else { f64::INFINITY };
                let costs: Vec<f64> = NodeIndex::all(nodes).map(cost).collect();
                let best = NodeIndex::all(nodes).min_by(|a, b| costs[*a].total_cmp(&costs[*b])).unwrap_or(home);
                parts += costs[best];
                moving += f64::from(u8::from(best != home));
                for (sum, cost) in whole.iter_mut().zip(&costs) {
                    *sum += cost;
                }
            }
            let undivided = whole.iter().copied().fold(f64::INFINITY, f64::min);
            if undivided.is_finite() && parts.is_finite() {
                block.split_regret_ns += ((undivided - parts) * seconds) as f32;
            }
            if moving > 0.0 && f64::from(block.split_regret_ns) >= SPLIT_NS + moving * price_ns {
                block.split_regret_ns = 0.0;
                orders.push(Action::Split { page: self.memory.key(*key, 0) });
            }
        }
        orders
    }
}
