//! The benchmarks' tools (`tools/bench`): statistics, tables, the page of figures, and a comparison of two revisions, with a cargo that builds nothing.

use std::process::Command;

use crate::common::*;

#[test]
fn two_revisions_are_compared_and_nothing_is_left() {
    finish(Command::new("python3").arg(root().join("tools/test_bench.py"))).succeeded();
}
