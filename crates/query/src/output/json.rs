//! JSON: an array of objects, one per line; unknown values are null.

use std::io::Write;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::json::WriterBuilder;
use datafusion::arrow::json::writer::LineDelimited;

use super::{Sink, WriteError};

/// Writes a result as JSON.
pub(super) struct JsonSink<W> {
    out: W,
    rows: u64,
    lines: Vec<u8>,
}

impl<W: Write> JsonSink<W> {
    pub fn new(schema: &SchemaRef, mut out: W) -> Result<JsonSink<W>, WriteError> {
        let mut names: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let why =
                format!("two columns of the result are called `{}`: rename one, as in `select a.x as y`", pair[0]);
            return Err(why.into());
        }
        out.write_all(b"[")?;
        Ok(JsonSink { out, rows: 0, lines: Vec::new() })
    }
}

impl<W: Write> Sink for JsonSink<W> {
    fn take(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        self.lines.clear();
        let mut writer = WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(&mut self.lines);
        writer.write(batch)?;
        writer.finish()?;
        // JSON has no line feeds within a line: they are escaped.
        for line in self.lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            self.out.write_all(if self.rows == 0 { b"\n" } else { b",\n" })?;
            self.out.write_all(line)?;
            self.rows += 1;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        self.out.write_all(b"\n]\n")?;
        Ok(self.out.flush()?)
    }
}
