//! The model of Linux memory tiering on hand-made faults: nodes 0 and 1 have CPUs, node 2 is an expander.

use numapilot_machine::NodeSet;

use super::*;
use crate::fixtures::{hint_fault, page};
use crate::observation::{HomeRun, NodeCounters, PageSize, ThreadState};
use crate::registry::policy_by_name;

const MIB: u64 = 1 << 20;

/// 64 MiB on each node with CPUs, 512 MiB on the expander.
fn machine() -> Machine {
    Machine::load("xeon-2s-cxl").expect("built-in")
}

fn facts() -> NodeFacts {
    let mut facts = NodeFacts::new(&machine()).expect("has memory");
    facts.memory_bytes = [64, 64, 512].map(|mib| mib * MIB).to_vec();
    facts
}

fn policy(options: &str) -> KernelTiering {
    let options = Options::parse("kernel-tiering", KernelTiering::OPTIONS.to_vec(), options).expect("valid");
    KernelTiering::new(&options, &machine(), &facts()).expect("valid")
}

/// One step of 100 ms in which a thread on node 0 runs. `homes`: pages from 0 on by node, in order. `free`: pages of each node.
fn step(now_ms: u64, homes: &[(u64, usize)], free: [u64; 3], faults: Vec<HintFault>) -> Observation {
    let node = |free: u64| NodeCounters {
        reads_to: vec![0.0; 3],
        writes_to: vec![0.0; 3],
        free_bytes: free * 4096,
        controller_utilisation: None,
    };
    let thread = ThreadState {
        thread: 0,
        process: 1,
        node: NodeIndex(0),
        allowed: NodeSet::all(3),
        busy_ns: 1e8,
        instructions: 1e8,
        memory_accesses: 1e6,
    };
    let mut first = PageNumber(0);
    let run = |&(pages, node): &(u64, usize)| {
        let run = HomeRun { process: 1, first, pages, size: PageSize::Small, node: NodeIndex(node) };
        first += pages;
        run
    };
    Observation {
        now_ns: now_ms * 1_000_000,
        elapsed_ns: 100_000_000,
        nodes: free.map(node).to_vec(),
        threads: vec![thread],
        homes: homes.iter().map(run).collect(),
        hint_faults: faults,
        ..Observation::default()
    }
}

/// A fault of the thread on node 0 on a page of the expander, so long after it was unmapped.
fn slow_fault(number: u64, now_ms: u64, age_ms: u64) -> HintFault {
    HintFault { age_ns: age_ms * 1_000_000, ..hint_fault(page(number), 0, 0, 2, now_ms * 1_000_000 - 1) }
}

fn moves(actions: &[Action]) -> Vec<(u64, usize)> {
    let of = |action: &Action| if let Action::Migrate { page, to } = action { Some((page.page.0, to.0)) } else { None };
    actions.iter().filter_map(of).collect()
}

fn cleared(actions: &[Action]) -> usize {
    actions.iter().filter(|action| matches!(action, Action::ClearAccessed { .. })).count()
}

const ROOM: [u64; 3] = [8000, 8000, 100_000];

#[test]
fn hot_pages_of_slow_memory_are_promoted_and_others_not() {
    let mut policy = policy("");
    let faults = vec![slow_fault(20_001, 200, 10), slow_fault(20_002, 200, 1500), slow_fault(20_003, 200, 999)];
    let actions = policy.decide(&step(200, &[(8000, 0), (50_000, 2)], ROOM, faults));
    assert_eq!(moves(&actions), [(20_001, 0), (20_003, 0)]);
    assert!(policy.explain().contains("3 faults: 2 pages promoted, 1 not hot"), "{}", policy.explain());
}

#[test]
fn faults_on_fast_memory_move_nothing() {
    let mut policy = policy("");
    let remote = hint_fault(page(1), 0, 0, 1, 150_000_000);
    assert!(moves(&policy.decide(&step(200, &[(8000, 1), (50_000, 2)], ROOM, vec![remote]))).is_empty());
}

#[test]
fn with_much_free_memory_every_accessed_page_is_promoted() {
    let mut policy = policy("enough-free-mib=16");
    let faults = vec![slow_fault(20_002, 200, 59_000)];
    let actions = policy.decide(&step(200, &[(8000, 0), (50_000, 2)], ROOM, faults));
    assert_eq!(moves(&actions), [(20_002, 0)]);
}

#[test]
fn beyond_the_rate_limit_nothing_is_promoted() {
    let mut policy = policy("promote-rate-limit-mb=1");
    let faults: Vec<HintFault> = (0..1000).map(|number| slow_fault(20_000 + number, 200, 1)).collect();
    let actions = policy.decide(&step(200, &[(8000, 0), (50_000, 2)], ROOM, faults));
    assert_eq!(moves(&actions).len(), 255, "a MiB is 256 pages, and the last one reaches the limit");
    assert!(policy.explain().contains("745 beyond the rate limit"), "{}", policy.explain());
}

#[test]
fn a_full_node_demotes_what_is_not_used_and_then_takes_hot_pages() {
    let mut policy = policy("");
    let homes = [(16_000, 0), (50_000, 2)];
    let full = [10, 16_000, 80_000];
    let hot = |now_ms: u64| vec![slow_fault(20_000, now_ms, 5)];
    let first = policy.decide(&step(200, &homes, full, hot(200)));
    assert!(moves(&first).is_empty(), "no room, and no page is known to be cold");
    assert!(policy.explain().contains("1 without room"), "{}", policy.explain());
    assert!(cleared(&first) > 0, "kswapd begins to look which pages are used");
    let mut seen = step(300, &homes, full, hot(300));
    // All pages but the first thousand are used.
    seen.accessed = (1000..16_000).map(page).collect();
    let demoted = moves(&policy.decide(&seen));
    assert!(!demoted.is_empty() && demoted.iter().all(|&(number, to)| number < 1000 && to == 2), "{demoted:?}");
    let marks = Watermarks::new(64 * 256, 640 * 256);
    assert_eq!(demoted.len() as u64, marks.promo + 1 - 10, "as far as the watermark of promotion");
    let rest = [(16_000 - demoted.len() as u64, 0), (50_000, 2)];
    let free = [marks.promo + 1, 16_000, 80_000];
    let after = moves(&policy.decide(&step(400, &rest, free, hot(400))));
    assert_eq!(after[0], (20_000, 0), "the hot page has room now");
    assert!(
        after.len() == 2 && after[1].0 < 1000 && after[1].1 == 2,
        "and kswapd, still awake, makes up for it: {after:?}"
    );
    let idle = policy.decide(&step(500, &rest, free, Vec::new()));
    assert!(moves(&idle).is_empty() && !policy.nodes[0].is_kswapd_awake, "then it sleeps");
}

#[test]
fn without_demotion_a_full_node_stays_full() {
    let mut policy = policy("demotion=off");
    for now_ms in [200, 300, 400] {
        let seen = step(now_ms, &[(16_000, 0), (50_000, 2)], [10, 16_000, 80_000], vec![slow_fault(20_000, now_ms, 5)]);
        let actions = policy.decide(&seen);
        assert!(moves(&actions).is_empty() && cleared(&actions) == 0);
    }
}

#[test]
fn scans_unmap_slow_memory_alone_and_promotions_slow_them_down() {
    let mut policy = policy("");
    let homes = [(8000, 0), (30_000, 2), (8000, 1), (40_000, 2)];
    let mut scans = Vec::new();
    for now_ms in (100..=8000).step_by(100) {
        let faults = if now_ms % 500 == 0 { vec![slow_fault(20_000, now_ms, 5)] } else { Vec::new() };
        for action in policy.decide(&step(now_ms, &homes, ROOM, faults)) {
            if let Action::Unmap { first, pages, .. } = action {
                scans.push((now_ms, first.0, pages));
            }
        }
    }
    // 256 MiB are 65,536 pages: the first scan takes the 30,000 and 35,536 of the 40,000.
    assert_eq!(scans[..2].iter().map(|scan| (scan.1, scan.2)).collect::<Vec<_>>(), [(8000, 30_000), (46_000, 35_536)]);
    assert_eq!((scans[2].1, scans[2].2), (81_536, 4464), "and the second the rest");
    // Half a second each for the two pieces, at first.
    assert!(policy.scanner.periods_ms().1 >= 2000, "{:?}", policy.scanner.periods_ms());
}

#[test]
fn a_machine_of_one_tier_is_told_what_to_take_instead() {
    let opteron = Machine::load("opteron-8385").expect("built-in");
    let mut policy = policy_by_name("kernel-tiering", &opteron, 1).expect("known");
    assert!(policy.decide(&crate::fixtures::quiet()).is_empty());
    assert!(policy.explain().contains("one tier of memory") && policy.explain().contains("take kernel-balancing"));
    assert!(!policy.requirements().homes);
}

/// To the kernel HBM is of a faster tier than memory of nodes with CPUs, so none is slow.
#[test]
fn beside_hbm_nothing_is_promoted() {
    let mut policy =
        policy_by_name("kernel-tiering", &Machine::load("xeon-max-flat").expect("built-in"), 1).expect("known");
    let mut seen = step(200, &[(8000, 0), (8000, 2)], ROOM, vec![slow_fault(9000, 200, 5)]);
    seen.nodes.push(seen.nodes[1].clone());
    assert!(moves(&policy.decide(&seen)).is_empty());
    assert!(policy.explain().contains("promotes nothing: take weighted-interleave"), "{}", policy.explain());
}

#[test]
fn an_observation_of_another_machine_orders_nothing() {
    let mut policy = policy("");
    assert!(
        policy.decide(&crate::fixtures::quiet()).is_empty() && policy.explain().contains("4 nodes in the observation")
    );
}
