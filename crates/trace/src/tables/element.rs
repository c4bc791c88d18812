//! Converts between vectors of Rust values and Parquet columns.

use std::sync::Arc;

use foldhash::HashMap;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::column::writer::{ColumnWriterImpl, get_column_writer, get_typed_column_writer_mut};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::dictionary::{self, Chunk};
use super::schema::{ColumnType, Encoding, ROWS_PER_GROUP, TEXT_BYTES_MAX};

/// Values converted at a time.
const BATCH: usize = 8192;
/// Most rows that one read call requests, so that a wrong row count does not reserve memory.
const READ_BATCH: usize = 64 << 10;

/// A column chunk that is being encoded in memory.
pub struct ColumnOutput {
    pub(super) descr: ColumnDescPtr,
    pub(super) properties: WriterPropertiesPtr,
    pub(super) encoding: Encoding,
    pub(super) chunk: Option<Chunk>,
}

impl ColumnOutput {
    /// Encodes with the parquet crate's encoder.
    fn plain<T: Stored>(
        &mut self,
        write: impl FnOnce(&mut ColumnWriterImpl<'_, T::Physical>) -> parquet::errors::Result<()>,
    ) -> parquet::errors::Result<()> {
        let mut sink = TrackedWrite::new(Vec::new());
        let pages = Box::new(SerializedPageWriter::new(&mut sink));
        let mut writer = get_column_writer(self.descr.clone(), self.properties.clone(), pages);
        write(get_typed_column_writer_mut::<T::Physical>(&mut writer))?;
        let close = writer.close()?;
        self.chunk = Some(Chunk { bytes: sink.into_inner()?.into(), close });
        Ok(())
    }

    /// Encodes with a dictionary, if the column should have one and has few distinct values; false if it was not encoded.
    fn with_dictionary<T: Stored>(
        &mut self,
        values: impl ExactSizeIterator<Item = Option<T>>,
    ) -> parquet::errors::Result<bool> {
        if self.encoding == Encoding::Dictionary && T::IS_INTEGER {
            self.chunk = dictionary::encode(values.map(|value| value.map(|value| value.key())), &self.descr)?;
        }
        Ok(self.chunk.is_some())
    }
}

/// A column chunk that is being decoded.
pub struct ColumnInput<'a> {
    pub(super) reader: ColumnReader,
    pub(super) rows: usize,
    pub(super) strings: &'a mut Strings,
}

/// Interned strings of a table: one copy of each.
#[derive(Debug)]
pub(super) struct Strings {
    known: HashMap<Vec<u8>, Arc<str>>,
    /// Bytes that the strings that are still to come may have.
    bytes_left: usize,
}

impl Default for Strings {
    fn default() -> Strings {
        Strings { known: HashMap::default(), bytes_left: TEXT_BYTES_MAX }
    }
}

impl Strings {
    fn get(&mut self, bytes: &[u8]) -> Result<Arc<str>, ReadFault> {
        if let Some(text) = self.known.get(bytes) {
            return Ok(text.clone());
        }
        let text: Arc<str> =
            std::str::from_utf8(bytes).map_err(|_| ReadFault::Value("holds text that is not UTF-8".into()))?.into();
        let left = self.bytes_left.checked_sub(bytes.len());
        self.bytes_left = left.ok_or_else(|| ReadFault::Value("holds more text than a table can have".into()))?;
        self.known.insert(bytes.to_vec(), text.clone());
        Ok(text)
    }
}

/// Why a column cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadFault {
    /// The parquet crate reported an error.
    #[error(transparent)]
    Parquet(#[from] parquet::errors::ParquetError),
    /// A value is out of the range of the column's type, or of another type.
    #[error("{0}")]
    Value(String),
}

/// A type of value that a column can hold.
pub trait Element: Sized + Clone {
    /// The column's type.
    const TYPE: ColumnType;
    /// Whether it may be null.
    const NULLABLE: bool;
    /// Encodes `values` as the column's chunk.
    ///
    /// # Errors
    /// An error of the parquet crate.
    fn write(values: &[Self], out: &mut ColumnOutput) -> parquet::errors::Result<()>;
    /// Appends all values of the column to `out`.
    ///
    /// # Errors
    /// A value is out of the type's range, or an error of the parquet crate.
    fn read(input: &mut ColumnInput<'_>, out: &mut Vec<Self>) -> Result<(), ReadFault>;
    /// The value that means "not recorded"; `None` if the type has none.
    fn unknown() -> Option<Self>;
    /// The values as slices of memory, for conversion to another format.
    fn values(values: &[Self]) -> Values<'_>;
}

/// Values of a column of any type.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Values<'a> {
    Bool(Cells<'a, bool>),
    U8(Cells<'a, u8>),
    U16(Cells<'a, u16>),
    U32(Cells<'a, u32>),
    U64(Cells<'a, u64>),
    Text(Cells<'a, Arc<str>>),
}

/// Values of one type, with or without nulls.
#[derive(Debug)]
pub enum Cells<'a, T> {
    /// Values of a column without nulls.
    All(&'a [T]),
    /// Values of a column that may have nulls.
    Some(&'a [Option<T>]),
}

/// A value as Parquet stores it.
trait Stored: Sized + Clone {
    type Physical: DataType;
    const TYPE: ColumnType;
    /// Whether it is an integer, which [`Stored::key`] returns.
    const IS_INTEGER: bool = false;
    fn key(&self) -> u64 {
        0
    }
    fn store(&self) -> <Self::Physical as DataType>::T;
    fn load(value: &<Self::Physical as DataType>::T, strings: &mut Strings) -> Result<Self, ReadFault>;
    fn reader(reader: &mut ColumnReader) -> Option<&mut ColumnReaderImpl<Self::Physical>>;
    fn values(cells: Cells<'_, Self>) -> Values<'_>;
}

macro_rules! stored_as_int32 {
    ($($type:ty => $kind:ident),*) => {$(
        impl Stored for $type {
            type Physical = Int32Type;
            const TYPE: ColumnType = ColumnType::$kind;
            const IS_INTEGER: bool = true;
            #[inline]
            fn key(&self) -> u64 {
                u64::from(*self)
            }
            #[inline]
            fn store(&self) -> i32 {
                u32::from(*self) as i32
            }
            #[inline]
            fn load(value: &i32, _: &mut Strings) -> Result<Self, ReadFault> {
                Self::try_from(*value as u32).map_err(|_| {
                    ReadFault::Value(format!("holds {}, too large for {}", *value as u32, stringify!($type)))
                })
            }
            fn reader(reader: &mut ColumnReader) -> Option<&mut ColumnReaderImpl<Int32Type>> {
                if let ColumnReader::Int32ColumnReader(reader) = reader { Some(reader) } else { None }
            }
            fn values(cells: Cells<'_, $type>) -> Values<'_> {
                Values::$kind(cells)
            }
        }
    )*};
}
stored_as_int32!(u8 => U8, u16 => U16, u32 => U32);

impl Stored for u64 {
    type Physical = Int64Type;
    const TYPE: ColumnType = ColumnType::U64;
    const IS_INTEGER: bool = true;
    #[inline]
    fn key(&self) -> u64 {
        *self
    }
    #[inline]
    fn store(&self) -> i64 {
        *self as i64
    }
    #[inline]
    fn load(value: &i64, _: &mut Strings) -> Result<u64, ReadFault> {
        Ok(*value as u64)
    }
    fn reader(reader: &mut ColumnReader) -> Option<&mut ColumnReaderImpl<Int64Type>> {
        if let ColumnReader::Int64ColumnReader(reader) = reader { Some(reader) } else { None }
    }
    fn values(cells: Cells<'_, u64>) -> Values<'_> {
        Values::U64(cells)
    }
}

impl Stored for bool {
    type Physical = BoolType;
    const TYPE: ColumnType = ColumnType::Bool;
    #[inline]
    fn store(&self) -> bool {
        *self
    }
    #[inline]
    fn load(value: &bool, _: &mut Strings) -> Result<bool, ReadFault> {
        Ok(*value)
    }
    fn reader(reader: &mut ColumnReader) -> Option<&mut ColumnReaderImpl<BoolType>> {
        if let ColumnReader::BoolColumnReader(reader) = reader { Some(reader) } else { None }
    }
    fn values(cells: Cells<'_, bool>) -> Values<'_> {
        Values::Bool(cells)
    }
}

impl Stored for Arc<str> {
    type Physical = ByteArrayType;
    const TYPE: ColumnType = ColumnType::Text;
    fn store(&self) -> ByteArray {
        ByteArray::from(&**self)
    }
    fn load(value: &ByteArray, strings: &mut Strings) -> Result<Arc<str>, ReadFault> {
        strings.get(value.data())
    }
    fn reader(reader: &mut ColumnReader) -> Option<&mut ColumnReaderImpl<ByteArrayType>> {
        if let ColumnReader::ByteArrayColumnReader(reader) = reader { Some(reader) } else { None }
    }
    fn values(cells: Cells<'_, Arc<str>>) -> Values<'_> {
        Values::Text(cells)
    }
}

fn wrong_type() -> ReadFault {
    ReadFault::Value("has another physical type".into())
}

impl<T: Stored> Element for T {
    const TYPE: ColumnType = <T as Stored>::TYPE;
    const NULLABLE: bool = false;

    fn unknown() -> Option<T> {
        None
    }

    fn values(values: &[T]) -> Values<'_> {
        <T as Stored>::values(Cells::All(values))
    }

    fn write(values: &[T], out: &mut ColumnOutput) -> parquet::errors::Result<()> {
        if out.with_dictionary(values.iter().cloned().map(Some))? {
            return Ok(());
        }
        out.plain::<T>(|writer| {
            let mut stored = Vec::with_capacity(BATCH.min(values.len()));
            for batch in values.chunks(BATCH) {
                stored.clear();
                stored.extend(batch.iter().map(Stored::store));
                writer.write_batch(&stored, None, None)?;
            }
            Ok(())
        })
    }

    fn read(input: &mut ColumnInput<'_>, out: &mut Vec<T>) -> Result<(), ReadFault> {
        let mut left = input.rows;
        out.reserve(left.min(ROWS_PER_GROUP));
        let mut values = Vec::new();
        while left > 0 {
            values.clear();
            let reader = T::reader(&mut input.reader).ok_or_else(wrong_type)?;
            let (rows, _, _) = reader.read_records(left.min(READ_BATCH), None, None, &mut values)?;
            if rows == 0 || rows != values.len() {
                return Err(ReadFault::Value(format!("ends {left} rows early")));
            }
            for value in &values {
                out.push(T::load(value, input.strings)?);
            }
            left -= rows.min(left);
        }
        Ok(())
    }
}

impl<T: Stored> Element for Option<T> {
    const TYPE: ColumnType = <T as Stored>::TYPE;
    const NULLABLE: bool = true;

    fn unknown() -> Option<Option<T>> {
        Some(None)
    }

    fn values(values: &[Option<T>]) -> Values<'_> {
        <T as Stored>::values(Cells::Some(values))
    }

    fn write(values: &[Option<T>], out: &mut ColumnOutput) -> parquet::errors::Result<()> {
        if out.with_dictionary(values.iter().cloned())? {
            return Ok(());
        }
        out.plain::<T>(|writer| {
            let mut stored = Vec::with_capacity(BATCH.min(values.len()));
            let mut levels = Vec::with_capacity(BATCH.min(values.len()));
            for batch in values.chunks(BATCH) {
                stored.clear();
                levels.clear();
                stored.extend(batch.iter().flatten().map(Stored::store));
                levels.extend(batch.iter().map(|value| i16::from(value.is_some())));
                writer.write_batch(&stored, Some(&levels), None)?;
            }
            Ok(())
        })
    }

    fn read(input: &mut ColumnInput<'_>, out: &mut Vec<Option<T>>) -> Result<(), ReadFault> {
        let mut left = input.rows;
        out.reserve(left.min(ROWS_PER_GROUP));
        let mut values = Vec::new();
        let mut levels = Vec::new();
        while left > 0 {
            values.clear();
            levels.clear();
            let reader = T::reader(&mut input.reader).ok_or_else(wrong_type)?;
            let (rows, _, _) = reader.read_records(left.min(READ_BATCH), Some(&mut levels), None, &mut values)?;
            if rows == 0 || rows != levels.len() {
                return Err(ReadFault::Value(format!("ends {left} rows early")));
            }
            let mut present = values.iter();
            for level in &levels {
                out.push(match (*level, present.as_slice().is_empty()) {
                    (0, _) => None,
                    (_, true) => return Err(ReadFault::Value("has fewer values than its header claims".into())),
                    _ => present.next().map(|value| T::load(value, input.strings)).transpose()?,
                });
            }
            left -= rows.min(left);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Texts of a table.

    use super::*;

    #[test]
    fn a_table_has_bounded_memory_for_its_different_texts() {
        let mut strings = Strings { bytes_left: 8, ..Strings::default() };
        for text in ["main", "main", "fill", "", "main"] {
            assert_eq!(&*strings.get(text.as_bytes()).unwrap(), text);
        }
        let message = strings.get(b"x").unwrap_err().to_string();
        assert_eq!(message, "holds more text than a table can have");
        assert_eq!(&*strings.get(b"fill").unwrap(), "fill");
    }
}
