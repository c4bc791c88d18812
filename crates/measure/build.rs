//! Compiles the measuring kernels (`c/`), each variant with the flags of its instruction set. What the target has not is left out; which of the rest runs
//! is decided at run time (`c/dispatch.c`).

use std::env;
use std::path::Path;
use std::path::PathBuf;

/// Loops are unrolled by hand and must stay as written; a product and a sum stay two operations, so that all variants give the same numbers.
const FLAGS: &[&str] = &["-std=gnu11", "-Wall", "-Wextra", "-fno-tree-vectorize", "-ffp-contract=off"];

/// The scalable vectors of 64-bit Arm.
const SVE: &str = "-march=armv8-a+sve";

fn main() {
    let source_dir = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR")).join("c");
    println!("cargo:rerun-if-changed={}", source_dir.display());
    println!("cargo:rerun-if-changed=build.rs");
    let mut main = configure(&source_dir);
    for name in ["dispatch.c", "chase.c", "kernels_portable.c"] {
        main.file(source_dir.join(name));
    }
    // Compilers older than GCC 10 and Clang 11 have no <arm_sve.h>.
    let has_sve = || configure(&source_dir).is_flag_supported(SVE).unwrap_or(false);
    let variants: &[(&str, &[&str])] = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => &[("avx2", &["-mavx2", "-mfma"]), ("avx512", &["-mavx512f", "-mprefer-vector-width=512"])],
        Ok("aarch64") if has_sve() => {
            main.define("NP_WITH_SVE", None);
            &[("neon", &[]), ("sve", &[SVE])]
        }
        Ok("aarch64") => &[("neon", &[])],
        _ => &[],
    };
    // First the one that names the others: GNU ld looks through each archive once, in the order of these lines.
    main.compile("numapilot_measure");
    for (name, flags) in variants {
        let mut build = configure(&source_dir);
        for flag in *flags {
            build.flag(flag);
        }
        build.file(source_dir.join(format!("kernels_{name}.c"))).compile(&format!("numapilot_measure_{name}"));
    }
}

fn configure(source_dir: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build.opt_level(2).debug(false).pic(true).include(source_dir);
    for flag in FLAGS {
        build.flag(flag);
    }
    // A newer compiler's new warning must not keep a user from building a release.
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        build.flag("-Werror");
    }
    build
}
