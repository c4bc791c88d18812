//! What every format's writer is, and how values become text.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::FormatOptions;

/// Why a result cannot be written.
pub type WriteError = Box<dyn std::error::Error + Send + Sync>;

/// A writer of a result, batch by batch.
pub trait Sink {
    /// Writes a batch of rows.
    ///
    /// # Errors
    /// If they cannot be written.
    fn take(&mut self, batch: &RecordBatch) -> Result<(), WriteError>;

    /// Writes the rest of the output. Call it once, after the last batch.
    ///
    /// # Errors
    /// If it cannot be written.
    fn finish(self: Box<Self>) -> Result<(), WriteError>;
}

/// Formatting of values as text: unknown values are empty.
pub(super) fn options() -> FormatOptions<'static> {
    FormatOptions::new().with_null("").with_display_error(false)
}
