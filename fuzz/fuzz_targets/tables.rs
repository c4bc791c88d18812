//! Feeds libFuzzer's bytes to the entry function that `crates/trace/tests/mutations.rs` shares.
//!
//! The parquet crate asserts on damaged pages and footers; our reader catches that and returns an error. Such panics are therefore no
//! finding, and every other one is.
#![no_main]

#[path = "../../crates/trace/tests/common/entries.rs"]
mod entries;

fn let_parquet_panic() {
    let abort = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.location().is_some_and(|place| place.file().contains("/parquet-")) {
            abort(info);
        }
    }));
}

libfuzzer_sys::fuzz_target!(init: let_parquet_panic(), |bytes: &[u8]| entries::tables(bytes));
