//! Batches of the accesses of an open trace that pass a filter.

use std::ops::Deref;

use numapilot_flows::{AccessRef, Cursor, Filter, Trace};
use numapilot_trace::tables::schema::ColumnType;

use crate::column::{Column, Field};
use crate::stream::{BATCH_ROWS, Batches};

/// Reader of a column's values, which also determines their type.
#[derive(Clone, Copy)]
enum Read {
    U64(fn(&AccessRef) -> Option<u64>),
    U32(fn(&AccessRef) -> Option<u32>),
    U16(fn(&AccessRef) -> Option<u16>),
    U8(fn(&AccessRef) -> Option<u8>),
    Bool(fn(&AccessRef) -> Option<bool>),
}

/// The columns: the row's number, `is_remote`, and columns with the names and meanings of the table `accesses` (docs/trace-format.md).
const COLUMNS: [(&str, bool, Read); 17] = [
    ("row", false, Read::U32(|access| Some(access.row))),
    ("time_ns", false, Read::U64(|access| Some(access.time.0))),
    ("thread", false, Read::U32(|access| Some(access.thread.0))),
    ("address", false, Read::U64(|access| Some(access.address.0))),
    ("object", true, Read::U32(|access| access.object.map(|object| object.0))),
    ("cpu", true, Read::U32(|access| access.cpu.map(|cpu| cpu.0))),
    ("node", true, Read::U16(|access| access.node.map(|node| node.0))),
    ("home", true, Read::U16(|access| access.home.map(|home| home.0))),
    ("is_remote", true, Read::Bool(AccessRef::is_remote)),
    ("is_write", false, Read::Bool(|access| Some(access.is_write))),
    ("is_atomic", false, Read::Bool(|access| Some(access.is_atomic))),
    ("is_range", false, Read::Bool(|access| Some(access.is_range))),
    ("level", false, Read::U8(|access| Some(access.level as u8))),
    ("latency_cycles", true, Read::U32(|access| access.latency_cycles)),
    ("location", false, Read::U32(|access| Some(access.location.0))),
    ("stack", false, Read::U32(|access| Some(access.stack.0))),
    ("weight", false, Read::U32(|access| Some(access.weight))),
];

/// Accesses that pass a filter, in order of program time, from a trace that this keeps in memory.
pub struct AccessBatches<T> {
    trace: T,
    cursor: Cursor,
    columns: Vec<(&'static str, bool, Read)>,
}

impl<T: Deref<Target = Trace> + Send> AccessBatches<T> {
    /// The accesses of `trace` that pass `filter`, with all columns.
    pub fn new(trace: T, filter: Filter) -> AccessBatches<T> {
        AccessBatches { trace, cursor: Cursor::new(filter), columns: COLUMNS.to_vec() }
    }

    /// Selects these columns, in this order.
    ///
    /// # Errors
    /// The first name that is not a column's.
    pub fn select<'n>(mut self, names: &[&'n str]) -> Result<AccessBatches<T>, &'n str> {
        let column = |&name: &&'n str| COLUMNS.iter().find(|column| column.0 == name).copied().ok_or(name);
        self.columns = names.iter().map(column).collect::<Result<_, _>>()?;
        Ok(self)
    }
}

/// Names of all columns, in order.
pub fn access_columns() -> impl Iterator<Item = &'static str> {
    COLUMNS.iter().map(|column| column.0)
}

impl<T: Deref<Target = Trace> + Send> Batches for AccessBatches<T> {
    fn fields(&self) -> Vec<Field> {
        let field = |&(name, is_nullable, read): &(&'static str, bool, Read)| {
            let kind = match read {
                Read::U64(_) => ColumnType::U64,
                Read::U32(_) => ColumnType::U32,
                Read::U16(_) => ColumnType::U16,
                Read::U8(_) => ColumnType::U8,
                Read::Bool(_) => ColumnType::Bool,
            };
            Field { name, kind, is_nullable }
        };
        self.columns.iter().map(field).collect()
    }

    fn next(&mut self) -> Result<Option<(usize, Vec<Column>)>, String> {
        let mut rows: Vec<AccessRef> = Vec::with_capacity(BATCH_ROWS);
        self.cursor.walk(&self.trace, |access| {
            rows.push(access);
            rows.len() < BATCH_ROWS
        });
        if rows.is_empty() {
            return Ok(None);
        }
        let column = |&(_, _, read): &(&str, bool, Read)| match read {
            Read::U64(of) => Column::u64s(rows.iter().map(of)),
            Read::U32(of) => Column::u32s(rows.iter().map(of)),
            Read::U16(of) => Column::u16s(rows.iter().map(of)),
            Read::U8(of) => Column::u8s(rows.iter().map(of)),
            Read::Bool(of) => Column::bools(rows.iter().map(of)),
        };
        Ok(Some((rows.len(), self.columns.iter().map(column).collect())))
    }
}
