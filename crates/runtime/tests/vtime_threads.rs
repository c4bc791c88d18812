//! Virtual time of real multi-threaded programs, with sixteen threads on however few CPUs this host has. The programs are in `tests/vtime`; they
//! do work of a known program length and print the clocks that they saw.

use std::collections::HashMap;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;
use std::process::id;

use tempfile::TempDir;

/// 100 us of program time at 2.5 GHz.
const WINDOW_CYCLES: u32 = 250_000;
const THREADS: usize = 16;
/// `NP_MODE_INSTRUMENT`, `NP_BIND_SPREAD`.
const MODE: &str = "2";
const SPREAD: &str = "0";

struct Bench {
    dir: TempDir,
    tracker: PathBuf,
}

/// What a program printed: `name value` pairs of its first line, and `(end, count)` of each thread.
struct Course {
    values: HashMap<String, u64>,
    threads: Vec<(u64, u64)>,
}

impl Bench {
    fn new() -> Bench {
        let dir = TempDir::new().expect("a temporary directory");
        let tracker = numapilot_runtime::unpack(&dir.path().join("cache")).expect("unpacked").tracker;
        let bench = Bench { dir, tracker };
        bench.compile("gcc", &["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/c")], "arena.c", "arena");
        bench
    }

    fn compile(&self, compiler: &str, options: &[&str], source: &str, name: &str) -> PathBuf {
        let program = self.dir.path().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vtime").join(source);
        let output = Command::new(compiler).arg("-O1").args(options).arg(source).arg("-o").arg(&program).output().expect("a compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    /// Runs `program` under a fresh arena with `cpus` CPUs, and gives up after 60 s.
    fn run_on(&self, cpus: usize, program: &Path, arguments: &[&str]) -> Output {
        let arena = self.dir.path().join("arena.bin");
        let made = Command::new(self.dir.path().join("arena"))
            .arg(&arena)
            .args([&WINDOW_CYCLES.to_string(), &cpus.to_string(), SPREAD, MODE, &id().to_string()])
            .status()
            .expect("the arena's maker");
        assert!(made.success());
        let preload = format!("LD_PRELOAD={}", self.tracker.display());
        let named = format!("NUMAPILOT_ARENA={}", arena.display());
        // `timeout` itself and `env` start before the preload is set; `env` is then replaced by the program.
        let output = Command::new("timeout")
            .arg("60")
            .args(["env", &preload, &named, "OMP_WAIT_POLICY=passive"])
            .arg(program)
            .args(arguments)
            .output()
            .expect("timeout");
        assert!(
            output.status.success(),
            "{program:?} {arguments:?}: {} {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }

    fn course(&self, program: &Path, case: &str) -> Course {
        let output = self.run_on(THREADS + 1, program, &[case]);
        parse(&String::from_utf8(output.stdout).expect("text"))
    }
}

fn parse(text: &str) -> Course {
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

impl Course {
    fn elapsed(&self) -> u64 {
        self.values["elapsed"]
    }

    /// Each thread did its fair share of the work, within a quarter.
    fn assert_even(&self) {
        let all: u64 = self.threads.iter().map(|thread| thread.1).sum();
        let fair = all / THREADS as u64;
        for (index, (_, count)) in self.threads.iter().enumerate() {
            assert!(count.abs_diff(fair) * 4 <= fair, "thread {index} did {count} of {all}");
        }
    }
}

/// `actual` lies within `percent` of `expected`.
fn assert_near(actual: u64, expected: u64, percent: u64, what: &str) {
    assert!(actual.abs_diff(expected) * 100 <= expected * percent, "{what}: {actual} cycles, expected about {expected}");
}

/// Make sure that threads without shared locks take a sixteenth of the serial time.
#[test]
fn independent_threads_overlap() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-pthread"], "threads.c", "threads");
    let course = bench.course(&program, "share");
    assert_near(course.elapsed(), 10_000_000, 5, "sixteen threads of 10 M cycles");
    for (end, _) in &course.threads {
        assert_near(*end, 10_000_000, 5, "each thread");
    }
    assert_near(bench.course(&program, "readers").elapsed(), 1_000_000, 5, "readers of one lock");
    assert_near(bench.course(&program, "touch_lock").elapsed(), 5_000_000, 5, "a lock that is rarely held");
}

/// Make sure that a lock which is wanted four times over hands out one cycle of hold per cycle: no more, and hardly less.
#[test]
fn saturated_locks_serialise() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-pthread"], "threads.c", "threads");
    for case in ["saturate", "spin"] {
        let elapsed = bench.course(&program, case).elapsed();
        assert!((8_000_000..11_000_000).contains(&elapsed), "{case}: 16 x 500 holds of 1,000 cycles took {elapsed}");
    }
    let elapsed = bench.course(&program, "writers").elapsed();
    assert!((6_400_000..8_000_000).contains(&elapsed), "16 x 200 write holds of 2,000 cycles took {elapsed}");
}

/// Make sure that work taken from a shared queue or counter goes evenly to sixteen CPUs.
#[test]
fn dynamic_work_is_even() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-pthread"], "threads.c", "threads");
    for case in ["queue", "counter"] {
        let course = bench.course(&program, case);
        course.assert_even();
        assert_near(course.elapsed(), 10_000_000, 5, case);
    }
}

/// Make sure that a barrier lets all go at the latest arrival, and that nothing is received before it was sent.
#[test]
fn waits_order_clocks() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-pthread"], "threads.c", "threads");
    let course = bench.course(&program, "barrier");
    assert!(course.threads.iter().all(|thread| thread.0 == course.threads[0].0), "{:?}", course.threads);
    assert_eq!(bench.course(&program, "sem").values["early"], 0);
    // Under a mutex alone a consumer that does not wait may see an item of the same window.
    assert!(bench.course(&program, "cond").values["early"] <= 2 * u64::from(WINDOW_CYCLES));
}

/// Make sure that threads of one virtual CPU share its time.
#[test]
fn one_virtual_cpu_is_shared() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-pthread"], "threads.c", "threads");
    let output = bench.run_on(1, &program, &["share"]);
    let elapsed = parse(&String::from_utf8(output.stdout).expect("text")).elapsed();
    assert_near(elapsed, 160_000_000, 10, "sixteen threads on one CPU");
}

/// Make sure that OpenMP regions, loops, barriers, tasks and critical sections follow program time under both libraries.
#[test]
fn openmp_overlaps() {
    let bench = Bench::new();
    for compiler in ["gcc", "clang"] {
        let program = bench.compile(compiler, &["-fopenmp"], "omp.c", compiler);
        assert_near(bench.course(&program, "static").elapsed(), 2_000_000, 5, compiler);
        let dynamic = bench.course(&program, "dynamic");
        dynamic.assert_even();
        assert_near(dynamic.elapsed(), 10_000_000, 5, compiler);
        assert_eq!(bench.course(&program, "regions").values["wrong"], 0, "{compiler}");
        assert_eq!(bench.course(&program, "barrier").values["wrong"], 0, "{compiler}");
        let critical = bench.course(&program, "critical").elapsed();
        assert!((3_200_000..4_200_000).contains(&critical), "{compiler}: 16 x 100 critical sections took {critical}");
        let tasks = bench.course(&program, "tasks").elapsed();
        assert!((3_200_000..12_000_000).contains(&tasks), "{compiler}: 512 tasks of 100,000 cycles took {tasks}");
    }
}

/// Make sure that nothing ever hangs, whatever threads wait for.
#[test]
fn torture_ends() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-pthread"], "torture.c", "torture");
    for cpus in [17, 2] {
        bench.run_on(cpus, &program, &[]);
    }
}
