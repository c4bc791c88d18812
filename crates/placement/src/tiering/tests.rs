//! The policy on a machine with a CXL expander: nodes 0 and 1 have CPUs, node 2 has memory alone.

use numapilot_host::PageNumber;
use numapilot_machine::{Machine, NodeIndex, NodeSet};

use crate::action::{Action, Outcome, Refusal};
use crate::observation::{NodeCounters, Observation, PageKey, PageSize, Sample, ThreadState};
use crate::policy::Policy;
use crate::registry::policy_by_name;

const GIB: u64 = 1 << 30;

fn policy(spec: &str) -> Box<dyn Policy> {
    policy_by_name(spec, &Machine::load("xeon-2s-cxl").expect("built-in"), 1).expect("known")
}

fn page(number: u64) -> PageKey {
    PageKey { process: 1, page: PageNumber(number), size: PageSize::Small }
}

/// One second in which node 0 accesses pages: each with its home and number of samples. Latencies by tier, ns; `free_gib` by node.
fn second(pages: &[(u64, usize, usize)], latencies_ns: [f32; 2], free_gib: [u64; 3]) -> Observation {
    let sample = |&(number, home, _): &(u64, usize, usize)| Sample {
        page: page(number),
        small_page: PageNumber(number),
        thread: 0,
        from: NodeIndex(0),
        home: NodeIndex(home),
        is_write: false,
        latency_ns: Some(latencies_ns[usize::from(home == 2)]),
    };
    let mut reads = [0.0; 3];
    pages.iter().for_each(|&(_, home, samples)| reads[home] += 1000.0 * samples as f64);
    let node = |node: usize| NodeCounters {
        reads_to: if node == 0 { reads.to_vec() } else { vec![0.0; 3] },
        writes_to: vec![0.0; 3],
        free_bytes: free_gib[node] * GIB,
        controller_utilisation: None,
    };
    let thread = ThreadState {
        thread: 0,
        process: 1,
        node: NodeIndex(0),
        allowed: NodeSet::all(3),
        busy_ns: 1e9,
        instructions: 1e9,
        memory_accesses: 1e6,
    };
    Observation {
        now_ns: 1_000_000_000,
        elapsed_ns: 1_000_000_000,
        nodes: (0..3).map(node).collect(),
        threads: vec![thread],
        samples: pages.iter().flat_map(|page| std::iter::repeat_n(sample(page), page.2)).collect(),
        sample_period: 1000.0,
        ..Observation::default()
    }
}

fn moves(actions: &[Action]) -> Vec<(u64, usize)> {
    let of = |action: &Action| match action {
        Action::Migrate { page, to } => (page.page.0, to.0),
        other => panic!("{other:?}"),
    };
    actions.iter().map(of).collect()
}

const ROOM: [u64; 3] = [100, 100, 100];

#[test]
fn hot_pages_go_up_while_near_memory_is_faster_and_the_hottest_first() {
    let seen = second(&[(1, 2, 10), (2, 2, 30), (3, 0, 40), (4, 2, 20)], [110.0, 220.0], ROOM);
    let mut tiering = policy("tiering");
    assert_eq!(moves(&tiering.decide(&seen)), [(2, 0), (4, 0), (1, 0)]);
    assert!(tiering.explain().contains("serves 40.0 % in 110 ns") && tiering.explain().contains("3 pages up, 0 down"));
    let mut bounded = policy("tiering:max-mib=1");
    let many: Vec<(u64, usize, usize)> = (0..300).map(|number| (number, 2, 2)).collect();
    assert_eq!(bounded.decide(&second(&many, [110.0, 220.0], ROOM)).len(), 256, "1 MiB in a period");
}

#[test]
fn near_memory_that_is_slower_under_load_gives_away_half_and_then_less() {
    let all: Vec<(u64, usize, usize)> = (0..8).map(|number| (number, 0, 5)).collect();
    let mut tiering = policy("tiering");
    let down = tiering.decide(&second(&all, [400.0, 220.0], ROOM));
    assert_eq!(moves(&down), [(0, 2), (1, 2), (2, 2), (3, 2)], "half of the load");
    // Four are there now, and near memory is faster: half of the way back.
    let moved: Vec<(u64, usize, usize)> = (0..8).map(|number| (number, if number < 4 { 2 } else { 0 }, 5)).collect();
    let up = tiering.decide(&second(&moved, [150.0, 220.0], ROOM));
    assert_eq!(moves(&up), [(0, 0), (1, 0)]);
    let last: Vec<(u64, usize, usize)> =
        (0..8).map(|number| (number, if (2..4).contains(&number) { 2 } else { 0 }, 5)).collect();
    assert!(tiering.decide(&second(&last, [215.0, 220.0], ROOM)).is_empty(), "the latencies are equal enough");
}

#[test]
fn colder_pages_make_room_for_far_hotter_ones_where_near_memory_is_full() {
    let full = [0, 0, 100];
    let mut tiering = policy("tiering");
    let seen = second(&[(1, 0, 20), (2, 0, 2), (3, 2, 30), (4, 2, 3)], [110.0, 220.0], full);
    assert_eq!(moves(&tiering.decide(&seen)), [(2, 2), (3, 0)], "page 1 is not cold, and 4 is no hotter");
    let nowhere = second(&[(1, 0, 20), (2, 0, 2), (3, 2, 30)], [110.0, 220.0], [0, 0, 0]);
    let mut tiering = policy("tiering");
    assert!(
        tiering.decide(&nowhere).is_empty() && tiering.explain().contains("1 found no room"),
        "{}",
        tiering.explain()
    );
}

#[test]
fn what_was_moved_is_known_to_be_there() {
    let seen = second(&[(1, 2, 40), (2, 0, 40)], [110.0, 220.0], ROOM);
    for (result, again) in
        [(Ok(1.0), 0), (Err(Refusal::AlreadyThere), 0), (Err(Refusal::Gone), 0), (Err(Refusal::Busy), 1)]
    {
        let mut tiering = policy("tiering");
        let first = tiering.decide(&seen);
        assert_eq!(moves(&first), [(1, 0)]);
        let outcomes = vec![Outcome { action: first[0].clone(), result }];
        // Its samples are of before the move.
        let next = tiering.decide(&Observation { outcomes, ..seen.clone() });
        assert_eq!(next.len(), again, "{result:?}");
    }
}

#[test]
fn idle_latencies_stand_in_where_none_is_measured() {
    let mut seen = second(&[(1, 2, 40), (2, 0, 40)], [400.0, 220.0], ROOM);
    seen.samples.iter_mut().for_each(|sample| sample.latency_ns = None);
    let mut tiering = policy("tiering");
    assert_eq!(moves(&tiering.decide(&seen)), [(1, 0)]);
    let told = "in 112 ns (taken for idle), other memory the rest in 210 ns (taken for idle)";
    assert!(tiering.explain().contains(told), "{}", tiering.explain());
}

/// What is in HBM went to DDR5, which answers sooner while it is idle and has a fifth of the bandwidth.
#[test]
fn memory_of_more_bandwidth_is_left_alone_where_no_latency_is_measured() {
    let machine = Machine::load("xeon-max-flat").expect("built-in");
    let mut tiering = policy_by_name("tiering", &machine, 1).expect("known");
    let mut seen = second(&[(1, 2, 40)], [110.0, 220.0], ROOM);
    let idle = seen.nodes[1].clone();
    seen.nodes.push(idle);
    assert_eq!(moves(&tiering.decide(&seen)), [(1, 0)]);
    seen.samples.iter_mut().for_each(|sample| sample.latency_ns = None);
    let orders = tiering.decide(&seen);
    assert!(orders.is_empty() && tiering.explain().contains("no latency was measured"), "{}", tiering.explain());
    // Of a few samples with latencies the mean is taken for no tier's: all of it went to DDR5 again.
    seen.samples.iter_mut().take(5).for_each(|sample| sample.latency_ns = Some(110.0));
    let orders = tiering.decide(&seen);
    assert!(orders.is_empty() && tiering.explain().starts_with("too few latencies were"), "{}", tiering.explain());
}

#[test]
fn a_machine_of_one_tier_is_left_alone() {
    let mut tiering = policy_by_name("tiering", &Machine::load("opteron-8385").expect("built-in"), 1).expect("known");
    assert!(tiering.decide(&crate::fixtures::quiet()).is_empty() && tiering.explain().contains("one tier of memory"));
    assert_eq!(tiering.requirements().samples_per_s_and_cpu, 0.0);
}
