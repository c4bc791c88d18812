//! Synthesised recordings of memory accesses as the hardware makes them, from the registers (IBS), the words (PEBS) and the packets (SPE) up, on a machine of
//! two packages with a node each. Nothing here was measured: addresses, levels and latencies follow from the access's number.

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_machine::CpuId;

use super::data_file::{DataFile, put_text};
use super::{Out, SampleSpec, SideBandSpec, record};
use crate::abi::{attr_flag, event_type, kind, misc, sample, software};
use crate::attr::EventAttr;
use crate::bytes::Endian;
use crate::data_src::Level;
use crate::file::feature;
use crate::ibs::caps;
use crate::side_band::SampleId;

/// An access that the generator produced, to compare decoded accesses with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// Time in nanoseconds.
    pub time: u64,
    /// Thread id.
    pub tid: u32,
    /// CPU number.
    pub cpu: u32,
    /// Virtual data address.
    pub address: u64,
    /// Physical data address.
    pub physical: u64,
    /// Address of the instruction.
    pub ip: u64,
    /// Whether it is a store.
    pub is_write: bool,
    /// Level that answered; stores beyond the first cache: unknown.
    pub level: Level,
    /// The home is the other node.
    pub is_remote: bool,
    /// Cycles, where the hardware measures them.
    pub latency: Option<u32>,
}

/// CPUs 0 and 1 on node 0, 2 and 3 on node 1; memory blocks of 128 MiB, the first 32 on node 0, the next 32 on node 1.
const BLOCK: u64 = 128 << 20;
const PID: u32 = 500;
const IDS: [u64; 4] = [100, 101, 102, 103];
const HEAP: u64 = 0x5555_6000_0000;
const CODE: u64 = 0x5555_5555_4000;
const START: u64 = 1_000_000_000;

/// Accesses of two threads, on CPU 0 and CPU 2, to memory of node 0 except every fourth: levels and kinds in turn.
#[must_use]
pub fn truth(count: u64) -> Vec<Truth> {
    let one = |number: u64| {
        let thread = number % 2;
        let home = u64::from(number % 8 >= 6);
        let is_write = number % 10 == 9;
        let turn = [Level::L1, Level::L2, Level::L3, Level::Ram, Level::Ram, Level::LineFill, Level::Ram];
        let level = turn[(number % 7) as usize];
        let level = if is_write && level != Level::L1 { Level::Unknown } else { level };
        let latency = match level {
            Level::L2 => Some(14),
            Level::L3 => Some(50),
            Level::Ram => Some(200 + 100 * (u32::from(home != thread))),
            Level::LineFill => Some(90),
            _ => None,
        };
        let offset = number * 4096 + number % 64 * 64;
        Truth {
            time: START + number * 1000,
            tid: PID + thread as u32,
            cpu: 2 * thread as u32,
            address: HEAP + offset,
            physical: home * 32 * BLOCK + (1 << 30) + offset,
            ip: CODE + 0x1000 + number % 16 * 4,
            is_write,
            level,
            is_remote: home != thread,
            latency,
        }
    };
    (0..count).map(one).collect()
}

fn attr(pmu: u32, sample_type: u64) -> EventAttr {
    EventAttr {
        kind: pmu,
        period_or_freq: 10_000,
        sample_type: sample_type | sample::IDENTIFIER | sample::IP | sample::TID | sample::TIME | sample::ADDR,
        flags: 1 << attr_flag::SAMPLE_ID_ALL | 1 << attr_flag::INHERIT,
        ..EventAttr::default()
    }
}

fn features(endian: Endian, pmu: (u32, &str), command: &str) -> Vec<(u32, Vec<u8>)> {
    let section = |number: u32, fill: &dyn Fn(&mut Out)| {
        let mut out = Out::new(endian);
        fill(&mut out);
        (number, out.bytes)
    };
    vec![
        section(feature::HOSTNAME, &|out| put_text(out, "synthetic")),
        section(feature::OSRELEASE, &|out| put_text(out, "6.18.0")),
        section(feature::ARCH, &|out| put_text(out, "made up")),
        section(feature::NRCPUS, &|out| {
            out.u32(4).u32(4);
        }),
        section(feature::CMDLINE, &|out| {
            let words: Vec<&str> = command.split(' ').collect();
            out.u32(words.len() as u32);
            words.iter().for_each(|word| put_text(out, word));
        }),
        section(feature::CPU_TOPOLOGY, &|out| {
            out.u32(1);
            put_text(out, "0-3");
            out.u32(1);
            put_text(out, "0");
            for (core, socket) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                out.u32(core).u32(socket);
            }
        }),
        section(feature::NUMA_TOPOLOGY, &|out| {
            out.u32(2);
            for (node, cpus) in [(0, "0-1"), (1, "2-3")] {
                out.u32(node).u64(4 << 20).u64(3 << 20);
                put_text(out, cpus);
            }
        }),
        section(feature::PMU_MAPPINGS, &|out| {
            out.u32(1).u32(pmu.0);
            put_text(out, pmu.1);
        }),
        section(feature::MEM_TOPOLOGY, &|out| {
            out.words(&[1, BLOCK, 2]);
            for (node, blocks) in [(0, u64::from(u32::MAX)), (1, u64::from(u32::MAX) << 32)] {
                out.words(&[node, 64, 64, blocks]);
            }
        }),
    ]
}

/// What begins every recording: the process, its code and heap, its second thread.
fn beginning(attr: &EventAttr, endian: Endian) -> Vec<Vec<u8>> {
    let id = |time| SampleId {
        pid_tid: Some((Pid(PID), Tid::first_of(Pid(PID)))),
        time: Some(time),
        cpu: Some(CpuId(0)),
        ..SampleId::default()
    };
    let map = |addr, len, protection, path: &str| SideBandSpec::Mmap2 {
        pid: PID,
        tid: PID,
        addr,
        len,
        file_offset: 0,
        build_id: None,
        protection,
        path: path.into(),
    };
    [
        SideBandSpec::Comm { pid: PID, tid: PID, name: "synthetic".into(), by_exec: true },
        map(CODE, 0x10_0000, 5, "/synthetic/program"),
        map(HEAP, 64 << 20, 3, "[heap]"),
        SideBandSpec::Task {
            is_fork: true,
            pid: PID,
            parent_pid: PID,
            tid: PID + 1,
            parent_tid: PID,
            time: START - 10,
        },
    ]
    .iter()
    .zip(START - 100..)
    .map(|(spec, time)| spec.encode(attr, &SampleId { identifier: Some(IDS[0]), ..id(time) }, endian))
    .collect()
}

fn spec(truth: &Truth) -> SampleSpec {
    SampleSpec {
        misc: misc::USER | misc::EXACT_IP,
        id: IDS[truth.cpu as usize],
        ip: truth.ip,
        pid: PID,
        tid: truth.tid,
        time: truth.time,
        addr: truth.address,
        cpu: truth.cpu,
        period: 10_000,
        phys_addr: truth.physical,
        callchain: vec![crate::abi::CONTEXT_USER, truth.ip, CODE + 0x2000],
        ..SampleSpec::default()
    }
}

/// AMD IBS of Zen 4: the registers in the raw data. `data_src` is as the kernel leaves it for accesses that it cannot tell.
#[must_use]
pub fn ibs(count: u64) -> DataFile {
    let endian = Endian::Little;
    let attr = attr(11, sample::CPU | sample::PERIOD | sample::RAW | sample::DATA_SRC | sample::WEIGHT_STRUCT);
    // Counts micro-operations, not cycles.
    let attr = EventAttr { config: 1 << 19, ..attr };
    let mut records = beginning(&attr, endian);
    for truth in truth(count) {
        let mut raw = Out::new(endian);
        raw.u32(caps::ZEN4 | 0xff);
        // IbsOpCtl, IbsOpRip, IbsOpData: 20 cycles from completion to retirement, 330 from the tag on.
        raw.words(&[0xa_0271, truth.ip, 20 | 330 << 16]);
        let source = match truth.level {
            Level::L3 => 1,
            Level::Ram => 3 | u64::from(truth.is_remote) << 4,
            _ => 0,
        };
        let is_miss = truth.level != Level::L1;
        let is_l2_miss = is_miss && truth.level != Level::L2;
        let no_mab = truth.level == Level::LineFill;
        let bits = [
            (!truth.is_write, 0),
            (truth.is_write, 1),
            (is_miss, 7),
            (no_mab, 16),
            (true, 17),
            (true, 18),
            (is_l2_miss, 20),
        ];
        let data3 = bits.into_iter().filter(|(set, _)| *set).fold(0, |word, (_, bit)| word | 1u64 << bit);
        let latency = u64::from(truth.latency.unwrap_or(0)) << 32;
        raw.words(&[source, data3 | latency, truth.address, truth.physical]);
        // The interrupt strikes later: the sample's own address is off.
        let spec = SampleSpec { raw: raw.bytes, ip: truth.ip + 3, data_src: 1, ..spec(&truth) };
        records.push(spec.encode(&attr, endian));
    }
    let features = features(endian, (11, "ibs_op"), "perf record -e ibs_op/cnt_ctl=1/ -R -d -- /synthetic/program");
    DataFile { endian, events: vec![(attr, IDS.to_vec())], records, features }
}

/// Words that PEBS leaves: lvl_num and the older mask.
fn pebs_word(truth: &Truth) -> u64 {
    let operation = if truth.is_write { 4 } else { 2 };
    // (mask, lvl_num, remote)
    let (mask, number, remote) = match (truth.level, truth.is_remote) {
        (Level::L1, _) => (0xa, 1, 0),
        (Level::LineFill, _) => (0x12, 0xc, 0),
        (Level::L2, _) => (0x22, 2, 0),
        (Level::L3, _) => (0x42, 3, 0),
        (Level::Ram, false) => (0x82, 0xd, 0),
        (Level::Ram, true) => (0x102, 0xd, 1),
        _ => (1, 0xf, 0),
    };
    operation | mask << 5 | 2 << 19 | 0x1a << 26 | number << 33 | remote << 37
}

/// Intel PEBS: mem-loads and mem-stores, with call chains and physical addresses. Also in the other byte order, which no Intel machine has: what reads
/// it is the same for all.
#[must_use]
pub fn pebs(count: u64, endian: Endian) -> DataFile {
    let fields =
        sample::CPU | sample::PERIOD | sample::CALLCHAIN | sample::DATA_SRC | sample::WEIGHT_STRUCT | sample::PHYS_ADDR;
    let loads = EventAttr { config: 0x1cd, config1: 30, ..attr(4, fields) };
    let stores = EventAttr { config: 0x2cd, ..attr(4, fields) };
    let mut records = beginning(&loads, endian);
    for truth in truth(count) {
        let event = if truth.is_write { &stores } else { &loads };
        let id = IDS[truth.cpu as usize] + if truth.is_write { 100 } else { 0 };
        let weight = u64::from(truth.latency.unwrap_or(0)) | 7 << 32;
        records.push(SampleSpec { id, data_src: pebs_word(&truth), weight, ..spec(&truth) }.encode(event, endian));
    }
    let features = features(endian, (4, "cpu"), "perf mem record --phys-data -- /synthetic/program");
    let store_ids = IDS.iter().map(|id| id + 100).collect();
    DataFile { endian, events: vec![(loads, IDS.to_vec()), (stores, store_ids)], records, features }
}

/// Page faults, each the first touch of a page of the heap.
#[must_use]
pub fn faults(count: u64) -> DataFile {
    let endian = Endian::Little;
    let attr = attr(event_type::SOFTWARE, sample::CPU | sample::PERIOD);
    let attr = EventAttr { config: software::PAGE_FAULTS, period_or_freq: 1, ..attr };
    let mut records = beginning(&attr, endian);
    records.extend(truth(count).iter().map(|truth| SampleSpec { period: 1, ..spec(truth) }.encode(&attr, endian)));
    let features = features(endian, (1, "software"), "perf record -e page-faults -c 1 -d -a -- /synthetic/program");
    DataFile { endian, events: vec![(attr, IDS.to_vec())], records, features }
}

/// A sampled operation as SPE packets, with the timer's ticks at that moment.
#[must_use]
pub fn packets(truth: &Truth, ticks: u64) -> Vec<u8> {
    let mut out = Out::new(Endian::Little);
    let refill = truth.level != Level::L1;
    let last_miss = truth.level == Level::Ram;
    let remote = truth.is_remote && last_miss;
    let events = 2 | 1 << 2 | u64::from(refill) << 3 | 1 << 4 | u64::from(last_miss) << 9 | u64::from(remote) << 10;
    out.raw(&[0xb0]).u64(truth.ip | 1 << 63);
    out.raw(&[0x49, u8::from(truth.is_write)]);
    out.raw(&[0x98]).u16(truth.latency.unwrap_or(0) as u16);
    out.raw(&[0x62]).u32(events as u32);
    out.raw(&[0xb2]).u64(truth.address);
    out.raw(&[0xb3]).u64(truth.physical | 1 << 63);
    if !truth.is_write {
        let source = match truth.level {
            Level::L1 => 0x0,
            Level::L2 => 0x8,
            Level::L3 => 0xb,
            Level::Ram => 0xe,
            // No core tells of line fills under way.
            _ => 0x7f,
        };
        out.raw(&[0x43, source]);
    }
    out.raw(&[0x65]).u32(truth.tid);
    out.raw(&[0x71]).u64(ticks);
    out.bytes
}

/// Arm SPE on a Neoverse N1: a trace per CPU, with time stamps of a 100 MHz timer and thread ids in the context packets.
#[must_use]
pub fn spe(count: u64) -> DataFile {
    let endian = Endian::Little;
    let attr = attr(12, sample::CPU | sample::PERIOD);
    let mut records = beginning(&attr, endian);
    let mut info = Out::new(endian);
    info.u32(4).u32(0).words(&[2, 4, 12, 4]);
    for cpu in 0..4 {
        info.words(&[0x1010_1010_1010_1010, cpu, 4, 0x41 << 24 | 0xd0c << 4, 12, 1024, 0]);
    }
    records.insert(0, record(kind::AUXTRACE_INFO, 0, &info.bytes, endian));
    let mut conversion = Out::new(endian);
    conversion.words(&[0, 10, 0]);
    records.insert(1, record(kind::TIME_CONV, 0, &conversion.bytes, endian));
    for cpu in [0, 2] {
        // Ticks of 10 ns since the clock's zero.
        let of_cpu = truth(count).into_iter().filter(|truth| truth.cpu == cpu);
        let mut trace: Vec<u8> = of_cpu.flat_map(|truth| packets(&truth, truth.time / 10)).collect();
        trace.resize(trace.len().next_multiple_of(8), 0);
        let mut body = Out::new(endian);
        body.words(&[trace.len() as u64, 0, 0]).u32(cpu).u32(u32::MAX).u32(cpu).u32(0);
        records.push([record(kind::AUXTRACE, 0, &body.bytes, endian), trace].concat());
    }
    let features = features(endian, (12, "arm_spe_0"), "perf record -e arm_spe_0// -- /synthetic/program");
    DataFile { endian, events: vec![(attr, IDS.to_vec())], records, features }
}
