//! `carrefour`, `carrefour-as-coded`, `carrefour-lp`: traffic management by collocation, interleaving and replication (Dashti et al., ASPLOS 2013;
//! Gaud et al., ACM Queue 13(8), 2015; for large pages Gaud et al., USENIX ATC 2014). One algorithm; the three names are three sets of defaults
//! (`settings`). `docs/policies.md` says what each option comes from.

mod decide;
mod draw;
mod gates;
mod large;
mod sampling;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use numapilot_machine::NodeIndex;
use numapilot_random::Random;
use numapilot_text::units::{part_percent, percent};

pub(crate) use settings::{AS_CODED, LARGE_PAGES, OPTIONS};

use crate::action::Action;
use crate::error::PlacementError;
use crate::metrics::Traffic;
use crate::nodes::NodeFacts;
use crate::observation::{Observation, PageKey, PageSize};
use crate::options::Options;
use crate::page_use::{PageTable, PageUse, shows_no_copy};
use crate::policy::{Policy, PolicyRequirements};
use decide::{PageDecision, decide};
use draw::Targets;
use gates::Gates;
use large::LargePages;
use sampling::Sampling;
use settings::{Large, Settings};

/// Policy `carrefour` and its variants.
pub(crate) struct Carrefour {
    name: &'static str,
    settings: Settings,
    facts: NodeFacts,
    random: Random,
    sampling: Sampling,
    replicas: Replicas,
    large: LargePages,
    explanation: String,
}

/// What is known of replicated pages. The table of samples is cleared every period; this is not.
#[derive(Debug, Default)]
struct Replicas {
    /// Nodes with a copy, of pages that are replicated now.
    copies: BTreeMap<PageKey, BTreeSet<NodeIndex>>,
    /// Number of collapses of each page.
    collapses: BTreeMap<PageKey, u32>,
    /// Whether enough were ever wanted at once ([`Settings::min_replications`]).
    begun: bool,
}

impl Replicas {
    /// Records the outcomes of orders to replicate, collapses, and copies that went with the memory that was freed.
    fn update(&mut self, seen: &Observation) {
        // Samples of this period may be of the time before their copies.
        let mut fresh: BTreeSet<PageKey> = BTreeSet::new();
        for outcome in &seen.outcomes {
            if let (Action::Replicate { page, nodes }, Ok(_)) = (&outcome.action, &outcome.result) {
                self.copies.insert(*page, nodes.iter().copied().collect());
                fresh.insert(*page);
            }
        }
        for sample in seen.samples.iter().filter(|sample| !fresh.contains(&sample.page)) {
            let has_copy = self.copies.get(&sample.page).is_some_and(|copies| copies.contains(&sample.from));
            if shows_no_copy(sample, has_copy, &seen.read_only) {
                self.copies.remove(&sample.page);
            }
        }
        for (page, _) in &seen.collapses {
            self.copies.remove(page);
            *self.collapses.entry(*page).or_default() += 1;
        }
        let alive: BTreeSet<u32> = seen.threads.iter().map(|t| t.process).collect();
        self.copies.retain(|page, _| alive.contains(&page.process));
        self.collapses.retain(|page, _| alive.contains(&page.process));
    }
}

impl Carrefour {
    /// Makes the policy from its options.
    pub fn new(name: &'static str, options: &Options, facts: NodeFacts, seed: u64) -> Result<Self, PlacementError> {
        let settings = Settings::read(options, &facts)?;
        let explanation = format!("gate at {:.1} accesses/us ({})", settings.gate_per_us, settings.gate_source);
        Ok(Self {
            name,
            sampling: Sampling::new(&facts),
            settings,
            facts,
            random: Random::new(seed),
            replicas: Replicas::default(),
            large: LargePages::default(),
            explanation,
        })
    }

    /// Orders for the pages of this period's table.
    fn order(&mut self, seen: &Observation, traffic: &Traffic, gates: &Gates, table: &PageTable) -> Vec<Action> {
        let facts = self.facts.clone();
        let targets = Targets::new(self.settings.draw, &facts.with_memory, traffic);
        let mut actions = Vec::new();
        if self.settings.large == Large::Split {
            let pages = table.pages.iter().filter(|(page, _)| page.size == PageSize::Large);
            actions = self.large.order(&facts, gates.moves, pages, seen, &targets, &mut self.random);
        }
        let mut replications = Vec::new();
        for (&page, used) in &table.pages {
            if page.size == PageSize::Large && self.settings.large != Large::Move {
                continue;
            }
            let moves = self.large.moves_of(page, gates.moves);
            match decide(&self.settings, moves, used, self.may_replicate(page, gates)) {
                PageDecision::Stay => {}
                PageDecision::Replicate => replications.extend(self.replicate(page, used)),
                PageDecision::Interleave if self.replicas.copies.contains_key(&page) => {}
                PageDecision::Interleave => {
                    let target = targets.draw(used.home, &mut self.random);
                    actions.extend(target.map(|to| Action::Migrate { page, to }));
                }
                PageDecision::Collocate(_) if self.replicas.copies.contains_key(&page) => {}
                PageDecision::Collocate(to) => {
                    actions.extend(facts.has_memory(to).then_some(Action::Migrate { page, to }));
                }
            }
        }
        self.replicas.begun |= !replications.is_empty() && replications.len() >= self.settings.min_replications;
        if self.replicas.begun {
            actions.append(&mut replications);
        }
        actions
    }

    fn may_replicate(&self, page: PageKey, gates: &Gates) -> bool {
        let collapsed = self.replicas.collapses.get(&page).copied().unwrap_or(0);
        let is_worn = self.settings.max_collapses > 0 && collapsed >= self.settings.max_collapses;
        gates.replicate.contains(&page.process) && !is_worn
    }

    /// Copies for every node seen to use the page, and for those that have one; nothing if all of these have one.
    fn replicate(&self, page: PageKey, used: &PageUse) -> Option<Action> {
        let mut nodes: BTreeSet<NodeIndex> = used.users().filter(|&n| self.facts.has_memory(n)).collect();
        match self.replicas.copies.get(&page) {
            Some(copies) if nodes.is_subset(copies) => return None,
            Some(copies) => nodes.extend(copies),
            None => nodes.extend(self.facts.has_memory(used.home).then_some(used.home)),
        }
        (nodes.len() > 1).then(|| Action::Replicate { page, nodes: nodes.into_iter().collect() })
    }

    fn explained(&self, traffic: &Traffic, gates: &Gates, table: &PageTable, actions: &[Action]) -> String {
        let count = |kind: fn(&Action) -> bool| actions.iter().filter(|a| kind(a)).count();
        let on = |is_on: bool| if is_on { "on" } else { "off" };
        let dropped = match table.dropped {
            0 => String::new(),
            dropped => format!("; {dropped} samples dropped, the table of pages was full"),
        };
        format!(
            "{:.1} accesses/us (gate {:.1}, {}: {}), local {}, imbalance {}, reads {}: collocation {}, interleaving {}, \
             replication {}; ordered {} moves, {} replications, {} splits{dropped}",
            traffic.accesses_per_us(),
            self.settings.gate_per_us,
            self.settings.gate_source,
            if gates.open { "open" } else { "closed" },
            part_percent(traffic.local_ratio_percent() / 100.0),
            percent(traffic.imbalance_percent(&self.facts.with_memory, self.settings.deviation) / 100.0),
            part_percent(traffic.read_ratio_percent() / 100.0),
            on(gates.moves.collocate),
            on(gates.moves.interleave),
            on(!gates.replicate.is_empty()),
            count(|a| matches!(a, Action::Migrate { .. })),
            count(|a| matches!(a, Action::Replicate { .. })),
            count(|a| matches!(a, Action::Split { .. })),
        )
    }
}

impl Policy for Carrefour {
    fn name(&self) -> &str {
        self.name
    }

    fn requirements(&self) -> PolicyRequirements {
        let is_resting = self.settings.large == Large::Split && self.large.rests();
        let next_ns = if is_resting { large::REST_PERIODS * self.settings.period_ns } else { self.settings.period_ns };
        PolicyRequirements {
            next_ns,
            samples_per_s_and_cpu: self.sampling.rate(&self.settings),
            mapped: false,
            homes: false,
        }
    }

    fn decide(&mut self, seen: &Observation) -> Vec<Action> {
        if seen.nodes.len() != self.facts.count() {
            self.explanation = format!(
                "{} nodes in the observation, {} expected: no decision in this period",
                seen.nodes.len(),
                self.facts.count()
            );
            return Vec::new();
        }
        self.replicas.update(seen);
        self.large.update(seen);
        let traffic = Traffic::of(seen);
        let gates = Gates::judge(&self.settings, &self.facts, &traffic, seen);
        let bound = if self.sampling.cheap { self.settings.table_pages / 3 } else { self.settings.table_pages };
        let mut table = PageTable::default();
        let mut actions = Vec::new();
        if gates.open {
            table = PageTable::collect(&seen.samples, self.facts.count(), bound, |sample| sample.page);
            actions = self.order(seen, &traffic, &gates, &table);
        }
        let imbalance = traffic.imbalance_percent(&self.facts.with_memory, self.settings.deviation);
        self.large.judge(traffic.local_ratio_percent(), imbalance, !actions.is_empty());
        self.sampling.adapt(seen, &traffic, gates.open, actions.len());
        self.explanation = self.explained(&traffic, &gates, &table, &actions);
        actions
    }

    fn explain(&self) -> String {
        self.explanation.clone()
    }
}
