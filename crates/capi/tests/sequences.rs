//! The fuzz target's calls over seeded bytes: what the stable compiler can do without libFuzzer.

#[path = "common/calls.rs"]
mod calls;

use numapilot_random::Random;

/// The bytes of a seed. Every other trace is sound, so that calls go deep.
fn bytes_of(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let length = 64 + random.bits() as usize % 1500;
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| random.bits() as u8).take(length).collect();
    bytes[0] = if seed.is_multiple_of(2) { 0 } else { bytes[0] };
    bytes
}

#[test]
fn any_calls_in_any_order_on_any_trace_end_in_a_code() {
    // Parquet's own panics on damaged pages are caught where they happen; their messages say nothing here.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let failed = (0..250).find(|&seed| std::panic::catch_unwind(|| calls::calls(&bytes_of(seed))).is_err());
    std::panic::set_hook(hook);
    if let Some(seed) = failed {
        eprintln!("seed {seed}");
        calls::calls(&bytes_of(seed));
        panic!("it failed once, and not again");
    }
    calls::clean_up();
}
