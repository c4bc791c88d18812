//! Feeds libFuzzer's bytes to the entry function that `crates/trace/tests/mutations.rs` shares.
#![no_main]

#[path = "../../crates/trace/tests/common/entries.rs"]
mod entries;
mod panics;

libfuzzer_sys::fuzz_target!(init: panics::let_parquet_panic(), |bytes: &[u8]| entries::tables(bytes));
