//! Whole runs: what arithmetic demands of them, that they are the same each time, and that every order gets its outcome.

use std::collections::BTreeMap;
use std::path::PathBuf;

use numapilot_host::PageNumber;
use numapilot_machine::{Machine, NodeId, NodeIndex};
use numapilot_placement::{
    Action, Allocation, Observation, Outcome, PageKey, PageSize, Policy, PolicyRequirements, policy_by_name,
};
use numapilot_simulator::program::{FirstTouch, Origin, Program};
use numapilot_simulator::recorded::{self, Recorded, RecordedOptions, Repeat};
use numapilot_simulator::{MemoryModel, Options, Report, Simulation, SimulatorError, synthetic};
use proptest::prelude::*;

fn machine() -> Machine {
    Machine::load("opteron-8385").expect("a built-in model")
}

fn run(program: &Program, policy: &mut dyn Policy, options: Options) -> Report {
    let machine = machine();
    let mut last = -1.0;
    let simulation = Simulation::new(program, &machine, options).expect("they fit together");
    let report = simulation.run(policy, &mut |progress| {
        assert!(progress.now_ns >= last && (0.0..=1.0).contains(&progress.share), "{progress:?} after {last}");
        last = progress.now_ns;
        true
    });
    report.expect("it runs")
}

fn run_named(program: &Program, policy: &str, options: Options) -> Report {
    let mut policy = policy_by_name(policy, &machine(), 1).expect("a policy");
    run(program, policy.as_mut(), options)
}

fn idle() -> Options {
    Options { memory: MemoryModel::Idle, ..Options::default() }
}

/// Sixteen threads that use one region evenly.
fn shared(first_touch: &str) -> Program {
    let text = format!(
        "format = 1\nname = 'shared'\nrepeat = 4\n[[region]]\nname = 'all'\nmib = 4\nfirst_touch = '{first_touch}'\ngroup = 'g'\n\
         [[group]]\nname = 'g'\nthreads = 16\n[[phase]]\nname = 'p'\n[[phase.work]]\ngroup = 'g'\nms = 5\naccesses_per_us = 10\n\
         outstanding = 2\n[[phase.work.on]]\nregion = 'all'\nwrites = 0.25\n"
    );
    synthetic::parse(&text, "shared").expect("a sound description")
}

fn percent(share: Option<f64>) -> f64 {
    (share.expect("accesses") * 1000.0).round() / 10.0
}

/// All pages on one of four nodes, or spread over all: the same local ratio, and imbalances of 200 and 0 %.
#[test]
fn local_ratio_and_imbalance_are_those_of_arithmetic() {
    let one = run_named(&shared("first"), "first-touch", Options::default());
    let spread = run_named(&shared("first"), "interleave", Options::default());
    assert_eq!(percent(one.total.metrics.local_access_ratio), 25.0);
    assert_eq!(percent(spread.total.metrics.local_access_ratio), 25.0);
    let imbalance = one.total.metrics.controller_imbalance.expect("traffic");
    assert_eq!((percent(Some(imbalance.sample)), percent(Some(imbalance.population))), (200.0, 173.2));
    assert!(spread.total.metrics.controller_imbalance.expect("traffic").sample < 1e-9);
    let latency = |report: &Report| report.total.metrics.memory_latency_ns.expect("accesses");
    // Idle, both would see the mean of 115, 125, 125 and 150 ns; what is above that is waiting.
    let waiting = |report: &Report| latency(report) - 128.75;
    assert!(
        waiting(&spread) > 0.0 && waiting(&one) > 2.0 * waiting(&spread),
        "{} and {} ns",
        waiting(&one),
        waiting(&spread)
    );
    assert!(one.run_time_ns > spread.run_time_ns);
}

/// On idle memory, the time is what the steps say, to rounding: think time plus latency over overlap, and the slowest thread's at each barrier.
#[test]
fn idle_time_is_own_work_plus_latency_over_overlap() {
    let report = run_named(&shared("first"), "first-touch", idle());
    // Node 3 is two hops from node 0: 150 ns. 50,000 accesses of 100 ns own work and 150 / 2 ns, four times.
    let expected = 4.0 * 50_000.0 * (100.0 + 150.0 / 2.0);
    assert!((report.run_time_ns / expected - 1.0).abs() < 1e-9, "{} against {expected}", report.run_time_ns);
    let without = shared_without_barrier();
    let report = run_named(&without, "first-touch", idle());
    let near = 4.0 * 50_000.0 * (100.0 + 115.0 / 2.0);
    let first = report.threads[0].end_ns.expect("it ended");
    assert!((first / near - 1.0).abs() < 1e-9, "thread 0 is local and waits for nobody: {first} against {near}");
}

fn shared_without_barrier() -> Program {
    let mut program = shared("first");
    let is_sync = |step: &numapilot_simulator::program::Step| {
        use numapilot_simulator::program::Action::{Arrive, Await};
        matches!(step.action, Arrive { .. } | Await { .. })
    };
    program.threads.iter_mut().for_each(|thread| thread.body.retain(|step| !is_sync(step)));
    program
}

/// Work that is taken by whoever is free is done at the mean of the threads' paces, so that nobody waits at a barrier for the thread that is slowed most.
#[test]
fn work_that_is_taken_is_done_at_the_mean_pace() {
    let program = shared("first");
    let taken = run_named(&program, "first-touch", Options { takes_work: true, ..idle() });
    // Four threads on each node, at 115, 125, 125 and 150 ns from node 0.
    let pace = |latency_ns: f64| 100.0 / (100.0 + latency_ns / 2.0);
    let mean = [115.0, 125.0, 125.0, 150.0].map(pace).iter().sum::<f64>() / 4.0;
    let expected = 4.0 * 50_000.0 * 100.0 / mean;
    assert!((taken.run_time_ns / expected - 1.0).abs() < 1e-6, "{} against {expected}", taken.run_time_ns);
    assert!(taken.finished && (taken.progress - 1.0).abs() < 1e-6, "{}", taken.progress);
    let recorded = run_named(&program, "first-touch", idle());
    assert!(taken.run_time_ns < 0.95 * recorded.run_time_ns, "{} ns as recorded", recorded.run_time_ns);
}

/// Each process shares its own work: one that is not slowed is not held up by one that is.
#[test]
fn processes_do_not_take_each_others_work() {
    let text = "format = 1\nname = 'two'\nrepeat = 4\n[[process]]\nname = 'p'\ncount = 2\n[[region]]\nname = 'all'\nprocess = 'p'\nmib = 4\n\
                first_touch = 'first'\ngroup = 'g'\n[[group]]\nname = 'g'\nprocess = 'p'\nthreads = 1\n[[phase]]\nname = 'p'\nbarrier = false\n\
                [[phase.work]]\ngroup = 'g'\nms = 5\naccesses_per_us = 10\n[[phase.work.on]]\nregion = 'all'\n";
    let mut program = synthetic::parse(text, "two").expect("a sound description");
    // The second one's pages are on node 0 as well, away from its thread.
    for step in program.threads.iter_mut().flat_map(|thread| &mut thread.prologue) {
        if let numapilot_simulator::program::Action::Touch { bound, .. } = &mut step.action {
            *bound = Some(NodeId(0));
        }
    }
    let ends = |takes_work| {
        let report = run_named(&program, "first-touch", Options { takes_work, ..idle() });
        report.threads.iter().map(|thread| thread.end_ns.expect("it ended")).collect::<Vec<f64>>()
    };
    let (taken, recorded) = (ends(true), ends(false));
    assert!(recorded[1] > 1.02 * recorded[0], "the second is slower: {recorded:?}");
    let is_same = |(taken, recorded): (&f64, &f64)| (taken / recorded - 1.0).abs() < 1e-9;
    assert!(taken.iter().zip(&recorded).all(is_same), "{taken:?}, {recorded:?} as recorded");
}

/// Described work that waits for memory counts with its wait: where no thread is slowed down, nobody takes another's work. It counted by its own time, so that
/// memory-bound threads seemed slowed down by their own accesses, and ended too early.
#[test]
fn described_work_counts_with_its_unloaded_accesses() {
    let text = "format = 1\nname = 'two'\n[[region]]\nname = 'all'\nmib = 4\nfirst_touch = 'first'\ngroup = 'm'\n[[group]]\nname = 'm'\nthreads = 1\n\
                [[group]]\nname = 'c'\nthreads = 1\n[[phase]]\nname = 'p'\nbarrier = false\n[[phase.work]]\ngroup = 'm'\naccesses = 100000\n\
                think_ns = 10\noutstanding = 2\n[[phase.work.on]]\nregion = 'all'\n[[phase.work]]\ngroup = 'c'\nms = 10\n";
    let program = synthetic::parse(text, "two").expect("a sound description");
    for takes_work in [false, true] {
        let report = run_named(&program, "first-touch", Options { takes_work, ..idle() });
        let ends: Vec<f64> = report.threads.iter().map(|thread| thread.end_ns.expect("it ended")).collect();
        // 100,000 accesses to local memory of 115 ns, two at a time, with 10 ns of own work each; and 10 ms without memory.
        for (end, expected) in ends.iter().zip([100_000.0 * (10.0 + 115.0 / 2.0), 10e6]) {
            assert!((end / expected - 1.0).abs() < 1e-6, "takes work {takes_work}: {end} ns, not {expected}");
        }
    }
}

/// The run does not last for threads that its end cuts off: they are still at work then.
#[test]
fn a_run_ends_without_the_threads_that_its_end_cuts_off() {
    let text = "format = 1\nname = 'two'\n[[group]]\nname = 'short'\nthreads = 1\n[[group]]\nname = 'long'\nthreads = 1\n[[phase]]\nname = 'p'\n\
                barrier = false\n[[phase.work]]\ngroup = 'short'\nms = 5\n[[phase.work]]\ngroup = 'long'\nms = 50\n";
    let mut program = synthetic::parse(text, "two").expect("a sound description");
    let whole = run_named(&program, "first-touch", idle());
    program.threads[1].is_cut_off = true;
    let cut = run_named(&program, "first-touch", idle());
    assert!((whole.run_time_ns / 50e6 - 1.0).abs() < 1e-6, "{} ns", whole.run_time_ns);
    assert!((cut.run_time_ns / 5e6 - 1.0).abs() < 1e-6, "{} ns", cut.run_time_ns);
    assert!(cut.finished && cut.threads[0].end_ns.is_some() && cut.threads[1].end_ns.is_none());
}

/// What goes in comes out: every access is made once, and booked alike by node, label, thread and series.
#[test]
fn accesses_are_conserved() {
    for policy in ["first-touch", "interleave", "carrefour", "kernel-balancing"] {
        let program = synthetic::load(&described("false-sharing-2mib")).expect("a description");
        let report = run_named(&program, policy, Options::default());
        let near = |sum: f64, what: &str| {
            let wanted = program.accesses();
            assert!((sum / wanted - 1.0).abs() < 1e-6, "{policy}: {what} has {sum} of {wanted} accesses");
        };
        assert!(report.finished && (report.progress - 1.0).abs() < 1e-6);
        near(report.total.accesses.iter().flatten().sum(), "the matrix");
        near(report.series.iter().flat_map(|point| &point.served).sum(), "the series");
        near(report.threads.iter().map(|thread| thread.accesses).sum(), "the threads");
        near(report.labels.iter().flat_map(|label| label.accesses.iter().flatten()).sum(), "the labels");
    }
}

fn described(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../workloads/synthetic/{name}.toml"))
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_other_samples() {
    let mut program = synthetic::load(&described("hot-controller")).expect("a description");
    program.repeat = 40;
    let json = |seed| {
        let report = run_named(&program, "carrefour", Options { seed, ..Options::default() });
        assert!(report.moves.samples > 0);
        serde_json::to_string(&report).expect("it serialises")
    };
    assert_eq!(json(5), json(5));
    assert_ne!(json(5), json(6));
}

/// Orders anything, sensible or not, and keeps what came of it.
struct Chaos {
    orders: Vec<Vec<Action>>,
    asked: Vec<Action>,
    outcomes: Vec<Outcome>,
    last_ns: u64,
}

impl Policy for Chaos {
    fn name(&self) -> &str {
        "chaos"
    }

    fn requirements(&self) -> PolicyRequirements {
        PolicyRequirements { next_ns: 2_000_000, samples_per_s_and_cpu: 5_000.0, mapped: true, homes: false }
    }

    fn decide(&mut self, seen: &Observation) -> Vec<Action> {
        assert!(seen.now_ns > self.last_ns, "{} after {}", seen.now_ns, self.last_ns);
        self.last_ns = seen.now_ns;
        let asked: Vec<&Action> = self.asked.iter().collect();
        assert_eq!(
            seen.outcomes.iter().map(|outcome| &outcome.action).collect::<Vec<_>>(),
            asked,
            "one outcome each, in order"
        );
        assert!(
            seen.outcomes.iter().all(|outcome| outcome.result.is_ok_and(|ns| ns >= 0.0) || outcome.result.is_err())
        );
        self.outcomes.extend(seen.outcomes.iter().cloned());
        assert!(seen.samples.iter().all(|sample| sample.from.0 < 4 && sample.home.0 < 4));
        assert!(seen.nodes.iter().all(|node| node.free_bytes <= 16 << 30));
        self.asked = self.orders.pop().unwrap_or_default();
        self.asked.clone()
    }
}

fn action() -> impl Strategy<Value = Action> {
    let key = (0u32..2, 0u64..1100, any::<bool>()).prop_map(|(process, page, large)| PageKey {
        process,
        page: if large { PageNumber((1 << 20) + page).large_start() } else { PageNumber((1 << 20) + page) },
        size: if large { PageSize::Large } else { PageSize::Small },
    });
    prop_oneof![
        4 => (key.clone(), 0usize..5).prop_map(|(page, to)| Action::Migrate { page, to: NodeIndex(to) }),
        2 => (key.clone(), prop::collection::btree_set(0usize..5, 0..4))
            .prop_map(|(page, nodes)| Action::Replicate { page, nodes: nodes.into_iter().map(NodeIndex).collect() }),
        2 => key.prop_map(|page| Action::Split { page }),
        1 => (0u32..18, 0usize..5).prop_map(|(thread, to)| Action::MoveThread { thread, to: NodeIndex(to) }),
        1 => (0u32..2, 0u64..1100, 0u64..1100).prop_map(|(process, first, pages)| Action::Unmap { process, first: PageNumber((1 << 20) + first), pages }),
        1 => (0u32..2, 0usize..5).prop_map(|(process, node)| Action::Allocate { process, allocation: Allocation::Interleave(vec![NodeIndex(node)]) }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_order_gets_an_outcome_and_nothing_is_lost(
        orders in prop::collection::vec(prop::collection::vec(action(), 0..30), 1..6),
        large in any::<bool>(),
    ) {
        let text = format!(
            "format = 1\nname = 'chaos'\nrepeat = 3\n[[region]]\nname = 'all'\nmib = 4\npages = '{}'\nfirst_touch = 'parts'\ngroup = 'g'\n\
             [[group]]\nname = 'g'\nthreads = 16\n[[phase]]\nname = 'p'\n[[phase.work]]\ngroup = 'g'\nms = 5\naccesses_per_us = 5\n\
             [[phase.work.on]]\nregion = 'all'\nwrites = 0.001\n",
            if large { "2MiB" } else { "4KiB" }
        );
        let program = synthetic::parse(&text, "chaos").expect("a sound description");
        let count: usize = orders.iter().map(Vec::len).sum();
        let mut chaos = Chaos { orders, asked: Vec::new(), outcomes: Vec::new(), last_ns: 0 };
        let report = run(&program, &mut chaos, Options::default());
        prop_assert!(report.finished && report.simulated);
        let sum: f64 = report.total.accesses.iter().flatten().sum();
        prop_assert!((sum / program.accesses() - 1.0).abs() < 1e-6);
        let moves = &report.moves;
        let refused = &moves.refused;
        let answered = moves.pages() + moves.replicated + moves.split + moves.threads + moves.allocations + moves.scans
            + refused.gone + refused.already_there + refused.no_room + refused.busy + refused.unsupported;
        let never_asked: usize = chaos.orders.iter().map(Vec::len).sum();
        prop_assert!(answered as usize <= count - never_asked && answered as usize >= chaos.outcomes.len());
        let mut by_reason: BTreeMap<bool, usize> = BTreeMap::new();
        chaos.outcomes.iter().for_each(|outcome| *by_reason.entry(outcome.result.is_ok()).or_default() += 1);
        prop_assert_eq!(by_reason.values().sum::<usize>(), chaos.outcomes.len());
    }
}

/// Orders that all 1024 pages move, once, and notes when it did so and when that was done.
struct MoveAll {
    period_ns: u64,
    /// The most threads with which it does so.
    threads: usize,
    /// When it ordered and after that.
    decisions_ns: Vec<u64>,
}

impl Policy for MoveAll {
    fn name(&self) -> &str {
        "move-all"
    }

    fn requirements(&self) -> PolicyRequirements {
        PolicyRequirements { next_ns: self.period_ns, samples_per_s_and_cpu: 0.0, mapped: false, homes: false }
    }

    fn decide(&mut self, seen: &Observation) -> Vec<Action> {
        if seen.threads.len() > self.threads {
            return Vec::new();
        }
        self.decisions_ns.push(seen.now_ns);
        let key = |page: u64| PageKey { process: 0, page: PageNumber((1 << 20) + page), size: PageSize::Small };
        let all = (0..1024).map(|page| Action::Migrate { page: key(page), to: NodeIndex(3) });
        if self.decisions_ns.len() == 1 { all.collect() } else { Vec::new() }
    }
}

/// Moves take the time that they cost, also where the program's threads begin something else all the time, which ends epochs early. The mover's time
/// of a whole epoch was spent then, up to 40 times as fast as it passed.
#[test]
fn moves_take_their_time_however_short_epochs_are() {
    let text = "format = 1\nname = 'short'\nrepeat = 40\n[[region]]\nname = 'all'\nmib = 4\nfirst_touch = 'first'\ngroup = 'g'\n\
                [[group]]\nname = 'g'\nthreads = 16\n[[phase]]\nname = 'p'\n[[phase.work]]\ngroup = 'g'\nms = 0.3\naccesses_per_us = 1\n\
                [[phase.work.on]]\nregion = 'all'\n";
    let program = synthetic::parse(text, "short").expect("a sound description");
    let mut policy = MoveAll { period_ns: 1_000_000, threads: 16, decisions_ns: Vec::new() };
    let options = idle();
    let cost_ns = 1024.0 * options.costs.move_small_ns;
    let report = run(&program, &mut policy, options);
    assert_eq!((report.moves.small_pages, report.moves.bytes), (1024, 1024 * 4096));
    assert_eq!(report.cost.mover_ns, cost_ns);
    let taken_ns = (policy.decisions_ns[1] - policy.decisions_ns[0]) as f64;
    // Until the epoch ends in which they are done.
    assert!(taken_ns > 0.999 * cost_ns && taken_ns < cost_ns + 1e6, "{taken_ns} ns for moves of {cost_ns} ns");
}

/// Pages serve their new node once the mover has come to them, and not before: it worked ahead for the longest epoch that may come (10 ms).
#[test]
fn pages_do_not_serve_their_new_home_before_the_mover_has_come_to_them() {
    let text = "format = 1\nname = 'one'\n[[region]]\nname = 'all'\nmib = 4\nfirst_touch = 'first'\ngroup = 'g'\n[[group]]\nname = 'g'\nthreads = 1\n\
                [[phase]]\nname = 'p'\n[[phase.work]]\ngroup = 'g'\nms = 20\naccesses_per_us = 10\noutstanding = 2\n[[phase.work.on]]\nregion = 'all'\n";
    let program = synthetic::parse(text, "one").expect("a sound description");
    let mut policy = MoveAll { period_ns: 10_000_000, threads: 1, decisions_ns: Vec::new() };
    let report = run(&program, &mut policy, idle());
    assert_eq!(report.moves.small_pages, 1024);
    let local = report.total.accesses[0][0];
    // Own work of 100 ns, and 115 ns of which two overlap, until the order and while it is carried out; all pages but the first change their home at its end.
    let expected = (policy.decisions_ns[0] as f64 + report.cost.mover_ns) / (100.0 + 115.0 / 2.0);
    assert!((local / expected - 1.0).abs() < 0.01, "{local} accesses before the move, not {expected}");
}

/// A thread that has ended waits for no page, though it was the last that accessed it.
#[test]
fn threads_that_have_ended_do_not_wait_for_pages() {
    let text = "format = 1\nname = 'two'\n[[region]]\nname = 'all'\nmib = 4\nfirst_touch = 'first'\ngroup = 'user'\n[[group]]\nname = 'user'\n\
                threads = 1\n[[group]]\nname = 'other'\nthreads = 1\n[[phase]]\nname = 'p'\nbarrier = false\n[[phase.work]]\ngroup = 'user'\n\
                ms = 2.005\naccesses_per_us = 10\n[[phase.work.on]]\nregion = 'all'\n[[phase.work]]\ngroup = 'other'\nms = 20\n";
    let program = synthetic::parse(text, "two").expect("a sound description");
    let stalls_ns = |threads: usize| {
        let mut policy = MoveAll { period_ns: 10_000, threads, decisions_ns: Vec::new() };
        let report = run(&program, &mut policy, idle());
        assert_eq!(report.moves.small_pages, 1024);
        report.cost.stalls_ns
    };
    assert!(stalls_ns(2) > 0.0, "while its user is at work");
    assert_eq!(stalls_ns(1), 0.0, "in the moment in which it has ended");
}

/// Two threads on each of 16 CPUs, of which those on half of the CPUs end early: the others have a CPU each from then on. Only while a policy's orders
/// were carried out did the scheduler spread them.
#[test]
fn who_is_left_spreads_over_the_cpus_of_those_that_ended() {
    let group = |name: &str, ms: u32| {
        let threads = format!("[[group]]\nname = '{name}'\nthreads = 8\n");
        (threads, format!("[[phase.work]]\ngroup = '{name}'\nms = {ms}\n"))
    };
    // In this order, on eight CPUs each: two of every node.
    let (threads, work): (String, String) =
        [("a", 10), ("b", 110), ("c", 10), ("d", 110)].map(|(name, ms)| group(name, ms)).into_iter().unzip();
    let text = format!("format = 1\nname = 'ends'\n{threads}[[phase]]\nname = 'p'\nbarrier = false\n{work}");
    let report = run_named(&synthetic::parse(&text, "ends").expect("a sound description"), "first-touch", idle());
    // Each has half a CPU for 20 ms, and then a whole one for the 100 ms that are left.
    assert!((report.run_time_ns / 120e6 - 1.0).abs() < 0.01, "{} ns", report.run_time_ns);
}

/// The kernel's scan passes over memory that has a policy of its own.
#[test]
fn pages_that_the_program_bound_are_not_unmapped_for_hints() {
    let mut program = shared("first");
    program.first_touches = vec![FirstTouch { region: 0, first: 0, pages: 100, thread: 0, bound: Some(NodeId(2)) }];
    let all = Action::Unmap { process: 0, first: PageNumber(1 << 20), pages: 1024 };
    let mut chaos = Chaos { orders: vec![vec![all]], asked: Vec::new(), outcomes: Vec::new(), last_ns: 0 };
    let report = run(&program, &mut chaos, Options::default());
    assert_eq!((report.moves.scans, report.moves.unmapped_pages), (1, 1024 - 100));
}

/// Copies on every node make reads local; a write takes them away again.
#[test]
fn copies_serve_reads_and_end_with_a_write() {
    let replicate = |writes: f64| {
        let text = format!(
            "format = 1\nname = 'copies'\n[[region]]\nname = 'all'\nmib = 1\nfirst_touch = 'first'\ngroup = 'g'\n[[group]]\nname = 'g'\n\
             threads = 16\n[[phase]]\nname = 'p'\n[[phase.work]]\ngroup = 'g'\nms = 60\naccesses_per_us = 5\n\
             [[phase.work.on]]\nregion = 'all'\nwrites = {writes:?}\n"
        );
        let program = synthetic::parse(&text, "copies").expect("a sound description");
        let key = |page: u64| PageKey { process: 0, page: PageNumber((1 << 20) + page), size: PageSize::Small };
        let all = (0..256)
            .map(|page| Action::Replicate { page: key(page), nodes: [0, 1, 2, 3].map(NodeIndex).to_vec() })
            .collect();
        let mut chaos = Chaos { orders: vec![all], asked: Vec::new(), outcomes: Vec::new(), last_ns: 0 };
        run(&program, &mut chaos, Options { series_ns: 5e6, ..Options::default() })
    };
    let kept = replicate(0.0);
    assert_eq!((kept.moves.copies_made, kept.moves.collapsed), (3 * 256, 0));
    assert!(kept.after.expect("it copied").metrics.local_access_ratio > Some(0.999));
    let lost = replicate(0.5);
    assert_eq!(lost.moves.collapsed, 256);
    let after = lost.after.expect("it copied").accesses;
    assert!(
        after.iter().all(|row| row[1..].iter().all(|&elsewhere| elsewhere == 0.0)),
        "all is at home again: {after:?}"
    );
}

#[test]
fn bad_descriptions_are_refused_with_their_line() {
    let good = "format = 1\nname = 'x'\n[[group]]\nname = 'g'\nthreads = 2\n[[region]]\nname = 'r'\nmib = 1\n[[phase]]\nname = 'p'\n\
                [[phase.work]]\ngroup = 'g'\nms = 1\nthink_ns = 10\n[[phase.work.on]]\nregion = 'r'\n";
    synthetic::parse(good, "good").expect("a sound description");
    for (from, to, line, word) in [
        ("format = 1", "format = 2", 1, "format"),
        ("threads = 2", "threads = 0", 3, "threads"),
        ("mib = 1", "mib = -1", 6, "MiB"),
        ("region = 'r'", "region = 'q'", 15, "region"),
        ("think_ns = 10", "think_ns = -1", 11, "think_ns"),
        ("group = 'g'", "group = 'h'", 11, "group"),
        ("name = 'p'", "name = 'p'\ncolour = 1", 11, "unknown field"),
        ("ms = 1\n", "", 11, "accesses"),
    ] {
        let error = synthetic::parse(&good.replace(from, to), "bad.toml").expect_err(to);
        let SimulatorError::Description { line: at, ref why, .. } = error else { panic!("{error}") };
        assert!(at == line && why.contains(word), "{to}: {error}");
    }
}

#[test]
fn what_is_shipped_runs_everywhere() {
    let folder = described("x").parent().expect("a folder").to_path_buf();
    let mut names: Vec<_> =
        std::fs::read_dir(folder).expect("descriptions").map(|entry| entry.expect("an entry").path()).collect();
    names.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    assert!(names.len() >= 12, "{names:?}");
    for path in names {
        let program = synthetic::load(&path).unwrap_or_else(|error| panic!("{error}"));
        let report = run_named(&program, "first-touch", Options { until_ns: Some(0.3e9), ..Options::default() });
        assert!(report.run_time_ns > 0.0 && report.notes.is_empty(), "{}: {:?}", path.display(), report.notes);
    }
}

#[test]
fn a_program_that_locks_itself_up_is_told_so() {
    let mut program = shared("first");
    program.threads[3].body.clear();
    program.events.iter_mut().for_each(|event| event.needed = event.needed.max(1));
    let error = Simulation::new(&program, &machine(), idle()).expect_err("too few arrivals");
    assert!(error.to_string().contains("arrivals"), "{error}");
}

/// A real recording: multigrid on 16 threads (`testdata/traces/README.md`).
fn recorded(options: &RecordedOptions) -> Recorded {
    let trace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces/mg.numatrace");
    recorded::load(&trace, options).unwrap_or_else(|error| panic!("{error}"))
}

fn recorded_ns(program: &Program) -> f64 {
    match program.origin {
        Origin::Recorded { recorded_ns, .. } => recorded_ns as f64,
        Origin::Synthetic { .. } => panic!("a recorded program"),
    }
}

/// With the recorded placement and idle latencies, the replay takes the recorded time.
#[test]
fn a_recording_is_replayed_in_its_own_time() {
    let program = recorded(&RecordedOptions::default()).program;
    let report = run_named(&program, "first-touch", idle());
    let error = report.run_time_ns / recorded_ns(&program) - 1.0;
    eprintln!("replayed in {:.1} ms: {:+.2} % of the recorded time", report.run_time_ns / 1e6, 100.0 * error);
    assert!(report.finished && error.abs() < 0.02, "off by {:.2} %", 100.0 * error);
}

/// A quarter of the samples tells the same story.
#[test]
fn a_thinned_recording_predicts_what_the_whole_one_does() {
    let predict = |thin, policy| {
        let program = recorded(&RecordedOptions { thin, ..RecordedOptions::default() }).program;
        let report = run_named(&program, policy, Options::default());
        (report.run_time_ns, report.total.metrics.local_access_ratio.expect("accesses"))
    };
    for policy in ["first-touch", "interleave"] {
        let (dense, thin) = (predict(1, policy), predict(4, policy));
        eprintln!("{policy}: {dense:?} of all samples, {thin:?} of a quarter");
        assert!((thin.0 / dense.0 - 1.0).abs() < 0.05, "{policy}: run time {} against {}", thin.0, dense.0);
        assert!((thin.1 - dense.1).abs() < 0.05, "{policy}: local ratio {} against {}", thin.1, dense.1);
    }
}

/// The main part done ten times over takes nine times its length longer.
#[test]
fn the_main_part_of_a_recording_is_repeated() {
    let once = run_named(&recorded(&RecordedOptions::default()).program, "first-touch", idle());
    let program = recorded(&RecordedOptions { repeat: Repeat::Times(10), ..RecordedOptions::default() }).program;
    assert!(program.repeat == 10 && program.body_ns > 0.0);
    let report = run_named(&program, "first-touch", idle());
    let expected = once.run_time_ns + 9.0 * program.body_ns;
    assert!((report.run_time_ns / expected - 1.0).abs() < 0.03, "{} against {expected}", report.run_time_ns);
}
