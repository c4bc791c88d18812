//! Damaged traces, foreign files and impossible options: each gives an exit code other than 0 and one line on standard error that names what is wrong
//! and what to do; nothing panics, and nothing half-written stays behind.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::common::*;
use numapilot_random::Random;

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    const size_t count = 1 << 21;
    int *table = malloc(count * sizeof *table);
    for (size_t i = 0; i < count; i++) table[i] = (int)i;
    long sum = 0;
    for (size_t i = 0; i < count; i += 16) sum += table[i];
    printf("%ld\n", sum);
    free(table);
    return 0;
}
"#;

struct Sample {
    folder: PathBuf,
    program: PathBuf,
}

/// An intact trace with its raw chunks, recorded once, and its program.
fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let folder = numapilot_scratch::scratch().join("bad_input");
        fs::create_dir(&folder).expect("a folder");
        let program = build(&folder, "sample", "cc", PROGRAM, &[]);
        let trace = folder.join("good.numatrace");
        let options = ["--machine", "opteron-8385", "--keep-raw", "--period", "16"];
        record::<&str>(&trace, &options, &program, &[]).succeeded();
        Sample { folder, program }
    })
}

/// A copy of the intact trace.
fn copy(into: &Path) -> PathBuf {
    let trace = into.join("copy.numatrace");
    let _ = fs::remove_dir_all(&trace);
    fs::create_dir_all(trace.join("raw")).expect("a folder");
    let good = sample().folder.join("good.numatrace");
    for part in ["", "raw"] {
        for file in fs::read_dir(good.join(part)).expect("the trace").map(|file| file.expect("a file").path()) {
            if file.is_file() {
                fs::copy(&file, trace.join(part).join(file.file_name().expect("a name"))).expect("a copy");
            }
        }
    }
    trace
}

/// Checks that a failure has the form of all failures.
#[track_caller]
fn complains(ran: &Ran, must_contain: &[&str]) {
    assert!(ran.code != 0 && ran.code != 101 && ran.code > 0, "exit code {}\n{}\n{}", ran.code, ran.stdout, ran.stderr);
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines.len() == 1 && lines[0].starts_with("numapilot: "), "one line wanted:\n{}", ran.stderr);
    for word in must_contain {
        assert!(ran.stderr.contains(word), "`{word}` is not in: {}", ran.stderr);
    }
}

fn report(trace: &Path) -> Ran {
    finish(numapilot(&["report", "--json"]).arg(trace))
}

#[track_caller]
fn no_temporary_files(folder: &Path) {
    for file in fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").file_name()) {
        assert!(!file.to_string_lossy().ends_with(".tmp"), "{file:?} stays behind");
    }
}

const TABLES: [&str; 4] = ["accesses.parquet", "objects.parquet", "threads.parquet", "frames.parquet"];

#[test]
fn cut_tables_are_named() {
    let folder = scratch();
    for name in TABLES {
        let trace = copy(folder.path());
        let bytes = fs::read(trace.join(name)).expect("a table");
        for keep in [0, 3, bytes.len() / 2, bytes.len() - 1] {
            fs::write(trace.join(name), &bytes[..keep]).expect("a cut table");
            complains(&report(&trace), &[name, "delete meta.json"]);
        }
        fs::remove_file(trace.join(name)).expect("gone");
        complains(&report(&trace), &[name]);
        no_temporary_files(&trace);
    }
}

#[test]
fn flipped_bits_in_tables_are_found() {
    let folder = scratch();
    let mut random = Random::new(7);
    for name in TABLES {
        let trace = copy(folder.path());
        let bytes = fs::read(trace.join(name)).expect("a table");
        for _ in 0..4 {
            let mut damaged = bytes.clone();
            let bit = random.remainder(8 * bytes.len() as u64);
            damaged[(bit / 8) as usize] ^= 1 << (bit % 8);
            fs::write(trace.join(name), &damaged).expect("a damaged table");
            complains(&report(&trace), &[name]);
        }
    }
}

/// Make sure that the remedy that the message names works.
#[test]
fn damaged_tables_can_be_rebuilt() {
    let folder = scratch();
    let trace = copy(folder.path());
    let before = report_json(&trace, &[]);
    fs::write(trace.join("accesses.parquet"), b"PAR1 is not all").expect("a damaged table");
    complains(&report(&trace), &["accesses.parquet"]);
    fs::remove_file(trace.join("meta.json")).expect("gone");
    let after = report_json(&trace, &[]);
    assert_eq!(before["sites"], after["sites"]);
    assert_eq!(before["headline"], after["headline"]);
}

#[test]
fn damaged_meta_is_named() {
    let folder = scratch();
    let trace = copy(folder.path());
    let path = trace.join("meta.json");
    let text = fs::read_to_string(&path).expect("meta.json");
    let newer = text.replacen("\"major\": 1", "\"major\": 9", 1);
    assert_ne!(newer, text);
    let cases: [(&str, &str); 5] = [
        ("", "meta.json"),
        (&text[..text.len() / 2], "meta.json"),
        ("[1, 2]", "meta.json"),
        ("{}", "meta.json"),
        (&newer, "or newer"),
    ];
    for (content, must_contain) in cases {
        fs::write(&path, content).expect("a damaged meta.json");
        complains(&report(&trace), &[must_contain]);
    }
    let mut random = Random::new(11);
    for _ in 0..40 {
        let mut damaged = text.clone().into_bytes();
        let bit = random.remainder(8 * damaged.len() as u64);
        damaged[(bit / 8) as usize] ^= 1 << (bit % 8);
        fs::write(&path, &damaged).expect("a damaged meta.json");
        // A file with a changed digit in a duration is still valid: it is enough that nothing panics.
        let ran = report(&trace);
        if ran.code != 0 {
            complains(&ran, &[]);
        }
    }
}

#[test]
fn damaged_chunks_are_passed_over_and_reported() {
    let folder = scratch();
    let mut random = Random::new(13);
    for round in 0..12 {
        let trace = copy(folder.path());
        fs::remove_file(trace.join("meta.json")).expect("gone");
        let chunks = trace.join("raw/00000.chunks");
        let mut bytes = fs::read(&chunks).expect("chunks");
        if round % 2 == 0 {
            bytes.truncate(random.remainder(bytes.len() as u64) as usize);
        } else {
            let bit = random.remainder(8 * bytes.len() as u64);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        fs::write(&chunks, &bytes).expect("damaged chunks");
        let ran = report(&trace);
        if ran.code == 0 {
            let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
            assert!(!report["limits"].as_array().expect("limits").is_empty(), "round {round}: the damage is not told");
        } else {
            complains(&ran, &[]);
            assert!(!trace.join("meta.json").exists(), "round {round}: half a trace is left");
        }
    }
}

#[test]
fn foreign_files_and_folders_are_no_traces() {
    let folder = scratch();
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).expect("a folder");
    complains(&report(&empty), &["empty", "numapilot record"]);
    let file = folder.path().join("perf.data");
    fs::write(&file, b"PERFILE2 and more").expect("a file");
    complains(&report(&file), &["perf.data"]);
    complains(&report(&folder.path().join("missing")), &["missing"]);
    let foreign = folder.path().join("foreign");
    fs::create_dir(&foreign).expect("a folder");
    fs::write(foreign.join("meta.json"), r#"{"name": "somebody else's"}"#).expect("a file");
    complains(&report(&foreign), &["foreign"]);
    let hollow = folder.path().join("hollow");
    fs::create_dir_all(hollow.join("raw")).expect("a folder");
    complains(&report(&hollow), &["hollow"]);
    fs::write(hollow.join("raw/00000.chunks"), vec![0x5a; 100_000]).expect("a file");
    complains(&report(&hollow), &["hollow"]);
    no_temporary_files(&hollow);
    assert!(!hollow.join("meta.json").exists());
}

/// `record` with these options; checks that no trace is left.
fn refused(options: &[&str], program: &[&str]) -> Ran {
    let folder = scratch();
    let trace = folder.path().join("refused.numatrace");
    let mut command = numapilot(&["record", "-q", "-o"]);
    let ran = finish(command.arg(&trace).args(options).arg("--").args(program));
    assert!(!trace.exists(), "{options:?} {program:?}: a trace is left behind");
    ran
}

#[test]
fn programs_that_cannot_be_recorded() {
    let folder = scratch();
    let plain = build_plain(folder.path(), "plain", PROGRAM, &[]);
    let plain = plain.to_str().expect("UTF-8 path");
    complains(&refused(&["--machine", "opteron-8385", "--engine", "instrument"], &[plain]), &["plain", "numapilot cc"]);
    let fixed = build_plain(folder.path(), "fixed", PROGRAM, &["-static"]);
    let fixed = fixed.to_str().expect("UTF-8 path");
    complains(&refused(&["--machine", "opteron-8385"], &[fixed]), &["fixed", "static"]);
    let missing = refused(&["--machine", "opteron-8385"], &["/no/such/program"]);
    complains(&missing, &["/no/such/program"]);
    assert_eq!(missing.code, 127);
    let text = folder.path().join("notes.txt");
    fs::write(&text, "not a program").expect("a file");
    let cannot = refused(&["--machine", "opteron-8385"], &[text.to_str().expect("UTF-8 path")]);
    complains(&cannot, &["notes.txt"]);
    assert_eq!(cannot.code, 126);
    // Without --engine, objects and threads are recorded all the same.
    let trace = folder.path().join("plain.numatrace");
    record::<&str>(&trace, &["--machine", "opteron-8385"], plain.as_ref(), &[]).succeeded();
    assert_eq!(report_json(&trace, &[])["recording"]["engine"], "track");
}

/// It ended with 1, as if the program had failed.
#[test]
fn a_check_without_a_limit_is_wrong_usage() {
    let ran = run(&["check", "--", "true"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("--max-remote"), "{}", ran.stderr);
}

#[test]
fn options_that_cannot_be() {
    let program = sample().program.to_str().expect("UTF-8 path");
    let cases: [(&[&str], &[&str]); 9] = [
        (&["--machine", "opteron-8358"], &["opteron-8358", "opteron-8385"]),
        (&["--machine", "/no/such/model.toml"], &["/no/such/model.toml"]),
        (&["--machine", "opteron-8385", "--cpus", "0-99"], &["--cpus", "CPU 16", "numapilot topo"]),
        (&["--machine", "opteron-8385", "--cpus", "3-1"], &["--cpus"]),
        (&["--machine", "opteron-8385", "--cpus", "a"], &["--cpus"]),
        (&["--machine", "opteron-8385", "--engine", "magic"], &["magic", "instrument"]),
        (&["--machine", "opteron-8385", "--period", "0"], &["period"]),
        (&["--machine", "opteron-8385", "--env", "NAME"], &["--env"]),
        (&["--machine", "opteron-8385", "--ring-size", "3"], &["ring"]),
    ];
    for (options, must_contain) in cases {
        let ran = refused(options, &[program]);
        complains(&ran, must_contain);
    }
}

#[test]
fn machines_that_cannot_be() {
    let folder = scratch();
    let good = fs::read_to_string(root().join("models/opteron-8385.toml")).expect("the model");
    let cases: [(&str, String); 5] = [
        ("disconnected.toml", good.replace("pairs = [[0, 1], [0, 2], [1, 3], [2, 3]]", "pairs = [[0, 1], [2, 3]]")),
        ("self-link.toml", good.replace("pairs = [[0, 1],", "pairs = [[0, 0], [0, 1],")),
        ("stranger.toml", good.replace("pairs = [[0, 1],", "pairs = [[0, 9],")),
        ("cut.toml", good[..good.len() / 2].to_owned()),
        ("odd-clock.toml", good.replace("value = 2300", "value = -5")),
    ];
    for (name, text) in cases {
        let file = folder.path().join(name);
        fs::write(&file, text).expect("a model");
        let file = file.to_str().expect("UTF-8 path");
        let ran = run(&["topo", "--machine", file]);
        complains(&ran, &[name]);
        let program = sample().program.to_str().expect("UTF-8 path");
        complains(&refused(&["--machine", file], &[program]), &[name]);
    }
    complains(&run(&["topo", "--machine", "memprof-x"]), &["memprof-x", "memprof-"]);
}

#[test]
fn views_that_cannot_be() {
    let trace = sample().folder.join("good.numatrace");
    let trace = trace.to_str().expect("UTF-8 path");
    let cases: [(&[&str], &str); 8] = [
        (&["--object", "no_such_object"], "no_such_object"),
        (&["--object", "S99999"], "S99999"),
        (&["--object", "4000000000"], "4000000000"),
        (&["--thread", "99"], "99"),
        (&["--thread", "nobody"], "nobody"),
        (&["--node", "7"], "7"),
        (&["--from", "2", "--to", "1"], "--from"),
        (&["--from", "-1"], "--from"),
    ];
    for (options, must_contain) in cases {
        let ran = run(&[&["report", trace], options].concat());
        if options == ["--from", "-1"] {
            assert_eq!(ran.code, 2, "{}", ran.stderr);
        } else {
            complains(&ran, &[must_contain]);
        }
    }
    complains(&run(&["report", trace, "--svg", "/no/such/folder/x.svg"]), &["/no/such/folder/x.svg"]);
}
