//! Why an address has no name.

/// Why an address could not be resolved to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Unresolved {
    /// The binary is no longer at its path.
    #[error("no such binary file")]
    NoFile,
    /// The code never was in a file (`[anon]`: generated code; `[vdso]`).
    #[error("in no file")]
    InMemoryOnly,
    /// The file at the path is not an ELF binary.
    #[error("not an ELF binary")]
    NotElf,
    /// The file was replaced since the recording.
    #[error("the file was rebuilt or replaced since the recording (its build ID differs)")]
    OtherBuild,
    /// The binary has no symbol at this address.
    #[error("no symbol at this address")]
    NoSymbol,
    /// The address lies in the binary's data: a value that was taken for a return address.
    #[error("in its data")]
    NotCode,
}

/// Paths of memory that programs may write code into: anonymous, also as `perf` and `prctl(PR_SET_VMA)` name it, and files that have no folder.
const ANONYMOUS: [&str; 4] = ["[anon", "//anon", "/memfd:", "/anon_hugepage"];

/// Whether a recorded path is that of memory which belongs to no file on a disk, and into which a program may have written code.
fn is_anonymous(path: &str) -> bool {
    ANONYMOUS.iter().any(|start| path.starts_with(start))
}

/// Checks that a recorded path is that of a file. Names of the kernel's own mappings are in brackets, as in `/proc/PID/maps`.
pub(crate) fn check_path(path: &str) -> Result<(), Unresolved> {
    match path.chars().next() {
        None => Err(Unresolved::NoFile),
        Some('[') => Err(Unresolved::InMemoryOnly),
        Some(_) if is_anonymous(path) => Err(Unresolved::InMemoryOnly),
        Some(_) => Ok(()),
    }
}

/// Checks that the file is the recorded one. An empty recorded build ID matches every file.
pub(crate) fn check_build_id(found: Option<&[u8]>, recorded: &[u8]) -> Result<(), Unresolved> {
    if recorded.is_empty() || found == Some(recorded) { Ok(()) } else { Err(Unresolved::OtherBuild) }
}
