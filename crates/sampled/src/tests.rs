//! Records of processes as the kernel writes them, from the side band to the trace: what is kept, who begins and ends, whose memory it is.

use std::path::{Path, PathBuf};

use numapilot_flows::Trace;
use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_machine::{CpuId, NodeId};
use numapilot_perf::abi::{CONTEXT_USER, CONTEXT_USER_DEFERRED};
use numapilot_perf::{Bytes, Endian, EventAttr, Mapping, MemoryAccess, Sample, SampleId, SideBand, TaskChange};
use numapilot_perf_events::places::{EventFact, Places};
use numapilot_trace::chunk::{ChunkWriter, SessionEnd, SessionStart, WriterOptions};
use numapilot_trace::engine::Engine;
use numapilot_trace::ids::{ProcessIndex, ThreadIndex};
use numapilot_trace::wire::Clock;

use super::order::AuxAccess;
use super::{Announcement, Output, Samples, SharedWriter, TaskSource, Tasks};

const KHZ: u32 = 1_000_000;
const PAGE: u64 = 4096;
const BASE: u64 = 0x7f00_0000_0000;
const ANONYMOUS: &[u8] = b"//anon";

/// A recording of accesses on a machine of two nodes, whose kernel is the test.
struct Lab {
    samples: Samples,
    writer: SharedWriter,
    folder: tempfile::TempDir,
    time: u64,
}

impl Lab {
    fn new(known: TaskSource) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let start = SessionStart {
            engine: Engine::Import.into(),
            command: vec!["synthetic".to_owned()],
            order_khz: KHZ,
            clock_khz: KHZ,
            ..SessionStart::default()
        };
        let writer = ChunkWriter::create(&folder.path().join("t"), &start, WriterOptions::default()).unwrap();
        let writer = SharedWriter::new(writer);
        let places = Places {
            events: vec![EventFact::default()],
            node_of_cpu: [(CpuId(0), NodeId(0)), (CpuId(1), NodeId(1))].into(),
            memory_nodes: vec![NodeId(0), NodeId(1)],
            ..Places::default()
        };
        let output = Output::new(writer.clone(), Clock { khz: KHZ, origin_cycles: 0 }, None);
        Lab { samples: Samples::new(output, Tasks::new(known), places), writer, folder, time: 100 }
    }

    /// The next record of the kernel's. Its time.
    fn tell(&mut self, record: &SideBand<'_>) -> u64 {
        self.time += 10;
        let record = match *record {
            SideBand::Fork(change) => SideBand::Fork(TaskChange { time: self.time, ..change }),
            SideBand::Exit(change) => SideBand::Exit(TaskChange { time: self.time, ..change }),
            other => other,
        };
        self.samples.side_band(&record, &SampleId::default(), self.time).unwrap();
        self.time
    }

    fn exec(&mut self, pid: u32) {
        let (pid, tid) = (Pid(pid), Tid(pid));
        self.tell(&SideBand::Comm { pid, tid, name: b"app", by_exec: true });
    }

    fn fork(&mut self, (pid, tid): (u32, u32), (parent_pid, parent_tid): (u32, u32)) {
        let (pid, tid, parent_pid, parent_tid) = (Pid(pid), Tid(tid), Pid(parent_pid), Tid(parent_tid));
        self.tell(&SideBand::Fork(TaskChange { pid, tid, parent_pid, parent_tid, time: 0 }));
    }

    fn exit(&mut self, pid: u32, tid: u32) -> u64 {
        let (pid, tid) = (Pid(pid), Tid(tid));
        self.tell(&SideBand::Exit(TaskChange { pid, tid, parent_pid: pid, parent_tid: Tid::first_of(pid), time: 0 }))
    }

    fn map(&mut self, mapping: Mapping<'_>) {
        self.tell(&SideBand::Mmap(mapping));
    }

    /// A mapping that /proc shows when recording begins.
    fn found(&mut self, mapping: Mapping<'_>) {
        self.samples.found_mapping(&mapping, 0, self.time).unwrap();
    }

    /// An access of a thread's to an address, by an instruction.
    fn access(&mut self, (pid, tid): (u32, u32), address: u64, ip: u64) {
        self.time += 10;
        let (pid, tid, cpu, ip) = (Some(Pid(pid)), Some(Tid(tid)), Some(CpuId(0)), Some(ip));
        let access = MemoryAccess { pid, tid, cpu, ip, address, ..MemoryAccess::default() };
        let last_task = pid.zip(tid);
        self.samples.access(&AuxAccess { access, last_task }, self.time).unwrap();
    }

    /// A sample of a thread's with a call chain.
    fn sample(&mut self, (pid, tid): (u32, u32), address: u64) {
        self.time += 10;
        let words = [CONTEXT_USER, 0x40_1000, 0x40_2000].map(u64::to_le_bytes).concat();
        let callchain = Bytes::new(&words, 0, Endian::Little).words(3, "a call chain").ok();
        let (pid_tid, addr, cpu) = (Some((Pid(pid), Tid(tid))), Some(address), Some(CpuId(0)));
        let sample = Sample { pid_tid, addr, cpu, callchain, ..Sample::default() };
        self.samples.sample(0, &EventAttr::default(), &sample, self.time).unwrap();
    }

    fn finished(mut self) -> Trace {
        self.samples.settle(u64::MAX).unwrap();
        self.samples.out().flush().unwrap();
        drop(self.samples);
        let end = SessionEnd { end_order: self.time + 100, ..SessionEnd::default() };
        self.writer.into_inner().unwrap().finish(&end, false).unwrap();
        let dir: PathBuf = self.folder.path().join("t");
        numapilot_flows::finalise(&dir).unwrap();
        Trace::open(&dir).unwrap()
    }
}

/// `perf record --call-graph fp,defer`: the stacks were missing without a word.
#[test]
fn call_stacks_that_come_in_records_of_their_own_are_told() {
    let mut lab = Lab::new(TaskSource::default());
    lab.sample((7, 7), BASE);
    assert_eq!(lab.samples.counts().stacks_note(), None);
    let words = [CONTEXT_USER_DEFERRED, 0x7_0000_0001].map(u64::to_le_bytes).concat();
    let callchain = Bytes::new(&words, 0, Endian::Little).words(2, "a call chain").ok();
    let pid_tid = Some((Pid(7), Tid(7)));
    let sample = Sample { pid_tid, addr: Some(BASE), cpu: Some(CpuId(0)), callchain, ..Sample::default() };
    lab.samples.sample(0, &EventAttr::default(), &sample, lab.time + 10).unwrap();
    let note = lab.samples.counts().stacks_note().expect("one is not known");
    assert!(note.starts_with("the call stacks of 1 access are in records of their own"), "{note}");
}

fn anonymous(pid: u32, addr: u64, pages: u64) -> Mapping<'static> {
    let mapping =
        Mapping { pid: Pid(pid), tid: Tid(pid), addr, len: pages * PAGE, path: ANONYMOUS, ..Mapping::default() };
    Mapping { protection: Some(3), flags: Some(2), ..mapping }
}

/// The object of each access, in the order of time.
fn objects(trace: &Trace) -> Vec<Option<u32>> {
    let mut found: Vec<_> =
        trace.accesses().map(|access| (access.time, access.object.map(|object| object.0))).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, object)| object).collect()
}

/// A shell that starts one process after the other, none of which is sampled.
#[test]
fn processes_that_end_without_a_sample_leave_nothing_behind() {
    let mut lab = Lab::new(TaskSource { knows_all_mappings: true, ..TaskSource::default() });
    lab.exec(7);
    let mut kept = Vec::new();
    for pid in 1000..1300 {
        lab.fork((pid, pid), (7, 7));
        lab.exec(pid);
        for number in 0..60 {
            lab.map(anonymous(pid, BASE + 2 * number * PAGE, 1));
        }
        // A child of its own that outlives it, and one that does not.
        for child in [2000 + pid, 4000 + pid] {
            lab.fork((child, child), (pid, pid));
            lab.map(anonymous(child, BASE + PAGE, 1));
        }
        lab.fork((pid, 6000 + pid), (pid, pid));
        lab.exit(2000 + pid, 2000 + pid);
        lab.exit(pid, pid);
        lab.exit(pid, 6000 + pid);
        lab.exit(4000 + pid, 4000 + pid);
        kept.push(lab.samples.kept());
    }
    assert!(kept.iter().all(|now| *now == kept[0]), "{:?} and {:?}", kept.first(), kept.last());
}

/// A build, all of whose processes are sampled.
#[test]
fn processes_that_end_with_samples_leave_nothing_behind() {
    for writes_forks in [false, true] {
        let mut lab = Lab::new(TaskSource { knows_all_mappings: true, writes_forks, ..TaskSource::default() });
        lab.exec(7);
        lab.sample((7, 7), BASE);
        let mut kept = Vec::new();
        for pid in 1000..1100 {
            lab.fork((pid, pid), (7, 7));
            lab.sample((pid, pid), BASE);
            lab.exec(pid);
            lab.map(anonymous(pid, BASE, 1));
            let (thread, child) = ((pid, 6000 + pid), (2000 + pid, 2000 + pid));
            lab.fork(thread, (pid, pid));
            lab.fork(child, (pid, pid));
            for task in [(pid, pid), thread, child] {
                lab.sample(task, BASE);
            }
            lab.exit(pid, pid);
            lab.samples.out().flush().unwrap();
            lab.exit(thread.0, thread.1);
            lab.exit(child.0, child.1);
            lab.samples.out().flush().unwrap();
            kept.push((lab.samples.kept(), lab.samples.kept_of_threads(), lab.samples.out().open_rings()));
        }
        assert!(kept.iter().all(|now| *now == kept[0]), "{:?} and {:?}", kept.first(), kept.last());
        let trace = lab.finished();
        assert_eq!((trace.processes().len(), trace.accesses().count()), (301, 401), "{writes_forks}");
        let ended = trace.processes().iter().filter(|process| process.end.is_some()).count();
        assert_eq!((ended, trace.threads().len()), (300, 401), "{writes_forks}");
    }
}

/// A program that goes on in a child of its own, again and again, and is sampled only at its end. Its ancestors were written one inside the other, until the
/// thread's stack was full.
#[test]
fn a_long_line_of_processes_is_written() {
    const FIRST: u32 = 1000;
    const LINE: u32 = 10_000;
    for (writes_forks, end) in [(false, true), (true, true), (true, false)] {
        let mut lab = Lab::new(TaskSource { writes_forks, ..TaskSource::default() });
        lab.exec(FIRST);
        for pid in FIRST..FIRST + LINE {
            lab.fork((pid + 1, pid + 1), (pid, pid));
            if end {
                lab.exit(pid, pid);
            }
        }
        assert_eq!(lab.samples.out().written(), (0, 0), "nothing was sampled");
        lab.sample((FIRST + LINE, FIRST + LINE), BASE);
        let (records, samples) = lab.samples.out().written();
        // Each has a thread and a process.
        assert!(records > 2 * u64::from(LINE) && samples == 1, "{records} records, {samples} samples");
    }
}

/// A server with a thread for each connection.
#[test]
fn threads_that_end_leave_nothing_behind_while_their_process_runs() {
    let mut lab = Lab::new(TaskSource { knows_all_mappings: true, ..TaskSource::default() });
    lab.exec(7);
    lab.sample((7, 7), BASE);
    let mut kept = Vec::new();
    for tid in 1000..1100 {
        let (thread, created) = ((7, tid), (7, 2000 + tid));
        lab.fork(thread, (7, 7));
        lab.fork(created, thread);
        lab.sample(thread, BASE);
        lab.exit(thread.0, thread.1);
        // Its creator has ended, and is named all the same.
        lab.sample(created, BASE);
        lab.exit(created.0, created.1);
        lab.samples.out().flush().unwrap();
        kept.push((lab.samples.kept(), lab.samples.kept_of_threads(), lab.samples.out().open_rings()));
    }
    assert!(kept.iter().all(|now| *now == kept[0]), "{:?} and {:?}", kept.first(), kept.last());
    let trace = lab.finished();
    let of = |tid| trace.threads().iter().find(|thread| thread.tid == Tid(tid));
    for tid in 1000..1100 {
        let (creator, created) = (of(tid).unwrap(), of(2000 + tid).unwrap());
        assert_eq!(created.parent, Some(creator.index), "{tid}");
    }
}

/// Where the tracker announces threads, a short one has ended before that is waited for no longer.
#[test]
fn threads_that_end_before_they_are_announced_leave_nothing_behind_either() {
    let tracker = Some("/lib/tracker.so".to_owned());
    let mut lab = Lab::new(TaskSource { tracker, knows_all_mappings: true, ..TaskSource::default() });
    lab.exec(7);
    lab.sample((7, 7), BASE);
    lab.samples.settle(u64::MAX).unwrap();
    let mut kept = Vec::new();
    for tid in 1000..1100 {
        lab.fork((7, tid), (7, 7));
        lab.sample((7, tid), BASE);
        lab.exit(7, tid);
        lab.samples.settle(u64::MAX).unwrap();
        lab.samples.out().flush().unwrap();
        kept.push((lab.samples.kept(), lab.samples.kept_of_threads(), lab.samples.out().open_rings()));
    }
    assert!(kept.iter().all(|now| *now == kept[0]), "{:?} and {:?}", kept.first(), kept.last());
    let trace = lab.finished();
    assert_eq!((trace.threads().len(), trace.accesses().count()), (101, 101));
}

/// A process whose parent has ended unsampled, and whose grandparent was written and has ended: no other process has its place meanwhile.
#[test]
fn a_grandchild_keeps_its_grandparent_although_that_has_ended() {
    let mut lab = Lab::new(TaskSource { knows_all_mappings: true, writes_forks: true, ..TaskSource::default() });
    lab.exec(7);
    lab.map(anonymous(7, BASE, 1));
    lab.fork((8, 8), (7, 7));
    lab.fork((9, 9), (8, 8));
    lab.exit(8, 8);
    lab.sample((7, 7), BASE);
    lab.exit(7, 7);
    for pid in 20..30 {
        lab.exec(pid);
        lab.sample((pid, pid), BASE);
    }
    lab.sample((9, 9), BASE);
    let trace = lab.finished();
    let processes = trace.processes();
    let parent = |pid| {
        let child = processes.iter().find(|process| process.pid == Pid(pid))?;
        processes.iter().find(|process| Some(process.index) == child.parent).map(|process| process.pid.0)
    };
    assert_eq!([9, 8].map(parent), [Some(8), Some(7)]);
}

/// What a process that has ended had mapped is needed as long as a child that inherited it may be sampled.
#[test]
fn a_child_has_the_memory_of_a_parent_that_ended_without_a_sample() {
    for writes_forks in [false, true] {
        let mut lab = Lab::new(TaskSource { writes_forks, ..TaskSource::default() });
        lab.exec(7);
        lab.map(anonymous(7, BASE, 4));
        lab.fork((8, 8), (7, 7));
        lab.fork((9, 9), (8, 8));
        lab.exit(8, 8);
        lab.exit(7, 7);
        // Another process takes the place of one that has ended.
        lab.exec(7);
        lab.map(anonymous(7, BASE, 1));
        lab.access((9, 9), BASE + PAGE, BASE);
        lab.access((7, 7), BASE + PAGE, BASE);
        let trace = lab.finished();
        let objects = objects(&trace);
        assert!(objects[0].is_some() && objects[1].is_none(), "{objects:?}");
        let pids: Vec<u32> = trace.processes().iter().map(|process| process.pid.0).collect();
        assert_eq!(pids, [7, 8, 9, 7]);
    }
}

#[test]
fn a_process_that_an_unsampled_thread_forked_has_its_parents_memory() {
    for writes_forks in [false, true] {
        let mut lab = Lab::new(TaskSource { writes_forks, ..TaskSource::default() });
        lab.exec(7);
        lab.map(anonymous(7, BASE, 4));
        lab.access((7, 7), BASE, BASE);
        lab.fork((7, 8), (7, 7));
        lab.fork((9, 9), (7, 8));
        // The thread has ended before anything is known of the process.
        lab.fork((7, 10), (7, 7));
        lab.fork((11, 11), (7, 10));
        lab.exit(7, 10);
        for pid in [9, 11] {
            lab.access((pid, pid), BASE + PAGE, BASE);
        }
        let objects = objects(&lab.finished());
        assert!(objects[0].is_some() && objects.iter().all(|object| *object == objects[0]), "{objects:?}");
    }
}

#[test]
fn a_process_ends_with_its_last_thread_whether_that_was_sampled_or_not() {
    let mut lab = Lab::new(TaskSource::default());
    lab.exec(7);
    lab.fork((7, 8), (7, 7));
    lab.access((7, 7), BASE, BASE);
    lab.exit(7, 7);
    let last = lab.exit(7, 8);
    let trace = lab.finished();
    assert_eq!(trace.processes()[0].end.map(|end| end.0), Some(last));
}

/// Neighbours of one kind are one mapping to the kernel, and its record of the second is of both.
#[test]
fn memory_next_to_a_mapping_is_an_object_of_its_own_and_replaces_nothing() {
    let mut lab = Lab::new(TaskSource { knows_all_mappings: true, ..TaskSource::default() });
    lab.tell(&SideBand::Comm { pid: Pid(7), tid: Tid(7), name: b"app", by_exec: false });
    lab.found(anonymous(7, BASE, 16));
    lab.access((7, 7), BASE + 3 * PAGE, BASE);
    // Mapped, and after an end that the kernel does not tell, mapped again.
    for _ in 0..2 {
        lab.map(anonymous(7, BASE - PAGE, 17));
        lab.access((7, 7), BASE + 3 * PAGE, BASE);
        lab.access((7, 7), BASE - PAGE, BASE);
    }
    // A part is protected and opened again.
    for protection in [Some(1), Some(3)] {
        lab.map(Mapping { protection, ..anonymous(7, BASE + 2 * PAGE, 2) });
        lab.access((7, 7), BASE + 3 * PAGE, BASE);
    }
    let trace = lab.finished();
    let objects = objects(&trace);
    let [old, new] = [objects[0], objects[2]];
    assert!(old.is_some() && new.is_some() && old != new, "{objects:?}");
    assert_eq!(objects, [old, old, new, old, new, old, old]);
    assert_eq!(trace.objects().len(), 2);
}

/// The C library reserves a heap for another thread's blocks, and opens it piece by piece.
#[test]
fn a_heap_that_is_opened_piece_by_piece_is_one_object() {
    let mut lab = Lab::new(TaskSource::default());
    lab.exec(7);
    lab.map(Mapping { protection: Some(0), ..anonymous(7, BASE, 1024) });
    for pages in 1..=500 {
        lab.map(anonymous(7, BASE, 2 * pages));
    }
    lab.access((7, 7), BASE, BASE);
    lab.access((7, 7), BASE + 999 * PAGE, BASE);
    let trace = lab.finished();
    let sizes: Vec<u64> = trace.objects().iter().map(|object| object.bytes).collect();
    assert_eq!(sizes, [1024 * PAGE]);
    assert_eq!(objects(&trace), [Some(0); 2]);
}

/// The code of this test's own binary: its path, and how the kernel maps it.
fn own_code() -> (PathBuf, u64, u64) {
    let (path, mut text) = (std::env::current_exe().unwrap(), Vec::new());
    numapilot_kernel::maps::read(Pid::own(), "maps", &mut text).unwrap();
    let is_own = |line: &numapilot_kernel::maps::MapLine<'_>| {
        line.is_executable() && line.path == path.as_os_str().as_encoded_bytes()
    };
    let line = numapilot_kernel::maps::maps(&text).find(is_own).unwrap();
    (path.clone(), line.bytes(), line.offset)
}

fn code<'a>(path: &'a Path, addr: u64, (len, file_offset): (u64, u64)) -> Mapping<'a> {
    let path = path.as_os_str().as_encoded_bytes();
    let mapping = Mapping { pid: Pid(7), tid: Tid(7), addr, len, file_offset, path, ..Mapping::default() };
    Mapping { protection: Some(5), flags: Some(2), is_executable: true, ..mapping }
}

/// The locations of accesses by the 0x100th byte of code that was mapped at these places, one after the other.
fn locations(places: &[(&Path, u64)], shown: (u64, u64)) -> Vec<u32> {
    let mut lab = Lab::new(TaskSource::default());
    lab.exec(7);
    for &(path, at) in places {
        lab.map(code(path, at, shown));
        lab.access((7, 7), BASE / 2, at + 0x100);
    }
    let mut found: Vec<_> = lab.finished().accesses().map(|access| (access.time, access.location.0)).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, location)| location).collect()
}

#[test]
fn a_binary_that_is_loaded_again_beside_its_old_place_or_after_another_is_placed_anew() {
    let (first, bytes, file_offset) = own_code();
    let folder = tempfile::tempdir().unwrap();
    let second = folder.path().join("second");
    std::os::unix::fs::symlink(&first, &second).unwrap();
    let shown = (bytes, file_offset);
    let beside = locations(&[(&first, BASE), (&first, BASE - PAGE), (&first, BASE + PAGE)], shown);
    assert!(beside.iter().all(|location| *location == beside[0]), "{beside:?}");
    let after = locations(&[(&first, BASE), (&second, BASE), (&first, BASE)], shown);
    assert!(after[0] == after[2] && after[0] != after[1], "{after:?}");
}

/// A process in a container maps a file of a path at which another file is here.
#[test]
fn a_file_of_another_root_directory_is_not_taken_for_the_one_here() {
    let (path, bytes, file_offset) = own_code();
    let root = tempfile::tempdir().unwrap();
    let link = |target: &Path, at: PathBuf| {
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, at).unwrap();
    };
    let proc = root.path().join("proc");
    for (pid, namespace) in [("self", "mnt:[1]"), ("7", "mnt:[2]"), ("8", "mnt:[2]"), ("9", "mnt:[1]")] {
        link(Path::new(namespace), proc.join(pid).join("ns/mnt"));
    }
    for (pid, container) in [("7", "other"), ("8", "same")] {
        let container = root.path().join(container);
        std::fs::create_dir(&container).unwrap();
        link(&container, proc.join(pid).join("root"));
    }
    for pid in ["self", "9"] {
        link(Path::new("/"), proc.join(pid).join("root"));
    }
    let inside = |container: &str| root.path().join(container).join(path.strip_prefix("/").unwrap());
    link(&path, inside("same"));
    std::fs::create_dir_all(inside("other").parent().unwrap()).unwrap();
    std::fs::write(inside("other"), "another program").unwrap();
    let mut lab = Lab::new(TaskSource { root: Some(root.path().to_owned()), ..TaskSource::default() });
    for pid in [7, 8, 9] {
        lab.tell(&SideBand::Comm { pid: Pid(pid), tid: Tid(pid), name: b"app", by_exec: false });
        lab.found(Mapping { pid: Pid(pid), ..code(&path, BASE, (bytes, file_offset)) });
        lab.access((pid, pid), BASE / 2, BASE + 0x100);
    }
    let trace = lab.finished();
    let mut found: Vec<_> = trace.accesses().map(|access| (access.time, access.location)).collect();
    found.sort_unstable();
    let [other, same, here] = [0, 1, 2].map(|at: usize| trace.location(found[at].1));
    assert_eq!(&*other.module, format!("{} (not the file here)", path.display()));
    assert_eq!(other.frames.len(), 1);
    assert!(other.frames[0].function.contains("+0x"), "{:?}", other.frames);
    assert_eq!((&*same.module, &same.frames), (path.to_str().unwrap(), &here.frames));
}

/// The child of vfork(2) is an image of the same number until it executes its program. The tracker announces both after fork(2), but after vfork(2) only the
/// program.
#[test]
fn an_announcement_is_of_the_image_that_ran_when_it_was_made() {
    let lab = Lab::new(TaskSource::default());
    let mut out = Output::new(lab.writer.clone(), Clock { khz: KHZ, origin_cycles: 0 }, None);
    let announced = |index, ready| {
        let (thread, process) = (ThreadIndex(index), ProcessIndex(index));
        Announcement { pid: Pid(8), tid: Tid(8), thread, process, ready, seen: ready }
    };
    for is_vfork in [false, true] {
        let mut tasks = Tasks::new(TaskSource { tracker: Some("/lib/tracker.so".to_owned()), ..TaskSource::default() });
        let (pid, tid, parent_pid, parent_tid) = (Pid(8), Tid(8), Pid(7), Tid(7));
        tasks.fork(&mut out, &TaskChange { pid, tid, parent_pid, parent_tid, time: 100 }).unwrap();
        let child = tasks.task(pid, tid, 110);
        tasks.comm(&mut out, pid, tid, b"app", true, 200).unwrap();
        let program = tasks.task(pid, tid, 210);
        if !is_vfork {
            assert_eq!(tasks.announce(&announced(5, 150)), child);
        }
        assert_eq!(tasks.announce(&announced(6, 300)), program, "vfork: {is_vfork}");
        assert_eq!(tasks.thread(&mut out, program).unwrap(), Some(ThreadIndex(6)));
    }
}

/// A virtual machine's threads are this machine's, and what they access is not this machine's to name.
#[test]
fn samples_of_guests_are_left_out() {
    let mut lab = Lab::new(TaskSource { knows_all_mappings: true, ..TaskSource::default() });
    lab.exec(7);
    lab.map(anonymous(7, BASE, 1));
    for of_guest in [false, true, true] {
        lab.time += 10;
        let sample = Sample {
            pid_tid: Some((Pid(7), Tid(7))),
            addr: Some(BASE),
            cpu: Some(CpuId(0)),
            of_guest,
            ..Sample::default()
        };
        lab.samples.sample(0, &EventAttr::default(), &sample, lab.time).unwrap();
    }
    let counts = lab.samples.counts();
    assert_eq!((counts.samples, counts.accesses, counts.of_guests, counts.without_address), (3, 1, 2, 0));
    assert!(counts.guests_note().is_some_and(|note| note.starts_with("2 samples are of virtual machines")));
    assert_eq!(lab.finished().accesses().len(), 1);
}
