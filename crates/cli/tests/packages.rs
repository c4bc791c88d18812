//! Packages (`tools/packages`): their fields, files and symbols, and that two runs give the same bytes.

use std::process::Command;

use crate::common::*;

#[test]
fn packages_of_the_same_files_have_the_same_bytes() {
    finish(Command::new("python3").arg(root().join("tools/test_packages.py"))).succeeded();
}
