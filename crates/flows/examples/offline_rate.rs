//! Measures offline processing: decode, merge, join, symbolise, write; then open and iterate.
//!
//! `cargo run --release -p numapilot-flows --example offline_rate [ACCESSES]` prints accesses per second.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use numapilot_flows::{Trace, finalise};
use numapilot_host::VirtAddr;
use numapilot_trace::chunk::WriterOptions;
use numapilot_trace::ids::{ModuleId, StackId};
use numapilot_trace::record::{AllocKind, Event};

const THREADS: usize = 16;
const BASE: u64 = 0x5555_0000_0000;

/// Places in this very program, so that there are real symbols to look up.
fn code_addresses(own: &str, program: &mut common::Program) -> u64 {
    let data = std::fs::read(own).expect("this program can be read");
    use object::{Object, ObjectSymbol};
    let file = object::File::parse(&*data).expect("this program is ELF");
    let mut top = 0;
    program.code.clear();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.size() > 16) {
        top = top.max(symbol.address() + symbol.size());
        program.code.push(BASE + symbol.address() + 9);
    }
    program.code.truncate(5000);
    top
}

/// CPU time of this process so far, in seconds: tells the cost apart from what else the machine is busy with.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = text.rsplit(')').next().unwrap_or("");
    let ticks =
        |index: usize| after_name.split_whitespace().nth(index).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    // utime and stime, the 14th and 15th fields, in ticks of 10 ms.
    (ticks(11) + ticks(12)) / 100.0
}

#[allow(clippy::print_stdout)]
fn main() {
    let accesses: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5_000_000);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().join("rate.numatrace");
    let own = std::env::current_exe().expect("own path").to_string_lossy().into_owned();
    let mut program = common::Program::new(&dir, 1, WriterOptions::default());
    let main = program.process(None);
    let top = code_addresses(&own, &mut program);
    program.emit(
        main,
        Event::Module {
            id: ModuleId(1),
            address: VirtAddr(BASE),
            bytes: top + 0x1000,
            bias: BASE,
            path: own,
            build_id: Vec::new(),
        },
    );
    let frames: Vec<VirtAddr> = program.code.iter().take(12).map(|&ip| VirtAddr(ip)).collect();
    program.emit(main, Event::Stack { id: StackId(1), frames, truncated: false, failed: false });
    for _ in 1..THREADS {
        program.thread(0);
    }
    for _ in 0..20_000 {
        program.alloc(main, AllocKind::Malloc, 1);
    }
    for index in 0..accesses {
        // Runs of one thread, as sampling gives them at its usual rates.
        let thread = (index / 8) as usize % THREADS;
        program.access(thread);
        if index % 50 == 0 {
            program.alloc(thread, AllocKind::Malloc, 1);
            program.free(thread);
        }
    }
    let expected = program.finish();
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let summary = finalise(&dir).expect("the recording can be joined");
    let seconds = start.elapsed().as_secs_f64();
    let rate = summary.samples as f64 / seconds / 1e6;
    println!(
        "finalise: {} accesses in {seconds:.2} s: {rate:.2} million/s, {} locations",
        summary.samples, summary.locations
    );
    println!("finalise: {:.0} ns of CPU time per access", (cpu_seconds() - cpu) * 1e9 / summary.samples as f64);
    let bytes = std::fs::metadata(dir.join("accesses.parquet")).map_or(0, |metadata| metadata.len());
    println!("at rest: {:.1} bytes per access", bytes as f64 / summary.samples as f64);
    let start = Instant::now();
    let trace = Trace::open(&dir).expect("the trace can be opened");
    println!("open: {:.2} million/s", summary.samples as f64 / start.elapsed().as_secs_f64() / 1e6);
    let start = Instant::now();
    let remote: u64 =
        trace.accesses().filter(|access| access.is_remote() == Some(true)).map(|a| u64::from(a.weight)).sum();
    println!(
        "iterate: {:.0} million/s ({remote} remote)",
        summary.samples as f64 / start.elapsed().as_secs_f64() / 1e6
    );
    assert_eq!(expected.len(), trace.accesses().len());
}
