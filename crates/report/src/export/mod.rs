//! What other programs read: tables as CSV, profiles for pprof and for the Firefox Profiler. All of it looks through the analysis' filter,
//! and is written as it is made, so that a trace of millions of samples needs no second copy in memory. Formats: `docs/exports.md`.

mod csv;
mod firefox;
mod input;
mod pprof;
#[cfg(test)]
mod tests;
mod wire;

use std::io::Write;

pub use csv::Table;
pub(crate) use input::places;
pub use input::{Export, ExportError};

impl Export<'_> {
    /// Writes a table as CSV (RFC 4180).
    ///
    /// # Errors
    /// If the system refuses, or the table needs something that is not there.
    pub fn csv(&self, table: Table, out: &mut dyn Write) -> Result<(), ExportError> {
        csv::write(self, table, out)
    }

    /// Writes a gzipped pprof profile (`profile.proto`).
    ///
    /// # Errors
    /// If writing fails.
    pub fn pprof(&self, out: &mut dyn Write) -> Result<(), ExportError> {
        pprof::write(self, out)
    }

    /// Writes the heap as a gzipped pprof profile: blocks and bytes allocated, live at the heap's peak, and never freed, by the call stack of the allocation.
    ///
    /// # Errors
    /// If no heap block was recorded, or writing fails.
    pub fn pprof_heap(&self, out: &mut dyn Write) -> Result<(), ExportError> {
        pprof::write_heap(self, out)
    }

    /// Writes a profile for the Firefox Profiler (processed format, JSON).
    ///
    /// # Errors
    /// If writing fails.
    pub fn firefox(&self, out: &mut dyn Write) -> Result<(), ExportError> {
        firefox::write(self, out)
    }
}
