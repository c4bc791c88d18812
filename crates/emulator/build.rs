//! Builds the user-mode plugin: our own C files, and those files of the runtime that simulate the memory system, compiled once more for the emulator's side.
//!
//! QEMU's functions stay undefined: the emulator that loads the plugin has them.

use std::env;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use numapilot_random::fnv1a;

/// Source files of the plugin itself.
const PLUGIN_FILES: &[&str] = &[
    "access.c",
    "allocator_go.c",
    "allocator_names.c",
    "allocator_symbols.c",
    "allocators.c",
    "decode.c",
    "filled.c",
    "mappings.c",
    "process.c",
    "translate.c",
    "user.c",
];

/// The runtime's: the way of an access, its page's home, its sample with the stack, and its thread's clock. Their hooks are left out by the linker.
const RUNTIME_FILES: &[&str] = &[
    "cpus.c",
    "directory.c",
    "filter.c",
    "heap.c",
    "l3.c",
    "map_record.c",
    "maps_file.c",
    "memory.c",
    "numa_cpus.c",
    "overlap.c",
    "pages.c",
    "pages_common.c",
    "python.c",
    "residency.c",
    "ring.c",
    "sample.c",
    "stack.c",
    "sync_clock.c",
    "toucher.c",
    "unwind.c",
    "unwind_cfi.c",
    "unwind_rule_x86.c",
    "vtime.c",
];

/// As the runtime's own, but that unused functions can be left out.
const COMPILE_FLAGS: &[&str] = &[
    "-std=gnu11",
    "-g1",
    "-DNP_PLUGIN",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-stack-protector",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
];

const LINK_FLAGS: &[&str] =
    &["-shared", "-Wl,--gc-sections", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,noexecstack", "-Wl,--as-needed"];

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let (ours, runtime) = (manifest.join("c"), manifest.join("../runtime/c"));
    for dir in [&ours, &runtime] {
        println!("cargo:rerun-if-changed={}", dir.display());
    }
    println!("cargo:rerun-if-changed=build.rs");
    let plugin = out.join("libnumapilot-emulate.so");
    // Emulated and native code share a process: both are x86-64. Elsewhere there is no plugin, and the engine says so.
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        let sources: Vec<PathBuf> = PLUGIN_FILES
            .iter()
            .map(|name| ours.join(name))
            .chain(RUNTIME_FILES.iter().map(|name| runtime.join(name)))
            .collect();
        link(&configure(&manifest, &out.join("emulate"), &[&ours, &runtime]), &sources, &plugin);
    } else {
        fs::write(&plugin, b"").unwrap_or_else(|error| panic!("cannot write {}: {error}", plugin.display()));
    }
    // It names a directory, and guards nothing.
    let hash = fnv1a(&fs::read(&plugin).expect("the plugin was just linked"));
    println!("cargo:rustc-env=NUMAPILOT_PLUGIN_HASH={hash:016x}");
}

fn configure(manifest: &Path, objects: &Path, include: &[&PathBuf]) -> cc::Build {
    let mut build = cc::Build::new();
    fs::create_dir_all(objects).unwrap_or_else(|error| panic!("cannot make {}: {error}", objects.display()));
    build.out_dir(objects).opt_level(2).debug(false).pic(true).cargo_metadata(false).includes(include);
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
    command.args(LINK_FLAGS).args(objects).arg("-o").arg(output);
    let status = command.status().unwrap_or_else(|error| {
        panic!("cannot run the C compiler for linking ({:?}): {error}", build.get_compiler().path())
    });
    assert!(status.success(), "linking {} failed ({status}); the linker's own message is above", output.display());
}
