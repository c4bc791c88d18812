//! `replication`: copies of pages that several nodes read and no sample wrote, and no other action. It shows the gain of Carrefour's replication
//! alone, with two additions: evidence is kept from period to period, and a page that collapses has to wait twice as long each time.

use std::collections::{BTreeMap, BTreeSet};

use numapilot_machine::NodeIndex;

use crate::action::Action;
use crate::action::Refusal;
use crate::error::PlacementError;
use crate::nodes::NodeFacts;
use crate::observation::{Observation, PageKey};
use crate::options::{OptionInfo, Options};
use crate::page_use::{PageUse, shows_no_copy};
use crate::policy::{Policy, PolicyRequirements};

/// Policy `replication`: copies pages that several nodes read and none writes.
pub(crate) struct Replication {
    facts: NodeFacts,
    period_ns: u64,
    samples_per_s_and_cpu: f64,
    min_reads: u32,
    first_wait_ns: u64,
    max_collapses: u32,
    spare_share: f64,
    pages: BTreeMap<PageKey, Page>,
    explanation: String,
}

/// Evidence about a page.
#[derive(Clone, Debug, Default)]
struct Page {
    /// Samples since the last write seen.
    used: PageUse,
    copies: BTreeSet<NodeIndex>,
    collapses: u32,
    /// Earliest time of the next replication.
    not_before_ns: u64,
    /// When it was last sampled.
    last_ns: u64,
}

/// Nanoseconds without a sample after which a page that has neither copies nor collapses is forgotten: evidence that old says little.
const FORGET_NS: u64 = 60_000_000_000;

impl Replication {
    /// The options of the policy.
    pub const OPTIONS: &[OptionInfo] = &[
        OptionInfo::new("period-ms", "1000", "milliseconds between decisions"),
        OptionInfo::new("samples", "500", "memory samples per second and CPU"),
        OptionInfo::new(
            "min-reads",
            "4",
            "reads seen, and no write, before a page is replicated: the share of writes is then below 3 / reads (95 %)",
        ),
        OptionInfo::new(
            "wait-ms",
            "2000",
            "milliseconds that a page waits after its first collapse; the wait doubles with each further collapse",
        ),
        OptionInfo::new("max-collapses", "5", "a page that collapsed this often is not replicated again"),
        OptionInfo::new("spare-memory", "10", "share of a node's memory that copies leave free, percent"),
    ];

    /// Makes the policy from its options.
    pub fn new(options: &Options, facts: NodeFacts) -> Result<Self, PlacementError> {
        Ok(Self {
            facts,
            period_ns: options.whole("period-ms", 1, 3_600_000)? * 1_000_000,
            samples_per_s_and_cpu: options.number("samples", 0.0, 1e7)?,
            min_reads: options.whole("min-reads", 1, 1_000_000)? as u32,
            first_wait_ns: options.whole("wait-ms", 0, 3_600_000)? * 1_000_000,
            max_collapses: options.whole("max-collapses", 1, 60)? as u32,
            spare_share: options.number("spare-memory", 0.0, 100.0)? / 100.0,
            pages: BTreeMap::new(),
            explanation: String::new(),
        })
    }

    /// Records the outcomes of orders, and which copies have collapsed.
    fn update(&mut self, seen: &Observation) {
        // Samples of this period may be of the time before their copies.
        let mut fresh: BTreeSet<PageKey> = BTreeSet::new();
        for outcome in &seen.outcomes {
            if let (Action::Replicate { page, nodes }, Ok(_) | Err(Refusal::AlreadyThere)) =
                (&outcome.action, &outcome.result)
            {
                self.pages.entry(*page).or_default().copies = nodes.iter().copied().collect();
                fresh.insert(*page);
            }
        }
        for (key, _) in &seen.collapses {
            let page = self.pages.entry(*key).or_default();
            page.copies.clear();
            page.used = PageUse::default();
            page.not_before_ns =
                seen.now_ns.saturating_add(self.first_wait_ns.saturating_mul(1 << page.collapses.min(40)));
            page.collapses += 1;
        }
        for sample in &seen.samples {
            let page = self.pages.entry(sample.page).or_default();
            let has_copy = page.copies.contains(&sample.from);
            if shows_no_copy(sample, has_copy, &seen.read_only) && !fresh.contains(&sample.page) {
                // Nor is anything known of the memory that is there now.
                page.copies.clear();
                page.used = PageUse::default();
            }
            if sample.is_write {
                page.used = PageUse::default();
            } else {
                page.used.add(sample, self.facts.count());
            }
            page.last_ns = seen.now_ns;
        }
        let alive: BTreeSet<u32> = seen.threads.iter().map(|t| t.process).collect();
        self.pages.retain(|key, page| {
            // Of one that was written to last, nothing is known but that.
            let is_stale = page.copies.is_empty()
                && page.collapses == 0
                && (page.used.total() == 0 || page.last_ns.saturating_add(FORGET_NS) < seen.now_ns);
            alive.contains(&key.process) && !is_stale
        });
    }

    /// Nodes that should have a copy of a page, if more than have one.
    fn wanted(&self, page: &Page, now_ns: u64) -> Option<BTreeSet<NodeIndex>> {
        let may = page.collapses < self.max_collapses && now_ns >= page.not_before_ns;
        if !may || !page.used.is_shared() || page.used.total() < self.min_reads {
            return None;
        }
        let mut nodes: BTreeSet<NodeIndex> = page.used.users().filter(|&n| self.facts.has_memory(n)).collect();
        if page.copies.is_empty() {
            nodes.extend(self.facts.has_memory(page.used.home).then_some(page.used.home));
        }
        let grows = !nodes.is_subset(&page.copies);
        nodes.extend(&page.copies);
        (grows && nodes.len() > 1).then_some(nodes)
    }
}

impl Policy for Replication {
    fn name(&self) -> &str {
        "replication"
    }

    fn requirements(&self) -> PolicyRequirements {
        PolicyRequirements {
            next_ns: self.period_ns,
            samples_per_s_and_cpu: self.samples_per_s_and_cpu,
            mapped: false,
            homes: false,
        }
    }

    fn decide(&mut self, seen: &Observation) -> Vec<Action> {
        self.update(seen);
        let spare = |node: NodeIndex| self.facts.memory_bytes[node] as f64 * self.spare_share;
        let mut room: Vec<f64> = NodeIndex::all(self.facts.count())
            .map(|n| seen.nodes.get(n.0).map_or(0.0, |s| s.free_bytes as f64 - spare(n)))
            .collect();
        let mut actions = Vec::new();
        let mut without_room = 0u64;
        for (key, page) in &self.pages {
            let Some(nodes) = self.wanted(page, seen.now_ns) else { continue };
            let bytes = key.size.bytes() as f64;
            let has =
                |node: NodeIndex| page.copies.contains(&node) || (page.copies.is_empty() && node == page.used.home);
            let fitting: Vec<NodeIndex> = nodes.iter().copied().filter(|&n| has(n) || room[n] >= bytes).collect();
            without_room += (nodes.len() - fitting.len()) as u64;
            if fitting.len() > 1 && fitting.iter().any(|&n| !has(n)) {
                fitting.iter().filter(|&&n| !has(n)).for_each(|&n| room[n] -= bytes);
                actions.push(Action::Replicate { page: *key, nodes: fitting });
            }
        }
        let replicated = self.pages.values().filter(|p| !p.copies.is_empty()).count();
        self.explanation = format!(
            "{replicated} pages have copies; requested {} more, {without_room} copies found no free memory",
            actions.len()
        );
        actions
    }

    fn explain(&self) -> String {
        self.explanation.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Outcome;
    use crate::fixtures::{machine, page, quiet, sample};
    use crate::registry::policy_by_name;

    fn read_by(nodes: &[usize], now_s: u64) -> Observation {
        Observation {
            now_ns: now_s * 1_000_000_000,
            samples: nodes.iter().map(|&n| sample(page(7), n, 0, false)).collect(),
            ..quiet()
        }
    }

    fn replicated(actions: &[Action]) -> Vec<Vec<usize>> {
        let nodes = |a: &Action| {
            if let Action::Replicate { nodes, .. } = a {
                Some(nodes.iter().map(|node| node.0).collect::<Vec<usize>>())
            } else {
                None
            }
        };
        actions.iter().filter_map(nodes).collect()
    }

    #[test]
    fn evidence_adds_up_over_periods_and_a_write_clears_it() {
        let mut policy = policy_by_name("replication", &machine(), 0).expect("known");
        assert!(policy.decide(&read_by(&[1, 2], 1)).is_empty(), "two reads are too few");
        let mut write = read_by(&[1, 2], 2);
        write.samples[0].is_write = true;
        assert!(policy.decide(&write).is_empty(), "the write clears");
        assert!(policy.decide(&read_by(&[1, 2], 3)).is_empty(), "three reads since");
        assert_eq!(
            replicated(&policy.decide(&read_by(&[1], 4))),
            [vec![0, 1, 2]],
            "four reads; the home keeps its copy"
        );
    }

    #[test]
    fn copies_are_extended_but_not_ordered_twice() {
        let mut policy = policy_by_name("replication:min-reads=2", &machine(), 0).expect("known");
        let first = policy.decide(&read_by(&[1, 2], 1));
        let mut seen = read_by(&[1, 2], 2);
        seen.outcomes = vec![Outcome { action: first[0].clone(), result: Ok(1.0) }];
        assert!(policy.decide(&seen).is_empty(), "all users have copies");
        assert_eq!(replicated(&policy.decide(&read_by(&[3], 3))), [vec![0, 1, 2, 3]]);
    }

    /// Pages whose memory was freed, and used again, were taken for replicated for good.
    #[test]
    fn copies_of_freed_memory_are_forgotten() {
        let mut policy = policy_by_name("replication:min-reads=3", &machine(), 0).expect("known");
        let first = policy.decide(&read_by(&[1, 2, 2], 1));
        assert_eq!(replicated(&first), [vec![0, 1, 2]]);
        let mut seen = read_by(&[1, 2, 2], 2);
        seen.outcomes = vec![Outcome { action: first[0].clone(), result: Ok(1.0) }];
        assert!(policy.decide(&seen).is_empty(), "these reads may be of the time before the copies");
        assert!(
            policy.decide(&read_by(&[1, 2], 3)).is_empty(),
            "there are no copies any more, and two reads are too few"
        );
        assert_eq!(replicated(&policy.decide(&read_by(&[1], 4))), [vec![0, 1, 2]]);
    }

    #[test]
    fn each_collapse_doubles_the_wait_and_the_last_ends_it() {
        let mut policy =
            policy_by_name("replication:min-reads=2,wait-ms=2000,max-collapses=2", &machine(), 0).expect("known");
        assert_eq!(policy.decide(&read_by(&[1, 2], 1)).len(), 1);
        let mut collapsed = read_by(&[1, 2], 2);
        collapsed.collapses = vec![(page(7), NodeIndex(0))];
        assert!(policy.decide(&collapsed).is_empty(), "waits two seconds");
        assert!(policy.decide(&read_by(&[1, 2], 3)).is_empty());
        assert_eq!(policy.decide(&read_by(&[1, 2], 4)).len(), 1, "the wait is over");
        collapsed.now_ns = 5_000_000_000;
        assert!(policy.decide(&collapsed).is_empty());
        assert!(policy.decide(&read_by(&[1, 2], 1000)).is_empty(), "collapsed twice: never again");
    }

    /// Each page that was sampled took memory for a minute, also those that were written to and may not be copied.
    #[test]
    fn pages_that_were_written_to_last_are_not_remembered() {
        let options = Options::parse("replication", Replication::OPTIONS.to_vec(), "").expect("valid");
        let facts = NodeFacts::new(&machine()).expect("nodes");
        let mut policy = Replication::new(&options, facts).expect("valid");
        let mut seen = read_by(&[1, 2], 1);
        seen.samples.push(sample(page(8), 1, 0, true));
        policy.decide(&seen);
        assert_eq!(policy.pages.keys().copied().collect::<Vec<_>>(), [page(7)]);
    }

    #[test]
    fn no_copy_goes_where_memory_is_short() {
        let mut policy = policy_by_name("replication:min-reads=2,spare-memory=10", &machine(), 0).expect("known");
        let mut seen = read_by(&[1, 2], 1);
        // 10 % of 16 GiB is to be left.
        seen.nodes[1].free_bytes = 1 << 30;
        assert_eq!(replicated(&policy.decide(&seen)), [vec![0, 2]]);
    }
}
