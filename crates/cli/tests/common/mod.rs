//! Helpers of the end-to-end tests: the program under test, compiled samples, the workloads, recordings and reports.
//!
//! Everything built lands below cargo's folder for temporary files of tests; file locks keep processes that run side by side from building the same thing
//! twice.

use std::ffi::OsStr;
use std::fs;
use std::fs::File;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;
use std::time::Instant;

pub use numapilot_scratch::root;
use serde_json::Value;
use tempfile::TempDir;

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_numapilot");

/// A temporary folder, removed when this is dropped.
pub fn scratch() -> TempDir {
    tempfile::Builder::new().prefix("cli-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder")
}

/// A command of the binary under test, with nothing of the caller's environment that changes what it does.
pub fn numapilot<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).env_remove("NO_COLOR").env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    command
}

/// The exit code and output of a finished command.
#[derive(Debug)]
pub struct Ran {
    /// Exit code; -1: killed by a signal.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8 output");
        Ran { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Returns itself; panics with the output if the command failed.
    #[track_caller]
    pub fn succeeded(self) -> Ran {
        assert_eq!(self.code, 0, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}

/// Runs a command to its end.
pub fn finish(command: &mut Command) -> Ran {
    Ran::from(command.output().expect("the command starts"))
}

/// Runs the binary under test to its end.
pub fn run<S: AsRef<OsStr>>(arguments: &[S]) -> Ran {
    finish(&mut numapilot(arguments))
}

/// Locks a file until the returned value is dropped.
fn lock(name: &str) -> File {
    let file = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)).expect("a lock file");
    file.lock().expect("the lock");
    file
}

/// Builds one program from `source`, with call-outs. `language` is `cc` or `c++`; libraries come last in `flags`.
#[track_caller]
pub fn build(folder: &Path, name: &str, language: &str, source: &str, flags: &[&str]) -> PathBuf {
    let file = folder.join(format!("{name}.{}", if language == "cc" { "c" } else { "cpp" }));
    fs::write(&file, source).expect("source is written");
    let program = folder.join(name);
    let mut command = numapilot(&[language, "-O1", "-g", "-pthread", "-o"]);
    finish(command.arg(&program).arg(&file).args(flags)).succeeded();
    program
}

/// Builds one program without call-outs, by the system's compiler.
#[track_caller]
pub fn build_plain(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let file = folder.join(format!("{name}.c"));
    fs::write(&file, source).expect("source is written");
    let program = folder.join(name);
    finish(Command::new("cc").args(["-O1", "-g", "-pthread", "-o"]).arg(&program).arg(&file).args(flags)).succeeded();
    program
}

/// Workloads that the tests record.
const INSTRUMENTED_WORKLOADS: [&str; 12] =
    ["streamcluster", "facerec", "psearchy", "cg", "is", "mg", "bt", "pca", "phases", "bfs", "swaptions", "webserver"];

/// The workload of this name, built with call-outs.
pub fn workload(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(build_workloads).join(name)
}

fn build_workloads() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("workloads");
    let _lock = lock("workloads.lock");
    let mut make = Command::new("make");
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").arg("-C").arg(root().join("workloads"));
    make.arg(format!("OUT={}", folder.display()));
    make.arg(format!("CC={BINARY} cc")).arg(format!("CXX={BINARY} c++"));
    make.arg(format!("-j{}", std::thread::available_parallelism().map_or(1, |count| count.get())));
    make.args(INSTRUMENTED_WORKLOADS.map(|name| folder.join(name)));
    finish(&mut make).succeeded();
    folder
}

/// Records a program quietly into `trace`; returns what the recorder and the program printed.
pub fn record<S: AsRef<OsStr>>(trace: &Path, options: &[&str], program: &Path, arguments: &[S]) -> Ran {
    let mut command = numapilot(&["record", "--quiet", "--force", "-o"]);
    command.arg(trace).args(options).arg("--").arg(program).args(arguments);
    finish(&mut command)
}

/// Whether a recording failed because this system has no emulator with plugins; it is then reported as not run.
#[track_caller]
pub fn has_no_emulator(ran: &Ran) -> bool {
    let is_so = ran.code != 0 && ran.stderr.contains("NUMAPILOT_QEMU");
    if is_so {
        numapilot_not_run::not_run!(QemuPlugins, "{}", ran.stderr);
    }
    is_so
}

/// The report of a trace as JSON.
#[track_caller]
pub fn report_json(trace: &Path, options: &[&str]) -> Value {
    let mut command = numapilot(&["report", "--json"]);
    let ran = finish(command.arg(trace).args(options)).succeeded();
    serde_json::from_str(&ran.stdout).expect("the report is JSON")
}

/// The same without the findings, whose prices take most of a report's time: for tests that look at none, of programs whose findings others look at.
#[track_caller]
pub fn figures_json(trace: &Path, options: &[&str]) -> Value {
    report_json(trace, &[&["--matrix"][..], options].concat())
}

/// A number in a report, by JSON pointer.
#[track_caller]
pub fn number(value: &Value, pointer: &str) -> f64 {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("no number at {pointer} of {value}"))
}

/// The row of the site with this name.
#[track_caller]
pub fn site<'a>(report: &'a Value, name: &str) -> &'a Value {
    let sites = report["sites"].as_array().expect("sites");
    let found = sites.iter().find(|site| site["name"] == name);
    found
        .unwrap_or_else(|| panic!("no site {name} in {:?}", sites.iter().map(|site| &site["name"]).collect::<Vec<_>>()))
}

/// How long a test waits for what an idle machine does within a second or two: a busy one may need ten times as long, or more.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until something is so.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the recorder of this process id has opened and enabled the kernel's events: the thread that reads them begins then.
pub fn reads_events(recorder: u32) -> bool {
    let mut tasks = fs::read_dir(format!("/proc/{recorder}/task")).into_iter().flatten().flatten();
    tasks.any(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "events"))
}

/// Waits until a recorder has opened and enabled the kernel's events.
#[track_caller]
pub fn wait_until_recording(recorder: &mut Child) {
    let pid = recorder.id();
    wait_until("the recorder reads its events", || {
        assert!(recorder.try_wait().expect("its state").is_none(), "the recorder has ended before it recorded");
        reads_events(pid)
    });
}

/// Waits until a process has had so many more page faults.
#[track_caller]
pub fn wait_for_faults(pid: u32, count: u64) {
    let faults = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
        fields.split_whitespace().nth(7).expect("minor faults").parse::<u64>().expect("a number")
    };
    let wanted = faults() + count;
    wait_until("page faults", || faults() >= wanted);
}

/// Waits until a child's first thread has gone to sleep so many more times: of one that looks, sleeps for a moment and looks again, so many looks.
#[track_caller]
pub fn wait_for_looks(child: &Child, count: u64) {
    let sleeps = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|number| number.trim().parse::<u64>().ok()).expect("a number")
    };
    let wanted = sleeps() + count;
    wait_until("looks", || sleeps() >= wanted);
}
