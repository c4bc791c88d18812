//! The tools that try servers (`servers/`, docs/guides/servers.md) pass their own unit tests, and their list is valid. Full runs take an hour, so this test
//! keeps them working in between.

use std::path::Path;
use std::process::Command;

use crate::common::*;

#[test]
fn servers_are_tried_as_the_guide_says() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../servers/test_servers.py");
    finish(Command::new("python3").arg(tests)).succeeded();
}
