//! Builds the two C libraries of this crate: that of per-node copies (`c/replica.c` and what it stands on), which the Rust API calls, and the one that is
//! preloaded to replace mappings (`c/remap*.c`), which the crate carries as bytes.

use std::env;
use std::path::Path;
use std::path::PathBuf;

const REPLICA_SOURCES: &[&str] = &["replica.c", "readers.c", "nodes.c"];
const REMAP_SOURCES: &[&str] = &[
    "remap.c",
    "remap_maps.c",
    "remap_copy.c",
    "remap_guard.c",
    "remap_fill.c",
    "remap_masks.c",
    "remap_orders.c",
    "nodes.c",
];

/// Thread-local storage must never call into the loader, least of all inside a hook.
const COMPILE_FLAGS: &[&str] = &["-std=gnu11", "-fvisibility=hidden", "-ftls-model=initial-exec", "-Wall", "-Wextra"];
/// Bound at load (a lazily bound call inside a hook could take the loader's lock), no executable stack, nothing undefined left for later.
const LINK_FLAGS: &[&str] = &["-shared", "-pthread", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,noexecstack", "-Wl,-z,defs"];

fn main() {
    let source_dir = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR")).join("c");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed={}", source_dir.display());
    println!("cargo:rerun-if-changed=build.rs");
    configure(&source_dir, &out.join("replica"), REPLICA_SOURCES).compile("numapilot_replica");
    println!("cargo:rustc-link-search=native={}", out.join("replica").display());
    link_preload(configure(&source_dir, &out.join("remap"), REMAP_SOURCES), &out.join("libnumapilot-remap.so"));
}

fn configure(source_dir: &Path, objects: &Path, sources: &[&str]) -> cc::Build {
    std::fs::create_dir_all(objects).unwrap_or_else(|error| panic!("cannot make {}: {error}", objects.display()));
    let mut build = cc::Build::new();
    build.out_dir(objects).opt_level(2).debug(false).pic(true).files(sources.iter().map(|name| source_dir.join(name)));
    for flag in COMPILE_FLAGS {
        build.flag(flag);
    }
    // A newer compiler's new warning must not keep a user from building a release.
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        build.flag("-Werror");
    }
    build
}

/// `cc` itself does not link.
fn link_preload(build: cc::Build, output: &Path) {
    let mut command = build.get_compiler().to_command();
    command.args(LINK_FLAGS).args(build.compile_intermediates()).arg("-o").arg(output).arg("-ldl");
    let status = command.status().unwrap_or_else(|error| panic!("cannot run the C compiler for linking: {error}"));
    assert!(status.success(), "linking {} failed ({status}); the linker's own message is above", output.display());
}
