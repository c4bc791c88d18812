//! One function per decoder: takes any bytes, must neither panic nor hang nor use much memory. Shared by the libFuzzer targets in `fuzz/`
//! and by `mutations.rs`.
#![allow(dead_code, missing_docs)]

use std::path::{Path, PathBuf};

use numapilot_trace::chunk::{ChunkHeader, ChunkKind, RawTrace};
use numapilot_trace::ids::Order;
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

/// Opens the bytes as a chunk file. Since mutations hardly ever find a checksum, other bytes than a chunk's first become payload and header
/// fields of a chunk with sound checksums.
pub fn chunks(bytes: &[u8]) {
    match bytes.split_first_chunk::<32>() {
        Some((fields, payload)) if bytes[0] != b'N' => {
            let session = sound_chunk(ChunkKind::SessionStart, &[0; 32], b"{}");
            let (first, second) = payload.split_at(payload.len().min(usize::from(fields[1]) * 8));
            let mut file = [session, sound_chunk(ChunkKind::Ring, fields, first)].concat();
            file.extend(sound_chunk(ChunkKind::Ring, fields, second));
            chunk_file(&file);
        }
        _ => chunk_file(bytes),
    }
}

fn sound_chunk(kind: ChunkKind, fields: &[u8; 32], payload: &[u8]) -> Vec<u8> {
    let word = |at: usize| u64::from_le_bytes(fields[at..at + 8].try_into().unwrap_or_default());
    let stored = payload.len() as u32;
    let header = ChunkHeader {
        kind,
        compressed: fields[2] & 1 != 0,
        bases_known: fields[2] & 2 != 0,
        payload_crc: crc32fast::hash(payload),
        raw_bytes: stored + u32::from(fields[2] & 1) * u32::from(fields[3]) * 64,
        stored_bytes: stored,
        sequence: u64::from(fields[4]),
        slot: u32::from(fields[5] & 1),
        thread: None,
        generation: 0,
        base_order: Order(word(8)),
        base_clock: word(16),
    };
    [&header.to_bytes()[..], payload].concat()
}

/// Reads every ring and the merge: both must give the same number of records.
fn chunk_file(bytes: &[u8]) {
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
