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
            format!("it is {what}, and this recorder is for 64-bit {host}"),
            format!("build the program for 64-bit {host}, or record on a machine of that architecture"),
        )),
        BinaryKind::Static => Some((
            "it is statically linked, so no library can be loaded into it".to_owned(),
            "link it dynamically (without -static; for Go, with -linkmode=external and cgo; for Rust, not for a musl target)".to_owned(),
        )),
        BinaryKind::Dynamic { interpreter } if interpreter.contains("ld-musl") => Some((
            format!("it is linked to musl ({interpreter}), and the tracker needs glibc"),
            "build it for glibc".to_owned(),
        )),
        BinaryKind::Dynamic { interpreter } => match loader::obstacle(interpreter) {
            Some(reason) => Some((reason, "build it for this machine's glibc".to_owned())),
            None => privilege_obstacle(binary),
        },
    }
}

/// The same for a binary that runs with privileges.
fn privilege_obstacle(binary: &Binary) -> Option<(String, String)> {
    binary.privileged.as_ref().map(|why| {
        (
            format!("{why}, and the loader ignores LD_PRELOAD for such programs"),
            format!(
                "record a copy without that privilege (`cp {} /tmp/`), or record as the user that owns it",
                binary.path.display()
            ),
        )
    })
}
