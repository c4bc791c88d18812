//! Why a name could not be found.

/// Reason for an address without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Unresolved {
    /// The binary is not at its path any more, or is no file (`[vdso]`, generated code).
    #[error("no such binary file")]
    NoFile,
    /// The file at the path is no ELF binary.
    #[error("not an ELF binary")]
    NotElf,
    /// The file was replaced since the recording.
    #[error("the file was rebuilt or replaced since the recording (its build id is another)")]
    OtherBuild,
    /// The binary has no symbol there.
    #[error("no symbol at this address")]
    NoSymbol,
}

/// Whether the file is the recorded one. An empty recorded id says nothing, so it passes.
pub(crate) fn check_build_id(found: Option<&[u8]>, recorded: &[u8]) -> Result<(), Unresolved> {
    if recorded.is_empty() || found == Some(recorded) { Ok(()) } else { Err(Unresolved::OtherBuild) }
}
