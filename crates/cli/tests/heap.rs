//! The heap profile of recordings of a program whose every allocation is known, by each engine that has the tracker, as text, JSON, picture, table and profile.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use crate::common::*;
use serde_json::Value;

const SOURCE: &str = include_str!("programs/handed.c");
const BLOCKS: u64 = 2000;

/// The site at the line with a mark.
#[track_caller]
fn at<'a>(heap: &'a Value, mark: &str) -> &'a Value {
    let wanted = format!("LINE {mark} */");
    let line = 1 + SOURCE.lines().position(|line| line.contains(&wanted)).expect("the mark");
    let place = format!("handed.c:{line}");
    let sites = heap["sites"].as_array().expect("sites");
    sites.iter().find(|row| row["place"] == place.as_str()).unwrap_or_else(|| panic!("no {place} in {heap}"))
}

/// Asserts fields of a row.
#[track_caller]
fn has(row: &Value, fields: &[(&str, u64)]) {
    for (field, value) in fields {
        assert_eq!(row[*field].as_u64(), Some(*value), "{field} of {row}");
    }
}

/// Records the program and returns its trace; `None` where the engine does not run here.
fn recorded(folder: &Path, engine: &str) -> Option<PathBuf> {
    let program = if engine == "instrument" {
        build(folder, "handed", "cc", SOURCE, &[])
    } else {
        build_plain(folder, "handed", SOURCE, &[])
    };
    let trace = folder.join(format!("{engine}.numatrace"));
    let machine: &[&str] = if engine == "emulate" { &["--machine", "xeon-2s"] } else { &[] };
    let ran = record(&trace, &[&["--engine", engine], machine].concat(), &program, &[BLOCKS.to_string()]);
    if engine == "emulate" && has_no_emulator(&ran) {
        return None;
    }
    let ran = ran.succeeded();
    assert_eq!(ran.stdout, format!("{BLOCKS}\n"));
    Some(trace)
}

/// What the program did, to the block.
fn check(heap: &Value) {
    let handed = at(heap, "handed");
    let bytes = BLOCKS * 1024;
    has(handed, &[("allocations", BLOCKS), ("allocated_bytes", bytes), ("at_peak_bytes", bytes)]);
    has(handed, &[("peak_live_bytes", bytes), ("peak_live_blocks", BLOCKS), ("left_blocks", 0), ("left_bytes", 0)]);
    has(handed, &[("frees", BLOCKS), ("remote_frees", BLOCKS), ("allocating_threads", 1), ("freeing_threads", 1)]);
    let own = at(heap, "own");
    has(own, &[("allocations", BLOCKS), ("allocated_bytes", 64 * BLOCKS), ("peak_live_bytes", 64), ("left_blocks", 0)]);
    has(own, &[("frees", BLOCKS), ("remote_frees", 0), ("at_peak_bytes", 0), ("reallocations", 0)]);
    has(at(heap, "first"), &[("allocations", 1), ("frees", 1), ("at_peak_bytes", 0), ("left_blocks", 0)]);
    let grown = at(heap, "grown");
    has(grown, &[("allocations", 1), ("reallocations", 1), ("frees", 0), ("left_bytes", 300_000), ("left_blocks", 1)]);
    has(grown, &[("at_peak_bytes", 300_000)]);
    let sites = heap["sites"].as_array().expect("sites");
    let at_peak: u64 = sites.iter().map(|row| row["at_peak_bytes"].as_u64().expect("bytes")).sum();
    assert_eq!(heap["peak_bytes"].as_u64(), Some(at_peak), "sites add up to the peak");
    assert!(handed["median_lifetime_ns"].as_u64() > own["median_lifetime_ns"].as_u64(), "{handed} {own}");
}

#[test]
fn every_engine_with_the_tracker_counts_the_heap_alike() {
    let folder = scratch();
    for engine in ["track", "instrument", "emulate"] {
        let Some(trace) = recorded(folder.path(), engine) else { continue };
        let report = report_json(&trace, &["--heap", "-n", "1000"]);
        check(&report["heap"]);
        // What accesses tell stands beside the heap where there are any.
        assert_eq!(report["recording"]["engine"], engine);
    }
}

#[test]
fn a_recording_of_allocations_is_reported_as_a_heap() {
    let folder = scratch();
    let trace = recorded(folder.path(), "track").expect("it runs anywhere");
    let name = trace.to_str().expect("UTF-8");
    let report = report_json(&trace, &["-n", "1000"]);
    check(&report["heap"]);
    let text = run(&["report", name, "--width", "140"]).succeeded().stdout;
    for needed in [
        "recorded allocations and no memory accesses",
        "At its peak",
        "2.24 MiB",
        "handed.c:",
        "RFREE",
        "THREADS THAT ALLOCATE",
    ] {
        assert!(text.contains(needed), "no `{needed}` in\n{text}");
    }
    // Nothing may be said of what was not recorded.
    for verdict in ["remote", "local", "nothing to fix", "FINDINGS"] {
        assert!(!text.contains(verdict), "`{verdict}` in\n{text}");
    }
    let several = run(&["report", name, "--object", "kept"]);
    assert!(
        several.code == 1 && several.stderr.contains("choose one of S"),
        "two sites assign `kept`: {}",
        several.stderr
    );
    let own = report_json(&trace, &["--object", "own"]);
    let total = &own["heap"]["total"];
    assert_eq!((total["allocations"].as_u64(), total["allocated_bytes"].as_u64()), (Some(BLOCKS), Some(64 * BLOCKS)));
    let none = run(&["report", name, "--object", "nothing"]);
    assert!(none.code == 1 && none.stderr.contains("no object has that name"), "{}", none.stderr);

    let file = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (svg, pprof, csv, html) = (file("h.svg"), file("h.pb.gz"), file("h.csv"), file("h.html"));
    run(&["report", name, "--svg", &svg, "--pprof", &pprof, "--csv", &csv, "--table", "heap"]).succeeded();
    run(&["report", name, "--html", &html]).succeeded();
    let read = |path: &str| fs::read_to_string(path).expect("it is there");
    assert!(read(&svg).starts_with("<svg") && read(&svg).contains("produce"), "the call stack that allocates most");
    assert!(read(&csv).lines().any(|line| line.contains("handed.c") && line.contains(&format!(",{BLOCKS},"))));
    assert_eq!(fs::read(&pprof).expect("it is there")[..2], [0x1f, 0x8b]);
    assert!(read(&html).contains("<!doctype html") || read(&html).contains("<!DOCTYPE html"));
}

#[test]
fn a_recording_without_the_tracker_has_no_heap_and_says_why() {
    let folder = scratch();
    let program = build_plain(folder.path(), "static", SOURCE, &["-static"]);
    let trace = folder.path().join("t.numatrace");
    let name = trace.to_str().expect("UTF-8");
    let ran = run(&["record", "-o", name, "--", program.to_str().expect("UTF-8"), "10"]);
    if ran.code != 0 && ran.stderr.contains("statically linked") {
        // Nothing of the kernel is allowed here: it is refused, with both remedies.
        assert!(ran.stderr.contains("engine fault"), "{}", ran.stderr);
        return;
    }
    let ran = ran.succeeded();
    assert!(ran.stderr.contains("heap blocks are not"), "{}", ran.stderr);
    let folder = folder.path();
    let picture = folder.join("h.svg").to_str().expect("UTF-8").to_owned();
    for options in [&["--heap"][..], &["--svg", &picture, "--view", "heap"], &["--csv", "-", "--table", "heap"]] {
        let refused = run(&[&["report", name][..], options].concat());
        assert!(
            refused.code == 1 && refused.stderr.contains("no heap block was recorded"),
            "{options:?}: {}",
            refused.stderr
        );
    }
    assert!(!folder.join("h.svg").exists());
}
