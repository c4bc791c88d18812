//! Allocators that binaries carry themselves.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use numapilot_symbols::{Unresolved, has_symbols, own_allocator};

fn compiled(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let (file, binary) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&file, source).unwrap();
    let status =
        Command::new("cc").args(["-O1", "-fno-builtin"]).args(flags).arg(&file).arg("-o").arg(&binary).status();
    assert!(status.expect("cc runs").success());
    binary
}

const BODY: &str = "(unsigned long bytes) { static char block[64]; return bytes > 64 ? 0 : block; }\n";
const MAIN: &str = "int main(void) { return 0; }\n";

fn found(binary: &Path, is_program: bool) -> Option<String> {
    own_allocator(binary.to_str().unwrap(), &[], is_program).unwrap()
}

#[test]
fn names_of_its_own_tell_of_an_allocator_and_so_does_a_programs_malloc() {
    let folder = tempfile::tempdir().unwrap();
    let prefixed = compiled(folder.path(), "prefixed", &format!("void *_rjem_malloc{BODY}{MAIN}"), &[]);
    assert_eq!(found(&prefixed, true).as_deref(), Some("_rjem_malloc"));
    let hidden = format!("static __attribute__((used)) void *je_malloc{BODY}{MAIN}");
    assert_eq!(found(&compiled(folder.path(), "hidden", &hidden, &[]), true).as_deref(), Some("je_malloc"));
    let replacing = compiled(folder.path(), "replacing", &format!("void *malloc{BODY}{MAIN}"), &[]);
    assert_eq!(found(&replacing, true).as_deref(), Some("malloc"));
}

#[test]
fn what_the_loader_leads_to_is_no_allocator_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    // As tcmalloc's library: `malloc` is called through the loader, whatever else it is called.
    let library = format!("void *tc_malloc{BODY}void *malloc(unsigned long bytes) {{ return tc_malloc(bytes); }}\n");
    assert_eq!(found(&compiled(folder.path(), "library.so", &library, &["-shared", "-fPIC"]), false), None);
    let caller = "void *malloc(unsigned long);\nint main(void) { return malloc(8) == 0; }\n";
    assert_eq!(found(&compiled(folder.path(), "caller", caller, &[]), true), None);
    let own_affair = format!("static __attribute__((used)) void *malloc{BODY}{MAIN}");
    assert_eq!(found(&compiled(folder.path(), "affair", &own_affair, &[]), true), None);
}

#[test]
fn a_rebuilt_binary_is_not_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let binary = compiled(folder.path(), "rebuilt", &format!("void *je_malloc{BODY}{MAIN}"), &["-Wl,--build-id"]);
    let found = own_allocator(binary.to_str().unwrap(), &[1, 2, 3], true);
    assert_eq!(found, Err(Unresolved::OtherBuild));
}

#[test]
fn gos_heap_is_an_allocator_of_its_own_where_a_library_can_be_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let program =
        "static int twice(int n) { return 2 * n; }\nint main(int n, char **rest) { (void)rest; return twice(n); }\n";
    let source = format!("{program}{}", include_str!("programs/go_table.c"));
    let flags = ["-fno-inline", "-fno-toplevel-reorder"];
    let dynamic = compiled(folder.path(), "dynamic", &source, &flags);
    assert_eq!(found(&dynamic, true).as_deref(), Some("runtime.mallocgc"));
    // Without the C library, whose malloc a static program would carry: as Go links its programs.
    let alone = ["-static", "-nostdlib", "-Wl,-emain"];
    let fixed = compiled(folder.path(), "fixed", &source, &[&flags[..], &alone].concat());
    assert_eq!(found(&fixed, true), None);
    // With a loader and no C library, as Go links position-independent ones.
    let alone = ["-fPIE", "-pie", "-nostdlib", "-Wl,-emain"];
    let bare = compiled(folder.path(), "bare", &source, &[&flags[..], &alone].concat());
    assert_eq!(found(&bare, true), None);
    let older = compiled(folder.path(), "older", &source.replace("0xfffffff1", "0xfffffffa"), &flags);
    assert_eq!(found(&older, true), None, "arguments on the stack, which emulate does not read");
}

#[test]
fn stripped_binaries_have_no_symbols() {
    let folder = tempfile::tempdir().unwrap();
    let binary = compiled(folder.path(), "whole", MAIN, &[]);
    let path = binary.to_str().unwrap();
    assert_eq!(has_symbols(path, &[]), Ok(true));
    assert!(Command::new("strip").arg(&binary).status().expect("strip runs").success());
    assert_eq!(has_symbols(path, &[]), Ok(false));
    assert_eq!(has_symbols("/nonexistent", &[]), Err(Unresolved::NoFile));
}

#[test]
fn the_debug_file_of_a_stripped_binary_tells_of_its_allocator() {
    let folder = tempfile::tempdir().unwrap();
    let hidden = format!("static __attribute__((used)) void *je_malloc{BODY}{MAIN}");
    let binary = compiled(folder.path(), "server", &hidden, &[]);
    let debug = folder.path().join("server.debug");
    let run = |command: &mut Command| assert!(command.status().expect("binutils").success());
    run(Command::new("objcopy").arg("--only-keep-debug").args([&binary, &debug]));
    run(Command::new("strip").arg(&binary));
    assert_eq!(found(&binary, true), None);
    run(Command::new("objcopy").arg(format!("--add-gnu-debuglink={}", debug.display())).arg(&binary));
    assert_eq!(found(&binary, true).as_deref(), Some("je_malloc"));
}
