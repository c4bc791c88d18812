//! What comes out of a query, batch by batch: a table for people, CSV, JSON, Parquet.

mod csv;
mod json;
mod parquet;
mod table;

use std::io::Write;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::util::display::FormatOptions;

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people: aligned columns, the first rows
    Table,
    /// A header, then rows; unknown is empty
    Csv,
    /// An array of objects
    Json,
    /// A Parquet file
    Parquet,
}

impl Format {
    /// The format that goes with a file's ending.
    #[must_use]
    pub fn of_ending(ending: &str) -> Option<Format> {
        match ending {
            "csv" => Some(Format::Csv),
            "json" => Some(Format::Json),
            "parquet" => Some(Format::Parquet),
            "txt" => Some(Format::Table),
            _ => None,
        }
    }
}

/// Why a result cannot be written.
pub type WriteError = Box<dyn std::error::Error + Send + Sync>;

/// Takes a result, batch by batch.
pub trait Sink {
    /// Takes rows.
    ///
    /// # Errors
    /// If they cannot be written.
    fn take(&mut self, batch: &RecordBatch) -> Result<(), WriteError>;

    /// Writes what is left.
    ///
    /// # Errors
    /// If it cannot be written.
    fn finish(self: Box<Self>) -> Result<(), WriteError>;
}

/// A sink of this format; a table shows up to `rows` rows.
///
/// # Errors
/// If the beginning cannot be written, or the format has no such columns.
pub fn sink<'a>(
    format: Format,
    schema: &SchemaRef,
    rows: usize,
    out: impl Write + Send + 'a,
) -> Result<Box<dyn Sink + 'a>, WriteError> {
    Ok(match format {
        Format::Table => Box::new(table::TableSink::new(schema, rows, out)),
        Format::Csv => Box::new(csv::CsvSink::new(schema, out)?),
        Format::Json => Box::new(json::JsonSink::new(out)?),
        Format::Parquet => Box::new(parquet::ParquetSink::new(schema, out)?),
    })
}

/// How values are written as text: unknown is nothing.
fn options() -> FormatOptions<'static> {
    FormatOptions::new().with_null("").with_display_error(false)
}
