//! Call stacks on 64-bit Arm, compiled by a cross compiler and run in QEMU's user mode. Where cross compiler or emulator are not installed (Debian:
//! gcc-aarch64-linux-gnu, qemu-user), it is counted as not run.

use std::path::Path;
use std::process::Command;

use numapilot_not_run::not_run;
use numapilot_scratch::must;

use crate::support::programs;

const COMPILER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_stack_that_reaches_its_outermost_frame_has_not_failed() {
    if !is_there(COMPILER) || !is_there(EMULATOR) {
        return not_run!(ArmTools, "{COMPILER} and {EMULATOR} are needed (packages gcc-aarch64-linux-gnu, qemu-user)");
    }
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("chain");
    let mut compiler = Command::new(COMPILER);
    // As a part of the emulator's plugin these files need no others of ours.
    compiler.args(["-std=gnu11", "-O2", "-static", "-pthread", "-DNP_PLUGIN", "-o"]).arg(&program);
    compiler.args(["c", "include"].map(|part| format!("-I{}", crate_folder.join(part).display())));
    compiler
        .arg(programs().join("arm_chain.c"))
        .args(["unwind.c", "unwind_cfi.c"].map(|c| crate_folder.join("c").join(c)));
    must(&mut compiler);
    let said = must(Command::new(EMULATOR).arg(&program));
    let numbers: Vec<Vec<&str>> = said.lines().map(|line| line.split(' ').collect()).collect();
    let [first, other] = numbers.as_slice() else { panic!("two lines: {said}") };
    assert_eq!((first[0], first[2], other[0], other[2]), ("first", "0", "other", "0"), "{said}");
    let frames = |line: &[&str]| line[1].parse::<u32>().expect("a number");
    assert!(frames(first) >= 3 && frames(other) >= 2, "{said}");
}
