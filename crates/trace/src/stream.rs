//! Records that come as they are, without the raw form on disk between: from a source that stays where it is and can be read again, so that keeping its
//! records twice would only take time.

use crate::chunk::{SessionEnd, SessionStart};
use crate::record::Record;

/// A recording that is read piece by piece.
///
/// Records come in ascending order stamps but for what was held back because nothing depended on it: a thread or a process may be told of late (with its
/// own, older stamps), before anything else of it is.
pub trait RecordSource: Send {
    /// Why it cannot be read.
    type Error: Send;

    /// What is known before the first record. Asked for once, at the beginning.
    ///
    /// # Errors
    /// The recording cannot be read.
    fn start(&mut self) -> Result<SessionStart, Self::Error>;

    /// Appends the next records to `out`, some ten thousand at a time; false after the last.
    ///
    /// # Errors
    /// The recording cannot be read, or is damaged.
    fn read(&mut self, out: &mut Vec<Record>) -> Result<bool, Self::Error>;

    /// What is known after the last record.
    fn end(&mut self) -> SessionEnd;
}
