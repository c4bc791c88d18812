//! Writes tables under temporary names, syncs and renames them, and writes `meta.json` last: its presence means that all tables are complete.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::marker::PhantomData;
use std::num::NonZero;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use numapilot_host::workers;
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnDescPtr;

use super::TableError;
use super::element::ColumnOutput;
use super::rows::*;
use super::schema::{ROWS_PER_GROUP, parquet_schema, properties};
use crate::meta::{META_FILE, Meta, TableInfo};

/// Rows of a group from which several threads encode it.
const ROWS_PER_THREAD: usize = 1 << 14;

/// Which failures a finished trace survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A power failure: every table is on the disk before `meta.json` is written.
    Synced,
    /// The end of this process. After a power failure a table may be missing or truncated, which the checksum in `meta.json` detects. For traces that can be
    /// made again.
    Written,
}

/// Lock on a trace's folder, so that one process at a time writes its tables: `report` may open a recording whose recorder is about to write them. Released
/// when it is dropped.
#[derive(Debug)]
pub struct FolderLock {
    folder: PathBuf,
    /// The locked folder; `None` if it did not exist, or the file system supports no locks. Each writer then still has temporary names of its own.
    held: Option<File>,
}

impl FolderLock {
    /// Locks `folder` (`NAME.numatrace`), and waits while another process holds the lock. A folder that does not exist yet is not locked.
    #[must_use]
    pub fn take(folder: &Path) -> FolderLock {
        let held = File::open(folder).ok().filter(|file| file.lock().is_ok());
        FolderLock { folder: folder.to_path_buf(), held }
    }
}

impl Drop for FolderLock {
    /// To close the folder is not enough: a process that was forked meanwhile has it open, too.
    fn drop(&mut self) {
        if let Some(held) = &self.held {
            let _ = held.unlock();
        }
    }
}

/// Writes the tables of one trace. Tables to which nothing was written are empty. Dropping it without [`TraceWriter::finish`] removes the files
/// that it wrote.
#[derive(Debug)]
pub struct TraceWriter {
    folder: PathBuf,
    _lock: FolderLock,
    durability: Durability,
    done: BTreeMap<String, TableInfo>,
    /// Files of completed tables that are yet to be synced, with their paths.
    unsynced: Vec<(PathBuf, File)>,
}

impl TraceWriter {
    /// Creates the folder if it does not exist. Removes its `meta.json`, because the tables are about to change, and the temporary files of writers that
    /// were killed.
    ///
    /// # Errors
    /// If the folder cannot be created or changed.
    pub fn create(lock: FolderLock, durability: Durability) -> Result<TraceWriter, TableError> {
        let folder = lock.folder.clone();
        std::fs::create_dir_all(&folder).map_err(TableError::io("create", &folder))?;
        let meta = folder.join(META_FILE);
        match std::fs::remove_file(&meta) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(TableError::io("remove", meta)(error));
            }
            _ => {}
        }
        if lock.held.is_some() {
            remove_temporaries(&folder, "tmp");
        }
        Ok(TraceWriter { folder, _lock: lock, durability, done: BTreeMap::new(), unsynced: Vec::new() })
    }

    /// Starts a table that is written in several batches. Complete it with [`TraceWriter::close`].
    ///
    /// # Errors
    /// If the table was already written, or its file cannot be created.
    pub fn open<T: Table>(&self) -> Result<TableWriter<T>, TableError> {
        if self.done.contains_key(T::NAME) {
            return Err(TableError::WrittenTwice(T::NAME));
        }
        TableWriter::create(&self.temporary(T::NAME))
    }

    /// Completes a table that [`TraceWriter::open`] started.
    ///
    /// # Errors
    /// If writing fails (a full disk).
    pub fn close<T: Table>(&mut self, table: TableWriter<T>) -> Result<(), TableError> {
        let path = table.path.clone();
        let (info, file) = table.complete()?;
        if self.durability == Durability::Synced {
            self.unsynced.push((path, file));
        }
        self.done.insert(T::NAME.to_owned(), info);
        Ok(())
    }

    /// Writes a whole table from memory.
    ///
    /// # Errors
    /// If the table was already written, or writing fails (a full disk).
    pub fn write<T: Table>(&mut self, columns: &T) -> Result<(), TableError> {
        let mut table = self.open::<T>()?;
        table.append(columns)?;
        self.close(table)
    }

    /// Temporary name of a table, which differs between processes.
    fn temporary(&self, table: &str) -> PathBuf {
        self.folder.join(format!("{table}.parquet.{}", own_suffix()))
    }

    fn write_if_missing<T: Table>(&mut self) -> Result<(), TableError> {
        if self.done.contains_key(T::NAME) { Ok(()) } else { self.write(&T::default()) }
    }

    /// Syncs all tables if asked to, renames them into place and writes `meta.json` (whose `tables` are filled in here).
    ///
    /// # Errors
    /// If writing, syncing or renaming fails. There is no `meta.json` then.
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
        // All of them in a row: what the first one has the disk do serves most of the others, too.
        for (path, file) in std::mem::take(&mut self.unsynced) {
            file.sync_all().map_err(TableError::io("sync", path))?;
        }
        for name in self.done.keys() {
            let from = self.temporary(name);
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
        remove_temporaries(&self.folder, &own_suffix());
    }
}

/// Suffix of the names of this process's temporary files.
fn own_suffix() -> String {
    format!("{}.tmp", std::process::id())
}

/// Whether a writer gives a table's file, or that of the metadata, this name while it writes it: `TABLE.parquet.PID.tmp`, `meta.json.PID.tmp`.
pub(crate) fn is_temporary(name: &str) -> bool {
    let is_of_meta = name.strip_prefix(META_FILE).is_some_and(|rest| rest.starts_with('.'));
    (name.contains(".parquet.") || is_of_meta) && name.ends_with(".tmp")
}

/// Removes temporary files of writers. A failure is ignored, because no reader opens a file of such a name.
fn remove_temporaries(folder: &Path, suffix: &str) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if is_temporary(&name) && name.ends_with(&format!(".{suffix}")) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Writes one table, in row groups.
pub struct TableWriter<T> {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
    rows: u64,
    table: PhantomData<fn(&T)>,
}

impl<T: Table> TableWriter<T> {
    /// Creates the file `path`, or replaces it.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: &Path) -> Result<TableWriter<T>, TableError> {
        let options = File::options().read(true).write(true).create(true).truncate(true).open(path);
        let file = options.map_err(TableError::io("create", path))?;
        let schema = parquet_schema(T::NAME, T::COLUMNS).map_err(encode(path))?;
        let properties = Arc::new(properties(T::COLUMNS).map_err(encode(path))?);
        let writer = SerializedFileWriter::new(file, schema, properties).map_err(encode(path))?;
        Ok(TableWriter { path: path.to_path_buf(), writer, rows: 0, table: PhantomData })
    }

    /// Appends rows as new row groups of at most [`ROWS_PER_GROUP`] rows; small batches make small groups, so append many rows at once.
    ///
    /// # Errors
    /// If writing fails (a full disk), or the columns have different lengths.
    pub fn append(&mut self, columns: &T) -> Result<(), TableError> {
        self.append_rows(columns, 0..columns.len())
    }

    /// Appends the rows `rows` of `columns`, as [`TableWriter::append`] does.
    ///
    /// # Errors
    /// If writing fails, the columns have different lengths, or `rows` ends beyond them.
    pub fn append_rows(&mut self, columns: &T, rows: Range<usize>) -> Result<(), TableError> {
        if !columns.is_even() || rows.end > columns.len() {
            let why = "the columns have different lengths".to_owned();
            return Err(TableError::Encode { path: self.path.clone(), why });
        }
        let mut start = rows.start;
        while start < rows.end {
            let end = rows.end.min(start + ROWS_PER_GROUP);
            self.group(columns, start..end).map_err(encode(&self.path))?;
            start = end;
        }
        self.rows += rows.len() as u64;
        Ok(())
    }

    /// Writes a row group: its columns are encoded in memory, in parallel if the group is large enough, and written one after the other.
    fn group(&mut self, columns: &T, rows: Range<usize>) -> parquet::errors::Result<()> {
        let threads = if rows.len() < ROWS_PER_THREAD { 1 } else { available_parallelism().map_or(1, NonZero::get) };
        let descr: Vec<ColumnDescPtr> = self.writer.schema_descr().columns().to_vec();
        let properties = self.writer.properties().clone();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let (Some(descr), Some(column)) = (descr.get(index), T::COLUMNS.get(index)) else { return done };
                let (descr, properties) = (descr.clone(), properties.clone());
                let mut output = ColumnOutput { descr, properties, encoding: column.encoding, chunk: None };
                let result = columns.write_column(index, rows.clone(), &mut output);
                done.push((index, result.map(|()| output.chunk)));
            }
        };
        let done = workers::together(threads.min(descr.len()), work);
        // A thread that panicked encodes no columns, which the check below finds.
        let mut encoded: Vec<_> = done.into_iter().flat_map(Result::unwrap_or_default).collect();
        encoded.sort_by_key(|(index, _)| *index);
        let mut group = self.writer.next_row_group()?;
        for (_, chunk) in encoded {
            let chunk = chunk?.ok_or_else(|| ParquetError::General("a column was not encoded".to_owned()))?;
            group.append_column(&chunk.bytes, chunk.close)?;
        }
        group.close()?;
        Ok(())
    }

    /// Completes the file, and returns its rows, size and checksum.
    ///
    /// # Errors
    /// If writing fails (a full disk).
    pub fn finish(self, durability: Durability) -> Result<TableInfo, TableError> {
        let path = self.path.clone();
        let (info, file) = self.complete()?;
        if durability == Durability::Synced {
            file.sync_all().map_err(TableError::io("sync", path))?;
        }
        Ok(info)
    }

    /// Completes the file without syncing it, and returns it with its rows, size and checksum.
    fn complete(self) -> Result<(TableInfo, File), TableError> {
        let TableWriter { path, mut writer, rows, .. } = self;
        // `into_inner` would not give the system's reason why the last bytes cannot be written.
        writer.finish().map_err(encode(&path))?;
        let file = writer.inner().try_clone().map_err(TableError::io("open", &path))?;
        let (bytes, crc32) = checksum(File::open(&path).map_err(TableError::io("open", &path))?, &path)?;
        Ok((TableInfo { rows, bytes, crc32 }, file))
    }
}

/// Size and CRC-32 of a file, from its position on.
pub(super) fn checksum(mut file: impl Read, path: &Path) -> Result<(u64, u32), TableError> {
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 256 << 10];
    let mut total = 0;
    loop {
        let bytes = match file.read(&mut buffer) {
            Ok(0) => return Ok((total, hasher.finalize())),
            Ok(bytes) => bytes,
            // A signal came while a file server was asked.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(TableError::io("read", path)(error)),
        };
        hasher.update(&buffer[..bytes]);
        total += bytes as u64;
    }
}

fn encode(path: &Path) -> impl Fn(ParquetError) -> TableError + '_ {
    let other = move |why: String| TableError::Encode { path: path.to_path_buf(), why };
    move |error| match error {
        // The system's own error, such as that of a full disk.
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(source) => TableError::io("write to", path)(*source),
            Err(cause) => other(cause.to_string()),
        },
        error => other(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that was forked while the lock was held, and was no program of its own yet or never became one, kept it.
    #[test]
    fn a_lock_goes_with_who_took_it_whoever_has_the_folder_open() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::take(folder.path());
        // As after a fork: another descriptor of the same open folder.
        let inherited = lock.held.as_ref().unwrap().try_clone().unwrap();
        let other = File::open(folder.path()).unwrap();
        assert!(other.try_lock().is_err());
        drop(lock);
        assert!(other.try_lock().is_ok());
        drop(inherited);
    }
}
