//! Packages (`tools/packages`): their fields, files and symbols, what the bill of materials says is in them, and that two runs give the same bytes; and what
//! the Python package is built with.

use std::process::Command;

use crate::common::*;

#[test]
fn packages_of_the_same_files_have_the_same_bytes() {
    finish(Command::new("python3").arg(root().join("tools/test_packages.py"))).succeeded();
}

#[test]
fn the_bill_of_materials_names_what_is_inside() {
    finish(Command::new("python3").arg(root().join("tools/test_sbom.py"))).succeeded();
}

#[test]
fn wheels_have_the_notices_of_what_is_linked_in() {
    finish(Command::new("python3").arg(root().join("tools/test_wheel.py"))).succeeded();
}
