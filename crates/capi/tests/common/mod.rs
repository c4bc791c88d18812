//! The C library, installed as its users have it, from what cargo has made.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use numapilot_scratch::made;

pub use numapilot_scratch::{must, scratch};

/// The folder that the library was installed into.
pub fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = scratch().join("prefix");
        let mut make = Command::new("make");
        make.current_dir(env!("CARGO_MANIFEST_DIR")).args(["--no-print-directory", "install"]);
        make.arg(format!("OUT={}", scratch().join("built").display())).arg(format!("PREFIX={}", prefix.display()));
        must(make.arg(format!("ARCHIVE={}", made("libnumapilot_capi", ".a").display())));
        prefix
    })
}
