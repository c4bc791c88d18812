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

use crate::common::shell;
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

/// Compiles a program of `programs/` for the guest; none without a cross compiler.
fn cross_compiled(source: &str, folder: &Path) -> Option<PathBuf> {
    compiled(Command::new(COMPILER).args(["-Wall", "-Wextra", "-Werror"]), source, folder.join("program"))
}

/// The program that this command compiles from a source, named as seen from `programs/`; none where there is no such command.
fn compiled(compiler: &mut Command, source: &str, program: PathBuf) -> Option<PathBuf> {
    compiler.args(["-O2", "-g", "-pthread", "-o"]).arg(&program);
    compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source));
    match compiler.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => panic!("{compiler:?}: {error}"),
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => panic!("{source}: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// The variable's numapilot, which was built for aarch64; without one the test is counted as not run.
fn numapilot() -> Option<PathBuf> {
    let named = env::var_os(NUMAPILOT).map(PathBuf::from);
    if named.is_none() {
        not_run!(ArmBuild, "{NUMAPILOT} names no numapilot that was built for aarch64");
    }
    named
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
    let Some(numapilot) = numapilot() else { return };
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

/// Pages of `moves.c`, of four threads, and where it lies.
const MOVED_PAGES: u64 = 512;
const MOVES: &str = "../../../cli/tests/programs/moves.c";

/// Pages that the thread of their own node uses, in the last line in which `moves.c` says so, behind a mark.
fn in_own_part(said: &str, mark: &str) -> u64 {
    let part = said.split_once(mark).expect("the mark").1.split("END").next().expect("an end");
    let line = part.lines().rfind(|line| line.starts_with("{\"at\"")).unwrap_or_default();
    let own = line.split_once("\"in_own_part\": ").and_then(|(_, rest)| rest.trim_end_matches('}').parse().ok());
    own.unwrap_or_else(|| panic!("{line:?} in {said}"))
}

/// Engines `track` and `instrument`, and the daemon. QEMU's user mode, in which other tests for this processor run, refuses what they need: a program that
/// adopts the processes of its children's children, and memory policies.
#[test]
fn numapilot_for_arm_tracks_simulates_and_balances() {
    if !numapilot_lab::wanted("recorders and the balancer on an aarch64 kernel") {
        return;
    }
    let Some(numapilot) = numapilot() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    // The wrapper is of that processor, too: it runs in QEMU's user mode, and the compiler that it starts here.
    let mut wrapper = Command::new("qemu-aarch64");
    wrapper.args(["-L", "/usr/aarch64-linux-gnu"]).arg(&numapilot).arg("cc").env("NUMAPILOT_CC", COMPILER);
    let plain = compiled(&mut Command::new(COMPILER), MOVES, folder.path().join("moves"));
    let (Some(plain), Some(seen)) = (plain, compiled(&mut wrapper, MOVES, folder.path().join("seen"))) else {
        return not_run!(
            ArmTools,
            "{COMPILER} and qemu-aarch64 are needed (packages gcc-aarch64-linux-gnu and qemu-user)"
        );
    };
    let script = r#"echo 0 > /proc/sys/kernel/numa_balancing; echo BEGIN plain; "$1" remote 2 1; echo END
        echo BEGIN tracked; "$0" record --quiet --engine track -o tracked.numatrace -- "$1" nothing 2 1; echo END; "$0" report tracked.numatrace
        export MOVES_NODES=4:4 MOVES_TURNS=4; simulated="--quiet --engine instrument --machine opteron-8385"
        echo BEGIN simulated; "$0" record $simulated -o simulated.numatrace -- "$2" remote 2 1; echo END; "$0" report simulated.numatrace
        unset MOVES_NODES MOVES_TURNS; for policy in pilot carrefour:gate=1; do
        "$1" remote 2 20 0.5 > out 2> ready & pid=$!; until grep -q ready ready; do sleep 0.05; done
        "$0" balance --pid $pid --policy $policy > said 2>&1; wait $pid; echo status $?; echo BEGIN $policy; cat out; echo END; cat said; done
        cat /proc/sys/kernel/numa_balancing"#;
    let mut command = shell(script);
    command.arg(&numapilot).arg(&plain).arg(&seen).current_dir(folder.path());
    let place = numapilot.parent().expect("a path with a folder");
    let outcome = lab().see(place).run(&command).expect("a guest").expect_success();
    let said = &outcome.stdout;
    eprintln!("{}, {:.0} s\n{said}", outcome.how, outcome.run.as_secs_f64());
    assert_eq!(in_own_part(said, "BEGIN plain"), MOVED_PAGES / 4, "node 0 touched all of it first");
    assert_eq!(in_own_part(said, "BEGIN tracked"), MOVED_PAGES);
    assert!(said.contains("moves.c:") && said.contains("Engine track recorded allocations"), "{said}");
    let top = said.lines().find(|line| line.starts_with("Top object")).unwrap_or_default();
    assert!(top.contains("memory (moves.c:"), "{said}");
    for policy in ["pilot", "carrefour:gate=1"] {
        let home = in_own_part(said, &format!("BEGIN {policy}"));
        assert!(home * 10 >= MOVED_PAGES * 9, "{policy}: {home} of {MOVED_PAGES} pages are where they are used");
    }
    let sums: Vec<&str> = said.lines().filter(|line| line.starts_with("checksum")).collect();
    assert!(sums.len() == 5 && [sums[2], sums[3], sums[4]] == [sums[0]; 3], "{said}");
    assert_eq!(said.matches("status 0").count(), 2, "{said}");
    assert_eq!(said.lines().last(), Some("0"), "the setting is as it was");
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
