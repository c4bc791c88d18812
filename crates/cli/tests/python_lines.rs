//! Allocations of Python programs have the Python function and line that they were made for, whatever the engine; and what looks like an interpreter but
//! is none does no harm.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::common::*;
use numapilot_flows::ObjectKind;
use numapilot_flows::Trace;
use numapilot_not_run::not_run;
use numapilot_trace::ids::StackId;
use serde_json::Value;

const SOURCE: &str = include_str!("programs/objects.py");

/// The interpreter itself: `python3` can be a script that looks for one.
fn interpreter() -> Option<PathBuf> {
    let told =
        Command::new("python3").args(["-c", "import sys; print(sys.executable, *sys.version_info[:2])"]).output();
    let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let [path, "3", minor] = told.split_whitespace().collect::<Vec<_>>()[..] else {
        not_run!(Python, "python3: {told:?}");
        return None;
    };
    if !(9..=14).contains(&minor.parse::<u32>().unwrap_or(0)) {
        not_run!(Python, "python3 is version 3.{minor}, and 3.9 to 3.14 are followed");
        return None;
    }
    Some(PathBuf::from(path))
}

fn line(mark: &str) -> u64 {
    let wanted = format!("LINE {mark}");
    1 + SOURCE.lines().position(|line| line.ends_with(&wanted)).expect("the mark") as u64
}

/// The site at a line: name, function, blocks, bytes, threads.
#[track_caller]
fn at(heap: &Value, mark: &str) -> (String, String, u64, u64, u64) {
    let place = format!("objects.py:{}", line(mark));
    let sites = heap["sites"].as_array().expect("sites");
    let row = sites.iter().find(|row| row["place"] == place.as_str()).unwrap_or_else(|| panic!("no {place} in {heap}"));
    let text = |field: &str| row[field].as_str().expect("text").to_owned();
    let count = |field: &str| row[field].as_u64().expect("a count");
    (text("name"), text("function"), count("allocations"), count("allocated_bytes"), count("allocating_threads"))
}

/// Functions and lines of Python in a call stack, innermost first.
fn python_frames(trace: &Trace, stack: StackId) -> Vec<(String, u32)> {
    let locations = trace.stack(stack).iter().map(|&at| trace.location(at));
    let frames = locations.filter(|location| location.is_interpreted()).flat_map(|location| &location.frames);
    frames.map(|frame| (frame.function.to_string(), frame.line)).collect()
}

/// Arrays are filled by the functions that make them.
fn check_accesses(path: &Path) {
    let trace = Trace::open(path).expect("the trace opens");
    for (mark, function) in [("cells", "__init__"), ("table", "fill")] {
        let place = format!("objects.py:{}", line(mark));
        let (mut all, mut named) = (0, 0);
        for access in trace.accesses() {
            let site = access.object.and_then(|object| trace.site_of(object));
            if site.is_some_and(|site| site.place() == place) {
                let frames = python_frames(&trace, access.stack);
                all += 1;
                named += u32::from(frames.iter().any(|(name, _)| name.ends_with(function)));
            }
        }
        assert!(all > 0 && named * 4 >= all * 3, "{mark}: {named} of {all}");
    }
}

#[test]
fn arrays_have_the_lines_that_made_them() {
    let Some(python) = interpreter() else { return };
    let folder = scratch();
    let script = folder.path().join("objects.py");
    fs::write(&script, SOURCE).expect("written");
    for engine in ["track", "emulate"] {
        let trace = folder.path().join(format!("{engine}.numatrace"));
        let machine: &[&str] = if engine == "emulate" { &["--machine", "xeon-2s"] } else { &[] };
        let ran = record(&trace, &[&["--engine", engine], machine].concat(), &python, &[&script]);
        if engine == "emulate" && has_no_emulator(&ran) {
            continue;
        }
        let ran = ran.succeeded();
        assert_eq!(ran.stdout, "7 20\n");
        let report = report_json(&trace, &["--heap", "-n", "100000"]);
        let near = |bytes: u64, wanted: u64| (wanted..=wanted + wanted / 50).contains(&bytes);
        let (name, function, blocks, bytes, _) = at(&report["heap"], "cells");
        assert_eq!((name.as_str(), blocks), ("self.cells", 7), "{engine}");
        assert!(function.ends_with("__init__") && near(bytes, 7 * 100_000), "{engine}: {function} {bytes}");
        let (name, function, blocks, bytes, _) = at(&report["heap"], "block");
        assert_eq!((name.as_str(), function.as_str(), blocks), ("block", "blocks", 20), "{engine}");
        assert!(near(bytes, 20 * 50_000), "{engine}: {bytes}");
        if engine == "emulate" {
            check_accesses(&trace);
            let rows = report["sites"].as_array().expect("sites");
            let arenas: Vec<&Value> = rows.iter().filter(|row| row["name"] == "Python's small objects").collect();
            assert!(arenas.len() == 1 && arenas[0]["kind"] == "anonymous", "{arenas:?}");
        }
        let (name, function, blocks, bytes, _) = at(&report["heap"], "raw");
        assert_eq!((name.as_str(), function.as_str(), bytes), ("raw", "unlocked", blocks * 70_000), "{engine}");
        // Of other threads than the first the kernel has to read the interpreter's memory, which an emulated one may not offer.
        assert!(blocks == 5 || engine == "emulate" && blocks == 2, "{engine}: {blocks}");
        let (name, _, blocks, bytes, threads) = at(&report["heap"], "table");
        assert_eq!((name.as_str(), blocks, threads), ("table", 3, 3), "{engine}");
        assert!(near(bytes, 3 * 8 * 10_000), "{engine}: {bytes}");
    }
    let track = folder.path().join("track.numatrace");
    let text = run(&["report", track.to_str().expect("UTF-8"), "--heap"]).succeeded().stdout;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("Python's small objects are not counted here: the interpreter has mapped up to"), "{text}");
    let stacks = run(&["report", track.to_str().expect("UTF-8"), "--svg", "-"]).succeeded();
    assert!(
        stacks.stdout.contains("fill") && stacks.stdout.contains("blocks"),
        "Python's functions are in the call stacks"
    );
}

/// Records the program that only says it is an interpreter; its heap.
fn fake(folder: &Path, program: &Path, mode: &str) -> Value {
    let trace = folder.join(format!("{mode}.numatrace"));
    let ran = record(&trace, &["--engine", "track"], program, &[mode]).succeeded();
    assert_eq!(ran.stdout, "4950\n", "{mode}");
    report_json(&trace, &["-n", "1000"])["heap"].clone()
}

#[test]
fn what_only_looks_like_an_interpreter_does_no_harm() {
    let folder = scratch();
    let program = build_plain(folder.path(), "fake_python", include_str!("programs/fake_python.c"), &["-rdynamic"]);
    let blocks = |heap: &Value, function: &str| {
        let sites = heap["sites"].as_array().expect("sites").iter();
        sites.filter(|row| row["function"] == function).map(|row| row["frees"].as_u64().expect("a count")).sum::<u64>()
    };
    for mode in ["good", "cycle", "unlocked"] {
        let heap = fake(folder.path(), &program, mode);
        assert_eq!(blocks(&heap, "invented"), 100, "{mode}: {heap}");
        let sites = heap["sites"].as_array().expect("sites");
        assert!(sites.iter().any(|row| row["place"] == "made.py:16"), "{mode}: {heap}");
    }
    for (mode, function) in [("latin", "trouvé"), ("wide", "trouvé€")] {
        let heap = fake(folder.path(), &program, mode);
        assert_eq!(blocks(&heap, function), 100, "{mode}: {heap}");
    }
    // Its interpreter passes the block on, so that it is its caller's.
    for mode in ["wild", "odd", "other", "threaded"] {
        let heap = fake(folder.path(), &program, mode);
        assert_eq!((blocks(&heap, "invented"), blocks(&heap, "main")), (0, 100), "{mode}: {heap}");
    }
}

/// Accesses have the functions that the interpreter runs: where it calls others, where it accesses memory itself, and not where it has no part.
#[test]
fn accesses_have_the_functions_that_the_interpreter_runs() {
    let folder = scratch();
    let source = include_str!("programs/fake_python.c");
    let plain = build_plain(folder.path(), "fake_plain", source, &["-rdynamic"]);
    let instrumented = build(folder.path(), "fake_instrumented", "cc", source, &["-rdynamic"]);
    let invented = [("invented".to_owned(), 16)];
    for (engine, program, mode) in [
        ("instrument", &instrumented, "good"),
        ("instrument", &instrumented, "wild"),
        ("emulate", &plain, "good"),
        ("emulate", &plain, "wild"),
    ] {
        let path = folder.path().join(format!("{engine}-{mode}.numatrace"));
        let options = ["--engine", engine, "--machine", "opteron-8385", "--period", "1", "--lines", "1"];
        let ran = record(&path, &options, program, &[mode]);
        if engine == "emulate" && has_no_emulator(&ran) {
            return;
        }
        assert_eq!(ran.succeeded().stdout, "4950\n", "{engine}, {mode}");
        let trace = Trace::open(&path).expect("the trace opens");
        let frames_of = |function: &str, kind: ObjectKind| {
            let accesses = trace.accesses().filter(|access| {
                let frames = &trace.location(access.location).frames;
                trace.kind_of(access.object) == kind && frames.iter().any(|frame| &*frame.function == function)
            });
            accesses.map(|access| python_frames(&trace, access.stack)).collect::<Vec<_>>()
        };
        let expected: &[(String, u32)] = if mode == "good" { &invented } else { &[] };
        for function in ["called", "_PyEval_EvalFrameDefault"] {
            let found = frames_of(function, ObjectKind::Heap);
            assert!(found.len() > 10, "{engine}, {mode}, {function}: {}", found.len());
            assert!(found.iter().all(|frames| frames == expected), "{engine}, {mode}, {function}: {found:?}");
        }
        if engine == "emulate" {
            let found = frames_of("outside", ObjectKind::Static);
            assert!(found.len() > 500 && found.iter().all(Vec::is_empty), "{mode}: {found:?}");
        }
    }
}
