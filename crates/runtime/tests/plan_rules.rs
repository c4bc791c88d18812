//! What rules of a plan mean in a program: which objects they are about, and what is said of those that they cannot place. As `plan.rs`, on one node.

use std::path::Path;
use std::process::Command;

use crate::plan::{counters, image, image_of, planner, under};
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

/// The kernel refuses to place parts of huge pages: mappings of an odd number of MiB were not placed at all, and none by `split` or weights.
#[test]
fn huge_pages_are_placed_as_wholes() {
    let program = compile("plan_huge.c", "plan_huge", &["-O1", "-fno-builtin"]);
    let shim = compile("plan_huge.c", "plan_huge.so", &["-shared", "-fPIC", "-O1", "-DSHIM"]);
    for policy in [1, 3, 6] {
        let image = image_of(&format!("huge-{policy}"), &[5 << 20, 30 << 20, policy, 0, 0, 2]);
        let preload = format!("{}:{}", planner().display(), shim.display());
        let mut command = Command::new(&program);
        let output = command.env("LD_PRELOAD", preload).env("NUMAPILOT_PLAN", &image).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        let numbers: Vec<u64> = said.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let [requests, parts] = numbers[..] else { panic!("policy {policy}: {said}, {}", output.status) };
        assert!(requests >= 5 && parts == 0, "policy {policy}: {parts} of {requests} were for parts");
        assert_eq!(counters(&image)[..3], [5, (6 + 12 + 18 + 24 + 30) << 20, 0]);
    }
}
