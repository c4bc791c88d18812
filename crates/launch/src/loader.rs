//! Loaders of dynamically linked programs: whether one can load the tracker, which is linked to this machine's glibc.
//!
//! Programs of Nix, Spack, the Steam runtime and vendors' bundles bring a glibc of their own. Where that is older than what the tracker needs, its loader ends
//! the program before it begins. The runtime does the same for programs that are started by others (`crates/runtime/c/exec_target.c`).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::binary::Binary;
use crate::binary::BinaryKind;

/// Why the loader at `interpreter` cannot load the tracker; `None` where it can, or where nothing is known against it.
pub(super) fn obstacle(interpreter: &str) -> Option<String> {
    let name = Path::new(interpreter).file_name()?.to_str()?;
    if !name.starts_with("ld-linux") && !name.starts_with("ld.so") {
        return Some(format!("its loader is {interpreter}, and the tracker needs glibc"));
    }
    if is_own(interpreter) {
        return None;
    }
    let needed = latest_version(numapilot_runtime::TRACKER)?;
    let library = fs::canonicalize(interpreter).ok()?.parent()?.join("libc.so.6");
    let has_it = contains(&fs::read(&library).ok()?, format!("GLIBC_2.{needed}\0").as_bytes());
    (!has_it).then(|| {
        format!(
            "it brings a C library of its own ({}), older than glibc 2.{needed}, which the tracker needs",
            library.display()
        )
    })
}

/// Whether it is the loader of this process, too. Then it has loaded all that the tracker needs.
fn is_own(interpreter: &str) -> bool {
    let file = |path: &str| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    let Ok(Some(Binary { kind: BinaryKind::Dynamic { interpreter: own }, .. })) =
        Binary::inspect(Path::new("/proc/self/exe"))
    else {
        return false;
    };
    file(interpreter).is_some_and(|theirs| file(&own) == Some(theirs))
}

/// N of the latest `GLIBC_2.N` among the strings of a binary.
fn latest_version(binary: &[u8]) -> Option<u32> {
    const PREFIX: &[u8] = b"GLIBC_2.";
    let found = binary.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
    let minor = |at: usize| {
        let digits = binary[at..].iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0_u32, |minor, byte| minor.saturating_mul(10).saturating_add(u32::from(byte - b'0')))
    };
    found.map(|(at, _)| minor(at + PREFIX.len())).max()
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_version_is_by_number_and_not_by_text() {
        assert_eq!(latest_version(b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.4\0"), Some(34));
        assert_eq!(latest_version(b"GLIBC_PRIVATE\0"), None);
        assert!(latest_version(numapilot_runtime::TRACKER).is_some_and(|minor| minor >= 2));
    }

    #[test]
    fn a_glibc_that_lacks_what_the_tracker_needs_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let loader = folder.path().join("ld-linux-x86-64.so.2");
        fs::write(&loader, b"a loader").unwrap();
        let name = loader.to_str().unwrap();
        assert_eq!(obstacle(name), None, "nothing is known against it");
        let needed = latest_version(numapilot_runtime::TRACKER).unwrap();
        fs::write(folder.path().join("libc.so.6"), b"GLIBC_2.2.5\0").unwrap();
        assert!(obstacle(name).unwrap().contains("older than glibc"));
        fs::write(folder.path().join("libc.so.6"), format!("GLIBC_2.2.5\0GLIBC_2.{needed}\0")).unwrap();
        assert_eq!(obstacle(name), None);
        assert!(obstacle("/lib/ld-musl-x86_64.so.1").unwrap().contains("needs glibc"));
    }

    #[test]
    fn the_loader_of_this_process_is_known() {
        let Ok(Some(Binary { kind: BinaryKind::Dynamic { interpreter }, .. })) =
            Binary::inspect(Path::new("/proc/self/exe"))
        else {
            return;
        };
        assert!(is_own(&interpreter));
        assert_eq!(obstacle(&interpreter), None);
    }
}
