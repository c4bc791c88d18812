//! What `tiering` knows: the tiers of the machine, and the pages that were sampled.

use std::collections::{BTreeMap, BTreeSet};

use numapilot_machine::{Machine, NodeId, NodeIndex};

use crate::action::{Action, Refusal};
use crate::cold::Cold;
use crate::metrics::Traffic;
use crate::move_price::MovePrice;
use crate::nodes::NodeFacts;
use crate::observation::{Observation, PageKey};

/// The tiers, as positions in pairs: memory of nodes with CPUs, and that of nodes without.
pub(super) const NEAR: usize = 0;
pub(super) const APART: usize = 1;

/// Samples with a latency from which on their mean is taken for a tier's.
const MEASURED: u32 = 16;
/// Heat, in samples, below which a page is forgotten: after twenty periods without a sample.
const FORGOTTEN: f64 = 1e-6;

/// Doublings of what a page's swap must save at most.
const RETURNS_MAX: u8 = 10;

/// A page that was sampled.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    /// Samples from each node, by index; halved every period.
    from: Vec<f64>,
    /// Where it was at its last sample, or was moved since.
    pub home: NodeIndex,
    /// How often it went away from near memory: what brings it back must save twice as much each time.
    pub returns: u8,
}

impl Page {
    /// Samples from all nodes.
    pub fn heat(&self) -> f64 {
        self.from.iter().sum()
    }

    /// The node that makes most of its samples; of several, the first.
    pub fn main_user(&self) -> NodeIndex {
        let most = |best: NodeIndex, node: NodeIndex| if self.from[node] > self.from[best] { node } else { best };
        NodeIndex::all(self.from.len()).fold(NodeIndex(0), most)
    }
}

/// Mean latency of a tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Latency {
    pub ns: f64,
    /// Whether enough samples tell it; otherwise it is the idle one, by the machine's description or, where that has none, a guess by distances.
    pub is_measured: bool,
}

impl Latency {
    /// In words, as `112 ns` or `112 ns (taken for idle)`.
    pub fn words(self) -> String {
        format!("{:.0} ns{}", self.ns, if self.is_measured { "" } else { " (taken for idle)" })
    }
}

/// The machine's tiers, and the pages that were sampled.
pub(super) struct Known {
    pub facts: NodeFacts,
    /// Nodes of each tier, the nearest first, as seen from each node.
    pub nearest: [Vec<Vec<NodeIndex>>; 2],
    /// Whether memory of nodes without CPUs has more bandwidth than that of nodes with CPUs (HBM).
    pub is_wide: bool,
    /// Idle latency from node (row) to memory (column), ns.
    idle_ns: Vec<Vec<f64>>,
    pub pages: BTreeMap<PageKey, Page>,
    /// Which memory is cold, pages without samples included.
    pub cold: Cold,
    /// What moving a page takes.
    pub price: MovePrice,
    /// Most pages that are remembered.
    pages_max: usize,
    /// Samples of further ones.
    pub forgotten: u64,
}

impl Known {
    /// No page is known yet. `pages_max`: how many are remembered.
    pub fn new(machine: &Machine, facts: NodeFacts, pages_max: usize) -> Known {
        let idle = |from: &NodeId| -> Vec<f64> {
            facts.ids.iter().map(|to| machine.idle_latency_or_guess_ns(*from, *to)).collect()
        };
        let idle_ns: Vec<Vec<f64>> = facts.ids.iter().map(idle).collect();
        let ranked = |has_cpus: bool| -> Vec<Vec<NodeIndex>> {
            let nodes: Vec<NodeIndex> =
                facts.with_memory.iter().copied().filter(|&node| (facts.cpus[node] > 0) == has_cpus).collect();
            let from = |row: &Vec<f64>| {
                let mut nodes = nodes.clone();
                nodes.sort_by(|&a, &b| row[a].total_cmp(&row[b]).then(a.cmp(&b)));
                nodes
            };
            idle_ns.iter().map(from).collect()
        };
        Known {
            nearest: [ranked(true), ranked(false)],
            is_wide: machine.wide_memory().is_some(),
            idle_ns,
            facts,
            pages: BTreeMap::new(),
            cold: Cold::default(),
            price: MovePrice::default(),
            pages_max,
            forgotten: 0,
        }
    }

    /// Whether there is memory of both kinds.
    pub fn has_tiers(&self) -> bool {
        self.nearest.iter().all(|tier| tier.iter().all(|nodes| !nodes.is_empty()))
    }

    /// The tier of a node's memory.
    pub fn tier(&self, node: NodeIndex) -> usize {
        if self.facts.cpus[node] > 0 { NEAR } else { APART }
    }

    /// Takes the samples and outcomes of a period.
    pub fn update(&mut self, seen: &Observation) {
        let nodes = self.facts.count();
        self.cold.learn(seen);
        self.pages.values_mut().for_each(|page| page.from.iter_mut().for_each(|samples| *samples /= 2.0));
        for sample in &seen.samples {
            if sample.from.0 >= nodes || !self.facts.has_memory(sample.home) {
                continue;
            }
            if self.pages.len() >= self.pages_max && !self.pages.contains_key(&sample.page) {
                self.forgotten += 1;
                continue;
            }
            let page = self.pages.entry(sample.page).or_default();
            page.from.resize(nodes, 0.0);
            page.from[sample.from] += 1.0;
            page.home = sample.home;
        }
        // Samples may be of the time before the moves.
        for outcome in &seen.outcomes {
            let Action::Migrate { page, to } = &outcome.action else { continue };
            if let Ok(ns) = outcome.result {
                self.price.learn(page.size, ns);
            }
            let is_apart = self.tier(*to) == APART;
            match outcome.result {
                Ok(_) | Err(Refusal::AlreadyThere) => {
                    if let Some(known) = self.pages.get_mut(page) {
                        known.home = *to;
                        known.returns = (known.returns + u8::from(is_apart)).min(RETURNS_MAX);
                    }
                }
                Err(Refusal::Gone) => {
                    self.pages.remove(page);
                }
                Err(_) => {}
            }
        }
        let alive: BTreeSet<u32> = seen.threads.iter().map(|thread| thread.process).collect();
        self.pages.retain(|key, page| alive.contains(&key.process) && page.heat() >= FORGOTTEN);
    }

    /// Mean loaded latency of a tier, from each node to the nearest memory of that tier: measured where enough samples tell it, else the idle one.
    pub fn latency(&self, tier: usize, seen: &Observation) -> Latency {
        let nearest = |from: NodeIndex| self.nearest[tier].get(from.0).and_then(|nodes| nodes.first()).copied();
        let of_tier = seen.samples.iter().filter(|sample| nearest(sample.from) == Some(sample.home));
        let measured = of_tier.filter_map(|sample| sample.latency_ns).filter(|ns| ns.is_finite());
        let (sum, count) = measured.fold((0.0, 0_u32), |(sum, count), ns| (sum + f64::from(ns), count + 1));
        if count >= MEASURED {
            return Latency { ns: sum / f64::from(count), is_measured: true };
        }
        let (mut sum, mut all) = (0.0, 0.0);
        for (from, node) in NodeIndex::all(self.facts.count()).zip(&seen.nodes) {
            let accesses: f64 = node.reads_to.iter().chain(&node.writes_to).filter(|count| **count > 0.0).sum();
            if let Some(home) = nearest(from) {
                sum += accesses * self.idle_ns[from][home];
                all += accesses;
            }
        }
        Latency { ns: if all > 0.0 { sum / all } else { 0.0 }, is_measured: false }
    }

    /// What each tier serves of the accesses of a period, if there are any: the share of near memory, 0 to 1.
    pub fn near_share(&self, seen: &Observation) -> Option<f64> {
        let traffic = Traffic::of(seen);
        let mut served = [0.0; 2];
        self.facts.with_memory.iter().for_each(|&node| served[self.tier(node)] += traffic.served[node]);
        let all: f64 = served.iter().sum();
        (all > 0.0).then(|| served[NEAR] / all)
    }
}
