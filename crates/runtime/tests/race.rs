//! The runtime under a thread sanitizer: its C files compiled with `-fsanitize=thread`, driven from many threads while a recorder drains.
//!
//! The tracker and the planner are built apart, as they are for users: both have hooks of the same functions. The call-outs, which define the sanitizer's own
//! entry points, have other names here (`callout_read8`), and are linked with the tracker. The hooks are renamed (`hook_malloc`), so that the sanitizer's
//! interceptors keep their place before the C library.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;

use crate::support::Arena;
use crate::support::scratch;
use numapilot_trace::wire::layout;

const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-g",
    "-O1",
    "-fsanitize=thread",
    "-fno-omit-frame-pointer",
    "-fno-builtin-malloc",
    "-fno-builtin-realloc",
    "-fno-builtin-free",
    "-Wno-tsan",
];

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The C files whose names this takes.
fn sources(is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).expect("sources").map(|entry| entry.expect("entry").path()).collect();
    files.retain(|file| {
        let name = file.file_name().expect("a name").to_string_lossy();
        name.ends_with(".c") && is_wanted(&name)
    });
    files.sort();
    files
}

/// The tracker's files.
fn is_of_tracker(name: &str) -> bool {
    !["callouts", "plan_"].iter().any(|prefix| name.starts_with(prefix))
}

/// Copies of the call-outs' files, whose entry points have names of their own.
fn callouts() -> Vec<PathBuf> {
    let folder = scratch().join("race-callouts");
    fs::create_dir_all(&folder).expect("a folder for sources");
    let files = ["callouts.c", "callouts_atomic.c", "callouts_mem.c", "callouts_slow.c"];
    let copy = |source: PathBuf| {
        let text = fs::read_to_string(&source).expect("a source");
        let copy = folder.join(source.file_name().expect("a name"));
        fs::write(&copy, text.replace("__tsan_", "callout_")).expect("written");
        copy
    };
    sources(|name| files.contains(&name)).into_iter().map(copy).collect()
}

/// The planner's files, with those that it shares with the tracker (`PLANNER_SHARES` of `build.rs`).
fn is_of_planner(name: &str) -> bool {
    const SHARED: &[&str] = &[
        "exec_list.c",
        "exec_target.c",
        "lock_all.c",
        "maps_file.c",
        "memory.c",
        "startup.c",
        "unwind.c",
        "unwind_cfi.c",
        "unwind_rule_arm64.c",
        "unwind_rule_x86.c",
    ];
    name.starts_with("plan_") || SHARED.contains(&name)
}

/// Compiles `sources` and a harness of `tests/race` to one program.
fn build(name: &str, sources: &[PathBuf], harness: &str) -> PathBuf {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    let folder = scratch().join(name);
    fs::create_dir_all(&folder).expect("a folder for objects");
    let objects: Vec<PathBuf> = sources
        .iter()
        .map(|source| {
            let object = folder.join(source.file_name().expect("a name")).with_extension("o");
            run(Command::new("gcc")
                .args(FLAGS)
                .arg("-fvisibility=hidden")
                .arg("-I")
                .arg(&include)
                .arg("-c")
                .arg(source)
                .arg("-o")
                .arg(&object));
            object
        })
        .collect();
    // `readelf`: what the files export are the hooks.
    let mut hooks = BTreeSet::new();
    // What block copies call (`__real_memcpy`): the C library's by its plain name, without the linker's help, which would hold for the tracker's own copies,
    // too.
    let mut real = BTreeSet::new();
    for line in run(Command::new("readelf").args(["-sW"]).args(&objects)).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, kind, "GLOBAL" | "WEAK", "DEFAULT", index, name] = words[..] else { continue };
        if index == "UND" {
            real.extend(name.strip_prefix("__real_").map(|plain| format!("{name} {plain}\n")));
        } else if kind == "FUNC" && !name.starts_with("numapilot") {
            hooks.insert(name.to_owned());
        }
    }
    assert!(hooks.contains("malloc") && hooks.contains("pthread_create"), "{hooks:?}");
    let names = folder.join("hooks");
    let renamed = hooks.iter().map(|name| format!("{name} hook_{name}\n"));
    fs::write(&names, renamed.chain(real).collect::<String>()).expect("names");
    for object in &objects {
        run(Command::new("objcopy").arg(format!("--redefine-syms={}", names.display())).arg(object));
    }
    let harness = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/race").join(harness);
    let program = folder.join("race");
    run(Command::new("gcc")
        .args(FLAGS)
        .arg("-I")
        .arg(&include)
        .arg(harness)
        .args(&objects)
        .args(["-rdynamic", "-pthread", "-ldl", "-o"])
        .arg(&program));
    program
}

/// Runs a harness.
fn watched(command: &mut Command) -> Output {
    command
        .env("TSAN_OPTIONS", "exitcode=66 history_size=4 second_deadlock_stack=1 report_signal_unsafe=0")
        .output()
        .expect("the harness starts")
}

/// A harness must end well, and without a report of the sanitizer.
fn check(output: &Output, what: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text.matches("WARNING: ThreadSanitizer").count();
    assert!(output.status.success() && count == 0, "{what}: {} with {count} reports\n{text}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
}

/// Make sure that no two threads of a recorded program meet in the runtime without an atomic access on both sides.
#[test]
fn the_runtime_has_no_data_races() {
    let files = [sources(is_of_tracker), callouts()].concat();
    let program = build("race-tracker", &files, "harness.c");
    for mode in [layout::MODE_INSTRUMENT, layout::MODE_TRACK] {
        let arena = Arena::simulating(24, 1 << 16, mode);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    if arena.drain_once(|_, _, _| {}) == 0 {
                        thread::yield_now();
                    }
                }
            });
            let output = watched(at_fixed_addresses(&program).arg("40").env("NUMAPILOT_ARENA", arena.path()));
            done.store(true, Ordering::Release);
            check(&output, &format!("mode {mode}"));
        });
        assert!(arena.slots_used() > 8, "the threads were recorded");
    }
}

/// ThreadSanitizer of gcc 12 ends where the kernel draws addresses of 32 bits (`vm.mmap_rnd_bits`, the default of Ubuntu): most lie where it has no shadow.
fn at_fixed_addresses(program: &Path) -> Command {
    let mut command = Command::new("setarch");
    command.arg("-R").arg(program);
    command
}

/// The same of a program under a plan. Threads of other libraries are there before the planner's constructor sets the words that every hook reads.
#[test]
fn the_planner_has_no_data_races() {
    let program = build("race-planner", &sources(is_of_planner), "plan_harness.c");
    let image = scratch().join("race-plan");
    // Few addresses (`NP_PLAN_EMULATED`): the sanitizer has shadows for some. Without and with blocks beside the program's own (`NP_PLAN_TWINS`).
    for flags in ["2", "3"] {
        check(&watched(at_fixed_addresses(&program).arg(&image).args(["40", flags])), &format!("flags {flags}"));
    }
}
