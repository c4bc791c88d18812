//! Writing tables: to temporary names, synced, renamed; `meta.json` last, so that its presence means that everything is there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;

use super::TableError;
use super::element::ColumnOutput;
use super::rows::*;
use super::schema::{ROWS_PER_GROUP, parquet_schema, properties};
use crate::meta::{META_FILE, Meta, TableInfo};

const TEMPORARY: &str = "tmp";

/// Writes the tables of one trace. Tables that nothing was written to come out empty. Dropped without [`TraceWriter::finish`], it removes what
/// it wrote.
#[derive(Debug)]
pub struct TraceWriter {
    folder: PathBuf,
    done: BTreeMap<String, TableInfo>,
}

impl TraceWriter {
    /// Prepares `folder` (`NAME.numatrace`, made if it is not there); removes a `meta.json` in it, since the tables are about to change.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn create(folder: &Path) -> Result<TraceWriter, TableError> {
        std::fs::create_dir_all(folder).map_err(TableError::io("create", folder))?;
        let meta = folder.join(META_FILE);
        match std::fs::remove_file(&meta) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(TableError::io("remove", meta)(error));
            }
            _ => {}
        }
        Ok(TraceWriter { folder: folder.to_path_buf(), done: BTreeMap::new() })
    }

    /// Begins a table that is written in several batches; give it back with [`TraceWriter::close`].
    ///
    /// # Errors
    /// If the system refuses.
    pub fn open<T: Table>(&self) -> Result<TableWriter<T>, TableError> {
        if self.done.contains_key(T::NAME) {
            return Err(TableError::WrittenTwice(T::NAME));
        }
        TableWriter::create(&self.folder.join(format!("{}.parquet.{TEMPORARY}", T::NAME)))
    }

    /// Completes a table.
    ///
    /// # Errors
    /// If the system refuses (a full disk).
    pub fn close<T: Table>(&mut self, table: TableWriter<T>) -> Result<(), TableError> {
        let info = table.finish()?;
        self.done.insert(T::NAME.to_owned(), info);
        Ok(())
    }

    /// Writes a whole table.
    ///
    /// # Errors
    /// If the system refuses (a full disk).
    pub fn write<T: Table>(&mut self, columns: &T) -> Result<(), TableError> {
        let mut table = self.open::<T>()?;
        table.append(columns)?;
        self.close(table)
    }

    fn write_if_missing<T: Table>(&mut self) -> Result<(), TableError> {
        if self.done.contains_key(T::NAME) { Ok(()) } else { self.write(&T::default()) }
    }

    /// Renames all tables into place and writes `meta.json` (whose `tables` are filled in here).
    ///
    /// # Errors
    /// If the system refuses. There is no `meta.json` then.
    pub fn finish(mut self, mut meta: Meta) -> Result<Meta, TableError> {
        self.write_if_missing::<AccessColumns>()?;
        self.write_if_missing::<ObjectColumns>()?;
        self.write_if_missing::<ThreadColumns>()?;
        self.write_if_missing::<ProcessColumns>()?;
        self.write_if_missing::<ModuleColumns>()?;
        self.write_if_missing::<StackColumns>()?;
        self.write_if_missing::<FrameColumns>()?;
        self.write_if_missing::<PlacementColumns>()?;
        self.write_if_missing::<CounterColumns>()?;
        self.write_if_missing::<HomeCounterColumns>()?;
        self.write_if_missing::<SyncColumns>()?;
        self.write_if_missing::<LossColumns>()?;
        self.write_if_missing::<MarkColumns>()?;
        for name in self.done.keys() {
            let from = self.folder.join(format!("{name}.parquet.{TEMPORARY}"));
            let to = self.folder.join(format!("{name}.parquet"));
            std::fs::rename(&from, &to).map_err(TableError::io("rename", from))?;
        }
        meta.tables = std::mem::take(&mut self.done);
        meta.write(&self.folder)?;
        Ok(meta)
    }
}

impl Drop for TraceWriter {
    fn drop(&mut self) {
        for name in self.done.keys() {
            let path = self.folder.join(format!("{name}.parquet.{TEMPORARY}"));
            // Nothing more can be done about a file that stays: it has a temporary name and nobody reads it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Writes one table.
pub struct TableWriter<T> {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
    rows: u64,
    table: PhantomData<fn(&T)>,
}

impl<T: Table> TableWriter<T> {
    /// Creates the file `path`, replacing one that is there.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn create(path: &Path) -> Result<TableWriter<T>, TableError> {
        let options = File::options().read(true).write(true).create(true).truncate(true).open(path);
        let file = options.map_err(TableError::io("create", path))?;
        let schema = parquet_schema(T::NAME, T::COLUMNS).map_err(encode(path))?;
        let properties = Arc::new(properties(T::COLUMNS).map_err(encode(path))?);
        let writer = SerializedFileWriter::new(file, schema, properties).map_err(encode(path))?;
        Ok(TableWriter { path: path.to_path_buf(), writer, rows: 0, table: PhantomData })
    }

    /// Appends rows as row groups of their own of at most [`ROWS_PER_GROUP`] rows: append many at once.
    ///
    /// # Errors
    /// If the system refuses (a full disk), or the columns have different lengths.
    pub fn append(&mut self, columns: &T) -> Result<(), TableError> {
        if !columns.is_even() {
            let why = "the columns have different lengths".to_owned();
            return Err(TableError::Encode { path: self.path.clone(), why });
        }
        let mut start = 0;
        while start < columns.len() {
            let end = columns.len().min(start + ROWS_PER_GROUP);
            self.group(columns, start..end).map_err(encode(&self.path))?;
            start = end;
        }
        self.rows += columns.len() as u64;
        Ok(())
    }

    fn group(&mut self, columns: &T, rows: std::ops::Range<usize>) -> parquet::errors::Result<()> {
        let mut group = self.writer.next_row_group()?;
        let mut index = 0;
        while let Some(column) = group.next_column()? {
            let mut output = ColumnOutput(column);
            columns.write_column(index, rows.clone(), &mut output)?;
            output.0.close()?;
            index += 1;
        }
        group.close()?;
        Ok(())
    }

    /// Completes the file and syncs it.
    ///
    /// # Errors
    /// If the system refuses (a full disk).
    pub fn finish(self) -> Result<TableInfo, TableError> {
        let path = self.path;
        let file = self.writer.into_inner().map_err(encode(&path))?;
        file.sync_all().map_err(TableError::io("sync", &path))?;
        let (bytes, crc32) = checksum(&path)?;
        Ok(TableInfo { rows: self.rows, bytes, crc32 })
    }
}

/// Size and CRC-32 of a file.
pub(super) fn checksum(path: &Path) -> Result<(u64, u32), TableError> {
    let mut file = File::open(path).map_err(TableError::io("open", path))?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 256 << 10];
    let mut total = 0;
    loop {
        let bytes = file.read(&mut buffer).map_err(TableError::io("read", path))?;
        if bytes == 0 {
            return Ok((total, hasher.finalize()));
        }
        hasher.update(&buffer[..bytes]);
        total += bytes as u64;
    }
}

fn encode(path: &Path) -> impl Fn(ParquetError) -> TableError + '_ {
    move |error| TableError::Encode { path: path.to_path_buf(), why: error.to_string() }
}
