//! Whether code is for this machine's architecture: for others there are no call-outs.

use std::env::consts::ARCH;
use std::path::Path;

/// How the names of architectures begin, in the first part of a target such as `aarch64-linux-gnu`.
const ARCHITECTURES: &[&str] = &[
    "aarch64",
    "alpha",
    "amd64",
    "amdgcn",
    "arm",
    "avr",
    "bpf",
    "hexagon",
    "hppa",
    "i386",
    "i486",
    "i586",
    "i686",
    "ia64",
    "lanai",
    "loongarch",
    "m68k",
    "microblaze",
    "mips",
    "msp430",
    "nios2",
    "nvptx",
    "or1k",
    "powerpc",
    "ppc",
    "riscv",
    "s390",
    "sh4",
    "sparc",
    "spirv",
    "wasm",
    "x86_64",
    "xtensa",
];

/// How the parts of a target begin that name another system than Linux, or none (firmware, kernels): code for it never meets the recorder.
const SYSTEMS: &[&str] = &[
    "apple",
    "cygwin",
    "darwin",
    "dragonfly",
    "elf",
    "freebsd",
    "fuchsia",
    "haiku",
    "ios",
    "macos",
    "mingw",
    "netbsd",
    "none",
    "openbsd",
    "solaris",
    "uefi",
    "win32",
    "windows",
];

/// Whether a target, as clang's `-target` takes it, is of this architecture, and of Linux as far as it says.
pub(crate) fn is_own(target: &str) -> bool {
    let mut parts = target.split('-');
    let first = parts.next().unwrap_or_default();
    let is_architecture = match ARCH {
        "x86_64" => matches!(first, "x86_64" | "amd64" | "x86_64h") && !target.ends_with("x32"),
        _ => first == ARCH || (ARCH == "aarch64" && first == "arm64"),
    };
    // Who makes a toolchain may be called none: aarch64-none-linux-gnu.
    let is_elsewhere =
        !target.contains("-linux") && parts.any(|part| SYSTEMS.iter().any(|system| part.starts_with(system)));
    is_architecture && !is_elsewhere
}

/// Whether a compiler's file name begins with the target of another architecture, as cross compilers' names do (`arm-linux-gnueabihf-gcc`).
pub(crate) fn is_foreign_compiler(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    name.split_once('-')
        .is_some_and(|(first, _)| ARCHITECTURES.iter().any(|known| first.starts_with(known)) && !is_own(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cross_compilers_are_told_by_their_names() {
        let is_foreign = |name: &str| is_foreign_compiler(&Path::new("/usr/bin").join(name));
        for name in [
            "riscv64-linux-gnu-gcc-12",
            "arm-linux-gnueabihf-g++",
            "powerpc64le-linux-gnu-gfortran",
            "i686-w64-mingw32-gcc",
        ] {
            assert!(is_foreign(name), "{name}");
        }
        for name in ["gcc", "gcc-12", "clang-14", "musl-gcc", "afl-clang-fast", "c++", "cc"] {
            assert!(!is_foreign(name), "{name}");
        }
        assert!(!is_foreign(&format!("{ARCH}-linux-gnu-gcc-12")));
        assert!(is_own(&format!("{ARCH}-pc-linux-gnu")) && !is_own("bpf") && !is_own("bpfel-unknown"));
    }

    /// Programs for firmware and for Windows, in a build that makes some beside those for Linux.
    #[test]
    fn the_same_architecture_under_another_system_is_foreign() {
        for system in [
            "w64-mingw32",
            "unknown-windows",
            "pc-windows-msvc",
            "none-elf",
            "unknown-none",
            "elf",
            "apple-darwin22",
            "unknown-freebsd14",
        ] {
            assert!(!is_own(&format!("{ARCH}-{system}")), "{system}");
            assert!(is_foreign_compiler(Path::new(&format!("/usr/bin/{ARCH}-{system}-gcc"))), "{system}");
        }
        for system in ["linux-gnu", "unknown-linux-gnu", "linux", "alpine-linux-musl", "none-linux-gnu"] {
            assert!(is_own(&format!("{ARCH}-{system}")), "{system}");
            assert!(!is_foreign_compiler(Path::new(&format!("/usr/bin/{ARCH}-{system}-gcc-12"))), "{system}");
        }
        assert!(is_own(ARCH));
    }
}
