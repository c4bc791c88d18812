//! Builds the two C binaries that the lab carries: the plugin that QEMU loads, and the small program that marks a command's beginning and end in the guest.
//!
//! QEMU's functions stay undefined in the plugin: the QEMU that loads it has them.

use std::env;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

/// Runs in the guest; everything else in the folder is the plugin.
const IN_GUEST: &str = "measure.c";
const FLAGS: &[&str] = &["-std=gnu11", "-g1", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"];
/// QEMU's interface, which the user-mode plugin has as well.
const SHARED_HEADER: &str = "../emulator/c/qemu_plugin_api.h";
const PLUGIN_LINK: &[&str] = &["-shared", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,noexecstack", "-Wl,--as-needed"];

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let folder = manifest.join("plugin");
    println!("cargo:rerun-if-changed={}", folder.display());
    println!("cargo:rerun-if-changed={}", manifest.join(SHARED_HEADER).display());
    println!("cargo:rerun-if-changed=build.rs");
    let (plugin, measure) = (out.join("libnumapilot-lab.so"), out.join("measure"));
    // The lab emulates x86-64 on x86-64; elsewhere there is nothing to carry, and it says so.
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        let files = c_files(&folder);
        let (guest, host): (Vec<_>, Vec<_>) = files.into_iter().partition(|path| path.ends_with(IN_GUEST));
        link(&manifest, &host, PLUGIN_LINK, &plugin);
        link(&manifest, &guest, &[], &measure);
    } else {
        for file in [&plugin, &measure] {
            fs::write(file, b"").unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
        }
    }
}

/// All C files, sorted, so that the same sources give the same binary.
fn c_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut files: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|e| e == "c")).collect();
    files.sort();
    files
}

/// Compiles `sources` and links them, which `cc` itself does not do.
fn link(manifest: &Path, sources: &[PathBuf], flags: &[&str], output: &Path) {
    let mut build = cc::Build::new();
    build.opt_level(2).debug(false).pic(true).cargo_metadata(false);
    for flag in FLAGS {
        build.flag(flag);
    }
    build.flag(format!("-ffile-prefix-map={}=.", manifest.display()));
    // A newer compiler's new warning must not keep anybody from building.
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        build.flag("-Werror");
    }
    let objects = build.files(sources).compile_intermediates();
    let compiler = build.get_compiler();
    let mut command = compiler.to_command();
    let status = command.args(flags).args(objects).arg("-lm").arg("-o").arg(output).status();
    let status = status.unwrap_or_else(|error| panic!("cannot run the C compiler {:?}: {error}", compiler.path()));
    assert!(status.success(), "linking {} failed ({status}); the linker's own message is above", output.display());
}
