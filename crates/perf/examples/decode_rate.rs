//! Prints how long a sample takes to decode and to normalise: one core, records in memory. `tools/bench` runs it.

use std::io::Write;
use std::time::Instant;

use numapilot_perf::abi::kind;
use numapilot_perf::ibs::OpRecord;
use numapilot_perf::testing::DataFile;
use numapilot_perf::testing::streams::{ibs, pebs};
use numapilot_perf::{Bytes, Endian, Header, MemoryAccess, Sample, Session};

const RECORDS: u64 = 20_000;
const ROUNDS: usize = 9;
const REPEATS: u64 = 20;

/// Decodes every record; accesses found, and a sum that depends on all of them.
fn pass(session: &Session, bytes: &[u8]) -> (u64, u64) {
    let (mut found, mut sum) = (0, 0u64);
    let mut at = 0;
    while let Ok(header) = Header::decode(&mut Bytes::new(&bytes[at..], at as u64, Endian::Little)) {
        let body = &bytes[at + Header::BYTES..];
        let mut sample = Sample::default();
        if header.kind == kind::SAMPLE
            && let Ok(event) = session.decode_sample(header, body, at as u64, &mut sample)
        {
            let attr = &session.events()[event];
            let op = sample.raw.and_then(|raw| OpRecord::decode(raw, 0).ok());
            let access = match op {
                Some(op) => MemoryAccess::of_ibs(attr, &sample, &op),
                None => MemoryAccess::of_sample(attr, &sample),
            };
            if let Some(access) = access {
                found += 1;
                sum = sum.wrapping_add(access.address ^ u64::from(access.latency_cycles.unwrap_or(0)));
            }
        }
        at += usize::from(header.size);
        if at >= bytes.len() {
            break;
        }
    }
    (found, sum)
}

fn main() -> std::io::Result<()> {
    let kinds: [(&str, DataFile); 2] =
        [("PEBS, call chain", pebs(RECORDS, Endian::Little)), ("IBS, registers", ibs(RECORDS))];
    for (name, recording) in kinds {
        let mut session = Session::new(Endian::Little);
        for (attr, ids) in &recording.events {
            session.add(attr.clone(), ids.iter().copied());
        }
        let bytes = recording.records.concat();
        let mut rounds = Vec::new();
        let mut check = 0u64;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for _ in 0..REPEATS {
                let (found, sum) = pass(&session, &bytes);
                assert_eq!(found, RECORDS);
                check = check.wrapping_add(sum);
            }
            rounds.push(start.elapsed().as_nanos() as f64 / (REPEATS * RECORDS) as f64);
        }
        rounds.sort_by(f64::total_cmp);
        let (least, median) = (rounds[0], rounds[ROUNDS / 2]);
        let size = bytes.len() as u64 / RECORDS;
        let line = format!("{name}: {median:.0} ns per sample of {size} bytes (least {least:.0}; check {check:x})\n");
        std::io::stdout().write_all(line.as_bytes())?;
    }
    Ok(())
}
