//! What the tests of virtual time share: an arena, the tracker, and programs compiled on the spot from `tests/vtime`.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;
use std::process::id;

use crate::sim::lab::WIDE_ATOMICS;
use tempfile::NamedTempFile;
use tempfile::TempDir;

/// 100 us of program time at 2.5 GHz.
pub const WINDOW_CYCLES: u32 = 250_000;
pub const THREADS: usize = 16;
/// The C constants `NP_MODE_TRACK` and `NP_MODE_INSTRUMENT`.
pub const TRACK: u32 = 1;
pub const INSTRUMENT: u32 = 2;
/// The C constants `NP_BIND_SPREAD`, `NP_BIND_PACK` and `NP_BIND_NONE`.
pub const SPREAD: u32 = 0;
pub const PACK: u32 = 1;
pub const NONE: u32 = 2;
const CALL_OUTS: &[&str] = &["-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0", WIDE_ATOMICS];

pub struct Bench {
    dir: TempDir,
    tracker: PathBuf,
    callouts: PathBuf,
}

/// How a program is to be recorded.
#[derive(Clone, Copy)]
pub struct Setting {
    pub mode: u32,
    pub bind: u32,
    pub cpus: usize,
    pub window_cycles: u32,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting { mode: INSTRUMENT, bind: SPREAD, cpus: THREADS + 1, window_cycles: WINDOW_CYCLES }
    }
}

/// What a program printed: `name value` pairs of its first line, and `(end, count)` of each thread.
pub struct Course {
    pub values: HashMap<String, u64>,
    pub threads: Vec<(u64, u64)>,
}

/// Seconds of processor time after which a program is taken to make no end: what it needs, however busy the machine is, is far less.
const CPU_LIMIT_S: &str = "--cpu=300";
/// Seconds after which it is taken to wait for ever. On a machine with much else to do a program may take many times as long as it needs.
const GIVE_UP_S: &str = "1800";

impl Bench {
    pub fn new() -> Bench {
        let dir = TempDir::new().expect("a temporary directory");
        let unpacked = numapilot_runtime::unpack(&dir.path().join("cache")).expect("unpacked");
        let bench = Bench { dir, tracker: unpacked.tracker, callouts: unpacked.callouts };
        bench.compile("gcc", &["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/c")], "arena.c", "arena");
        bench
    }

    pub fn compile(&self, compiler: &str, options: &[&str], source: &str, name: &str) -> PathBuf {
        let program = self.dir.path().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vtime").join(source);
        let output = Command::new(compiler)
            .arg("-O1")
            .args(options)
            .arg(source)
            .arg("-o")
            .arg(&program)
            .output()
            .expect("a compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    /// Compiles `source` with the call-outs, as the wrapper does, and links them in.
    pub fn instrument(&self, compiler: &str, options: &[&str], source: &str, name: &str) -> PathBuf {
        let object = self.compile(compiler, &[options, CALL_OUTS, &["-c"]].concat(), source, &format!("{name}.o"));
        let program = self.dir.path().join(name);
        let exports = self.dir.path().join("exports");
        fs::write(&exports, numapilot_runtime::EXPORTS).expect("written");
        let output = Command::new(compiler)
            .arg(object)
            .args(numapilot_runtime::WRAPPED.iter().map(|name| format!("-Wl,--wrap={name}")))
            .args([Path::new("-Wl,--whole-archive"), &self.callouts, Path::new("-Wl,--no-whole-archive")])
            .arg(format!("-Wl,--dynamic-list={}", exports.display()))
            .args(["-pthread", "-ldl", "-o"])
            .arg(&program)
            .output()
            .expect("a linker");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    /// Runs `program` by itself, and gives up after [`CPU_LIMIT_S`] or [`GIVE_UP_S`].
    pub fn run_alone(&self, program: &Path, arguments: &[&str]) -> Output {
        checked(bounded().arg(program).args(arguments), program)
    }

    /// Runs `program` under a fresh arena, and gives up after [`CPU_LIMIT_S`] or [`GIVE_UP_S`].
    pub fn run(&self, setting: Setting, program: &Path, arguments: &[&str]) -> Output {
        let arena = NamedTempFile::new_in(self.dir.path()).expect("an arena's file");
        let made = Command::new(self.dir.path().join("arena"))
            .arg(arena.path())
            .args(
                [u64::from(setting.window_cycles), setting.cpus as u64, setting.bind.into(), setting.mode.into()]
                    .map(|n| n.to_string()),
            )
            .arg(id().to_string())
            .status()
            .expect("the arena's maker");
        assert!(made.success());
        let preload = format!("LD_PRELOAD={}", self.tracker.display());
        let named = format!("NUMAPILOT_ARENA={}", arena.path().display());
        // What bounds it and `env` start before the preload is set; `env` is then replaced by the program.
        let mut command = bounded();
        command.args(["env", &preload, &named, "OMP_WAIT_POLICY=passive"]).arg(program).args(arguments);
        checked(&mut command, program)
    }

    pub fn course(&self, program: &Path, case: &str) -> Course {
        parse(&self.run(Setting::default(), program, &[case]))
    }
}

/// What a program printed about its course.
pub fn parse(output: &Output) -> Course {
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    let mut course = Course { values: HashMap::new(), threads: Vec::new() };
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words[index].parse::<u64>().expect("a number");
        if words[0] == "thread" {
            course.threads.push((number(5), number(7)));
        } else {
            for pair in words.chunks_exact(2) {
                course.values.insert(pair[0].to_owned(), pair[1].parse().expect("a number"));
            }
        }
    }
    course
}

/// A command that ends what follows after the limits.
fn bounded() -> Command {
    let mut command = Command::new("prlimit");
    command.args([CPU_LIMIT_S, "timeout", GIVE_UP_S]);
    command
}

fn checked(command: &mut Command, program: &Path) -> Output {
    let output = command.output().expect("prlimit");
    assert!(
        output.status.success(),
        "{program:?} {command:?}: {} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

impl Course {
    pub fn elapsed(&self) -> u64 {
        self.values["elapsed"]
    }

    /// Each thread did its fair share of the work, within a quarter.
    pub fn assert_even(&self) {
        let all: u64 = self.threads.iter().map(|thread| thread.1).sum();
        let fair = all / THREADS as u64;
        for (index, (_, count)) in self.threads.iter().enumerate() {
            assert!(count.abs_diff(fair) * 4 <= fair, "thread {index} did {count} of {all}");
        }
    }
}

/// `actual` lies within `percent` of `expected`.
pub fn assert_near(actual: u64, expected: u64, percent: u64, what: &str) {
    assert!(
        actual.abs_diff(expected) * 100 <= expected * percent,
        "{what}: {actual} cycles, expected about {expected}"
    );
}
