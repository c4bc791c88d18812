//! Reads tables. It checks the file's size and checksum first, then the Parquet structure, then each column's type and each value's range.

use std::fs::File;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::Repetition;
use parquet::column::reader::get_column_reader;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};

use super::TableError;
use super::element::{ColumnInput, ReadFault, Strings};
use super::held::Held;
use super::pages::CheckedPages;
use super::rows::Table;
use super::schema::{Column, ROWS_PER_GROUP};
use super::write::checksum;
use crate::chunk::{Activity, activity};
use crate::meta::{META_FILE, Meta, TableInfo};
use crate::name;

/// Most memory that a row group's columns take, in bytes, because a few bytes can claim billions of nulls or of equal values. The writer makes groups of at
/// most [`ROWS_PER_GROUP`] rows: some 90 MB of accesses, some 230 MB of objects.
const GROUP_BYTES_MAX: u64 = 512 << 20;

/// Memory that a table may take whatever the size of its file, in bytes. A larger one has [`ROWS_PER_BYTE_MAX`] rows for each byte of its file at most.
const TABLE_BYTES_MAX: u64 = 1 << 30;
/// Rows of a recording have a time or an order that no rule foretells, which takes a byte or more of each; rows that are all equal take none.
const ROWS_PER_BYTE_MAX: u64 = 4;
/// Longest footer that is read, in bytes: it takes some thirty times as much memory. The 4 billion rows that a table can have need 14 MB.
const FOOTER_BYTES_MAX: u64 = 32 << 20;

/// Memory that a row of a table takes, in bytes; the texts themselves, which rows share, not counted.
fn row_bytes(columns: &[Column]) -> u64 {
    columns.iter().map(Column::memory_bytes).sum()
}

/// Most rows of a row group that is read: what [`GROUP_BYTES_MAX`] holds, and what the writer makes.
fn rows_max(columns: &[Column]) -> usize {
    let held = usize::try_from(GROUP_BYTES_MAX / row_bytes(columns).max(1)).unwrap_or(usize::MAX);
    held.clamp(ROWS_PER_GROUP, 16 * ROWS_PER_GROUP)
}

/// Most rows of a table whose file has this many bytes.
fn table_rows_max(columns: &[Column], file_bytes: u64) -> u64 {
    (TABLE_BYTES_MAX / row_bytes(columns).max(1)).max(file_bytes.saturating_mul(ROWS_PER_BYTE_MAX))
}

/// A table's footer; a longer one than any table needs is refused before it is read.
pub(super) fn read_footer(file: &Held, path: &Path) -> Result<ParquetMetaData, TableError> {
    let damaged = |why: String| TableError::Damaged { path: path.to_path_buf(), why };
    let bytes = file.footer_bytes().map_err(TableError::io("read", path))?;
    if bytes > FOOTER_BYTES_MAX {
        return Err(damaged(format!("has a footer of {bytes} bytes, and at most {FOOTER_BYTES_MAX} are read")));
    }
    guarded(|| Ok(ParquetMetaDataReader::new().parse_and_finish(file)?)).map_err(|fault| damaged(fault.to_string()))
}

/// For each of a table's columns, its position in the file; `None` for a nullable column that the file lacks.
pub(super) fn find_columns(
    footer: &ParquetMetaData,
    columns: &[Column],
    path: &Path,
) -> Result<Vec<Option<usize>>, TableError> {
    let schema = footer.file_metadata().schema_descr();
    let mut positions = Vec::with_capacity(columns.len());
    for wanted in columns {
        let bad = |why: &str| TableError::Column { path: path.to_path_buf(), column: wanted.name, why: why.into() };
        let position = schema.columns().iter().position(|column| column.path().parts() == [wanted.name]);
        if position.is_none() && wanted.nullable {
            positions.push(None);
            continue;
        }
        let position = position.ok_or_else(|| bad("is missing"))?;
        let column = schema.column(position);
        let nullable = match column.self_type().get_basic_info().repetition() {
            Repetition::REPEATED => return Err(bad("holds lists")),
            repetition => repetition == Repetition::OPTIONAL,
        };
        if column.physical_type() != wanted.physical() || nullable != wanted.nullable {
            return Err(bad("has another type"));
        }
        positions.push(Some(position));
    }
    Ok(positions)
}

/// Number of rows of all row groups, by the footer.
pub(super) fn row_count(footer: &ParquetMetaData) -> u64 {
    let rows = footer.row_groups().iter().map(|group| group.num_rows().max(0) as u64);
    rows.fold(0, u64::saturating_add)
}

/// Checks the number of rows in a table's footer against its entry in `meta.json`, and against what so many bytes can hold.
pub(super) fn check_rows(rows: u64, info: TableInfo, columns: &[Column]) -> Result<(), String> {
    if rows != info.rows {
        return Err(format!("has {rows} rows instead of {}", info.rows));
    }
    let most = table_rows_max(columns, info.bytes);
    if rows > most {
        let bytes = info.bytes;
        return Err(format!("claims {rows} rows in {bytes} bytes, and at most {most} are read from so few"));
    }
    Ok(())
}

/// Number of rows of a row group, if so many can be read at once; `table` and `number` are for the message.
pub(super) fn group_rows(
    group: &RowGroupMetaData,
    (table, number): (&str, usize),
    columns: &[Column],
) -> Result<usize, String> {
    let rows = usize::try_from(group.num_rows()).map_err(|_| "has a negative row count".to_owned())?;
    let most = rows_max(columns);
    if rows > most {
        return Err(format!(
            "row group {number} of table `{table}` claims {rows} rows, and at most {most} are read at once"
        ));
    }
    Ok(rows)
}

/// A finished trace, opened for reading.
#[derive(Debug)]
pub struct TraceReader {
    folder: PathBuf,
    meta: Meta,
}

impl TraceReader {
    /// Opens the folder `NAME.numatrace`; the extension may be omitted.
    ///
    /// # Errors
    /// If it has no `meta.json` (its tables are not complete), or one that cannot be read.
    pub fn open(folder: &Path) -> Result<TraceReader, TableError> {
        let folder = &name::find(folder);
        if !folder.join(META_FILE).exists() {
            if matches!(activity(folder), Activity::Recording(_) | Activity::Unknown(_)) {
                return Err(TableError::StillRecording(folder.to_path_buf()));
            }
            return Err(TableError::NotComplete(folder.to_path_buf()));
        }
        Ok(TraceReader { folder: folder.to_path_buf(), meta: Meta::read(folder)? })
    }

    /// As [`TraceReader::open`], for a reader of many traces: what it knows of each is the [`Meta::brief`] part.
    ///
    /// # Errors
    /// As [`TraceReader::open`].
    pub fn open_brief(folder: &Path) -> Result<TraceReader, TableError> {
        let TraceReader { folder, meta } = TraceReader::open(folder)?;
        Ok(TraceReader { folder, meta: meta.brief() })
    }

    /// What is known about the recording as a whole.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Opens a table, after checking its size and checksum.
    ///
    /// # Errors
    /// If the file is missing, changed, damaged or lacks a column.
    pub fn table<T: Table>(&self) -> Result<TableReader<T>, TableError> {
        let (path, file, info) = self.checked(T::NAME)?;
        let reader = TableReader::of(file, &path)?;
        check_rows(reader.rows(), info, T::COLUMNS).map_err(|why| TableError::Damaged { path, why })?;
        Ok(reader)
    }

    /// A table's file: its path, the file itself, and its entry in `meta.json`, against which the file's size and checksum are checked. For other Parquet
    /// readers, which should read that file, or see that the path still leads to it: a trace may be replaced at any time. The checksum proves no good will:
    /// [`TraceReader::checked_for_engines`] is for readers that take as much memory as a file claims.
    ///
    /// # Errors
    /// If `meta.json` does not list it, or the file is missing, changed or damaged.
    pub fn checked(&self, table: &str) -> Result<(PathBuf, File, TableInfo), TableError> {
        let path = self.folder.join(format!("{table}.parquet"));
        let damaged = |why: String| TableError::Damaged { path: path.clone(), why };
        let Some(&info) = self.meta.tables.get(table) else {
            return Err(damaged("meta.json does not list it".into()));
        };
        // What the system refuses to read for now (rights, too many open files) need not be damaged.
        let unreadable = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => damaged(format!("cannot be read ({error})")),
            _ => TableError::io("read", &path)(error),
        };
        // To open something else, such as a pipe, could wait for ever.
        if !std::fs::metadata(&path).map_err(unreadable)?.is_file() {
            return Err(damaged("is no regular file".into()));
        }
        let file = File::open(&path).map_err(unreadable)?;
        let bytes = file.metadata().map_err(unreadable)?.len();
        if bytes != info.bytes {
            return Err(damaged(format!("has {bytes} bytes instead of {}", info.bytes)));
        }
        if checksum(&file, &path)?.1 != info.crc32 {
            return Err(damaged("was changed since it was written (its checksum differs)".into()));
        }
        Ok((path, file, info))
    }

    /// Reads a whole table into memory.
    ///
    /// # Errors
    /// If the file is missing, changed, damaged or lacks a column.
    pub fn read<T: Table>(&self) -> Result<T, TableError> {
        self.table()?.read_all()
    }
}

/// Reads one table, a row group at a time.
pub struct TableReader<T> {
    path: PathBuf,
    file: Arc<Held>,
    footer: Arc<ParquetMetaData>,
    /// For each column of the table, its position in the file; `None` for a nullable column that an older file lacks.
    positions: Vec<Option<usize>>,
    next: usize,
    rows: u64,
    strings: Strings,
    table: PhantomData<fn() -> T>,
}

impl<T: Table> TableReader<T> {
    /// Opens a file without checking it against a `meta.json`. Columns that the table does not know are ignored; a nullable column
    /// that the file lacks (an older file) reads as nulls.
    ///
    /// # Errors
    /// If it is not Parquet, or lacks a column that cannot be null.
    pub fn open(path: &Path) -> Result<TableReader<T>, TableError> {
        TableReader::of(File::open(path).map_err(TableError::io("open", path))?, path)
    }

    /// Opens a file that is open already; `path` is its name in errors.
    fn of(file: File, path: &Path) -> Result<TableReader<T>, TableError> {
        let file = Held::new(file).map_err(TableError::io("read", path))?;
        let footer = read_footer(&file, path)?;
        let positions = find_columns(&footer, T::COLUMNS, path)?;
        Ok(TableReader {
            path: path.to_path_buf(),
            file: Arc::new(file),
            rows: row_count(&footer),
            footer: Arc::new(footer),
            positions,
            next: 0,
            strings: Strings::default(),
            table: PhantomData,
        })
    }

    /// Number of rows of all row groups, from the file's footer.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Number of row groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.footer.num_row_groups()
    }

    /// Memory that the largest row group takes when it is read, in bytes, by what the file says; the texts themselves, which rows share, not counted.
    #[must_use]
    pub fn largest_group_bytes(&self) -> u64 {
        let rows = self.footer.row_groups().iter().map(|group| group.num_rows().max(0) as u64);
        rows.max().unwrap_or(0).saturating_mul(row_bytes(T::COLUMNS))
    }

    /// Another reader of the same open file, from its first row group on: several can read it at the same time.
    #[must_use]
    pub fn another(&self) -> TableReader<T> {
        TableReader {
            path: self.path.clone(),
            file: Arc::clone(&self.file),
            footer: Arc::clone(&self.footer),
            positions: self.positions.clone(),
            next: 0,
            rows: self.rows,
            strings: Strings::default(),
            table: PhantomData,
        }
    }

    /// Reads the row group of this number, from 0; `None` if there are not so many. [`TableReader::next_group`] goes on behind it.
    ///
    /// # Errors
    /// If the row group is damaged.
    pub fn group(&mut self, number: usize) -> Result<Option<T>, TableError> {
        self.next = number;
        self.next_group()
    }

    /// Reads the next row group; `None` after the last.
    ///
    /// # Errors
    /// If the row group is damaged.
    pub fn next_group(&mut self) -> Result<Option<T>, TableError> {
        let mut columns = T::default();
        Ok(self.group_into(&mut columns)?.then_some(columns))
    }

    /// Reads all remaining rows.
    ///
    /// # Errors
    /// If a row group is damaged.
    pub fn read_all(mut self) -> Result<T, TableError> {
        let mut columns = T::default();
        while self.group_into(&mut columns)? {}
        Ok(columns)
    }

    fn group_into(&mut self, columns: &mut T) -> Result<bool, TableError> {
        let Some(group) = self.footer.row_groups().get(self.next) else { return Ok(false) };
        let before = columns.len();
        let damaged = |why: String| TableError::Damaged { path: self.path.clone(), why };
        let rows = group_rows(group, (T::NAME, self.next), T::COLUMNS).map_err(damaged)?;
        for (index, column) in T::COLUMNS.iter().enumerate() {
            let Some(position) = self.positions[index] else {
                columns.fill_column(index, rows);
                continue;
            };
            let pages = (&self.file, group, position);
            read_column(pages, rows, &mut self.strings, index, columns).map_err(|fault| match fault {
                ReadFault::Parquet(error) => {
                    damaged(format!("column `{}` of row group {}: {error}", column.name, self.next))
                }
                ReadFault::Value(why) => TableError::Column { path: self.path.clone(), column: column.name, why },
            })?;
        }
        if !columns.is_even() || columns.len() != before + rows {
            return Err(damaged(format!("row group {} has columns of different lengths", self.next)));
        }
        self.next += 1;
        Ok(true)
    }
}

fn read_column<T: Table>(
    (file, group, position): (&Arc<Held>, &RowGroupMetaData, usize),
    rows: usize,
    strings: &mut Strings,
    index: usize,
    columns: &mut T,
) -> Result<(), ReadFault> {
    guarded(|| {
        let pages = CheckedPages::new(file, group.column(position), rows, T::COLUMNS[index].page_bytes_max(rows))?;
        let reader = get_column_reader(group.schema_descr().column(position), pages);
        columns.read_column(index, &mut ColumnInput { reader, rows, strings })
    })
}

/// Runs a part of the Parquet reader, and converts a panic to an error: it may panic on damaged pages. The checksum protects a trace's tables from that, but
/// [`TableReader::open`] reads a file without a checksum.
fn guarded<R>(run: impl FnOnce() -> Result<R, ReadFault>) -> Result<R, ReadFault> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(ReadFault::Value("holds a page that cannot be decoded".into())))
}

#[cfg(test)]
pub(super) mod tests {
    //! Tables, row groups and footers that claim more than they can have.

    use std::os::unix::fs::FileExt;

    use parquet::file::writer::SerializedFileWriter;

    use super::*;
    use crate::tables::element::ColumnOutput;
    use crate::tables::rows::{StackColumns, StackRow, all_tables};
    use crate::tables::schema::{parquet_schema, properties};

    /// Writes a table of two row groups of a row each, of which the second claims to have `claimed`.
    pub(in crate::tables) fn write_claiming(path: &Path, claimed: u64) {
        let mut stacks = StackColumns::default();
        stacks.push(StackRow { stack: 1, ..StackRow::default() });
        let schema = parquet_schema(StackColumns::NAME, StackColumns::COLUMNS).unwrap();
        let properties = Arc::new(properties(StackColumns::COLUMNS).unwrap());
        let file = File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, properties.clone()).unwrap();
        let descr = writer.schema_descr().columns().to_vec();
        for rows in [1, claimed] {
            let mut group = writer.next_row_group().unwrap();
            for (index, column) in StackColumns::COLUMNS.iter().enumerate() {
                let (descr, properties) = (descr[index].clone(), properties.clone());
                let mut output = ColumnOutput { descr, properties, encoding: column.encoding, chunk: None };
                stacks.write_column(index, 0..1, &mut output).unwrap();
                let mut chunk = output.chunk.unwrap();
                chunk.close.rows_written = rows;
                group.append_column(&chunk.bytes, chunk.close).unwrap();
            }
            group.close().unwrap();
        }
        writer.close().unwrap();
    }

    #[test]
    fn a_row_group_that_claims_too_many_rows_is_named_before_memory_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stacks.parquet");
        write_claiming(&path, 1);
        assert_eq!(TableReader::<StackColumns>::open(&path).unwrap().read_all().unwrap().len(), 2);
        // 16 million stacks of 19 bytes are within the limit of bytes.
        for claimed in [16 * ROWS_PER_GROUP as u64 + 1, 1 << 40] {
            write_claiming(&path, claimed);
            let mut reader = TableReader::<StackColumns>::open(&path).unwrap();
            assert_eq!(reader.next_group().unwrap().unwrap().len(), 1, "the first is sound");
            let message = reader.next_group().unwrap_err().to_string();
            let what = format!("row group 1 of table `stacks` claims {claimed} rows");
            assert!(message.contains("stacks.parquet") && message.contains(&what), "{message}");
        }
    }

    #[test]
    fn a_row_group_of_any_table_takes_bounded_memory_and_those_of_the_writer_are_read() {
        for (table, columns) in all_tables() {
            let rows = rows_max(columns);
            assert!(rows >= ROWS_PER_GROUP, "{table}: {rows} rows");
            assert!(rows as u64 * row_bytes(columns) <= GROUP_BYTES_MAX, "{table}: {rows} rows");
        }
    }

    #[test]
    fn a_table_that_claims_too_many_rows_for_its_file_is_refused_before_they_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stacks.parquet");
        let open = |claimed: u64| {
            write_claiming(&path, claimed);
            let (bytes, crc32) = checksum(File::open(&path).unwrap(), &path).unwrap();
            let info = TableInfo { rows: claimed + 1, bytes, crc32 };
            Meta { tables: [("stacks".to_owned(), info)].into(), ..Meta::default() }.write(folder.path()).unwrap();
            TraceReader::open(folder.path()).unwrap().table::<StackColumns>()
        };
        assert_eq!(open(1).unwrap().rows(), 2);
        let most = TABLE_BYTES_MAX / row_bytes(StackColumns::COLUMNS);
        assert_eq!(open(most - 1).unwrap().rows(), most);
        for claimed in [most, 1 << 40] {
            let message = open(claimed).err().unwrap().to_string();
            let what = format!("claims {} rows in", claimed + 1);
            assert!(message.contains("stacks.parquet") && message.contains(&what), "{message}");
        }
        // The four billion accesses that a trace has at most take tens of gigabytes; one is enough.
        let accesses = all_tables()[0].1;
        assert!(table_rows_max(accesses, 1 << 30) >= u64::from(u32::MAX));
    }

    /// Writes a file of which all but the end, which claims too long a footer, is a hole.
    pub(in crate::tables) fn write_long_footer(path: &Path) {
        let length = FOOTER_BYTES_MAX as u32 + 1;
        let tail = [&length.to_le_bytes()[..], b"PAR1"].concat();
        File::create(path).unwrap().write_all_at(&tail, u64::from(length) + 4).unwrap();
    }

    #[test]
    fn a_signal_makes_no_file_unreadable() {
        /// Gives one byte, between a signal and the end.
        struct Signalled(u8);
        impl std::io::Read for Signalled {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.0 += 1;
                match self.0 {
                    1 => Err(std::io::ErrorKind::Interrupted.into()),
                    2 => {
                        buffer[0] = b'x';
                        Ok(1)
                    }
                    _ => Ok(0),
                }
            }
        }
        assert_eq!(checksum(Signalled(0), Path::new("x")).unwrap(), (1, crc32fast::hash(b"x")));
    }

    #[test]
    fn a_footer_that_would_take_too_much_memory_is_refused_before_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stacks.parquet");
        write_long_footer(&path);
        let message = TableReader::<StackColumns>::open(&path).err().unwrap().to_string();
        assert!(message.contains("stacks.parquet: has a footer of 33554433 bytes"), "{message}");
    }
}
