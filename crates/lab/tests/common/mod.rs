//! What the tests of the plugin share.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

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
