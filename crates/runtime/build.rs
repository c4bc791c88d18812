//! Builds the C binaries that recorded programs carry: the tracker, a shared object that is preloaded; the call-outs, an archive that instrumented programs
//! are linked with; the planner; the agent for Java virtual machines. The compiler is the one that the `cc` crate finds (`CC`, `TARGET_CC`, ...).

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use numapilot_random::{fnv1a, fnv1a_more};

/// All binaries. Everything is hidden unless exported on purpose; thread-local storage must never call into the loader (initial-exec), and the
/// compiler must neither take our `malloc` for the standard one nor drop the frame pointers that caller registers are read from.
const COMPILE_FLAGS: &[&str] = &[
    "-std=gnu11",
    "-g1",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-fno-omit-frame-pointer",
    "-fasynchronous-unwind-tables",
    "-fno-builtin-malloc",
    "-fno-builtin-calloc",
    "-fno-builtin-realloc",
    "-fno-builtin-free",
    "-fno-builtin-memalign",
    "-fno-builtin-aligned_alloc",
    "-fno-stack-protector",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
];

/// Files of the tracker that the planner is linked with too: start-up, and walking stacks.
const PLANNER_SHARES: &[&str] = &[
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

/// Bound at load (a lazily bound call inside a hook could take the loader's lock), no executable stack, nothing undefined left for later.
const LINK_FLAGS: &[&str] =
    &["-shared", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,noexecstack", "-Wl,-z,defs", "-Wl,--as-needed"];

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let source_dir = manifest.join("c");
    println!("cargo:rerun-if-changed={}", source_dir.display());
    let java_dir = manifest.join("java");
    println!("cargo:rerun-if-changed={}", java_dir.display());
    println!("cargo:rerun-if-changed={}", manifest.join("include").display());
    println!("cargo:rerun-if-changed=build.rs");

    let (callouts, rest): (Vec<_>, Vec<_>) =
        c_files(&source_dir).into_iter().partition(|path| begins_with(path, &["callouts"]));
    let (planner_own, tracker): (Vec<_>, Vec<_>) = rest.into_iter().partition(|path| begins_with(path, &["plan_"]));
    for name in PLANNER_SHARES {
        assert!(
            source_dir.join(name).exists(),
            "PLANNER_SHARES names {name}, which {} does not have",
            source_dir.display()
        );
    }
    let shared = tracker.iter().filter(|path| begins_with(path, PLANNER_SHARES)).cloned();
    let planner: Vec<_> = planner_own.into_iter().chain(shared).collect();
    let tracker_path = out.join("libnumapilot-track.so");
    link(&configure(&manifest, &out.join("tracker")), &tracker, &tracker_path);
    let planner_path = out.join("libnumapilot-plan.so");
    link(&configure(&manifest, &out.join("planner")), &planner, &planner_path);
    let java_path = out.join("libnumapilot-java.so");
    link(&configure(&manifest, &out.join("java")), &c_files(&java_dir), &java_path);
    let archive_path = archive(configure(&manifest, &out.join("callouts")), &callouts, &out);

    // It names a directory, and guards nothing.
    let mut hash = fnv1a(&fs::read(&tracker_path).expect("the tracker was just linked"));
    hash = fnv1a_more(hash, &fs::read(&archive_path).expect("the archive was just made"));
    hash = fnv1a_more(hash, &fs::read(&planner_path).expect("the planner was just linked"));
    hash = fnv1a_more(hash, &fs::read(&java_path).expect("the agent was just linked"));
    println!("cargo:rustc-env=NUMAPILOT_RUNTIME_HASH={hash:016x}");
}

/// All C files, sorted, so that the same sources give the same binary.
fn c_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("cannot read {}: {error}", dir.display()));
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    files.sort();
    for file in &files {
        println!("cargo:rerun-if-changed={}", file.display());
    }
    files
}

fn begins_with(path: &Path, prefixes: &[&str]) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn configure(manifest: &Path, objects: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    fs::create_dir_all(objects).unwrap_or_else(|error| panic!("cannot make {}: {error}", objects.display()));
    build.out_dir(objects).opt_level(2).debug(false).pic(true).cargo_metadata(false).include(manifest.join("c"));
    for flag in COMPILE_FLAGS {
        build.flag(flag);
    }
    build.flag(format!("-ffile-prefix-map={}=.", manifest.display()));
    // A newer compiler's new warning must not keep a user from building a release.
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        build.flag("-Werror");
    }
    build
}

/// Compiles `sources` and links them to a shared object, which `cc` itself does not do.
fn link(build: &cc::Build, sources: &[PathBuf], output: &Path) {
    let objects = build.clone().files(sources).compile_intermediates();
    let mut command: Command = build.get_compiler().to_command();
    let mut name = OsString::from("-Wl,-soname,");
    name.push(output.file_name().expect("output has a name"));
    command.args(LINK_FLAGS).arg(name).args(objects).arg("-o").arg(output).arg("-ldl");
    let status = command.status().unwrap_or_else(|error| {
        panic!("cannot run the C compiler for linking ({:?}): {error}", build.get_compiler().path())
    });
    assert!(status.success(), "linking {} failed ({status}); the linker's own message is above", output.display());
}

fn archive(mut build: cc::Build, sources: &[PathBuf], out: &Path) -> PathBuf {
    let path = out.join("libnumapilot-callouts.a");
    // Without sources `ar` makes nothing at all; `!<arch>` alone is a valid empty archive.
    if sources.is_empty() {
        fs::write(&path, b"!<arch>\n").unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        return path;
    }
    // A hit in the first-stage filter needs no frame; and inside the archive `memcpy` and its kin mean what they say.
    build.flag("-fomit-frame-pointer").flag("-fno-builtin");
    build.files(sources).compile("numapilot-callouts");
    let made = out.join("callouts").join("libnumapilot-callouts.a");
    fs::copy(&made, &path).unwrap_or_else(|error| panic!("cannot copy {}: {error}", made.display()));
    path
}
