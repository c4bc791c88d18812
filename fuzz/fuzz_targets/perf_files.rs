//! Feeds libFuzzer's bytes to the entry function that `crates/perf/tests/mutations.rs` shares, and says how many records they made.
#![no_main]

#[path = "../../crates/perf/tests/common/entries.rs"]
mod entries;

use std::sync::atomic::{AtomicU64, Ordering};

static RECORDS: AtomicU64 = AtomicU64::new(0);
const TELL_EVERY: u64 = 10_000_000;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let new = entries::file(bytes);
    let before = RECORDS.fetch_add(new, Ordering::Relaxed);
    if before / TELL_EVERY != (before + new) / TELL_EVERY {
        eprintln!("{} million records", (before + new) / 1_000_000);
    }
});
