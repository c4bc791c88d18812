//! The fuzz targets' entry functions over seeded mutations of the seeds in `fuzz/corpus`: what the stable compiler can do without libFuzzer.

mod common;
#[path = "common/entries.rs"]
mod entries;

use std::path::Path;

use common::thread_ring;
use numapilot_random::Xorshift;
use numapilot_trace::wire::{Clock, Encoder};

/// Changes bits, bytes and words, cuts, repeats and swaps runs.
fn mutate(seed: &[u8], random: &mut Xorshift) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + random.below(4) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.bits() as u8,
            2 => bytes.truncate(at),
            3 => {
                let word = [0, 1, u64::MAX, random.bits(), i64::MAX as u64][random.below(5) as usize].to_le_bytes();
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&word[..end - at]);
            }
            4 => {
                let run = bytes[at..(at + random.below(64) as usize).min(bytes.len())].to_vec();
                let to = random.below(bytes.len() as u64) as usize;
                bytes.splice(to..to, run);
            }
            _ => {
                let end = (at + random.below(32) as usize).min(bytes.len());
                bytes.drain(at..end);
            }
        }
    }
    bytes
}

fn run(target: &str, rounds: usize, entry: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    let mut random = Xorshift::new(0xf022 + target.len() as u64);
    for path in paths {
        let seed = std::fs::read(&path).unwrap();
        entry(&seed);
        for round in 0..rounds {
            let bytes = mutate(&seed, &mut random);
            if std::panic::catch_unwind(|| entry(&bytes)).is_err() {
                let kept = std::env::temp_dir().join(format!("numapilot-{target}-{round}"));
                std::fs::write(&kept, &bytes).unwrap();
                panic!("round {round} of {}: input kept in {}", path.display(), kept.display());
            }
        }
    }
}

#[test]
fn wire_takes_any_bytes() {
    run("wire", 3000, entries::wire);
}

#[test]
fn files_take_any_bytes() {
    // One test, since these entries share a folder.
    run("chunks", 400, entries::chunks);
    // Parquet's own panics on damaged pages are caught where they happen; their messages say nothing here.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    run("tables", 400, entries::tables);
    std::panic::set_hook(hook);
    entries::clean_up();
}

#[test]
fn meta_takes_any_bytes() {
    run("meta", 1500, entries::meta);
}

/// `fuzz/corpus/wire/threads` was written by this test with NUMAPILOT_WRITE_GOLDEN=1.
#[test]
fn the_wire_seed_is_what_the_generator_writes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/wire/threads");
    let mut encoder = Encoder::new(Clock::NANOSECONDS);
    let mut bytes = Vec::new();
    thread_ring(1, 60, &mut Xorshift::new(3)).iter().for_each(|record| encoder.encode(record, &mut bytes));
    if std::env::var_os("NUMAPILOT_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}
