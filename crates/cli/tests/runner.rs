//! The runner of the tests (`tools/test`): each test that a program lists runs once, and one that does not run is a failure.

use std::process::Command;

use crate::common::*;

#[test]
fn the_runner_runs_every_test_once() {
    finish(Command::new("python3").arg(root().join("tools/test_test.py"))).succeeded();
}
