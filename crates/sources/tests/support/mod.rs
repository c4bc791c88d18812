//! Programs compiled once per test run, and recordings of them in processes of their own.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::sync::OnceLock;

use numapilot_trace::chunk::RawTrace;
use numapilot_trace::record::Event;
use serde_json::Value;
use tempfile::TempDir;

/// The recorder beside these tests.
pub const RECORDER: &str = env!("CARGO_BIN_EXE_numapilot-test-recorder");

fn compile(flags: &[&str], name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/busy.c");
    let program = numapilot_scratch::scratch().join(name);
    let output =
        Command::new("cc").args(["-O1", "-g", "-pthread"]).args(flags).arg("-o").arg(&program).arg(&source).output();
    let output = output.expect("cc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// `tests/programs/busy.c`, linked as usual.
pub fn busy() -> &'static str {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile(&[], "busy")).to_str().expect("UTF-8")
}

/// The same, linked statically.
pub fn busy_static() -> &'static str {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile(&["-static"], "busy-static")).to_str().expect("UTF-8")
}

/// What the program prints and returns without a recorder.
pub fn alone(arguments: &[&str]) -> (String, Option<i32>) {
    let output = Command::new(busy()).args(arguments).output().expect("the program runs");
    (String::from_utf8(output.stdout).expect("UTF-8"), output.status.code())
}

/// A folder for one recording, and what it gave.
pub struct Lab {
    folder: TempDir,
}

impl Lab {
    pub fn new() -> Lab {
        Lab { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn trace(&self) -> PathBuf {
        self.path("t.numatrace")
    }

    /// A recorder of `program`, ready to be started, with signals as a shell leaves them: where tests run in the background of a script, SIGINT is ignored,
    /// and programs inherit that.
    pub fn command(&self, options: &[&str], program: &[&str]) -> Command {
        self.command_with(libc::SIG_DFL, options, program)
    }

    /// The same, with this disposition of SIGINT.
    pub fn command_with(&self, interrupt: libc::sighandler_t, options: &[&str], program: &[&str]) -> Command {
        let mut command = Command::new(RECORDER);
        // SAFETY: signal(2) is async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                libc::signal(libc::SIGINT, interrupt);
                Ok(())
            });
        }
        command
            .arg(format!("output={}", self.trace().display()))
            .arg(format!("result={}", self.path("result").display()))
            .args(options)
            .arg("--")
            .args(program)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn record(&self, options: &[&str], program: &[&str]) -> Output {
        self.command(options, program).output().expect("the recorder runs")
    }

    /// What the recorder said at its end.
    pub fn result(&self) -> Value {
        let text = fs::read_to_string(self.path("result")).expect("the recorder wrote its result");
        serde_json::from_str(&text).expect("JSON")
    }

    pub fn open(&self) -> RawTrace {
        RawTrace::open(&self.trace()).expect("the trace opens")
    }

    /// Every event of the trace, which must be without damage.
    pub fn events(&self) -> Vec<Event> {
        let trace = self.open();
        assert!(trace.problems().is_empty(), "{:?}", trace.problems());
        assert_eq!(trace.missing_chunks(), 0);
        let mut merge = trace.merge();
        let events = merge.by_ref().map(|record| record.expect("a readable trace").event).collect();
        assert!(merge.problems().is_empty(), "{:?}", merge.problems());
        events
    }
}

/// Reads a child's output up to and with the first newline.
pub fn first_line(child: &mut Child) -> String {
    let stdout = child.stdout.as_mut().expect("piped");
    let mut line = Vec::new();
    let mut byte = [0_u8];
    while stdout.read(&mut byte).expect("readable") == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("UTF-8")
}

/// Reads the rest of a child's output.
pub fn rest(child: &mut Child) -> String {
    let mut text = String::new();
    child.stdout.as_mut().expect("piped").read_to_string(&mut text).expect("UTF-8");
    text
}

pub fn kill(child: &Child, signal: i32) {
    // SAFETY: sends a signal to a child of ours that was not waited for.
    unsafe { libc::kill(i32::try_from(child.id()).expect("a pid"), signal) };
}
