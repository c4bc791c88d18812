//! Whether a library of ours can be loaded into a program.

use crate::binary::Binary;
use crate::binary::BinaryKind;
use crate::loader;

/// What keeps the dynamic loader from loading our library into this binary: reason and remedy.
#[must_use]
pub fn preload_obstacle(binary: &Binary) -> Option<(String, String)> {
    let host = std::env::consts::ARCH;
    match &binary.kind {
        BinaryKind::ForeignElf { what } => Some((
            format!("it is {what}, and this numapilot is for 64-bit {host}"),
            format!("build the program for 64-bit {host}, or use a machine of that architecture"),
        )),
        BinaryKind::Static => Some((
            "it is statically linked, so no library can be loaded into it".to_owned(),
            "link it dynamically (without -static; for Go, with -linkmode=external and cgo; for Rust, not for a musl target)".to_owned(),
        )),
        BinaryKind::Bare => Some((
            "it has no C library, so a library of ours would be loaded and never called".to_owned(),
            "link it to the C library (for Go, with -linkmode=external and cgo)".to_owned(),
        )),
        BinaryKind::Dynamic { interpreter } if interpreter.contains("ld-musl") => Some((
            format!("it is linked to musl ({interpreter}), and the tracker needs glibc"),
            "build it for glibc".to_owned(),
        )),
        BinaryKind::Dynamic { .. } if binary.sanitized => Some((
            "it is built with AddressSanitizer or ThreadSanitizer, which ends the program if another library is loaded before it"
                .to_owned(),
            "build it without the sanitizer".to_owned(),
        )),
        BinaryKind::Dynamic { interpreter } => match loader::obstacle(interpreter) {
            Some(reason) => Some((reason, "build it for this machine's glibc".to_owned())),
            None => privilege_obstacle(binary),
        },
    }
}

/// Whether a library of ours would end the program, or make its loader complain. A static program, one without a C library, and one with privileges, pass it on
/// to what they start.
#[must_use]
pub fn must_not_preload(binary: &Binary) -> bool {
    let passes_on = matches!(binary.kind, BinaryKind::Static | BinaryKind::Bare) || binary.privileged.is_some();
    !passes_on && preload_obstacle(binary).is_some()
}

/// The same for a binary that runs with privileges.
fn privilege_obstacle(binary: &Binary) -> Option<(String, String)> {
    binary.privileged.as_ref().map(|why| {
        (
            format!("{why}, and the loader ignores LD_PRELOAD for such programs"),
            format!(
                "use a copy without that privilege (`cp {} /tmp/`), or run numapilot as the user that owns it",
                binary.path.display()
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    //! What is told of binaries, and which of them a preloaded library would end.

    use std::path::PathBuf;

    use super::*;

    fn binary(kind: BinaryKind) -> Binary {
        Binary { path: PathBuf::from("/a"), kind, instrumented: false, privileged: None, sanitized: false }
    }

    #[test]
    fn only_what_the_loader_would_end_is_started_without_libraries() {
        let dynamic = |interpreter: &str| binary(BinaryKind::Dynamic { interpreter: interpreter.to_owned() });
        let own = "/lib64/ld-linux-x86-64.so.2";
        let sanitized = Binary { sanitized: true, ..dynamic(own) };
        assert!(preload_obstacle(&sanitized).is_some_and(|(reason, _)| reason.contains("AddressSanitizer")));
        assert!(must_not_preload(&sanitized));
        assert!(must_not_preload(&dynamic("/lib/ld-musl-x86_64.so.1")));
        assert!(must_not_preload(&binary(BinaryKind::ForeignElf { what: "a 32-bit x86 binary".to_owned() })));
        assert!(!must_not_preload(&binary(BinaryKind::Static)));
        assert!(!must_not_preload(&binary(BinaryKind::Bare)), "it is harmless there, and passed on");
        assert!(preload_obstacle(&binary(BinaryKind::Bare)).is_some_and(|(reason, _)| reason.contains("no C library")));
        assert!(!must_not_preload(&Binary { privileged: Some("it is set-user-ID".to_owned()), ..dynamic(own) }));
    }
}
