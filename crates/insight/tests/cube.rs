//! The cube loses distinctions, never accesses: whatever the budget, its sums are those of the trace.

use std::collections::BTreeMap;

use numapilot_flows::{
    AccessRef, Filter, Location, LocationId, Object, ObjectKind, Site, SiteId, Tables, Thread, Trace,
};
use numapilot_insight::Analysis;
use numapilot_insight::cube::{Cube, FLAG_BEFORE_OTHERS, FLAG_BY_ALLOCATOR, FLAG_WRITE, Grain, NONE, ObjectKey, Rows};
use numapilot_machine::NodeId;
use numapilot_trace::ids::{ObjectId, StackId, ThreadIndex, TimeNs};
use proptest::prelude::*;

const OBJECTS: u32 = 40;
const THREADS: u32 = 12;
const NODES: u16 = 4;

/// One access: time, thread, object (past the last: none), home, write, weight, location, latency.
type Sketch = (u64, u32, u32, u16, bool, u32, u32, Option<u32>);

fn sketches() -> impl Strategy<Value = Vec<Sketch>> {
    let access = (
        0u64..1000,
        0..THREADS,
        0..OBJECTS + 1,
        0..NODES + 1,
        any::<bool>(),
        1u32..50,
        0u32..20,
        prop::option::of(1u32..5000),
    );
    prop::collection::vec(access, 0..400)
}

fn trace(sketches: &[Sketch]) -> Trace {
    let mut tables = Tables { end: TimeNs(1000), ..Tables::default() };
    let site = |index: u32| Site { kind: ObjectKind::Heap, name: format!("site{index}").into(), ..Site::default() };
    tables.sites = (0..10).map(site).collect();
    let object = |id: u32| Object {
        id: ObjectId(id),
        site: SiteId(id % 10),
        bytes: 1 << 20,
        thread: (!id.is_multiple_of(3)).then_some(ThreadIndex(id % THREADS)),
        ..Object::default()
    };
    tables.objects = (0..OBJECTS).map(object).collect();
    tables.threads = (0..THREADS).map(|index| Thread { index: ThreadIndex(index), ..Thread::default() }).collect();
    tables.locations = vec![Location::default(); 20];
    tables.stacks = (0..20).map(|location| vec![LocationId(location)]).collect();
    for &(time, thread, object, home, is_write, weight, location, latency_cycles) in sketches {
        tables.accesses.push(&AccessRef {
            time: TimeNs(time),
            thread: ThreadIndex(thread),
            object: (object < OBJECTS).then_some(ObjectId(object)),
            node: Some(NodeId(thread as u16 % NODES)),
            home: (home < NODES).then_some(NodeId(home)),
            location: LocationId(location),
            stack: StackId(location),
            is_write,
            weight,
            cluster: f64::from(weight),
            latency_cycles,
            ..AccessRef::at(u64::from(location) * 4096)
        });
    }
    Trace::from_tables(tables)
}

fn cube(trace: &Trace, budget: usize) -> Cube {
    let nodes: Vec<NodeId> = (0..NODES).map(NodeId).collect();
    Analysis::new(trace, &nodes, &nodes, Filter::default()).cube(budget)
}

/// Sums of weight by any property of a row.
fn by<K: Ord>(rows: &Rows, key: impl Fn(usize) -> K) -> BTreeMap<K, f64> {
    let mut sums = BTreeMap::new();
    for row in 0..rows.len() {
        *sums.entry(key(row)).or_insert(0.0) += rows.weight[row];
    }
    sums
}

proptest! {
    #[test]
    fn sums_are_those_of_the_trace(sketches in sketches(), budget in 0usize..500) {
        let trace = trace(&sketches);
        let cube = cube(&trace, budget);
        let rows = &cube.rows;
        let expected: f64 = sketches.iter().map(|sketch| f64::from(sketch.5)).sum();
        prop_assert_eq!(rows.weight.iter().sum::<f64>(), expected);
        prop_assert_eq!(rows.samples.iter().map(|&n| n as usize).sum::<usize>(), sketches.len());
        let mut nodes: BTreeMap<(u32, u32, bool), f64> = BTreeMap::new();
        for sketch in &sketches {
            let home = if sketch.3 < NODES { u32::from(sketch.3) } else { NONE };
            *nodes.entry((sketch.1 % u32::from(NODES), home, sketch.4)).or_insert(0.0) += f64::from(sketch.5);
        }
        prop_assert_eq!(by(rows, |row| (rows.from[row], rows.home[row], rows.flags[row] & FLAG_WRITE != 0)), nodes);
        let variance: f64 = sketches.iter().map(|sketch| f64::from(sketch.5) * f64::from(sketch.5 - 1)).sum();
        prop_assert!((rows.variance.iter().sum::<f64>() - variance).abs() < 1e-6);
        let instances: f64 = cube.instances.iter().map(|row| row.tally.weight).sum();
        let with_object = sketches.iter().filter(|sketch| sketch.2 < OBJECTS).map(|sketch| f64::from(sketch.5));
        prop_assert_eq!(instances, with_object.sum::<f64>());
    }

    #[test]
    fn what_is_kept_is_told_apart_and_what_is_not_is_counted(sketches in sketches(), budget in 1usize..200) {
        let trace = trace(&sketches);
        let cube = cube(&trace, budget);
        let rows = &cube.rows;
        let all: f64 = rows.weight.iter().sum();
        let keys = by(rows, |row| cube.objects[rows.object[row] as usize]);
        for (key, weight) in &keys {
            if let ObjectKey::Instance(id) = key {
                let own = cube.instances.iter().find(|row| row.object == *id).map(|row| row.tally.weight);
                prop_assert_eq!(own, Some(*weight), "an instance with rows has all of its accesses there");
            }
        }
        let folded: f64 = keys.iter().filter(|(key, _)| matches!(key, ObjectKey::RestOfSite(_) | ObjectKey::Others)).map(|(_, w)| w).sum();
        prop_assert!((folded - cube.folded.objects * all).abs() < 1e-6 * all.max(1.0));
        if let Grain::Cells(_) = cube.grain {
            prop_assert!(sketches.len() > budget);
            let latencies: f64 = cube.latencies.iter().map(|cell| cell.weight).sum();
            let measured = sketches.iter().filter(|sketch| sketch.7.is_some()).map(|sketch| f64::from(sketch.5));
            prop_assert_eq!(latencies, measured.sum::<f64>());
            // Readers tell which cells overlap a range of time by their slices' widths.
            let slice = |time: TimeNs, wide: u64| wide.is_multiple_of(cube.bin_ns) && (time.0 - cube.start.0).is_multiple_of(wide);
            prop_assert!(cube.latencies.iter().all(|cell| slice(cell.time, cube.latency_bin_ns)));
            prop_assert!(cube.pages.iter().all(|cell| slice(cell.time, cube.page_bin_ns)));
        } else {
            prop_assert_eq!(cube.folded.objects, 0.0);
            prop_assert_eq!(rows.len(), sketches.len());
        }
    }
}

#[test]
fn the_ladder_is_descended_until_the_cells_fit() {
    let sketches: Vec<Sketch> = (0..20_000u64)
        .map(|i| {
            (
                i % 1000,
                (i % 12) as u32,
                (i * 7 % 40) as u32,
                (i * 11 % 4) as u16,
                i.is_multiple_of(5),
                1,
                (i * 13 % 20) as u32,
                None,
            )
        })
        .collect();
    let trace = trace(&sketches);
    let (fine, coarse) = (cube(&trace, 15_000), cube(&trace, 1500));
    let (Grain::Cells(finer), Grain::Cells(coarser)) = (fine.grain, coarse.grain) else { panic!("cells") };
    assert!(fine.rows.len() <= 15_000 && coarse.rows.len() <= 1500, "{} and {}", fine.rows.len(), coarse.rows.len());
    assert!(finer.time_bins > coarser.time_bins && finer.instances > coarser.instances);
    assert!(coarse.folded.objects > fine.folded.objects);
}

#[test]
fn flags_tell_the_allocating_thread_until_somebody_else_comes() {
    // Object 1 is thread 1's: it comes twice, then thread 2, then thread 1 again.
    let sketch = |time, thread| (time, thread, 1, 0, false, 1, 0, None);
    let cube = cube(&trace(&[sketch(1, 1), sketch(2, 1), sketch(3, 2), sketch(4, 1)]), 100);
    let has = |flag: u8| cube.rows.flags.iter().map(|flags| flags & flag != 0).collect::<Vec<_>>();
    assert_eq!(has(FLAG_BY_ALLOCATOR), [true, true, false, true]);
    assert_eq!(has(FLAG_BEFORE_OTHERS), [true, true, false, false]);
}
