//! The C library, installed as its users have it, from what cargo has made.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use std::sync::OnceLock;

pub use numapilot_scratch::scratch;

pub fn must(command: &mut Command) -> String {
    let output = command.output();
    let output =
        output.unwrap_or_else(|error| panic!("{command:?}: {error} (install the packages of `tools/setup test`)"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The archive that cargo has made of these sources, beside this test.
fn archive() -> PathBuf {
    let test = env::current_exe().expect("this test's path");
    let folders = test.ancestors().skip(1).take(2);
    let entries = folders.flat_map(|folder| fs::read_dir(folder).expect("the folder is read").flatten());
    let archives = entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libnumapilot_capi") && name.ends_with(".a")
    });
    let newest = archives.max_by_key(|path| path.metadata().and_then(|data| data.modified()).expect("a time"));
    newest.expect("cargo makes the archive before it runs this")
}

/// The folder that the library was installed into.
pub fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = scratch().join("prefix");
        let mut make = Command::new("make");
        make.current_dir(env!("CARGO_MANIFEST_DIR")).args(["--no-print-directory", "install"]);
        make.arg(format!("OUT={}", scratch().join("built").display())).arg(format!("PREFIX={}", prefix.display()));
        must(make.arg(format!("ARCHIVE={}", archive().display())));
        prefix
    })
}
