//! The fuzz target's calls over seeded bytes: what the stable compiler can do without libFuzzer.

#[path = "common/calls.rs"]
mod calls;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The bytes of a seed. Every other trace is sound, so that calls go deep.
fn bytes_of(seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let length = 64 + random.next() as usize % 1500;
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| random.next() as u8).take(length).collect();
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
