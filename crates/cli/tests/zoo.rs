//! The zoo's scripts (`zoo/`, docs/zoo.md) hold to their own cases, and its manifest is sound, so that they cannot rot between runs of an hour.

mod common;

use std::path::Path;
use std::process::Command;

use common::*;

#[test]
fn the_zoo_judges_as_its_manual_says() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../zoo/test_zoo.py");
    finish(Command::new("python3").arg(tests)).succeeded();
}
