//! The heap of small hand-made traces, worked out by hand.

use numapilot_flows::{Filter, NameError, Named, Object, ObjectKind, Site, SiteId, Tables, Thread, Trace};
use numapilot_insight::{Analysis, HeapProfile};
use numapilot_machine::NodeId;
use numapilot_trace::ids::{ObjectId, ThreadIndex, TimeNs};
use numapilot_trace::record::AllocKind;

/// A block: site, bytes, birth, allocating thread, and death with the freeing thread.
type Block = (u32, u64, u64, u32, Option<(u64, Option<u32>)>);

/// Ends after two microseconds of program time.
fn trace(blocks: &[Block]) -> Trace {
    let site = |kind, name: &str| Site { kind, name: name.into(), ..Site::default() };
    let sites =
        vec![site(ObjectKind::Heap, "buffer"), site(ObjectKind::Heap, "node"), site(ObjectKind::Static, "table")];
    let objects = blocks.iter().zip(0..).map(|(&(site, bytes, birth, thread, death), id)| Object {
        id: ObjectId(id),
        site: SiteId(site),
        bytes,
        birth: TimeNs(birth),
        death: death.map(|(at, _)| TimeNs(at)),
        death_thread: death.and_then(|(_, by)| by).map(ThreadIndex),
        thread: Some(ThreadIndex(thread)),
        node: Some(NodeId(thread as u16)),
        alloc_kind: (site != 2).then_some(if id == 0 { AllocKind::Realloc } else { AllocKind::Malloc }),
        ..Object::default()
    });
    let objects = objects.collect();
    let threads = (0..3).map(|index| Thread { index: ThreadIndex(index), ..Thread::default() }).collect();
    Trace::from_tables(Tables { end: TimeNs(2000), sites, objects, threads, ..Tables::default() })
}

fn heap(trace: &Trace, filter: Filter) -> HeapProfile {
    Analysis::on(trace, None, filter).heap().expect("blocks were recorded")
}

/// `buffer` is large, lives long and goes from thread 0 to thread 1; `node` is small, and one of its three blocks stays.
fn program() -> Trace {
    trace(&[
        (0, 1000, 100, 0, Some((900, Some(1)))),
        (1, 16, 200, 1, Some((210, Some(1)))),
        (1, 16, 300, 1, Some((340, Some(2)))),
        (0, 3000, 1000, 0, Some((1500, Some(0)))),
        (1, 16, 1100, 2, None),
        (2, 1 << 20, 0, 0, None),
    ])
}

#[test]
fn a_heap_profile_by_hand() {
    let trace = program();
    let heap = heap(&trace, Filter::default());
    assert_eq!((heap.peak_bytes, heap.peak_blocks, heap.peak_time), (3016, 2, Some(TimeNs(1100))));
    let total = heap.total;
    assert_eq!((total.allocations, total.reallocations, total.allocated_bytes), (5, 1, 4048));
    assert_eq!((total.frees, total.remote_frees, total.left_blocks, total.left_bytes), (4, Some(2), 1, 16));
    assert_eq!((total.allocating_threads, total.freeing_threads), (3, Some(3)));
    assert_eq!((total.allocations_per_second, total.bytes_per_second), (Some(5.0 / 2e-6), Some(4048.0 / 2e-6)));
    // Lifetimes 10, 40, 500, 800: of an even number, the upper middle one.
    assert_eq!(total.median_lifetime_ns, Some(500));
    let [buffer, node] = heap.sites.as_slice() else { panic!("{:?}", heap.sites) };
    assert_eq!((buffer.name.as_str(), buffer.at_peak_bytes, buffer.peak_live_bytes), ("buffer", 3000, 3000));
    assert_eq!((buffer.usage.frees, buffer.usage.remote_frees, buffer.usage.left_blocks), (2, Some(1), 0));
    assert_eq!((buffer.usage.allocating_threads, buffer.usage.freeing_threads), (1, Some(2)));
    assert_eq!((node.at_peak_bytes, node.peak_live_bytes, node.peak_live_blocks), (16, 16, 1));
    assert_eq!((node.usage.allocations, node.usage.median_lifetime_ns), (3, Some(40)));
}

#[test]
fn threads_that_allocate_and_threads_that_free() {
    let trace = program();
    let rows = heap(&trace, Filter::default()).threads;
    let row = |thread: u32| rows.iter().find(|row| row.thread == ThreadIndex(thread)).expect("a row").clone();
    let [zero, one, two] = [row(0), row(1), row(2)];
    assert_eq!((zero.allocations, zero.allocated_bytes, zero.freed_by_others), (2, 4000, Some(1)));
    assert_eq!((zero.frees, zero.frees_of_others), (Some(1), Some(0)));
    assert_eq!((one.allocations, one.frees, one.frees_of_others, one.freed_by_others), (2, Some(2), Some(1), Some(1)));
    assert_eq!((two.allocations, two.frees, two.frees_of_others), (1, Some(1), Some(1)));
}

#[test]
fn a_filter_selects_blocks_by_who_allocated_them_and_when() {
    let trace = program();
    let of_two = heap(&trace, Filter { thread: Some(ThreadIndex(2)), ..Filter::default() });
    assert_eq!((of_two.total.allocations, of_two.total.frees, of_two.total.median_lifetime_ns), (1, 0, None));
    // The peak is the recording's.
    assert_eq!((of_two.peak_bytes, of_two.sites[0].at_peak_bytes), (3016, 16));
    let late = heap(&trace, Filter { time: Some(TimeNs(1000)..TimeNs(u64::MAX)), ..Filter::default() });
    assert_eq!((late.total.allocations, late.total.allocations_per_second), (2, Some(2.0 / 1e-6)));
    let on_one = heap(&trace, Filter { node: Some(NodeId(1)), site: Some(SiteId(1)), ..Filter::default() });
    assert_eq!(on_one.total.allocations, 2);
    assert_eq!(heap(&trace, Filter { kind: Some(ObjectKind::Static), ..Filter::default() }).total.allocations, 0);
}

#[test]
fn an_older_trace_says_nothing_of_who_freed() {
    let trace = trace(&[(0, 8, 1, 0, Some((5, None))), (1, 8, 2, 0, None)]);
    let heap = heap(&trace, Filter::default());
    assert_eq!((heap.total.frees, heap.total.remote_frees, heap.total.freeing_threads), (1, None, None));
    assert_eq!((heap.threads[0].frees, heap.threads[0].freed_by_others), (None, None));
    // Nothing of `node` was freed, which is known.
    assert_eq!(heap.sites.iter().find(|row| row.name == "node").expect("a row").usage.remote_frees, Some(0));
}

#[test]
fn blocks_have_names_though_nobody_accessed_them() {
    let trace = program();
    assert_eq!(trace.blocks_named("node"), Ok(vec![Named::Site(SiteId(1))]));
    assert_eq!(trace.blocks_named("S0"), Ok(vec![Named::Site(SiteId(0))]));
    assert_eq!(trace.blocks_named("table"), Err(NameError::NoBlock));
    assert_eq!(trace.objects_named("node"), Err(NameError::NotAccessed));
}

#[test]
fn without_blocks_there_is_no_heap() {
    let trace = trace(&[(2, 4096, 0, 0, None)]);
    let analysis = Analysis::on(&trace, None, Filter::default());
    assert!(analysis.heap().is_none() && !analysis.is_heap_only());
    let program = program();
    assert!(Analysis::on(&program, None, Filter::default()).is_heap_only());
}
