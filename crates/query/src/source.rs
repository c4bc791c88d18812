//! The traces on disk: one trace, or a fleet, which is a folder of traces in `host=HOST/run=RUN/`, as Hive, Spark and DuckDB partition tables.

use std::fs;
use std::path::{Path, PathBuf};

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
}

impl Source {
    /// Opens a trace or a fleet.
    ///
    /// # Errors
    /// If the folder is neither, or a `meta.json` cannot be read.
    pub fn open(folder: &Path) -> Result<Source, QueryError> {
        let folder = name::find(folder);
        let folder = folder.canonicalize().map_err(io("open", &folder))?;
        if folder.join(META_FILE).exists() || folder.join("raw").is_dir() {
            let reader = TraceReader::open(&folder)?;
            let recording = Recording { host: String::new(), run: String::new(), folder: folder.clone(), reader };
            return Ok(Source { folder, is_fleet: false, recordings: vec![recording], unfinished: Vec::new() });
        }
        let hosts = partitions(&folder, PARTITIONS[0])?;
        if hosts.is_empty() {
            return Err(QueryError::NotATrace(folder));
        }
        let mut source = Source { folder, is_fleet: true, recordings: Vec::new(), unfinished: Vec::new() };
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
        match source.recordings.is_empty() {
            true => Err(QueryError::EmptyFleet { found: source.unfinished.len(), folder: source.folder }),
            false => Ok(source),
        }
    }
}

/// Folders `KEY=VALUE` in a folder, by value.
fn partitions(folder: &Path, key: &str) -> Result<Vec<(String, PathBuf)>, QueryError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(io("read", folder))? {
        let entry = entry.map_err(io("read", folder))?;
        let name = entry.file_name();
        let value = name.to_str().and_then(|name| name.strip_prefix(key)).and_then(|rest| rest.strip_prefix('='));
        if let Some(value) = value.filter(|_| entry.path().is_dir()) {
            found.push((unescaped(value), entry.path()));
        }
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

fn io(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> QueryError {
    let path = path.to_path_buf();
    move |source| QueryError::Io { action, path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_in_folder_names_are_undone() {
        assert_eq!(unescaped("a%2Fb%20c"), "a/b c");
        assert_eq!(unescaped("100%"), "100%");
        assert_eq!(unescaped("%zz%4"), "%zz%4");
        assert_eq!(unescaped("é%C3%A9"), "éé");
        assert_eq!(unescaped("%ff"), "%ff", "no UTF-8");
    }
}
