//! The C library as its users get it: installed, found by pkg-config, its programs built and run, alone, under the address sanitizer and under valgrind;
//! what it says compared with the trace.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use numapilot_fixtures::{Kind, Size, write};
use numapilot_flows::Trace;

use crate::common::{must, prefix, scratch};

fn compile(compiler: &str, source: &str, flags: &[&str]) -> PathBuf {
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).args(["--cflags", "--libs", "numapilot"]);
    let found: Vec<OsString> = must(&mut pkg_config).split_whitespace().map(OsString::from).collect();
    let output = scratch().join(format!("{}-{compiler}{}", source.replace(['/', '.'], "-"), flags.concat()));
    let mut command = Command::new(compiler);
    command.args(["-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(flags);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source)).arg("-o").arg(&output);
    must(command.args(found).arg(format!("-Wl,-rpath,{}", prefix().join("lib").display())));
    output
}

fn trace() -> &'static Path {
    static TRACE: OnceLock<PathBuf> = OnceLock::new();
    TRACE.get_or_init(|| {
        let path = scratch().join("made.numatrace");
        let size = Size { accesses: 4000, objects: 40, threads: 8, ..Kind::Big.size() };
        write(Kind::Big, &size, &path).expect("the trace is written");
        path
    })
}

#[test]
fn what_the_library_says_is_what_the_trace_holds() {
    let said = must(Command::new(compile("gcc", "tests/c/rows.c", &["-std=c11"])).arg(trace()));
    let expected = rows_of(&Trace::open(trace()).expect("it opens"));
    for (line, expected) in said.lines().zip(expected.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(said.lines().count(), expected.lines().count());
}

/// What `rows.c` prints, straight from the trace.
fn rows_of(trace: &Trace) -> String {
    let mut out = String::new();
    let meta = trace.meta();
    let (objects, threads) = (trace.objects(), trace.threads());
    let count = trace.accesses().len();
    let _ = writeln!(out, "trace {count} {} {} {} {}", objects.len(), threads.len(), meta.duration_ns, meta.engine);
    let _ = writeln!(out, "cut short {}, evidence 0", u32::from(meta.interrupted));
    for object in objects {
        let site = trace.site(object.site).expect("a site");
        let accesses = trace.oef(object.id).len();
        let place = format!("{}:{}", site.file, site.line);
        let (id, address, kind) = (object.id.0, object.address.0, site.kind.word());
        let _ = writeln!(out, "object {id} {} {address} {} {place} {kind} {accesses}", site.name, object.bytes);
    }
    for thread in threads {
        let accesses = trace.tef(thread.index).len();
        let (index, tid) = (thread.index.0, thread.tid);
        let _ = writeln!(out, "thread {index} {tid} {} {} {accesses}", thread.name, thread.start_function);
    }
    for stack in 0..trace.stack_count() as u32 {
        let _ = write!(out, "stack {stack}");
        for location in trace.stack(numapilot_trace::ids::StackId(stack)) {
            for frame in &trace.location(*location).frames {
                let _ = write!(out, " {}", frame.function);
            }
        }
        out.push('\n');
    }
    for access in trace.accesses() {
        let object = access.object.map_or(-1, |object| object.0 as i32);
        let node = |node: Option<numapilot_machine::NodeId>| node.map_or(-1, |node| node.0 as i16);
        let (here, home) = (node(access.node), node(access.home));
        let remote = access.is_remote().map_or(0, |is_remote| if is_remote { 8 } else { 16 });
        let flags = u8::from(access.is_write) + 2 * u8::from(access.is_atomic) + 4 * u8::from(access.is_range) + remote;
        let (row, time, thread, weight) = (access.row, access.time.0, access.thread.0, access.weight);
        let _ = writeln!(
            out,
            "access {row} {time} {thread} {:x} {object} {here} {home} {flags} {weight}",
            access.address.0
        );
    }
    out
}

#[test]
fn memprofs_example_gives_what_a_straight_computation_gives() {
    let said = must(Command::new(compile("gcc", "examples-c/handover.c", &["-std=c11"])).arg(trace()));
    let trace = Trace::open(trace()).expect("it opens");
    let mut expected = String::new();
    for object in trace.objects() {
        // Over all rows by object, with no flow: the last access to it, whoever made it.
        let (mut last, mut sum, mut count) = (None, 0u64, 0u64);
        for access in trace.accesses().filter(|access| access.object == Some(object.id)) {
            if let Some((thread, time)) =
                last.replace((access.thread, access.time.0)).filter(|(thread, _)| *thread != access.thread)
            {
                let _: numapilot_trace::ids::ThreadIndex = thread;
                sum += access.time.0 - time;
                count += 1;
            }
        }
        if count > 0 {
            let _ = writeln!(expected, "{} {count} {:.3}", object.id.0, sum as f64 / count as f64);
        }
    }
    assert!(expected.lines().count() > 5, "{expected}");
    assert_eq!(said, expected);
}

#[test]
fn misuse_gets_codes_and_no_crash() {
    let said = must(Command::new(compile("gcc", "tests/c/misuse.c", &["-std=c11"])).arg(trace()));
    assert!(said.starts_with("misuse ok walked 240000"), "{said}");
}

#[test]
fn misuse_makes_no_stray_access_under_the_address_sanitizer() {
    let program = compile("gcc", "tests/c/misuse.c", &["-std=c11", "-fsanitize=address"]);
    // Address space layouts with much entropy are more than older sanitizers bear; and children leave without giving memory back.
    must(Command::new("setarch").arg("-R").arg(program).arg(trace()).env("ASAN_OPTIONS", "detect_leaks=0"));
}

#[test]
fn rows_and_example_are_clean_under_valgrind() {
    for source in ["examples-c/handover.c", "tests/c/rows.c"] {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        must(valgrind.arg(compile("gcc", source, &["-std=c11"])).arg(trace()));
    }
}

#[test]
fn the_header_is_cpp_too_and_every_declared_function_is_exported_with_a_version() {
    compile("g++", "tests/c/header.cpp", &["-std=c++11"]);
    let library = prefix().join("lib/libnumapilot.so");
    let symbols = must(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let mut exported: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    exported.retain(|name| *name != "NUMAPILOT_0.1");
    let header = fs::read_to_string(prefix().join("include/numapilot.h")).expect("installed");
    let mut declared: Vec<String> = Vec::new();
    for line in header.lines().filter(|line| !line.starts_with([' ', '#', '/', '*', 's'])) {
        if let Some((before, _)) = line.split_once('(') {
            declared.push(format!("{}@@NUMAPILOT_0.1", before.rsplit([' ', '*']).next().unwrap_or_default()));
        }
    }
    exported.sort_unstable();
    declared.sort();
    assert_eq!(exported, declared);
}
