//! Carrefour-LP: the treatment of 2 MiB pages (Gaud et al., USENIX ATC 2014), its reactive part.
//!
//! Not here: its conservative part, which turns large pages back on when TLB misses are frequent. Observations hold no TLB misses.

use std::collections::{BTreeMap, BTreeSet};

use numapilot_machine::NodeIndex;
use numapilot_random::Random;

use super::draw::Targets;
use super::gates::Moves;
use crate::action::Action;
use crate::nodes::NodeFacts;
use crate::observation::{Observation, PageKey, PageSize};
use crate::page_use::{PageTable, PageUse};

/// Shared large pages are split when the local ratio that 4 KiB pages allow is this much better, percentage points ...
const SPLIT_GAIN_POINTS: f64 = 5.0;
/// ... in this many periods running ...
const SPLIT_PERIODS: u32 = 2;
/// ... unless moving whole large pages already improves it by this much, percent of what it is ...
const MOVE_GAIN_PERCENT: f64 = 15.0;
/// ... or the estimate is absurd: no sample seems local, percent.
const LEAST_LOCAL_PERCENT: f64 = 10.0;
/// A page that draws more than this share of all samples is hot: split and dealt out, percent.
const HOT_PERCENT: f64 = 6.0;
/// Relative change of local ratio or imbalance that counts as an improvement, percent.
const IMPROVEMENT_PERCENT: f64 = 10.0;
/// Periods between decisions after a period whose orders improved nothing.
pub(crate) const REST_PERIODS: u64 = 5;

/// State of large pages between periods.
#[derive(Debug, Default)]
pub(crate) struct LargePages {
    /// Large pages that moved, with the node that they moved to: each moves once.
    moved: BTreeMap<PageKey, NodeIndex>,
    /// Large pages that were split, by process and number ([`PageNumber::large`](numapilot_host::PageNumber::large)).
    split: BTreeSet<(u32, u64)>,
    /// Periods running in which splitting looked better.
    split_wanted: u32,
    /// Local ratio and imbalance of the period before, and whether anything was ordered in it.
    before: Option<(f64, f64, bool)>,
    rests: bool,
}

/// Estimated local access ratios of one period, in percent of its samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LocalRatios {
    /// Local access ratio of the present placement.
    pub now: f64,
    /// With every page, as mapped, at its only user, or spread if it has several.
    pub as_mapped: f64,
    /// With every page of 4 KiB at its only user, or spread if it has several.
    pub small: f64,
}

impl LocalRatios {
    /// Estimates them from samples.
    pub fn estimate(facts: &NodeFacts, seen: &Observation) -> Self {
        let as_mapped = PageTable::collect(&seen.samples, facts.count(), 0, |s| s.page);
        let small = PageTable::collect(&seen.samples, facts.count(), 0, |s| PageKey {
            process: s.page.process,
            page: s.small_page,
            size: PageSize::Small,
        });
        let spread = facts.with_memory.len() as f64;
        let best = |page: &PageUse| f64::from(page.total()) / if page.is_shared() { spread } else { 1.0 };
        let sum = |table: &PageTable, of: &dyn Fn(&PageUse) -> f64| table.pages.values().map(of).sum::<f64>();
        let total = sum(&small, &|page| f64::from(page.total())).max(1.0);
        Self {
            now: 100.0 * sum(&small, &|page| f64::from(page.local)) / total,
            as_mapped: 100.0 * sum(&as_mapped, &best) / total,
            small: 100.0 * sum(&small, &best) / total,
        }
    }

    /// Whether splitting shared large pages looks better than moving them.
    pub fn call_for_splitting(&self) -> bool {
        let moving_helps = self.as_mapped >= self.now * (1.0 + MOVE_GAIN_PERCENT / 100.0);
        self.small - self.as_mapped >= SPLIT_GAIN_POINTS && !moving_helps && self.now >= LEAST_LOCAL_PERCENT
    }
}

impl LargePages {
    /// Records the outcomes of orders, and forgets memory that was freed and ended processes.
    pub fn update(&mut self, seen: &Observation) {
        // Samples of this period may be of the time before these orders were carried out.
        let mut fresh: BTreeSet<(u32, u64)> = BTreeSet::new();
        for outcome in seen.outcomes.iter().filter(|o| o.result.is_ok()) {
            match outcome.action {
                Action::Migrate { page, to } if page.size == PageSize::Large => {
                    self.moved.insert(page, to);
                    fresh.insert((page.process, page.page.large()));
                }
                Action::Split { page } => {
                    self.split.insert((page.process, page.page.large()));
                    fresh.insert((page.process, page.page.large()));
                }
                _ => {}
            }
        }
        self.forget_freed(seen, &fresh);
        let alive: BTreeSet<u32> = seen.threads.iter().map(|t| t.process).collect();
        self.moved.retain(|page, _| alive.contains(&page.process));
        self.split.retain(|(process, _)| alive.contains(process));
    }

    /// Forgets pages whose memory was freed, and whose address is in use again: those that are not where they moved to, and those that are large though they
    /// were split. `fresh`: pages, by process and number, of which this period's samples may be of the time before their orders.
    fn forget_freed(&mut self, seen: &Observation, fresh: &BTreeSet<(u32, u64)>) {
        for sample in seen.samples.iter().filter(|sample| sample.page.size == PageSize::Large) {
            let number = (sample.page.process, sample.page.page.large());
            if fresh.contains(&number) {
                continue;
            }
            if self.moved.get(&sample.page).is_some_and(|node| *node != sample.home) {
                self.moved.remove(&sample.page);
            }
            self.split.remove(&number);
        }
    }

    /// The moves that are on for one page: small pages of a split large one are placed whatever the gates say, for that is why it was split.
    pub fn moves_of(&self, page: PageKey, moves: Moves) -> Moves {
        let was_split = page.size == PageSize::Small && self.split.contains(&(page.process, page.page.large()));
        Moves { collocate: moves.collocate || was_split, interleave: moves.interleave || was_split }
    }

    /// Orders for the large pages of this period.
    pub fn order<'a>(
        &mut self,
        facts: &NodeFacts,
        moves: Moves,
        pages: impl Iterator<Item = (&'a PageKey, &'a PageUse)>,
        seen: &Observation,
        targets: &Targets<'_>,
        random: &mut Random,
    ) -> Vec<Action> {
        let wanted = LocalRatios::estimate(facts, seen).call_for_splitting();
        self.split_wanted = if wanted { self.split_wanted + 1 } else { 0 };
        let split_all = self.split_wanted >= SPLIT_PERIODS;
        let all_samples = seen.samples.len() as f64;
        let mut actions = Vec::new();
        for (&page, used) in pages {
            let is_hot = 100.0 * f64::from(used.total()) > HOT_PERCENT * all_samples;
            let may_move = !self.moved.contains_key(&page);
            if used.is_shared() && (is_hot || split_all) {
                actions.push(Action::Split { page });
                if is_hot {
                    actions.extend(deal(page, used.home, &facts.with_memory));
                }
            } else if used.is_shared() {
                let target = targets.draw(used.home, random).filter(|_| moves.interleave && may_move);
                actions.extend(target.map(|to| Action::Migrate { page, to }));
            } else if let Some(user) = used.only_user() {
                let goes = moves.collocate && may_move && user != used.home && facts.has_memory(user);
                actions.extend(goes.then_some(Action::Migrate { page, to: user }));
            }
        }
        actions
    }

    /// Compares a period with the one before it: after orders that improved neither local ratio nor imbalance, a rest.
    pub fn judge(&mut self, local_percent: f64, imbalance_percent: f64, acted: bool) {
        self.rests = self.before.is_some_and(|(local, imbalance, acted_before)| {
            let better = 1.0 + IMPROVEMENT_PERCENT / 100.0;
            acted_before && local_percent <= local * better && imbalance_percent * better >= imbalance
        });
        self.before = Some((local_percent, imbalance_percent, acted));
    }

    /// Whether the last orders improved nothing.
    pub fn rests(&self) -> bool {
        self.rests
    }
}

/// The small pages of a large one, dealt round robin; those that are on their node already are left out.
fn deal(page: PageKey, home: NodeIndex, nodes: &[NodeIndex]) -> impl Iterator<Item = Action> + '_ {
    (0..page.size.small_pages())
        .map(move |offset| (offset, nodes[offset as usize % nodes.len()]))
        .filter(move |(_, to)| *to != home)
        .map(move |(offset, to)| Action::Migrate {
            page: PageKey { page: page.page + offset, size: PageSize::Small, ..page },
            to,
        })
}
