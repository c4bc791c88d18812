//! What several files of tests share.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

/// A command of the guest's shell.
pub fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Compiles `programs/marked.c` into `folder`.
pub fn marked(folder: &Path) -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = folder.join("marked");
    let mut command = Command::new("cc");
    command.arg("-O2").arg("-I").arg(crate_folder.join("plugin")).arg("-o").arg(&out);
    let status = command.arg(crate_folder.join("tests/programs/marked.c")).status().expect("a C compiler");
    assert!(status.success());
    out
}
