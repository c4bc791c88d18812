//! Parquet, compressed with zstd as the traces' own tables are.

use std::io::Write;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;

use super::{Sink, WriteError};

/// Writes a result as Parquet.
pub(super) struct ParquetSink<W: Write + Send> {
    writer: ArrowWriter<W>,
}

impl<W: Write + Send> ParquetSink<W> {
    pub fn new(schema: &SchemaRef, out: W) -> Result<ParquetSink<W>, WriteError> {
        let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
        Ok(ParquetSink { writer: ArrowWriter::try_new(out, SchemaRef::clone(schema), Some(properties))? })
    }
}

impl<W: Write + Send> Sink for ParquetSink<W> {
    fn take(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        Ok(self.writer.write(batch)?)
    }

    fn finish(self: Box<Self>) -> Result<(), WriteError> {
        self.writer.into_inner()?.flush()?;
        Ok(())
    }
}
