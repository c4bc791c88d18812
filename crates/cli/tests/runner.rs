//! The runner of the tests (`tools/test`): each test that a program lists runs once, and one that does not run is a failure. Workflows (`.github`)
//! run commands that are there.

use std::process::Command;

use crate::common::*;

#[test]
fn the_runner_runs_every_test_once() {
    finish(Command::new("python3").arg(root().join("tools/test_test.py"))).succeeded();
}

#[test]
fn workflows_run_commands_that_are_there_with_few_rights() {
    finish(Command::new("python3").arg(root().join("tools/test_workflows.py"))).succeeded();
}
