//! Why an address has no name.

/// Why an address could not be resolved to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Unresolved {
    /// The binary is no longer at its path, or the code has no file (`[vdso]`, generated code).
    #[error("no such binary file")]
    NoFile,
    /// The file at the path is not an ELF binary.
    #[error("not an ELF binary")]
    NotElf,
    /// The file was replaced since the recording.
    #[error("the file was rebuilt or replaced since the recording (its build ID differs)")]
    OtherBuild,
    /// The binary has no symbol at this address.
    #[error("no symbol at this address")]
    NoSymbol,
}

/// Checks that the file is the recorded one. An empty recorded build ID matches every file.
pub(crate) fn check_build_id(found: Option<&[u8]>, recorded: &[u8]) -> Result<(), Unresolved> {
    if recorded.is_empty() || found == Some(recorded) { Ok(()) } else { Err(Unresolved::OtherBuild) }
}
