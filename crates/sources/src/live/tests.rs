//! From the bytes of a ring to the trace: streams of every kind of hardware, synthesised from its registers, words and packets
//! (`numapilot_perf::testing`), are written into ring memory as the kernel writes them, around its end and with losses, read by the real reader, and
//! finished and opened as any trace.

mod rates;

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use numapilot_flows::Trace;
use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_machine::{CpuId, NodeId};
use numapilot_perf::abi::{aux_flag, kind, sample};
use numapilot_perf::testing::streams::{self, Truth};
use numapilot_perf::testing::{DataFile, SideBandSpec};
use numapilot_perf::{Endian, EventAttr, Header, SampleId, Session, data_src, spe::SourceTable};
use numapilot_sampled::{Output, Samples, SharedWriter, TaskSource, Tasks};
use numapilot_trace::chunk::{ChunkWriter, SessionEnd, SessionStart, WriterOptions};
use numapilot_trace::engine::Engine;
use numapilot_trace::record::Level;
use numapilot_trace::wire::Clock;

use super::drain::{LiveOutcome, LiveTotals, Reader, Reading};
use super::time::ClockPair;
use crate::clock::HostInstant;
use numapilot_perf_events::places::{EventFact, MemoryBlocks, Places};

use numapilot_perf_events::open::{CpuRing, EventSet};
use numapilot_perf_events::ring::Ring;
use numapilot_perf_events::wake::Wake;

/// Accesses of each stream.
const COUNT: u64 = 560;
const PERIOD: u32 = 10_000;
/// Offsets in the control page (`struct perf_event_mmap_page`).
const DATA_HEAD: u64 = 1024;
const DATA_TAIL: u64 = 1032;
const AUX_HEAD: u64 = 1056;
const PAGE: u64 = 4096;

/// Plays the kernel's part for one CPU: writes records into ring memory if there is room, counts them as lost if there is none, and says so before
/// the next one that fits (`perf_output_begin`).
struct Kernel {
    file: File,
    cpu: CpuId,
    data_bytes: u64,
    aux_bytes: u64,
    head: u64,
    aux_head: u64,
    lost: u64,
}

impl Kernel {
    fn new(cpu: CpuId, data_bytes: u64, aux_bytes: u64) -> (Kernel, CpuRing) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE + data_bytes + aux_bytes).unwrap();
        let mut ring = Ring::map(file.as_fd(), data_bytes as usize).unwrap();
        if aux_bytes > 0 {
            ring.map_aux(file.as_fd(), aux_bytes as usize).unwrap();
        }
        let fd = file.as_fd().try_clone_to_owned().unwrap();
        (Kernel { file, cpu, data_bytes, aux_bytes, head: 0, aux_head: 0, lost: 0 }, CpuRing { cpu, ring, fd })
    }

    fn put(&self, area: u64, size: u64, at: u64, bytes: &[u8]) {
        for (offset, byte) in (at..).zip(bytes) {
            self.file.write_all_at(&[*byte], area + offset % size).unwrap();
        }
    }

    fn room(&self) -> u64 {
        let mut tail = [0; 8];
        self.file.read_exact_at(&mut tail, DATA_TAIL).unwrap();
        self.data_bytes - (self.head - u64::from_ne_bytes(tail))
    }

    /// Writes a record; false if there was no room.
    fn write(&mut self, record: &[u8], attr: &EventAttr) -> bool {
        let lost = SideBandSpec::Lost { id: 100, count: self.lost };
        let lost = lost.encode(
            attr,
            &SampleId { identifier: Some(100), cpu: Some(self.cpu), ..SampleId::default() },
            Endian::Little,
        );
        let before: &[u8] = if self.lost > 0 { &lost } else { &[] };
        if self.room() < (before.len() + record.len()) as u64 {
            self.lost += 1;
            return false;
        }
        for bytes in [before, record] {
            self.put(PAGE, self.data_bytes, self.head, bytes);
            self.head += bytes.len() as u64;
        }
        self.lost = 0;
        self.file.write_all_at(&self.head.to_ne_bytes(), DATA_HEAD).unwrap();
        true
    }

    /// Puts bytes into the AUX area; the record that tells of them. `task`: who runs then.
    fn write_aux(
        &mut self,
        bytes: &[u8],
        (flags, task): (u64, Option<(Pid, Tid)>),
        attr: &EventAttr,
        time: u64,
    ) -> bool {
        self.put(PAGE + self.data_bytes, self.aux_bytes, self.aux_head, bytes);
        let spec = SideBandSpec::Aux { offset: self.aux_head, size: bytes.len() as u64, flags };
        self.aux_head += bytes.len() as u64;
        self.file.write_all_at(&self.aux_head.to_ne_bytes(), AUX_HEAD).unwrap();
        let id = SampleId {
            pid_tid: task,
            time: Some(time),
            identifier: Some(100),
            cpu: Some(self.cpu),
            ..SampleId::default()
        };
        self.write(&spec.encode(attr, &id, Endian::Little), attr)
    }
}

/// Moves a record in time: streams have a clock of their own.
fn moved(record: &[u8], attr: &EventAttr, by: u64) -> Vec<u8> {
    let mut record = record.to_vec();
    let is_sample = u32::from_le_bytes(record[..4].try_into().unwrap()) == kind::SAMPLE;
    let words = |bits: u64| 8 * (attr.sample_type & bits).count_ones() as usize;
    let at = if is_sample {
        Header::BYTES + words(sample::IDENTIFIER | sample::IP | sample::TID)
    } else {
        record.len() - words(sample::TIME | sample::ID | sample::STREAM_ID | sample::CPU | sample::IDENTIFIER)
    };
    let time = u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
    record[at..at + 8].copy_from_slice(&(time + by).to_le_bytes());
    record
}

/// The streams' machine: CPUs 0 and 1 on node 0, 2 and 3 on node 1, 32 memory blocks of 128 MiB each.
fn places(fact: EventFact, events: usize) -> Places {
    let blocks = |node, bits| MemoryBlocks { node: NodeId(node), blocks: vec![bits] };
    Places {
        events: vec![fact; events],
        node_of_cpu: [(0, 0), (1, 0), (2, 1), (3, 1)].map(|(cpu, node)| (CpuId(cpu), NodeId(node))).into(),
        memory_nodes: vec![NodeId(0), NodeId(1)],
        packages_are_nodes: true,
        block_bytes: 128 << 20,
        blocks: vec![blocks(0, u64::from(u32::MAX)), blocks(1, u64::from(u32::MAX) << 32)],
        spe_period: Some(PERIOD.into()),
        ..Places::default()
    }
}

/// A recording whose kernel is the test.
struct Lab {
    kernels: Vec<Kernel>,
    events: Option<EventSet>,
    attr: EventAttr,
    /// Nanoseconds from the streams' clock to this one.
    shift: u64,
    first: ClockPair,
    start: HostInstant,
    khz: u32,
    wake: Wake,
    totals: LiveTotals,
    folder: tempfile::TempDir,
}

impl Lab {
    fn new(recording: &DataFile, data_bytes: u64, aux_bytes: u64) -> Lab {
        let mut session = Session::new(Endian::Little);
        for (attr, ids) in &recording.events {
            session.add(attr.clone(), ids.iter().copied());
        }
        let (kernels, rings) = [0, 2].map(|cpu| Kernel::new(CpuId(cpu), data_bytes, aux_bytes)).into_iter().unzip();
        let mut events = EventSet::default();
        (events.rings, events.session) = (rings, session);
        let start = HostInstant::now();
        let khz = start.calibrate(Duration::from_millis(5));
        let first = ClockPair::now();
        let begins = streams::truth(1)[0].time;
        Lab {
            kernels,
            events: Some(events),
            attr: recording.events[0].0.clone(),
            shift: first.raw_ns + 1000 - begins,
            first,
            start,
            khz,
            wake: Wake::new([]).unwrap(),
            totals: LiveTotals::default(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn reader(&mut self, fact: EventFact) -> (Reader<'_>, SharedWriter) {
        let clock = Clock { khz: self.khz, origin_cycles: self.start.order };
        let start = SessionStart {
            engine: Engine::Pmu.into(),
            command: vec!["synthetic".to_owned()],
            start_order: self.start.order,
            order_khz: self.khz,
            clock_khz: self.khz,
            clock_origin_cycles: self.start.order,
            ..SessionStart::default()
        };
        let writer = ChunkWriter::create(&self.folder.path().join("t"), &start, WriterOptions::default()).unwrap();
        let writer = SharedWriter::new(writer);
        let events = self.events.take().unwrap();
        let places = places(fact, events.session.events().len());
        let tasks = Tasks::new(TaskSource { knows_all_mappings: true, ..TaskSource::default() });
        let reader = Reader::new(Reading {
            events,
            wake: &self.wake,
            totals: &self.totals,
            news: None,
            samples: Samples::new(Output::new(writer.clone(), clock, None), tasks, places),
            first: self.first,
            order_khz: self.khz,
            asks_homes: false,
            asks_sizes: false,
            spe: Some(vec![(0, SourceTable::of_midr(0x41 << 24 | 0xd0c << 4))]),
        });
        (reader, writer)
    }
}

/// Takes what is left, finishes the trace and opens it.
fn finished(reader: Reader<'_>, writer: SharedWriter, dir: &Path) -> (LiveOutcome, Trace) {
    let outcome = reader.run(&AtomicBool::new(true), &AtomicBool::new(false));
    assert_eq!(outcome.failure, None);
    let end =
        SessionEnd { end_order: HostInstant::now().order, lost_full: outcome.counts.lost, ..SessionEnd::default() };
    writer.into_inner().expect("the reader is gone").finish(&end, false).unwrap();
    numapilot_flows::finalise(dir).unwrap();
    (outcome, Trace::open(dir).unwrap())
}

/// The index of the ring that a record goes to.
fn ring_of(record: &[u8], truths: &[Truth], number: usize) -> usize {
    let is_sample = u32::from_le_bytes(record[..4].try_into().unwrap()) == kind::SAMPLE;
    usize::from(is_sample && truths[number].cpu == 2)
}

fn level(level: data_src::Level) -> Level {
    match level {
        data_src::Level::L1 => Level::L1,
        data_src::Level::L2 => Level::L2,
        data_src::Level::L3 => Level::L3,
        data_src::Level::LineFill => Level::LineFill,
        data_src::Level::Ram => Level::Memory,
        _ => Level::Unknown,
    }
}

/// Compares every access of the trace with what was made to happen.
fn compare(name: &str, trace: &Trace, truths: &[Truth], tells_fills: bool) {
    let by_address: HashMap<u64, &Truth> = truths.iter().map(|truth| (truth.address, truth)).collect();
    let mut seen = 0;
    for access in trace.accesses() {
        let truth = by_address[&access.address.0];
        let node = truth.cpu as u16 / 2;
        let home = if truth.is_remote { 1 - node } else { node };
        let thread = trace.thread(access.thread).unwrap();
        assert_eq!(
            (thread.tid.0, access.is_write, access.weight),
            (truth.tid, truth.is_write, PERIOD),
            "{name}: {truth:?}"
        );
        assert_eq!((access.node, access.home), (Some(NodeId(node)), Some(NodeId(home))), "{name}: {truth:?}");
        assert_eq!(access.cpu.map(|cpu| cpu.0), Some(truth.cpu), "{name}");
        assert_eq!(access.latency_cycles, truth.latency, "{name}: {truth:?}");
        if tells_fills || truth.level != data_src::Level::LineFill {
            assert_eq!(access.level, level(truth.level), "{name}: {truth:?}");
        }
        seen += 1;
    }
    assert_eq!(seen, truths.len(), "{name}");
}

/// Every access of IBS and PEBS streams on two CPUs comes through rings that wrap dozens of times.
#[test]
fn registers_and_words_in_rings_become_the_accesses_that_they_were_made_of() {
    for (name, recording, is_ibs) in
        [("IBS", streams::ibs(COUNT), true), ("PEBS", streams::pebs(COUNT, Endian::Little), false)]
    {
        let truths = streams::truth(COUNT);
        let mut lab = Lab::new(&recording, PAGE, 0);
        std::thread::sleep(Duration::from_millis(5));
        let dir = lab.folder.path().join("t");
        let (attr, shift) = (lab.attr.clone(), lab.shift);
        let mut kernels = std::mem::take(&mut lab.kernels);
        let (mut reader, writer) = lab.reader(EventFact { is_ibs, ..EventFact::default() });
        let mut number = 0;
        for record in &recording.records {
            let ring = ring_of(record, &truths, number);
            number += usize::from(record[0] == kind::SAMPLE as u8);
            let record = moved(record, &attr, shift);
            if kernels[ring].room() < record.len() as u64 {
                reader.look(false).unwrap();
            }
            assert!(kernels[ring].write(&record, &attr));
        }
        assert!(kernels.iter().all(|kernel| kernel.head > 8 * PAGE), "the rings wrapped");
        let (outcome, trace) = finished(reader, writer, &dir);
        assert_eq!((outcome.counts.samples, outcome.counts.accesses, outcome.counts.lost), (COUNT, COUNT, 0), "{name}");
        assert_eq!((outcome.corrupt_bytes, outcome.counts.undecodable), (0, 0), "{name}");
        compare(name, &trace, &truths, true);
    }
}

/// SPE's packets of an access, without the one that names the thread: most kernels are built so that there is none.
fn without_context(mut packets: Vec<u8>) -> Vec<u8> {
    let end = packets.len() - 9;
    assert_eq!((packets[end - 5], packets[end]), (0x65, 0x71));
    packets.drain(end - 5..end);
    packets
}

/// SPE's packets come through AUX areas, whose pieces wrap too; flags of the pieces are counted, and SPE goes on after an area was full.
#[test]
fn packets_in_aux_areas_become_the_accesses_that_they_were_made_of() {
    packets_through_aux_areas(true);
}

/// The events of tasks write pieces of one task each, which the pieces' own records name.
#[test]
fn pieces_of_aux_areas_name_the_thread_where_packets_do_not() {
    packets_through_aux_areas(false);
}

fn packets_through_aux_areas(by_packet: bool) {
    let recording = streams::spe(COUNT);
    let truths = streams::truth(COUNT);
    let mut lab = Lab::new(&recording, PAGE, 2 * PAGE);
    std::thread::sleep(Duration::from_millis(5));
    let dir = lab.folder.path().join("t");
    let (attr, shift, order, khz) = (lab.attr.clone(), lab.shift, lab.start.order, u64::from(lab.khz));
    let process = truths.iter().map(|truth| Pid(truth.tid)).min().unwrap();
    let mut kernels = std::mem::take(&mut lab.kernels);
    let (mut reader, writer) = lab.reader(EventFact::default());
    // The beginning: process, mappings, second thread. (The first two records describe the trace in a file.)
    for record in &recording.records[2..6] {
        assert!(kernels[0].write(&moved(record, &attr, shift), &attr));
    }
    for (batch, some) in truths.chunks(40).enumerate() {
        for kernel in &mut kernels {
            // The timer's ticks are order stamps.
            let ticks = |truth: &Truth| order + (truth.time + shift - truths[0].time) % 1_000_000_000 * khz / 1_000_000;
            let own = some.iter().filter(|truth| CpuId(truth.cpu) == kernel.cpu);
            let packets = |truth: &Truth| streams::packets(truth, ticks(truth));
            let task = own.clone().next().filter(|_| !by_packet).map(|truth| (process, Tid(truth.tid)));
            let bytes: Vec<u8> = match by_packet {
                true => own.flat_map(packets).collect(),
                false => own.flat_map(|truth| without_context(packets(truth))).collect(),
            };
            let flags = if batch == 3 { aux_flag::COLLISION | aux_flag::TRUNCATED } else { 0 };
            assert!(kernel.write_aux(&bytes, (flags, task), &attr, some[0].time + shift));
        }
        reader.look(false).unwrap();
    }
    assert!(kernels.iter().all(|kernel| kernel.aux_head > kernel.aux_bytes), "the areas wrapped");
    let (outcome, trace) = finished(reader, writer, &dir);
    assert_eq!((outcome.counts.samples, outcome.counts.aux_bytes_unread), (COUNT, 0));
    assert_eq!((outcome.aux.collisions, outcome.aux.truncated, outcome.aux.missing_bytes), (2, 2, 0));
    assert_eq!((outcome.aux.restarts, outcome.counts.without_thread), (2, 0));
    compare("SPE", &trace, &truths, false);
}

/// With nobody reading, the ring fills, and what does not fit is lost. Every lost record is counted in the trace, from where the report has it.
#[test]
fn an_overrun_ring_shows_in_the_report() {
    let recording = streams::ibs(COUNT);
    let truths = streams::truth(COUNT);
    let mut lab = Lab::new(&recording, PAGE, 0);
    std::thread::sleep(Duration::from_millis(5));
    let dir = lab.folder.path().join("t");
    let (attr, shift) = (lab.attr.clone(), lab.shift);
    let mut kernels = std::mem::take(&mut lab.kernels);
    let (mut reader, writer) = lab.reader(EventFact { is_ibs: true, ..EventFact::default() });
    let (mut number, mut lost) = (0, 0);
    for (at, record) in recording.records.iter().enumerate() {
        // The reader wakes up in time for the last twenty.
        if at + 20 == recording.records.len() {
            reader.look(false).unwrap();
        }
        let ring = ring_of(record, &truths, number);
        number += usize::from(record[0] == kind::SAMPLE as u8);
        lost += u64::from(!kernels[ring].write(&moved(record, &attr, shift), &attr));
    }
    assert!(lost > 400, "{lost}");
    let (outcome, trace) = finished(reader, writer, &dir);
    assert_eq!((outcome.counts.lost, outcome.counts.accesses), (lost, COUNT - lost));
    // What the report tells of every loss in the trace is tested there (`Heading::limits`).
    assert_eq!(trace.losses().ring_full, lost);
}
