//! A page comes to memory that is full in exchange for one that is surely colder, on machines with several tiers.
//!
//! Both moves are one decision. It costs both, and saves what the one saves less what the other loses, by the marginal costs of the traffic model; of the page
//! that goes, the greatest rate counts that its samples (mostly none) leave likely.

use numapilot_machine::NodeIndex;

use super::Pilot;
use super::candidate::MoveCandidate;
use super::groups::Group;
use super::memory::PageMemory;
use super::room::Room;
use super::search::cost_at;
use crate::action::Action;
use crate::cold::{BlockKey, OwnSamples};
use crate::observation::PageKey;

impl Pilot {
    /// The moves by which a candidate comes to where it should be, or to the next best node: its own, if there is room, else the one before it that makes room.
    /// None if no exchange has paid for itself yet.
    pub(super) fn with_room(
        &self,
        candidate: MoveCandidate,
        groups: &[Group],
        room: &mut Room<'_>,
    ) -> Option<Vec<MoveCandidate>> {
        let Action::Migrate { to, .. } = candidate.action else { return Some(vec![candidate]) };
        let size = candidate.page.size;
        if room.take(to, size) {
            return Some(vec![candidate]);
        }
        let (group, cost_ns) = (&groups[candidate.group], room.cost_ns);
        let cost = |node: NodeIndex| cost_at(group, node, cost_ns);
        let (here, planned) = (cost(candidate.home), cost(to));
        let mut others: Vec<NodeIndex> = NodeIndex::all(room.free.len())
            .filter(|node| *node != to && self.model.has_memory(*node) && cost(*node) < here)
            .collect();
        others.sort_by(|a, b| cost(*a).total_cmp(&cost(*b)));
        let part = |node: NodeIndex| {
            if node == to { 1.0 } else { ((here - cost(node)) / (here - planned).max(1e-9)).min(1.0) }
        };
        let nodes: Vec<(NodeIndex, f64)> = std::iter::once(to).chain(others).map(|node| (node, part(node))).collect();
        for (node, part) in nodes {
            let action = Action::Migrate { page: candidate.page, to: node };
            let saves_ns_per_s = candidate.saves_ns_per_s * part;
            if candidate.urgency * part >= 1.0 && room.take(node, size) {
                return Some(vec![MoveCandidate { action, saves_ns_per_s, ..candidate }]);
            }
            if let Some(cold) = self.exchange(&candidate, node, saves_ns_per_s, room) {
                let hot = MoveCandidate { action, saves_ns_per_s: cold.saves_ns_per_s, ..candidate };
                return Some(vec![cold, hot]);
            }
        }
        None
    }

    /// The move of the coldest page away from a node, with half of what remains of what the other's coming saves, if the delay that the other has caused pays
    /// for both moves.
    fn exchange(
        &self,
        hot: &MoveCandidate,
        node: NodeIndex,
        saves_ns_per_s: f64,
        room: &mut Room<'_>,
    ) -> Option<MoveCandidate> {
        let size = hot.page.size;
        let (to, lost_ns) = room.refuge(|to| self.model.has_memory(to), node, size)?;
        let (seen, rate) = (room.seen, room.rate);
        let list = || self.cold.pages(&seen.homes, node, size, |block| self.own_samples(block));
        let cold = room.cold.entry((node, size)).or_insert_with(list);
        let (page, share) = cold.first()?;
        let left_ns = saves_ns_per_s - share * rate * lost_ns.max(0.0);
        if left_ns <= 0.0 || hot.urgency * left_ns / hot.saves_ns_per_s.max(1e-9) < 2.0 {
            return None;
        }
        cold.pass();
        // The other comes in its place.
        room.free[to.0] -= size.bytes() as f64;
        room.free[hot.home.0] += size.bytes() as f64;
        let action = Action::Migrate { page, to };
        let saves_ns_per_s = left_ns / 2.0;
        Some(MoveCandidate { urgency: 1.0, page, home: node, action, saves_ns_per_s, ..*hot })
    }

    /// The samples of a block's small pages.
    fn own_samples(&self, key: BlockKey) -> OwnSamples {
        let Some(block) = self.memory.blocks.get(&key) else { return OwnSamples::default() };
        let page = |page: &PageMemory| {
            let PageKey { page: number, .. } = self.memory.key(key, page.index);
            (number, f64::from(page.samples))
        };
        OwnSamples { pages: block.pages.iter().map(page).collect() }
    }
}
