//! What tests of several crates share: a folder for all tests of one test program, removed when the program ends, and the commands that they run.
//!
//! Tests that compile programs build each once, and every test runs it: the folder must outlive them all, so it hangs on a static, and Rust drops no
//! static. What a killed program leaves, `tools/test` removes with the folder for temporary files that it gives to the whole run.

mod commands;

use std::path::Path;
use std::process;
use std::sync::OnceLock;

use tempfile::TempDir;

pub use commands::{copy_program, made, must, root, run, write_program};

/// The folder, and the process that made it: a child that a test forks ends by `exit`, too, and must leave it alone.
static FOLDER: OnceLock<(TempDir, u32)> = OnceLock::new();

/// This program's folder, made by the first call. It is there until the program returns from `main` or calls `exit`.
///
/// # Panics
/// Where no folder can be made.
pub fn scratch() -> &'static Path {
    let (folder, _) = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // SAFETY: the handler is a plain function, and uses nothing that ends before it runs.
        let registered = unsafe { libc::atexit(remove) };
        assert_eq!(registered, 0, "no room for a handler of the program's end");
        (folder, process::id())
    });
    folder.path()
}

extern "C" fn remove() {
    if let Some((folder, maker)) = FOLDER.get()
        && *maker == process::id()
        && let Err(error) = std::fs::remove_dir_all(folder.path())
    {
        eprintln!("{} is left behind: {error}", folder.path().display());
    }
}
