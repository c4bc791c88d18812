//! Feeds libFuzzer's bytes to the calls that `crates/capi/tests/sequences.rs` shares.
#![no_main]

#[path = "../../crates/capi/tests/common/calls.rs"]
mod calls;
mod panics;

libfuzzer_sys::fuzz_target!(init: panics::let_parquet_panic(), |bytes: &[u8]| calls::calls(bytes));
