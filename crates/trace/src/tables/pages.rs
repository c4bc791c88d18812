//! Decompresses and checks pages between Parquet's page reader and its decoders.
//!
//! The parquet crate takes as much memory for a page as the page's header claims, up to 2 GB, and some kilobytes can decompress to that. So its page reader
//! is told that the column is not compressed, and pages are decompressed here, up to what the column's rows can need.
//!
//! The decoders reserve memory for as many values as a page's header claims, and an allocation that fails aborts the process. So the claimed count is
//! first checked against the number of values that the page's bytes and the row group can hold.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use zstd::bulk::Decompressor;

use super::held::Held;

/// Fewest bytes of a value in a dictionary (a 32-bit integer, or the length before a text).
pub(super) const DICTIONARY_VALUE_BYTES: usize = 4;

pub(super) struct CheckedPages {
    pages: SerializedPageReader<Held>,
    /// `None`: the pages are not compressed.
    decompressor: Option<Decompressor<'static>>,
    rows: usize,
    /// Bytes that the pages that are still to come may have when they are decompressed.
    bytes_left: u64,
}

impl CheckedPages {
    /// The pages of a column chunk. `rows`: number of rows in the row group; `bytes_max`: the most that its pages have together when they are decompressed.
    pub(super) fn new(
        file: &Arc<Held>,
        chunk: &ColumnChunkMetaData,
        rows: usize,
        bytes_max: u64,
    ) -> Result<Box<CheckedPages>> {
        let decompressor = match chunk.compression() {
            Compression::UNCOMPRESSED => None,
            Compression::ZSTD(_) => Some(Decompressor::new().map_err(undecodable)?),
            other => return Err(ParquetError::General(format!("numapilot does not read compression {other:?}"))),
        };
        let as_stored = chunk.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
        let pages = SerializedPageReader::new(Arc::clone(file), &as_stored, rows, None)?;
        Ok(Box::new(CheckedPages { pages, decompressor, rows, bytes_left: bytes_max }))
    }

    fn decompressed(&mut self, mut page: Page) -> Result<Page> {
        if self.decompressor.is_none() || matches!(page, Page::DataPageV2 { is_compressed: false, .. }) {
            return Ok(page);
        }
        // Levels come before the compressed part of a page of version 2.
        let (bytes, levels) = match &mut page {
            Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => (buf, 0),
            Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
                (buf, *def_levels_byte_len as usize + *rep_levels_byte_len as usize)
            }
        };
        let decompressed = self.decompress(bytes, levels)?;
        *bytes = decompressed;
        Ok(page)
    }

    /// Decompresses what is behind the first `levels` bytes.
    fn decompress(&mut self, stored: &Bytes, levels: usize) -> Result<Bytes> {
        let Some(decompressor) = &mut self.decompressor else { return Ok(stored.clone()) };
        let Some((levels, packed)) = stored.split_at_checked(levels) else {
            return Err(ParquetError::General("a page is shorter than its levels".to_owned()));
        };
        // A page without values may have no bytes.
        let size = if packed.is_empty() { 0 } else { decompressed_size(packed)? };
        if size > self.bytes_left {
            let most = self.bytes_left;
            return Err(ParquetError::General(format!(
                "a page decompresses to {size} bytes where at most {most} can be"
            )));
        }
        self.bytes_left -= size;
        let unpacked = match size {
            0 => Vec::new(),
            _ => decompressor.decompress(packed, size as usize).map_err(undecodable)?,
        };
        Ok(if levels.is_empty() { unpacked.into() } else { [levels, &unpacked].concat().into() })
    }

    fn check(&self, page: Page) -> Result<Page> {
        // Their decoders take memory for as many texts, and as long ones, as a few bytes claim. Numapilot's writer does not use them.
        if matches!(page.encoding(), Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY) {
            return Err(ParquetError::General(format!("numapilot does not read encoding {:?}", page.encoding())));
        }
        let values = page.num_values() as usize;
        let most = match &page {
            // More values than rows would not be used.
            Page::DictionaryPage { buf, .. } => (buf.len() / DICTIONARY_VALUE_BYTES).min(self.rows),
            Page::DataPage { .. } | Page::DataPageV2 { .. } => self.rows,
        };
        if values <= most {
            return Ok(page);
        }
        Err(ParquetError::General(format!("a page claims {values} values where at most {most} can be")))
    }
}

/// Size of a page by the head of its zstd frame. The frame cannot decompress to more than memory is then taken for.
fn decompressed_size(packed: &[u8]) -> Result<u64> {
    let size = zstd::zstd_safe::get_frame_content_size(packed).ok().flatten();
    size.ok_or_else(|| ParquetError::General("a page is not compressed as numapilot's writer does".to_owned()))
}

fn undecodable(error: std::io::Error) -> ParquetError {
    ParquetError::General(format!("a page cannot be decompressed ({error})"))
}

impl Iterator for CheckedPages {
    type Item = Result<Page>;
    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(page) = self.pages.get_next_page()? else { return Ok(None) };
        let page = self.decompressed(page)?;
        self.check(page).map(Some)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

#[cfg(test)]
mod tests {
    //! Pages that would take far more memory than the rows of their column.

    use std::io::Write;

    use parquet::basic::ZstdLevel;
    use parquet::column::page::{CompressedPage, PageWriter};
    use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
    use parquet::schema::types::SchemaDescriptor;

    use super::*;
    use crate::tables::rows::{MarkColumns, Table};
    use crate::tables::schema::parquet_schema;

    fn data_page(buf: Bytes, encoding: Encoding) -> Page {
        let (def_level_encoding, rep_level_encoding) = (Encoding::RLE, Encoding::RLE);
        Page::DataPage { buf, num_values: 1, encoding, def_level_encoding, rep_level_encoding, statistics: None }
    }

    /// The reader of a chunk of compressed pages in a file.
    fn reader(pages: Vec<(Page, usize)>, bytes_max: u64) -> Box<CheckedPages> {
        let mut sink = TrackedWrite::new(Vec::<u8>::new());
        for (page, claimed) in pages {
            SerializedPageWriter::new(&mut sink).write_page(CompressedPage::new(page, claimed)).unwrap();
        }
        let bytes = sink.into_inner().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let schema = SchemaDescriptor::new(parquet_schema(MarkColumns::NAME, MarkColumns::COLUMNS).unwrap());
        let chunk = ColumnChunkMetaData::builder(schema.column(0))
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap()))
            .set_total_compressed_size(bytes.len() as i64)
            .set_data_page_offset(0)
            .build()
            .unwrap();
        CheckedPages::new(&Arc::new(Held::new(file).unwrap()), &chunk, 1, bytes_max).unwrap()
    }

    fn packed(raw: &[u8]) -> Bytes {
        zstd::bulk::compress(raw, 1).unwrap().into()
    }

    #[test]
    fn a_page_takes_no_more_memory_than_the_columns_rows_can_need() {
        let raw = vec![0_u8; 600_000];
        let page = || (data_page(packed(&raw), Encoding::PLAIN), raw.len());
        let mut pages = reader(vec![page(), page()], 1_000_000);
        assert_eq!(pages.get_next_page().unwrap().unwrap().buffer(), &raw[..]);
        let message = pages.get_next_page().unwrap_err().to_string();
        assert!(message.contains("a page decompresses to 600000 bytes where at most 400000 can be"), "{message}");
        // A header that claims 2 GB takes none of it.
        let mut pages = reader(vec![(data_page(packed(b"1234"), Encoding::PLAIN), i32::MAX as usize)], 1_000_000);
        assert_eq!(pages.get_next_page().unwrap().unwrap().buffer(), &b"1234"[..]);
        assert!(pages.get_next_page().unwrap().is_none());
    }

    #[test]
    fn a_frame_that_is_longer_than_its_head_says_is_an_error() {
        let two = [&packed(b"1234")[..], &packed(&[0; 100_000])[..]].concat();
        let mut pages = reader(vec![(data_page(two.into(), Encoding::PLAIN), 4)], 1_000_000);
        let message = pages.get_next_page().unwrap_err().to_string();
        assert!(message.contains("a page cannot be decompressed"), "{message}");
    }

    #[test]
    fn dictionaries_larger_than_their_column_and_texts_that_grow_while_they_are_decoded_are_refused() {
        let dictionary = |num_values| {
            let (buf, encoding) = (packed(&[0; 64]), Encoding::PLAIN);
            (Page::DictionaryPage { buf, num_values, encoding, is_sorted: false }, 64)
        };
        assert!(reader(vec![dictionary(1)], 64).get_next_page().is_ok());
        let message = reader(vec![dictionary(2)], 64).get_next_page().unwrap_err().to_string();
        assert!(message.contains("a page claims 2 values where at most 1 can be"), "{message}");
        for encoding in [Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY] {
            let message = reader(vec![(data_page(packed(b"x"), encoding), 1)], 64).get_next_page().unwrap_err();
            assert!(message.to_string().contains("numapilot does not read encoding DELTA_"), "{message}");
        }
    }
}
