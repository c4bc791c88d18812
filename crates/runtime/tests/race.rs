//! The runtime under a thread sanitizer: its C files compiled with `-fsanitize=thread`, driven from many threads while a recorder drains.
//!
//! The call-outs stay out: they define the sanitizer's own entry points. The runtime's hooks are renamed (`hook_malloc`), so that the sanitizer's interceptors
//! keep their place before the C library.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
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

/// The runtime's files but for call-outs, planner and C++ operators.
fn sources() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).expect("sources").map(|entry| entry.expect("entry").path()).collect();
    files.retain(|file| {
        let name = file.file_name().expect("a name").to_string_lossy();
        name.ends_with(".c") && !["callouts", "plan_", "alloc_new"].iter().any(|prefix| name.starts_with(prefix))
    });
    files.sort();
    files
}

fn build() -> PathBuf {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    let objects: Vec<PathBuf> = sources()
        .iter()
        .map(|source| {
            let object = scratch().join(source.file_name().expect("a name")).with_extension("o");
            run(Command::new("gcc")
                .args(FLAGS)
                .arg("-fvisibility=hidden")
                .arg("-c")
                .arg(source)
                .arg("-o")
                .arg(&object));
            object
        })
        .collect();
    // `readelf`: what the files export are the hooks.
    let mut hooks = BTreeSet::new();
    for line in run(Command::new("readelf").args(["-sW"]).args(&objects)).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, _, _, "FUNC", "GLOBAL" | "WEAK", "DEFAULT", index, name] = words[..]
            && index != "UND"
            && !name.starts_with("numapilot")
        {
            hooks.insert(name.to_owned());
        }
    }
    assert!(hooks.contains("malloc") && hooks.contains("pthread_create"), "{hooks:?}");
    let names = scratch().join("hooks");
    fs::write(&names, hooks.iter().map(|name| format!("{name} hook_{name}\n")).collect::<String>()).expect("names");
    for object in &objects {
        run(Command::new("objcopy").arg(format!("--redefine-syms={}", names.display())).arg(object));
    }
    let harness = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/race/harness.c");
    let program = scratch().join("race");
    run(Command::new("gcc")
        .args(FLAGS)
        .arg("-I")
        .arg(include)
        .arg(harness)
        .args(&objects)
        .args(["-pthread", "-ldl", "-o"])
        .arg(&program));
    program
}

/// Make sure that no two threads of a recorded program meet in the runtime without an atomic access on both sides.
#[test]
fn the_runtime_has_no_data_races() {
    let program = build();
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
            let output = Command::new(&program)
                .arg("40")
                .env("NUMAPILOT_ARENA", arena.path())
                .env("TSAN_OPTIONS", "exitcode=66 history_size=4 second_deadlock_stack=1 report_signal_unsafe=0")
                .output()
                .expect("the harness starts");
            done.store(true, Ordering::Release);
            let text = String::from_utf8_lossy(&output.stderr);
            let count = text.matches("WARNING: ThreadSanitizer").count();
            assert!(
                output.status.success() && count == 0,
                "mode {mode}: {} with {count} reports\n{text}",
                output.status
            );
            assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
        });
        assert!(arena.slots_used() > 8, "the threads were recorded");
    }
}
