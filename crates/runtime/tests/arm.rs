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

/// Compiles a program with the files that walk stacks, which as a part of the emulator's plugin need no others of ours; what it says when it is run.
fn say(source: &str, flags: &[&str]) -> String {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("program");
    let mut compiler = Command::new(COMPILER);
    compiler.args(["-std=gnu11", "-static", "-Wl,--eh-frame-hdr", "-pthread", "-DNP_PLUGIN", "-o"]).arg(&program);
    compiler.args(["c", "include"].map(|part| format!("-I{}", crate_folder.join(part).display())));
    compiler
        .args(flags)
        .arg(programs().join(source))
        .args(["unwind.c", "unwind_cfi.c", "unwind_rule_arm64.c"].map(|c| crate_folder.join("c").join(c)));
    must(&mut compiler);
    // `max`: with pointer authentication and scalable vectors.
    must(Command::new(EMULATOR).args(["-cpu", "max"]).arg(&program))
}

fn can_run() -> bool {
    is_there(COMPILER) && is_there(EMULATOR)
}

#[test]
fn a_stack_that_reaches_its_outermost_frame_has_not_failed() {
    if !can_run() {
        return not_run!(ArmTools, "{COMPILER} and {EMULATOR} are needed (packages gcc-aarch64-linux-gnu, qemu-user)");
    }
    let said = say("arm_chain.c", &["-O2"]);
    let numbers: Vec<Vec<&str>> = said.lines().map(|line| line.split(' ').collect()).collect();
    let [first, other] = numbers.as_slice() else { panic!("two lines: {said}") };
    assert_eq!((first[0], first[2], other[0], other[2]), ("first", "0", "other", "0"), "{said}");
    let frames = |line: &[&str]| line[1].parse::<u32>().expect("a number");
    assert!(frames(first) >= 3 && frames(other) >= 2, "{said}");
}

#[test]
fn return_addresses_are_exact_by_unwinding_data_however_the_code_was_compiled() {
    if !can_run() {
        return not_run!(ArmTools, "{COMPILER} and {EMULATOR} are needed (packages gcc-aarch64-linux-gnu, qemu-user)");
    }
    let ways: &[&[&str]] = &[
        &["-O2", "-fomit-frame-pointer"],
        &["-O2", "-fno-omit-frame-pointer"],
        &["-O0"],
        &["-O2", "-fomit-frame-pointer", "-mbranch-protection=standard"],
        &["-O2", "-fomit-frame-pointer", "-mbranch-protection=pac-ret+leaf+b-key"],
        &["-O2", "-fomit-frame-pointer", "-DVARIABLE"],
        &["-O2", "-fomit-frame-pointer", "-DWIDE"],
        &["-O2", "-fomit-frame-pointer", "-DLARGE", "-fstack-clash-protection"],
        &["-O2", "-fomit-frame-pointer", "-fexceptions", "-fnon-call-exceptions"],
        &["-O2", "-fomit-frame-pointer", "-DSCALABLE", "-march=armv8.2-a+sve"],
    ];
    for flags in ways {
        let said = say("arm_unwind.c", &[&["-fno-optimize-sibling-calls"], *flags].concat());
        let words: Vec<&str> = said.split_whitespace().collect();
        let ["ok", walks, rules] = words.as_slice() else { panic!("{flags:?}: {said}") };
        assert_eq!(*walks, "2", "{flags:?}: a call, and a signal that interrupted a leaf function");
        assert!(rules.parse::<u32>().expect("a number") > 1000, "{flags:?}: damaged tables were not read: {said}");
    }
}
