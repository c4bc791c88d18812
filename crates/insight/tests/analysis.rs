//! The figures of small hand-made traces, worked out by hand.

use numapilot_flows::{
    AccessRef, CountersAt, Filter, Frame, Location, LocationId, Object, ObjectKind, Site, SiteId, Tables, Thread, Trace,
};
use numapilot_host::VirtAddr;
use numapilot_insight::{Analysis, Estimate, Pattern, RowKey, Source, Verdict, imbalance_of, link_traffic};
use numapilot_machine::{Endpoint, Machine, NodeId};
use numapilot_trace::ids::{ObjectId, StackId, ThreadIndex, TimeNs};
use numapilot_trace::record::Counters;
use proptest::prelude::*;

const NODES: [NodeId; 4] = [NodeId(0), NodeId(1), NodeId(2), NodeId(3)];

/// One access: time, thread (on the node of the same number), object, offset, home, write.
type Sketch = (u64, u32, u32, u64, u16, bool);

fn trace(sketches: &[Sketch], weight: u32) -> Trace {
    Trace::from_tables(tables(sketches, weight))
}

fn tables(sketches: &[Sketch], weight: u32) -> Tables {
    let mut tables = Tables { end: TimeNs(1000), ..Tables::default() };
    tables.sites = vec![
        Site {
            kind: ObjectKind::Heap,
            name: "block".into(),
            file: "/src/stream.cpp".into(),
            line: 412,
            ..Site::default()
        },
        Site { kind: ObjectKind::Heap, name: "points".into(), ..Site::default() },
    ];
    for id in 0..3u32 {
        tables.objects.push(Object {
            id: ObjectId(id),
            site: SiteId(u32::from(id == 2)),
            address: VirtAddr(0x10_0000 * u64::from(id + 1)),
            bytes: 0x10_000,
            thread: Some(ThreadIndex(0)),
            ..Object::default()
        });
    }
    for index in 0..4u32 {
        let (index, node) = (ThreadIndex(index), Some(NodeId(index as u16)));
        tables.threads.push(Thread { index, node, ..Thread::default() });
    }
    let frame = Frame { function: "pgain".into(), ..Frame::default() };
    tables.locations = vec![Location::default(), Location { frames: vec![frame], ..Location::default() }];
    for &(time, thread, object, offset, home, is_write) in sketches {
        let address = 0x10_0000 * u64::from(object + 1) + offset;
        tables.accesses.push(&AccessRef {
            time: TimeNs(time),
            thread: ThreadIndex(thread),
            object: (object < 3).then_some(ObjectId(object)),
            node: Some(NodeId(thread as u16)),
            home: Some(NodeId(home)),
            location: LocationId(1),
            is_write,
            weight,
            cluster: f64::from(weight),
            ..AccessRef::at(address)
        });
    }
    tables
}

fn analysis(trace: &Trace) -> Analysis<'_> {
    Analysis::new(trace, &NODES, &NODES, Filter::default())
}

/// Pinning a thread to a CXL expander was said to avoid its remote accesses.
#[test]
fn no_thread_can_be_pinned_to_memory_without_cpus() {
    // The allocator (thread 0) alone: two accesses to node 2, which has no CPUs, one to node 1, and a local one.
    let accesses: [Sketch; 4] =
        [(1, 0, 0, 0, 2, false), (2, 0, 0, 8, 2, false), (3, 0, 0, 0x1000, 1, false), (4, 0, 0, 0x2000, 0, false)];
    let trace = trace(&accesses, 1);
    let machine = Machine::load("xeon-2s-cxl").unwrap();
    let analysis = Analysis::on(&trace, Some(&machine), Filter::default());
    assert_eq!(analysis.nodes_without_cpus(), [NodeId(2)]);
    let row = analysis.object(ObjectId(0)).unwrap();
    let pinned = row.avoidable_by_pinning.unwrap().value;
    assert!(row.remote.value == 0.75 && (pinned - 1.0 / 3.0).abs() < 1e-12, "{} remote, {pinned}", row.remote.value);
    let slow = analysis.headline().without_cpus.expect("a node without CPUs");
    assert_eq!((slow.nodes, slow.share), (vec![NodeId(2)], 0.5));
    assert_eq!(self::analysis(&trace).headline().without_cpus, None, "nothing is known of its CPUs");
}

/// An idle CXL expander made the verdict that controllers are unevenly loaded.
#[test]
fn memory_without_cpus_that_serves_nothing_is_no_imbalance() {
    let trace = trace(&[(1, 0, 0, 0, 0, false), (2, 1, 0, 0x1000, 1, false)], 1);
    let machine = Machine::load("xeon-2s-cxl").unwrap();
    let headline = Analysis::on(&trace, Some(&machine), Filter::default()).headline();
    assert!(headline.totals.imbalance.sample.value > 0.5, "{:?}", headline.totals.imbalance);
    assert_eq!(headline.verdict, Verdict::NothingToFix);
    let all_there = self::trace(&[(1, 0, 0, 0, 2, false), (2, 1, 0, 0x1000, 2, false)], 1);
    let verdict = Analysis::on(&all_there, Some(&machine), Filter::default()).headline().verdict;
    assert_eq!(verdict, Verdict::RemoteAndImbalanced, "one node serves everything");
}

#[test]
fn the_decision_row_by_hand() {
    // The allocator (thread 0) alone first, twice; then 1, 1, 2 and itself again; all at home on node 0, one page on node 1.
    let trace = trace(
        &[
            (1, 0, 0, 0, 0, true),
            (2, 0, 0, 8, 0, true),
            (3, 1, 0, 0, 0, false),
            (4, 1, 0, 0, 0, false),
            (5, 2, 0, 0, 0, false),
            (6, 0, 0, 0x1000, 1, false),
            (7, 1, 0, 0x1000, 1, false),
            (8, 1, 0, 0, 0, false),
            (9, 3, 3, 0, 2, false),
            (10, 0, 1, 0, 0, false),
        ],
        1,
    );
    let analysis = analysis(&trace);
    let row = analysis.object(ObjectId(0)).unwrap();
    let value = |estimate: Option<Estimate>| estimate.map(|estimate| estimate.value);
    assert_eq!((row.samples, row.accesses.value, row.share.value), (8, 8.0, 0.8));
    // Remote: 1, 1, 2, 0 (its page is on 1), 1: five of eight.
    assert_eq!((row.remote.value, row.local.value), (5.0 / 8.0, 3.0 / 8.0));
    assert_eq!(row.share_of_remote.value, 5.0 / 6.0);
    assert_eq!(value(row.avoidable_by_pinning), Some(1.0 / 5.0));
    // On node 1: its three remote accesses become local, two local ones of thread 0 become remote.
    assert_eq!(row.best_node, Some(NodeId(1)));
    assert_eq!(row.avoidable_by_allocating_elsewhere.value, 1.0 / 5.0);
    assert_eq!(
        row.from_node.iter().map(|share| share.value).collect::<Vec<_>>(),
        [3.0 / 8.0, 4.0 / 8.0, 1.0 / 8.0, 0.0]
    );
    assert_eq!(row.on_node.iter().map(|share| share.value).collect::<Vec<_>>(), [6.0 / 8.0, 2.0 / 8.0, 0.0, 0.0]);
    assert_eq!((value(row.by_allocator), value(row.before_others)), (Some(3.0 / 8.0), Some(2.0 / 8.0)));
    assert_eq!((row.writes.value, row.read_only_bound), (2.0 / 8.0, None));
    assert_eq!((row.threads, row.nodes, row.first_thread, row.first_by_allocator), (3, 3, Some(ThreadIndex(0)), 1));
    let sites = analysis.sites();
    assert_eq!(sites.iter().map(|row| row.key).collect::<Vec<_>>(), [RowKey::Site(SiteId(0)), RowKey::Unknown]);
    assert_eq!((sites[0].instances, sites[0].samples, sites[0].place.as_str()), (2, 9, "stream.cpp:412"));
    assert_eq!(sites[1].kind, ObjectKind::Unknown);
    let detail = analysis.object_detail(ObjectId(0), 10, 16).unwrap();
    assert_eq!(detail.pages.iter().map(|page| page.samples).collect::<Vec<_>>(), [6, 2]);
    assert_eq!(detail.pages[1].on_node, [0.0, 2.0, 0.0, 0.0]);
    assert_eq!(detail.threads[0].thread, ThreadIndex(1));
    assert_eq!(detail.mean_handover_ns, Some(1.0));
    assert_eq!(detail.series.bins.iter().map(|bin| bin.samples).sum::<u64>(), 8);
}

#[test]
fn the_allocations_of_a_site_are_split_by_the_callers_that_made_them() {
    // Both instances of site 0 come from `block_new`, called from two functions; another instance of the second is never accessed.
    let sketches = [(1, 0, 0, 0, 0, true), (2, 1, 1, 0, 0, false), (3, 1, 1, 64, 0, false), (4, 0, 1, 0, 0, false)];
    let mut tables = tables(&sketches, 10);
    let location = |function: &str, line| {
        let frame = Frame { function: function.into(), file: "/src/stream.cpp".into(), line, ..Frame::default() };
        Location { frames: vec![frame], ..Location::default() }
    };
    tables.locations.extend([
        location("block_new", 412),
        location("load", 7),
        location("grow", 9),
        location("main", 3),
    ]);
    let stack = |ids: &[u32]| ids.iter().map(|&id| LocationId(id)).collect::<Vec<_>>();
    tables.stacks = vec![Vec::new(), stack(&[2, 3, 5]), stack(&[2, 4, 5])];
    tables.objects[0].stack = StackId(1);
    tables.objects[1].stack = StackId(2);
    tables.objects[2].site = SiteId(0);
    tables.objects[2].stack = StackId(2);
    let trace = Trace::from_tables(tables);
    let detail = analysis(&trace).site_detail(SiteId(0), 10, 16).unwrap();
    let rows: Vec<_> =
        detail.callers.iter().map(|row| (row.instances, row.bytes, row.samples, row.path.join(" < "))).collect();
    let grow = "grow (stream.cpp:9) < main (stream.cpp:3)".to_owned();
    let load = "load (stream.cpp:7) < main (stream.cpp:3)".to_owned();
    assert_eq!(rows, [(2, 0x20_000, 3, grow), (1, 0x10_000, 1, load)]);
    assert_eq!((detail.callers[0].share.value, detail.callers[0].remote.value), (0.75, 2.0 / 3.0));
    // One call stack says nothing more than the site.
    assert!(analysis(&trace).object_detail(ObjectId(0), 10, 16).unwrap().callers.is_empty());
}

#[test]
fn the_published_picture_is_recognised() {
    // 16 threads' worth of accesses from all nodes to one array on node 0.
    let sketches: Vec<Sketch> = (0..4000)
        .map(|i| (i / 4, (i % 4) as u32, u32::from(i % 5 == 4) * 2, i * 16 % 0x10_000, 0, i % 3 == 0))
        .collect();
    let trace = trace(&sketches, 1000);
    let headline = analysis(&trace).headline();
    let top = headline.top.unwrap();
    assert_eq!(headline.verdict, Verdict::RemoteAndImbalanced);
    assert_eq!((top.name.as_str(), top.pattern), ("block", Pattern::SharedWritten));
    assert!((headline.totals.remote_share.value - 0.75).abs() < 1e-9 && headline.totals.source == Source::Sampled);
    assert!((headline.totals.imbalance.sample.value - 2.0).abs() < 1e-9);
    assert!((headline.totals.imbalance.population.value - 3f64.sqrt()).abs() < 1e-9);
    assert!((top.share.value - 0.8).abs() < 1e-9 && top.share.margin() > 0.01 && top.share.margin() < 0.02);
}

#[test]
fn unknown_homes_are_neither_local_nor_judged() {
    let sketches: Vec<Sketch> = (0..400).map(|i| (i / 4, (i % 4) as u32, 0, i * 16 % 0x10_000, 0, false)).collect();
    let mut tables = tables(&sketches, 1000);
    for known in [100, 300] {
        let rows: Vec<AccessRef> = Trace::from_tables(tables.clone()).accesses().collect();
        tables.accesses = Default::default();
        for (number, mut access) in rows.into_iter().enumerate() {
            access.home = (number < known).then_some(NodeId(0));
            tables.accesses.push(&access);
        }
        let trace = Trace::from_tables(tables.clone());
        let headline = analysis(&trace).headline();
        let top = headline.top.expect("an object");
        assert_eq!(headline.verdict == Verdict::HomesUnknown, known == 100, "{known}");
        assert_eq!(top.pattern == Pattern::HomesUnknown, known == 100, "{known}: {:?}", top.pattern);
    }
}

#[test]
fn counted_totals_are_exact_and_follow_threads_that_move() {
    let mut tables = Tables::default();
    let totals = |by_home: &[u64]| Counters {
        memory_accesses: by_home.iter().sum(),
        by_home: by_home.to_vec(),
        ..Counters::default()
    };
    let at = |time, node, by_home: &[u64]| CountersAt {
        time: TimeNs(time),
        thread: ThreadIndex(0),
        node: Some(NodeId(node)),
        totals: totals(by_home),
    };
    tables.counters = vec![at(10, 0, &[100, 0]), at(20, 1, &[100, 30])];
    let counters = Some(totals(&[150, 30]));
    tables.threads = vec![Thread { node: Some(NodeId(1)), counters, ..Thread::default() }];
    let trace = Trace::from_tables(tables);
    let analysis = Analysis::new(&trace, &NODES[..2], &NODES[..2], Filter::default());
    let matrix = analysis.matrix();
    let counts: Vec<Vec<f64>> = matrix.accesses.iter().map(|row| row.iter().map(|cell| cell.value).collect()).collect();
    assert_eq!((matrix.source, counts), (Source::Counted, vec![vec![100.0, 0.0], vec![50.0, 30.0]]));
    let totals = analysis.totals();
    assert_eq!((totals.accesses, totals.remote_share), (Estimate::exact(180.0), Estimate::exact(50.0 / 180.0)));
    let machine = Machine::load("opteron-8385").expect("a built-in model");
    let (links, unrouted) = link_traffic(&matrix, &machine, 1_000_000_000);
    let loaded: Vec<_> = links.iter().filter(|link| link.bytes > 0.0).collect();
    assert_eq!((loaded.len(), unrouted), (1, 0.0), "one hop, from the home to the thread's node");
    assert_eq!((loaded[0].from, loaded[0].to), (Endpoint::Node(NodeId(0)), Endpoint::Node(NodeId(1))));
    assert_eq!(loaded[0].bytes, 50.0 * 64.0);
    let peak = machine.link(loaded[0].link).expect("a link").bandwidth_bytes_per_s;
    assert_eq!(loaded[0].utilisation, Some(50.0 * 64.0 / peak));
}

/// Objects that were there before the recording have no allocating thread: the others of their site do not speak for them.
#[test]
fn what_a_few_objects_show_of_their_allocators_is_not_of_the_site() {
    let by_allocator = |others: u64| {
        let own = (0..10).map(|at| (at, 0, 0, 8 * at, 1, false));
        let sketches: Vec<Sketch> = own.chain((10..10 + others).map(|at| (at, 2, 1, 8 * at, 1, false))).collect();
        let mut tables = tables(&sketches, 1);
        tables.objects[1].thread = None;
        let trace = Trace::from_tables(tables);
        let row = analysis(&trace).sites().into_iter().next().expect("the site");
        assert_eq!((row.avoidable_by_pinning.is_some(), row.before_others.is_some()), (others <= 10, others <= 10));
        row.by_allocator
    };
    assert_eq!(by_allocator(10), Some(Estimate::exact(1.0)));
    assert_eq!(by_allocator(30), None);
}

#[test]
fn empty_traces_give_empty_figures() {
    let trace = Trace::from_tables(Tables::default());
    let analysis = Analysis::new(&trace, &[], &[], Filter::default());
    assert_eq!(analysis.headline().verdict, Verdict::NothingSeen);
    assert!(analysis.sites().is_empty() && analysis.functions().is_empty() && analysis.stacks().is_empty());
    assert!(analysis.object(ObjectId(0)).is_none() && analysis.thread_detail(ThreadIndex(0), 5).is_none());
    assert_eq!(analysis.series(4).bins.len(), 4);
    assert_eq!(imbalance_of(&[]).sample.value, 0.0);
}

proptest! {
    #[test]
    fn parts_add_up_whatever_the_trace(
        sketches in proptest::collection::vec((0..1000u64, 0..4u32, 0..4u32, 0..0x10_000u64, 0..4u16, any::<bool>()), 1..200),
        weight in 1..1000u32,
    ) {
        let trace = trace(&sketches, weight);
        let analysis = analysis(&trace);
        let total = (sketches.len() as f64) * f64::from(weight);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6 * b.max(1.0);
        let sites = analysis.sites();
        prop_assert!(near(sites.iter().map(|row| row.accesses.value).sum(), total));
        prop_assert!(near(sites.iter().map(|row| row.share.value).sum(), 1.0));
        let matrix = analysis.matrix();
        prop_assert!(near(matrix.accesses.iter().flatten().map(|cell| cell.value).sum(), total));
        prop_assert!(near(analysis.series(7).bins.iter().map(|bin| bin.accesses.value).sum(), total));
        prop_assert!(near(analysis.threads().iter().map(|row| row.accesses.value).sum(), total));
        prop_assert!(near(analysis.functions().iter().map(|row| row.share.value).sum(), 1.0));
        for row in sites.iter().chain(&analysis.objects(None, 10)) {
            let shares = [row.share, row.remote, row.local, row.share_of_remote, row.avoidable_by_allocating_elsewhere, row.writes];
            let optional = [row.avoidable_by_pinning, row.by_allocator, row.before_others];
            for share in shares.into_iter().chain(optional.into_iter().flatten()) {
                prop_assert!(0.0 <= share.low && share.low <= share.value + 1e-12);
                prop_assert!(share.value <= share.high + 1e-12 && share.high <= 1.0 + 1e-12);
            }
        }
    }
}
