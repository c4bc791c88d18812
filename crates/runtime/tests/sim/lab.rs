//! What tests of the simulated memory system share: programs built with call-outs, run under a small recorder (`harness.c`).

use std::collections::HashMap;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

use tempfile::TempDir;

/// The option by which compilers have instructions for atomics of 16 bytes.
pub const WIDE_ATOMICS: &str = if cfg!(target_arch = "x86_64") { "-mcx16" } else { "-march=armv8.1-a" };
/// Options of an instrumented compilation.
pub const GCC: &[&str] = &["-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0", WIDE_ATOMICS, "-w"];

pub struct Lab {
    pub dir: TempDir,
    pub tracker: PathBuf,
    pub callouts: PathBuf,
}

/// One `name value...` line of the harness per key; `thread k` for threads.
pub struct Outcome {
    pub lines: HashMap<String, Vec<String>>,
}

impl Outcome {
    /// The number behind `name` in the line `key`.
    pub fn number(&self, key: &str, name: &str) -> u64 {
        let words = self.lines.get(key).unwrap_or_else(|| panic!("the harness printed no {key:?}"));
        let at = words.iter().position(|word| word == name).unwrap_or_else(|| panic!("no {name:?} in {key:?}"));
        words[at + 1].parse().expect("a number")
    }

    /// The number right behind the key.
    pub fn first(&self, key: &str) -> u64 {
        self.lines[key][0].parse().expect("a number")
    }

    /// The four numbers, one per node, behind `name` (or the key itself).
    pub fn nodes(&self, key: &str, name: Option<&str>) -> Vec<u64> {
        let words = &self.lines[key];
        let at = name.map_or(0, |name| words.iter().position(|word| word == name).expect("named") + 1);
        words[at..at + 4].iter().map(|word| word.parse().expect("a number")).collect()
    }
}

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim").join(name)
}

pub fn check(output: &Output, what: &str) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}\n{err}", output.status);
}

impl Lab {
    pub fn new() -> Lab {
        let dir = TempDir::new().expect("a temporary directory");
        let unpacked = numapilot_runtime::unpack(&dir.path().join("cache")).expect("unpacked");
        let lab = Lab { dir, tracker: unpacked.tracker, callouts: unpacked.callouts };
        let wire = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/c");
        let made = Command::new("gcc")
            .args(["-O2", wire])
            .arg(source("harness.c"))
            .arg("-o")
            .arg(lab.path("harness"))
            .output();
        check(&made.expect("gcc"), "harness.c");
        lab
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Compiles and links with the call-outs, as `numapilot cc` does; `options` decide whether it is instrumented.
    pub fn build(&self, compiler: &str, options: &[&str], input: &Path, name: &str) -> PathBuf {
        let object = self.path(&format!("{name}.o"));
        let made = Command::new(compiler).args(options).arg("-c").arg(input).arg("-o").arg(&object).output();
        check(&made.expect("a compiler"), name);
        let exports = self.path("exports.list");
        std::fs::write(&exports, numapilot_runtime::EXPORTS).expect("written");
        let program = self.path(name);
        let linked = Command::new("gcc")
            .arg(&object)
            .args(numapilot_runtime::WRAPPED.iter().map(|name| format!("-Wl,--wrap={name}")))
            .arg(format!("-Wl,--dynamic-list={}", exports.display()))
            .args([Path::new("-Wl,--whole-archive"), &self.callouts, Path::new("-Wl,--no-whole-archive")])
            .args(["-pthread", "-ldl", "-o"])
            .arg(&program)
            .output();
        check(&linked.expect("gcc"), name);
        program
    }

    pub fn record(&self, period: u64, settings: &[(&str, &str)], program: &Path, arguments: &[&str]) -> Outcome {
        // Seconds of processor time, which a busy machine does not change, and at last of real time.
        let output = Command::new("prlimit")
            .args(["--cpu=120", "timeout", "1800"])
            .arg(self.path("harness"))
            .arg(&self.tracker)
            .args([&period.to_string(), "0"])
            .arg(program)
            .args(arguments)
            .envs(settings.iter().copied())
            .output()
            .expect("the harness");
        check(&output, &format!("{} {arguments:?}", program.display()));
        let mut lines = HashMap::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            if words.first().is_some_and(|word| word == "thread") {
                lines.insert(format!("thread {}", words[1]), words[2..].to_vec());
            } else if !words.is_empty() {
                lines.insert(words[0].clone(), words[1..].to_vec());
            }
        }
        Outcome { lines }
    }

    pub fn direct(&self) -> PathBuf {
        self.build("gcc", &["-O2"], &source("direct.c"), "direct")
    }
}
