//! Checks what a table's file claims, for query engines that read it themselves.
//!
//! Our own reader takes only as much memory as a table's rows can need ([`super::pages`]). Other readers of Parquet believe the file: a few kilobytes can claim
//! row groups of billions of rows, chunks of exabytes, and pages that decompress to 2 GB. All of that stands in the footer and in the pages' headers, which
//! are read here without decompressing a page.
//!
//! A header is read by narrower rules than Thrift's: it has the bytes that the parquet crate writes and no others. So no other reader finds other values in
//! a header that passes.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::reader::{ChunkReader, Length};

use super::TableError;
use super::held::Held;
use super::pages::DICTIONARY_VALUE_BYTES;
use super::read::{TraceReader, check_rows, find_columns, group_rows, read_footer, row_count};
use super::schema::Column;
use crate::meta::TableInfo;

/// Longest header of a page, in bytes: seven integers of six bytes at most, and three bytes around them.
const HEADER_BYTES_MAX: u64 = 64;

/// Key of an Arrow schema in a footer, which gives columns other types than the Parquet schema. Our writer makes none.
const ARROW_SCHEMA: &str = "ARROW:schema";

impl TraceReader {
    /// As [`TraceReader::checked`], for readers that take as much memory as a file claims: checks also that no footer, row group, column chunk or page of these
    /// columns claims more than [`super::TableReader`] reads. The reader should use neither page indexes nor Bloom filters, which are not checked.
    ///
    /// # Errors
    /// If `meta.json` does not list the table, the file is missing, changed or damaged, lacks a column, or claims too much.
    pub fn checked_for_engines(
        &self,
        table: &str,
        columns: &[Column],
    ) -> Result<(PathBuf, File, TableInfo), TableError> {
        let (path, file, info) = self.checked(table)?;
        let held = file.try_clone().and_then(Held::new).map_err(TableError::io("read", &path))?;
        check(&held, &path, table, info, columns)?;
        Ok((path, file, info))
    }
}

/// Checks a file's footer, and the headers of the pages of these columns.
fn check(file: &Held, path: &Path, table: &str, info: TableInfo, columns: &[Column]) -> Result<(), TableError> {
    let damaged = |why: String| TableError::Damaged { path: path.to_path_buf(), why };
    let footer = read_footer(file, path)?;
    check_schema(&footer).map_err(damaged)?;
    let positions = find_columns(&footer, columns, path)?;
    check_rows(row_count(&footer), info, columns).map_err(damaged)?;
    // Chunks may not overlap: many of the same pages would be read again and again.
    let mut bytes_left = info.bytes;
    for (number, group) in footer.row_groups().iter().enumerate() {
        let rows = group_rows(group, (table, number), columns).map_err(damaged)?;
        for (column, position) in columns.iter().zip(&positions) {
            let Some(position) = *position else { continue };
            let wrong = |why: String| damaged(format!("column `{}` of row group {number}: {why}", column.name));
            let bytes = check_chunk(file, group.column(position), column, rows).map_err(wrong)?;
            let left = bytes_left.checked_sub(bytes);
            bytes_left = left.ok_or_else(|| wrong("shares its bytes with other columns".to_owned()))?;
        }
    }
    Ok(())
}

/// Names and types are what [`find_columns`] then sees: no column has parts or another's name, and nothing else says what a column's type is.
fn check_schema(footer: &ParquetMetaData) -> Result<(), String> {
    let file = footer.file_metadata();
    let fields = file.schema_descr().root_schema().get_fields();
    let mut names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    names.sort_unstable();
    if fields.iter().any(|field| !field.is_primitive()) || names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("has columns with parts, or of the same name".to_owned());
    }
    if file.key_value_metadata().is_some_and(|pairs| pairs.iter().any(|pair| pair.key == ARROW_SCHEMA)) {
        return Err(format!("has a second schema ({ARROW_SCHEMA})"));
    }
    Ok(())
}

/// Checks a column chunk in a row group of this many rows by its pages' headers; the bytes that it has in the file.
fn check_chunk(file: &Held, chunk: &ColumnChunkMetaData, column: &Column, rows: usize) -> Result<u64, String> {
    let is_compressed = match chunk.compression() {
        Compression::UNCOMPRESSED => false,
        Compression::ZSTD(_) => true,
        other => return Err(format!("numapilot does not read compression {other:?}")),
    };
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let (Ok(start), Ok(bytes)) = (u64::try_from(start), u64::try_from(chunk.compressed_size())) else {
        return Err("has a negative place in the file".to_owned());
    };
    let Some(end) = start.checked_add(bytes).filter(|&end| end <= file.len()) else {
        return Err(format!("claims {bytes} bytes at {start} of {}", file.len()));
    };
    let (mut at, mut bytes_left) = (start, column.page_bytes_max(rows));
    while at < end {
        let head = file.get_bytes(at, HEADER_BYTES_MAX.min(end - at) as usize).map_err(|error| error.to_string())?;
        let page = PageHeader::read(&head).ok_or_else(|| refusal(&head))?;
        at += page.header_bytes + page.stored_bytes;
        if at > end {
            return Err("a page is longer than its column chunk".to_owned());
        }
        let Some(left) = bytes_left.checked_sub(page.bytes) else {
            let bytes = page.bytes;
            return Err(format!("a page decompresses to {bytes} bytes where at most {bytes_left} can be"));
        };
        bytes_left = left;
        page.check_values(if is_compressed { page.bytes } else { page.stored_bytes }, rows as u64)?;
    }
    Ok(bytes)
}

/// Why the header with which these bytes begin is refused: most often, other software wrote the table anew.
fn refusal(head: &[u8]) -> String {
    // Page type 3 of Parquet's Thrift definition; the number's lowest bit is its sign.
    const DATA_PAGE_V2: [u8; 2] = [0x15, 3 << 1];
    let version = if head.starts_with(&DATA_PAGE_V2) { " (it is of version 2)" } else { "" };
    format!(
        "a page's header is not as numapilot's writer makes it{version}: query engines read tables whose pages are of Parquet's version 1, without \
         statistics in their headers (docs/trace-format.md); let the software that wrote this table write such pages"
    )
}

/// What a page's header claims.
struct PageHeader {
    is_dictionary: bool,
    /// Bytes of the page when it is decompressed.
    bytes: u64,
    /// Bytes of the page in the file, behind the header.
    stored_bytes: u64,
    /// Bytes of the header itself.
    header_bytes: u64,
    values: u64,
    encoding: u64,
}

impl PageHeader {
    /// Reads the header with which these bytes begin; `None` for one that the parquet crate would not write for our columns.
    fn read(bytes: &[u8]) -> Option<PageHeader> {
        // Numbers are those of Parquet's Thrift definition. Type bytes hold the distance from the field before, and the field's type.
        const DATA_PAGE: (u64, u8) = (0, 0x2c);
        const DICTIONARY_PAGE: (u64, u8) = (2, 0x4c);
        let mut fields = Fields(bytes);
        let (kind, unpacked, stored_bytes) = (fields.integer()?, fields.integer()?, fields.integer()?);
        let is_dictionary = match (kind, fields.byte()?) {
            DATA_PAGE => false,
            DICTIONARY_PAGE => true,
            _ => return None,
        };
        let (values, encoding) = (fields.integer()?, fields.integer()?);
        if is_dictionary {
            // Whether it is sorted: true or false.
            if !matches!(fields.byte()?, 0x11 | 0x12) {
                return None;
            }
        } else {
            // Encodings of the levels.
            fields.integer()?;
            fields.integer()?;
        }
        let ends = (fields.byte()?, fields.byte()?);
        if ends != (0, 0) {
            return None;
        }
        let header_bytes = (bytes.len() - fields.0.len()) as u64;
        Some(PageHeader { is_dictionary, bytes: unpacked, stored_bytes, header_bytes, values, encoding })
    }

    /// Checks the number of values and their encoding, for a page of this many bytes in a row group of this many rows, as [`super::pages`] does.
    fn check_values(&self, page_bytes: u64, rows: u64) -> Result<(), String> {
        // PLAIN, PLAIN_DICTIONARY, RLE, DELTA_BINARY_PACKED, RLE_DICTIONARY, BYTE_STREAM_SPLIT.
        if !matches!(self.encoding, 0 | 2 | 3 | 5 | 8 | 9) {
            return Err(format!("numapilot does not read encoding {}", self.encoding));
        }
        let most = if self.is_dictionary { rows.min(page_bytes / DICTIONARY_VALUE_BYTES as u64) } else { rows };
        if self.values > most {
            return Err(format!("a page claims {} values where at most {most} can be", self.values));
        }
        Ok(())
    }
}

/// Reads a structure of Thrift's compact protocol, field by field.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// A 32-bit integer that is not negative, in the field behind the field before.
    fn integer(&mut self) -> Option<u64> {
        const NEXT_I32: u8 = 0x15;
        if self.byte()? != NEXT_I32 {
            return None;
        }
        let mut folded = 0;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            folded |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                // The lowest bit is the sign.
                return (folded & 1 == 0 && folded <= u64::from(u32::MAX)).then_some(folded >> 1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use bytes::Bytes;
    use parquet::basic::{Encoding, ZstdLevel};
    use parquet::column::page::{CompressedPage, Page, PageWriter};
    use parquet::file::metadata::KeyValue;
    use parquet::file::properties::WriterProperties;
    use parquet::file::statistics::Statistics;
    use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;

    use super::*;
    use crate::meta::Meta;
    use crate::tables::read::tests::{write_claiming, write_long_footer};
    use crate::tables::rows::{StackColumns, Table, ThreadColumns, ThreadRow, all_tables};
    use crate::tables::schema::{ROWS_PER_GROUP, parquet_schema};
    use crate::tables::write::{Durability, FolderLock, TraceWriter};

    #[test]
    fn tables_of_our_writer_pass() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = TraceWriter::create(FolderLock::take(folder.path()), Durability::Written).unwrap();
        let mut threads = ThreadColumns::default();
        for thread in 0..300 {
            threads.push(ThreadRow { thread, parent: (thread % 3 == 0).then_some(thread), ..ThreadRow::default() });
        }
        writer.write(&threads).unwrap();
        writer.finish(Meta::default()).unwrap();
        // Written by the first version, with page indexes.
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces/golden-v1.numatrace");
        for folder in [folder.path(), golden.as_path()] {
            let reader = TraceReader::open(folder).unwrap();
            let mut rows = 0;
            for (table, columns) in all_tables() {
                if reader.meta().tables.contains_key(table) {
                    rows += reader.checked_for_engines(table, columns).unwrap().2.rows;
                }
            }
            assert!(rows >= 300, "{}: {rows}", folder.display());
        }
    }

    /// What is wrong with this file of stacks, of which `meta.json` says that it has so many rows.
    fn complaint(path: &Path, rows: u64) -> String {
        let file = File::open(path).unwrap();
        let info = TableInfo { rows, bytes: file.metadata().unwrap().len(), crc32: 0 };
        let done = check(&Held::new(file).unwrap(), path, StackColumns::NAME, info, StackColumns::COLUMNS);
        done.err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn footers_and_rows_are_bounded_as_by_our_reader() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stacks.parquet");
        write_long_footer(&path);
        assert!(complaint(&path, 1).contains("stacks.parquet: has a footer of 33554433 bytes"));
        write_claiming(&path, 1);
        assert_eq!(complaint(&path, 2), "");
        assert!(complaint(&path, 3).contains("has 2 rows instead of 3"));
        write_claiming(&path, 1 << 40);
        assert!(complaint(&path, (1 << 40) + 1).contains("claims 1099511627777 rows in"));
        let claimed = 16 * ROWS_PER_GROUP as u64 + 1;
        write_claiming(&path, claimed);
        let said = complaint(&path, claimed + 1);
        assert!(said.contains("row group 1 of table `stacks` claims 16777217 rows"), "{said}");
    }

    #[test]
    fn chunks_do_not_share_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stacks.parquet");
        write_claiming(&path, 1);
        let held = Held::new(File::open(&path).unwrap()).unwrap();
        // Less than the chunks have together.
        let info = TableInfo { rows: 2, bytes: 60, crc32: 0 };
        let done = check(&held, &path, StackColumns::NAME, info, StackColumns::COLUMNS);
        assert!(done.unwrap_err().to_string().contains("shares its bytes with other columns"));
    }

    #[test]
    fn columns_have_one_name_and_one_type() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stacks.parquet");
        let write = |schema: &str, pairs: Option<Vec<KeyValue>>| {
            let properties = Arc::new(WriterProperties::builder().set_key_value_metadata(pairs).build());
            let schema = Arc::new(parse_message_type(schema).unwrap());
            SerializedFileWriter::new(File::create(&path).unwrap(), schema, properties).unwrap().close().unwrap();
            complaint(&path, 0)
        };
        let twice = write("message stacks { required int32 stack; required int32 stack; }", None);
        assert!(twice.contains("of the same name"), "{twice}");
        let parts = write("message stacks { required group stack { required int32 stack; } }", None);
        assert!(parts.contains("columns with parts"), "{parts}");
        let schema = "message stacks { required int32 stack; }";
        let second = write(schema, Some(vec![KeyValue::new(ARROW_SCHEMA.to_owned(), "x".to_owned())]));
        assert!(second.contains("a second schema (ARROW:schema)"), "{second}");
        let missing = write(schema, None);
        assert!(missing.contains("is missing"), "{missing}");
    }

    fn data_page(bytes: usize, num_values: u32, encoding: Encoding) -> (Page, usize) {
        let (def_level_encoding, rep_level_encoding) = (Encoding::RLE, Encoding::RLE);
        let buf = Bytes::from_static(b"1234");
        (Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, statistics: None }, bytes)
    }

    /// What is wrong with a chunk of these pages, each with the bytes that it claims to decompress to, in a row group of a row; `change` is made to the chunk.
    fn of_pages(
        pages: Vec<(Page, usize)>,
        change: impl FnOnce(i64, ColumnChunkMetaData) -> ColumnChunkMetaData,
    ) -> String {
        let mut sink = TrackedWrite::new(Vec::<u8>::new());
        for (page, claimed) in pages {
            SerializedPageWriter::new(&mut sink).write_page(CompressedPage::new(page, claimed)).unwrap();
        }
        let bytes = sink.into_inner().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let schema = SchemaDescriptor::new(parquet_schema(StackColumns::NAME, StackColumns::COLUMNS).unwrap());
        let chunk = ColumnChunkMetaData::builder(schema.column(0))
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap()))
            .set_total_compressed_size(bytes.len() as i64)
            .set_data_page_offset(0)
            .build()
            .unwrap();
        let chunk = change(bytes.len() as i64, chunk);
        check_chunk(&Held::new(file).unwrap(), &chunk, &StackColumns::COLUMNS[0], 1).err().unwrap_or_default()
    }

    #[test]
    fn pages_claim_no_more_than_a_columns_rows_can_need() {
        let said = |pages| of_pages(pages, |_, chunk| chunk);
        let page = |bytes| data_page(bytes, 1, Encoding::PLAIN);
        assert_eq!(said(vec![page(600_000)]), "");
        let two_gb = said(vec![page(i32::MAX as usize)]);
        assert_eq!(two_gb, "a page decompresses to 2147483647 bytes where at most 1048608 can be");
        let two = said(vec![page(600_000), page(600_000)]);
        assert_eq!(two, "a page decompresses to 600000 bytes where at most 448608 can be");
        let values = said(vec![data_page(4, 2, Encoding::PLAIN)]);
        assert_eq!(values, "a page claims 2 values where at most 1 can be");
        let dictionary = |num_values, bytes| {
            let (buf, encoding) = (Bytes::from_static(b"1234"), Encoding::PLAIN);
            (Page::DictionaryPage { buf, num_values, encoding, is_sorted: false }, bytes)
        };
        assert_eq!(said(vec![dictionary(1, 4), page(4)]), "");
        assert_eq!(said(vec![dictionary(2, 64)]), "a page claims 2 values where at most 1 can be");
        assert_eq!(said(vec![dictionary(1, 3)]), "a page claims 1 values where at most 0 can be");
        assert_eq!(said(vec![data_page(4, 1, Encoding::DELTA_BYTE_ARRAY)]), "numapilot does not read encoding 7");
    }

    #[test]
    fn pages_of_other_software_are_refused_with_what_they_must_be() {
        let said = |page| of_pages(vec![(page, 4)], |_, chunk| chunk);
        let (buf, encoding) = (Bytes::from_static(b"1234"), Encoding::PLAIN);
        let second = said(Page::DataPageV2 {
            buf: buf.clone(),
            num_values: 1,
            encoding,
            num_nulls: 0,
            num_rows: 1,
            def_levels_byte_len: 0,
            rep_levels_byte_len: 0,
            is_compressed: true,
            statistics: None,
        });
        assert!(second.contains("(it is of version 2): query engines read"), "{second}");
        let (def_level_encoding, rep_level_encoding) = (Encoding::RLE, Encoding::RLE);
        let statistics = Some(Statistics::int32(Some(1), Some(2), None, Some(0), false));
        let first =
            said(Page::DataPage { buf, num_values: 1, encoding, def_level_encoding, rep_level_encoding, statistics });
        assert!(first.contains("writer makes it: query engines read"), "{first}");
    }

    #[test]
    fn chunks_lie_in_the_file() {
        let said = |size: fn(i64) -> i64, compression| {
            of_pages(vec![data_page(4, 1, Encoding::PLAIN)], |bytes, chunk| {
                let builder = chunk.into_builder().set_total_compressed_size(size(bytes));
                builder.set_compression(compression).build().unwrap()
            })
        };
        assert_eq!(said(|bytes| bytes, Compression::UNCOMPRESSED), "");
        assert_eq!(said(|bytes| bytes, Compression::SNAPPY), "numapilot does not read compression SNAPPY");
        assert!(said(|bytes| bytes + 1, Compression::UNCOMPRESSED).contains("bytes at 0 of"));
        assert!(said(|_| i64::MAX, Compression::UNCOMPRESSED).contains("claims 9223372036854775807 bytes"));
        assert_eq!(said(|_| -1, Compression::UNCOMPRESSED), "has a negative place in the file");
        assert_eq!(said(|bytes| bytes - 1, Compression::UNCOMPRESSED), "a page is longer than its column chunk");
    }

    #[test]
    fn headers_that_readers_could_take_for_others_are_refused() {
        // A data page of 4 bytes and one value.
        let sound: [u8; 17] = [0x15, 0, 0x15, 8, 0x15, 8, 0x2c, 0x15, 2, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0];
        let page = PageHeader::read(&sound).unwrap();
        assert_eq!((page.bytes, page.stored_bytes, page.header_bytes, page.values), (4, 4, 17, 1));
        for at in 0..sound.len() {
            assert!(PageHeader::read(&sound[..at]).is_none(), "cut at {at}");
        }
        let changed = |at: usize, bytes: &[u8]| {
            let bytes = [&sound[..at], bytes, &sound[at + 1..]].concat();
            PageHeader::read(&bytes).map(|page| page.bytes)
        };
        assert_eq!(changed(3, &[0xfe, 0xff, 0xff, 0xff, 0x0f]), Some(i32::MAX as u64));
        // Negative; beyond 32 bits; of another type; of another page.
        assert_eq!(changed(3, &[7]), None);
        assert_eq!(changed(3, &[0x80, 0x80, 0x80, 0x80, 0x10]), None);
        assert_eq!(changed(3, &[0x80, 0x80, 0x80, 0x80, 0x80, 0]), None);
        assert_eq!(changed(2, &[0x11]), None);
        assert_eq!(changed(1, &[4]), None);
        // A field more.
        assert_eq!(changed(16, &[0x15, 0, 0]), None);
    }
}
