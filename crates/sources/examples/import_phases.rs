//! scratch
#![allow(clippy::print_stdout, missing_docs)]
use std::time::Instant;
use numapilot_sources::import::{ImportOptions, Importer};
use numapilot_sources::Existing;
fn cpu() -> f64 {
    let mut t: libc::timespec = unsafe { std::mem::zeroed() };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let o = ImportOptions { input: a[1].clone().into(), output: a[2].clone().into(), existing: Existing::Replace };
    let (s, c) = (Instant::now(), cpu());
    let mut i = Importer::open(&o).unwrap();
    if a.len() > 3 {
        use numapilot_trace::stream::RecordSource;
        i.start().unwrap();
        let (mut v, mut n) = (Vec::new(), 0);
        while i.read(&mut v).unwrap() { n += v.len(); v.clear(); }
        println!("read only {:.3} wall {:.3} cpu {n}", s.elapsed().as_secs_f64(), cpu() - c);
        return;
    }
    let f = numapilot_flows::finalise_stream(&o.output, &mut i).unwrap();
    drop(i.finish());
    println!("import {:.3} wall {:.3} cpu {}", s.elapsed().as_secs_f64(), cpu() - c, f.samples);
}
