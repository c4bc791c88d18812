//! The encoder for columns with few distinct values (`src/tables/dictionary.rs`) and that of the parquet crate, on the same columns of accesses: CPU time of
//! one core per value, and bytes. `cargo run --release -p numapilot-trace --example dictionary_rate`.
#![allow(clippy::print_stdout)]

#[path = "../tests/common/mod.rs"]
mod common;
// The encoder is private: the same source is compiled once more.
#[allow(dead_code)]
#[path = "../src/tables/dictionary.rs"]
mod dictionary;
#[allow(dead_code)]
#[path = "../src/tables/schema.rs"]
mod schema;

use std::sync::Arc;

use common::{cpu_seconds, realistic};
use numapilot_trace::tables::{AccessColumns, Cells, Table, Values, schema as of_crate};
use parquet::column::writer::{get_column_writer, get_typed_column_writer_mut};
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};
use schema::{Column, ColumnType, Encoding, ROWS_PER_GROUP};

const ROUNDS: usize = 5;
/// Times that a column is encoded in each round: the kernel brings a running thread's time up to date at its ticks only, every 1 to 10 ms, and one
/// encoding of a column may take as little.
const REPEATS: usize = 16;
/// Values handed over at a time, as the writer of tables does (`src/tables/element.rs`).
const BATCH: usize = 8192;

/// The column's definition, with the types of this program; `None` if it has no dictionary of integers.
fn definition(column: &of_crate::Column) -> Option<Column> {
    let kind = match column.kind {
        of_crate::ColumnType::U8 => ColumnType::U8,
        of_crate::ColumnType::U16 => ColumnType::U16,
        of_crate::ColumnType::U32 => ColumnType::U32,
        of_crate::ColumnType::U64 => ColumnType::U64,
        of_crate::ColumnType::Bool | of_crate::ColumnType::Text => return None,
    };
    let (name, unit, nullable) = (column.name, column.unit, column.nullable);
    let is_wanted = column.encoding == of_crate::Encoding::Dictionary;
    is_wanted.then_some(Column { name, unit, kind, nullable, encoding: Encoding::Dictionary })
}

fn cells<T: Copy + Into<u64>>(cells: Cells<'_, T>) -> Vec<Option<u64>> {
    match cells {
        Cells::All(values) => values.iter().map(|value| Some((*value).into())).collect(),
        Cells::Some(values) => values.iter().map(|value| value.map(Into::into)).collect(),
    }
}

fn numbers(values: Values<'_>) -> Vec<Option<u64>> {
    match values {
        Values::U8(values) => cells(values),
        Values::U16(values) => cells(values),
        Values::U32(values) => cells(values),
        Values::U64(values) => cells(values),
        Values::Bool(_) | Values::Text(_) => Vec::new(),
    }
}

/// Encodes with the parquet crate; the bytes of the column chunk.
fn peer<T: DataType>(
    values: &[Option<u64>],
    descr: &ColumnDescPtr,
    properties: &WriterPropertiesPtr,
    store: impl Fn(u64) -> T::T,
) -> Result<usize> {
    let is_nullable = descr.max_def_level() > 0;
    let mut sink = TrackedWrite::new(Vec::new());
    let pages = Box::new(SerializedPageWriter::new(&mut sink));
    let mut writer = get_column_writer(descr.clone(), properties.clone(), pages);
    let typed = get_typed_column_writer_mut::<T>(&mut writer);
    let mut stored = Vec::with_capacity(BATCH);
    let mut levels: Vec<i16> = Vec::with_capacity(BATCH);
    for batch in values.chunks(BATCH) {
        stored.clear();
        levels.clear();
        stored.extend(batch.iter().flatten().map(|value| store(*value)));
        levels.extend(batch.iter().map(|value| i16::from(value.is_some())));
        typed.write_batch(&stored, is_nullable.then_some(levels.as_slice()), None)?;
    }
    writer.close()?;
    Ok(sink.into_inner()?.len())
}

fn peer_of_any_width(
    values: &[Option<u64>],
    descr: &ColumnDescPtr,
    properties: &WriterPropertiesPtr,
    kind: ColumnType,
) -> Result<usize> {
    if kind == ColumnType::U64 {
        peer::<Int64Type>(values, descr, properties, |value| value as i64)
    } else {
        peer::<Int32Type>(values, descr, properties, |value| value as u32 as i32)
    }
}

/// Nanoseconds of CPU time per value, and what the work gave.
fn timed(values: &[Option<u64>], work: impl Fn() -> Result<usize>) -> Result<(f64, usize)> {
    let (start, mut bytes) = (cpu_seconds(), 0);
    for _ in 0..REPEATS {
        bytes = work()?;
    }
    Ok(((cpu_seconds() - start) * 1e9 / (REPEATS * values.len()) as f64, bytes))
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() -> Result<()> {
    let table = realistic::accesses(ROWS_PER_GROUP);
    println!("{ROWS_PER_GROUP} values of each column; medians of {ROUNDS} rounds of {REPEATS}, both sides in turn");
    println!(
        "{:16} {:>9} {:>12} {:>7} {:>12} {:>12}",
        "column", "ours ns", "parquet ns", "ratio", "ours bytes", "parquet bytes"
    );
    let (mut ours_sum, mut theirs_sum) = (0.0, 0.0);
    for (index, column) in AccessColumns::COLUMNS.iter().enumerate() {
        let Some(column) = definition(column) else { continue };
        let values = table.values(index, 0..table.len()).map(numbers).unwrap_or_default();
        let descr = SchemaDescriptor::new(schema::parquet_schema("t", &[column])?).column(0);
        let properties = Arc::new(schema::properties(&[column])?);
        let (mut ours, mut theirs, mut bytes) = (Vec::new(), Vec::new(), (0, 0));
        for _ in 0..ROUNDS {
            let (ns, size) = timed(&values, || {
                let chunk = dictionary::encode(values.iter().copied(), &descr)?;
                Ok(chunk.map_or(0, |chunk| chunk.bytes.len()))
            })?;
            ours.push(ns);
            bytes.0 = size;
            let (ns, size) = timed(&values, || peer_of_any_width(&values, &descr, &properties, column.kind))?;
            theirs.push(ns);
            bytes.1 = size;
        }
        let (ours, theirs) = (median(ours), median(theirs));
        if bytes.0 == 0 {
            println!("{:16} {:>9} {:>12.1} {:>7} {:>12} {:>12}", column.name, "refused", theirs, "", "", bytes.1);
            continue;
        }
        (ours_sum, theirs_sum) = (ours_sum + ours, theirs_sum + theirs);
        let ratio = theirs / ours;
        println!("{:16} {ours:>9.1} {theirs:>12.1} {ratio:>7.1} {:>12} {:>12}", column.name, bytes.0, bytes.1);
    }
    println!("{:16} {ours_sum:>9.1} {theirs_sum:>12.1} {:>7.1}", "all of a row", theirs_sum / ours_sum);
    Ok(())
}
