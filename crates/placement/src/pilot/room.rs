//! Room for what should come to memory that is full: on machines with several tiers, a page goes there in exchange for one that is surely colder.
//!
//! Both moves are one decision. It costs both, and saves what the one saves less what the other loses, by the marginal costs of the traffic model; of the page
//! that goes, the greatest rate counts that its samples (mostly none) leave likely.

use std::collections::BTreeMap;

use numapilot_machine::NodeIndex;

use super::Pilot;
use super::candidate::MoveCandidate;
use super::groups::Group;
use super::search::cost_at;
use crate::action::Action;
use crate::cold::{BlockKey, Coldest, OwnSamples};
use crate::nodes::NodeFacts;
use crate::observation::{Observation, PageKey, PageSize};

/// What one decision knows of the room on nodes.
pub(super) struct Room<'s> {
    seen: &'s Observation,
    /// Marginal cost of an access from node (row) to memory (column), nanoseconds.
    cost_ns: &'s [Vec<f64>],
    /// Accesses per second of all nodes.
    rate: f64,
    /// Bytes left, by node.
    free: Vec<f64>,
    /// Pages that may go, by node and size: made when the first is needed.
    cold: BTreeMap<(NodeIndex, PageSize), Coldest>,
    /// Whether anything was to go to a node that was full.
    pub is_short: bool,
}

/// Whether a machine has memory with and without CPUs.
pub(super) fn has_tiers(facts: &NodeFacts) -> bool {
    let is_apart = |node: &NodeIndex| facts.cpus[*node] == 0;
    facts.with_memory.iter().any(is_apart) && !facts.with_memory.iter().all(is_apart)
}

impl<'s> Room<'s> {
    /// The room of an observation.
    pub fn new(seen: &'s Observation, rates: &[f64], cost_ns: &'s [Vec<f64>]) -> Room<'s> {
        let free = seen.nodes.iter().map(|node| node.free_bytes as f64).collect();
        Room { seen, cost_ns, rate: rates.iter().sum(), free, cold: BTreeMap::new(), is_short: false }
    }

    /// Whether a page of a size fits on a node.
    fn fits(&self, node: NodeIndex, size: PageSize) -> bool {
        self.free.get(node.0).is_some_and(|free| *free >= size.bytes() as f64)
    }

    /// Takes a page's room on a node, if there is any.
    pub fn take(&mut self, node: NodeIndex, size: PageSize) -> bool {
        let fits = self.fits(node, size);
        self.is_short |= !fits;
        if fits {
            self.free[node.0] -= size.bytes() as f64;
        }
        fits
    }

    /// Where a page of a node that makes room loses least, and how much an access to it then loses at most, nanoseconds.
    fn refuge(&self, pilot: &Pilot, node: NodeIndex, size: PageSize) -> Option<(NodeIndex, f64)> {
        let lost_ns = |to: NodeIndex| {
            let users = self.cost_ns.iter().map(|row| row[to.0] - row[node.0]).filter(|ns| ns.is_finite());
            users.fold(f64::NEG_INFINITY, f64::max)
        };
        let others = NodeIndex::all(self.free.len()).filter(|to| *to != node && pilot.model.has_memory(*to));
        let found = others.filter(|to| self.fits(*to, size)).map(|to| (to, lost_ns(to)));
        found.filter(|(_, ns)| ns.is_finite()).min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

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
        let (to, lost_ns) = room.refuge(self, node, size)?;
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
        let page = |page: &super::memory::PageMemory| {
            let PageKey { page: number, .. } = self.memory.key(key, page.index);
            (number, f64::from(page.samples))
        };
        OwnSamples { pages: block.pages.iter().map(page).collect() }
    }
}
