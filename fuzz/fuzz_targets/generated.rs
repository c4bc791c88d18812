//! Names of generated code, as a map and as a dump, with any bytes in them: whatever they say, addresses get names or none.
#![no_main]

use numapilot_host::VirtAddr;
use numapilot_symbols::{CodeSpan, GeneratedCode, GeneratedFile, read_jitdump, read_perf_map};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let dump = read_jitdump(bytes).unwrap_or_default();
    for GeneratedFile { functions, .. } in [read_perf_map(bytes), dump] {
        let starts: Vec<VirtAddr> = functions.iter().take(16).map(|function| function.address).collect();
        let code = GeneratedCode::new(functions);
        let near = |VirtAddr(at): VirtAddr| [at, at.wrapping_sub(1), at.wrapping_add(7)];
        for address in starts.into_iter().flat_map(near).chain([0, u64::MAX]).map(VirtAddr) {
            assert_eq!(code.find(address).is_some(), code.covers(address));
            let narrowed = code.narrowed(address, CodeSpan::at(7));
            assert_eq!(code.find_within(address, narrowed).is_some(), code.covers(address));
        }
    }
});
