//! Writes the result of a query, batch by batch: as a table for terminals, CSV, JSON or Parquet.

mod csv;
mod json;
mod parquet;
mod plain;
mod table;
mod writer;

use std::io::Write;

use datafusion::arrow::datatypes::SchemaRef;

pub use plain::plain;
pub use writer::{Sink, WriteError};

/// Format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For terminals: aligned columns, the first rows only
    Table,
    /// A header, then rows; unknown values are empty
    Csv,
    /// An array of objects
    Json,
    /// A Parquet file
    Parquet,
}

impl Format {
    /// The format for a file's extension; `None` for an unknown one.
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

/// Makes a writer of this format; a table shows at most `rows` rows.
///
/// # Errors
/// If the header cannot be written, or the format does not support the columns' types or names.
pub fn sink<'a>(
    format: Format,
    schema: &SchemaRef,
    rows: usize,
    out: impl Write + Send + 'a,
) -> Result<Box<dyn Sink + 'a>, WriteError> {
    Ok(match format {
        Format::Table => Box::new(table::TableSink::new(schema, rows, out)),
        Format::Csv => Box::new(csv::CsvSink::new(schema, out)?),
        Format::Json => Box::new(json::JsonSink::new(schema, out)?),
        Format::Parquet => Box::new(parquet::ParquetSink::new(schema, out)?),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    /// Its readers would keep one of the two.
    #[test]
    fn objects_of_json_have_each_name_once() {
        let fields = ["thread", "node", "thread"].map(|name| Field::new(name, DataType::Int64, true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
        let said = sink(Format::Json, &schema, 1, Vec::<u8>::new()).err().map(|error| error.to_string());
        assert!(said.is_some_and(|said| said.contains("two columns of the result are called `thread`")));
        assert!(sink(Format::Csv, &schema, 1, Vec::<u8>::new()).is_ok());
    }
}
