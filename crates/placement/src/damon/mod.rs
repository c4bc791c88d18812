//! `damon`: a model of DAMON with its schemes `migrate_hot` and `migrate_cold` (Linux 6.11, `mm/damon`): the accessed bit of one page in each region tells how
//! often the region is accessed; hot regions move to the fastest tier, cold ones away from it.
//!
//! Defaults are those of the kernel's example of memory tiering, `samples/damon/mtier.c` (Linux 6.16). What differs from the kernel, and why, is in
//! `docs/policies.md`.

mod regions;
mod scheme;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use numapilot_host::PageNumber;
use numapilot_machine::{Machine, NodeIndex};
use numapilot_random::Random;

use crate::action::Action;
use crate::error::PlacementError;
use crate::kernel_tiers::KernelTiers;
use crate::nodes::NodeFacts;
use crate::observation::{HomeRun, Observation, PageKey};
use crate::options::{OptionInfo, Options};
use crate::policy::{Policy, PolicyRequirements};
use regions::Regions;
use scheme::{Kind, Limits, Scheme};

/// The goals of the example, in ten-thousandths of the fast memory: so much in use (`DAMOS_QUOTA_NODE_MEM_USED_BP`) for promotions, so much free
/// (`DAMOS_QUOTA_NODE_MEM_FREE_BP`) for demotions.
const USED_GOAL: u64 = 9970;
const FREE_GOAL: u64 = 50;
/// Ten-thousandths in the whole.
const WHOLE: u64 = 10_000;

/// Policy `damon`.
pub(crate) struct Damon {
    tiers: KernelTiers,
    /// Memory of each node, bytes.
    memory_bytes: Vec<u64>,
    sample_ns: u64,
    /// Sampling intervals in an aggregation interval, between two applications of the schemes, and between two looks at what is mapped.
    per_aggregation: u64,
    per_apply: u64,
    per_update: u64,
    has_goals: bool,
    limits: Limits,
    /// Sampling intervals that have passed.
    passed: u64,
    regions: Regions,
    /// Size that no merged region exceeds, pages.
    largest: u64,
    schemes: [Scheme; 2],
    /// Where pages are, as it was told the last time.
    homes: Vec<HomeRun>,
    /// Pages whose accessed bit it cleared and that were not accessed since.
    old: BTreeSet<PageKey>,
    /// Free bytes of each node, as far as is known.
    free: Vec<u64>,
    random: Random,
    explanation: String,
}

impl Damon {
    /// The options of the policy.
    pub const OPTIONS: &[OptionInfo] = &[
        OptionInfo::new("sample-ms", "5", "sampling interval: one page of each region is looked at, milliseconds"),
        OptionInfo::new(
            "aggregation-ms",
            "100",
            "aggregation interval: regions are merged and split after it, milliseconds",
        ),
        OptionInfo::new(
            "update-ms",
            "60000",
            "time after which regions are fitted to what is mapped (ops update), milliseconds",
        ),
        OptionInfo::new("min-regions", "10", "least number of regions"),
        OptionInfo::new("max-regions", "1000", "greatest number of regions"),
        OptionInfo::new("apply-ms", "1000", "time between two applications of the schemes, milliseconds"),
        OptionInfo::new("quota-mib", "200", "MiB per second that each scheme moves at most"),
        OptionInfo::new(
            "goals",
            "on",
            "whether goals tune both quotas (99.7 % of the fast memory in use, 0.5 % of it free); off: the quotas are as given",
        ),
        OptionInfo::new(
            "hot-accesses",
            "1",
            "sampling intervals in which a region was accessed from which on it is hot",
        ),
        OptionInfo::new("cold-age-ms", "0", "time without accesses from which on a region is cold, milliseconds"),
    ];

    /// Makes the policy from its options.
    pub fn new(options: &Options, machine: &Machine, facts: &NodeFacts, seed: u64) -> Result<Self, PlacementError> {
        let sample_ms = options.whole("sample-ms", 1, 60_000)?;
        let multiple = |key: &str| -> Result<u64, PlacementError> {
            let ms = options.whole(key, 1, 3_600_000)?;
            if ms % sample_ms == 0 && ms >= sample_ms {
                return Ok(ms / sample_ms);
            }
            Err(options.bad(key, format!("{ms} is no multiple of sample-ms, {sample_ms}"), "give one".to_owned()))
        };
        let per_aggregation = multiple("aggregation-ms")?;
        let per_apply = multiple("apply-ms")?;
        if !per_apply.is_multiple_of(per_aggregation) {
            let what = format!("{} is no multiple of aggregation-ms", per_apply * sample_ms);
            return Err(options.bad("apply-ms", what, "give one: counts of accesses are whole then".to_owned()));
        }
        let (min, max) = (options.whole("min-regions", 3, 1 << 20)?, options.whole("max-regions", 3, 1 << 20)?);
        if max < min {
            let what = format!("{max} is below min-regions, {min}");
            return Err(options.bad("max-regions", what, "give at least that".to_owned()));
        }
        let most_accesses = u32::try_from(per_aggregation).unwrap_or(u32::MAX);
        let aggregation_ms = per_aggregation * sample_ms;
        Ok(Self {
            tiers: KernelTiers::new(machine, facts),
            memory_bytes: facts.memory_bytes.clone(),
            sample_ns: sample_ms * 1_000_000,
            per_aggregation,
            per_apply,
            per_update: multiple("update-ms")?,
            has_goals: options.flag("goals")?,
            limits: Limits {
                min_accesses: options.whole("hot-accesses", 1, u64::from(most_accesses))? as u32,
                min_cold_age: (options.whole("cold-age-ms", 0, 3_600_000)? / aggregation_ms) as u32,
                quota_bytes: options.whole("quota-mib", 1, 1 << 30)? << 20,
                reset_ns: 1_000_000_000,
                most_accesses,
                aggregation_ns: aggregation_ms * 1_000_000,
            },
            passed: 0,
            regions: Regions::new(min, max, most_accesses),
            largest: u64::MAX,
            schemes: [Scheme::new(Kind::Hot), Scheme::new(Kind::Cold)],
            homes: Vec::new(),
            old: BTreeSet::new(),
            free: vec![0; facts.count()],
            random: Random::new(seed),
            explanation: String::new(),
        })
    }

    /// The run of pages that holds a page of a process.
    fn run_of(&self, process: u32, page: PageNumber) -> Option<&HomeRun> {
        let at = self.homes.partition_point(|run| (run.process, run.first) <= (process, page)).checked_sub(1)?;
        self.homes.get(at).filter(|run| run.process == process && run.first + run.pages > page)
    }

    /// Counts the regions whose page was accessed in the interval that ends (`damon_pa_check_accesses`).
    fn check_accesses(&mut self, seen: &Observation) -> u64 {
        let mut accessed = 0;
        for index in 0..self.regions.all.len() {
            let region = self.regions.all[index];
            let key = self.run_of(region.process, region.sampled).map(|run| run.key_of(region.sampled));
            if key.is_some_and(|key| seen.accessed.binary_search(&key).is_ok()) {
                self.regions.all[index].accesses += 1;
                accessed += 1;
            }
        }
        for key in &seen.accessed {
            self.old.remove(key);
        }
        accessed
    }

    /// Chooses a page of every region and clears its accessed bit (`damon_pa_prepare_access_checks`).
    fn prepare_checks(&mut self, actions: &mut Vec<Action>) {
        for index in 0..self.regions.all.len() {
            let draw = self.random.below(self.regions.all[index].pages);
            let region = &mut self.regions.all[index];
            region.sampled = region.first + draw;
            let (process, sampled) = (region.process, region.sampled);
            if let Some(key) = self.run_of(process, sampled).map(|run| run.key_of(sampled)) {
                self.clear(key, actions);
            }
        }
    }

    fn clear(&mut self, key: PageKey, actions: &mut Vec<Action>) {
        self.old.insert(key);
        actions.push(Action::ClearAccessed { process: key.process, first: key.page, pages: key.size.small_pages() });
    }

    /// Whether a scheme moves pages of this node.
    fn is_source(&self, kind: Kind, node: NodeIndex) -> bool {
        match kind {
            Kind::Hot => !self.tiers.is_fastest(node),
            Kind::Cold => self.tiers.is_fastest(node) && !self.tiers.below(node).is_empty(),
        }
    }

    /// The pages of a region that a scheme may move, with their nodes, ascending.
    fn movable(&self, kind: Kind, process: u32, first: PageNumber, pages: u64) -> Vec<(PageKey, NodeIndex)> {
        let end = first + pages;
        let from = self.homes.partition_point(|run| (run.process, run.first + run.pages) <= (process, first));
        let overlapping = self.homes[from..].iter().take_while(|run| run.process == process && run.first < end);
        let of_source = overlapping.filter(|run| self.is_source(kind, run.node));
        let keys = of_source.flat_map(|run| run.keys().map(|key| (key, run.node)));
        keys.filter(|(key, _)| key.page >= first && key.page < end).collect()
    }

    /// How far the goal of a scheme is reached, in ten-thousandths (`damos_quota_score`).
    fn goal(&self, kind: Kind) -> u64 {
        let fast = NodeIndex::all(self.free.len()).filter(|&node| self.tiers.is_fastest(node));
        let (all, free) =
            fast.fold((0, 0), |(all, free), node| (all + self.memory_bytes[node.0], free + self.free[node.0]));
        let part = |bytes: u64| (u128::from(bytes) * u128::from(WHOLE) / u128::from(all.max(1))) as u64;
        match kind {
            Kind::Hot => part(all - free.min(all)) * WHOLE / USED_GOAL,
            Kind::Cold => part(free) * WHOLE / FREE_GOAL,
        }
    }

    /// Applies one scheme to all regions (`kdamond_apply_schemes`). Returns how many pages of 4 KiB it orders.
    fn apply(&mut self, index: usize, now_ns: u64, actions: &mut Vec<Action>) -> u64 {
        let kind = self.schemes[index].kind;
        let goal = self.has_goals.then(|| self.goal(kind));
        let limits = self.limits;
        self.schemes[index].adjust(now_ns, goal, &limits);
        let fitting = self.regions.all.iter().filter(|region| self.schemes[index].fits(region, &limits));
        let bytes = |keys: &[(PageKey, NodeIndex)]| keys.iter().map(|(key, _)| key.size.bytes()).sum::<u64>();
        let sizes: Vec<(usize, u64)> = fitting
            .map(|region| {
                let keys = self.movable(kind, region.process, region.first, region.pages);
                (self.schemes[index].score(region, &limits), bytes(&keys))
            })
            .collect();
        self.schemes[index].select(sizes.into_iter());
        let (mut at, mut moved) = (0, 0);
        while at < self.regions.all.len() && self.schemes[index].left() > 0 {
            let region = self.regions.all[at];
            at += 1;
            // Where the quota ended the last time, it goes on (`damos_skip_charged_region`).
            if let Some(resume) = self.schemes[index].resume {
                if (region.process, region.end()) <= resume && at < self.regions.all.len() {
                    continue;
                }
                self.schemes[index].resume = None;
            }
            if !self.schemes[index].takes(&region, &limits) {
                continue;
            }
            let mut keys = self.movable(kind, region.process, region.first, region.pages);
            if keys.is_empty() {
                continue;
            }
            let left = self.schemes[index].left();
            if bytes(&keys) > left {
                let mut sum = 0;
                let fits = keys.iter().take_while(|(key, _)| {
                    sum += key.size.bytes();
                    sum <= left
                });
                let fit = fits.count();
                if fit == 0 {
                    break;
                }
                // The first page that does not fit begins a region of its own, and the quota ends here.
                self.regions.split_at(at - 1, keys[fit].0.page - region.first);
                self.schemes[index].resume = Some((region.process, keys[fit].0.page));
                keys.truncate(fit);
                self.schemes[index].charge(left);
            } else {
                self.schemes[index].charge(bytes(&keys));
            }
            self.regions.all[at - 1].age = 0;
            moved += self.migrate(kind, &keys, actions);
        }
        moved
    }

    /// Orders the pages of a region to their targets, as far as the filter `young` lets them through: of a hot region those that were accessed since they
    /// were looked at, of a cold one the others. Pages found accessed are looked at anew.
    fn migrate(&mut self, kind: Kind, keys: &[(PageKey, NodeIndex)], actions: &mut Vec<Action>) -> u64 {
        let mut moved = 0;
        for &(key, node) in keys {
            let is_young = !self.old.contains(&key);
            if is_young {
                self.clear(key, actions);
            }
            if is_young != (kind == Kind::Hot) {
                continue;
            }
            let targets = if kind == Kind::Hot { self.tiers.fastest(node) } else { self.tiers.below(node) };
            let Some(&to) = targets.iter().find(|to| self.free[to.0] >= key.size.bytes()) else { continue };
            self.free[to.0] -= key.size.bytes();
            self.free[node.0] += key.size.bytes();
            moved += key.size.small_pages();
            actions.push(Action::Migrate { page: key, to });
        }
        moved
    }

    /// Ends an aggregation interval: merges regions, applies the schemes if it is time, and splits regions.
    fn aggregate(&mut self, seen: &Observation, actions: &mut Vec<Action>) {
        self.regions.merge(self.largest);
        if self.passed.is_multiple_of(self.per_apply) {
            let number = self.regions.all.len();
            let [hot, cold] = [0, 1].map(|index| self.apply(index, seen.now_ns, actions));
            let busy = self.regions.all.iter().filter(|region| region.accesses > 0).count();
            let quotas = if self.has_goals { "tuned by goals" } else { "fixed" };
            self.explanation = format!(
                "{number} regions, {busy} of them accessed; ordered {hot} pages up, {cold} down; quotas {quotas}: {} and {} KiB left",
                self.schemes[0].left() >> 10,
                self.schemes[1].left() >> 10
            );
        }
        self.regions.begin();
        self.regions.split(&mut self.random);
    }

    /// Whether the next decision applies the schemes.
    fn applies_next(&self) -> bool {
        (self.passed + 1).is_multiple_of(self.per_apply)
    }
}

impl Policy for Damon {
    fn name(&self) -> &str {
        "damon"
    }

    fn requirements(&self) -> PolicyRequirements {
        let is_on = self.tiers.are_several();
        let is_first = self.regions.all.is_empty();
        PolicyRequirements {
            next_ns: if is_on { self.sample_ns } else { self.limits.reset_ns },
            samples_per_s_and_cpu: 0.0,
            mapped: is_on && (is_first || (self.passed + 1).is_multiple_of(self.per_update)),
            homes: is_on && (is_first || self.applies_next()),
        }
    }

    fn decide(&mut self, seen: &Observation) -> Vec<Action> {
        if !self.tiers.are_several() {
            "this machine has one tier of memory: nothing is ordered; take kernel-balancing, or pilot, to move pages between its nodes"
                .clone_into(&mut self.explanation);
            return Vec::new();
        }
        if seen.nodes.len() != self.free.len() {
            let (is, expected) = (seen.nodes.len(), self.free.len());
            self.explanation =
                format!("{is} nodes in the observation, {expected} expected: no decision in this interval");
            return Vec::new();
        }
        self.free.iter_mut().zip(&seen.nodes).for_each(|(free, node)| *free = node.free_bytes);
        self.check_accesses(seen);
        if !seen.homes.is_empty() {
            self.homes.clone_from(&seen.homes);
        }
        let mut actions = Vec::new();
        self.passed += 1;
        if self.passed.is_multiple_of(self.per_aggregation) {
            self.aggregate(seen, &mut actions);
        }
        if !seen.mapped.is_empty() && (self.regions.all.is_empty() || self.passed.is_multiple_of(self.per_update)) {
            self.regions.fit(&seen.mapped);
            self.largest = self.regions.largest();
        }
        self.prepare_checks(&mut actions);
        actions
    }

    fn explain(&self) -> String {
        self.explanation.clone()
    }
}
