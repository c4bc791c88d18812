//! Servers that sleep most of the time: their shares are of the time in which they work, and what a fix gains is processor time, because sleeps decide how long
//! the run is.

use std::ops::Range;

use numapilot_flows::{
    AccessRef, CountersAt, Filter, Object, ObjectKind, Process, Site, SiteId, Tables, Thread, Trace, Wait,
};
use numapilot_host::VirtAddr;
use numapilot_insight::whatif::PlacementOverride;
use numapilot_insight::{Analysis, Findings, Fix, FixKind, Nothing};
use numapilot_machine::{Machine, NodeId};
use numapilot_trace::ids::{ObjectId, ThreadIndex, TimeNs};
use numapilot_trace::record::Counters;

const MS: u64 = 1_000_000;
const RUN_NS: u64 = 1_000 * MS;
/// Every so often each worker wakes up, and works for so long.
const EVERY_NS: u64 = 20 * MS;
const BURST_NS: u64 = MS / 10;
const WORKERS: u32 = 4;
/// Node of the workers.
const NODE: NodeId = NodeId(2);
const PAGES: u64 = 512;

const TABLE: VirtAddr = VirtAddr(0x7000_0000_0000);

/// A program of one table, without threads.
fn program() -> Tables {
    let mut tables = Tables { end: TimeNs(RUN_NS), ..Tables::default() };
    tables.processes.push(Process { end: Some(TimeNs(RUN_NS)), ..Process::default() });
    tables.sites.push(Site { kind: ObjectKind::Heap, name: "table".into(), ..Site::default() });
    let (thread, node) = (Some(ThreadIndex(0)), Some(NodeId(0)));
    let table = Object { address: TABLE, bytes: PAGES << 12, site: SiteId(0), thread, node, ..Object::default() };
    tables.objects.push(table);
    tables
}

/// When a thread works that wakes up every so often.
fn bursts() -> Vec<Range<u64>> {
    (0..RUN_NS / EVERY_NS).map(|burst| burst * EVERY_NS..burst * EVERY_NS + BURST_NS).collect()
}

/// Adds the next thread, on `node`, which works in these bursts, sleeps after each, and ends by itself at `end`. In each burst it makes so many accesses to the
/// table, so many of them sampled. The table is on `home`.
fn push_thread(
    tables: &mut Tables,
    (node, end): (NodeId, Option<TimeNs>),
    bursts: &[Range<u64>],
    (accesses, samples): (u64, u64),
    home: NodeId,
) {
    let thread = tables.threads.len() as u32;
    let (index, parent) = (ThreadIndex(thread), (thread > 0).then_some(ThreadIndex(0)));
    tables.threads.push(Thread { index, parent, node: Some(node), end, ..Thread::default() });
    for (number, burst) in bursts.iter().enumerate() {
        for sample in 0..samples {
            let line = (sample * 7919 + number as u64 * 104_729 + u64::from(thread) * 1_299_709) % (PAGES * 64);
            let length = burst.end - burst.start;
            tables.accesses.push(&AccessRef {
                time: TimeNs(burst.start + sample * length / samples),
                thread: index,
                object: Some(ObjectId(0)),
                node: Some(node),
                home: Some(home),
                is_write: thread == 0 && burst.end < RUN_NS,
                weight: (accesses / samples) as u32,
                cluster: (accesses / samples) as f64,
                ..AccessRef::at(TABLE.0 + line * 64)
            });
        }
        tables.counters.push(reading(index, node, burst.end, home, (number as u64 + 1) * accesses));
        let next = bursts.get(number + 1).map_or(RUN_NS, |next| next.start);
        if next > burst.end {
            let (began, ended) = (TimeNs(burst.end), TimeNs(next));
            tables.waits.push(Wait { thread: index, kind: "sleep".into(), began, ended, ..Wait::default() });
        }
    }
    tables.counters.push(reading(index, node, RUN_NS, home, bursts.len() as u64 * accesses));
}

/// A server: main fills a table on node 0 and sleeps; each worker makes so many accesses to it whenever it is awake, `samples` of them sampled. The table is on
/// `home`.
fn server(accesses: u64, samples: u64, home: NodeId) -> Trace {
    let (mut tables, made, end) = (program(), (accesses, samples), Some(TimeNs(RUN_NS)));
    let begin = 0..MS;
    push_thread(&mut tables, (NodeId(0), end), std::slice::from_ref(&begin), made, home);
    (0..WORKERS).for_each(|_| push_thread(&mut tables, (NODE, end), &bursts(), made, home));
    Trace::from_tables(tables)
}

/// What a thread has done by a moment: every access was answered by `home`.
fn reading(thread: ThreadIndex, node: NodeId, at_ns: u64, home: NodeId, accesses: u64) -> CountersAt {
    let mut by_home = vec![0; 4];
    by_home[usize::from(home.0)] = accesses;
    let totals = Counters { accesses: 4 * accesses, memory_accesses: accesses, by_home, ..Counters::default() };
    CountersAt { time: TimeNs(at_ns), thread, node: Some(node), totals }
}

fn opteron() -> Machine {
    Machine::load("opteron-8385").expect("a built-in model")
}

/// Accesses with which a worker waits for memory of `home` for this share of a burst.
fn accesses(share: f64, home: NodeId) -> u64 {
    let many = share * BURST_NS as f64 / opteron().idle_latency_or_guess_ns(NODE, home);
    (many / 20.0).round() as u64 * 20
}

fn found(trace: &Trace) -> Findings {
    let machine = opteron();
    Analysis::on(trace, Some(&machine), Filter::default()).findings(Some(&machine))
}

/// Sleeps counted as busy: threads of a server that works for a two-hundredth of the time waited "0.3 % of their time for memory", with nothing to fix.
#[test]
fn a_server_that_sleeps_most_of_the_time_has_the_findings_of_its_work() {
    let remote = server(accesses(0.6, NodeId(0)), 20, NodeId(0));
    let found = found(&remote);
    assert_eq!(found.nothing, None, "{found:?}");
    let share = found.memory_share.expect("a share");
    assert!((0.4..0.8).contains(&share), "{share} of its work is waiting for memory");
    assert!(found.cannot_say.iter().any(|why| why.contains("in >99 % of the run time")), "{:?}", found.cannot_say);
    let on_node = |fix: &&Fix| fix.kind == FixKind::AllocateOnNode(NODE);
    let mut fixes = found.findings.iter().flat_map(|finding| &finding.fixes);
    let fix = fixes.find(on_node).unwrap_or_else(|| panic!("{found:?}"));
    // The run is as long as its sleeps.
    assert!(fix.gain.value.abs() < 0.01, "{:?}", fix.gain);
    let work = fix.work_gain.expect("a gain of processor time");
    assert_eq!(&work, fix.decisive());
    assert!(work.low > 0.0 && fix.uncertainty.median > 0.0, "{work:?}");
    // By arithmetic: what idle latencies differ by, of the waiting, of all work. Main adds a millisecond.
    let latency_ns = |home| opteron().idle_latency_or_guess_ns(NODE, home);
    let workers_ns = (u64::from(WORKERS) * RUN_NS / EVERY_NS * BURST_NS) as f64;
    let expected = 0.6 * workers_ns * (1.0 - latency_ns(NODE) / latency_ns(NodeId(0))) / (workers_ns + MS as f64);
    let saved = work.value / (1.0 + work.value);
    assert!((saved / expected - 1.0).abs() < 0.25, "{saved} of the work saved, {expected} by arithmetic");

    let machine = opteron();
    let change = PlacementOverride::read(&remote, "table=bind:2").expect("a change");
    let analysis = Analysis::on(&remote, Some(&machine), Filter::default());
    let answer = analysis.what_if(&machine, &[change]).expect("a prediction");
    let same = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (1.0 + a.abs());
    let asked = answer.work_gain.expect("a gain of processor time");
    assert!(same(asked.value, work.value) && same(asked.low, work.low) && same(asked.high, work.high), "{asked:?}");
    assert!(same(answer.gain.value, fix.gain.value), "{answer:?}");
    let worked_ns = [&answer.now, &answer.then].map(|run| run.processor_time_ns.expect("a processor time"));
    assert!(same(worked_ns[0] / worked_ns[1] - 1.0, work.value), "{worked_ns:?} ns, {work:?}");
}

/// The one thread of many that slept most made "one thread sleeps in 100 % of the run time" of a program that computes, and as its last sleep goes on until the
/// program ends, no fix had any gain of run time.
#[test]
fn a_thread_that_sleeps_beside_one_that_computes_does_not_decide_how_long_the_run_is() {
    const SAMPLES: u64 = 2_000;
    let of_burst = accesses(0.6, NodeId(0));
    let computed = of_burst * (RUN_NS / BURST_NS) / SAMPLES * SAMPLES;
    let mut tables = program();
    let (whole, end) = (0..RUN_NS, Some(TimeNs(RUN_NS)));
    push_thread(&mut tables, (NODE, end), std::slice::from_ref(&whole), (computed, SAMPLES), NodeId(0));
    // It writes statistics, say, and is asleep when main ends the program.
    push_thread(&mut tables, (NODE, None), &bursts(), (4, 4), NodeId(0));
    let (trace, machine) = (Trace::from_tables(tables), opteron());
    let change = PlacementOverride::read(&trace, "table=bind:2").expect("a change");
    let analysis = Analysis::on(&trace, Some(&machine), Filter::default());
    let answer = analysis.what_if(&machine, &[change]).expect("a prediction");
    assert!(answer.work_gain.is_none(), "{answer:?}");
    assert!(!answer.cannot_say.iter().any(|why| why.contains("sleep")), "{:?}", answer.cannot_say);
    // By arithmetic: what idle latencies differ by, of the waiting.
    let latency_ns = |home| machine.idle_latency_or_guess_ns(NODE, home);
    let expected = 0.6 * (1.0 - latency_ns(NODE) / latency_ns(NodeId(0)));
    let saved = answer.gain.value / (1.0 + answer.gain.value);
    assert!((saved / expected - 1.0).abs() < 0.25, "{saved} of the run time saved, {expected} by arithmetic");
}

#[test]
fn a_sleeping_server_that_hardly_waits_or_is_well_placed_has_no_findings() {
    let hardly = found(&server(4, 4, NodeId(0)));
    assert_eq!(hardly.nothing, Some(Nothing::HardlyWaits), "{hardly:?}");
    assert!(hardly.memory_share.is_some_and(|share| share > 0.001), "of its work, not of its sleep: {hardly:?}");
    let local = found(&server(accesses(0.6, NODE), 20, NODE));
    assert!(local.findings.is_empty() && local.nothing.is_some(), "{local:?}");
    assert!(local.memory_share.is_some_and(|share| share > 0.4), "{local:?}");
}
