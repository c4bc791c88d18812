//! What counts for the run time and what does not, in a made-up program: main starts two threads and joins both; `short` uses an object on another node,
//! `long` works on its own node for longer.

use numapilot_flows::{AccessRef, Filter, Object, ObjectKind, Process, Site, SiteId, Tables, Thread, Trace, Wait};
use numapilot_host::VirtAddr;
use numapilot_insight::whatif::PlacementOverride;
use numapilot_insight::{Analysis, Finding, Subject, Surveyed};
use numapilot_machine::{Machine, NodeId};
use numapilot_trace::ids::{ObjectId, ProcessIndex, ThreadIndex, TimeNs};

const MS: u64 = 1_000_000;

/// `lengths`: how long each thread works, ms; thread 1 uses object 0 (remote), thread 2 object 1 (local).
fn program(lengths: [u64; 2]) -> Trace {
    let end = lengths.into_iter().max().expect("two") * MS;
    let mut tables = Tables { end: TimeNs(end), ..Tables::default() };
    tables.processes.push(Process { end: Some(TimeNs(end)), ..Process::default() });
    let thread = |index: u32, node: u16, ends: u64| Thread {
        index: ThreadIndex(index),
        node: Some(NodeId(node)),
        parent: (index > 0).then_some(ThreadIndex(0)),
        end: Some(TimeNs(ends)),
        ..Thread::default()
    };
    tables.threads = vec![thread(0, 0, end), thread(1, 1, lengths[0] * MS), thread(2, 2, lengths[1] * MS)];
    for (index, length) in lengths.into_iter().enumerate() {
        let wait = Wait {
            thread: ThreadIndex(0),
            kind: "join".into(),
            object: index as u64 + 1,
            began: TimeNs(if index == 0 { 0 } else { lengths[0].min(lengths[1]) * MS }),
            ended: TimeNs(length * MS),
        };
        tables.waits.push(wait);
        let name = ["remote", "local"][index];
        tables.sites.push(Site { kind: ObjectKind::Heap, name: name.into(), ..Site::default() });
        let address = VirtAddr(0x7000_0000_0000 + index as u64 * 0x1000_0000);
        tables.objects.push(Object {
            id: ObjectId(index as u32),
            site: SiteId(index as u32),
            process: ProcessIndex(0),
            address,
            bytes: 64 << 12,
            thread: Some(ThreadIndex(index as u32 + 1)),
            node: Some(NodeId(index as u16 + 1)),
            ..Object::default()
        });
        let samples = 4000;
        for sample in 0..samples {
            let mut access = AccessRef::at(address.0 + (sample * 7919) % (64 << 12) / 64 * 64);
            access.time = TimeNs(sample * length * MS / samples);
            access.thread = ThreadIndex(index as u32 + 1);
            access.object = Some(ObjectId(index as u32));
            access.node = Some(NodeId(index as u16 + 1));
            access.home = Some(NodeId(if index == 0 { 3 } else { 2 }));
            // The local one hardly waits for memory, so that the other's traffic does not change its time.
            access.weight = if index == 0 { (length * 1500 / samples) as u32 } else { 1 };
            tables.accesses.push(&access);
        }
    }
    Trace::from_tables(tables)
}

fn gain(trace: &Trace, set: &str) -> (f64, f64) {
    let machine = Machine::load("opteron-8385").expect("a model");
    let analysis = Analysis::on(trace, Some(&machine), Filter::default());
    let answer =
        analysis.what_if(&machine, &[PlacementOverride::read(trace, set).expect("an override")]).expect("an answer");
    (answer.gain.value, answer.now.run_time_ns)
}

#[test]
fn what_is_gained_where_others_are_waited_for_is_no_gain() {
    let (off_the_path, run_ns) = gain(&program([50, 200]), "remote=users");
    assert!((run_ns / 200e6 - 1.0).abs() < 0.1, "{run_ns} ns");
    assert!(off_the_path.abs() < 0.002, "{off_the_path}");
    let (on_the_path, _) = gain(&program([200, 50]), "remote=users");
    assert!(on_the_path > 0.01, "{on_the_path}");
    // As long as it takes until the other thread is the one that is waited for.
    let (half, _) = gain(&program([201, 200]), "remote=users");
    assert!(half > 0.0 && half < 0.5 * on_the_path, "{half} of {on_the_path}");
}

/// `report --plan` walked over the recording for its findings, and again for the gain of all rules.
#[test]
fn what_the_findings_have_seen_answers_the_next_question() {
    let trace = program([200, 50]);
    let machine = Machine::load("opteron-8385").expect("a model");
    let analysis = Analysis::on(&trace, Some(&machine), Filter::default());
    let mut surveyed = Surveyed::default();
    // An instance by itself is no site that the findings looked at.
    for (texts, served) in [(&["remote=interleave"][..], 1), (&["0=interleave"], 1), (&[], 2)] {
        let changes: Vec<PlacementOverride> =
            texts.iter().map(|text| PlacementOverride::read(&trace, text).expect("a change")).collect();
        let found = analysis.findings_surveyed(Some(&machine), &mut surveyed);
        assert_eq!(found, analysis.findings(Some(&machine)));
        let answer = analysis.what_if_surveyed(&machine, &changes, &mut surveyed).expect("an answer");
        assert_eq!(answer, analysis.what_if(&machine, &changes).expect("an answer"), "{texts:?}");
        assert_eq!(surveyed.served(), served, "{texts:?}");
    }
}

#[test]
fn the_later_of_two_wishes_counts_and_nothing_asked_changes_nothing() {
    let trace = program([200, 50]);
    let machine = Machine::load("opteron-8385").expect("a model");
    let analysis = Analysis::on(&trace, Some(&machine), Filter::default());
    let change = |text: &str| PlacementOverride::read(&trace, text).expect("an override");
    let answer = |overrides: &[PlacementOverride]| analysis.what_if(&machine, overrides).expect("an answer");
    let nothing = answer(&[]);
    assert_eq!((nothing.gain.value, nothing.now.run_time_ns), (0.0, nothing.then.run_time_ns));
    let both = answer(&[change("remote=bind:3"), change("S0=users")]);
    assert_eq!(both.then, answer(&[change("remote=users")]).then);
    // An instance that is asked for by its number is the whole of this site.
    assert_eq!(answer(&[change("0=interleave")]).gain, answer(&[change("remote=interleave")]).gain);
    let twice = answer(&[change("remote=weights:0*1+1*1+0*2")]);
    assert_eq!(twice.gain, answer(&[change("remote=weights:0*3+1*1")]).gain);
    for (text, why) in [("remote=bind:9", "no node 9"), ("remote=weights:9*1", "no node 9")] {
        let error = analysis.what_if(&machine, &[change(text)]).expect_err("refused");
        assert!(error.to_string().contains(why), "{error}");
    }
    for text in ["remote", "remote=nowhere", "remote=weights:1*0", "nothing=users", "remote=bind:x"] {
        assert!(PlacementOverride::read(&trace, text).is_err(), "{text}");
    }
}

/// Four nodes, each one hop from the others. Node 1 has CPUs and no memory; node 2's is the nearest to it.
const ONE_WITHOUT_MEMORY: &str = r#"
format = 1
name = "one-without-memory"
cpu = "4 x Some CPU"
clock_mhz = { value = 2000, source = "made up" }

[sources]

[[nodes]]
ids = [0, 2, 3]
sockets = [0, 2, 3]
cpus = ["0-3", "8-11", "12-15"]
source = "made up"
memory_gib = { value = 16, source = "made up" }
memory_bandwidth_gb_per_s = { value = 20, source = "made up" }

[[nodes]]
ids = [1]
sockets = [1]
cpus = ["4-7"]
source = "made up"

[[links]]
pairs = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
both_ways = true
kind = "made up"
bandwidth_gb_per_s = { value = 10, source = "made up" }

[[idle_latency]]
hops = 0
ns = { value = 100, source = "made up" }

[[idle_latency]]
hops = 1
ns = { value = 200, source = "made up" }

[[idle_latency]]
from = [1]
to = [2]
ns = { value = 150, source = "made up" }
"#;

#[test]
fn users_on_a_node_without_memory_get_that_of_the_nearest() {
    let trace = program([200, 50]);
    let machine = Machine::from_model_text(ONE_WITHOUT_MEMORY, "a made-up model").expect("a sound model");
    let analysis = Analysis::on(&trace, Some(&machine), Filter::default());
    let gain = |set: &str| {
        let change = PlacementOverride::read(&trace, set).expect("an override");
        analysis.what_if(&machine, &[change]).unwrap_or_else(|error| panic!("{set}: {error}")).gain
    };
    let nearest = gain("remote=bind:2");
    assert!(nearest.value > 0.01, "{nearest:?}");
    assert_eq!(gain("remote=users"), nearest);
    assert_eq!(gain("remote=arenas"), nearest);
    for set in ["remote=replicate", "remote=hand-over"] {
        let gain = gain(set);
        assert!(gain.value.is_finite() && gain.value <= nearest.value, "{set}: {gain:?}");
    }
    // Every fix of every finding has a price.
    let found = analysis.findings(Some(&machine));
    assert!(found.cannot_say.iter().all(|why| !why.contains("cannot be predicted")), "{:?}", found.cannot_say);
}

/// Four threads, one on each node, which meet: each second access is to one page, the others are to 63 more. All 64 lie on node 0.
fn with_a_hot_page() -> Trace {
    let (end, samples) = (100 * MS, 4000);
    let mut tables = Tables { end: TimeNs(end), ..Tables::default() };
    tables.processes.push(Process { end: Some(TimeNs(end)), ..Process::default() });
    let thread = |index: u16| Thread {
        index: ThreadIndex(u32::from(index)),
        node: Some(NodeId(index)),
        end: Some(TimeNs(end)),
        ..Thread::default()
    };
    tables.threads = (0..4).map(thread).collect();
    tables.sites.push(Site { kind: ObjectKind::Heap, name: "table".into(), ..Site::default() });
    let address = VirtAddr(0x7000_0000_0000);
    let (bytes, node) = (64 << 12, Some(NodeId(0)));
    let thread = Some(ThreadIndex(0));
    tables.objects.push(Object { address, bytes, thread, node, ..Object::default() });
    for sample in 0..samples {
        let offset = if sample % 2 == 0 { sample * 64 % 4096 } else { 4096 + sample * 7919 % (63 << 12) / 64 * 64 };
        for node in 0..4 {
            let mut access = AccessRef::at(address.0 + offset);
            access.time = TimeNs(sample * end / samples);
            access.thread = ThreadIndex(u32::from(node));
            access.object = Some(ObjectId(0));
            access.node = Some(NodeId(node));
            access.home = Some(NodeId(0));
            access.weight = 75;
            tables.accesses.push(&access);
        }
    }
    Trace::from_tables(tables)
}

#[test]
fn spreading_a_hot_page_leaves_the_other_pages_where_they_are() {
    let trace = with_a_hot_page();
    let (all, _) = gain(&trace, "table=interleave");
    let (hot, _) = gain(&trace, "table=spread");
    // At so low a load nothing queues: what interleaving does (here a loss, by node 0's own thread), half of the accesses do half of.
    assert!(all.abs() > 0.02, "{all}");
    let part = hot / all;
    assert!(part > 0.25 && part < 0.75, "{hot} by the hot page, {all} by all of them");
}

/// Four processes, each spread over four nodes of four CPUs, which read tables of their own on node 0. The first has a thread for each CPU and makes nearly
/// all accesses; the others have a thread on each node.
fn one_busy_process() -> Trace {
    let (end, samples) = (100 * MS, 600);
    let mut tables = Tables { end: TimeNs(end), ..Tables::default() };
    // Node and process of each thread.
    let others = (1..4_u32).flat_map(|process| (0..4_u16).map(move |node| (node, process)));
    let threads: Vec<(u16, u32)> = (0..16_u16).map(|thread| (thread / 4, 0_u32)).chain(others).collect();
    let thread = |(index, (node, process)): (usize, &(u16, u32))| Thread {
        index: ThreadIndex(index as u32),
        process: ProcessIndex(*process),
        node: Some(NodeId(*node)),
        end: Some(TimeNs(end)),
        ..Thread::default()
    };
    tables.threads = threads.iter().enumerate().map(thread).collect();
    let base = |process: u32| 0x7000_0000_0000 + u64::from(process) * 0x1000_0000;
    for process in 0..4_u32 {
        tables.processes.push(Process { index: ProcessIndex(process), end: Some(TimeNs(end)), ..Process::default() });
        tables.sites.push(Site { kind: ObjectKind::Heap, name: format!("table{process}").into(), ..Site::default() });
        let first = if process == 0 { 0 } else { 12 + 4 * process };
        tables.objects.push(Object {
            id: ObjectId(process),
            site: SiteId(process),
            process: ProcessIndex(process),
            address: VirtAddr(base(process)),
            bytes: 64 << 12,
            thread: Some(ThreadIndex(first)),
            node: Some(NodeId(0)),
            ..Object::default()
        });
    }
    for sample in 0..samples {
        // In an order in which neighbours are on different nodes.
        for index in (0..threads.len()).map(|turn| turn * 5 % threads.len()) {
            let (node, process) = threads[index];
            let offset = (sample * threads.len() as u64 + index as u64) * 7919 % (64 << 12) / 64 * 64;
            let mut access = AccessRef::at(base(process) + offset);
            access.time = TimeNs(sample * end / samples);
            access.thread = ThreadIndex(index as u32);
            access.object = Some(ObjectId(process));
            access.node = Some(NodeId(node));
            access.home = Some(NodeId(0));
            access.weight = if process == 0 { 500 } else { 80 };
            tables.accesses.push(&access);
        }
    }
    Trace::from_tables(tables)
}

#[test]
fn objects_are_judged_where_pinning_their_processes_gains_nothing() {
    let trace = one_busy_process();
    let (pinned, _) = gain(&trace, "processes=pin");
    let (copied, _) = gain(&trace, "table0=replicate");
    assert!(pinned < 0.0 && copied > 0.02, "{pinned} pinned, {copied} with copies");
    let machine = Machine::load("opteron-8385").expect("a model");
    let found = Analysis::on(&trace, Some(&machine), Filter::default()).findings(Some(&machine));
    let is_of_table = |finding: &Finding| finding.subject == Subject::Site(SiteId(0));
    assert!(found.findings.iter().any(is_of_table), "{:?}, {:?}", found.nothing, found.cannot_say);
}
