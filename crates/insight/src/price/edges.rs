//! Prices where little is known, or nothing is left: threads on several nodes, windows without memory accesses, threads whose samples are all in one part.

use std::collections::BTreeMap;

use numapilot_flows::{Filter, Trace};
use numapilot_machine::{Machine, NodeIndex};
use numapilot_traffic::MemorySystem;

use super::members::Member;
use super::{Change, Priced, Pricer, To, as_recorded, online_cpus};
use crate::Analysis;
use crate::usage::pace::Pace;
use crate::usage::{Cell, PackedNode, Row, Usage, WRITE};

/// What is recorded of a multigrid program of sixteen threads, and the machine of four nodes with four CPUs each.
fn multigrid() -> (Usage, Machine) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces/mg.numatrace");
    let trace = Trace::open(&folder).expect("a committed trace");
    let machine = trace.machine().expect("a machine");
    let usage = Usage::of(&Analysis::on(&trace, Some(&machine), Filter::default()), &machine, &BTreeMap::new());
    (usage, machine)
}

fn price<'a>(pricer: &Pricer<'_>, to: &'a dyn Fn(&Cell) -> To<'a>, seat: &'a dyn Fn(&Row) -> NodeIndex) -> Priced {
    pricer.price(&Change { to, seat, extra_ns: 0.0, extra_work_ns: 0.0 }, false).expect("a price")
}

#[test]
fn threads_run_on_cpus_that_are_online() {
    let machine = Machine::load("opteron-8385").expect("a model");
    let without_odd = online_cpus(machine.nodes(), |cpu| cpu.0.is_multiple_of(2));
    assert_eq!(without_odd, [2.0; 4], "of four");
    assert_eq!(online_cpus(machine.nodes(), |cpu| cpu.0 < 4), [4.0, 1.0, 1.0, 1.0]);
}

/// Of each row, half of the accesses have no known home. "No gain covers them", said the report, and gains were those of all accesses.
#[test]
fn no_change_moves_accesses_without_a_known_home() {
    let (mut usage, machine) = multigrid();
    let seat = |row: &Row| row.from;
    let priced = |usage: &Usage| {
        let pricer = Pricer::new(&machine, usage).expect("a pricer");
        let now = price(&pricer, &|cell| To::Node(cell.home.index()), &seat);
        // Caches answer all that are known.
        let none = price(&pricer, &|cell| cell.home.index().map_or(To::Node(None), |_| To::Gone), &seat);
        (now, none)
    };
    let (now, none) = priced(&usage);
    let unknown = |(cell, count): &(Cell, f64)| (Cell { home: PackedNode::NONE, ..*cell }, *count);
    let unknown: Vec<(Cell, f64)> = usage.cells.iter().map(unknown).collect();
    usage.cells.extend(unknown);
    let (same, half) = priced(&usage);
    assert!((same.run_ns / now.run_ns - 1.0).abs() < 1e-6, "{} ns, {} ns where all are known", same.run_ns, now.run_ns);
    assert!((0.05..0.6).contains(&(half.memory_ns / now.memory_ns)), "{} of {} ns", half.memory_ns, now.memory_ns);
    assert!(none.run_ns < half.run_ns && half.run_ns < now.run_ns, "{}, {} ns", none.run_ns, half.run_ns);
    // Without a part of the samples, too.
    let mut of_parts = half.parts_ns.iter().zip(&none.parts_ns);
    assert!(of_parts.all(|(half, none)| half > none), "{:?}, {:?}", half.parts_ns, none.parts_ns);
}

/// From 5 % of all accesses on they stayed where they were, and of fewer each moved with the thread's others: a gain jumped where a recording had a few more.
#[test]
fn few_accesses_without_a_known_home_do_not_move_either() {
    let (mut usage, machine) = multigrid();
    usage.cells.retain(|(cell, _)| cell.home.index().is_some());
    let seat = |row: &Row| row.from;
    // Caches answer all accesses but these, which are so large a share.
    let memory_ns = |share: f64| {
        let mut usage = usage.clone();
        let unknown =
            |(cell, count): &(Cell, f64)| (Cell { home: PackedNode::NONE, ..*cell }, count * share / (1.0 - share));
        let unknown: Vec<(Cell, f64)> = usage.cells.iter().map(unknown).collect();
        usage.cells.extend(unknown);
        let pricer = Pricer::new(&machine, &usage).expect("a pricer");
        price(&pricer, &|cell| cell.home.index().map_or(To::Node(None), |_| To::Gone), &seat).memory_ns
    };
    let (fewer, more) = (memory_ns(0.049), memory_ns(0.051));
    assert!(fewer < more && fewer > 0.9 * more, "{fewer} ns, {more} ns");
}

/// A third of the threads overlap eight accesses, the others none. A class with the mean by accesses loaded memory with more than its threads access.
#[test]
fn threads_that_overlap_accesses_differently_load_memory_with_what_they_access() {
    const LATENCY_NS: f64 = 200.0;
    let (mut usage, machine) = multigrid();
    let threads = usage.threads;
    for (at, pace) in usage.paces.iter_mut().enumerate() {
        pace.outstanding = if (at % threads).is_multiple_of(3) { 8.0 } else { 1.0 };
    }
    usage.charged = false;
    let pricer = Pricer::new(&machine, &usage).expect("a pricer");
    let gathered = as_recorded(|change| pricer.gather(change));
    let busy_ns = |pace: &Pace| pace.own_ns + pace.accesses * LATENCY_NS / pace.outstanding;
    let busy: Vec<f64> = pricer.paces.iter().map(busy_ns).collect();
    let mut classes = 0;
    for (window, lines) in gathered.lines.iter().enumerate() {
        let of = window * threads..(window + 1) * threads;
        let (paces, busy) = (&pricer.paces[of.clone()], &busy[of]);
        let lasted_ns = busy.iter().copied().fold(1.0, f64::max);
        for class in pricer.load(lines, paces, busy, &vec![1.0; threads], lasted_ns).classes {
            let of_class = lines.iter().filter(|line| line.from.0 == class.from);
            let made: f64 = of_class.map(|line| paces[line.thread].accesses * line.part * line.left).sum();
            let cycle_ns = class.outstanding * class.think_ns + LATENCY_NS;
            let loaded = class.threads * class.outstanding / cycle_ns * lasted_ns;
            assert!((loaded / made - 1.0).abs() < 1e-9, "window {window}: {loaded} of {made} accesses");
            classes += 1;
        }
    }
    assert!(classes > 40, "{classes}");
}

/// Four nodes, whose links carry anything and whose memories serve a line in 8 ns.
const NARROW: &str = r#"
format = 1
name = "narrow"
cpu = "made up"
clock_mhz = { value = 2000, source = "made up" }
[sources]
"made up" = "made up"
[[nodes]]
ids = [0, 1, 2, 3]
cpus = ["0-3", "4-7", "8-11", "12-15"]
source = "made up"
memory_gib = { value = 4, source = "made up" }
memory_bandwidth_gb_per_s = { value = 10, source = "made up" }
[[links]]
pairs = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
both_ways = true
kind = "link"
bandwidth_gb_per_s = { value = 1000, source = "made up" }
[[idle_latency]]
hops = 0
ns = { value = 100, source = "made up" }
[[idle_latency]]
hops = 1
ns = { value = 150, source = "made up" }
"#;

/// Far more accesses than one memory serves in the time that was recorded: the run lasts until it has served them, however its queue is. The delay of the
/// solution taken times 0.76 ended the run a fifth earlier.
#[test]
fn a_full_memory_serves_no_more_where_its_queue_is_shorter() {
    let machine = Machine::from_model_text(NARROW, "a made-up model").expect("a sound model");
    let (mut usage, _) = multigrid();
    usage.cells.iter_mut().for_each(|(cell, _)| cell.flags &= !WRITE);
    for pace in &mut usage.paces {
        pace.accesses *= 20.0;
        pace.outstanding = 8.0;
    }
    // As a clock that was measured has it: no core stands between these figures and the price.
    usage.charged = false;
    let mut pricer = Pricer::new(&machine, &usage).expect("a pricer");
    let system = || MemorySystem::new(&machine).expect("a whole machine");
    let member = |queues: f64| Member::new(system(), usage.charged_core, queues);
    pricer.members.all = vec![member(0.76), member(1.0), member(1.32)];
    let seat = |row: &Row| row.from;
    let change = Change { to: &|_| To::Node(Some(NodeIndex(0))), seat: &seat, extra_ns: 0.0, extra_work_ns: 0.0 };
    let priced = pricer.price(&change, true).expect("a price");
    let [short, as_modelled, long] = priced.members_ns[..] else { panic!("{:?}", priced.members_ns) };
    assert!(as_modelled > 3.0 * usage.windows.ns * usage.windows.count as f64, "{as_modelled} ns: it is not full");
    assert!(short > 0.93 * as_modelled && long < 1.07 * as_modelled, "{short}, {as_modelled}, {long} ns");
}

/// All threads on one node: they take turns on its CPUs, whether the recording shows each on one node or on two.
#[test]
fn a_thread_that_was_on_several_nodes_waits_once_for_cpus_of_the_one_to_which_it_moves() {
    let (mut usage, machine) = multigrid();
    // Reads of one node's memory alone, so that the shares of half of a row are those of the whole.
    usage.cells.iter_mut().for_each(|(cell, _)| cell.flags &= !WRITE);
    let run_ns = |usage: &Usage, cpus: f64| {
        let mut pricer = Pricer::new(&machine, usage).expect("a pricer");
        pricer.cpus.fill(cpus);
        price(&pricer, &|_| To::Node(Some(NodeIndex(0))), &|_| NodeIndex(0)).run_ns
    };
    let (crowded_ns, roomy_ns) = (run_ns(&usage, 4.0), run_ns(&usage, 16.0));
    assert!(crowded_ns > 1.1 * roomy_ns, "sixteen threads on four CPUs: {crowded_ns} ns, on sixteen: {roomy_ns} ns");
    // Half of each row's accesses on the next node.
    let (rows, nodes) = (usage.rows.len() as u32, usage.nodes);
    let next = |row: &Row| Row { from: NodeIndex((row.from.0 + 1) % nodes), ..*row };
    let twins: Vec<Row> = usage.rows.iter().map(next).collect();
    usage.rows.extend(twins);
    usage.cells.iter_mut().for_each(|(_, count)| *count /= 2.0);
    let halves: Vec<(Cell, f64)> =
        usage.cells.iter().map(|(cell, count)| (Cell { row: cell.row + rows, ..*cell }, *count)).collect();
    usage.cells.extend(halves);
    let halved_ns = run_ns(&usage, 4.0);
    assert!((halved_ns / crowded_ns - 1.0).abs() < 1e-6, "{halved_ns} ns, {crowded_ns} ns where each is on one node");
}

/// A change that leaves caches to answer all accesses of a window leaves it without any latency of memory; nobody waits for memory there.
#[test]
fn where_caches_answer_everything_nobody_waits_for_memory() {
    let (usage, machine) = multigrid();
    let seat = |row: &Row| row.from;
    let pricer = Pricer::new(&machine, &usage).expect("a pricer");
    let now = price(&pricer, &|cell| To::Node(cell.home.index()), &seat);
    let all = price(&pricer, &|_| To::Gone, &seat);
    assert!(all.memory_ns < 0.01 * now.memory_ns, "{} ns, {} ns before", all.memory_ns, now.memory_ns);
    assert!(all.run_ns < now.run_ns, "{} ns, {} ns before", all.run_ns, now.run_ns);
    // In half of the windows: less time than before, but not none.
    let middle = (usage.windows.count / 2) as u16;
    let late = |cell: &Cell| usage.rows[cell.row as usize].window >= middle;
    let half = price(&pricer, &|cell| if late(cell) { To::Gone } else { To::Node(cell.home.index()) }, &seat);
    let windows_ns =
        |priced: &Priced| priced.windows[usize::from(middle)..].iter().map(|one| one.lasted_ns).sum::<f64>();
    assert!(windows_ns(&half) < windows_ns(&now), "{} ns, {} ns before", windows_ns(&half), windows_ns(&now));
    assert!((0.01..0.99).contains(&(half.memory_ns / now.memory_ns)), "{} of {} ns", half.memory_ns, now.memory_ns);
}

/// Left out of the samples, a part that holds all of them leaves what a recording without any has: the times that were recorded.
#[test]
fn without_the_part_that_has_all_its_samples_a_thread_keeps_the_time_that_was_recorded() {
    let (mut usage, machine) = multigrid();
    usage.cells.iter_mut().for_each(|(cell, _)| cell.part = 0);
    let pricer = Pricer::new(&machine, &usage).expect("a pricer");
    let seat = |row: &Row| row.from;
    let priced = price(&pricer, &|cell| To::Node(cell.home.index()), &seat);
    let unknown = price(&pricer, &|_| To::Node(None), &seat);
    let (without_ns, unknown_ns) = (priced.parts_ns[0], unknown.run_ns);
    assert!((without_ns / unknown_ns - 1.0).abs() < 1e-9, "{without_ns} ns, {unknown_ns} ns without samples");
    assert!((priced.parts_ns[1] / priced.run_ns - 1.0).abs() < 0.01, "{} ns, {} ns", priced.parts_ns[1], priced.run_ns);
}

/// Four threads of each node share one CPU: each works a quarter of the time that it takes.
fn on_one_cpu_of_each_node(usage: &mut Usage) {
    for pace in &mut usage.paces {
        pace.busy_ns /= 4.0;
        pace.own_ns /= 4.0;
        pace.outstanding *= 4.0;
        pace.stretch = 4.0;
    }
    let mut on_node = vec![Vec::new(); usage.nodes];
    for row in &usage.rows {
        let threads: &mut Vec<usize> = &mut on_node[row.from];
        if !threads.contains(&(row.thread as usize)) {
            threads.push(row.thread as usize);
        }
    }
    usage.on_one_cpu = on_node;
}

/// Threads that drifted apart counted for each other's CPUs: 38 threads of a node of four CPUs loaded memory at once, and queues were ten times too long.
#[test]
fn no_more_threads_load_memory_than_there_are_cpus() {
    let (usage, machine) = multigrid();
    let mut pricer = Pricer::new(&machine, &usage).expect("a pricer");
    let gathered = as_recorded(|change| pricer.gather(change));
    let threads = usage.threads;
    let fullest = (0..usage.windows.count).max_by_key(|window| gathered.lines[*window].len()).expect("windows");
    let of = fullest * threads..(fullest + 1) * threads;
    let busy: Vec<f64> = pricer.paces[of.clone()].iter().map(|pace| pace.busy_ns).collect();
    let loading = |pricer: &Pricer<'_>, stretch: f64| -> Vec<f64> {
        // Others are so far ahead that nothing of the window is left.
        let (lines, paces) = (&gathered.lines[fullest], &pricer.paces[of.clone()]);
        let load = pricer.load(lines, paces, &busy, &vec![stretch; threads], 0.0);
        load.classes.iter().map(|class| class.threads).collect()
    };
    let all = loading(&pricer, 1.0);
    assert!(all.len() == 4 && all.iter().all(|threads| *threads > 2.5), "{all:?}");
    let shared = loading(&pricer, 4.0);
    assert!(all.iter().zip(&shared).all(|(all, shared)| (all / shared - 4.0).abs() < 1e-9), "{all:?}, {shared:?}");
    pricer.cpus.fill(2.0);
    assert_eq!(loading(&pricer, 1.0), [2.0; 4]);
}

/// A thread that became slow shared its CPU with the same threads as in the recording, though these waited for it: runs were several times too long on a
/// machine whose CPUs were mostly idle.
#[test]
fn a_thread_for_which_the_others_wait_has_its_cpu_for_itself() {
    let (mut usage, machine) = multigrid();
    let plain = Pricer::new(&machine, &usage).expect("a pricer").now().expect("a price");
    on_one_cpu_of_each_node(&mut usage);
    let mut pricer = Pricer::new(&machine, &usage).expect("a pricer");
    let seat = |row: &Row| row.from;
    let now = price(&pricer, &|cell| To::Node(cell.home.index()), &seat);
    // Processor time holds no wait for a CPU.
    assert!(now.worked_ns < 0.3 * plain.worked_ns, "{} ns, {} ns", now.worked_ns, plain.worked_ns);
    // Caches answer everybody else.
    let slow = usage.rows.iter().map(|row| row.thread).max().expect("threads");
    let only_slow = |cell: &Cell| {
        if usage.rows[cell.row as usize].thread == slow { To::Node(Some(NodeIndex(0))) } else { To::Gone }
    };
    let alone = price(&pricer, &only_slow, &seat);
    pricer.crowding = None;
    let crowded = price(&pricer, &only_slow, &seat);
    assert!(alone.run_ns < 0.9 * crowded.run_ns, "{} ns, {} ns among threads that wait", alone.run_ns, crowded.run_ns);
    assert!(alone.run_ns < now.run_ns, "{} ns, {} ns before", alone.run_ns, now.run_ns);
}

/// Threads that are moved share the CPUs of the node to which they go.
#[test]
fn threads_that_share_cpus_wait_less_on_a_node_with_more_of_them() {
    let (mut usage, machine) = multigrid();
    on_one_cpu_of_each_node(&mut usage);
    let run_ns = |cpus: f64| {
        let mut pricer = Pricer::new(&machine, &usage).expect("a pricer");
        pricer.cpus.fill(cpus);
        price(&pricer, &|_| To::Node(Some(NodeIndex(0))), &|_| NodeIndex(0)).run_ns
    };
    let (few_ns, many_ns) = (run_ns(2.0), run_ns(16.0));
    assert!(few_ns > 1.5 * many_ns, "{few_ns} ns on two CPUs, {many_ns} ns on sixteen");
}

/// Run times with all threads moved to one node of two CPUs, where no access of every other thread was sampled: if the time that these work was counted, and if
/// it was not. They work for this share of the time that they worked in the recording. `shares_cpus`: as if the threads of each node had shared one CPU there.
fn on_two_cpus_ns(works: f64, shares_cpus: bool) -> (f64, f64) {
    let (mut usage, machine) = multigrid();
    if shares_cpus {
        on_one_cpu_of_each_node(&mut usage);
    }
    let (rows, threads) = (usage.rows.clone(), usage.threads);
    usage.cells.retain(|(cell, _)| rows[cell.row as usize].thread.is_multiple_of(2));
    for (at, pace) in usage.paces.iter_mut().enumerate().filter(|(at, _)| !(at % threads).is_multiple_of(2)) {
        pace.busy_ns *= works;
        pace.own_ns *= works;
        pace.accesses *= works;
        usage.course.worked_ns[at] *= works;
    }
    let run_ns = |node: Option<NodeIndex>| {
        let mut usage = usage.clone();
        usage.counted_on = (0..threads).map(|thread| node.filter(|_| !thread.is_multiple_of(2))).collect();
        let mut pricer = Pricer::new(&machine, &usage).expect("a pricer");
        pricer.cpus.fill(2.0);
        price(&pricer, &|_| To::Node(Some(NodeIndex(0))), &|_| NodeIndex(0)).run_ns
    };
    (run_ns(Some(NodeIndex(1))), run_ns(None))
}

/// They were left out.
#[test]
fn threads_without_samples_hold_cpus_too() {
    for shares_cpus in [false, true] {
        let (counted_ns, unknown_ns) = on_two_cpus_ns(1.0, shares_cpus);
        assert!(counted_ns > 1.3 * unknown_ns, "{counted_ns} ns, {unknown_ns} ns where they hold none");
    }
}

/// Such as one that writes statistics now and then: of the CPUs it takes what it works, and where it only sleeps, nothing.
#[test]
fn threads_that_sleep_hold_no_cpus() {
    for shares_cpus in [false, true] {
        for (works, off) in [(0.0, 0.0), (1e-3, 0.02)] {
            let (counted_ns, unknown_ns) = on_two_cpus_ns(works, shares_cpus);
            assert!((counted_ns / unknown_ns - 1.0).abs() <= off, "{works}: {counted_ns} ns, {unknown_ns} ns");
        }
    }
}
