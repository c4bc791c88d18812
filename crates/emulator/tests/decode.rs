//! What an instruction's bytes say of its accesses (`c/decode.c`).

use std::path::Path;
use std::process::Command;

/// The table of instructions is in the program, which is linked with the plugin's own file.
#[test]
fn instructions_are_told_by_how_they_touch_memory() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (program, source) = (folder.path().join("decode"), Path::new(env!("CARGO_MANIFEST_DIR")));
    let files = [source.join("tests/programs/decode.c"), source.join("c/decode.c")];
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-I"]).arg(source.join("c")).args(files).arg("-o").arg(&program);
    assert!(compiler.status().expect("cc runs").success());
    let ran = Command::new(&program).output().expect("it was just linked");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}
