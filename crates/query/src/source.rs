//! The traces on disk: one trace, or a fleet, which is a folder of traces in `host=HOST/run=RUN/`, as Hive, Spark and DuckDB partition tables.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use numapilot_trace::meta::META_FILE;
use numapilot_trace::name;
use numapilot_trace::tables::TraceReader;

use crate::error::QueryError;

/// Partition columns of a fleet, in the order of its folders.
pub const PARTITIONS: [&str; 2] = ["host", "run"];

/// One trace, with its host and run in the fleet.
#[derive(Debug)]
pub struct Recording {
    /// Host; empty for a trace that is not in a fleet.
    pub host: String,
    /// Run; empty for a trace that is not in a fleet.
    pub run: String,
    /// The trace's folder, absolute.
    pub folder: PathBuf,
    /// Reader of its tables.
    pub reader: TraceReader,
}

/// The traces that a query reads.
#[derive(Debug)]
pub struct Source {
    /// The folder, absolute.
    pub folder: PathBuf,
    /// Whether it is a fleet: tables then have columns `host` and `run`.
    pub is_fleet: bool,
    /// Complete traces in it, by host and run.
    pub recordings: Vec<Recording>,
    /// Runs without a `meta.json`: not finished, or their recorder was killed. They are left out.
    pub unfinished: Vec<PathBuf>,
    /// Files that the query reads, as they were when they were checked.
    read: Mutex<Vec<(PathBuf, Version)>>,
}

/// Tells a file from another of its name, and from what is written to it later: device, inode, size, and the time of its last change.
type Version = (u64, u64, u64, i64, i64);

impl Source {
    /// Opens a trace or a fleet.
    ///
    /// # Errors
    /// If the folder is neither, a `meta.json` cannot be read, or two runs of a fleet could not be told apart.
    pub fn open(folder: &Path) -> Result<Source, QueryError> {
        let folder = name::find(folder);
        let folder = folder.canonicalize().map_err(failed("open", &folder))?;
        if folder.join(META_FILE).exists() || folder.join("raw").is_dir() {
            let reader = TraceReader::open(&folder)?;
            let recording = Recording { host: String::new(), run: String::new(), folder: folder.clone(), reader };
            let mut source = Source::empty(folder, false);
            source.recordings.push(recording);
            return Ok(source);
        }
        let hosts = partitions(&folder, PARTITIONS[0])?;
        if hosts.is_empty() {
            return Err(QueryError::NotATrace(folder));
        }
        let mut source = Source::empty(folder, true);
        for (host, path) in hosts {
            for (run, folder) in partitions(&path, PARTITIONS[1])? {
                if !folder.join(META_FILE).exists() {
                    source.unfinished.push(folder);
                    continue;
                }
                let reader = TraceReader::open_brief(&folder)?;
                source.recordings.push(Recording { host: host.clone(), run, folder, reader });
            }
        }
        source.check_runs_differ()?;
        match source.recordings.is_empty() {
            true => Err(QueryError::EmptyFleet { found: source.unfinished.len(), folder: source.folder }),
            false => Ok(source),
        }
    }

    /// Tables of a fleet are joined by host and run, so two traces of the same would each have the other's objects and threads.
    fn check_runs_differ(&self) -> Result<(), QueryError> {
        let mut known = HashMap::new();
        for Recording { host, run, folder, .. } in &self.recordings {
            if let Some(other) = known.insert((host, run), folder) {
                return Err(QueryError::SameRun(other.clone(), folder.clone()));
            }
        }
        Ok(())
    }

    fn empty(folder: PathBuf, is_fleet: bool) -> Source {
        Source { folder, is_fleet, recordings: Vec::new(), unfinished: Vec::new(), read: Mutex::default() }
    }

    /// Notes that the query reads this file, which was checked. The engine opens it later, and again and again, by its path.
    ///
    /// # Errors
    /// If the system does not describe the file.
    pub fn reads(&self, path: &Path, file: &fs::File) -> io::Result<()> {
        let version = version(&file.metadata()?);
        self.noted().push((path.to_owned(), version));
        Ok(())
    }

    /// Fails if a file that the query reads is another one by now (`numapilot record` and `import` replace traces).
    ///
    /// # Errors
    /// [`QueryError::Replaced`].
    pub fn check_unchanged(&self) -> Result<(), QueryError> {
        let is_same = |path: &Path, was: Version| fs::metadata(path).is_ok_and(|now| version(&now) == was);
        match self.noted().iter().find(|(path, was)| !is_same(path, *was)) {
            Some((path, _)) => Err(QueryError::Replaced(path.clone())),
            None => Ok(()),
        }
    }

    fn noted(&self) -> MutexGuard<'_, Vec<(PathBuf, Version)>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn version(file: &fs::Metadata) -> Version {
    (file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec())
}

/// Folders `KEY=VALUE` in a folder, by value.
fn partitions(folder: &Path, key: &str) -> Result<Vec<(String, PathBuf)>, QueryError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed("read", folder))? {
        let entry = entry.map_err(failed("read", folder))?;
        let name = entry.file_name();
        let value = name.as_encoded_bytes().strip_prefix(key.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
        let Some(value) = value.filter(|_| entry.path().is_dir()) else { continue };
        let value = std::str::from_utf8(value).map_err(|_| QueryError::NoText(entry.path()))?;
        found.push((unescaped(value), entry.path()));
    }
    found.sort();
    Ok(found)
}

/// Decodes percent escapes (`%2F` for a slash), by which writers of partitioned tables encode characters that a path cannot contain.
fn unescaped(value: &str) -> String {
    let bytes = value.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| value.get(at + 1..at + 3)).flatten();
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| value.to_owned())
}

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> QueryError {
    let path = path.to_path_buf();
    move |source| QueryError::Io { action, path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_replaced_while_it_is_read_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("accesses.parquet");
        let source = Source::empty(folder.path().to_owned(), false);
        source.check_unchanged().unwrap();
        fs::write(&path, "old").unwrap();
        source.reads(&path, &fs::File::open(&path).unwrap()).unwrap();
        source.check_unchanged().unwrap();
        fs::write(folder.path().join("other"), "new").unwrap();
        fs::rename(folder.path().join("other"), &path).unwrap();
        let error = source.check_unchanged().unwrap_err().to_string();
        assert!(error.contains("accesses.parquet was replaced") && error.contains("again"), "{error}");
        fs::remove_file(&path).unwrap();
        assert!(matches!(source.check_unchanged(), Err(QueryError::Replaced(_))));
    }

    #[test]
    fn escapes_in_folder_names_are_undone() {
        assert_eq!(unescaped("a%2Fb%20c"), "a/b c");
        assert_eq!(unescaped("100%"), "100%");
        assert_eq!(unescaped("%zz%4"), "%zz%4");
        assert_eq!(unescaped("é%C3%A9"), "éé");
        assert_eq!(unescaped("%ff"), "%ff", "no UTF-8");
    }
}
