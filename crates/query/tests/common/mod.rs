//! What the tests share: synthetic traces, the program under test, and tables read by the trace crate's own reader.

use std::path::Path;
use std::process::{Command, Output};

use numapilot_fixtures::{Kind, Size, write};
use numapilot_trace::tables::{AccessColumns, ObjectColumns, ThreadColumns, TraceReader};
use tempfile::TempDir;

/// A folder that goes away with the test.
pub fn scratch() -> TempDir {
    tempfile::Builder::new().prefix("numapilot-query-").tempdir().expect("a temporary folder")
}

/// A trace of this kind with so many accesses and objects.
pub fn trace(kind: Kind, accesses: u64, objects: u32, seed: u64, folder: &Path) {
    let size = Size { accesses, objects, seed, ..kind.size() };
    write(kind, &size, folder).expect("the trace is written");
}

/// A fleet of `hosts` hosts with a run or two each; the same for the same number.
pub fn fleet(hosts: u64, folder: &Path) {
    for host in 0..hosts {
        for run in 0..1 + host % 2 {
            let kind = [Kind::Latency, Kind::Losses][(host % 2) as usize];
            let path = folder.join(format!("host=h{host:04}")).join(format!("run=2026-11-{:02}", run + 1));
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("the host's folder is made");
            let size = Size { accesses: 300, objects: 20, threads: 8, nodes: 4, seed: host * 2 + run };
            write(kind, &size, &path).expect("the trace is written");
        }
    }
}

/// The program with these arguments.
pub fn query(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_numapilot-query")).args(arguments).output().expect("numapilot-query starts")
}

/// Its output; it must succeed.
pub fn answer(arguments: &[&str]) -> String {
    let done = query(arguments);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{arguments:?}: {}\n{errors}", done.status);
    String::from_utf8(done.stdout).expect("UTF-8")
}

/// What it says when it fails, which it must, with this exit code.
pub fn complaint(arguments: &[&str], code: i32) -> String {
    let done = query(arguments);
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(code), "{arguments:?}: {errors}");
    assert!(done.stdout.is_empty(), "{arguments:?} printed something");
    errors
}

/// Runs `tools/fleet-check` in a Python that has the engines to compare with; what it printed.
pub fn fleet_check(arguments: &[&str]) -> String {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools");
    let found = Command::new(tools.join("python")).output().expect("tools/python starts");
    let python = String::from_utf8(found.stdout).expect("UTF-8");
    assert!(
        found.status.success(),
        "tools/python (install the packages of `tools/setup test`):\n{}",
        String::from_utf8_lossy(&found.stderr)
    );
    let mut check = Command::new(python.trim());
    check.arg("-B").arg(tools.join("fleet-check")).arg(env!("CARGO_BIN_EXE_numapilot-query")).args(arguments);
    let done = check.output().expect("the check starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("UTF-8")
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// The tables that the scripts are about.
pub struct Raw {
    pub accesses: AccessColumns,
    pub objects: ObjectColumns,
    pub threads: ThreadColumns,
}

impl Raw {
    pub fn read(folder: &Path) -> Raw {
        let reader = TraceReader::open(folder).expect("the trace opens");
        let (accesses, objects) = (reader.read().expect("accesses"), reader.read().expect("objects"));
        Raw { accesses, objects, threads: reader.read().expect("threads") }
    }
}
