//! Code that a program generates while it runs has the names that its runtime writes for perf, in what is recorded of page faults, of the emulator's accesses
//! and of allocations.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::*;
use serde_json::Value;

const SOURCE: &str = include_str!("programs/generated.c");
/// Pages that generated code touches first, less the one that holds the allocator's header.
const PAGES: u64 = PAGES_ASKED - 1;
const PAGES_ASKED: u64 = 300;

/// What a recording of the program says, in JSON; `None` where the engine is not available here.
fn recorded(folder: &Path, engine: &[&str], mode: &str) -> Option<Value> {
    let program = build_plain(folder, "generated", SOURCE, &[]);
    let trace = folder.join("t.numatrace");
    let mut command = numapilot(&["record"]);
    command.args(engine).arg("-o").arg(&trace).arg("--").arg(&program).arg(mode).current_dir(folder);
    let ran = finish(&mut command);
    if engine.contains(&"fault") && ran.stderr.contains("event page-faults") {
        numapilot_not_run::not_run!(PageFaultEvents, "{}", ran.stderr);
        return None;
    }
    if engine.contains(&"emulate") && has_no_emulator(&ran) {
        return None;
    }
    let ran = ran.succeeded();
    let pid: u32 = ran.stdout.split(' ').next().and_then(|pid| pid.parse().ok()).expect("the program's id");
    // The trace has what they said.
    for file in [PathBuf::from(format!("/tmp/perf-{pid}.map")), folder.join(format!("jit-{pid}.dump"))] {
        let _ = fs::remove_file(file);
    }
    let report = finish(numapilot(&["report", "--json"]).arg(&trace)).succeeded();
    Some(serde_json::from_str(&report.stdout).expect("JSON"))
}

/// Where a site's pages were touched first: function, file, line and pages.
fn touched(report: &Value, name: &str, place: &str) -> Vec<(String, String, u64, u64)> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let number = |row: &Value, key: &str| row[key].as_u64().unwrap_or_default();
    let sites = report["page_faults"]["sites"].as_array().expect("sites");
    let of_name = sites.iter().filter(|row| row["name"] == name && row["place"] == place);
    let rows = of_name.flat_map(|row| row["lines"].as_array().expect("lines"));
    rows.map(|row| (text(row, "function"), text(row, "file"), number(row, "line"), number(row, "pages"))).collect()
}

#[test]
fn a_map_names_the_code_that_allocates_and_touches() {
    let folder = scratch();
    let Some(report) = recorded(folder.path(), &["--engine", "fault"], "map") else { return };
    let filled = [("App.fillPages".to_owned(), String::new(), 0, PAGES)];
    assert_eq!(touched(&report, "makeBlock", "made.js"), filled);
}

#[test]
fn a_dump_names_its_lines_too() {
    let folder = scratch();
    let Some(report) = recorded(folder.path(), &["--engine", "fault"], "dump") else { return };
    let filled = [("fillPages".to_owned(), "/srv/made.js".to_owned(), 17, PAGES)];
    assert_eq!(touched(&report, "makeBlock", "made.js:4"), filled);
}

#[test]
fn memory_of_code_that_was_used_twice_names_both_functions() {
    let folder = scratch();
    let Some(report) = recorded(folder.path(), &["--engine", "fault"], "again") else { return };
    let filled = [("later or App.fillPages".to_owned(), String::new(), 0, PAGES)];
    assert_eq!(touched(&report, "makeBlock", "made.js"), filled);
}

#[test]
fn a_dump_names_what_was_there_before_its_memory_was_used_again() {
    let folder = scratch();
    let Some(report) = recorded(folder.path(), &["--engine", "fault"], "replaced") else { return };
    let filled = [("fillPages".to_owned(), "/srv/made.js".to_owned(), 17, PAGES)];
    assert_eq!(touched(&report, "makeBlock", "made.js:4"), filled);
}

#[test]
fn code_without_names_says_how_to_get_them() {
    let folder = scratch();
    let Some(_) = recorded(folder.path(), &["--engine", "fault"], "none") else { return };
    let text = finish(numapilot(&["report"]).arg(folder.path().join("t.numatrace"))).succeeded().stdout;
    assert!(text.contains("DumpPerfMapAtExit"), "{text}");
}

#[test]
fn the_emulator_sees_generated_code_by_its_names() {
    let folder = scratch();
    let Some(report) = recorded(folder.path(), &["--engine", "emulate", "--period", "8"], "dump") else { return };
    let sites = report["sites"].as_array().expect("sites");
    let names: Vec<_> = sites.iter().map(|site| (&site["name"], &site["place"], &site["bytes"])).collect();
    let block = serde_json::json!(["makeBlock", "made.js:4", PAGES_ASKED * 4096]);
    assert!(names.iter().any(|(name, place, bytes)| serde_json::json!([name, place, bytes]) == block), "{names:?}");
}
