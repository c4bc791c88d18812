//! A guest of 64-bit Arm: a file tree of its own, with the host's folders in it, and programs that a cross compiler made for it. Its kernel places pages,
//! moves them and reports page faults as the other one does. Where there is no cross compiler (Debian: gcc-aarch64-linux-gnu), what needs it is counted as
//! not run.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use numapilot_lab::Arch;
use numapilot_lab::Kernel;
use numapilot_lab::Lab;
use numapilot_lab::LabError;
use numapilot_lab::Topology;
use numapilot_lab::TruthOptions;
use numapilot_not_run::not_run;

const COMPILER: &str = "aarch64-linux-gnu-gcc";
/// Pages of a block, as in `programs/places.c`.
const PAGES: &str = "64";

fn lab() -> Lab {
    Lab::new(Topology::symmetric(4)).arch(Arch::Aarch64).time_limit(Duration::from_secs(600))
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Compiles a program of `programs/` for the guest; none without a cross compiler.
fn cross_compiled(source: &str, folder: &Path) -> Option<PathBuf> {
    let program = folder.join("program");
    let mut compiler = Command::new(COMPILER);
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program);
    compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source));
    match compiler.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => panic!("{COMPILER}: {error}"),
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => panic!("{source}: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

#[test]
fn the_arm_guest_has_four_nodes_and_some_of_the_hosts_folders() {
    if !numapilot_lab::wanted("an aarch64 guest") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let elsewhere = tempfile::tempdir().expect("another folder");
    fs::write(folder.path().join("in"), "from the host\n").expect("written");
    fs::write(elsewhere.path().join("seen"), "seen\n").expect("written");
    let script = "uname -m; cat in \"$1/seen\"; echo out > out; echo lost > \"$1/seen\"; cat \"$1/seen\"; cat /sys/devices/system/node/online; \
                  cat /sys/devices/system/node/node2/distance; numactl --hardware | head -n 1; test -e /lib/ld-linux-aarch64.so.1; exit 7";
    let mut command = shell(script);
    command.arg("sh").arg(elsewhere.path()).current_dir(folder.path());
    let outcome = lab().run(&command).expect("a guest");
    eprintln!("{}", outcome.how);
    assert_eq!(outcome.exit, 7, "{outcome:?}");
    let expected = "aarch64\nfrom the host\nseen\nlost\n0-3\n20 20 10 20\navailable: 4 nodes (0-3)\n";
    assert_eq!(outcome.stdout, expected, "{}", outcome.stderr);
    assert!(outcome.how.contains("-arm64, 4 nodes, 8 CPUs"), "{}", outcome.how);
    assert_eq!(fs::read_to_string(folder.path().join("out")).expect("written by the guest"), "out\n");
    assert_eq!(
        fs::read_to_string(elsewhere.path().join("seen")).expect("there"),
        "seen\n",
        "the guest changed the host"
    );
}

#[test]
fn pages_are_where_they_are_bound_moved_to_and_touched_on_arm() {
    if !numapilot_lab::wanted("placement of pages on an aarch64 kernel") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = cross_compiled("places.c", folder.path()) else {
        return not_run!(ArmTools, "{COMPILER} is needed (package gcc-aarch64-linux-gnu)");
    };
    let mut expected = String::new();
    for node in 0..4 {
        expected += &format!("bound {node} {PAGES}\nmoved {node} {} {PAGES}\n", (node + 1) % 4);
    }
    for node in 0..4 {
        expected += &format!("touched {node} {PAGES} {PAGES}\n");
    }
    for kernel in Kernel::ALL {
        let script = format!("echo 0 > /proc/sys/kernel/numa_balancing; exec {}", program.display());
        let outcome = lab().kernel(kernel).run(&shell(&script)).expect("a guest").expect_success();
        eprintln!("{}", outcome.how);
        assert_eq!(outcome.stdout, expected, "kernel {kernel}");
    }
}

#[test]
fn accesses_are_not_counted_in_an_arm_guest_and_it_says_so() {
    if !numapilot_lab::wanted("an aarch64 guest") {
        return;
    }
    let Err(LabError::Command(message)) = lab().truth(TruthOptions::default()).run(&shell("true")) else {
        panic!("a plugin for x86-64 counts nothing there")
    };
    assert!(message.contains("--truth") && message.contains("x86_64"), "{message}");
}
