//! CSV: a header, then rows, each ended by one line feed; quotes only where a text needs them; unknown values are empty. The bytes are the same as
//! those that `scripts/` print. A line of one empty value has quotes, because readers skip empty lines.

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
        end(&mut line);
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
            end(&mut self.line);
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

fn end(line: &mut String) {
    line.push_str(if line.is_empty() { "\"\"\n" } else { "\n" });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::Int64Array;
    use datafusion::arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn no_row_is_an_empty_line() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("home", DataType::Int64, true)]));
        let homes = Int64Array::from(vec![Some(1), None]);
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(homes)]).unwrap();
        let mut out = Vec::<u8>::new();
        let mut sink = Box::new(CsvSink::new(&schema, &mut out).unwrap());
        sink.take(&batch).unwrap();
        sink.finish().unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "home\n1\n\"\"\n");
    }
}
