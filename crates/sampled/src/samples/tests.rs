//! Which samples become accesses, and their homes.

use std::path::{Path, PathBuf};

use numapilot_flows::{PlacementCause, Trace};
use numapilot_perf::TaskChange;
use numapilot_trace::chunk::{ChunkWriter, SessionEnd, SessionStart, WriterOptions};
use numapilot_trace::engine::Engine;
use numapilot_trace::wire::Clock;

use super::*;
use numapilot_perf_events::places::{EventFact, MemoryBlocks};

use crate::{SharedWriter, TaskSource};

const KHZ: u32 = 1_000_000;

/// A recording of page faults on a machine of two nodes, and its writer.
fn faults(folder: &Path) -> (Samples, SharedWriter, PathBuf) {
    recorded_by(Engine::Fault, folder)
}

fn recorded_by(engine: Engine, folder: &Path) -> (Samples, SharedWriter, PathBuf) {
    let start = SessionStart {
        engine: engine.into(),
        command: vec!["synthetic".to_owned()],
        order_khz: KHZ,
        clock_khz: KHZ,
        ..SessionStart::default()
    };
    let dir = folder.join("t");
    let writer = SharedWriter::new(ChunkWriter::create(&dir, &start, WriterOptions::default()).unwrap());
    let places = Places {
        events: vec![EventFact { is_fault: true, ..EventFact::default() }],
        node_of_cpu: [(CpuId(0), NodeId(0)), (CpuId(1), NodeId(1))].into(),
        memory_nodes: vec![NodeId(0), NodeId(1)],
        leaves_first_touches: engine == Engine::Fault,
        ..Places::default()
    };
    let output = Output::new(writer.clone(), Clock { khz: KHZ, origin_cycles: 0 }, None);
    let tasks = Tasks::new(TaskSource { knows_all_mappings: true, ..TaskSource::default() });
    (Samples::new(output, tasks, places), writer, dir)
}

/// The trace of everything that was put in.
fn finished(mut samples: Samples, writer: SharedWriter, dir: &Path) -> Trace {
    samples.settle(u64::MAX).unwrap();
    samples.out().flush().unwrap();
    drop(samples);
    let end = SessionEnd { end_order: 3000, ..SessionEnd::default() };
    writer.into_inner().unwrap().finish(&end, false).unwrap();
    numapilot_flows::finalise(dir).unwrap();
    Trace::open(dir).unwrap()
}

fn fault(tid: u32, cpu: u32, address: u64) -> MemoryAccess<'static> {
    MemoryAccess { pid: Some(Pid(7)), tid: Some(Tid(tid)), cpu: Some(CpuId(cpu)), address, ..MemoryAccess::default() }
}

/// A kernel without memory hot-plug lists no memory blocks, and with SME a page's address may have the bit that says it is encrypted. Such samples' homes were
/// unknown: the kernel was asked for none that had a physical address.
#[test]
fn a_physical_address_that_names_no_node_tells_no_home() {
    let told = |block_bytes: u64, physical_address: Option<u64>| {
        let blocks = vec![MemoryBlocks { node: NodeId(0), blocks: vec![1] }];
        let places = Places { block_bytes, blocks, ..Places::default() };
        let output = Output::kept(Clock { khz: KHZ, origin_cycles: 0 });
        let samples = Samples::new(output, Tasks::new(TaskSource::default()), places);
        samples.is_home_told(&MemoryAccess { physical_address, ..MemoryAccess::default() })
    };
    const BLOCK: u64 = 128 << 20;
    assert_eq!([told(BLOCK, Some(0x1000)), told(BLOCK, None)], [true, false]);
    assert_eq!([told(0, Some(0x1000)), told(BLOCK, Some(1 << 51 | 0x1000))], [false, false]);
}

/// perf writes how many for each event, at the end (`__record__save_lost_samples` in `tools/perf/builtin-record.c`).
#[test]
fn samples_that_the_recordings_filter_dropped_are_counted_and_told() {
    let output = Output::kept(Clock { khz: KHZ, origin_cycles: 0 });
    let mut samples = Samples::new(output, Tasks::new(TaskSource::default()), Places::default());
    for count in [5, 7] {
        samples.side_band(&SideBand::Filtered { count }, &SampleId::default(), 0).unwrap();
    }
    let counts = samples.counts();
    assert_eq!((counts.filtered, counts.lost), (12, 0));
    assert!(counts.filtered_note().is_some_and(|note| note.contains("dropped 12 samples")));
}

/// arm64 gives programs 48 bits of address: its mappings and stacks are above what x86-64 has.
#[test]
fn all_of_the_lower_half_of_addresses_is_the_programs() {
    let folder = tempfile::tempdir().unwrap();
    let (mut samples, writer, dir) = faults(folder.path());
    for address in [0x40_0000, 0x7fff_ffff_f000, 0xaaaa_d000_0000, 0xffff_ffff_f000] {
        samples.put(&fault(7, 0, address), 1000, true).unwrap();
    }
    for address in [0xffff_0000_0000_0000, 0xffff_8000_0000_0000, u64::MAX] {
        samples.put(&fault(7, 0, address), 1000, true).unwrap();
    }
    // Memory that a program asked for beyond 48 bits.
    samples.put(&fault(7, 0, 1 << 51), 1000, true).unwrap();
    let counts = samples.counts();
    assert_eq!((counts.accesses, counts.kernel_addresses, counts.beyond_addresses), (4, 3, 1));
    assert!(counts.beyond_note().is_some_and(|note| note.starts_with("1 samples")));
    let trace = finished(samples, writer, &dir);
    let last = trace.accesses().map(|access| access.address.0).max();
    assert_eq!((last, trace.losses().inconsistent_records), (Some(0xffff_ffff_f000), 0));
}

/// SPE's traces of whole CPUs are read long after their accesses: those are of the thread that ran then, not of the one that runs now.
#[test]
fn an_access_that_is_read_late_is_of_the_thread_that_ran_then() {
    let folder = tempfile::tempdir().unwrap();
    let (mut samples, writer, dir) = faults(folder.path());
    let switch = |samples: &mut Samples, tid, out, time| {
        let id = SampleId { pid_tid: Some((Pid(7), Tid(tid))), cpu: Some(CpuId(0)), ..SampleId::default() };
        let record = SideBand::Switch { out, preempted: false, other: None };
        samples.side_band(&record, &id, time).unwrap();
    };
    for (tid, out, time) in [(7, false, 100), (7, true, 200), (8, false, 200), (8, true, 300), (9, false, 400)] {
        switch(&mut samples, tid, out, time);
    }
    let mut put = |time, page: u64, last_task| {
        let address = PageNumber(page).address();
        let access = MemoryAccess { cpu: Some(CpuId(0)), time, address, ..MemoryAccess::default() };
        samples.access(&AuxAccess { access, last_task }, 500).unwrap();
    };
    // Whoever ran at the end of the piece.
    for (time, page) in [(Some(150), 1), (Some(250), 2), (Some(450), 3)] {
        put(time, page, Some((Pid(7), Tid(8))));
    }
    // Before anything is known, between two tasks, and without a time.
    for time in [Some(50), Some(350), None] {
        put(time, 4, None);
        put(time, 5, Some((Pid(7), Tid(8))));
    }
    let counts = samples.counts();
    assert_eq!((counts.samples, counts.accesses, counts.without_thread), (9, 6, 3));
    let trace = finished(samples, writer, &dir);
    let tid = |access: &numapilot_flows::AccessRef| trace.thread(access.thread).unwrap().tid.0;
    let mut seen: Vec<_> = trace.accesses().map(|access| (access.address.page().0, tid(&access))).collect();
    seen.sort_unstable();
    assert_eq!(seen, [(1, 7), (2, 8), (3, 9), (5, 8), (5, 8), (5, 8)]);
}

/// SPE's packets have the machine's own numbers of threads (`contextidr_thread_switch`), records those of the recorder's namespace.
#[test]
fn threads_are_told_by_what_ran_where_packets_number_them_otherwise() {
    let counted = |is_in_container: bool| {
        let folder = tempfile::tempdir().unwrap();
        let (mut samples, _writer, _dir) = faults(folder.path());
        if is_in_container {
            samples.distrust_packets();
        }
        let (tid, address) = (Some(Tid(4711)), PageNumber(1).address());
        let access = MemoryAccess { cpu: Some(CpuId(0)), tid, address, ..MemoryAccess::default() };
        samples.access(&AuxAccess { access, last_task: Some((Pid(7), Tid(8))) }, 500).unwrap();
        let counts = samples.counts();
        (counts.accesses, counts.without_thread)
    };
    assert_eq!([counted(true), counted(false)], [(1, 0), (0, 1)]);
}

/// SPE samples what runs on the path of a mispredicted branch, too.
#[test]
fn accesses_of_operations_that_did_not_retire_are_counted_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let (mut samples, _writer, _dir) = faults(folder.path());
    for has_retired in [Some(true), Some(false), None] {
        samples.put(&MemoryAccess { has_retired, ..fault(7, 0, 0x10_0000) }, 1000, false).unwrap();
    }
    let counts = samples.counts();
    assert_eq!((counts.accesses, counts.not_retired), (3, 1));
    assert!(counts.retired_note().is_some_and(|note| note.starts_with("1 of 3 sampled accesses")));
}

/// A recorder in a container that sees whole CPUs: the kernel writes process 0 for every program outside of it.
#[test]
fn tasks_that_the_kernel_does_not_name_are_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let (mut samples, writer, dir) = faults(folder.path());
    for (pid, tid) in [(0, 0), (u32::MAX, u32::MAX), (0, 8), (7, 7)] {
        let access = MemoryAccess { pid: Some(Pid(pid)), ..fault(tid, 0, 0x1000) };
        samples.put(&access, 1000, true).unwrap();
    }
    let counts = samples.counts();
    assert_eq!((counts.accesses, counts.without_thread), (1, 3));
    let trace = finished(samples, writer, &dir);
    let pids: Vec<u32> = trace.processes().iter().map(|process| process.pid.0).collect();
    assert_eq!(pids, [7]);
}

fn anonymous(addr: u64, len: u64) -> Mapping<'static> {
    let mapping = Mapping { pid: Pid(7), tid: Tid(7), addr, len, path: b"//anon", ..Mapping::default() };
    Mapping { protection: Some(3), flags: Some(2), ..mapping }
}

/// The kernel does not record that memory is unmapped. Mapped again at its place, it is touched for the first time again.
#[test]
fn memory_that_is_mapped_again_has_no_home_of_before() {
    for engine in [Engine::Fault, Engine::Import] {
        let folder = tempfile::tempdir().unwrap();
        let (mut samples, writer, dir) = recorded_by(engine, folder.path());
        let made = |samples: &mut Samples, len, time| {
            let record = SideBand::Mmap(anonymous(0x10_0000, len));
            samples.side_band(&record, &SampleId::default(), time).unwrap();
        };
        made(&mut samples, 0x4000, 100);
        samples.put(&fault(7, 0, 0x10_0000), 200, true).unwrap();
        // It grows, which changes nothing for what was there.
        made(&mut samples, 0x8000, 300);
        samples.put(&fault(7, 1, 0x10_0000), 400, false).unwrap();
        made(&mut samples, 0x8000, 500);
        samples.put(&fault(7, 1, 0x10_0000), 600, false).unwrap();
        samples.put(&fault(7, 1, 0x10_0000), 700, true).unwrap();
        let trace = finished(samples, writer, &dir);
        let homes: Vec<_> = trace.accesses().map(|access| access.home.map(|node| node.0)).collect();
        // (The join takes what comes first for the first touch, where all faults are recorded.)
        let renewed = if engine == Engine::Fault { Some(1) } else { None };
        assert_eq!(homes, [Some(0), Some(0), renewed, Some(1)], "{engine:?}");
    }
}

/// While /proc is read the kernel's records are on already: what they say of before is no second process, thread or mapping.
#[test]
fn what_proc_has_shown_is_not_told_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (mut samples, writer, dir) = faults(folder.path());
    let mut tell = |record: &SideBand<'_>, time| samples.side_band(record, &SampleId::default(), time).unwrap();
    tell(&SideBand::Comm { pid: Pid(7), tid: Tid(7), name: b"app", by_exec: false }, 100);
    tell(&SideBand::Comm { pid: Pid(7), tid: Tid(8), name: b"app", by_exec: false }, 100);
    samples.found_mapping(&anonymous(0x10_0000, 0x4000), 0, 100).unwrap();
    samples.found(Pid(7), (0x10_0000, 1, NodeId(0)), 100).unwrap();
    samples.described(Pid(7), 500);
    let mut tell = |record: &SideBand<'_>, time| samples.side_band(record, &SampleId::default(), time).unwrap();
    let change = |parent_pid, tid, time| {
        let (pid, parent_pid, tid, parent_tid) = (Pid(7), Pid(parent_pid), Tid(tid), Tid(7));
        TaskChange { pid, parent_pid, tid, parent_tid, time }
    };
    tell(&SideBand::Fork(change(3, 7, 200)), 200);
    tell(&SideBand::Fork(change(7, 8, 300)), 300);
    tell(&SideBand::Mmap(anonymous(0x10_0000, 0x4000)), 400);
    // After that it is news.
    tell(&SideBand::Fork(change(7, 9, 600)), 600);
    tell(&SideBand::Mmap(anonymous(0x20_0000, 0x4000)), 600);
    for (tid, address) in [(7, 0x10_0000), (8, 0x10_0000), (9, 0x20_0000)] {
        samples.put(&fault(tid, 1, address), 700, false).unwrap();
    }
    let trace = finished(samples, writer, &dir);
    let mut tids: Vec<_> = trace.threads().iter().map(|thread| thread.tid.0).collect();
    tids.sort_unstable();
    assert_eq!((trace.processes().len(), tids), (1, vec![7, 8, 9]));
    let mut homes: Vec<_> = trace.accesses().map(|access| (access.address.0, access.home)).collect();
    homes.sort_unstable();
    let [found, made] = [(0x10_0000, Some(NodeId(0))), (0x20_0000, Some(NodeId(1)))];
    assert_eq!(homes, [found, found, made]);
}

/// As perf takes them at a frequency of one sample a second of a core that makes billions of accesses in one.
#[test]
fn samples_that_stand_for_more_than_a_weight_can_say_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (mut samples, writer, dir) = recorded_by(Engine::Import, folder.path());
    for period in [Some(1 << 32), Some((1 << 32) - 1), Some(0), None] {
        let access = MemoryAccess { period, ..fault(7, 0, 0x10_0000) };
        samples.put(&access, 1000, false).unwrap();
    }
    let counts = samples.counts();
    assert_eq!((counts.accesses, counts.of_more_weight), (4, 1));
    assert!(counts.weight_note().is_some_and(|note| note.starts_with("1 sample stands for more than 4294967295")));
    let mut weights: Vec<_> = finished(samples, writer, &dir).accesses().map(|access| access.weight).collect();
    weights.sort_unstable();
    assert_eq!(weights, [1, 1, u32::MAX, u32::MAX]);
}

/// A reader's hinting fault after the process has ended has no answer. It is no first touch for that: the page was placed by the fault before.
#[test]
fn a_later_fault_without_an_answer_places_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (mut samples, writer, dir) = faults(folder.path());
    samples.answers().insert((Pid(7), PageNumber(0x100)), NodeId(0));
    samples.put(&fault(7, 0, 0x10_0000), 1000, true).unwrap();
    samples.answers();
    samples.put(&fault(8, 1, 0x10_0000), 2000, true).unwrap();
    let trace = finished(samples, writer, &dir);
    let placed: Vec<_> = trace.placements().iter().map(|placed| (placed.cause, placed.node)).collect();
    assert_eq!(placed, [(PlacementCause::FirstTouch, NodeId(0))]);
    let seen: Vec<_> = trace.accesses().map(|access| (access.node, access.home)).collect();
    assert_eq!(seen, [(Some(NodeId(0)), Some(NodeId(0))), (Some(NodeId(1)), Some(NodeId(0)))]);
}
