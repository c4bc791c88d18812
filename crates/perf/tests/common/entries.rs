//! The decoders' entry functions: they take any bytes, and must neither panic nor hang. Shared by the libFuzzer target in `fuzz/` and by `mutations.rs`.
#![allow(dead_code, missing_docs)]

use numapilot_perf::data_src::DataSource;
use numapilot_perf::file::Walker;
use numapilot_perf::ibs::OpRecord;
use numapilot_perf::spe::{Records, SourceTable};
use numapilot_perf::{Bytes, Endian, EventAttr, Header, MemoryAccess, Record, Sample, Session, SideBand};

/// Bytes that describe an event, in front of the records.
const EVENT_BYTES: usize = 16;

/// Reads events from the first bytes, then records from the rest: as their headers say, and after one that cannot be decoded at the next
/// place where a header can be. Returns how many records were looked at.
pub fn records(bytes: &[u8]) -> u64 {
    let Some((&first, rest)) = bytes.split_first() else { return 0 };
    let endian = if first & 1 == 0 { Endian::Little } else { Endian::Big };
    let mut session = Session::new(endian);
    let mut rest = rest;
    for number in 0..=u64::from(first >> 1 & 3) {
        let Some((description, after)) = rest.split_at_checked(EVENT_BYTES) else { break };
        session.add(event(description), [number, number + 100]);
        rest = after;
    }
    let mut at = 0;
    let mut count = 0;
    while let Ok(header) = Header::decode(&mut Bytes::new(&rest[at..], at as u64, endian)) {
        let body = &rest[at + Header::BYTES..];
        count += 1;
        look_at(&session, header, body, at as u64);
        at += usize::from(header.size).min(body.len() + Header::BYTES);
        if at >= rest.len() {
            break;
        }
    }
    count
}

/// An event with any layout.
fn event(bytes: &[u8]) -> EventAttr {
    let word = |at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default()));
    EventAttr {
        sample_type: word(0) & ((1 << 27) - 1),
        read_format: u64::from(bytes[4]),
        branch_sample_type: u64::from(bytes[5]) << 14,
        flags: u64::from(bytes[6]) << 14,
        period_or_freq: u64::from(bytes[7]),
        sample_regs_user: word(8) * 0x8001,
        sample_regs_intr: word(12),
        ..EventAttr::default()
    }
}

fn look_at(session: &Session, header: Header, body: &[u8], offset: u64) {
    let time = session.peek_time(header, body);
    match session.decode(header, body, offset) {
        Ok(Record::Sample(event, sample)) => {
            assert_eq!(time, sample.time);
            look_at_sample(&session.events()[event], &sample, offset);
        }
        Ok(Record::SideBand(record, id)) => {
            assert!(time.is_none() || id.time == time);
            look_at_side_band(&record);
        }
        Err(error) => assert!(error.offset >= offset && error.offset <= offset + body.len() as u64, "{error}"),
    }
}

fn look_at_sample(attr: &EventAttr, sample: &Sample<'_>, offset: u64) {
    let entries = sample.branch_stack.map_or(0, |stack| stack.entries().count());
    assert_eq!(entries, sample.branch_stack.map_or(0, |stack| stack.len()));
    if let Some(read) = sample.read {
        read.values().for_each(drop);
    }
    for regs in [sample.user_regs, sample.intr_regs].into_iter().flatten() {
        assert!((0..64).filter_map(|register| regs.get(register)).count() <= 64);
    }
    if let Some(word) = sample.data_src {
        let _ = DataSource::decode(word);
    }
    if let Some(access) = MemoryAccess::of_sample(attr, sample) {
        assert_ne!(access.address, 0);
        access.callchain.into_iter().flat_map(|chain| chain.iter()).for_each(drop);
    }
    if let Some(op) = sample.raw.and_then(|raw| OpRecord::decode(raw, offset).ok()) {
        let _ = MemoryAccess::of_ibs(attr, sample, &op);
    }
    // Whatever bytes a sample brings may be packets.
    for bytes in [sample.aux, sample.raw, sample.user_stack.map(|stack| stack.bytes)].into_iter().flatten() {
        let mut records = Records::new(bytes);
        for record in records.by_ref() {
            let _ = record.access(SourceTable::Common);
        }
        assert!(records.consumed() <= bytes.len());
    }
}

fn look_at_side_band(record: &SideBand<'_>) {
    match record {
        SideBand::Namespaces { links: words, .. }
        | SideBand::IdIndex { entries: words }
        | SideBand::AuxtraceInfo { words, .. } => words.iter().for_each(drop),
        SideBand::Read { values, .. } => values.values().for_each(drop),
        _ => {}
    }
}

/// Walks a whole `perf.data`, as a file and as a stream, decoding every record. Returns how many records there were.
pub fn file(bytes: &[u8]) -> u64 {
    let path = std::path::Path::new("fuzzed.data");
    let mut count = 0;
    if let Ok(walker) = Walker::open(std::io::Cursor::new(bytes), path) {
        count += walk(walker, bytes.len());
    }
    if let Ok(walker) = Walker::open_stream(bytes, path) {
        count += walk(walker, bytes.len());
    }
    count
}

fn walk<R: std::io::Read>(mut walker: Walker<R>, length: usize) -> u64 {
    let mut count = 0;
    // Compressed records may hold any number of others; so many are enough to see whether it holds.
    while count < RECORDS_MAX {
        match walker.next() {
            Ok(Some(item)) => {
                let (header, body, offset) = (item.header, item.body.to_vec(), item.offset);
                let mut packets = Records::new(item.aux);
                packets.by_ref().for_each(drop);
                assert!(packets.consumed() <= item.aux.len());
                look_at(walker.session(), header, &body, offset);
                count += 1;
            }
            Ok(None) => break,
            Err(error) => {
                assert!(error.to_string().contains("fuzzed.data"), "{error}");
                break;
            }
        }
    }
    assert!(walker.torn_at().is_none_or(|at| at <= length as u64));
    assert!(walker.damage().bytes <= length as u64, "{:?}", walker.damage());
    count
}

/// Records of one file that are looked at.
const RECORDS_MAX: u64 = 100_000;
