//! Machines that refuse threads (`ulimit -u`, a container's limit of processes): what is made of recordings is what it is elsewhere, and a recorder says
//! what it lacks.

use std::fs;
use std::path::Path;

use crate::common::*;

/// Size of a thread's stack, in bytes, for which no machine has room: the system refuses every thread.
const NO_ROOM: &str = "1152921504606846976";

/// Runs the binary under test where no thread can be started.
fn run_alone(arguments: &[&str]) -> Ran {
    let ran = finish(numapilot(arguments).env("RUST_MIN_STACK", NO_ROOM));
    assert!(!ran.stderr.contains("panicked"), "{arguments:?}: {}", ran.stderr);
    ran
}

/// Path of a file or folder in `testdata`.
fn testdata(name: &str) -> String {
    root().join("testdata").join(name).display().to_string()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_recorder_that_gets_no_thread_says_what_would_help() {
    let folder = scratch();
    let trace = folder.path().join("t.numatrace");
    let ran = run_alone(&["record", "--engine", "track", "-o", text(&trace), "--", "true"]);
    assert!(ran.code == 1 && ran.stderr.contains("ulimit -u"), "{}: {}", ran.code, ran.stderr);
}

#[test]
fn recordings_are_read_on_one_thread() {
    let folder = scratch();
    let trace = testdata("traces/mg.numatrace");
    for command in [
        &["report", &trace][..],
        &["whatif", &trace, "--set", "*=interleave", "--json"],
        &["whatif", &trace, "--set", "*=interleave", "--machine", "memprof-b", "--json"],
    ] {
        let usual = run(command).succeeded().stdout;
        assert_eq!(run_alone(command).succeeded().stdout, usual, "{command:?}");
    }
    let pages = ["usual.html", "alone.html"].map(|name| folder.path().join(name));
    let usual = run(&["report", &trace, "--json", "--html", text(&pages[0])]).succeeded().stdout;
    let alone = run_alone(&["report", &trace, "--json", "--html", text(&pages[1])]).succeeded().stdout;
    assert_eq!(alone, usual, "report --json");
    let [usual, alone] = pages.map(|page| fs::read(page).expect("the page"));
    assert!(usual == alone, "pages of {} and {} bytes", usual.len(), alone.len());
}

#[test]
fn recordings_are_imported_and_made_again_on_one_thread() {
    let folder = scratch();
    let names = ["usual", "alone"].map(|name| folder.path().join(name));
    names.iter().for_each(|name| fs::create_dir(name).expect("a folder"));
    let perf = testdata("perf-streams/pebs.data");
    let imports = names.each_ref().map(|name| name.join("i.numatrace"));
    run(&["import", "-o", text(&imports[0]), &perf]).succeeded();
    run_alone(&["import", "-o", text(&imports[1]), &perf]).succeeded();
    // Of a recorder that was killed there is the raw form alone, from which the first report makes the tables.
    let recorded = folder.path().join("r.numatrace");
    run(&["record", "--engine", "track", "--keep-raw", "-o", text(&recorded), "--", "true"]).succeeded();
    let killed = names.each_ref().map(|name| name.join("k.numatrace"));
    for trace in &killed {
        fs::create_dir_all(trace.join("raw")).expect("a folder");
        for file in fs::read_dir(recorded.join("raw")).expect("the raw form").map(|file| file.expect("a file").path()) {
            fs::copy(&file, trace.join("raw").join(file.file_name().expect("a name"))).expect("a copy");
        }
    }
    // Without accesses there is nothing to report, but the tables are made.
    assert_eq!(run(&["report", text(&killed[0])]).code, run_alone(&["report", text(&killed[1])]).code);
    for [usual, alone] in [&imports, &killed] {
        for table in ["accesses", "objects", "threads", "frames", "stacks"] {
            let file = |trace: &Path| fs::read(trace.join(format!("{table}.parquet"))).expect(table);
            let (usual, alone) = (file(usual), file(alone));
            assert!(usual == alone, "{table} of {} and {} bytes", usual.len(), alone.len());
        }
    }
}
