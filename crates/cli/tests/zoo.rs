//! The zoo's scripts (`zoo/`, docs/zoo.md) pass their own unit tests, and its manifest is valid. Full runs take an hour, so this test keeps them working in
//! between.

use std::path::Path;
use std::process::Command;

use crate::common::*;

#[test]
fn the_zoo_judges_as_its_manual_says() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../zoo/test_zoo.py");
    finish(Command::new("python3").arg(tests)).succeeded();
}
