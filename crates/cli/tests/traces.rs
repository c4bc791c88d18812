//! Names of traces, with and without their ending, and commands on traces that are still being recorded.

use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::path::Path;
use std::process::Child;
use std::process::Stdio;

use crate::common::*;

/// Writes to a table, says so, and waits for the end of its input.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    long count = 1 << 20;
    volatile long *table = malloc(count * sizeof *table);
    for (long i = 0; i < count; i++) table[i] = i;
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
"#;

/// A recorder at work, whose program has written and now waits.
fn recording(folder: &Path, output: &str) -> Child {
    let program = build(folder, "waits", "cc", PROGRAM, &[]);
    let mut command = numapilot(&["record", "--quiet", "--machine", "memprof-c", "-o"]);
    command.arg(folder.join(output)).arg("--").arg(program).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the recorder starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("its output")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    child
}

#[test]
fn a_recording_that_goes_on_is_refused_and_left_alone() {
    let folder = scratch();
    let mut child = recording(folder.path(), "run.numatrace");
    let trace = folder.path().join("run.numatrace").display().to_string();
    let plan = folder.path().join("plan.toml").display().to_string();
    for command in [
        &["report", &trace][..],
        &["report", &trace, "--plan", &plan],
        &["compare", &trace, &trace],
        &["check", "--max-remote", "90%", "--trace", &trace],
        &["whatif", &trace, "--set", "*=interleave"],
        &["simulate", &trace, "--policy", "first-touch"],
    ] {
        let ran = run(command);
        assert_eq!(ran.code, 1, "{command:?}: {}{}", ran.stdout, ran.stderr);
        let who = format!("still being recorded by process {}", child.id());
        assert!(ran.stderr.contains(&who), "{command:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("killed") && ran.stdout.is_empty(), "{command:?}: {}{}", ran.stdout, ran.stderr);
    }
    assert!(!Path::new(&plan).exists());
    // A second recording of that name would take the first one's folder away.
    let ran = run(&["record", "-o", &trace, "--", "true"]);
    assert!(ran.code != 0 && ran.stderr.contains("another recording is being written there"), "{}", ran.stderr);
    assert!(!Path::new(&trace).join("meta.json").exists(), "a reader made tables of half a recording");

    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
    let report = run(&["report", &trace]).succeeded();
    assert!(!report.stdout.contains("killed"), "{}", report.stdout);
}

#[test]
fn a_killed_recorder_is_no_recorder_and_its_trace_opens() {
    let folder = scratch();
    let mut child = recording(folder.path(), "run.numatrace");
    child.kill().expect("killed");
    child.wait().expect("it has ended");
    let trace = folder.path().join("run.numatrace").display().to_string();
    let report = run(&["report", &trace]).succeeded();
    assert!(report.stdout.contains("killed"), "{}", report.stdout);
}

#[test]
fn a_recording_in_the_background_is_ended_by_its_name() {
    let folder = scratch();
    let bare = folder.path().join("run").display().to_string();
    let (whole, log) = (format!("{bare}.numatrace"), format!("{bare}.numatrace.log"));
    let program = ["--", "sh", "-c", "echo started; exec sleep 600", "--detach"];
    let start = || run(&[&["record", "--engine", "track", "--detach", "-o", &bare][..], &program].concat());
    let ran = start().succeeded();
    assert!(ran.stderr.contains(&format!("--stop {whole}")) && ran.stderr.contains(&log), "{}", ran.stderr);
    let ran = run(&["report", &bare]);
    assert!(ran.code == 1 && ran.stderr.contains("is still being recorded by process"), "{}", ran.stderr);
    let again = start();
    let says = "another recording is being written there, by process ";
    assert!(again.code == 1 && again.stderr.contains(says), "{}", again.stderr);
    // Before it, on a busy machine, the interrupt would come, which ends the program.
    wait_until("the program's word", || fs::read_to_string(&log).is_ok_and(|told| told.contains("started\n")));
    let ran = run(&["record", "--stop", &bare]).succeeded();
    assert!(ran.stderr.contains("next: numapilot report"), "{}", ran.stderr);
    let told = fs::read_to_string(&log).expect("the recorder's messages");
    assert!(told.contains("started\n") && told.contains("engine track"), "{told}");
    let report = run(&["report", &bare]).succeeded();
    assert!(!report.stdout.contains("killed"), "{}", report.stdout);
    let ran = run(&["record", "--stop", &bare]);
    assert!(ran.code == 1 && ran.stderr.contains("no recording is running there; it has ended"), "{}", ran.stderr);
}

#[test]
fn a_recorder_that_cannot_start_shows_its_messages_and_status() {
    let folder = scratch();
    let trace = folder.path().join("none").display().to_string();
    let of = |options: &[&str]| run(&[&["record", "--detach", "-o", &trace][..], options].concat());
    let ran = of(&["--engine", "track", "--", "/no/such/program"]);
    assert!(ran.code == 127 && ran.stderr.contains("/no/such/program"), "{}: {}", ran.code, ran.stderr);
    let ran = of(&["--pid", "4194303"]);
    assert!(ran.code == 1 && ran.stderr.contains("there is no process 4194303"), "{}: {}", ran.code, ran.stderr);
    assert!(!folder.path().join("none.numatrace.log").exists(), "nothing stays where no trace was begun");
    let ran = run(&["record", "--stop", &trace]);
    assert!(ran.code == 1 && ran.stderr.contains("no recording is running there"), "{}", ran.stderr);
    let ran = run(&["record", "--stop", &trace, "--pid", "1"]);
    assert!(ran.code == 2 && ran.stderr.contains("cannot be used with"), "{}", ran.stderr);
}

#[test]
fn every_command_takes_a_trace_by_its_name_with_and_without_the_ending() {
    let folder = scratch();
    let program = build(folder.path(), "waits", "cc", PROGRAM, &[]);
    let bare = folder.path().join("run").display().to_string();
    let whole = format!("{bare}.numatrace");
    let mut command = numapilot(&["record", "--machine", "memprof-c", "-o", &bare, "--"]);
    let ran = finish(command.arg(program).stdin(Stdio::null())).succeeded();
    assert!(Path::new(&whole).join("meta.json").is_file() && !Path::new(&bare).exists());
    assert!(ran.stderr.contains(&format!("the trace goes to {whole}")), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("next: numapilot report {whole}")), "{}", ran.stderr);
    for command in [
        &["report", "TRACE"][..],
        &["compare", "TRACE", "TRACE", "--quiet"],
        &["check", "--max-remote", "100%", "--trace", "TRACE"],
        &["whatif", "TRACE", "--set", "*=interleave", "--quiet"],
        &["simulate", "TRACE", "--policy", "first-touch", "--quiet"],
        &["stat", "--replay", "TRACE", "--machine", "memprof-c"],
    ] {
        let with = |name: &str| {
            let words: Vec<&str> = command.iter().map(|word| if *word == "TRACE" { name } else { word }).collect();
            run(&words).succeeded().stdout
        };
        let told = |name: &str| with(name).replace(&whole, "X").replace(&bare, "X");
        assert_eq!(told(&bare), told(&whole), "{command:?}");
    }
    let other = folder.path().join("other").display().to_string();
    for command in [
        &["report", &other][..],
        &["compare", &other, &other, "--quiet"],
        &["check", "--max-remote", "100%", "--trace", &other],
        &["check", "--max-slowdown", "5%", "--baseline", &other, "--trace", &whole],
    ] {
        let missing = run(command);
        assert!(missing.code == 1 && missing.stderr.contains("does not exist: give the"), "{}", missing.stderr);
        assert_eq!(missing.stderr.matches(&other).count(), 1, "named once: {}", missing.stderr);
    }
}
