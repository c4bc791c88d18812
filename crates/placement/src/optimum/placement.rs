//! Static placements: where each group of pages lives and each group of threads runs. Counted in whole pages, so every placement can be carried out.

use numapilot_machine::NodeIndex;
use numapilot_random::Random;
use serde::{Deserialize, Serialize};

use super::demand::{Demand, PAGE_BYTES};
use crate::error::PlacementError;
use crate::nodes::NodeFacts;

/// Nodes of a group of pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageHome {
    /// This many of its pages on each node, by index.
    Spread(Vec<u64>),
    /// A copy for the threads of every node.
    Replicated,
}

/// Nodes of all groups of pages and of threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Nodes of each group of pages.
    pub pages: Vec<PageHome>,
    /// Node of each group of threads.
    pub threads: Vec<NodeIndex>,
}

impl Placement {
    /// Every group of pages spread in these proportions. Nodes without memory get nothing; if no proportion is left, nodes with memory get equal shares.
    fn spread(demand: &Demand, facts: &NodeFacts, proportions: impl Fn(usize) -> Vec<f64>) -> Self {
        let home = |group: usize| PageHome::Spread(deal(demand.pages[group].page_count(), &proportions(group), facts));
        Self {
            pages: (0..demand.pages.len()).map(home).collect(),
            threads: demand.threads.iter().map(|t| t.node).collect(),
        }
    }

    /// The placement of first touch, with threads on the demand's nodes.
    pub(crate) fn first_touch(demand: &Demand, facts: &NodeFacts) -> Self {
        Self::spread(demand, facts, |group| demand.pages[group].first_touch.clone())
    }

    /// All pages evenly over all nodes with memory.
    pub(crate) fn interleaved(demand: &Demand, facts: &NodeFacts) -> Self {
        Self::spread(demand, facts, |_| vec![1.0; facts.count()])
    }

    /// All pages over all nodes by bandwidth.
    pub(crate) fn weighted(demand: &Demand, facts: &NodeFacts) -> Self {
        Self::spread(demand, facts, |_| facts.bandwidth.iter().map(|b| b.unwrap_or(1.0)).collect())
    }

    /// All pages on one node.
    pub(crate) fn on_node(demand: &Demand, facts: &NodeFacts, node: NodeIndex) -> Self {
        Self::spread(demand, facts, |_| NodeIndex::all(facts.count()).map(|n| f64::from(u8::from(n == node))).collect())
    }

    /// Each group of pages in proportion to the accesses from each node, over some phases (`power` 1), or all where most come from (`power` large).
    pub(crate) fn by_users(demand: &Demand, facts: &NodeFacts, phases: &[usize], power: i32) -> Self {
        let threads: Vec<NodeIndex> = demand.threads.iter().map(|t| t.node).collect();
        Self::by_users_at(demand, facts, phases, &threads, power)
    }

    /// The same with groups of threads on these nodes.
    pub(crate) fn by_users_at(
        demand: &Demand,
        facts: &NodeFacts,
        phases: &[usize],
        threads: &[NodeIndex],
        power: i32,
    ) -> Self {
        let mut placement = Self::spread(demand, facts, |group| {
            let mut accesses = vec![0.0; facts.count()];
            for &phase in phases {
                for (&node, work) in threads.iter().zip(&demand.phases[phase].work).filter(|(_, w)| w.accesses > 0.0) {
                    accesses[node] += work.accesses * (work.reads[group] + work.writes[group]);
                }
            }
            let most = accesses.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
            accesses.iter().map(|a| (a / most).powi(power)).collect()
        });
        placement.threads = threads.to_vec();
        placement
    }

    /// Groups of pages in these shares over the nodes with memory; a last share beyond those is of copies, taken if it is most. Other groups as first touch
    /// puts them.
    pub(crate) fn from_shares(demand: &Demand, facts: &NodeFacts, shares: &[(usize, Vec<f64>)]) -> Self {
        let mut placement = Self::first_touch(demand, facts);
        for (group, shares) in shares {
            let mut proportions = vec![0.0; facts.count()];
            facts.with_memory.iter().zip(shares).for_each(|(&node, share)| proportions[node] = *share);
            let copied = shares.get(facts.with_memory.len()).copied().unwrap_or(0.0);
            placement.pages[*group] = if copied > 0.5 {
                PageHome::Replicated
            } else {
                PageHome::Spread(deal(demand.pages[*group].page_count(), &proportions, facts))
            };
        }
        placement
    }

    /// Whether a phase only reads what has copies.
    pub(crate) fn copies_are_read_only(&self, demand: &Demand, phase: usize) -> bool {
        let is_sound =
            |(group, home): (usize, &PageHome)| *home != PageHome::Replicated || demand.is_read_only(phase, group);
        self.pages.iter().enumerate().all(is_sound)
    }

    /// Checks that a placement fits a demand and a machine.
    pub(crate) fn check(&self, demand: &Demand, facts: &NodeFacts, phase: usize) -> Result<(), PlacementError> {
        let fail = |what: String, remedy: &str| {
            Err(PlacementError::Demand {
                place: format!("placement of phase {phase}"),
                what,
                remedy: remedy.to_owned(),
            })
        };
        if self.pages.len() != demand.pages.len() || self.threads.len() != demand.threads.len() {
            return fail(
                "its groups are not those of the demand".to_owned(),
                "give one entry for each group of pages and of threads",
            );
        }
        if self.threads.iter().any(|n| facts.cpus.get(n.0).is_none_or(|&cpus| cpus == 0)) {
            return fail("it runs threads on a node without CPUs".to_owned(), "name indexes of nodes with CPUs");
        }
        for (group, home) in self.pages.iter().enumerate() {
            let PageHome::Spread(counts) = home else { continue };
            let pages = demand.pages[group].page_count();
            let is_possible = counts.len() == facts.count()
                && counts.iter().try_fold(0u64, |sum, c| sum.checked_add(*c)) == Some(pages)
                && NodeIndex::all(counts.len()).all(|n| counts[n] == 0 || facts.has_memory(n));
            if !is_possible {
                return fail(
                    format!("group {group} of pages is at {counts:?}"),
                    &format!("spread {pages} pages over nodes with memory"),
                );
            }
        }
        if !self.copies_are_read_only(demand, phase) {
            return fail("a group that is written has copies".to_owned(), "replicate only what is read");
        }
        Ok(())
    }

    /// Drawn: half of the groups on one node each, the others in random proportions.
    pub(crate) fn random(demand: &Demand, facts: &NodeFacts, random: &mut Random) -> Self {
        let proportions: Vec<Vec<f64>> = (0..demand.pages.len())
            .map(|_| {
                let sharpness = if random.remainder(2) == 0 { 1 } else { 60 };
                (0..facts.count()).map(|_| random.unit().powi(sharpness)).collect()
            })
            .collect();
        Self::spread(demand, facts, |group| proportions[group].clone())
    }

    /// Pages of 4 KiB that each node holds. A replicated group has its copy on every node of `copies`.
    pub(crate) fn pages_on(&self, demand: &Demand, copies: &[NodeIndex], nodes: usize) -> Vec<u64> {
        let mut on = vec![0; nodes];
        for (home, group) in self.pages.iter().zip(&demand.pages) {
            match home {
                PageHome::Spread(counts) => on.iter_mut().zip(counts).for_each(|(on, count)| *on += count),
                PageHome::Replicated => copies.iter().for_each(|&node| on[node] += group.page_count()),
            }
        }
        on
    }

    /// Moves what does not fit on its node to those with room, the nearest first, as allocation falls back. False if all memory is too small.
    pub(crate) fn fit(&mut self, demand: &Demand, facts: &NodeFacts, copies: &[NodeIndex]) -> bool {
        let capacity: Vec<u64> = facts.memory_bytes.iter().map(|bytes| bytes / PAGE_BYTES).collect();
        let mut on = self.pages_on(demand, copies, facts.count());
        for home in &mut self.pages {
            let PageHome::Spread(counts) = home else { continue };
            for full in NodeIndex::all(counts.len()) {
                let mut others: Vec<NodeIndex> = facts.with_memory.iter().copied().filter(|&n| n != full).collect();
                others.sort_by_key(|&n| facts.distance[full][n]);
                for to in others {
                    let excess = on[full].saturating_sub(capacity[full]).min(counts[full]);
                    let moved = excess.min(capacity[to].saturating_sub(on[to]));
                    counts[full] -= moved;
                    counts[to] += moved;
                    on[full] -= moved;
                    on[to] += moved;
                }
            }
        }
        on.iter().zip(&capacity).all(|(on, capacity)| on <= capacity)
    }

    /// Pages that have to be copied to come from `before` to here. Dropping copies costs nothing.
    pub(crate) fn pages_moved_from(&self, before: &Self, demand: &Demand, copies: &[NodeIndex]) -> u64 {
        let moved = |(group, (now, before)): (usize, (&PageHome, &PageHome))| {
            let pages = demand.pages[group].page_count();
            match (before, now) {
                (PageHome::Spread(a), PageHome::Spread(b)) => {
                    a.iter().zip(b).map(|(a, b)| b.saturating_sub(*a)).sum::<u64>()
                }
                (PageHome::Spread(a), PageHome::Replicated) => copies.iter().map(|&n| pages - a[n].min(pages)).sum(),
                (PageHome::Replicated, PageHome::Spread(b)) => {
                    b.iter().enumerate().filter(|(n, _)| !copies.contains(&NodeIndex(*n))).map(|(_, b)| b).sum()
                }
                (PageHome::Replicated, PageHome::Replicated) => 0,
            }
        };
        self.pages.iter().zip(&before.pages).enumerate().map(moved).sum()
    }
}

/// Deals pages to nodes in proportion, largest remainders first.
fn deal(pages: u64, proportions: &[f64], facts: &NodeFacts) -> Vec<u64> {
    let usable = |n: NodeIndex| if facts.has_memory(n) { proportions[n].max(0.0) } else { 0.0 };
    let mut weights: Vec<f64> = NodeIndex::all(facts.count()).map(usable).collect();
    if weights.iter().sum::<f64>() <= 0.0 {
        weights = NodeIndex::all(facts.count()).map(|n| f64::from(u8::from(facts.has_memory(n)))).collect();
    }
    let total: f64 = weights.iter().sum();
    let exact: Vec<f64> = weights.iter().map(|w| w / total * pages as f64).collect();
    let mut counts: Vec<u64> = exact.iter().map(|e| e.floor() as u64).collect();
    let mut order: Vec<usize> = (0..counts.len()).filter(|&n| weights[n] > 0.0).collect();
    order.sort_by(|&a, &b| (exact[b] - exact[b].floor()).total_cmp(&(exact[a] - exact[a].floor())));
    let rest = pages.saturating_sub(counts.iter().sum()) as usize;
    order.iter().cycle().take(rest).for_each(|&n| counts[n] += 1);
    // Rounding up of large products may deal one too many.
    let mut excess = counts.iter().sum::<u64>().saturating_sub(pages);
    for count in counts.iter_mut().filter(|c| **c > 0) {
        let taken = excess.min(*count);
        *count -= taken;
        excess -= taken;
    }
    counts
}
