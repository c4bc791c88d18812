//! Feeds libFuzzer's bytes to the entry function that `crates/trace/tests/mutations.rs` shares.
#![no_main]

#[path = "../../crates/trace/tests/common/entries.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::meta(bytes));
