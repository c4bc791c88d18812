//! One function per decoder: takes any bytes, must neither panic nor hang nor use much memory. Shared by the libFuzzer targets in `fuzz/`
//! and by `mutations.rs`.
#![allow(dead_code, missing_docs)]

use std::path::{Path, PathBuf};

use numapilot_trace::chunk::RawTrace;
use numapilot_trace::meta::Meta;
use numapilot_trace::tables::{AccessColumns, ObjectColumns, Table, TableReader, ThreadColumns};
use numapilot_trace::wire::{Clock, Encoder, RingState, decode, scan};

/// Decodes and scans in two pieces, and encodes what came out: it must decode to the same again.
pub fn wire(bytes: &[u8]) {
    let clock = Clock::NANOSECONDS;
    let cut = bytes.first().map_or(0, |first| usize::from(*first) * 8).min(bytes.len());
    let mut state = RingState::new(clock);
    let mut records = Vec::new();
    for piece in [&bytes[..cut], &bytes[cut..]] {
        let mut scanned = state;
        let clean = scan(piece, &mut scanned).is_ok();
        let before = state.offset;
        let mut failed = false;
        for result in decode(piece, &mut state) {
            match result {
                Ok(record) => records.push(record),
                Err(_) => failed = true,
            }
        }
        assert_eq!(state.offset - before, piece.len() as u64);
        assert!(clean || failed, "decoding accepts what scanning refuses");
    }
    let mut encoder = Encoder::new(clock);
    let mut again = Vec::new();
    records.iter().for_each(|record| encoder.encode(record, &mut again));
    let mut state = RingState::new(clock);
    let decoded: Vec<_> = decode(&again, &mut state).map(|result| result.expect("our own bytes")).collect();
    assert_eq!(decoded.len(), records.len());
    for (left, right) in decoded.iter().zip(&records) {
        assert_eq!(left.stamp, right.stamp);
        assert_eq!(left.event, right.event);
    }
}

fn folder() -> &'static Path {
    static FOLDER: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    FOLDER.get_or_init(|| {
        let base = Path::new("/dev/shm");
        let base = if base.is_dir() { base.to_path_buf() } else { std::env::temp_dir() };
        let folder = base.join(format!("numapilot-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("raw")).expect("a folder for the fuzzer's files");
        folder
    })
}

/// Removes the entries' files; for tests, which should leave nothing behind.
pub fn clean_up() {
    let _ = std::fs::remove_dir_all(folder());
}

/// Opens the bytes as a chunk file, reads every ring and the merge: both must give the same number of records.
pub fn chunks(bytes: &[u8]) {
    std::fs::write(folder().join("raw/00000.chunks"), bytes).expect("room for a file");
    let Ok(raw) = RawTrace::open(folder()) else { return };
    let mut records = Vec::new();
    for ring in raw.rings() {
        let mut reader = raw.ring(ring);
        while reader.next_chunk(&mut records).expect("a readable file") {}
    }
    assert_eq!(raw.merge().count(), records.len());
}

fn table<T: Table>(path: &Path) {
    if let Ok(columns) = TableReader::<T>::open(path).and_then(TableReader::read_all) {
        assert!(columns.is_even());
    }
}

/// Opens the bytes as three of the tables.
pub fn tables(bytes: &[u8]) {
    let path = folder().join("table.parquet");
    std::fs::write(&path, bytes).expect("room for a file");
    table::<AccessColumns>(&path);
    table::<ObjectColumns>(&path);
    table::<ThreadColumns>(&path);
}

/// Parses the bytes as a `meta.json`; what is accepted must survive being written.
pub fn meta(bytes: &[u8]) {
    let path = Path::new("meta.json");
    if let Ok(meta) = Meta::parse(bytes, path) {
        let text = serde_json::to_vec(&meta).expect("our own type");
        assert!(Meta::parse(&text, path).is_ok());
    }
}
