//! Reads all parts of a journal in order of time, even if a kill, a full disk or an editor damaged them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use numapilot_balancer::event::Entry;
use numapilot_balancer::event::Event;
use numapilot_balancer::event::VERSION;
use serde::Serialize;

use super::part;
use crate::error::ServiceError;

/// Maximum length of a line in bytes; longer lines are skipped, because no writer makes them.
const LINE_BYTES: u64 = 8 << 20;
/// Maximum number of older parts.
const PARTS: u32 = 1000;

/// Statistics of reading a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// Number of files read.
    pub files: u64,
    /// Number of entries passed to the visitor.
    pub entries: u64,
    /// Number of lines that are not entries: incomplete after a kill, or damaged.
    pub unreadable: u64,
    /// Number of entries by a later version of numapilot, which were skipped.
    pub later: u64,
    /// Number of missing lines, by the gaps in their numbers.
    pub missing: u64,
}

/// Calls `visit` with every entry, oldest first. If `file` is an older part `FILE.N`, only that part is read.
///
/// # Errors
/// The file does not exist or may not be read.
pub fn read(file: &Path, mut visit: impl FnMut(Entry)) -> Result<Reading, ServiceError> {
    let mut reading = Reading::default();
    let mut last: Option<(String, u64)> = None;
    for mut part in parts(file)? {
        reading.files += 1;
        loop {
            let mut line = Vec::new();
            let bytes = part.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line);
            let bytes = bytes.map_err(|source| ServiceError::file(file, "read the journal", source))?;
            if bytes == 0 {
                break;
            }
            if line.last() != Some(&b'\n') && bytes as u64 == LINE_BYTES {
                part.skip_until(b'\n').map_err(|source| ServiceError::file(file, "read the journal", source))?;
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match serde_json::from_slice::<Entry>(&line) {
                Ok(entry) if entry.v > VERSION || entry.event == Event::Unknown => reading.later += 1,
                Ok(entry) => give(entry, &mut last, &mut reading, &mut visit),
                Err(_) => reading.unreadable += 1,
            }
        }
    }
    Ok(reading)
}

fn give(entry: Entry, last: &mut Option<(String, u64)>, reading: &mut Reading, visit: &mut impl FnMut(Entry)) {
    if let Event::Start(start) = &entry.event {
        if last.as_ref().is_some_and(|(run, _)| *run == start.run) {
            // The start event is repeated at the head of a file that continues the run.
            return;
        }
        *last = Some((start.run.clone(), entry.line));
    } else if let Some((_, line)) = last {
        reading.missing += entry.line.saturating_sub(*line + 1);
        *line = entry.line;
    } else {
        *last = Some((String::new(), entry.line));
    }
    reading.entries += 1;
    visit(entry);
}

/// Opens the parts and returns them oldest first. They are opened newest first: if a writer rotates meanwhile, a file can at most appear twice, which its inode
/// shows.
fn parts(file: &Path) -> Result<Vec<BufReader<File>>, ServiceError> {
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for number in 0..PARTS {
        let path = if number == 0 { file.to_owned() } else { part(file, number) };
        let opened = match File::open(&path) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound && number > 0 => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ServiceError::NoJournal(path)),
            Err(source) => return Err(ServiceError::file(&path, "read the journal", source)),
        };
        let facts = opened.metadata().map_err(|source| ServiceError::file(&path, "read the journal", source))?;
        if facts.is_dir() {
            let source = io::Error::from_raw_os_error(libc::EISDIR);
            return Err(ServiceError::file(&path, "read the journal", source));
        }
        if seen.insert((facts.dev(), facts.ino())) {
            out.push(BufReader::new(opened));
        }
    }
    out.reverse();
    Ok(out)
}

#[cfg(test)]
mod tests {
    //! Files that no writer made.

    use proptest::prelude::*;

    use super::*;

    fn read_bytes(bytes: &[u8]) -> (Vec<Entry>, Reading) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        std::fs::write(&path, bytes).unwrap();
        let mut entries = Vec::new();
        let reading = read(&path, |entry| entries.push(entry)).unwrap();
        (entries, reading)
    }

    #[test]
    fn damaged_lines_and_later_versions_are_counted() {
        let good = r#"{"v":1,"line":0,"unix_ns":5,"event":"trouble","what":"w","times":1}"#;
        let later = r#"{"v":2,"line":1,"unix_ns":5,"event":"trouble","what":"w","times":1}"#;
        let unknown = r#"{"v":1,"line":2,"unix_ns":5,"event":"teleport"}"#;
        let text = format!("{good}\n\n{{\n\u{fffd}\n{later}\n{unknown}\nnull\n[]\n{good}");
        let (entries, reading) = read_bytes(text.as_bytes());
        assert_eq!(entries.len(), 2);
        assert_eq!((reading.unreadable, reading.later), (4, 2));
    }

    #[test]
    fn an_endless_line_takes_no_memory_and_what_follows_is_read() {
        let good = br#"{"v":1,"line":0,"unix_ns":5,"event":"trouble","what":"w","times":1}"#;
        let mut bytes = vec![b'{'; 20 << 20];
        bytes.push(b'\n');
        bytes.extend_from_slice(good);
        let (entries, reading) = read_bytes(&bytes);
        assert_eq!((entries.len(), reading.unreadable), (1, 1));
    }

    #[test]
    fn a_missing_file_is_said_by_name() {
        let error = read(Path::new("/nowhere/journal"), |_| ()).unwrap_err().to_string();
        assert!(error.contains("/nowhere/journal") && error.contains("there is no journal"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_fuss(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            read_bytes(&bytes);
        }
    }
}
