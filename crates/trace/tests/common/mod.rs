//! Generators that the tests share: arbitrary records of every type, and rings that look like a real program's.
#![allow(dead_code, missing_docs)]

pub mod realistic;

use numapilot_host::VirtAddr;
use numapilot_machine::{CpuId, NodeId};
use numapilot_random::Xorshift;
use numapilot_trace::ids::*;
use numapilot_trace::record::*;
use proptest::prelude::*;

const ADDRESS: std::ops::Range<u64> = 0..1 << 48;

fn address() -> impl Strategy<Value = VirtAddr> {
    ADDRESS.prop_map(VirtAddr)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-zA-Z0-9_/.é]{1,40}", "[a-z/]{1900,2500}"]
}

fn node() -> impl Strategy<Value = NodeId> {
    (0..64u16).prop_map(NodeId)
}

fn cpu() -> impl Strategy<Value = Option<CpuId>> {
    proptest::option::of((0..1024u32).prop_map(CpuId))
}

pub fn access() -> impl Strategy<Value = Access> {
    let level = proptest::sample::select(vec![
        Level::Unknown,
        Level::L1,
        Level::L2,
        Level::L3,
        Level::Memory,
        Level::PeerCache,
    ]);
    let place = (address(), cpu(), proptest::option::of(node()), address());
    let rest = (any::<[bool; 3]>(), level, proptest::option::of(1..u32::MAX), any::<u32>(), any::<u32>());
    let page = (any::<Option<bool>>(), 0..64u8);
    let page = page.prop_map(|(was_present, size_log2)| FaultedPage { was_present, size_log2 });
    (place, rest, page).prop_map(|((address, cpu, home, ip), (flags, level, latency_cycles, stack, weight), page)| {
        Access {
            address,
            cpu,
            node: None,
            home,
            is_write: flags[0],
            is_atomic: flags[1],
            is_range: flags[2],
            level,
            latency_cycles,
            ip,
            stack: StackId(stack),
            weight,
            page,
        }
    })
}

fn alloc_kind() -> impl Strategy<Value = AllocKind> {
    use AllocKind::*;
    proptest::sample::select(vec![Malloc, Calloc, Realloc, Aligned, New, NewArray, Numa, Brk, Shm])
}

fn memory_event() -> impl Strategy<Value = Event> {
    let sizes = prop_oneof![0..1u64 << 20, any::<u64>()];
    let id = any::<u32>();
    prop_oneof![
        access().prop_map(Event::Access),
        (address(), sizes, alloc_kind(), id).prop_map(|(address, bytes, kind, stack)| Event::Alloc {
            address,
            bytes,
            kind,
            stack: StackId(stack)
        }),
        address().prop_map(|address| Event::Free { address }),
        (address(), any::<u64>(), any::<u32>(), any::<u64>(), text(), id).prop_map(
            |(address, bytes, flags, file_offset, path, stack)| {
                Event::Map { address, bytes, flags, file_offset, path, stack: StackId(stack) }
            }
        ),
        (address(), any::<u64>()).prop_map(|(address, bytes)| Event::Unmap { address, bytes }),
        (address(), any::<[u64; 5]>(), proptest::option::of(node())).prop_map(|(address, words, node)| {
            let [device, inode, born, offset, bytes] = words;
            Event::File { address, file: FileIdentity { device, inode, born }, offset, bytes, node }
        }),
        (id, proptest::collection::vec(address(), 0..300), any::<[bool; 2]>()).prop_map(|(stack, frames, flags)| {
            Event::Stack { id: StackId(stack), frames, truncated: flags[0], failed: flags[1] }
        }),
        (address(), any::<u32>(), node(), 0..5u8, proptest::option::of(id)).prop_map(
            |(address, pages, node, cause, toucher)| {
                Event::Place { address, pages, node, cause, toucher: toucher.map(ThreadIndex) }
            }
        ),
    ]
}

fn life_event() -> impl Strategy<Value = Event> {
    let thread = (any::<[u32; 5]>(), proptest::option::of(0..1000u32), cpu(), proptest::option::of(node()));
    let arguments = proptest::collection::vec("[a-z]{0,9}", 0..6);
    let parent = || proptest::option::of(0..1000u32);
    prop_oneof![
        (thread, address(), address(), address()).prop_map(|((ids, parent, cpu, node), low, high, start)| {
            Event::ThreadStart {
                index: ThreadIndex(ids[0]),
                pid: Pid(ids[1]),
                tid: Tid(ids[2]),
                parent: parent.map(ThreadIndex),
                process: ProcessIndex(ids[3]),
                cpu,
                node,
                stack_low: low,
                stack_high: high,
                start_routine: start,
                created_at: StackId(ids[4]),
            }
        }),
        any::<u32>().prop_map(|index| Event::ThreadEnd { index: ThreadIndex(index) }),
        text().prop_map(|name| Event::ThreadName { name }),
        (any::<[u32; 3]>(), parent(), any::<bool>(), text(), arguments).prop_map(
            |(ids, parent, by_exec, exe, arguments)| Event::ProcessStart {
                index: ProcessIndex(ids[0]),
                pid: Pid(ids[1]),
                parent_pid: Pid(ids[2]),
                parent: parent.map(ProcessIndex),
                by_exec,
                exe,
                arguments,
            }
        ),
        (any::<u32>(), any::<bool>(), any::<i32>()).prop_map(|(index, by_exec, code)| Event::ProcessEnd {
            index: ProcessIndex(index),
            by_exec,
            code
        }),
        (any::<u32>(), address(), any::<[u64; 2]>(), text(), proptest::collection::vec(any::<u8>(), 0..33)).prop_map(
            |(id, address, sizes, path, build_id)| Event::Module {
                id: ModuleId(id),
                address,
                bytes: sizes[0],
                bias: sizes[1],
                path,
                build_id,
            }
        ),
        any::<u32>().prop_map(|id| Event::ModuleEnd { id: ModuleId(id) }),
    ]
}

fn other_event() -> impl Strategy<Value = Event> {
    let counts = (
        any::<[u64; 7]>(),
        proptest::option::of(any::<(u64, u64, Option<u64>)>()),
        proptest::collection::vec(any::<u64>(), 0..65),
    );
    prop_oneof![
        (0..1024u32, node()).prop_map(|(cpu, node)| Event::Cpu { cpu: CpuId(cpu), node }),
        (0..17u32, 0..1u64 << 48, 0..1u64 << 40).prop_map(|(kind, object, began)| Event::Sync {
            kind,
            object,
            began: TimeNs(began)
        }),
        counts.prop_map(|(totals, later, by_home)| Event::Counters(Box::new(Counters {
            accesses: totals[0],
            l2_lookups: totals[1],
            l3_lookups: totals[2],
            memory_accesses: totals[3],
            cache_transfers: totals[4],
            memory_writes: totals[5],
            wait_cycles: totals[6],
            by_home,
            memory_cycles: later.map(|later| later.0),
            memory_streamed: later.map(|later| later.1),
            memory_dependent: later.and_then(|later| later.2),
        }))),
        (0..1u64 << 48, any::<u32>()).prop_map(|(count, cause)| Event::Lost { count, cause }),
        text().prop_map(|text| Event::Mark { text }),
        code().prop_map(Event::Code),
        pool_event(),
    ]
}

fn pool_event() -> impl Strategy<Value = Event> {
    let id = any::<u32>();
    let what = prop_oneof![text().prop_map(PoolEvent::Created), Just(PoolEvent::Reset), Just(PoolEvent::Destroyed)];
    prop_oneof![
        (id, what).prop_map(|(pool, what)| Event::Pool { pool, what }),
        (address(), any::<u64>(), id, id, proptest::option::of(0..u32::MAX), block_sample()).prop_map(
            |(address, bytes, pool, stack, thread, sample)| {
                let (stack, thread) = (StackId(stack), thread.map(ThreadIndex));
                Event::PoolAlloc { address, bytes, pool, stack, thread, sample }
            }
        ),
        (address(), id).prop_map(|(address, pool)| Event::PoolFree { address, pool }),
    ]
}

fn block_sample() -> impl Strategy<Value = Option<BlockSample>> {
    let sample = (any::<u32>(), any::<bool>());
    proptest::option::of(sample.prop_map(|(interval_bytes, is_moved)| BlockSample { interval_bytes, is_moved }))
}

fn code() -> impl Strategy<Value = Code> {
    let table = proptest::collection::vec(any::<u8>(), 0..40);
    (0..1u64 << 42, any::<u16>(), text(), text(), any::<u32>(), table)
        .prop_map(|(id, minor, name, file, first_line, table)| Code { id, minor, name, file, first_line, table })
}

/// An event of any type that the wire can hold.
pub fn event() -> impl Strategy<Value = Event> {
    prop_oneof![memory_event(), life_event(), other_event()]
}

/// Records of one ring with stamps that mostly step forward, sometimes far and sometimes back.
pub fn records(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Record>> {
    let step = prop_oneof![9 => 0..100_000u64, 1 => 0..1u64 << 41];
    let steps = proptest::collection::vec((event(), step.clone(), step, 0..40u8), count);
    steps.prop_map(|steps| {
        let (mut order, mut time) = (1u64 << 50, 0);
        let mut thread = ThreadIndex(u32::MAX);
        let mut out = Vec::new();
        for (event, order_step, time_step, back) in steps {
            order = if back == 0 { order - order_step % 1000 } else { order + order_step };
            time += time_step;
            if let Event::ThreadStart { index, .. } = &event {
                thread = *index;
            }
            out.push(Record { stamp: Stamp { order: Order(order), time: TimeNs(time) }, thread, event });
        }
        out
    })
}

/// Seconds that this thread has run on a CPU: rates measured by it do not depend on what else the machine does.
pub fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

pub fn record(order: u64, time: u64, thread: u32, event: Event) -> Record {
    Record { stamp: Stamp { order: Order(order), time: TimeNs(time) }, thread: ThreadIndex(thread), event }
}

/// The ring of one thread: its start, then `count` accesses with an allocation and a free now and then.
pub fn thread_ring(thread: u32, count: usize, random: &mut Xorshift) -> Vec<Record> {
    let (mut order, mut time) = (1_000_000 + u64::from(thread) * 777, u64::from(thread) * 1000);
    let start = Event::ThreadStart {
        index: ThreadIndex(thread),
        pid: Pid(4242),
        tid: Tid(4242 + thread),
        parent: (thread > 0).then_some(ThreadIndex(0)),
        process: ProcessIndex(0),
        cpu: Some(CpuId(thread)),
        node: Some(NodeId((thread % 4) as u16)),
        stack_low: VirtAddr(0x7f00_0000_0000),
        stack_high: VirtAddr(0x7f00_0080_0000),
        start_routine: VirtAddr(0x40_1000),
        created_at: StackId(1),
    };
    let mut out = vec![record(order, time, thread, start)];
    for step in 0..count {
        order += 500 + random.below(200_000);
        time += 1000 + random.below(100_000);
        let address = VirtAddr(0x7f12_3456_0000 + random.below(1 << 27) * 8);
        let event = match step % 50 {
            10 => Event::Alloc { address, bytes: random.below(4096), kind: AllocKind::New, stack: StackId(3) },
            20 => Event::Free { address },
            _ => Event::Access(Access {
                address,
                cpu: Some(CpuId(thread)),
                home: Some(NodeId(random.below(4) as u16)),
                is_write: random.below(4) == 0,
                level: Level::Memory,
                latency_cycles: Some(300),
                ip: VirtAddr(0x40_2000 + random.below(64) * 4),
                stack: StackId(random.below(30) as u32),
                weight: 1000,
                ..Access::default()
            }),
        };
        out.push(record(order, time, thread, event));
    }
    out
}
