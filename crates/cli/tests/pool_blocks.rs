//! Pools that a program carries itself, by each engine with the tracker: every block is an object with its line, every access belongs to the innermost block,
//! and the heap is counted without them.

use std::collections::HashMap;
use std::path::Path;
use std::path::PathBuf;

use crate::common::*;
use numapilot_flows::ObjectKind;
use numapilot_flows::Trace;

const SOURCE: &str = include_str!("programs/pool_blocks.c");
const BYTES: u64 = 12 << 20;

fn line(mark: &str) -> u32 {
    let wanted = format!("LINE {mark} */");
    1 + SOURCE.lines().position(|line| line.contains(&wanted)).expect("the mark") as u32
}

/// Records the program and returns its trace; `None` where the engine does not run here.
fn recorded(folder: &Path, engine: &str) -> Option<PathBuf> {
    let include = format!("-I{}", root().join("crates/runtime/include").display());
    let program = if engine == "instrument" {
        build(folder, "pool_blocks", "cc", SOURCE, &[&include])
    } else {
        build_plain(folder, "pool_blocks", SOURCE, &[&include])
    };
    let trace = folder.join(format!("{engine}.numatrace"));
    let simulated = ["--machine", "opteron-8385", "--period", "1", "--lines", "1"];
    let options: &[&str] = if engine == "track" { &[] } else { &simulated };
    let ran = record::<&str>(&trace, &[&["--engine", engine], options].concat(), &program, &[]);
    if engine == "emulate" && has_no_emulator(&ran) {
        return None;
    }
    assert_eq!(ran.succeeded().stdout, "5\n", "{engine}");
    Some(trace)
}

/// Pools' blocks, as line, name and size; each lived in the right memory, and none to the end.
fn check_blocks(trace: &Trace, engine: &str) {
    let mut blocks = Vec::new();
    for object in trace.objects() {
        let site = trace.site(object.site).expect("a site");
        if site.kind == ObjectKind::Pool {
            assert!(object.death.is_some(), "{engine}: {object:?}");
            assert_eq!((site.place(), &*site.function), (format!("pool_blocks.c:{}", site.line), "main"), "{engine}");
            blocks.push((site.line, site.name.to_string(), object.bytes));
        }
    }
    let block = |mark: &str, pool: &str, bytes| (line(mark), format!("{mark} in {pool}"), bytes);
    let expected = [
        block("first", "mapped", BYTES),
        block("second", "mapped", BYTES),
        block("whole", "outer", 2 * BYTES),
        block("part", "inner", BYTES),
    ];
    assert_eq!(blocks, expected, "{engine}");
}

/// Each walk is of as many lines as no cache can hold, and all of its accesses belong to what was walked.
fn check_accesses(trace: &Trace, engine: &str) {
    let mut by_line: HashMap<u32, u64> = HashMap::new();
    for access in trace.accesses() {
        let Some(object) = access.object.and_then(|object| trace.object(object)) else { continue };
        let site = trace.site(object.site).expect("a site");
        let range = object.address.0..object.address.0 + object.bytes;
        assert!(
            site.kind != ObjectKind::Pool || range.contains(&access.address.0),
            "{engine}: {access:?} of {object:?}"
        );
        if site.file.ends_with("pool_blocks.c") {
            *by_line.entry(site.line).or_default() += u64::from(access.weight);
        }
    }
    let lines = BYTES / 64;
    for mark in ["first", "mapping", "second", "part", "whole", "after"] {
        let found = by_line.get(&line(mark)).copied().unwrap_or(0);
        assert!(
            found > lines * 9 / 10 && found < lines * 11 / 10,
            "{engine}, {mark}: {found} of {lines} in {by_line:?}"
        );
    }
    let chunk = by_line.get(&line("chunk")).copied().unwrap_or(0);
    assert!(chunk < lines / 100, "{engine}: {chunk} accesses to what its pools cover whole");
}

/// Pools' blocks lie in memory that is counted: the heap at its peak is one block of malloc.
fn check_heap(trace: &Path, engine: &str) {
    let report = report_json(trace, &["--heap", "-n", "1000"]);
    let heap = &report["heap"];
    let peak = heap["peak_bytes"].as_u64().expect("bytes");
    assert!((2 * BYTES..2 * BYTES + BYTES / 2).contains(&peak), "{engine}: {peak}");
    let sites = heap["sites"].as_array().expect("sites");
    assert!(!sites.iter().any(|row| row["name"].as_str().is_some_and(|name| name.contains(" in "))), "{heap}");
    let text = run(&["report", trace.to_str().expect("UTF-8"), "--heap"]).succeeded().stdout;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("4 blocks of pools, or of a heap other than malloc's, are not counted here"), "{text}");
}

#[test]
fn every_block_of_a_pool_is_an_object_by_every_engine_with_the_tracker() {
    let folder = scratch();
    for engine in ["track", "instrument", "emulate"] {
        let Some(path) = recorded(folder.path(), engine) else { continue };
        let trace = Trace::open(&path).expect("the trace opens");
        check_blocks(&trace, engine);
        if engine != "track" {
            check_accesses(&trace, engine);
        }
        check_heap(&path, engine);
        assert_eq!((trace.losses().unmatched_frees, trace.losses().inconsistent_records), (0, 0), "{engine}");
    }
}
