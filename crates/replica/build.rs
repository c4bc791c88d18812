//! Builds the C library of per-node copies (`c/replica.c` and what it stands on), which the Rust API calls.

use std::env;
use std::path::PathBuf;

const SOURCES: &[&str] = &["replica.c", "readers.c", "nodes.c"];

fn main() {
    let source_dir = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR")).join("c");
    println!("cargo:rerun-if-changed={}", source_dir.display());
    println!("cargo:rerun-if-changed=build.rs");
    let mut build = cc::Build::new();
    build.opt_level(2).pic(true).std("gnu11").flag("-fvisibility=hidden").flag("-ftls-model=initial-exec");
    build.warnings(true).extra_warnings(true);
    // A newer compiler's new warning must not keep a user from building a release.
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        build.flag("-Werror");
    }
    build.files(SOURCES.iter().map(|name| source_dir.join(name))).compile("numapilot_replica");
}
