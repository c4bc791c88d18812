//! A guest of 64-bit Arm: a file tree of its own, with the host's folders in it, and programs that a cross compiler made for it. Its kernel places pages,
//! moves them and reports page faults as the other one does. Where there is no cross compiler (Debian: gcc-aarch64-linux-gnu), what needs it is counted as
//! not run; numapilot itself runs there where a variable names one that was built for it.

use std::env;
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
/// Names a numapilot that was built for aarch64 (`cargo build --target aarch64-unknown-linux-gnu -p numapilot`).
const NUMAPILOT: &str = "NUMAPILOT_AARCH64";
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

/// The number of pages behind `node N: ` in the line of a report that says where pages were first touched.
fn first_touched(report: &str, node: u32) -> u32 {
    let line = report.lines().find(|line| line.trim_start().starts_with("Touched first")).unwrap_or_default();
    let pages = line.split_once(&format!("node {node}: ")).and_then(|(_, rest)| rest.split_once(' '));
    pages.and_then(|(pages, _)| pages.parse().ok()).unwrap_or(0)
}

#[test]
fn numapilot_for_arm_sees_the_nodes_and_records_page_faults_by_node() {
    if !numapilot_lab::wanted("numapilot on an aarch64 kernel") {
        return;
    }
    let Some(numapilot) = env::var_os(NUMAPILOT).map(PathBuf::from) else {
        return not_run!(ArmBuild, "{NUMAPILOT} names no numapilot that was built for aarch64");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = cross_compiled("places.c", folder.path()) else {
        return not_run!(ArmTools, "{COMPILER} is needed (package gcc-aarch64-linux-gnu)");
    };
    let script = "echo 0 > /proc/sys/kernel/numa_balancing; \"$0\" topo; \"$0\" doctor; \
                  \"$0\" record --quiet --engine fault -o recorded.numatrace -- \"$1\" > /dev/null && exec \"$0\" report recorded.numatrace";
    let mut command = shell(script);
    command.arg(&numapilot).arg(&program).current_dir(folder.path());
    let place = numapilot.parent().expect("a path with a folder");
    let outcome = lab().see(place).run(&command).expect("a guest").expect_success();
    eprintln!("{}", outcome.how);
    let said = &outcome.stdout;
    assert!(said.contains("4 nodes · 4 sockets") && said.contains("8 CPUs online"), "{said}");
    for way in ["fault", "track", "import"] {
        let line = said.lines().find(|line| line.starts_with(way)).unwrap_or_default();
        assert_eq!(line.split_whitespace().nth(1), Some("works"), "{way}: {said}");
    }
    for node in 0..4 {
        assert!(first_touched(said, node) >= 64, "node {node}: {said}");
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
