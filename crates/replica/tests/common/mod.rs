//! What the tests share: a folder for what they build, running commands, compiling C.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

pub use numapilot_scratch::{must, run, scratch};

/// Sources of the C library, relative to the crate.
pub const LIBRARY: &[&str] = &["c/replica.c", "c/readers.c", "c/nodes.c"];

/// The crate's folder.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles sources of the crate to a program.
pub fn compile(name: &str, sources: &[&str], flags: &[&str]) -> PathBuf {
    let output = scratch().join(name);
    let mut command = Command::new("gcc");
    command.current_dir(root()).args(["-std=gnu11", "-g", "-Wall", "-Wextra", "-Ic", "-Itests/c", "-pthread"]);
    must(command.args(flags).args(sources).arg("-o").arg(&output));
    output
}
