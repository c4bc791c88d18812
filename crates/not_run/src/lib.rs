//! How a test says that it did not run, and what this machine lacks for it.
//!
//! Rust's test harness knows passed and failed, and hides what a passed test prints. So a test that cannot run here calls [`not_run!`] and returns: that
//! writes a line to standard error past the harness, and appends one to the file that `NUMAPILOT_NOT_RUN` names. `make test` (`tools/test`) names that
//! file, counts and lists its lines at the end, and under CI fails for each need that `tools/may-be-absent` does not list.

use std::env;
use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::io::Write;
use std::panic::Location;
use std::thread;

/// Names the file that lines are appended to.
pub const FILE: &str = "NUMAPILOT_NOT_RUN";

/// What a test needs and this machine may lack. The name of each is its word in `tools/may-be-absent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A numapilot that was built for 64-bit Arm, which `NUMAPILOT_AARCH64` names.
    ArmBuild,
    /// A cross compiler for 64-bit Arm, and for some tests QEMU's user mode to run its programs (packages gcc-aarch64-linux-gnu, qemu-user).
    ArmTools,
    /// Memory that can be bound to a node (`mbind`).
    BoundMemory,
    /// CMake.
    Cmake,
    /// `java` and `javac` of Java 11 or later (package default-jdk-headless).
    Java,
    /// The lab: QEMU and kernels with several memory nodes, unless `NUMAPILOT_LAB=skip` is set.
    Lab,
    /// Mount namespaces of one's own.
    MountNamespaces,
    /// `move_pages` on one's own memory.
    MovePages,
    /// `numastat` (package numactl).
    Numastat,
    /// A machine with exactly one memory node.
    OneNode,
    /// The kernel's software events of page faults (`perf_event_open`).
    PageFaultEvents,
    /// A kernel that is asked which pages are in memory (`PAGEMAP_SCAN`, Linux 6.7).
    PagemapScan,
    /// `perf`, which dumps recordings.
    Perf,
    /// Events that `perf` can record here.
    PerfRecord,
    /// Namespaces of process numbers of one's own.
    PidNamespaces,
    /// A Python that numapilot can follow.
    Python,
    /// A QEMU user-mode emulator that takes plugins.
    QemuPlugins,
    /// The rights of root, and `setpriv` to give them up.
    Root,
    /// Two processors.
    TwoCpus,
    /// Pages that a process provides itself (`userfaultfd`), and moves (Linux 6.8).
    Userfaultfd,
}

impl Need {
    /// Every need.
    pub const ALL: [Need; 20] = [
        Need::ArmBuild,
        Need::ArmTools,
        Need::BoundMemory,
        Need::Cmake,
        Need::Java,
        Need::Lab,
        Need::MountNamespaces,
        Need::MovePages,
        Need::Numastat,
        Need::OneNode,
        Need::PageFaultEvents,
        Need::PagemapScan,
        Need::Perf,
        Need::PerfRecord,
        Need::PidNamespaces,
        Need::Python,
        Need::QemuPlugins,
        Need::Root,
        Need::TwoCpus,
        Need::Userfaultfd,
    ];

    /// The need's name, as `tools/may-be-absent` writes it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Need::ArmBuild => "arm-build",
            Need::ArmTools => "arm-tools",
            Need::BoundMemory => "bound-memory",
            Need::Cmake => "cmake",
            Need::Java => "java",
            Need::Lab => "lab",
            Need::MountNamespaces => "mount-namespaces",
            Need::MovePages => "move-pages",
            Need::Numastat => "numastat",
            Need::OneNode => "one-node",
            Need::PageFaultEvents => "page-fault-events",
            Need::PagemapScan => "pagemap-scan",
            Need::Perf => "perf",
            Need::PerfRecord => "perf-record",
            Need::PidNamespaces => "pid-namespaces",
            Need::Python => "python",
            Need::QemuPlugins => "qemu-plugins",
            Need::Root => "root",
            Need::TwoCpus => "two-cpus",
            Need::Userfaultfd => "userfaultfd",
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.word())
    }
}

/// Says that the test that calls this does not run, for want of `need` ([`Need`], its variant's name alone); a format string tells why. The test then returns.
#[macro_export]
macro_rules! not_run {
    ($need:ident, $($reason:tt)+) => {
        $crate::tell($crate::Need::$need, &format!($($reason)+))
    };
}

/// What [`not_run!`] calls.
///
/// # Panics
/// If the file that [`FILE`] names cannot be written: the test would be counted as one that ran.
#[track_caller]
pub fn tell(need: Need, reason: &str) {
    let line = line(need, &name(Location::caller().file(), thread::current().name()), reason);
    // There is nobody left to tell if this fails.
    let _ = io::stderr().lock().write_all(format!("NOT RUN: {line}").as_bytes());
    let Some(path) = env::var_os(FILE) else { return };
    // One write of a short line to a file opened for appending is not mixed with those of other processes.
    let opened = OpenOptions::new().create(true).append(true).open(&path);
    let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("{FILE}={}: {error}", path.display()));
}

/// `FILE::TEST`. The harness names each test's thread after the test, except where it runs all in its own one.
fn name(file: &str, thread: Option<&str>) -> String {
    match thread.filter(|thread| *thread != "main").and_then(|test| test.rsplit("::").next()) {
        Some(test) => format!("{file}::{test}"),
        None => file.to_owned(),
    }
}

/// `NEED`, name and reason, separated by tabs, on one line.
fn line(need: Need, name: &str, reason: &str) -> String {
    let reason: Vec<&str> = reason.split_whitespace().collect();
    format!("{need}\t{name}\t{}\n", reason.join(" "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_test_is_named_by_its_file_and_itself() {
        assert_eq!(name("crates/cli/tests/fault.rs", Some("every_touch")), "crates/cli/tests/fault.rs::every_touch");
        assert_eq!(name("crates/a/src/b.rs", Some("b::tests::one")), "crates/a/src/b.rs::one");
        assert_eq!(name("crates/a/src/b.rs", Some("main")), "crates/a/src/b.rs");
        assert_eq!(name("crates/a/src/b.rs", None), "crates/a/src/b.rs");
    }

    /// Says so, when the next test starts this program again with a file to say it in.
    #[test]
    fn child_that_does_not_run() {
        if env::var_os(FILE).is_some() && env::var_os("NUMAPILOT_NOT_RUN_CHILD").is_some() {
            not_run!(TwoCpus, "there is {}\n\tonly", 1);
        }
    }

    #[test]
    fn a_test_that_does_not_run_is_told_aloud_and_noted_once() {
        let file = env::temp_dir().join(format!("numapilot-not-run-{}", std::process::id()));
        let mut again = Command::new(env::current_exe().expect("this program"));
        again.args(["--exact", "tests::child_that_does_not_run"]).env(FILE, &file).env("NUMAPILOT_NOT_RUN_CHILD", "1");
        let output = again.output().expect("it starts");
        let noted = std::fs::read_to_string(&file).expect("the file");
        let _ = std::fs::remove_file(&file);
        let expected = "two-cpus\tcrates/not_run/src/lib.rs::child_that_does_not_run\tthere is 1 only\n";
        assert_eq!(noted, expected);
        assert!(output.status.success(), "for the harness it has passed");
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected), "though nothing was captured: {output:?}");
    }

    /// `tools/not-run` of these lines: whether it was content, and what it said.
    fn judged(lines: &str, strict: &[(&str, &str)]) -> (bool, String) {
        let folder =
            env::temp_dir().join(format!("numapilot-judged-{}-{:?}", std::process::id(), thread::current().id()));
        std::fs::write(&folder, lines).expect("written");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/not-run");
        let mut command = Command::new(script);
        command.arg(&folder).env_remove("CI").env_remove("NUMAPILOT_REQUIRE").envs(strict.iter().copied());
        let output = command.output().expect("bash runs it");
        let _ = std::fs::remove_file(&folder);
        (output.status.success(), String::from_utf8(output.stdout).expect("text"))
    }

    #[test]
    fn under_ci_only_what_is_listed_may_be_absent() {
        let (ci, all) = (("CI", "true"), ("NUMAPILOT_REQUIRE", "all"));
        let one = line(Need::QemuPlugins, "a.rs::emulates", "a static build");
        let other = line(Need::Lab, "b.rs::boots", "NUMAPILOT_LAB=skip");
        assert_eq!(judged("", &[ci]), (true, "each of them ran to the end\n".to_owned()));
        let (content, said) = judged(&format!("{one}{other}{one}"), &[]);
        assert!(content && said.starts_with("2 of them did not run"), "each counts once: {said}");
        assert!(
            said.contains("  a.rs::emulates: qemu-plugins: a static build\n") && said.contains("b.rs::boots"),
            "{said}"
        );
        for strict in [ci, all] {
            assert!(!judged(&other, &[strict]).0, "nothing lists the lab");
            assert!(judged(&one, &[strict, ("NUMAPILOT_RELEASE", "trixie")]).0, "listed for Debian 13");
            assert!(!judged(&one, &[strict, ("NUMAPILOT_RELEASE", "bookworm")]).0, "and for no other release");
        }
    }

    #[test]
    fn what_may_be_absent_is_a_need_with_a_reason() {
        let words: BTreeSet<&str> = Need::ALL.iter().map(|need| need.word()).collect();
        assert_eq!(words.len(), Need::ALL.len());
        for line in include_str!("../../../tools/may-be-absent").lines().filter(|line| !line.starts_with('#')) {
            let [need, release, reason] = line.splitn(3, '\t').collect::<Vec<_>>()[..] else {
                panic!("need, release and reason, separated by tabs: {line:?}")
            };
            assert!(words.contains(need) && !release.is_empty() && reason.len() > 20, "{line:?}");
        }
    }
}
