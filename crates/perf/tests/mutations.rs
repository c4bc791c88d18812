//! The fuzz target's entry function over seeded mutations of streams of records: what the stable compiler can do without libFuzzer.

#[path = "common/entries.rs"]
mod entries;

use std::path::Path;

use numapilot_perf::abi::sample;
use numapilot_perf::testing::{BranchSpec, SampleSpec, SideBandSpec};
use numapilot_perf::{Endian, EventAttr, SampleId};
use numapilot_random::Xorshift;

/// An index of a list of this length.
fn below(random: &mut Xorshift, limit: usize) -> usize {
    (random.bits() % limit.max(1) as u64) as usize
}

/// A description as `entries::records` reads it, and the event that it makes.
fn event(sample_type: u32) -> ([u8; 16], EventAttr) {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&sample_type.to_le_bytes());
    bytes[4] = 31;
    bytes[5] = 0b10_1000;
    bytes[6] = 1 << 4;
    bytes[8..12].copy_from_slice(&3u32.to_le_bytes());
    bytes[12..16].copy_from_slice(&5u32.to_le_bytes());
    let attr = EventAttr {
        sample_type: sample_type.into(),
        read_format: 31,
        branch_sample_type: 0b10_1000 << 14,
        flags: 1 << 18,
        sample_regs_user: 3 * 0x8001,
        sample_regs_intr: 5,
        ..EventAttr::default()
    };
    (bytes, attr)
}

/// A load as SPE packets.
const SPE: [u8; 26] = [
    0xb0, 0x34, 0x12, 0x40, 0, 0, 0, 0, 0x80, 0x49, 0, 0x98, 44, 1, 0x52, 0x1e, 3, 0xb2, 0x78, 0x56, 0x34, 0x12, 0xff,
    0x7f, 0, 1,
];

/// A stream with samples of every field and one side-band record of most kinds.
fn stream(endian: Endian) -> Vec<u8> {
    let all = (sample::KNOWN & !sample::WEIGHT) as u32;
    let memory =
        (sample::IDENTIFIER | sample::IP | sample::TID | sample::TIME | sample::ADDR | sample::DATA_SRC) as u32;
    let mut out = vec![u8::from(endian == Endian::Big) | 1 << 1];
    let events = [event(all), event(memory)];
    events.iter().for_each(|(bytes, _)| out.extend(bytes));
    for (number, (_, attr)) in events.iter().enumerate() {
        let spec = SampleSpec {
            id: number as u64,
            ip: 0x40_1234,
            addr: 0x7fff_0000,
            time: 77,
            counts: vec![(1, 2, 3), (4, 5, 6)],
            callchain: vec![u64::MAX - 511, 0x40_1234, 0x40_2000],
            raw: (0..76).collect(),
            branches: vec![BranchSpec { from: 1, to: 2, fields: [1, 0, 0, 0, 9, 1, 0, 0, 0] }],
            branch_counters: vec![3],
            user_abi: 2,
            user_regs: vec![1, 2, 3, 4],
            intr_abi: 2,
            intr_regs: vec![1, 2],
            user_stack: vec![7; 16],
            user_stack_valid: 8,
            data_src: 0x106_6810_0842,
            aux: [&SPE[..], &[0; 6]].concat(),
            ..SampleSpec::default()
        };
        out.extend(spec.encode(attr, endian));
    }
    let id = SampleId { time: Some(78), identifier: Some(1), ..SampleId::default() };
    let path = String::from("/usr/lib/libc.so.6");
    for spec in [
        SideBandSpec::Mmap2 {
            pid: 1,
            tid: 1,
            addr: 0x1000,
            len: 0x1000,
            file_offset: 0,
            build_id: None,
            protection: 5,
            path,
        },
        SideBandSpec::Comm { pid: 1, tid: 1, name: "ls".into(), by_exec: true },
        SideBandSpec::Task { is_fork: true, pid: 2, parent_pid: 1, tid: 2, parent_tid: 1, time: 79 },
        SideBandSpec::Lost { id: 0, count: 5 },
        SideBandSpec::Aux { offset: 0, size: 64, flags: 9 },
        SideBandSpec::Namespaces { pid: 1, tid: 1, links: vec![1, 2, 3, 4] },
        SideBandSpec::Unknown { kind: 69, body: [&2u64.to_le_bytes()[..], &[0; 64]].concat() },
    ] {
        out.extend(spec.encode(&events[1].1, &id, endian));
    }
    out
}

fn mutate(seed: &[u8], random: &mut Xorshift) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + below(random, 4) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = below(random, bytes.len());
        match below(random, 5) {
            0 => bytes[at] ^= 1 << below(random, 8),
            1 => bytes[at] = random.bits() as u8,
            2 => bytes.truncate(at.max(1)),
            3 => {
                let word = [0, 1, u64::MAX, random.bits(), i64::MAX as u64][below(random, 5)].to_le_bytes();
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&word[..end - at]);
            }
            _ => drop(bytes.drain(at..(at + below(random, 32)).min(bytes.len()))),
        }
    }
    bytes
}

#[test]
fn records_take_any_bytes() {
    let mut looked_at = 0;
    for (seed, endian) in [(1, Endian::Little), (2, Endian::Big)] {
        let stream = stream(endian);
        assert_eq!(entries::records(&stream), 9);
        let mut random = Xorshift::new(seed);
        for round in 0..20_000 {
            let bytes = mutate(&stream, &mut random);
            let result = std::panic::catch_unwind(|| entries::records(&bytes));
            looked_at += result.unwrap_or_else(|_| panic!("round {round} of seed {seed}: {bytes:02x?}"));
        }
    }
    eprintln!("{looked_at} records");
    assert!(looked_at > 100_000);
}

/// Recordings of perf and synthesised ones: files, a pipe's stream, compressed records, AUX traces, the other byte order.
#[test]
fn files_take_any_bytes() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let mut looked_at = 0;
    for (seed, name) in (1..).zip(["perf/pipe.data", "perf/compressed.data", "perf/physical.data"].into_iter().chain([
        "perf-streams/spe-neoverse-n1.data",
        "perf-streams/ibs-zen4.data",
        "perf-streams/pebs-big-endian.data",
    ])) {
        let whole = std::fs::read(testdata.join(name)).unwrap();
        let sound = entries::file(&whole);
        assert!(sound > 5, "{name}: {sound} records");
        let mut random = Xorshift::new(seed);
        for round in 0..120 {
            // Damage in the head, which says where everything is, is worth most.
            let mut bytes = mutate(&whole, &mut random);
            let head = bytes.len().min(1024);
            let damaged = mutate(&bytes[..head], &mut random);
            bytes.splice(..head, damaged);
            let result = std::panic::catch_unwind(|| entries::file(&bytes));
            looked_at += result.unwrap_or_else(|_| panic!("{name}: round {round} of seed {seed}"));
        }
    }
    eprintln!("{looked_at} records");
    assert!(looked_at > 10_000);
}

/// `fuzz/corpus/perf_records` was written by this test with NUMAPILOT_WRITE_GOLDEN=1.
#[test]
fn the_seeds_are_what_the_encoder_writes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/perf_records");
    for (name, endian) in [("little", Endian::Little), ("big", Endian::Big)] {
        let bytes = stream(endian);
        if std::env::var_os("NUMAPILOT_WRITE_GOLDEN").is_some() {
            std::fs::write(folder.join(name), &bytes).unwrap();
        }
        assert_eq!(std::fs::read(folder.join(name)).unwrap(), bytes, "{name}");
    }
}
