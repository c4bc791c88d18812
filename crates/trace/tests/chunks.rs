//! Chunk files: round trips, torn ends at every byte, flipped bits everywhere, merging, and the golden file.

use std::path::{Path, PathBuf};

use crate::common::{records, thread_ring};
use numapilot_random::Xorshift;
use numapilot_trace::chunk::*;
use numapilot_trace::engine::Engine;
use numapilot_trace::ids::Pid;
use numapilot_trace::record::{Event, Record};
use numapilot_trace::wire::Encoder;
use proptest::prelude::*;
use serde_json::json;

fn session() -> SessionStart {
    SessionStart {
        tool_version: "0.1.0".into(),
        engine: Engine::Instrument.into(),
        command: vec!["./a.out".into(), "10".into()],
        clock_khz: 2_400_000,
        simulated: true,
        machine: json!({"name": "opteron-8385"}),
        ..SessionStart::default()
    }
}

/// Writes rings in turns of `piece_records` records, and gives back what was written by ring.
fn write(trace: &Path, options: WriterOptions, rings: &[Vec<Record>], piece_records: usize) {
    let mut writer = ChunkWriter::create(trace, &session(), options).unwrap();
    let mut encoders: Vec<Encoder> = rings.iter().map(|_| Encoder::new(session().clock())).collect();
    let longest = rings.iter().map(Vec::len).max().unwrap_or(0);
    for start in (0..longest).step_by(piece_records) {
        for (slot, records) in rings.iter().enumerate() {
            let mut bytes = Vec::new();
            for record in records.iter().skip(start).take(piece_records) {
                encoders[slot].encode(record, &mut bytes);
            }
            writer.append(RingId { slot: slot as u32, generation: 1 }, &bytes).unwrap();
        }
    }
    writer.finish(&SessionEnd { lost_full: 3, ..SessionEnd::default() }, true).unwrap();
}

fn read_ring(raw: &RawTrace, ring: RingId) -> (Vec<Record>, Vec<Problem>) {
    let mut reader = raw.ring(ring);
    let mut out = Vec::new();
    while reader.next_chunk(&mut out).unwrap() {}
    (out, reader.problems().to_vec())
}

fn sample_rings(rings: u32, count: usize) -> Vec<Vec<Record>> {
    let mut random = Xorshift::new(0x5eed);
    (0..rings).map(|thread| thread_ring(thread, count, &mut random)).collect()
}

const SMALL: WriterOptions = WriterOptions { chunk_bytes: 4096, compression: Compression::Zstd(1), file_bytes: 20_000 };

#[test]
fn what_was_written_is_read_and_merged_by_order() {
    let folder = tempfile::tempdir().unwrap();
    let rings = sample_rings(5, 3000);
    write(folder.path(), SMALL, &rings, 100);
    assert!(folder.path().join("raw/00003.chunks").exists(), "several files");
    let raw = RawTrace::open(folder.path()).unwrap();
    assert_eq!(raw.start(), &session());
    assert_eq!(raw.end().unwrap().lost_full, 3);
    assert_eq!((raw.problems(), raw.missing_chunks()), (&[][..], 0));
    for (slot, records) in rings.iter().enumerate() {
        let (read, problems) = read_ring(&raw, RingId { slot: slot as u32, generation: 1 });
        assert!(problems.is_empty());
        assert_eq!(&read, records);
    }
    let mut expected: Vec<Record> = rings.concat();
    expected.sort_by_key(|record| record.stamp.order);
    let merged: Vec<Record> = raw.merge().map(Result::unwrap).collect();
    assert_eq!(merged, expected);
}

#[test]
fn generated_code_is_kept_however_much_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = ChunkWriter::create(folder.path(), &session(), SMALL).unwrap();
    let function = |n: u64, name: String| {
        let (lines, since) = (vec![(n << 12, 0, 7)], (n > 9).then_some(n));
        GeneratedFunction { address: n << 12, bytes: 64, name, lines, since }
    };
    let many: Vec<GeneratedFunction> = (0..5000).map(|n| function(n, format!("{n}{}", "x".repeat(4000)))).collect();
    let code = GeneratedCode {
        pid: Pid(4711),
        source: "/tmp/perf-4711.map".into(),
        files: vec!["a.js".into()],
        functions: many,
    };
    writer.generated(&code).unwrap();
    let too_large = GeneratedCode { functions: vec![function(1, "x".repeat(9 << 20))], ..GeneratedCode::default() };
    assert!(matches!(writer.generated(&too_large), Err(ChunkError::TooLarge { .. })));
    writer.finish(&SessionEnd::default(), false).unwrap();
    let raw = RawTrace::open(folder.path()).unwrap();
    assert_eq!((raw.problems(), raw.missing_chunks()), (&[][..], 0), "what was too large left nothing behind");
    assert!(raw.generated().len() > 1, "20 MB are more than a chunk holds");
    assert!(raw.generated().iter().all(|part| (part.pid, &part.files) == (Pid(4711), &code.files)));
    let read: Vec<GeneratedFunction> = raw.generated().iter().flat_map(|part| part.functions.clone()).collect();
    assert_eq!(read, code.functions);
}

#[test]
fn the_writer_knows_whose_threads_have_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = ChunkWriter::create(folder.path(), &session(), SMALL).unwrap();
    assert!(writer.pids().is_empty());
    let mut pids = Vec::new();
    for (slot, records) in sample_rings(3, 50).iter().enumerate() {
        let mut encoder = Encoder::new(session().clock());
        for record in records {
            let mut bytes = Vec::new();
            encoder.encode(record, &mut bytes);
            writer.append(RingId { slot: slot as u32, generation: 1 }, &bytes).unwrap();
            pids.extend(if let Event::ThreadStart { pid, .. } = record.event { Some(pid) } else { None });
        }
    }
    pids.sort_unstable();
    pids.dedup();
    assert!(!pids.is_empty());
    assert_eq!(writer.pids().iter().copied().collect::<Vec<_>>(), pids);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    #[test]
    fn any_records_survive(records in records(1..120), piece in 1..30usize, compressed in any::<bool>()) {
        let folder = tempfile::tempdir().unwrap();
        let compression = if compressed { Compression::Zstd(1) } else { Compression::None };
        write(folder.path(), WriterOptions { compression, ..SMALL }, std::slice::from_ref(&records), piece);
        let raw = RawTrace::open(folder.path()).unwrap();
        let (read, problems) = read_ring(&raw, RingId { slot: 0, generation: 1 });
        prop_assert_eq!(problems, vec![]);
        let mut sorted = read.clone();
        sorted.sort_by_key(|record| record.stamp.order);
        let count = raw.merge().map(Result::unwrap).count();
        prop_assert_eq!(count, read.len());
        prop_assert_eq!(read, records);
    }
}

/// One small file and its bytes.
fn small_file() -> (tempfile::TempDir, PathBuf, Vec<u8>, Vec<Vec<Record>>) {
    let folder = tempfile::tempdir().unwrap();
    let rings = sample_rings(2, 250);
    let options = WriterOptions { file_bytes: 1 << 20, ..SMALL };
    write(folder.path(), options, &rings, 40);
    let path = folder.path().join("raw/00000.chunks");
    let bytes = std::fs::read(&path).unwrap();
    (folder, path, bytes, rings)
}

/// What is read must be the records written, less some; never anything else.
fn assert_subsequence(read: &[Record], written: &[Record], context: &str) {
    let mut rest = written.iter();
    for record in read {
        assert!(rest.any(|candidate| candidate == record), "a record that was never written, {context}");
    }
}

#[test]
fn torn_at_every_byte_every_whole_chunk_is_read() {
    let (folder, path, bytes, rings) = small_file();
    let mut whole_so_far = 0;
    let mut opened = false;
    for cut in 0..bytes.len() {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let raw = match RawTrace::open(folder.path()) {
            Ok(raw) => raw,
            Err(ChunkError::NoSession(_)) if !opened => continue,
            Err(error) => panic!("cut at {cut}: {error}"),
        };
        assert!(raw.end().is_none() && raw.problems().len() <= 1);
        let dropped: u64 = raw.problems().iter().map(|problem| problem.bytes).sum();
        assert!(raw.problems().iter().all(|problem| problem.damage == Damage::TornTail));
        let mut records = 0;
        for (slot, written) in rings.iter().enumerate() {
            let (read, problems) = read_ring(&raw, RingId { slot: slot as u32, generation: 1 });
            assert_eq!(problems, vec![]);
            assert_eq!(read, written[..read.len()], "cut at {cut}");
            records += read.len();
        }
        assert!(records >= whole_so_far, "cut at {cut} gives less than a shorter file");
        assert!(dropped < 4096 + HEADER_BYTES as u64);
        whole_so_far = records;
        opened = true;
    }
    assert!(whole_so_far > 100);
}

#[test]
fn a_flipped_bit_costs_at_most_its_chunk() {
    let (folder, path, bytes, rings) = small_file();
    let total: usize = rings.iter().map(Vec::len).sum();
    for at in (0..bytes.len()).step_by(7) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        std::fs::write(&path, &changed).unwrap();
        let context = format!("flip at {at}");
        let raw = match RawTrace::open(folder.path()) {
            Ok(raw) => raw,
            // The only copy of the session's start, which is the first chunk.
            Err(ChunkError::NoSession(_)) if at < 1024 => continue,
            Err(error) => panic!("{context}: {error}"),
        };
        let mut problems = raw.problems().to_vec();
        let mut records = 0;
        for (slot, written) in rings.iter().enumerate() {
            let (read, more) = read_ring(&raw, RingId { slot: slot as u32, generation: 1 });
            assert_subsequence(&read, written, &context);
            problems.extend(more);
            records += read.len();
        }
        assert_eq!(problems.len(), 1, "{context}: {problems:?}");
        assert_eq!(problems[0].path, path);
        assert!(problems[0].offset <= at as u64 && (at as u64) < problems[0].offset + problems[0].bytes, "{context}");
        assert!(records + 200 > total, "{context}: {records} of {total}");
        let merged = raw.merge().map(Result::unwrap).count();
        assert_eq!(merged, records, "{context}");
    }
}

#[test]
fn a_ring_that_was_written_over_is_kept_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let rings = sample_rings(1, 100);
    let mut encoder = Encoder::new(session().clock());
    let mut writer = ChunkWriter::create(folder.path(), &session(), SMALL).unwrap();
    let ring = RingId { slot: 0, generation: 1 };
    let mut bytes = Vec::new();
    rings[0].iter().take(20).for_each(|record| encoder.encode(record, &mut bytes));
    writer.append(ring, &bytes).unwrap();
    writer.append(ring, &[0xee; 64]).unwrap();
    writer.flush().unwrap();
    let mut again = Encoder::new(session().clock());
    let mut later = Vec::new();
    rings[0].iter().skip(30).for_each(|record| again.encode(record, &mut later));
    writer.append(ring, &later).unwrap();
    writer.close_ring(ring).unwrap();
    writer.finish(&SessionEnd::default(), false).unwrap();
    let raw = RawTrace::open(folder.path()).unwrap();
    let (read, problems) = read_ring(&raw, ring);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].to_string().contains("unknown record type 238"), "{}", problems[0]);
    assert_eq!(read, [&rings[0][..20], &rings[0][30..]].concat());
}

#[test]
fn foreign_folders_are_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let message = RawTrace::open(folder.path()).unwrap_err().to_string();
    assert!(message.contains("give the NAME.numatrace folder"), "{message}");
    std::fs::create_dir(folder.path().join("raw")).unwrap();
    assert!(matches!(RawTrace::open(folder.path()), Err(ChunkError::NoChunks(_))));
    std::fs::write(folder.path().join("raw/00000.chunks"), b"#!/bin/sh\necho hello\n").unwrap();
    assert!(matches!(RawTrace::open(folder.path()), Err(ChunkError::NoSession(_))));
    let again = ChunkWriter::create(folder.path(), &session(), SMALL).err().unwrap().to_string();
    assert!(again.contains("already holds a recording"), "{again}");
}

/// Runs in a child process whose files may not grow beyond 64 KiB: what a full disk does, at any byte.
#[test]
fn child_that_fills_its_disk() {
    let Some(trace) = std::env::var_os("NUMAPILOT_TEST_TRACE").map(PathBuf::from) else {
        return; // Only the child of the next test has a disk to fill.
    };
    let options = WriterOptions { compression: Compression::None, file_bytes: 1 << 30, ..SMALL };
    let mut writer = ChunkWriter::create(&trace, &session(), options).unwrap();
    let mut encoder = Encoder::new(session().clock());
    for record in &sample_rings(1, 5000)[0] {
        let mut bytes = Vec::new();
        encoder.encode(record, &mut bytes);
        if let Err(error) = writer.append(RingId { slot: 0, generation: 1 }, &bytes) {
            assert!(error.to_string().contains("cannot write to"), "{error}");
            assert!(error.to_string().contains("00000.chunks"), "{error}");
            return;
        }
    }
    panic!("the disk was never full");
}

#[test]
fn a_full_disk_leaves_whole_chunks_and_one_torn_one() {
    let folder = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 128; exec \"$0\" --exact chunks::child_that_fills_its_disk"])
        .arg(std::env::current_exe().unwrap())
        .env("NUMAPILOT_TEST_TRACE", folder.path())
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let raw = RawTrace::open(folder.path()).unwrap();
    assert_eq!(raw.problems().len(), 1);
    assert_eq!(raw.problems()[0].damage, Damage::TornTail);
    let (read, problems) = read_ring(&raw, RingId { slot: 0, generation: 1 });
    assert_eq!(problems, vec![]);
    assert!(read.len() > 1000 && read == sample_rings(1, 5000)[0][..read.len()]);
}

/// `testdata/traces/golden-v1.numatrace` was written by this test with NUMAPILOT_WRITE_GOLDEN=1 and never changes: every later version reads it.
#[test]
fn the_golden_raw_trace_is_read() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces/golden-v1.numatrace");
    let rings = sample_rings(2, 120);
    if std::env::var_os("NUMAPILOT_WRITE_GOLDEN").is_some() {
        write(&golden, WriterOptions { compression: Compression::Zstd(3), ..WriterOptions::default() }, &rings, 1000);
    }
    let raw = RawTrace::open(&golden).unwrap();
    assert_eq!(raw.start(), &session());
    assert!(raw.end().is_some() && raw.problems().is_empty());
    for (slot, records) in rings.iter().enumerate() {
        assert_eq!(&read_ring(&raw, RingId { slot: slot as u32, generation: 1 }).0, records);
    }
}
