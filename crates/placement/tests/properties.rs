//! Every policy, on arbitrary observations: pages go to nodes with memory only, nothing is ordered about pages that were never seen, and
//! the same observations and seed give the same orders.

use std::collections::BTreeSet;

use numapilot_host::PageNumber;
use numapilot_machine::{Machine, NodeIndex, NodeSet};
use numapilot_placement::{
    Action, HintFault, HomeRun, NodeCounters, Observation, Outcome, PageKey, PageSize, Refusal, Sample, ThreadState,
    policies, policy_by_name,
};
use proptest::prelude::*;

/// What differs between observations; everything else follows from it.
#[derive(Clone, Debug)]
struct Second {
    accesses: Vec<u32>,
    samples: Vec<(u64, bool, u32, usize, usize, bool)>,
    faults: Vec<(u64, u32, usize, usize)>,
    nodes_of_threads: Vec<usize>,
    collapses: Vec<u64>,
    succeed: bool,
}

fn second(nodes: usize) -> impl Strategy<Value = Second> {
    (
        prop::collection::vec(0u32..200_000_000, nodes * nodes),
        prop::collection::vec((0u64..40, any::<bool>(), 0u32..6, 0..nodes + 1, 0..nodes, any::<bool>()), 0..120),
        prop::collection::vec((0u64..40, 0u32..8, 0..nodes, 0..nodes), 0..60),
        prop::collection::vec(0..nodes, 6),
        prop::collection::vec(0u64..40, 0..3),
        any::<bool>(),
    )
        .prop_map(|(accesses, samples, faults, nodes_of_threads, collapses, succeed)| Second {
            accesses,
            samples,
            faults,
            nodes_of_threads,
            collapses,
            succeed,
        })
}

fn key(page: u64, is_large: bool) -> PageKey {
    if is_large {
        PageKey { process: 2, page: PageNumber::first_of_large(page), size: PageSize::Large }
    } else {
        PageKey { process: 2, page: PageNumber(100_000 + page), size: PageSize::Small }
    }
}

/// All pages, large and small, each kind on one node with memory.
fn homes(second: &Second, count: usize) -> Vec<HomeRun> {
    let node = |at: usize| NodeIndex(second.nodes_of_threads[at] % count);
    let run = |first, pages, size, node| HomeRun { process: 2, first: PageNumber(first), pages, size, node };
    vec![run(0, 40 * 512, PageSize::Large, NodeIndex(count - 1)), run(100_000, 40, PageSize::Small, node(0))]
}

fn observation(second: &Second, machine: &Machine, index: u64, before: &[Action]) -> Observation {
    let count = machine.nodes().len();
    let node = |from: usize| NodeCounters {
        reads_to: (0..count).map(|to| f64::from(second.accesses[from * count + to])).collect(),
        writes_to: (0..count).map(|to| f64::from(second.accesses[from * count + to] / 50)).collect(),
        // Where moves fail, memory is full.
        free_bytes: if second.succeed { machine.nodes()[from].memory_bytes / 8 * 7 } else { 0 },
        controller_utilisation: None,
    };
    let thread = |(thread, &node): (usize, &usize)| ThreadState {
        thread: thread as u32,
        process: 2,
        node: NodeIndex(node),
        allowed: NodeSet::all(count),
        busy_ns: 1e9,
        instructions: 1e9,
        memory_accesses: 1e7,
    };
    let sample = |&(page, is_large, thread, from, home, is_write): &(u64, bool, u32, usize, usize, bool)| {
        let page = key(page, is_large);
        let (from, home) = (NodeIndex(from), NodeIndex(home));
        Sample { page, small_page: page.page + u64::from(thread), thread, from, home, is_write, latency_ns: None }
    };
    let now_ns = (index + 1) * 1_000_000_000;
    let fault = |&(page, thread, from, home): &(u64, u32, usize, usize)| HintFault {
        time_ns: now_ns - 1,
        page: key(page, page % 5 == 0),
        thread,
        from: NodeIndex(from),
        home: NodeIndex(home),
        is_write: false,
        age_ns: 5,
    };
    let outcome = |action: &Action| Outcome {
        action: action.clone(),
        result: if second.succeed { Ok(1000.0) } else { Err(Refusal::NoRoom) },
    };
    Observation {
        now_ns,
        elapsed_ns: 1_000_000_000,
        nodes: (0..count).map(node).collect(),
        threads: second.nodes_of_threads.iter().enumerate().map(thread).collect(),
        samples: second.samples.iter().map(sample).collect(),
        sample_period: 1000.0,
        hint_faults: second.faults.iter().map(fault).collect(),
        collapses: second.collapses.iter().map(|&page| (key(page, false), NodeIndex(0))).collect(),
        mapped: vec![(2, PageNumber(0), 40 * 512), (2, PageNumber(100_000), 40)],
        homes: homes(second, count),
        accessed: (0..40)
            .filter(|page| page % 3 == 0)
            .map(|page| key(page, page % 2 == 0))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        outcomes: before.iter().map(outcome).collect(),
        ..Observation::default()
    }
}

/// All orders of a policy over some seconds.
fn orders(spec: &str, machine: &Machine, seconds: &[Second], seed: u64) -> Vec<Vec<Action>> {
    let mut policy = policy_by_name(spec, machine, seed).expect("a known policy");
    let mut all: Vec<Vec<Action>> = Vec::new();
    for (index, second) in seconds.iter().enumerate() {
        let before = all.last().cloned().unwrap_or_default();
        all.push(policy.decide(&observation(second, machine, index as u64, &before)));
        let requirements = policy.requirements();
        assert!(
            requirements.next_ns > 0
                && requirements.samples_per_s_and_cpu.is_finite()
                && requirements.samples_per_s_and_cpu >= 0.0
        );
        policy.explain();
    }
    all
}

fn seen_pages(seconds: &[Second]) -> BTreeSet<PageKey> {
    let samples = seconds.iter().flat_map(|s| &s.samples).map(|&(page, is_large, ..)| key(page, is_large));
    let faults = seconds.iter().flat_map(|s| &s.faults).map(|&(page, ..)| key(page, page % 5 == 0));
    let collapses = seconds.iter().flat_map(|s| &s.collapses).map(|&page| key(page, false));
    // Of every page the observation tells where it is.
    let by_home = (0..40).flat_map(|page| [key(page, false), key(page, true)]);
    samples.chain(faults).chain(collapses).chain(by_home).collect()
}

/// Whether an order is about pages and threads that were seen, and nodes that can take them.
fn is_sound(action: &Action, machine: &Machine, seen: &BTreeSet<PageKey>) -> bool {
    let can_hold = |node: NodeIndex| machine.nodes().get(node.0).is_some_and(|n| n.has_memory());
    let is_known = |page: &PageKey| {
        let around = PageKey { page: page.page.large_start(), size: PageSize::Large, ..*page };
        seen.contains(page) || seen.contains(&around)
    };
    match action {
        Action::Migrate { page, to } => is_known(page) && can_hold(*to),
        Action::Replicate { page, nodes } => {
            is_known(page)
                && nodes.len() > 1
                && nodes.iter().all(|&n| can_hold(n))
                && nodes.windows(2).all(|w| w[0] < w[1])
        }
        Action::Split { page } => seen.contains(page) && page.size == PageSize::Large,
        Action::MoveThread { thread, to } => *thread < 6 && machine.nodes().get(to.0).is_some_and(|n| n.has_cpus()),
        Action::Unmap { process, first, pages } | Action::ClearAccessed { process, first, pages } => {
            *process == 2
                && *pages > 0
                && [(0, 40 * 512), (100_000, 100_040)].iter().any(|(a, b)| first.0 >= *a && first.0 + pages <= *b)
        }
        Action::Allocate { process, .. } => *process == 2,
    }
}

const SPECS: &[&str] = &[
    "first-touch",
    "local",
    "interleave",
    "weighted-interleave",
    "kernel-balancing",
    "kernel-tiering:enough-free-mib=0,scan-delay-ms=0",
    "damon:sample-ms=100,goals=off",
    "carrefour",
    "carrefour:large=on",
    "carrefour-as-coded:min-replications=3,gate=1",
    "carrefour-lp:gate=1",
    "replication:min-reads=2",
    "tiering:table-pages=30",
    "pilot:min-gain=0,patience=0.01",
];

#[test]
fn every_policy_is_tried_here() {
    for info in policies() {
        assert!(SPECS.iter().any(|spec| spec.split(':').next() == Some(info.name)), "add {} to SPECS", info.name);
        assert!(!info.summary.is_empty() && info.options().iter().all(|o| !o.help.is_empty()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn orders_are_sound_and_deterministic(
        on_memory_nodes in any::<bool>(),
        seconds in prop::collection::vec(second(4), 1..6),
        seed in any::<u64>(),
    ) {
        // The second machine has nodes without CPUs.
        let machine = Machine::load(if on_memory_nodes { "xeon-2s-cxl" } else { "opteron-8385" }).expect("built-in");
        let fitted: Vec<Second> = seconds.iter().map(|s| fit(s, &machine)).collect();
        let seen = seen_pages(&fitted);
        for spec in SPECS {
            let first = orders(spec, &machine, &fitted, seed);
            for action in first.iter().flatten() {
                prop_assert!(is_sound(action, &machine, &seen), "{}: {:?}", spec, action);
            }
            prop_assert_eq!(first, orders(spec, &machine, &fitted, seed), "{} is not deterministic", spec);
        }
    }
}

/// The same second on a machine of at most four nodes, with threads where there are CPUs.
fn fit(second: &Second, machine: &Machine) -> Second {
    let count = machine.nodes().len();
    let with_cpus: Vec<usize> = (0..count).filter(|&n| machine.nodes()[n].has_cpus()).collect();
    let mut fitted = second.clone();
    fitted.samples.iter_mut().for_each(|s| s.4 %= count);
    fitted.faults.iter_mut().for_each(|f| (f.2, f.3) = (f.2 % count, f.3 % count));
    fitted.nodes_of_threads.iter_mut().for_each(|n| *n = with_cpus[*n % with_cpus.len()]);
    fitted
}

#[test]
fn unknown_names_and_options_are_answered_with_what_is_known() {
    let machine = Machine::load("opteron-8385").expect("built-in");
    let message = |spec: &str| policy_by_name(spec, &machine, 0).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(message("carefour").contains("first-touch, local, interleave"), "{}", message("carefour"));
    assert!(message("carrefour:lar=3").contains("it takes: period-ms, gate"), "{}", message("carrefour:lar=3"));
    assert!(message("first-touch:x=1").contains("it takes no options"), "{}", message("first-touch:x=1"));
    assert!(
        message("interleave:nodes=0-9").contains("this machine has: 0, 1, 2, 3"),
        "{}",
        message("interleave:nodes=0-9")
    );
    assert!(message("interleave:nodes=x").contains("name nodes with memory"), "{}", message("interleave:nodes=x"));
    assert!(
        message("weighted-interleave:weights=1/2").contains("for each of 4 nodes"),
        "{}",
        message("weighted-interleave:weights=1/2")
    );
    assert!(message("kernel-balancing:scan-period-max-ms=10").contains("is below scan-period-min-ms"));
    assert!(message("").contains("there is no policy \"\""));
}
