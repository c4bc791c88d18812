//! Policies and files that have copies on some nodes: the environment releases all copies of a file as soon as one of its pages is to move.

use numapilot_host::PageNumber;
use numapilot_machine::{Machine, NodeIndex, NodeSet};
use numapilot_placement::{
    Action, NodeCounters, Observation, Outcome, PageKey, PageSize, ReadOnlyRange, Refusal, Sample, ThreadState,
    policy_by_name,
};
use numapilot_traffic::{Class, Load};

const FIRST: PageNumber = PageNumber(4096);
const PAGES: u64 = 1024;
const NODES: usize = 4;

/// A second in which a thread of each node reads a file on node 1. Those of the nodes in `copies` read their own copies; samples come from the nodes in `seen`.
fn second(index: u64, copies: &[usize], seen: &[usize], outcomes: Vec<Outcome>) -> Observation {
    let home = |from: usize| if copies.contains(&from) { from } else { 1 };
    let at = |node: usize, amount: f64| (0..NODES).map(|n| if n == node { amount } else { 0.0 }).collect::<Vec<f64>>();
    let sample = |(from, n): (usize, u64)| {
        let page = FIRST + (n * 37 + index * 11) % PAGES;
        let key = PageKey { process: 1, page, size: PageSize::Small };
        let thread = from as u32;
        let (from, home) = (NodeIndex(from), NodeIndex(home(from)));
        Sample { page: key, small_page: page, thread, from, home, is_write: false, latency_ns: None }
    };
    let node = |from: usize| NodeCounters {
        reads_to: at(home(from), 1e8),
        writes_to: at(0, 0.0),
        free_bytes: 8 << 30,
        controller_utilisation: None,
    };
    let thread = |node: usize| ThreadState {
        thread: node as u32,
        process: 1,
        node: NodeIndex(node),
        allowed: NodeSet::all(NODES),
        busy_ns: 1e9,
        instructions: 0.0,
        memory_accesses: 1e8,
    };
    let class = |from: usize| Class {
        from,
        threads: 1.0,
        outstanding: 8.0,
        think_ns: 0.0,
        reads: at(home(from), 1.0),
        writes: at(0, 0.0),
    };
    Observation {
        now_ns: (index + 1) * 1_000_000_000,
        elapsed_ns: 1_000_000_000,
        nodes: (0..NODES).map(node).collect(),
        threads: (0..NODES).map(thread).collect(),
        samples: seen.iter().flat_map(|from| (0..400).map(|n| (*from, n))).map(sample).collect(),
        sample_period: 1e6,
        mapped: vec![(1, FIRST, PAGES)],
        read_only: vec![ReadOnlyRange {
            process: 1,
            first: FIRST,
            pages: PAGES,
            copies: copies.iter().copied().map(NodeIndex).collect(),
        }],
        outcomes,
        load: Some(Load { classes: (0..NODES).map(class).collect(), background: Vec::new() }),
        ..Observation::default()
    }
}

/// Orders of ten seconds. The environment asks for orders for more pages before it makes further copies, as the kernel's does.
fn orders(copies: &[usize], seen: &[usize]) -> Vec<Action> {
    let machine = Machine::load("opteron-8385").expect("built-in");
    let mut pilot = policy_by_name("pilot:threads=off", &machine, 1).expect("known");
    let mut all: Vec<Action> = Vec::new();
    let mut last: Vec<Action> = Vec::new();
    for index in 0..10 {
        let outcomes = last.drain(..).map(|action| Outcome { action, result: Err(Refusal::Busy) }).collect();
        last = pilot.decide(&second(index, copies, seen, outcomes));
        all.extend(last.iter().cloned());
    }
    all
}

#[test]
fn a_node_without_a_copy_gets_one_too_and_the_others_keep_theirs() {
    // With evidence of every reader, and with evidence of the one that has no copy alone: copies that serve their readers are seldom in samples.
    for (copies, seen) in [(&[2, 3][..], &[0, 1, 2, 3][..]), (&[2, 3], &[0]), (&[1, 2, 3], &[0]), (&[1, 3], &[0, 2])] {
        let orders = orders(copies, seen);
        assert!(!orders.is_empty(), "{copies:?} {seen:?}");
        for order in &orders {
            let Action::Replicate { nodes, .. } = order else { panic!("{copies:?} {seen:?}: {order:?}") };
            assert!(copies.iter().all(|node| nodes.contains(&NodeIndex(*node))), "{copies:?} {seen:?}: {order:?}");
            assert!(nodes.iter().any(|node| !copies.contains(&node.0)), "{copies:?} {seen:?}: {order:?}");
        }
    }
}

#[test]
fn a_file_without_copies_and_with_one_reader_moves() {
    let orders = orders(&[], &[3]);
    let is_move = |order: &Action| matches!(order, Action::Migrate { .. });
    assert!(!orders.is_empty() && orders.iter().all(is_move), "{orders:?}");
}
