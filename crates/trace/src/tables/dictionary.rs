//! Encodes columns of integers with few distinct values: a dictionary, run lengths and bit packing, Parquet's `RLE_DICTIONARY` encoding
//! (`Encodings.md` of the format's specification).
//!
//! The parquet crate encodes these too, but hashes every value: 14 columns of an access took half of the time of an import. Here a value that
//! repeats the last one costs a comparison, and small numbers (CPUs, nodes, threads, levels) index an array. `tools/bench NUMAPILOT BUILD dictionary`
//! compares both, column by column.

use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use parquet::basic::{Compression, Encoding, Type as PhysicalType, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::schema::{COMPRESSION_LEVEL, DICTIONARY_BYTES_MAX, ROWS_PER_PAGE};

/// Values below this index an array instead of the hash map.
const SMALL: usize = 1 << 12;
/// The value has no code yet.
const NONE: u32 = u32::MAX;
/// Shortest run that is stored as a run: a shorter one takes no more space when it is bit-packed.
const RUN_LEAST: usize = 16;

/// A column chunk in memory, for the row group that it belongs to.
pub(super) struct Chunk {
    pub bytes: Bytes,
    pub close: ColumnCloseResult,
}

/// Assigns codes to values in the order of their first occurrence.
struct Codes {
    values: Vec<u64>,
    small: Vec<u32>,
    large: HashMap<u64, u32>,
}

impl Codes {
    fn new() -> Codes {
        Codes { values: Vec::new(), small: vec![NONE; SMALL], large: HashMap::new() }
    }

    #[inline]
    fn of(&mut self, value: u64) -> u32 {
        let next = self.values.len() as u32;
        let code = match self.small.get_mut(usize::try_from(value).unwrap_or(usize::MAX)) {
            Some(code) => {
                if *code == NONE {
                    *code = next;
                }
                *code
            }
            None => *self.large.entry(value).or_insert(next),
        };
        if code == next {
            self.values.push(value);
        }
        code
    }
}

/// Encodes a column chunk of `values` (`None`: null, which occurs only in a nullable column). Returns `None` if there are too many distinct
/// values for a dictionary to save space.
pub(super) fn encode(
    values: impl ExactSizeIterator<Item = Option<u64>>,
    descr: &ColumnDescPtr,
) -> Result<Option<Chunk>> {
    let rows = values.len();
    let is_nullable = descr.max_def_level() > 0;
    let width = if descr.physical_type() == PhysicalType::INT32 { 4 } else { 8 };
    let most = (DICTIONARY_BYTES_MAX / width).min((rows / 2).max(64));
    let mut codes = Codes::new();
    let mut coded = Vec::with_capacity(rows);
    let mut last = (0, NONE);
    for value in values {
        coded.push(match value {
            None => NONE,
            Some(value) if value == last.0 && last.1 != NONE => last.1,
            Some(value) => {
                last = (value, codes.of(value));
                last.1
            }
        });
        if codes.values.len() > most {
            return Ok(None);
        }
    }
    Pages::new(descr, width)?.write(&codes.values, &coded, is_nullable).map(Some)
}

/// Writes the pages of a column chunk.
struct Pages<'a> {
    descr: &'a ColumnDescPtr,
    width: usize,
    sink: TrackedWrite<Vec<u8>>,
    compressor: zstd::bulk::Compressor<'static>,
    raw: Vec<u8>,
    present: Vec<u32>,
    uncompressed: usize,
}

impl<'a> Pages<'a> {
    fn new(descr: &'a ColumnDescPtr, width: usize) -> Result<Pages<'a>> {
        let compressor = zstd::bulk::Compressor::new(COMPRESSION_LEVEL).map_err(failed)?;
        let (raw, present) = (Vec::new(), Vec::new());
        Ok(Pages { descr, width, sink: TrackedWrite::new(Vec::new()), compressor, raw, present, uncompressed: 0 })
    }

    fn write(mut self, dictionary: &[u64], coded: &[u32], is_nullable: bool) -> Result<Chunk> {
        let width = self.width;
        self.raw.extend(dictionary.iter().flat_map(|value| value.to_le_bytes().into_iter().take(width)));
        let entries = dictionary.len() as u32;
        self.page(|buf| Page::DictionaryPage {
            buf,
            num_values: entries,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        })?;
        let data_offset = self.sink.bytes_written();
        let bits = u32::BITS - entries.saturating_sub(1).leading_zeros();
        for rows in coded.chunks(ROWS_PER_PAGE) {
            self.raw.clear();
            self.present.clear();
            if is_nullable {
                levels(rows, &mut self.raw);
                self.present.extend(rows.iter().copied().filter(|&code| code != NONE));
            }
            self.raw.push(bits as u8);
            hybrid(if is_nullable { &self.present } else { rows }, bits, &mut self.raw);
            self.page(|buf| Page::DataPage {
                buf,
                num_values: rows.len() as u32,
                encoding: Encoding::RLE_DICTIONARY,
                def_level_encoding: Encoding::RLE,
                rep_level_encoding: Encoding::RLE,
                statistics: None,
            })?;
        }
        self.close(dictionary, coded, data_offset)
    }

    /// Writes the page whose content is in `raw`.
    fn page(&mut self, page: impl FnOnce(Bytes) -> Page) -> Result<()> {
        let packed = self.compressor.compress(&self.raw).map_err(failed)?;
        let page = CompressedPage::new(page(Bytes::from(packed)), self.raw.len());
        let written = SerializedPageWriter::new(&mut self.sink).write_page(page)?;
        self.uncompressed += written.uncompressed_size;
        Ok(())
    }

    fn close(self, dictionary: &[u64], coded: &[u32], data_offset: usize) -> Result<Chunk> {
        let bytes = self.sink.bytes_written();
        let nulls = coded.iter().filter(|&&code| code == NONE).count() as u64;
        let metadata = ColumnChunkMetaData::builder(self.descr.clone())
            .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY])
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(COMPRESSION_LEVEL)?))
            .set_num_values(coded.len() as i64)
            .set_total_compressed_size(bytes as i64)
            .set_total_uncompressed_size(self.uncompressed as i64)
            .set_dictionary_page_offset(Some(0))
            .set_data_page_offset(data_offset as i64)
            .set_statistics(statistics(dictionary, nulls, self.width))
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: bytes as u64,
            rows_written: coded.len() as u64,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok(Chunk { bytes: Bytes::from(self.sink.into_inner()?), close })
    }
}

fn failed(error: std::io::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

/// The least and the greatest value, as unsigned numbers.
fn statistics(dictionary: &[u64], nulls: u64, width: usize) -> Statistics {
    let (least, greatest) = (dictionary.iter().min().copied(), dictionary.iter().max().copied());
    if width == 4 {
        let narrow = |value: Option<u64>| value.map(|value| value as u32 as i32);
        Statistics::int32(narrow(least), narrow(greatest), None, Some(nulls), false)
    } else {
        let signed = |value: Option<u64>| value.map(|value| value as i64);
        Statistics::int64(signed(least), signed(greatest), None, Some(nulls), false)
    }
}

/// Definition levels of a page (which rows have a value), after their length.
fn levels(rows: &[u32], out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    if rows.iter().all(|&code| code != NONE) {
        run(1, rows.len(), 1, out);
    } else {
        let levels: Vec<u32> = rows.iter().map(|&code| u32::from(code != NONE)).collect();
        hybrid(&levels, 1, out);
    }
    let length = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
}

/// Numbers of `bits` bits as runs of one number and as packed groups of eight.
fn hybrid(numbers: &[u32], bits: u32, out: &mut Vec<u8>) {
    if bits == 0 {
        return run(0, numbers.len(), 0, out);
    }
    let (mut at, mut packed_from) = (0, 0);
    while at < numbers.len() {
        let length = numbers[at..].iter().take_while(|&&number| number == numbers[at]).count();
        // Packed groups have eight numbers, so the last group is filled up from the run.
        let lent = (at - packed_from).next_multiple_of(8) - (at - packed_from);
        if length >= lent + RUN_LEAST {
            pack(&numbers[packed_from..at + lent], bits, out);
            run(numbers[at], length - lent, bits, out);
            packed_from = at + length;
        }
        at += length;
    }
    pack(&numbers[packed_from..], bits, out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn run(number: u32, count: usize, bits: u32, out: &mut Vec<u8>) {
    if count > 0 {
        varint((count as u64) << 1, out);
        out.extend_from_slice(&number.to_le_bytes()[..bits.div_ceil(8) as usize]);
    }
}

/// Groups of eight numbers, the first in the lowest bits; the last group is filled up with zeroes.
fn pack(numbers: &[u32], bits: u32, out: &mut Vec<u8>) {
    if numbers.is_empty() {
        return;
    }
    let groups = numbers.len().div_ceil(8);
    varint((groups as u64) << 1 | 1, out);
    let end = out.len() + groups * bits as usize;
    let (mut word, mut used) = (0_u64, 0);
    for &number in numbers {
        word |= u64::from(number) << used;
        used += bits;
        if used >= 32 {
            out.extend_from_slice(&(word as u32).to_le_bytes());
            word >>= 32;
            used -= 32;
        }
    }
    out.extend_from_slice(&word.to_le_bytes()[..used.div_ceil(8) as usize]);
    out.resize(end, 0);
}

#[cfg(test)]
mod tests {
    //! Compares with the parquet crate's own reader, through a file in memory.

    use std::sync::Arc;

    use parquet::basic::Repetition;
    use parquet::column::reader::ColumnReader;
    use parquet::file::properties::WriterProperties;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::types::Type;
    use proptest::prelude::*;

    use super::*;

    /// Writes the values as a file's only column and reads them back. `None`: refused.
    fn through_a_file(values: &[Option<u64>], is_nullable: bool) -> Option<Vec<Option<u64>>> {
        let repetition = if is_nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let column = Type::primitive_type_builder("n", PhysicalType::INT64).with_repetition(repetition);
        let schema = Type::group_type_builder("t").with_fields(vec![Arc::new(column.build().unwrap())]);
        let schema = Arc::new(schema.build().unwrap());
        let properties = Arc::new(WriterProperties::builder().build());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
        let chunk = encode(values.iter().copied(), &writer.schema_descr().column(0)).unwrap()?;
        let mut group = writer.next_row_group().unwrap();
        group.append_column(&chunk.bytes, chunk.close).unwrap();
        group.close().unwrap();
        let reader = SerializedFileReader::new(Bytes::from(writer.into_inner().unwrap())).unwrap();
        let ColumnReader::Int64ColumnReader(mut column) =
            reader.get_row_group(0).unwrap().get_column_reader(0).unwrap()
        else {
            panic!("another type")
        };
        let (mut read, mut levels) = (Vec::new(), Vec::new());
        let mut rows = 0;
        while rows < values.len() {
            let (count, _, _) = column.read_records(values.len() - rows, Some(&mut levels), None, &mut read).unwrap();
            assert!(count > 0, "it ends after {rows} rows");
            rows += count;
        }
        let mut read = read.into_iter().map(|value| value as u64);
        if !is_nullable {
            return Some(read.map(Some).collect());
        }
        Some(levels.iter().map(|&level| if level == 1 { read.next() } else { None }).collect())
    }

    proptest! {
        /// Any mixture of runs and single values, small and large, with and without nulls.
        #[test]
        fn what_is_encoded_is_read_back(
            runs in prop::collection::vec((0_u64..40, 1_usize..60, any::<bool>()), 1..120),
            scale in prop::sample::select(vec![1_u64, 1000, 1 << 40, u64::MAX / 40]),
            is_nullable in any::<bool>(),
        ) {
            let one = |&(value, length, is_null): &(u64, usize, bool)| {
                std::iter::repeat_n(Some(value * scale).filter(|_| !is_null || !is_nullable), length)
            };
            let values: Vec<Option<u64>> = runs.iter().flat_map(one).collect();
            prop_assert_eq!(through_a_file(&values, is_nullable), Some(values));
        }
    }

    #[test]
    fn many_pages_and_wide_codes() {
        let values: Vec<Option<u64>> = (0..3 * ROWS_PER_PAGE as u64 + 5).map(|row| Some(row * row % 70_001)).collect();
        assert_eq!(through_a_file(&values, false), Some(values));
    }

    #[test]
    fn a_dictionary_that_does_not_pay_is_refused() {
        let values: Vec<Option<u64>> = (0..10_000).map(Some).collect();
        assert_eq!(through_a_file(&values, false), None);
    }
}
