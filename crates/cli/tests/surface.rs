//! The command line as users and scripts see it: help, JSON, width, colours, exit status, untouched streams, and the compiler
//! wrappers under build systems.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::sync::OnceLock;

use crate::common::*;
use serde_json::Value;

/// Two threads sweep an array that the first of them has written; status and output are asked for by arguments.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thread>
#include <vector>
#include <unistd.h>
static double sweep(const double *table, size_t count) {
    double sum = 0;
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < count; i += 8) sum += table[i];
    return sum;
}
int main(int argc, char **argv) {
    const size_t count = 1 << 20;
    double *table = static_cast<double *>(malloc(count * sizeof(double)));
    for (size_t i = 0; i < count; i++) table[i] = 1;
    double sums[2] = {0, 0};
    std::thread first([&] { sums[0] = sweep(table, count); }), second([&] { sums[1] = sweep(table, count); });
    first.join();
    second.join();
    free(table);
    printf("out %s %.0f\n", argc > 2 ? argv[2] : "-", sums[0] + sums[1]);
    fprintf(stderr, "err\n");
    if (argc > 2 && strcmp(argv[2], "cat") == 0)
        for (int c; (c = getchar()) != EOF;) putchar(c);
    if (argc > 2 && strcmp(argv[2], "abort") == 0) { fflush(stdout); abort(); }
    return argc > 1 ? atoi(argv[1]) : 0;
}
"#;

struct Sample {
    folder: PathBuf,
    program: PathBuf,
}

impl Sample {
    fn trace(&self) -> PathBuf {
        self.folder.join("sample.numatrace")
    }
}

fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let folder = numapilot_scratch::scratch().join("surface");
        fs::create_dir(&folder).expect("a folder");
        let program = build(&folder, "sample", "c++", PROGRAM, &[]);
        let sample = Sample { folder, program };
        record::<&str>(&sample.trace(), &["--machine", "opteron-8385"], &sample.program, &[]).succeeded();
        sample
    })
}

/// Two sites of one name, used one after the other.
const TWICE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
enum { COUNT = 1 << 20 };
static double sum(double *p) {
    double s = 0;
    for (long i = 0; i < COUNT; i++) p[i] = i;
    for (long i = 0; i < COUNT; i++) s += p[i];
    free(p);
    return s;
}
static double early(void) {
    double *buffer = calloc(COUNT, sizeof *buffer);
    return sum(buffer);
}
static double late(void) {
    double *buffer = calloc(COUNT, sizeof *buffer);
    return sum(buffer);
}
int main(void) {
    printf("%g\n", early() + late());
    return 0;
}
"#;

/// A name stands for several sites: those that no access within the filters reached hide the others not.
#[test]
fn an_object_is_shown_although_another_of_its_name_passes_no_filter() {
    let folder = scratch();
    let program = build(folder.path(), "twice", "cc", TWICE, &[]);
    let trace = folder.path().join("twice.numatrace");
    record::<&str>(&trace, &["--machine", "opteron-8385"], &program, &[]).succeeded();
    let shown = |options: &[&str]| report_json(&trace, options)["objects"].as_array().map_or(0, Vec::len);
    let whole = report_json(&trace, &["--object", "buffer"]);
    assert_eq!(shown(&["--object", "buffer"]), 2, "{}", whole["objects"]);
    let quarter = format!("{}", number(&whole, "/recording/program_time_ns") / 4e9);
    assert_eq!(shown(&["--object", "buffer", "--to", &quarter]), 1);
    let text = finish(numapilot(&["report", "--object", "buffer", "--to", &quarter]).arg(&trace)).succeeded().stdout;
    assert!(text.contains("buffer"), "{text}");
    let none = finish(numapilot(&["report", "--object", "buffer", "--node", "3"]).arg(&trace));
    assert!(none.code == 1 && none.stderr.contains("no sampled access to that object"), "{}", none.stderr);
}

#[test]
fn every_command_has_help_with_examples() {
    for command in ["topo", "record", "report"] {
        let ran = run(&[command, "--help"]).succeeded();
        assert!(ran.stdout.contains("Examples:\n"), "{command}");
        assert!(ran.stdout.contains(&format!("  numapilot {command}")), "{command}");
        assert!(ran.stdout.lines().all(|line| line.chars().count() <= 100), "{command}: {}", ran.stdout);
    }
    let top = run(&["--help"]).succeeded().stdout;
    for command in ["topo", "record", "report", "cc", "c++", "fc", "completions", "man"] {
        assert!(top.lines().any(|line| line.trim_start().starts_with(&format!("{command} "))), "{command}");
    }
    assert!(run(&["--version"]).succeeded().stdout.starts_with("numapilot "));
    assert_eq!(run(&["no-such-command"]).code, 2);
}

#[test]
fn reports_fit_their_width_and_have_no_colour_in_a_pipe() {
    let trace = sample().trace();
    let trace = trace.to_str().expect("UTF-8 path");
    let views: [&[&str]; 6] = [
        &[],
        &["--functions", "--stacks", "--threads", "--matrix"],
        &["--object", "table"],
        &["--thread", "1"],
        &["--instances"],
        &["--remote", "--node", "1"],
    ];
    for view in views {
        for width in [80usize, 100, 160] {
            let number = width.to_string();
            let ran = run(&[&["report", trace, "--width", &number], view].concat()).succeeded();
            let wide: Vec<&str> = ran.stdout.lines().filter(|line| line.chars().count() > width).collect();
            assert!(wide.is_empty(), "{view:?} at {width} columns:\n{}", wide.join("\n"));
            assert!(!ran.stdout.contains('\u{1b}'), "{view:?}: colour codes in a pipe");
            assert!(ran.stdout.lines().count() > 3, "{view:?}: {}", ran.stdout);
        }
    }
    let forced = run(&["report", trace, "--color", "always"]).succeeded().stdout;
    assert!(forced.contains('\u{1b}'), "--color always gives colours");
}

#[test]
fn the_first_three_lines_say_what_matters() {
    let trace = sample().trace();
    let ran = finish(numapilot(&["report"]).arg(&trace)).succeeded();
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines[0].starts_with("Remote accesses") && lines[0].contains('%'), "{}", lines[0]);
    assert!(lines[1].starts_with("Controller imbalance") && lines[1].contains('%'), "{}", lines[1]);
    assert!(lines[2].starts_with("Top object") && lines[2].contains("table"), "{}", lines[2]);
}

#[test]
fn json_is_json_in_every_view() {
    let trace = sample().trace();
    let views: [(&[&str], &str); 6] = [
        (&[], "sites"),
        (&["--object", "table"], "objects"),
        (&["--thread", "0"], "thread"),
        (&["--functions"], "functions"),
        (&["--stacks"], "stacks"),
        (&["--threads", "--instances"], "instances"),
    ];
    for (view, field) in views {
        let report = report_json(&trace, view);
        assert_eq!(report["format"], "numapilot-report");
        assert!(report.get(field).is_some_and(|value| !value.is_null()), "{view:?} has no {field}");
    }
    assert_eq!(report_json(&trace, &[])["sites"][0]["name"], "table");
    let topo = run(&["topo", "--machine", "opteron-8385", "--json"]).succeeded();
    let topo: Value = serde_json::from_str(&topo.stdout).expect("topo --json");
    assert_eq!(topo["nodes"].as_array().map(Vec::len), Some(4));
}

#[test]
fn pictures_are_written_whole() {
    let folder = scratch();
    for (name, arguments) in
        [("traffic", vec!["report", "TRACE"]), ("machine", vec!["topo", "--machine", "opteron-8385"])]
    {
        let svg = folder.path().join(format!("{name}.svg"));
        let trace = sample().trace();
        let mut command = numapilot::<&str>(&[]);
        for argument in arguments {
            command.arg(if argument == "TRACE" { trace.as_os_str() } else { argument.as_ref() });
        }
        finish(command.arg("--svg").arg(&svg)).succeeded();
        let text = fs::read_to_string(&svg).expect("the picture");
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{name}");
    }
    let left: Vec<_> =
        fs::read_dir(folder.path()).expect("folder").map(|entry| entry.expect("entry").file_name()).collect();
    assert_eq!(left.len(), 2, "temporary files stay behind: {left:?}");
}

#[test]
fn models_shells_and_manuals_are_at_hand() {
    let list = run(&["topo", "--list"]).succeeded().stdout;
    for name in ["opteron-8385", "memprof-c"] {
        assert!(list.contains(name), "{list}");
    }
    run(&["topo"]).succeeded();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(run(&["completions", shell]).succeeded().stdout.contains("numapilot"), "{shell}");
    }
    let folder = scratch();
    finish(numapilot(&["man"]).arg(folder.path())).succeeded();
    for page in ["numapilot.1", "numapilot-record.1", "numapilot-report.1", "numapilot-topo.1"] {
        let text = fs::read_to_string(folder.path().join(page)).expect(page);
        assert!(text.contains(".SH NAME") || text.contains(".SH \"NAME\""), "{page}");
    }
}

#[test]
fn the_exit_status_and_the_streams_are_the_programs() {
    let sample = sample();
    let trace = sample.folder.join("status.numatrace");
    for status in ["0", "3", "255"] {
        let alone = finish(Command::new(&sample.program).args([status, "words"]));
        let recorded = record(&trace, &["--machine", "opteron-8385"], &sample.program, &[status, "words"]);
        assert_eq!(recorded.code, alone.code);
        assert_eq!(recorded.stdout, alone.stdout);
        assert_eq!(recorded.stderr, alone.stderr, "--quiet adds nothing");
    }
    let aborted = record(&trace, &["--machine", "opteron-8385"], &sample.program, &["0", "abort"]);
    assert_eq!(aborted.code, 128 + libc::SIGABRT);
    assert!(aborted.stdout.starts_with("out abort "), "{}", aborted.stdout);
    report_json(&trace, &[]);
}

#[test]
fn standard_input_reaches_the_program() {
    let sample = sample();
    let trace = sample.folder.join("input.numatrace");
    let mut command = numapilot(&["record", "-q", "--force", "--machine", "opteron-8385", "-o"]);
    command.arg(&trace).arg("--").arg(&sample.program).args(["0", "cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the recorder starts");
    std::io::Write::write_all(&mut child.stdin.take().expect("stdin"), b"one\ntwo\n").expect("input");
    let output = child.wait_with_output().expect("the recorder ends");
    assert!(output.status.success());
    assert!(output.stdout.ends_with(b"\none\ntwo\n"), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn an_older_trace_is_kept_unless_force_is_given() {
    let sample = sample();
    let trace = sample.folder.join("kept.numatrace");
    for _ in 0..2 {
        let mut command = numapilot(&["record", "-q", "--machine", "opteron-8385", "-o"]);
        finish(command.arg(&trace).arg("--").arg(&sample.program)).succeeded();
    }
    let older = sample.folder.join("kept.numatrace.old");
    assert!(trace.join("meta.json").is_file() && older.join("meta.json").is_file());
}

const MAKEFILE: &str = "app: main.o work.o\n\t$(CXX) -pthread -o $@ $^\n%.o: %.cpp\n\t$(CXX) -O2 -g -MMD -c -o $@ $<\n";
const CMAKE: &str = "cmake_minimum_required(VERSION 3.13)\nproject(app CXX)\nfind_package(Threads REQUIRED)\n\
    add_library(work STATIC work.cpp)\nadd_executable(app main.cpp)\ntarget_link_libraries(app work Threads::Threads)\n";
const MAIN_CPP: &str = "#include <cstdio>\n#include <thread>\nlong work();\n\
    int main() { long r = 0; std::thread t([&] { r = work(); }); t.join(); std::printf(\"%ld\\n\", r); }\n";
const WORK_CPP: &str = "#include <vector>\nlong work() {\n    std::vector<long> numbers(1 << 21, 1);\n    long sum = 0;\n\
    for (long n : numbers) sum += n;\n    return sum;\n}\n";

fn project(folder: &Path) {
    for (name, text) in
        [("Makefile", MAKEFILE), ("CMakeLists.txt", CMAKE), ("main.cpp", MAIN_CPP), ("work.cpp", WORK_CPP)]
    {
        fs::write(folder.join(name), text).expect("project file");
    }
}

#[track_caller]
fn is_instrumented(folder: &Path, program: &Path) {
    let trace = folder.join("app.numatrace");
    let ran =
        record::<&str>(&trace, &["--machine", "opteron-8385", "--engine", "instrument"], program, &[]).succeeded();
    assert_eq!(ran.stdout, "2097152\n");
    let report = report_json(&trace, &[]);
    assert!(number(&report, "/headline/totals/accesses/value") > 100_000.0);
    assert!(
        report["sites"][0]["place"].as_str().is_some_and(|place| place.contains("work.cpp")),
        "{}",
        report["sites"][0]
    );
}

#[test]
fn make_builds_with_the_wrapper() {
    let folder = scratch();
    project(folder.path());
    let mut make = Command::new("make");
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").current_dir(folder.path()).arg(format!("CXX={BINARY} c++"));
    finish(&mut make).succeeded();
    is_instrumented(folder.path(), &folder.path().join("app"));
}

#[test]
fn cmake_builds_with_the_wrapper() {
    if Command::new("cmake").arg("--version").stdout(Stdio::null()).status().is_err() {
        numapilot_not_run::not_run!(Cmake, "cmake is not installed");
        return;
    }
    let folder = scratch();
    project(folder.path());
    let output = folder.path().join("out");
    let mut configure = Command::new("cmake");
    configure.env("CXX", format!("{BINARY} c++")).arg("-S").arg(folder.path()).arg("-B").arg(&output);
    finish(&mut configure).succeeded();
    finish(Command::new("cmake").arg("--build").arg(&output)).succeeded();
    is_instrumented(folder.path(), &output.join("app"));
}
