//! The model of DAMON on memory that is kept here: which pages are accessed is given, and what is ordered is carried out.

use std::collections::BTreeMap;

use super::*;
use crate::observation::{NodeCounters, PageSize};
use crate::registry::policy_by_name;

/// Pages of 4 KiB in a MiB.
const MIB: u64 = 256;

/// Memory of one process on a machine with an expander: 16 MiB on node 0, 1 MiB on node 1, 256 MiB on node 2.
struct Memory {
    homes: Vec<usize>,
    /// Pages whose accessed bit is clear.
    cleared: BTreeSet<u64>,
    now_ns: u64,
    moved: usize,
    looked: usize,
}

fn facts() -> NodeFacts {
    let mut facts = NodeFacts::new(&Machine::load("xeon-2s-cxl").expect("built-in")).expect("has memory");
    facts.memory_bytes = [16, 1, 256].map(|mib| mib * MIB * 4096).to_vec();
    facts
}

fn policy(options: &str, seed: u64) -> Damon {
    let options = Options::parse("damon", Damon::OPTIONS.to_vec(), options).expect("valid");
    Damon::new(&options, &Machine::load("xeon-2s-cxl").expect("built-in"), &facts(), seed).expect("valid")
}

impl Memory {
    /// The first 12 MiB are on node 0, the other 52 MiB on the expander.
    fn new() -> Memory {
        let homes = (0..64 * MIB).map(|page| if page < 12 * MIB { 0 } else { 2 }).collect();
        Memory { homes, cleared: BTreeSet::new(), now_ns: 0, moved: 0, looked: 0 }
    }

    fn free(&self) -> Vec<u64> {
        let mut used: BTreeMap<usize, u64> = BTreeMap::new();
        self.homes.iter().for_each(|node| *used.entry(*node).or_default() += 4096);
        facts().memory_bytes.iter().enumerate().map(|(node, all)| all - used.get(&node).unwrap_or(&0)).collect()
    }

    fn runs(&self) -> Vec<HomeRun> {
        let mut runs: Vec<HomeRun> = Vec::new();
        for (page, &node) in self.homes.iter().enumerate() {
            match runs.last_mut() {
                Some(last) if last.node.0 == node => last.pages += 1,
                _ => {
                    let first = PageNumber(page as u64);
                    runs.push(HomeRun { process: 1, first, pages: 1, size: PageSize::Small, node: NodeIndex(node) });
                }
            }
        }
        runs
    }

    /// Sampling intervals in which these pages are accessed, all of them.
    fn run(&mut self, policy: &mut Damon, hot: std::ops::Range<u64>, intervals: usize) {
        for _ in 0..intervals {
            self.now_ns += 5_000_000;
            let requirements = policy.requirements();
            let accessed: Vec<u64> = self.cleared.range(hot.clone()).copied().collect();
            self.cleared.retain(|page| !hot.contains(page));
            let node = |free_bytes: u64| NodeCounters { free_bytes, ..NodeCounters::default() };
            let seen = Observation {
                now_ns: self.now_ns,
                elapsed_ns: 5_000_000,
                nodes: self.free().into_iter().map(node).collect(),
                mapped: if requirements.mapped { vec![(1, PageNumber(0), 64 * MIB)] } else { Vec::new() },
                homes: if requirements.homes { self.runs() } else { Vec::new() },
                accessed: accessed.into_iter().map(crate::fixtures::page).collect(),
                ..Observation::default()
            };
            for action in policy.decide(&seen) {
                match action {
                    Action::ClearAccessed { first, pages, .. } => {
                        self.cleared.extend(first.0..first.0 + pages);
                        self.looked += 1;
                    }
                    Action::Migrate { page, to } => {
                        self.homes[page.page.0 as usize] = to.0;
                        self.moved += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Share of these pages that are on nodes with CPUs.
    fn fast(&self, pages: std::ops::Range<u64>) -> f64 {
        let number = (pages.end - pages.start) as f64;
        pages.filter(|page| self.homes[*page as usize] != 2).count() as f64 / number
    }
}

#[test]
fn hot_regions_are_found_and_moved_to_fast_memory_and_cold_ones_away() {
    let (mut memory, mut policy) = (Memory::new(), policy("goals=off", 1));
    let hot = 40 * MIB..48 * MIB;
    memory.run(&mut policy, hot.clone(), 200 * 20);
    assert!(memory.fast(hot.clone()) > 0.9, "{} {}", memory.fast(hot), policy.explain());
    assert!(memory.fast(0..12 * MIB) < 0.2, "{}", memory.fast(0..12 * MIB));
    assert!(policy.explain().contains("regions"), "{}", policy.explain());
}

#[test]
fn a_hot_set_that_shifts_is_followed() {
    let (mut memory, mut policy) = (Memory::new(), policy("goals=off", 1));
    for hot in [20 * MIB..28 * MIB, 50 * MIB..58 * MIB] {
        memory.run(&mut policy, hot.clone(), 200 * 20);
        assert!(memory.fast(hot.clone()) > 0.9, "{hot:?}: {} {}", memory.fast(hot.clone()), policy.explain());
    }
}

#[test]
fn few_pages_are_looked_at() {
    let (mut memory, mut policy) = (Memory::new(), policy("goals=off", 1));
    memory.run(&mut policy, 0..0, 200);
    let most = 1000 * 200 + 64 * MIB as usize;
    assert!(memory.looked > 10 * 200 && memory.looked <= most, "{} in a second", memory.looked);
}

#[test]
fn a_quota_bounds_what_moves_in_a_second() {
    let (mut memory, mut policy) = (Memory::new(), policy("goals=off,quota-mib=1", 1));
    memory.run(&mut policy, 40 * MIB..48 * MIB, 200 * 10);
    assert!(memory.moved > 0 && memory.moved as u64 <= 2 * 10 * MIB, "{} pages", memory.moved);
}

/// The example's goals begin with a quota of a byte: 75 % of fast memory is in use, so that it grows by a quarter every second.
#[test]
fn goals_begin_with_next_to_no_quota() {
    let (mut memory, mut policy) = (Memory::new(), policy("", 1));
    memory.run(&mut policy, 40 * MIB..48 * MIB, 200 * 10);
    assert_eq!(memory.moved, 0, "{}", policy.explain());
    assert!(policy.explain().contains("tuned by goals"));
}

#[test]
fn the_same_seed_gives_the_same_orders_and_another_one_others() {
    let homes = |seed: u64| {
        let (mut memory, mut policy) = (Memory::new(), policy("goals=off,quota-mib=4", seed));
        memory.run(&mut policy, 40 * MIB..48 * MIB, 200 * 6);
        memory.homes
    };
    assert_eq!(homes(3), homes(3));
    assert_ne!(homes(3), homes(4));
}

#[test]
fn a_machine_of_one_tier_is_told_what_to_take_instead() {
    let mut policy = policy_by_name("damon", &Machine::load("opteron-8385").expect("built-in"), 1).expect("known");
    assert!(policy.decide(&crate::fixtures::quiet()).is_empty());
    assert!(policy.explain().contains("one tier of memory") && policy.explain().contains("take kernel-balancing"));
    let requirements = policy.requirements();
    assert!(!requirements.mapped && !requirements.homes);
}

#[test]
fn intervals_that_do_not_fit_are_refused() {
    let message = |spec: &str| {
        let machine = Machine::load("xeon-2s-cxl").expect("built-in");
        policy_by_name(spec, &machine, 1).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(message("damon:aggregation-ms=12").contains("12 is no multiple of sample-ms, 5"));
    assert!(message("damon:apply-ms=150").contains("150 is no multiple of aggregation-ms"));
    assert!(message("damon:max-regions=5").contains("is below min-regions, 10"));
}
