//! Batches of the tables of a trace on disk (docs/trace-format.md), read one row group at a time.

use std::path::Path;

use numapilot_trace::tables::schema::Column as Described;
use numapilot_trace::tables::{
    AccessColumns, Cells, CounterColumns, FrameColumns, HomeCounterColumns, LossColumns, MarkColumns, ModuleColumns,
    ObjectColumns, PlacementColumns, ProcessColumns, StackColumns, SyncColumns, Table, TableError, TableReader,
    ThreadColumns, TraceReader, Values,
};

use crate::column::{Column, Field};
use crate::stream::{BATCH_ROWS, Batches};

type Opener = fn(&TraceReader) -> Result<Box<dyn Batches>, TableError>;

/// Every table: its name, its columns, and the function that opens it.
const TABLES: [(&str, &[Described], Opener); 13] = [
    entry::<AccessColumns>(),
    entry::<ObjectColumns>(),
    entry::<ThreadColumns>(),
    entry::<ProcessColumns>(),
    entry::<ModuleColumns>(),
    entry::<StackColumns>(),
    entry::<FrameColumns>(),
    entry::<PlacementColumns>(),
    entry::<CounterColumns>(),
    entry::<HomeCounterColumns>(),
    entry::<SyncColumns>(),
    entry::<LossColumns>(),
    entry::<MarkColumns>(),
];

const fn entry<T: Table + 'static>() -> (&'static str, &'static [Described], Opener) {
    (T::NAME, T::COLUMNS, |reader| {
        Ok(Box::new(TableBatches::<T> { reader: reader.table()?, group: T::default(), next: 0 }))
    })
}

/// Names of all tables.
pub fn table_names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|table| table.0)
}

/// The columns of a table; `None` if there is no table of that name.
#[must_use]
pub fn table_fields(name: &str) -> Option<Vec<Field>> {
    let table = TABLES.iter().find(|table| table.0 == name)?;
    Some(table.1.iter().map(field).collect())
}

/// Opens a table of the trace in this folder, after checking its size and checksum; `None` if there is no table of that name.
///
/// # Errors
/// If the table's file is missing, changed or damaged.
pub fn table(folder: &Path, name: &str) -> Option<Result<Box<dyn Batches>, TableError>> {
    let open = TABLES.iter().find(|table| table.0 == name)?.2;
    Some(TraceReader::open(folder).and_then(|reader| open(&reader)))
}

struct TableBatches<T> {
    reader: TableReader<T>,
    group: T,
    next: usize,
}

impl<T: Table> Batches for TableBatches<T> {
    fn fields(&self) -> Vec<Field> {
        T::COLUMNS.iter().map(field).collect()
    }

    fn next(&mut self) -> Result<Option<(usize, Vec<Column>)>, String> {
        while self.next == self.group.len() {
            match self.reader.next_group().map_err(|error| error.to_string())? {
                Some(group) => self.group = group,
                None => return Ok(None),
            }
            self.next = 0;
        }
        let rows = self.next..self.group.len().min(self.next + BATCH_ROWS);
        self.next = rows.end;
        let columns = (0..T::COLUMNS.len()).filter_map(|column| self.group.values(column, rows.clone())).map(values);
        Ok(Some((rows.len(), columns.collect())))
    }
}

fn field(column: &Described) -> Field {
    Field { name: column.name, kind: column.kind, is_nullable: column.nullable }
}

fn values(values: Values<'_>) -> Column {
    match values {
        Values::Bool(Cells::All(cells)) => Column::bools(cells.iter().copied().map(Some)),
        Values::Bool(Cells::Some(cells)) => Column::bools(cells.iter().copied()),
        Values::U8(Cells::All(cells)) => Column::u8s(cells.iter().copied().map(Some)),
        Values::U8(Cells::Some(cells)) => Column::u8s(cells.iter().copied()),
        Values::U16(Cells::All(cells)) => Column::u16s(cells.iter().copied().map(Some)),
        Values::U16(Cells::Some(cells)) => Column::u16s(cells.iter().copied()),
        Values::U32(Cells::All(cells)) => Column::u32s(cells.iter().copied().map(Some)),
        Values::U32(Cells::Some(cells)) => Column::u32s(cells.iter().copied()),
        Values::U64(Cells::All(cells)) => Column::u64s(cells.iter().copied().map(Some)),
        Values::U64(Cells::Some(cells)) => Column::u64s(cells.iter().copied()),
        Values::Text(Cells::All(cells)) => Column::texts(cells.iter().map(Some)),
        Values::Text(Cells::Some(cells)) => Column::texts(cells.iter().map(Option::as_ref)),
    }
}
