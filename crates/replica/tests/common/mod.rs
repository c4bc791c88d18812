//! What the tests share: a folder for what they build, running commands, compiling C.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

pub use numapilot_scratch::scratch;

/// Sources of the C library, relative to the crate.
pub const LIBRARY: &[&str] = &["c/replica.c", "c/readers.c", "c/nodes.c"];

/// The crate's folder.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command that must at least start.
pub fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error} (install the packages of `tools/setup test`)"))
}

/// Runs a command that must succeed; its standard output.
pub fn must(command: &mut Command) -> String {
    let output = run(command);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}{errors}", output.status);
    said
}

/// Compiles sources of the crate to a program.
pub fn compile(name: &str, sources: &[&str], flags: &[&str]) -> PathBuf {
    let output = scratch().join(name);
    let mut command = Command::new("gcc");
    command.current_dir(root()).args(["-std=gnu11", "-g", "-Wall", "-Wextra", "-Ic", "-Itests/c", "-pthread"]);
    must(command.args(flags).args(sources).arg("-o").arg(&output));
    output
}
