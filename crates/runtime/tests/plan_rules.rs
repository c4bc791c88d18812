//! What rules of a plan mean in a program: which objects they are about, and what is said of those that they cannot place. As `plan.rs`, on one node.

use std::path::Path;
use std::process::Command;

use crate::plan::{counters, image, under};
use crate::support::{compile, scratch};

/// A mapping that a hand-over rule took was not counted, as if no rule had matched it.
#[test]
fn mappings_that_are_not_handed_over_are_counted() {
    let program = compile("plan_limit.c", "plan_unmoved", &["-O1", "-fno-builtin"]);
    let image = image("unmoved", 1 << 20, 1 << 20, 8);
    let output = under(&image, Command::new(&program).arg("1"));
    assert!(output.status.success(), "{}", output.status);
    let [placed, bytes, passed, failures] = counters(&image);
    // The block, but where the kernel refuses to place anything, and the mapping.
    assert!(placed + passed == 2 && passed >= 1, "{placed} placed, {passed} passed, {failures} calls refused");
    assert_eq!(bytes, placed << 20);
}

/// A child went on counting where its parent was: of workers that a server forks, the first object of each was nobody's.
#[test]
fn instances_are_numbered_anew_in_a_forked_child() {
    let include = format!("-I{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("c").display());
    let program = compile("plan_instances.c", "plan_instances", &["-O1", "-fno-builtin", &include]);
    let image = scratch().join("instances");
    assert!(Command::new(&program).arg("image").arg(&image).status().expect("it runs").success());
    let output = under(&image, &mut Command::new(&program));
    assert!(output.status.success(), "{}", output.status);
    let [placed, _, passed, failures] = counters(&image);
    assert_eq!(placed + passed, 2, "the second block of each process: {placed} placed, {failures} calls refused");
}
