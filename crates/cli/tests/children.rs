//! Programs that start others in every way: no record contradicts another, and every free finds its block.

use std::path::Path;

use crate::common::*;
use serde_json::Value;

const CHILDREN: &str = include_str!("programs/children.c");

/// Records and returns the losses, `None` where the engine says that it cannot run here.
fn losses(engine: &str, program: &Path, arguments: &[&str]) -> Option<Value> {
    let folder = scratch();
    let trace = folder.path().join("c.numatrace");
    let ran = record(&trace, &["--engine", engine, "--machine", "opteron-8385"], program, arguments);
    if engine == "emulate" && has_no_emulator(&ran) {
        return None;
    }
    assert_eq!(ran.code, 0, "{engine}: {}", ran.stderr);
    let meta = std::fs::read_to_string(trace.join("meta.json")).expect("a finished trace");
    let meta: Value = serde_json::from_str(&meta).expect("JSON");
    Some(meta["losses"].clone())
}

#[track_caller]
fn nothing_contradicts(engine: &str, program: &Path, arguments: &[&str]) {
    let Some(losses) = losses(engine, program, arguments) else { return };
    for name in ["inconsistent_records", "unmatched_frees", "ring_full", "no_slot"] {
        assert_eq!(losses[name].as_u64(), Some(0), "{engine}: {name}: {losses}");
    }
}

#[test]
fn children_of_every_making_contradict_nobody() {
    let folder = scratch();
    let plain = build_plain(folder.path(), "children", CHILDREN, &[]);
    nothing_contradicts("track", &plain, &[]);
    nothing_contradicts("emulate", &plain, &[]);
    let instrumented = build(folder.path(), "instrumented", "cc", CHILDREN, &["-O1", "-g", "-pthread"]);
    nothing_contradicts("instrument", &instrumented, &[]);
}

#[test]
fn shells_contradict_nobody() {
    for script in ["ls / | head -n 1; true", "mkdir -p /; true", "x=$(echo a | cat); (exit 3); echo $x | cat &\nwait"] {
        for engine in ["track", "emulate"] {
            nothing_contradicts(engine, Path::new("/bin/sh"), &["-c", script]);
        }
    }
}
