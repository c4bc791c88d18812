//! The kernels for 64-bit Arm, compiled by a cross compiler and run in QEMU's user mode with short and long vectors, against plain loops. Where cross
//! compiler or emulator are not installed (Debian: gcc-aarch64-linux-gnu, qemu-user), it is counted as not run; the variants for x86-64 are unit tests.

use std::path::Path;
use std::process::Command;

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[track_caller]
fn succeed(command: &mut Command) -> String {
    let output = command.output().expect("the command starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn neon_and_sve_compute_what_plain_loops_do() {
    let compiler = "aarch64-linux-gnu-gcc";
    if !is_there(compiler) || !is_there("qemu-aarch64") {
        return numapilot_not_run::not_run!(
            ArmTools,
            "{compiler} and qemu-aarch64 are needed (packages gcc-aarch64-linux-gnu, qemu-user)"
        );
    }
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder");
    let mut objects = Vec::new();
    for (source, flag) in [
        ("c/kernels_portable.c", ""),
        ("c/kernels_neon.c", ""),
        ("c/kernels_sve.c", "-march=armv8-a+sve"),
        ("c/dispatch.c", "-DNP_WITH_SVE"),
        ("tests/c/variants.c", ""),
    ] {
        let object = folder.path().join(Path::new(source).with_extension("o").file_name().expect("a name"));
        let mut command = Command::new(compiler);
        command
            .args(["-std=gnu11", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-c", "-o"])
            .arg(&object);
        command.args(Some(flag).filter(|flag| !flag.is_empty())).arg("-I").arg(crate_folder.join("c"));
        succeed(command.arg(crate_folder.join(source)));
        objects.push(object);
    }
    let program = folder.path().join("variants");
    succeed(Command::new(compiler).arg("-static").args(&objects).arg("-o").arg(&program));
    for (cpu, expected) in [
        ("cortex-a57", "portable neon"),
        ("max,sve128=on,sve256=off", "portable neon sve"),
        ("max,sve256=on,sve512=off", "portable neon sve"),
        ("max", "portable neon sve"),
    ] {
        let compared = succeed(Command::new("qemu-aarch64").args(["-cpu", cpu]).arg(&program));
        assert_eq!(compared.trim(), expected, "{cpu}");
    }
}
