//! Storage of columns: names, units, types and encodings, and the Parquet schema that they give.

use std::sync::Arc;

use parquet::basic::{
    Compression, Encoding as ParquetEncoding, LogicalType, Repetition, Type as PhysicalType, ZstdLevel,
};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::{ColumnPath, Type, TypePtr};

/// Rows in a row group: enough for good compression, few enough (about 100 MB of columns) to hold in memory.
pub const ROWS_PER_GROUP: usize = 1 << 20;

/// Most rows in a Parquet page.
pub(super) const ROWS_PER_PAGE: usize = ROWS_PER_GROUP / 8;
/// Largest dictionary, bytes; a column with more distinct values has none.
pub(super) const DICTIONARY_BYTES_MAX: usize = 4 << 20;
/// Most bytes of a table's different texts, each of which is in memory twice while the table is read, and of the pages of a column of texts in a row group.
pub(super) const TEXT_BYTES_MAX: usize = 1 << 30;
/// Most bytes of a row in the pages of a column of numbers: eight in the dictionary, eight of its own, and as much again for what encodings add.
const ROW_BYTES_MAX: u64 = 32;
/// Compression level of zstd.
pub(super) const COMPRESSION_LEVEL: i32 = 1;

/// Type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ColumnType {
    Bool,
    U8,
    U16,
    U32,
    U64,
    Text,
}

/// Encoding of a column, chosen by measurement (`cargo test -p numapilot-trace --test tables costs -- --nocapture` prints bytes per row by column).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Bit-packed differences of consecutive values: stamps and ascending numbers.
    Delta,
    /// One stream per byte of the value, then zstd: addresses.
    Split,
    /// Dictionary with run lengths: columns with few distinct values.
    Dictionary,
    /// Plain values, then zstd.
    Plain,
}

/// Name, unit, type and encoding of a column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name of the column.
    pub name: &'static str,
    /// Unit, or the column to which its number refers (`threads.thread`); empty for names and flags.
    pub unit: &'static str,
    /// Type of its values.
    pub kind: ColumnType,
    /// Whether it may be null: unknown, or not applicable.
    pub nullable: bool,
    /// Encoding of its values.
    pub encoding: Encoding,
}

impl Column {
    /// Memory that a value of it takes in a table's struct, in bytes; a text is a shared pointer.
    pub(super) fn memory_bytes(&self) -> u64 {
        let (plain, nullable) = match self.kind {
            ColumnType::Bool => (size_of::<bool>(), size_of::<Option<bool>>()),
            ColumnType::U8 => (size_of::<u8>(), size_of::<Option<u8>>()),
            ColumnType::U16 => (size_of::<u16>(), size_of::<Option<u16>>()),
            ColumnType::U32 => (size_of::<u32>(), size_of::<Option<u32>>()),
            ColumnType::U64 => (size_of::<u64>(), size_of::<Option<u64>>()),
            ColumnType::Text => (size_of::<Arc<str>>(), size_of::<Option<Arc<str>>>()),
        };
        (if self.nullable { nullable } else { plain }) as u64
    }

    /// Most bytes that its pages have together in a row group of this many rows when they are decompressed. Small groups have what blocks are filled up with.
    pub(super) fn page_bytes_max(&self, rows: usize) -> u64 {
        match self.kind {
            ColumnType::Text => TEXT_BYTES_MAX as u64,
            _ => (1 << 20) + ROW_BYTES_MAX.saturating_mul(rows as u64),
        }
    }

    pub(super) fn physical(&self) -> PhysicalType {
        match self.kind {
            ColumnType::Bool => PhysicalType::BOOLEAN,
            ColumnType::U8 | ColumnType::U16 | ColumnType::U32 => PhysicalType::INT32,
            ColumnType::U64 => PhysicalType::INT64,
            ColumnType::Text => PhysicalType::BYTE_ARRAY,
        }
    }

    fn logical(&self) -> Option<LogicalType> {
        let unsigned = |bit_width| Some(LogicalType::integer(bit_width, false));
        match self.kind {
            ColumnType::Bool => None,
            ColumnType::U8 => unsigned(8),
            ColumnType::U16 => unsigned(16),
            ColumnType::U32 => unsigned(32),
            ColumnType::U64 => unsigned(64),
            ColumnType::Text => Some(LogicalType::String),
        }
    }

    fn parquet_type(&self) -> parquet::errors::Result<TypePtr> {
        let repetition = if self.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let builder = Type::primitive_type_builder(self.name, self.physical());
        Ok(Arc::new(builder.with_repetition(repetition).with_logical_type(self.logical()).build()?))
    }
}

/// The Parquet schema of a table.
pub(super) fn parquet_schema(name: &str, columns: &[Column]) -> parquet::errors::Result<TypePtr> {
    let fields = columns.iter().map(Column::parquet_type).collect::<parquet::errors::Result<Vec<_>>>()?;
    Ok(Arc::new(Type::group_type_builder(name).with_fields(fields).build()?))
}

/// Writer settings of a table.
pub(super) fn properties(columns: &[Column]) -> parquet::errors::Result<WriterProperties> {
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("numapilot ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(COMPRESSION_LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        // The encoder for dictionary columns writes no offset index, and a file must have one for all columns or for none.
        .set_offset_index_disabled(true)
        .set_write_batch_size(8192)
        .set_data_page_row_count_limit(ROWS_PER_PAGE)
        .set_dictionary_page_size_limit(DICTIONARY_BYTES_MAX);
    for column in columns {
        let path = ColumnPath::from(column.name);
        let (dictionary, encoding) = match column.encoding {
            Encoding::Delta => (false, Some(ParquetEncoding::DELTA_BINARY_PACKED)),
            Encoding::Split => (false, Some(ParquetEncoding::BYTE_STREAM_SPLIT)),
            Encoding::Plain => (false, None),
            Encoding::Dictionary => (true, None),
        };
        builder = builder.set_column_dictionary_enabled(path.clone(), dictionary);
        if let Some(encoding) = encoding {
            builder = builder.set_column_encoding(path, encoding);
        }
    }
    Ok(builder.build())
}
