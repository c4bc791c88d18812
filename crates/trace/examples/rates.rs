//! Prints how fast each step of the trace's path is, in CPU time of one core: `cargo run --release -p numapilot-trace --example rates`.
#![allow(clippy::print_stdout)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{cpu_seconds, realistic, thread_ring};
use numapilot_random::Xorshift;
use numapilot_trace::chunk::{ChunkWriter, RawTrace, RingId, SessionEnd, SessionStart, WriterOptions};
use numapilot_trace::record::Record;
use numapilot_trace::tables::{AccessColumns, Durability, TableReader, TableWriter};
use numapilot_trace::wire::{Clock, Encoder, RingState, decode};

const CLOCK: Clock = Clock { khz: 2_400_000, origin_cycles: 0 };
const THREADS: u32 = 16;
const RECORDS_PER_THREAD: usize = 200_000;
const ROWS: usize = 3_000_000;

/// Runs `work`, which handles `count` things and gives back something that depends on all of them.
fn measure(what: &str, count: usize, work: impl FnOnce() -> usize) {
    let start = cpu_seconds();
    let check = work();
    let seconds = cpu_seconds() - start;
    println!("{what:<28} {:6.1} million/s   ({check})", count as f64 / seconds / 1e6);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let mut random = Xorshift::new(0x5eed);
    let rings: Vec<Vec<Record>> =
        (0..THREADS).map(|thread| thread_ring(thread, RECORDS_PER_THREAD, &mut random)).collect();
    let total = rings.iter().map(Vec::len).sum();
    let mut streams = Vec::new();
    for records in &rings {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(CLOCK);
        records.iter().for_each(|record| encoder.encode(record, &mut bytes));
        streams.push(bytes);
    }
    measure("decode records", total, || {
        let one = |bytes: &Vec<u8>| decode(bytes, &mut RingState::new(CLOCK)).filter(Result::is_ok).count();
        streams.iter().map(one).sum()
    });
    let session = SessionStart { clock_khz: CLOCK.khz, ..SessionStart::default() };
    let mut writer = ChunkWriter::create(folder.path(), &session, WriterOptions::default())?;
    measure("write chunks, records", total, || {
        for (slot, bytes) in (0..).zip(&streams) {
            writer.append(RingId { slot, generation: 0 }, bytes).expect("room on the disk");
        }
        writer.bytes_written() as usize
    });
    writer.finish(&SessionEnd::default(), false)?;
    measure("read and merge, records", total, || {
        let raw = RawTrace::open(folder.path()).expect("what was just written");
        raw.merge().filter(Result::is_ok).count()
    });
    let accesses = realistic::accesses(ROWS);
    let path = folder.path().join("accesses.parquet");
    measure("write accesses table, rows", ROWS, || {
        let mut writer = TableWriter::create(&path).expect("room on the disk");
        writer.append(&accesses).expect("room on the disk");
        writer.finish(Durability::Synced).expect("room on the disk").bytes as usize
    });
    measure("read accesses table, rows", ROWS, || {
        let reader = TableReader::<AccessColumns>::open(&path).expect("what was just written");
        reader.read_all().expect("what was just written").time_ns.len()
    });
    Ok(())
}
