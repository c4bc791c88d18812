//! Go's table of functions with any bytes in it: whatever it says, addresses get names or none.
#![no_main]

use numapilot_symbols::GoTable;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (text, start) = (0x1000, 0x1000);
    for table in [GoTable::read(bytes, text, start), GoTable::read_at(bytes, text)].into_iter().flatten() {
        for address in [0, 0x1000, 0x1012, 0x101f, 0x40_1000, u64::MAX] {
            let found = table.find(address);
            assert!(found.as_ref().is_none_or(|found| found.entry <= address));
            // The tree of inlined calls lies elsewhere in the binary: it is any bytes, too.
            let memory = |at: u64, count: u64| bytes.get(at as usize..)?.get(..count as usize);
            let frames = table.frames(address, Some(0), memory);
            assert_eq!(frames.is_empty(), found.is_none());
        }
    }
});
