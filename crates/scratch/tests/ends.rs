//! The folder goes away with the program that made it, and with no other.

use std::path::Path;
use std::process::Command;

use numapilot_scratch::scratch;

const INNER: &str = "NUMAPILOT_SCRATCH_INNER";

/// What the program below does when this test starts it again: makes the folder, forks a child that ends by `exit`, and names the folder if it is still
/// there.
#[test]
fn inner() {
    if std::env::var_os(INNER).is_none() {
        return;
    }
    std::fs::write(scratch().join("file"), "kept").expect("a file");
    // SAFETY: the child calls nothing but `exit`, and the parent waits for it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child, with its handlers.
        unsafe { libc::exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` is a valid place for the status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(scratch().join("file").exists(), "the child removed it");
    std::fs::write(std::env::var_os(INNER).expect("a path"), scratch().to_str().expect("UTF-8")).expect("its name");
}

#[test]
fn the_folder_ends_with_its_program_and_not_with_a_child() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let named = folder.path().join("named");
    let this = std::env::current_exe().expect("this program");
    let output = Command::new(this).args(["--exact", "inner"]).env(INNER, &named).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let named = std::fs::read_to_string(&named).expect("the folder's name");
    assert!(!Path::new(&named).exists(), "{named} is still there");
}
