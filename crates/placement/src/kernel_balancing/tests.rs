//! The model of Linux NUMA balancing on hand-made faults.

use numapilot_host::PageNumber;

use super::*;
use crate::action::Outcome;
use crate::fixtures::{SECOND_NS, hint_fault, machine, page, quiet};

fn policy(options: &str) -> KernelBalancing {
    let options = Options::parse("kernel-balancing", KernelBalancing::OPTIONS.to_vec(), options).expect("valid");
    KernelBalancing::new(&options, NodeFacts::new(&machine()).expect("has memory")).expect("valid")
}

/// One step of 100 ms that ends at `now_ms`, with `pages` mapped from page 0.
fn step(now_ms: u64, pages: u64, faults: Vec<HintFault>) -> Observation {
    let mut seen = quiet();
    seen.now_ns = now_ms * 1_000_000;
    seen.elapsed_ns = 100_000_000;
    seen.threads.iter_mut().for_each(|t| t.busy_ns = 1e8);
    seen.mapped = vec![(1, PageNumber(0), pages)];
    seen.hint_faults = faults;
    seen
}

fn unmaps(actions: &[Action]) -> Vec<(u64, u64)> {
    actions
        .iter()
        .filter_map(|a| if let Action::Unmap { first, pages, .. } = a { Some((first.0, *pages)) } else { None })
        .collect()
}

/// Pages with the positions of the nodes that they go to.
fn migrations(actions: &[Action]) -> Vec<(PageKey, usize)> {
    actions
        .iter()
        .filter_map(|a| if let Action::Migrate { page, to } = a { Some((*page, to.0)) } else { None })
        .collect()
}

#[test]
fn scanning_begins_after_the_delay_and_takes_256_mib_at_a_time() {
    let mut policy = policy("");
    let pages = 3 * 65_536;
    let mut scans = Vec::new();
    for now_ms in (100..=2500).step_by(100) {
        scans.extend(unmaps(&policy.decide(&step(now_ms, pages, Vec::new()))).into_iter().map(|scan| (now_ms, scan)));
    }
    assert!(scans[0].0 >= 1000 && scans[0].0 <= 1200, "{scans:?}");
    assert_eq!(scans[0].1, (0, 65_536));
    assert_eq!(scans[1].1, (65_536, 65_536));
    // 768 MiB are three pieces, so the period is a third of a second; a task looks once a period, and may be early by a moment the first time.
    let gap = scans[1].0 - scans[0].0;
    assert!((333..=667 + 100).contains(&gap), "{scans:?}");
}

#[test]
fn a_pass_is_complete_at_the_end_of_memory() {
    let mut policy = policy("");
    for now_ms in (100..=1200).step_by(100) {
        policy.decide(&step(now_ms, 1000, Vec::new()));
    }
    assert_eq!(policy.processes[&1].passes, 1);
    assert_eq!(policy.processes[&1].offset, PageNumber(0));
}

#[test]
fn the_first_fault_moves_a_page_early_on() {
    let mut policy = policy("");
    policy.decide(&step(100, 1000, Vec::new()));
    let actions = policy.decide(&step(200, 1000, vec![hint_fault(page(1), 2, 2, 0, 150_000_000)]));
    assert_eq!(migrations(&actions), [(page(1), 2)]);
}

#[test]
fn two_faults_in_a_row_from_one_node_are_needed_later() {
    let mut policy = policy("");
    policy.decide(&step(100, 1000, Vec::new()));
    for thread in 0..4 {
        let task = policy.tasks.get_mut(&thread).expect("seen");
        task.preferred = Some(task.node);
        task.passes = EARLY_SCANS + 1;
    }
    let mut faults = |thread: u32, now_ms: u64| {
        let fault = hint_fault(page(1), thread, thread as usize, 0, now_ms * 1_000_000 - 1);
        migrations(&policy.decide(&step(now_ms, 1000, vec![fault])))
    };
    faults(1, 200);
    assert_eq!(faults(2, 300), [], "the last fault came from node 1");
    assert_eq!(faults(3, 400), [], "... from node 2");
    assert_eq!(faults(3, 500), [(page(1), 3)], "twice from node 3, and private");
}

#[test]
fn faults_on_pages_in_place_leave_no_trace() {
    let mut policy = policy("");
    policy.decide(&step(100, 1000, Vec::new()));
    let faults = vec![hint_fault(page(1), 0, 0, 0, 150_000_000), hint_fault(page(1), 2, 2, 0, 160_000_000)];
    let actions = policy.decide(&step(200, 1000, faults));
    assert_eq!(migrations(&actions), [(page(1), 2)], "to the kernel this is the page's first fault");
    assert!(policy.groups.is_empty(), "and thread 0 is not known to share it");
}

/// The kernel notes the last fault in the page itself, which goes with it. Here the address kept it, whatever memory was there.
#[test]
fn the_last_fault_on_freed_memory_is_forgotten() {
    let mut policy = policy("");
    policy.decide(&step(100, 1000, Vec::new()));
    let mut moves = |now_ms: u64, thread: u32, home: usize| {
        let fault = hint_fault(page(1), thread, thread as usize, home, now_ms * 1_000_000 - 1);
        migrations(&policy.decide(&step(now_ms, 1000, vec![fault])))
    };
    assert_eq!(moves(200, 1, 0), [(page(1), 1)]);
    assert_eq!(moves(300, 2, 1), [], "it is where the last fault took it");
    assert_eq!(moves(400, 3, 2), [], "or that one, had it been allowed to");
    assert_eq!(moves(500, 0, 1), [(page(1), 0)], "neither on node 2 nor on node 3: that is other memory");
}

#[test]
fn faults_from_nodes_without_memory_leave_no_trace() {
    let options = Options::parse("kernel-balancing", KernelBalancing::OPTIONS.to_vec(), "").expect("valid");
    let mut facts = NodeFacts::new(&machine()).expect("has memory");
    facts.with_memory.retain(|&n| n != NodeIndex(0));
    let mut policy = KernelBalancing::new(&options, facts).expect("valid");
    policy.decide(&step(100, 1000, Vec::new()));
    let faults = vec![hint_fault(page(1), 0, 0, 3, 150_000_000), hint_fault(page(1), 2, 2, 3, 160_000_000)];
    let actions = policy.decide(&step(200, 1000, faults));
    assert_eq!(migrations(&actions), [(page(1), 2)], "to the kernel this is the page's first fault");
}

#[test]
fn a_task_runs_32_times_as_long_as_it_scanned() {
    let scans_until = |options: &str, end_ms: u64| {
        let mut policy = policy(options);
        let scan = |now_ms| unmaps(&policy.decide(&step(now_ms, 1000, Vec::new()))).len();
        (100..=end_ms).step_by(100).map(scan).sum::<usize>()
    };
    // Four tasks, each due once a second: a scan of 1,000 pages at 1 ms each keeps its task from another for 32 s.
    let quick = scans_until("scan-ns-per-page=0", 10_000);
    let slow = scans_until("scan-ns-per-page=1000000", 10_000);
    assert_eq!(slow, 4, "one each");
    assert!(quick > slow, "{quick}");
}

#[test]
fn pages_do_not_move_to_where_they_are() {
    let mut policy = policy("");
    policy.decide(&step(100, 1000, Vec::new()));
    assert!(policy.decide(&step(200, 1000, vec![hint_fault(page(1), 2, 2, 2, 150_000_000)])).is_empty());
    assert_eq!(policy.tasks[&2].locality, [0, 1, 0]);
}

#[test]
fn tasks_that_share_a_page_come_into_one_group() {
    let mut policy = policy("");
    policy.decide(&step(100, 1000, Vec::new()));
    let rounds: Vec<HintFault> =
        (0..40).map(|i| hint_fault(page(1), i % 4, (i % 4) as usize, 0, 100_000_000 + u64::from(i))).collect();
    policy.decide(&step(200, 1000, rounds));
    let groups: BTreeSet<_> = policy.tasks.values().map(|t| t.group).collect();
    assert_eq!(groups.len(), 1, "{groups:?}");
    assert_eq!(policy.groups.values().map(|g| g.tasks).collect::<Vec<_>>(), [4]);
}

#[test]
fn a_page_that_an_ended_thread_used_last_is_shared() {
    let mut policy = policy("");
    policy.decide(&step(100, 1000, Vec::new()));
    policy.decide(&step(200, 1000, vec![hint_fault(page(1), 1, 1, 0, 150_000_000)]));
    let mut seen = step(300, 1000, vec![hint_fault(page(1), 2, 2, 1, 250_000_000)]);
    seen.threads.retain(|thread| thread.thread != 1);
    policy.decide(&seen);
    policy.processes.get_mut(&1).expect("seen").passes = 1;
    policy.place_task(2, SECOND_NS);
    assert_eq!(policy.tasks[&2].faults.by_kind(), [1, 0], "shared, private");
}

/// Faults of threads that ended before the step did were dropped. The kernel answers each when it comes.
#[test]
fn faults_of_threads_that_end_within_a_step_count() {
    let mut policy = policy("");
    policy.decide(&step(100, 1000, Vec::new()));
    policy.tasks.get_mut(&2).expect("seen").preferred = Some(NodeIndex(3));
    // Thread 2 ends after its fault; thread 9 begins and ends within the step.
    let faults = vec![hint_fault(page(1), 2, 2, 0, 150_000_000), hint_fault(page(2), 9, 3, 0, 160_000_000)];
    let mut seen = step(200, 1000, faults);
    seen.threads.retain(|thread| thread.thread != 2);
    let actions = policy.decide(&seen);
    assert_eq!(migrations(&actions), [(page(1), 2), (page(2), 3)]);
    assert!(!actions.iter().any(|action| matches!(action, Action::MoveThread { .. })), "they are gone: {actions:?}");
    assert_eq!(policy.tasks.keys().copied().collect::<Vec<_>>(), [0, 1, 3]);
    assert_eq!(policy.last_fault[&page(2)].thread, 9, "the page remembers who used it last");
}

#[test]
fn failed_moves_are_charged_and_hide_where_memory_is() {
    let mut policy = policy("");
    let mut seen = step(100, 1000, Vec::new());
    // The memory of thread 0, on node 0, is all on node 3, and node 0 has no room for it.
    let mut moved = Vec::new();
    for round in 1..30 {
        seen.now_ns = round * 100_000_000;
        let faults =
            (0..50u64).map(|p| HintFault { home: NodeIndex(3), ..hint_fault(page(p), 0, 0, 3, seen.now_ns - 50 + p) });
        seen.hint_faults = faults.collect();
        let actions = policy.decide(&seen);
        seen.outcomes = actions.iter().map(|a| Outcome { action: a.clone(), result: Err(Refusal::NoRoom) }).collect();
        moved.extend(actions.into_iter().filter(|a| matches!(a, Action::MoveThread { .. })));
    }
    // A fault counts where its page is after the move, and here it is not yet known that the move will be refused.
    assert!(moved.is_empty(), "{moved:?}");
    assert!(policy.tasks[&0].locality[2] > 0, "failures are charged");
    assert!(policy.tasks[&0].period_ms > 1000, "and slow scanning down");
}

#[test]
fn a_task_without_memory_of_its_own_node_follows_its_memory() {
    let options = Options::parse("kernel-balancing", KernelBalancing::OPTIONS.to_vec(), "").expect("valid");
    let mut facts = NodeFacts::new(&machine()).expect("has memory");
    facts.with_memory.retain(|&n| n != NodeIndex(0));
    let mut policy = KernelBalancing::new(&options, facts).expect("valid");
    let mut seen = step(100, 1000, Vec::new());
    let mut moved = Vec::new();
    for round in 1..30 {
        seen.now_ns = round * 100_000_000;
        seen.hint_faults = (0..50u64).map(|p| hint_fault(page(p), 0, 0, 3, seen.now_ns - 50 + p)).collect();
        let actions = policy.decide(&seen);
        assert!(migrations(&actions).is_empty(), "node 0 has no memory");
        moved.extend(actions.into_iter().filter(|a| matches!(a, Action::MoveThread { .. })));
    }
    assert_eq!(moved.first(), Some(&Action::MoveThread { thread: 0, to: NodeIndex(3) }));
}

#[test]
fn a_task_prefers_a_node_with_cpus() {
    let options = Options::parse("kernel-balancing", KernelBalancing::OPTIONS.to_vec(), "").expect("valid");
    let mut facts = NodeFacts::new(&machine()).expect("has memory");
    // Node 3 has memory alone, nearest to node 0; the other three are equally far from each other.
    facts.cpus[3] = 0;
    facts.distance = vec![vec![10, 21, 21, 14], vec![21, 10, 21, 24], vec![21, 21, 10, 24], vec![14, 24, 24, 10]];
    let mut policy = KernelBalancing::new(&options, facts).expect("valid");
    policy.decide(&step(100, 1000, Vec::new()));
    let task = policy.tasks.get_mut(&0).expect("seen");
    task.faults.count(NodeIndex(3), NodeIndex(0), true, 64);
    policy.processes.get_mut(&1).expect("seen").passes = 1;
    policy.place_task(0, SECOND_NS);
    assert_eq!(policy.tasks[&0].preferred, Some(NodeIndex(0)), "nobody can run on node 3");
    let mut actions = Vec::new();
    policy.move_to_preferred(0, SECOND_NS, &mut actions);
    assert!(actions.is_empty(), "it is there already: {actions:?}");
    let faults = &policy.tasks[&0].faults;
    assert_eq!(policy.score(faults, NodeIndex(0)), 0, "three nodes in direct reach of each other are no mesh");
}

/// Nodes 0 and 1 with four busy tasks each, of which thread 0 has all its memory on node 1, and threads 10 to 13 of node 1 have none.
fn two_full_nodes() -> KernelBalancing {
    let mut policy = policy("");
    policy.farthest = None;
    policy.decide(&step(100, 1000, Vec::new()));
    let template = policy.tasks[&0].clone();
    policy.tasks.clear();
    for (thread, node) in [(0, 0), (1, 0), (2, 0), (3, 0), (10, 1), (11, 1), (12, 1), (13, 1)] {
        policy.tasks.insert(thread, Task { node: NodeIndex(node), ..template.clone() });
    }
    let task = policy.tasks.get_mut(&0).expect("inserted");
    task.faults.count(NodeIndex(1), NodeIndex(0), true, 64);
    task.faults.decay(1.0, 64);
    policy
}

/// The moves that bring thread 0 to node 1, as nodes' positions.
fn moves_of_thread_0(policy: &mut KernelBalancing) -> Vec<(u32, usize)> {
    let loads = NodeLoads::of(&policy.facts, policy.tasks.values().map(|t| (t.node, t.load)));
    policy.migrate_task(0, NodeIndex(1), &loads).into_iter().map(|(thread, to)| (thread, to.0)).collect()
}

#[test]
fn a_task_that_comes_to_its_preferred_node_is_exchanged_before_others() {
    let mut policy = two_full_nodes();
    assert_eq!(moves_of_thread_0(&mut policy), [(0, 1), (10, 0)], "all are alike: the first");
    policy.tasks.get_mut(&10).expect("inserted").preferred = Some(NodeIndex(1));
    assert_eq!(moves_of_thread_0(&mut policy), [(0, 1), (11, 0)], "the first is where it wants to be");
    policy.tasks.get_mut(&12).expect("inserted").preferred = Some(NodeIndex(0));
    assert_eq!(moves_of_thread_0(&mut policy), [(0, 1), (12, 0)], "the third comes home, and no other goes before it");
    // All are where they want to be: better than nothing.
    (10..=13).for_each(|thread| policy.tasks.get_mut(&thread).expect("inserted").preferred = Some(NodeIndex(1)));
    assert_eq!(moves_of_thread_0(&mut policy), [(0, 1), (10, 0)]);
}

#[test]
fn scanning_adapts_by_slots_of_a_tenth() {
    let mut policy = policy("");
    policy.decide(&step(100, 1000, Vec::new()));
    let mut adapted = |locality: [i64; 3], kinds: [i64; 2]| {
        let task = policy.tasks.get_mut(&0).expect("seen");
        (task.period_ms, task.period_max_ms, task.locality) = (4000, 60_000, locality);
        policy.adapt_period(0, kinds, SECOND_NS);
        policy.tasks[&0].period_ms
    };
    assert_eq!(adapted([5, 5, 0], [0, 10]), 4000 + 3 * 400, "all private: three slots slower");
    assert_eq!(adapted([0, 10, 0], [10, 0]), 4000 + 3 * 400, "all local: three slots slower");
    assert_eq!(adapted([10, 0, 0], [10, 0]), 4000 - 7 * 400, "neither: seven slots faster");
    assert_eq!(adapted([3, 7, 0], [5, 5]), 4000 + 400, "at the threshold: one slot slower");
    assert_eq!(adapted([10, 0, 1], [10, 0]), 8000, "a failed move: half as fast");
    assert_eq!(adapted([0, 0, 0], [0, 0]), 8000, "nothing to see: half as fast");
}

#[test]
fn faults_decay_by_half_each_pass() {
    let mut policy = policy("");
    policy.decide(&step(100, 1000, Vec::new()));
    let faults = (0..64u64).map(|p| hint_fault(page(p), 0, 0, 0, 150_000_000)).collect();
    policy.decide(&step(200, 1000, faults));
    for pass in 1..=3 {
        policy.processes.get_mut(&1).expect("seen").passes = pass;
        policy.place_task(0, SECOND_NS * pass);
    }
    assert_eq!(policy.tasks[&0].faults.memory(NodeIndex(0)), 16);
    assert_eq!(policy.tasks[&0].preferred, Some(NodeIndex(0)));
}
