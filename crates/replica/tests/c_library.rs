//! The C library as its users get it: installed, found by pkg-config, its example built and run; its rules, its torture test (alone, under the compilers'
//! sanitizers and valgrind), and its protocol under every interleaving.

use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::common::LIBRARY;
use crate::common::compile;
use crate::common::must;
use crate::common::root;
use crate::common::run;
use crate::common::scratch;

const TORTURE_SEED: &str = "20120613";

/// The torture test on the machine of `four_nodes.c`.
fn torture(name: &str, flags: &[&str]) -> PathBuf {
    let sources = [&["tests/c/torture.c", "tests/c/four_nodes.c"], LIBRARY].concat();
    compile(name, &sources, &[&["-DFOUR_NODES", "-rdynamic"], flags].concat())
}

/// Writes of a run that proves something.
const LEAST_WRITES: u64 = 20;

/// Runs it until enough has happened, and looks at what it counted: a run in which little happened proves nothing.
fn torture_passes(command: &mut Command, least_reads: u64) {
    let said = must(command.args([least_reads, LEAST_WRITES].map(|least| least.to_string())));
    let count = |name: &str| -> u64 {
        let field = said.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        field.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {said}"))
    };
    eprintln!("{said}");
    assert!(count("reads") >= least_reads && count("writes") >= LEAST_WRITES, "{said}");
    assert_eq!(count("operations_checked"), count("reads") + count("writes"), "{said}");
    assert!(count("signals") > 0, "{said}");
}

/// Address space layouts with much entropy (Linux 6.6) are more than older sanitizers bear: without randomisation they work.
fn without_randomisation(program: &Path) -> Command {
    let mut command = Command::new("setarch");
    command.arg("-R").arg(program);
    command
}

#[test]
fn the_example_of_the_documents_builds_against_the_installed_library() {
    let prefix = scratch().join("prefix");
    let make = |what: &str| {
        let mut command = Command::new("make");
        command.current_dir(root().join("c")).arg("--no-print-directory").arg(what);
        command.arg(format!("OUT={}", scratch().join("built").display()));
        must(command.arg(format!("PREFIX={}", prefix.display())));
    };
    make("install");
    let pkg_config = |arguments: &[&str]| -> Vec<OsString> {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(arguments).arg("numapilot-replica");
        must(&mut command).split_whitespace().map(OsString::from).collect()
    };
    let source = root().join("examples-c/prices.c");
    for (name, compiler, kind) in
        [("shared", "gcc", &["--cflags", "--libs"][..]), ("c++", "g++", &["--cflags", "--libs"])]
    {
        let program = scratch().join(format!("prices-{name}"));
        let mut command = Command::new(compiler);
        if compiler == "g++" {
            // The header is C++, too.
            command.args(["-xc++", "-include", "numapilot_replica.h", "-fsyntax-only"]);
            must(command.args(pkg_config(kind)).arg("/dev/null"));
            continue;
        }
        must(command.arg(&source).arg("-o").arg(&program).args(pkg_config(kind)).arg("-pthread"));
        let said = must(Command::new(&program).env("LD_LIBRARY_PATH", prefix.join("lib")));
        assert!(said.starts_with("version 21, ") && said.contains("every sum right"), "{said}");
    }
    let program = scratch().join("prices-static");
    let mut command = Command::new("gcc");
    command.arg(&source).arg("-o").arg(&program).args(pkg_config(&["--cflags"]));
    must(command.arg(prefix.join("lib/libnumapilot_replica.a")).args(["-ldl", "-pthread"]));
    assert!(must(&mut Command::new(&program)).contains("every sum right"));
}

#[test]
fn the_shared_library_exports_its_header_with_versions_and_needs_no_dynamic_thread_storage() {
    let out = scratch().join("exports");
    let mut command = Command::new("make");
    must(command.current_dir(root().join("c")).arg("all").arg(format!("OUT={}", out.display())));
    let library = out.join("libnumapilot_replica.so.0");
    let symbols = must(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let mut exported: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    exported.retain(|name| *name != "NUMAPILOT_REPLICA_0.1");
    exported.sort_unstable();
    let header = std::fs::read_to_string(root().join("c/numapilot_replica.h")).expect("header");
    let mut declared: Vec<String> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '/', '#', '}']) && line.contains('('))
        .filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next())
        .map(|name| format!("{name}@@NUMAPILOT_REPLICA_0.1"))
        .collect();
    declared.sort_unstable();
    assert!(declared.len() >= 12, "{declared:?}");
    assert_eq!(exported, declared);
    let relocations = must(Command::new("readelf").arg("-rW").arg(&library));
    assert!(!relocations.contains("DTPMOD") && !relocations.contains("TLSDESC"), "{relocations}");
}

#[test]
fn every_rule_of_the_header_holds() {
    let sources = [&["tests/c/rules.c", "tests/c/four_nodes.c"], LIBRARY].concat();
    let plain = compile("rules", &sources, &["-O2", "-rdynamic"]);
    assert_eq!(must(&mut Command::new(plain)), "rules ok\n");
    let sanitized = compile("rules-asan", &sources, &["-O1", "-rdynamic", "-fsanitize=address,undefined"]);
    assert_eq!(must(&mut without_randomisation(&sanitized)), "rules ok\n");
}

#[test]
fn a_tortured_replica_is_linearizable() {
    let program = torture("torture", &["-O2"]);
    torture_passes(Command::new(&program).args(["1000", "6", "2", TORTURE_SEED]), 1000);
    for kind in ["0", "1", "2", "3"] {
        let output = run(Command::new(&program).args(["false", kind]));
        assert!(!output.status.success() && output.stdout.is_empty(), "the false history {kind} passes");
    }
}

#[test]
fn a_tortured_replica_is_linearizable_on_this_machine() {
    let program = compile("torture-real", &[&["tests/c/torture.c"], LIBRARY].concat(), &["-O2"]);
    torture_passes(Command::new(&program).args(["700", "4", "2", TORTURE_SEED]), 500);
}

#[test]
fn torture_finds_no_stray_access_under_the_address_sanitizer() {
    let program = torture("torture-asan", &["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    torture_passes(without_randomisation(&program).args(["700", "4", "2", TORTURE_SEED]), 500);
}

#[test]
fn torture_finds_no_race_under_the_thread_sanitizer() {
    let program = torture("torture-tsan", &["-O1", "-fsanitize=thread", "-Wno-tsan"]);
    torture_passes(without_randomisation(&program).args(["700", "4", "2", TORTURE_SEED]), 500);
}

/// What it finds must make the test above fail: its report waited for ever for a lock of `four_nodes.c` where that file's own function had made the access.
#[test]
fn the_thread_sanitizer_ends_what_it_finds_racing() {
    let flags = ["-O1", "-rdynamic", "-fsanitize=thread", "-Wno-tsan"];
    let program = compile("racing", &["tests/c/racing.c", "tests/c/four_nodes.c"], &flags);
    // Seconds after which it is taken to wait for ever: it needs less than one.
    let output = run(Command::new("timeout").args(["600", "setarch", "-R"]).arg(&program));
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("data race") && said.contains("write_second"), "{said}");
}

#[test]
fn torture_finds_no_stray_access_under_valgrind() {
    let program = torture("torture-valgrind", &["-O1"]);
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=9", "--fair-sched=yes"]).arg(&program);
    torture_passes(command.args(["1500", "2", "2", TORTURE_SEED]), 50);
}

#[test]
fn the_protocol_holds_under_every_interleaving_and_broken_ones_do_not() {
    let program = compile("model", &["tests/c/model.c"], &["-O2"]);
    let said = must(&mut Command::new(&program));
    assert_eq!(said.lines().filter(|line| line.ends_with(": all right")).count(), 8, "{said}");
    for mutation in ["no-light-barrier", "no-heavy-barrier", "free-early"] {
        let output = run(Command::new(&program).arg(mutation));
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{mutation} is not found out: {said}");
        assert!(said.contains("freed"), "{mutation}: {said}");
    }
}

#[test]
fn the_rust_declarations_are_those_of_the_header() {
    // Sizes and offsets as the C compiler sees them, one "struct.field offset size" a line.
    let fields = [
        ("options", &["type_size", "flags", "pending_max", "reserved"][..]),
        (
            "info",
            &[
                "type_size",
                "version",
                "bytes",
                "nodes",
                "copies",
                "refused",
                "is_collapsed",
                "pending_versions",
                "pending_bytes",
                "reserved",
            ],
        ),
        ("copy", &["type_size", "address", "home_node", "refusal", "reserved"]),
    ];
    let mut source = String::from("#include <stdio.h>\n#include \"numapilot_replica.h\"\nint main(void) {\n");
    for (name, members) in fields {
        for member in members {
            let place = format!("struct numapilot_replica_{name}");
            source += &format!(
                "printf(\"{name}.{member} %zu %zu\\n\", offsetof({place}, {member}), sizeof((({place} *)0)->{member}));\n"
            );
        }
    }
    source += "return 0; }\n";
    let path = scratch().join("offsets.c");
    std::fs::write(&path, source).expect("write");
    let program = compile("offsets", &[path.to_str().expect("UTF-8")], &[]);
    let header = must(&mut Command::new(program));
    let rust = std::fs::read_to_string(root().join("src/ffi.rs")).expect("ffi.rs");
    let mut expected = String::new();
    for (name, members) in fields {
        let body = rust.split(&format!("pub struct Replica{}{} {{", name[..1].to_uppercase(), &name[1..])).nth(1);
        let body = body.expect("the struct").split('}').next().expect("its end");
        let mut offset = 0;
        for (line, member) in body.trim().lines().zip(members) {
            let (found, kind) = line
                .trim()
                .trim_end_matches(',')
                .strip_prefix("pub ")
                .expect("a field")
                .split_once(": ")
                .expect("a type");
            assert_eq!(found, *member, "fields of {name} in order");
            let size = match kind {
                "usize" | "u64" | "*const c_void" => 8,
                "u32" | "i32" => 4,
                "[u64; 4]" => 32,
                other => panic!("a type that this test does not know: {other}"),
            };
            expected += &format!("{name}.{member} {offset} {size}\n");
            offset += size;
        }
    }
    assert_eq!(header, expected);
}
