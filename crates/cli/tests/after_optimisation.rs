//! Call-outs after optimisation (`numapilot cc --after-optimisation`): a program behaves as its plain build, with a recorder and without, and what is
//! counted is what its instructions access, at the source line of each.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::common::*;
use serde_json::Value;

/// Elements of after_sweep.c, each written and read once, and their bytes.
const SWEPT: f64 = 524_288.0;
const SWEPT_BYTES: f64 = 8.0 * SWEPT;
/// Accesses of after_sweep.c's `main`, at the most.
const REST: f64 = 100.0;
const LINE_BYTES: f64 = 64.0;

/// What compiles a file: `numapilot`'s word for the language, and the variable for the compiler.
fn language(file: &str) -> (&'static str, &'static str) {
    match Path::new(file).extension().and_then(|extension| extension.to_str()) {
        Some("cpp") => ("c++", "NUMAPILOT_CXX"),
        Some("f90") => ("fc", "NUMAPILOT_FC"),
        _ => ("cc", "NUMAPILOT_CC"),
    }
}

fn source(file: &str) -> PathBuf {
    root().join("crates/cli/tests/programs").join(file)
}

/// The program with call-outs, put in after optimisation or before.
#[track_caller]
fn instrumented(folder: &Path, compiler: &str, file: &str, flags: &[&str], is_after: bool) -> PathBuf {
    let program = folder.join(if is_after { "after" } else { "before" });
    let (word, variable) = language(file);
    let mut command = numapilot(&[word]);
    if is_after {
        command.arg("--after-optimisation");
    }
    let flags = ["-w", "-pthread"].iter().chain(flags);
    finish(command.env(variable, compiler).args(flags).arg(source(file)).arg("-o").arg(&program)).succeeded();
    program
}

/// Whether the program holds call-outs of this kind: its objects say how many.
fn says_counts(program: &Path) -> bool {
    let image = std::fs::read(program).expect("a program");
    image.windows(b" with call-outs".len()).any(|window| window == b" with call-outs")
}

/// Compiled with the option and without numapilot, a program prints the same and ends alike, with a recorder and without.
#[track_caller]
fn behaves(compiler: &str, file: &str, flags: &[&str]) {
    let folder = scratch();
    let plain = folder.path().join("plain");
    let mut command = Command::new(compiler);
    finish(command.args(["-w", "-pthread"]).args(flags).arg(source(file)).arg("-o").arg(&plain)).succeeded();
    let program = instrumented(folder.path(), compiler, file, flags, true);
    assert!(says_counts(&program), "{compiler} {file} {flags:?}: no call-outs");
    let expected = finish(&mut Command::new(&plain));
    let alone = finish(&mut Command::new(&program));
    let trace = folder.path().join("t.numatrace");
    let recorded = record::<&str>(&trace, &["--machine", "opteron-8385"], &program, &[]);
    assert_eq!(expected.code, 7, "{compiler} {file}: {expected:?}");
    for (found, how) in [(alone, "alone"), (recorded, "recorded")] {
        let is_same = (found.code, &found.stdout) == (expected.code, &expected.stdout);
        assert!(is_same, "{compiler} {file} {flags:?}, {how}: {found:?}, not {expected:?}");
    }
}

const LEVELS: [&[&str]; 4] = [&["-O0"], &["-O2"], &["-O3"], &["-O3", "-march=native"]];

#[test]
fn c_behaves_as_its_plain_build() {
    for flags in LEVELS {
        behaves("gcc", "after.c", flags);
        behaves("clang", "after.c", flags);
    }
}

#[test]
fn cpp_behaves_as_its_plain_build() {
    for (compiler, flags) in [("g++", LEVELS[0]), ("g++", LEVELS[1]), ("g++", LEVELS[3]), ("clang++", LEVELS[1])] {
        behaves(compiler, "after.cpp", flags);
    }
}

#[test]
fn fortran_behaves_as_its_plain_build() {
    behaves("gfortran", "after.f90", &["-O2"]);
}

/// Figures of a run of after_sweep.c, and its stacks as text.
#[track_caller]
fn swept(compiler: &str, flags: &[&str], is_after: bool) -> (Value, String) {
    let folder = scratch();
    let program = instrumented(folder.path(), compiler, "after_sweep.c", flags, is_after);
    let trace = folder.path().join("t.numatrace");
    let options = ["--machine", "opteron-8385", "--lines", "1", "--period", "64"];
    record::<&str>(&trace, &options, &program, &[]).succeeded();
    let mut command = numapilot(&["report", "--stacks"]);
    (figures_json(&trace, &[]), finish(command.arg(&trace)).succeeded().stdout)
}

/// The line of after_sweep.c with this comment, as stacks name it.
fn place(comment: &str) -> String {
    let text = std::fs::read_to_string(source("after_sweep.c")).expect("the source");
    let line = text.lines().position(|line| line.ends_with(comment)).expect("a marked line") + 1;
    format!("after_sweep.c:{line}\n")
}

/// Every element is accessed twice, by itself or with its neighbours in a vector; every line of the array reaches memory when it is written.
#[test]
fn accesses_and_lines_are_those_that_the_program_makes() {
    let (before, _) = swept("gcc", &["-O1"], false);
    for (compiler, flags, elements) in
        [("gcc", &["-O1"][..], 1.0), ("gcc", &["-O3"], 2.0), ("clang", &["-O1"], 1.0), ("clang", &["-O3"], 2.0)]
    {
        let what = format!("{compiler} {flags:?}");
        let (after, stacks) = swept(compiler, flags, true);
        let found = number(&after, "/headline/totals/program_accesses");
        let made = 2.0 * SWEPT / elements;
        assert!((made..made + REST).contains(&found), "{what}: {found} accesses, not {made}");
        let lines = |report: &Value| number(site(report, "swept"), "/accesses/value");
        let writes = |report: &Value| lines(report) * number(site(report, "swept"), "/writes/value");
        let least = SWEPT_BYTES / LINE_BYTES;
        assert!((writes(&after) / least - 1.0).abs() < 0.02, "{what}: {} lines written of {least}", writes(&after));
        let (a, b) = (lines(&before), lines(&after));
        assert!((b / a - 1.0).abs() < 0.05, "{what}: {b} lines, {a} with call-outs before optimisation");
        for (function, comment) in [("fill", "/* written */"), ("sum", "/* read */")] {
            let frame = format!("{function}  {}", place(comment));
            assert!(stacks.contains(&frame), "{what}: no {frame} in\n{stacks}");
        }
    }
}

/// Accesses of after_strides.c besides those that it counts: of `main`, and of each round's calls.
const STRIDES_REST: f64 = 300.0;
const PERIOD: f64 = 64.0;

/// What after_strides.c printed, and figures of its recording.
#[track_caller]
fn strides(folder: &Path, compiler: &str, is_after: bool, arguments: &[&str], lines: &str) -> (f64, Value) {
    let program = instrumented(folder, compiler, "after_strides.c", &["-O1"], is_after);
    let trace = folder.join("t.numatrace");
    let options = ["--machine", "opteron-8385", "--lines", lines, "--period", "64"];
    let done = record(&trace, &options, &program, arguments).succeeded();
    let made = done.stdout.split_whitespace().next().and_then(|made| made.parse().ok());
    (made.expect("how many accesses were made"), figures_json(&trace, &[]))
}

/// Loops that look only where one of their accesses comes to another line count every access, wherever they begin and end, and bring the same lines to memory
/// as call-outs before optimisation.
#[test]
fn loops_that_pass_over_turns_count_each_and_bring_the_same_lines() {
    for (compiler, arguments) in [("gcc", &[][..]), ("gcc", &["thread"]), ("clang", &[])] {
        for lines in ["1", "8"] {
            let what = format!("{compiler} {arguments:?}, one line in {lines}");
            let folder = scratch();
            let (_, before) = strides(folder.path(), compiler, false, arguments, lines);
            let (made, after) = strides(folder.path(), compiler, true, arguments, lines);
            // Where some lines are simulated, there are estimates alone.
            if lines == "1" {
                let found = number(&after, "/headline/totals/program_accesses");
                assert!((made..made + STRIDES_REST).contains(&found), "{what}: {found} accesses, not {made}");
            }
            let from_memory = |report: &Value| number(report, "/headline/totals/accesses/value");
            let (a, b) = (from_memory(&before), from_memory(&after));
            // A sample stands for as many as the period has.
            assert!(
                (b - a).abs() < 0.01 * a + PERIOD + 1.0,
                "{what}: {b} accesses reach memory, {a} with call-outs before optimisation"
            );
        }
    }
}
