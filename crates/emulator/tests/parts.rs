//! Parts of the plugin that work without an emulator: what the calls of one to them leave.

use std::path::Path;
use std::process::Command;

/// Under an emulator nobody knows whether a write after a fork made a copy: the home is known where it makes no difference, and else unknown. Repeated copies
/// were charged by the byte.
#[test]
fn writes_after_a_fork_and_repeated_copies_are_taken_for_what_they_are() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (program, own) = (folder.path().join("parts"), Path::new(env!("CARGO_MANIFEST_DIR")));
    let runtime = own.join("../runtime/c");
    let files = ["tests/programs/parts.c", "c/access.c", "c/process.c"].map(|file| own.join(file));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-DNP_PLUGIN"]);
    compiler.arg("-I").arg(own.join("c")).arg("-I").arg(&runtime);
    compiler.args(files).arg(runtime.join("pages_common.c")).arg("-o").arg(&program);
    assert!(compiler.status().expect("cc runs").success());
    let ran = Command::new(&program).output().expect("it was just linked");
    assert!(ran.status.success(), "{} {}", ran.status, String::from_utf8_lossy(&ran.stdout));
}
