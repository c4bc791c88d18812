//! Records that are finalised without a raw form on disk. The source is kept and can be read again, so a second copy of its records would only cost
//! time and space.

use crate::chunk::{GeneratedCode, SessionEnd, SessionStart};
use crate::record::Record;

/// A recording that is read piece by piece.
///
/// Records come in ascending order of their order stamps, with one exception: the start of a thread or process may come late, with its own older stamp, but
/// before any other record of it.
pub trait RecordSource: Send {
    /// Error of reading the recording.
    type Error: Send;

    /// What is known before the first record. It is called once, before [`RecordSource::read`].
    ///
    /// # Errors
    /// The recording cannot be read.
    fn start(&mut self) -> Result<SessionStart, Self::Error>;

    /// Code that the recorded processes generated, as far as there is a description of it. It is called once, before [`RecordSource::read`].
    fn generated(&mut self) -> Vec<GeneratedCode> {
        Vec::new()
    }

    /// Appends the next records to `out`, about ten thousand at a time; false after the last.
    ///
    /// # Errors
    /// The recording cannot be read, or is damaged.
    fn read(&mut self, out: &mut Vec<Record>) -> Result<bool, Self::Error>;

    /// What is known after the last record.
    fn end(&mut self) -> SessionEnd;
}
