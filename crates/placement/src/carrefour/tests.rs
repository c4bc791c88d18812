//! Carrefour on hand-made observations: the gates open at the published thresholds, and pages are treated by the rules.

use numapilot_host::PageNumber;
use numapilot_machine::{Machine, NodeIndex, NodeSet};

use super::*;
use crate::action::{Outcome, Refusal};
use crate::fixtures::{SECOND_NS, busy, large_page, machine, page, sample};
use crate::observation::{ReadOnlyRange, Sample};
use crate::registry::policy_by_name;

const ALL_ON_ONE: [f64; 4] = [1.0, 0.0, 0.0, 0.0];
const EVEN: [f64; 4] = [0.25; 4];

fn decide(spec: &str, seen: &Observation) -> Vec<Action> {
    policy_by_name(spec, &machine(), 1).expect("valid").decide(seen)
}

fn with(mut seen: Observation, samples: Vec<Sample>) -> Observation {
    seen.samples = samples;
    seen
}

/// Shared and written, on node 0.
fn contended(pages: u64) -> Vec<Sample> {
    (0..pages).flat_map(|p| [sample(page(p), 1, 0, true), sample(page(p), 2, 0, false)]).collect()
}

/// Pages with the positions of the nodes that they go to.
fn migrations(actions: &[Action]) -> Vec<(PageKey, usize)> {
    actions
        .iter()
        .filter_map(|a| if let Action::Migrate { page, to } = a { Some((*page, to.0)) } else { None })
        .collect()
}

#[test]
fn nothing_happens_below_the_published_rate() {
    let samples = contended(100);
    assert!(decide("carrefour", &with(busy(49.9, ALL_ON_ONE, 0.5), samples.clone())).is_empty());
    assert!(!decide("carrefour", &with(busy(50.1, ALL_ON_ONE, 0.5), samples.clone())).is_empty());
    assert!(!decide("carrefour:gate=40", &with(busy(49.9, ALL_ON_ONE, 0.5), samples)).is_empty());
}

#[test]
fn the_gate_scales_with_the_machine() {
    let faster = Machine::load("xeon-2s").expect("built-in model");
    let peak: f64 = faster.nodes().iter().filter_map(|n| n.memory_bandwidth_bytes_per_s).sum();
    let expected = 50.0 * peak / 51.2e9;
    let explained = policy_by_name("carrefour", &faster, 0).expect("valid").explain();
    assert!(explained.contains(&format!("{expected:.1} accesses/us")), "{explained}");
}

#[test]
fn interleaving_trips_at_the_published_imbalance() {
    let at = |hot: f64| {
        let cold = (1.0 - hot) / 3.0;
        // Traffic is 25 % local, so collocation is on as well; these pages are shared.
        !decide("carrefour", &with(busy(200.0, [hot, cold, cold, cold], 0.5), contended(200))).is_empty()
    };
    assert!(!at(0.3812), "38.12 % is an imbalance of 34.99 %");
    assert!(at(0.3813), "38.13 % is an imbalance of 35.01 %");
}

#[test]
fn collocation_needs_remote_traffic() {
    let lonely = vec![sample(page(1), 2, 0, true)];
    let actions = decide("carrefour", &with(busy(200.0, EVEN, 0.5), lonely.clone()));
    assert_eq!(migrations(&actions), [(page(1), 2)], "25 % local");
    let mut local = busy(200.0, EVEN, 0.5);
    for (from, node) in local.nodes.iter_mut().enumerate() {
        node.reads_to = (0..4).map(|to| if from == to { 80.0e6 } else { 20.0e6 / 3.0 }).collect();
        node.writes_to = vec![0.0; 4];
    }
    assert!(decide("carrefour", &with(local.clone(), lonely.clone())).is_empty(), "80 % local is enough");
    local.nodes[0].reads_to[1] += 1e6;
    assert_eq!(migrations(&decide("carrefour", &with(local, lonely))).len(), 1, "below 80 %");
}

#[test]
fn as_coded_wants_two_samples_unless_interleaving_is_on() {
    let one = vec![sample(page(1), 2, 0, true)];
    let two = vec![sample(page(1), 2, 0, true), sample(page(1), 2, 0, false)];
    assert!(decide("carrefour-as-coded", &with(busy(200.0, EVEN, 0.5), one.clone())).is_empty());
    assert_eq!(migrations(&decide("carrefour-as-coded", &with(busy(200.0, EVEN, 0.5), two))), [(page(1), 2)]);
    assert_eq!(migrations(&decide("carrefour-as-coded", &with(busy(200.0, ALL_ON_ONE, 0.5), one))), [(page(1), 2)]);
}

#[test]
fn as_coded_collocates_while_only_interleaving_is_on() {
    // Local ratio 85 %, but node 0 serves everything.
    let mut seen = busy(200.0, ALL_ON_ONE, 0.5);
    seen.nodes[0].reads_to[0] = 1e9;
    let seen = with(seen, vec![sample(page(1), 2, 0, true)]);
    assert!(decide("carrefour", &seen).is_empty());
    assert_eq!(migrations(&decide("carrefour-as-coded", &seen)), [(page(1), 2)]);
}

fn read_shared(pages: u64) -> Vec<Sample> {
    (0..pages).flat_map(|p| [sample(page(p), 1, 0, false), sample(page(p), 2, 0, false)]).collect()
}

#[test]
fn replication_needs_reads_memory_and_no_write() {
    let replications = |spec: &str, seen: &Observation| {
        decide(spec, seen).iter().filter(|a| matches!(a, Action::Replicate { .. })).count()
    };
    let mut seen = with(busy(200.0, ALL_ON_ONE, 0.02), read_shared(30));
    assert_eq!(replications("carrefour", &seen), 30);
    assert_eq!(replications("carrefour-as-coded", &seen), 0, "the code wants 500 at once");
    assert_eq!(replications("carrefour-as-coded:min-replications=30", &seen), 30);
    seen.samples[0].is_write = true;
    assert_eq!(replications("carrefour", &seen), 29, "one page was written: 98 % of the samples are reads");
    for sample in seen.samples.iter_mut().take(8) {
        sample.is_write = true;
    }
    assert_eq!(replications("carrefour", &seen), 0, "87 % of the samples are reads");
    let mut full = with(busy(200.0, ALL_ON_ONE, 0.02), read_shared(30));
    full.nodes.iter_mut().for_each(|n| n.free_bytes = 11 << 30);
    assert_eq!(replications("carrefour", &full), 0, "31 % of the memory is used; 25 % may be");
}

#[test]
fn replicated_pages_stay_replicated_until_they_collapse() {
    let mut policy =
        policy_by_name("carrefour-as-coded:min-replications=1,max-collapses=2", &machine(), 1).expect("valid");
    let seen = with(busy(200.0, ALL_ON_ONE, 0.01), read_shared(1));
    for round in 0..2 {
        let actions = policy.decide(&seen);
        assert_eq!(
            actions,
            [Action::Replicate { page: page(0), nodes: [0, 1, 2].map(NodeIndex).to_vec() }],
            "round {round}"
        );
        let mut next =
            with(busy(200.0, ALL_ON_ONE, 0.01), vec![sample(page(0), 3, 0, false), sample(page(0), 3, 0, false)]);
        next.outcomes = vec![Outcome { action: actions[0].clone(), result: Ok(1e4) }];
        assert!(policy.decide(&next).is_empty(), "a replicated page does not follow its one user of this second");
        let mut collapse = busy(200.0, ALL_ON_ONE, 0.01);
        collapse.collapses = vec![(page(0), NodeIndex(0))];
        assert!(policy.decide(&collapse).is_empty());
    }
    assert!(migrations(&policy.decide(&seen)).len() <= 1, "after two collapses it is interleaved at best");
    assert!(!policy.decide(&seen).iter().any(|a| matches!(a, Action::Replicate { .. })));
}

/// Pages whose memory was freed, and used again, were taken for replicated for good, and left alone.
#[test]
fn copies_of_freed_memory_are_forgotten() {
    let mut policy = policy_by_name("carrefour", &machine(), 1).expect("valid");
    let seen = with(busy(200.0, ALL_ON_ONE, 0.01), read_shared(1));
    let copies = [Action::Replicate { page: page(0), nodes: [0, 1, 2].map(NodeIndex).to_vec() }];
    assert_eq!(policy.decide(&seen), copies);
    let mut made = seen.clone();
    made.outcomes = vec![Outcome { action: copies[0].clone(), result: Ok(1e4) }];
    assert!(policy.decide(&made).is_empty(), "these reads may be of the time before the copies");
    let own = vec![sample(page(0), 1, 1, false), sample(page(0), 2, 2, false), sample(page(0), 2, 0, true)];
    assert!(
        policy.decide(&with(busy(200.0, ALL_ON_ONE, 0.01), own)).is_empty(),
        "reads of copies, and a write to the home"
    );
    let mut of_a_file = seen.clone();
    of_a_file.read_only = vec![ReadOnlyRange { process: 1, first: PageNumber(0), pages: 8, copies: NodeSet::all(3) }];
    assert!(policy.decide(&of_a_file).is_empty(), "a process that does not use its node's copy of a file");
    of_a_file.read_only[0].first = PageNumber(1);
    assert_eq!(policy.decide(&of_a_file), copies, "nodes 1 and 2 read from node 0: there are no copies any more");
}

#[test]
fn the_table_of_one_second_is_bounded_and_says_what_it_dropped() {
    let mut policy = policy_by_name("carrefour-as-coded:table-pages=10", &machine(), 1).expect("valid");
    let seen = with(busy(200.0, EVEN, 0.5), (0..15).flat_map(|p| [sample(page(p), 2, 0, true); 2]).collect());
    assert_eq!(migrations(&policy.decide(&seen)).len(), 10);
    assert!(policy.explain().contains("10 samples dropped"), "{}", policy.explain());
    assert_eq!(migrations(&policy.decide(&with(busy(200.0, EVEN, 0.5), Vec::new()))).len(), 0, "nothing is remembered");
}

#[test]
fn a_page_may_bounce_every_second() {
    let mut policy = policy_by_name("carrefour", &machine(), 3).expect("valid");
    let seen = with(busy(200.0, ALL_ON_ONE, 0.5), contended(1));
    let moves: usize = (0..5).map(|_| migrations(&policy.decide(&seen)).len()).sum();
    assert_eq!(moves, 5, "published Carrefour has no bound on a small page's bouncing");
}

#[test]
fn sampling_slows_down_after_few_orders() {
    let mut policy = policy_by_name("carrefour", &machine(), 1).expect("valid");
    let rate = |policy: &dyn Policy| policy.requirements().samples_per_s_and_cpu;
    policy.decide(&with(busy(200.0, ALL_ON_ONE, 0.5), contended(100)));
    let accurate = rate(&*policy);
    policy.decide(&with(busy(200.0, ALL_ON_ONE, 0.5), contended(1)));
    let cheap = rate(&*policy);
    assert!((accurate / cheap - 4.0).abs() < 1e-3, "{accurate} and {cheap}");
    // 2.3 GHz over 65,528 cycles; 200 accesses per microsecond in 4 x 2.3e9 instructions.
    assert!((accurate - 2.3e9 / 65_528.0 * 2e8 / 9.2e9).abs() < 1e-6, "{accurate}");
}

/// A large page on node 0 whose small pages each have one user, in turn.
fn falsely_shared(number: u64, samples: u64) -> Vec<Sample> {
    (0..samples)
        .map(|i| Sample {
            small_page: large_page(number).page + i % 64,
            ..sample(large_page(number), i as usize % 4, 0, true)
        })
        .collect()
}

#[test]
fn large_pages_are_left_alone_unless_told() {
    let seen = with(busy(200.0, ALL_ON_ONE, 0.5), vec![sample(large_page(1), 2, 0, true)]);
    assert!(decide("carrefour", &seen).is_empty());
    assert_eq!(migrations(&decide("carrefour:large=on", &seen)), [(large_page(1), 2)]);
}

#[test]
fn a_hot_shared_large_page_is_split_and_dealt() {
    let actions = decide("carrefour-lp", &with(busy(200.0, ALL_ON_ONE, 0.5), falsely_shared(1, 64)));
    assert_eq!(actions[0], Action::Split { page: large_page(1) });
    let dealt = migrations(&actions);
    assert_eq!(dealt.len(), 384, "512 less the quarter that is there already");
    assert!(dealt.iter().all(|(p, to)| p.size == PageSize::Small && *to != 0 && (p.page.0 % 4) as usize == *to));
}

#[test]
fn shared_large_pages_are_split_when_it_looks_better_twice() {
    // Forty pages, each below 6 % of the samples. As mapped, a quarter could be local; split, all.
    let samples: Vec<Sample> = (0..40).flat_map(|p| falsely_shared(p, 64)).collect();
    let seen = with(busy(200.0, EVEN, 0.5), samples);
    let mut policy = policy_by_name("carrefour-lp", &machine(), 1).expect("valid");
    let splits = |actions: &[Action]| actions.iter().filter(|a| matches!(a, Action::Split { .. })).count();
    assert_eq!(splits(&policy.decide(&seen)), 0, "once is not enough");
    assert_eq!(splits(&policy.decide(&seen)), 40);
}

#[test]
fn a_large_page_moves_once() {
    let mut policy = policy_by_name("carrefour-lp", &machine(), 1).expect("valid");
    let mut samples: Vec<Sample> = (2..60).map(|p| sample(large_page(p), 0, 0, true)).collect();
    samples.push(sample(large_page(1), 2, 0, true));
    let seen = with(busy(200.0, ALL_ON_ONE, 0.5), samples);
    let first = policy.decide(&seen);
    assert_eq!(migrations(&first), [(large_page(1), 2)]);
    let mut refused = seen.clone();
    refused.outcomes = vec![Outcome { action: first[0].clone(), result: Err(Refusal::Busy) }];
    assert_eq!(migrations(&policy.decide(&refused)).len(), 1, "a refused move was none");
    let mut moved = seen.clone();
    moved.outcomes = vec![Outcome { action: first[0].clone(), result: Ok(6e5) }];
    assert!(policy.decide(&moved).is_empty());
}

/// The address of a large page that had moved was left alone for good, whatever memory was there.
#[test]
fn new_memory_at_the_address_of_a_large_page_that_moved_may_move() {
    let mut policy = policy_by_name("carrefour-lp", &machine(), 1).expect("valid");
    let with_page = |from: usize, home: usize| {
        let others = (2..60).map(|p| sample(large_page(p), 0, 0, true));
        with(busy(200.0, ALL_ON_ONE, 0.5), others.chain([sample(large_page(1), from, home, true)]).collect())
    };
    let first = policy.decide(&with_page(2, 0));
    assert_eq!(migrations(&first), [(large_page(1), 2)]);
    let mut moved = with_page(2, 0);
    moved.outcomes = vec![Outcome { action: first[0].clone(), result: Ok(6e5) }];
    assert!(policy.decide(&moved).is_empty(), "this sample may be of the time before the move");
    assert!(policy.decide(&with_page(1, 2)).is_empty(), "it is where it moved to");
    assert_eq!(migrations(&policy.decide(&with_page(1, 0))), [(large_page(1), 1)], "it is not: that is other memory");
}

#[test]
fn orders_that_improve_nothing_are_followed_by_a_rest() {
    let mut policy = policy_by_name("carrefour-lp", &machine(), 1).expect("valid");
    let seen = with(busy(200.0, ALL_ON_ONE, 0.5), contended(50));
    assert!(!policy.decide(&seen).is_empty());
    assert_eq!(policy.requirements().next_ns, SECOND_NS);
    policy.decide(&seen);
    assert_eq!(policy.requirements().next_ns, 5 * SECOND_NS, "neither locality nor balance improved");
    policy.decide(&with(busy(200.0, EVEN, 0.5), contended(50)));
    assert_eq!(policy.requirements().next_ns, SECOND_NS, "the imbalance is gone");
}
