//! CSV: a header, then rows, each ended by one line feed; quotes only where a text needs them; unknown values are empty. The bytes are the same as
//! those that `scripts/` print.

use std::io::Write;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::util::display::ArrayFormatter;
use numapilot_text::csv::append;

use super::writer::{Sink, WriteError, options};

/// Writes a result as CSV.
pub(super) struct CsvSink<W> {
    out: W,
    line: String,
    value: String,
}

impl<W: Write> CsvSink<W> {
    pub fn new(schema: &SchemaRef, mut out: W) -> Result<CsvSink<W>, WriteError> {
        let mut line = String::new();
        for (index, field) in schema.fields().iter().enumerate() {
            separate(&mut line, index);
            append(&mut line, field.name());
        }
        line.push('\n');
        out.write_all(line.as_bytes())?;
        Ok(CsvSink { out, line, value: String::new() })
    }
}

impl<W: Write> Sink for CsvSink<W> {
    fn take(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        let options = options();
        let columns: Vec<ArrayFormatter<'_>> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options)).collect::<Result<_, _>>()?;
        for row in 0..batch.num_rows() {
            self.line.clear();
            for (index, column) in columns.iter().enumerate() {
                separate(&mut self.line, index);
                self.value.clear();
                column.value(row).write(&mut self.value)?;
                append(&mut self.line, &self.value);
            }
            self.line.push('\n');
            self.out.write_all(self.line.as_bytes())?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        Ok(self.out.flush()?)
    }
}

fn separate(line: &mut String, index: usize) {
    if index > 0 {
        line.push(',');
    }
}
