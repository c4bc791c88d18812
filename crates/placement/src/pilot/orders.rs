//! From plans for groups to moves of pages: which pages of a group move to which node, and which have caused enough delay to pay for the move.

use std::collections::BTreeSet;

use numapilot_host::PageNumber;
use numapilot_machine::NodeIndex;

use super::Pilot;
use super::candidate::MoveCandidate;
use super::groups::{Group, Member};
use super::guard::Guard;
use super::kin::Kin;
use super::ledger::Ordered;
use super::memory::{BLOCK_PAGES, range_of};
use super::room::Room;
use super::search::Plan;
use super::shares::{GOLDEN, share_at};
use crate::action::{Action, Outcome, Refusal};
use crate::observation::{Observation, PageKey, PageSize};

/// A move is taken to have paid if it stood for this many times the span after which it should have.
const PAID: f64 = 4.0;
/// Doublings of a page's price at most.
const DOUBLINGS_MAX: u8 = 10;
/// A group of which less than this share should move stays.
const SHARE_MIN: f64 = 1e-3;

impl Pilot {
    /// Adds this interval's delay to the regrets, and orders the moves that are due, most urgent first, within the time allowed for moving.
    /// `room`: of a machine with several tiers.
    pub(super) fn orders(
        &mut self,
        seen: &Observation,
        groups: &[Group],
        plans: &[Plan],
        mut room: Option<&mut Room<'_>>,
    ) -> Vec<Action> {
        let seconds = seen.elapsed_ns as f64 / 1e9;
        let mut candidates = Vec::new();
        let mut kin = Kin::default();
        for (position, (group, plan)) in groups.iter().zip(plans).enumerate() {
            let (before, moving) = (candidates.len(), 1.0 - plan.at[group.home]);
            kin.note(&self.memory, seen, group, plan);
            if moving >= SHARE_MIN && plan.saves_ns_per_s > 0.0 {
                self.group(seen, group, plan, plan.saves_ns_per_s / (group.rate() * moving), seconds, &mut candidates);
            } else {
                self.forgive_all(&group.members);
            }
            candidates[before..].iter_mut().for_each(|candidate: &mut MoveCandidate| candidate.group = position);
        }
        candidates.sort_by(|a, b| b.urgency.total_cmp(&a.urgency).then(a.page.cmp(&b.page)));
        let mut left_ns = self.move_share * seen.elapsed_ns as f64 * self.threads.busy_processors(seen);
        let mut orders = Vec::new();
        for candidate in candidates {
            let (page, surplus_ns) = (candidate.page, (candidate.urgency - 1.0) * candidate.price_ns);
            let moves = match room.as_deref_mut() {
                Some(room) => self.with_room(candidate, groups, room),
                None => Some(vec![candidate]),
            };
            let Some(moves) = moves else { continue };
            left_ns -= moves.iter().map(|one| one.price_ns).sum::<f64>();
            if left_ns < 0.0 && !orders.is_empty() {
                return orders;
            }
            if let Some(range) = range_of(&seen.mapped, page.process, page.page) {
                *self.surplus_ns.entry((range.0, range.1)).or_default() += surplus_ns;
            }
            moves.into_iter().for_each(|one| self.order(seen.now_ns, one, &mut orders));
        }
        let mut spread = Vec::new();
        self.deal_to_kin(&kin, left_ns, &mut spread);
        if let Some(room) = room {
            let fits = |action: &Action| match action {
                Action::Migrate { page, to } => room.take(*to, page.size),
                _ => true,
            };
            spread.retain(fits);
        }
        orders.append(&mut spread);
        orders
    }

    fn order(&mut self, now_ns: u64, candidate: MoveCandidate, orders: &mut Vec<Action>) {
        if let Some(page) = self.memory.page_memory_mut(candidate.page) {
            page.regret_ns = 0.0;
        }
        let payback_ns = (candidate.price_ns / candidate.saves_ns_per_s.max(1e-9) * 1e9) as f32;
        self.ordered.push(Ordered { page: candidate.page, home: candidate.home, at_ns: now_ns.max(1), payback_ns });
        orders.push(candidate.action);
    }

    /// Takes in what came of the last decision's moves and copies: a page's next move costs more if the one before did not pay, or could not be carried out, so
    /// that others come first. What was only put off, while the budget is used up, say, was no move. Returns the moves that undo those of pages.
    pub(super) fn settle_orders(&mut self, outcomes: &[Outcome]) -> Vec<Action> {
        let page_of = |outcome: &Outcome| match (&outcome.action, outcome.result) {
            (_, Err(Refusal::Busy | Refusal::Gone | Refusal::AlreadyThere)) => None,
            (Action::Migrate { page, .. } | Action::Replicate { page, .. }, _) => Some(*page),
            _ => None,
        };
        let done: BTreeSet<PageKey> = outcomes.iter().filter_map(page_of).collect();
        let moved: BTreeSet<PageKey> = Guard::carried_out(outcomes).map(|(page, _)| page).collect();
        let mut back = Vec::new();
        for Ordered { page, home, at_ns, payback_ns } in std::mem::take(&mut self.ordered) {
            if let Some(memory) = self.memory.page_memory_mut(page).filter(|_| done.contains(&page)) {
                if memory.moved_ns > 0 {
                    let paid = at_ns.saturating_sub(memory.moved_ns) as f64 >= PAID * f64::from(memory.payback_ns);
                    memory.doublings = if paid {
                        memory.doublings.saturating_sub(1)
                    } else {
                        (memory.doublings + 1).min(DOUBLINGS_MAX)
                    };
                }
                (memory.moved_ns, memory.payback_ns) = (at_ns, payback_ns);
            }
            if moved.contains(&page) {
                back.push(Action::Migrate { page, to: home });
            }
        }
        back
    }

    /// One group: `saved_ns` is the delay saved per access that moves to another node.
    fn group(
        &mut self,
        seen: &Observation,
        group: &Group,
        plan: &Plan,
        saved_ns: f64,
        seconds: f64,
        candidates: &mut Vec<MoveCandidate>,
    ) {
        let nodes = plan.at.len();
        let mut members = group.members.clone();
        members.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut room: Vec<f64> = plan.at.iter().chain([&plan.replicated]).map(|share| share * group.rate()).collect();
        // Those on a node without memory go on reading at the home.
        let reads = |node: &NodeIndex| group.reads[*node] > 0.0 && self.model.has_memory(*node);
        let readers: Vec<NodeIndex> = NodeIndex::all(nodes).filter(|node| *node == group.home || reads(node)).collect();
        for (member, rate) in members {
            if let Member::Unseen(block) = member {
                self.deal(seen, block, group, plan, rate * saved_ns * seconds, candidates);
                continue;
            }
            let to = (0..=nodes).max_by(|a, b| room[*a].total_cmp(&room[*b])).unwrap_or(group.home.0);
            room[to] -= rate;
            if to == group.home.0 {
                self.forgive(member);
                continue;
            }
            let (block, position, size) = match member {
                Member::Seen(block, position) => (block, position, PageSize::Small),
                Member::Large(block) | Member::Unseen(block) => (block, 0, PageSize::Large),
            };
            let price = self.ledger.price_ns(size)
                * self.guard.caution
                * if to == nodes { readers.len() as f64 - 1.0 } else { 1.0 };
            let Some(page) = self.memory.blocks.get_mut(&block).and_then(|block| block.pages.get_mut(position)) else {
                continue;
            };
            page.regret_ns += (rate * saved_ns * seconds) as f32;
            let price_ns = price * f64::from(1u32 << page.doublings);
            let (urgency, index) = (f64::from(page.regret_ns) / (price_ns * self.patience).max(1.0), page.index);
            if urgency < 1.0 {
                continue;
            }
            let copies = page.copies;
            let page = self.memory.key(block, index);
            // The copies that there are serve their nodes, which makes them look unused here: they stay.
            let with_copies = |more: &[NodeIndex]| {
                let has_one = |node: &NodeIndex| more.contains(node) || copies.contains(*node);
                Action::Replicate { page, nodes: NodeIndex::all(nodes).filter(has_one).collect() }
            };
            let action = if to == nodes {
                with_copies(&readers)
            } else if group.read_only && !copies.is_empty() {
                // To move a copied page is to release all its copies: the node that has none gets one, too.
                with_copies(&[NodeIndex(to)])
            } else {
                Action::Migrate { page, to: NodeIndex(to) }
            };
            candidates.push(MoveCandidate {
                urgency,
                price_ns: price,
                page,
                home: group.home,
                action,
                saves_ns_per_s: rate * saved_ns,
                group: 0,
            });
        }
    }

    /// A page that is used and is best where it is: half of its regret was chance, or of a phase that is over.
    fn forgive(&mut self, member: Member) {
        let block = self.memory.blocks.get_mut(&member.block());
        if let Some(regret_ns) = block.and_then(|block| member.regret_ns(block)) {
            *regret_ns /= 2.0;
        }
    }

    /// The same for many, which stand block by block.
    pub(super) fn forgive_all(&mut self, members: &[(Member, f64)]) {
        for part in members.chunk_by(|a, b| a.0.block() == b.0.block()) {
            let Some(block) = self.memory.blocks.get_mut(&part[0].0.block()) else { continue };
            for (member, _) in part {
                if let Some(regret_ns) = member.regret_ns(block) {
                    *regret_ns /= 2.0;
                }
            }
        }
    }

    /// The pages of a block without samples: nothing distinguishes them, so they are spread in the plan's proportions.
    fn deal(
        &mut self,
        seen: &Observation,
        key: (u32, u64),
        group: &Group,
        plan: &Plan,
        regret_ns: f64,
        candidates: &mut Vec<MoveCandidate>,
    ) {
        let price_ns = self.ledger.price_ns(PageSize::Small) * self.guard.caution;
        let Some(block) = self.memory.blocks.get_mut(&key) else { return };
        // To move a page of a file that has copies is to release all of them.
        if block.pages.iter().any(|page| !page.copies.is_empty()) {
            return;
        }
        let unseen = BLOCK_PAGES as f64 - block.pages.len() as f64;
        block.unseen_regret_ns += (regret_ns / unseen.max(1.0)) as f32;
        let urgency = f64::from(block.unseen_regret_ns) / (price_ns * self.patience).max(1.0);
        // Copies need evidence page by page.
        if urgency < 1.0 || plan.replicated > 0.0 {
            return;
        }
        block.unseen_dealt = true;
        let first = PageNumber::first_of_large(key.1);
        let saves_ns_per_s = regret_ns / unseen.max(1.0) / (seen.elapsed_ns as f64 / 1e9).max(1e-9);
        for index in (0..BLOCK_PAGES as u16).filter(|index| block.position_of(*index).is_none()) {
            let page = first + u64::from(index);
            let to = share_at(&plan.at, (page.0 as f64 * GOLDEN).fract());
            if to == group.home || !is_mapped(&seen.mapped, key.0, page) {
                continue;
            }
            let page = PageKey { process: key.0, page, size: PageSize::Small };
            candidates.push(MoveCandidate {
                urgency,
                price_ns,
                page,
                home: group.home,
                action: Action::Migrate { page, to },
                saves_ns_per_s,
                group: 0,
            });
        }
    }
}

/// Whether a page is mapped; everything is if nothing is known of mappings.
fn is_mapped(mapped: &[(u32, PageNumber, u64)], process: u32, page: PageNumber) -> bool {
    mapped.is_empty() || range_of(mapped, process, page).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{large_page, machine, sample};
    use crate::nodes::NodeFacts;
    use crate::observation::Sample;
    use crate::options::Options;

    /// Orders that were put off counted as moves, so that a page which never moved cost up to a thousand times as much. And what a large page had moved for was
    /// noted only if its first small page had been sampled.
    #[test]
    fn a_page_whose_move_did_not_pay_costs_twice_as_much_and_one_whose_move_was_put_off_does_not() {
        let machine = machine();
        let options = Options::parse("pilot", Pilot::OPTIONS.to_vec(), "").expect("valid");
        let facts = NodeFacts::new(&machine).expect("nodes");
        let mut pilot = Pilot::new(&options, &machine, &facts).expect("a policy");
        let page = large_page(3);
        let part = Sample { small_page: page.page + 7, ..sample(page, 1, 0, true) };
        pilot.memory.learn(&[part], &[], 4);
        let (home, action) = (NodeIndex(0), Action::Migrate { page, to: NodeIndex(1) });
        let mut order = |now_ns, result| {
            let action = action.clone();
            let (urgency, price_ns, saves_ns_per_s, group) = (1.0, 1e6, 1e6, 0);
            let candidate =
                MoveCandidate { urgency, price_ns, page, home, action: action.clone(), saves_ns_per_s, group };
            let mut orders = Vec::new();
            pilot.order(now_ns, candidate, &mut orders);
            assert_eq!(orders, std::slice::from_ref(&action));
            let back = pilot.settle_orders(&[Outcome { action, result }]).len();
            (back, pilot.memory.page_memory_mut(page).map(|page| (page.moved_ns, page.doublings)))
        };
        assert_eq!(order(1_000, Ok(6e5)), (1, Some((1_000, 0))));
        assert_eq!(order(2_000, Err(Refusal::Busy)), (0, Some((1_000, 0))));
        assert_eq!(order(3_000, Ok(6e5)), (1, Some((3_000, 1))));
        assert_eq!(order(4_000, Err(Refusal::NoRoom)), (0, Some((4_000, 2))), "others come first");
    }
}
