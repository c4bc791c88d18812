//! The journal on disk: JSON lines ([`numapilot_balancer::event`]), rotated by size, written by its own thread.
//!
//! Problems of the disk do not affect the loop. Lines that cannot be written are counted; the number is recorded in the journal once it works again, and shown
//! in the status. A kill at any moment leaves at most one incomplete line, which readers skip and the next writer terminates.

mod read;
mod write;

use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;

pub use read::Reading;
pub use read::read;
pub use write::HealthOf;
pub use write::Journal;

/// File and limits of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// Path of the file. Older parts are beside it: `FILE.1` (the newest of them), `FILE.2`, ...
    pub file: PathBuf,
    /// Size in bytes at which the file becomes an older part.
    pub max_bytes: u64,
    /// Number of older parts that are kept.
    pub keep: u32,
    /// Free space in bytes that the journal leaves on the file system.
    pub keep_free_bytes: u64,
}

impl JournalSettings {
    /// Default settings: four older parts of 16 MiB each, and 64 MiB left free.
    #[must_use]
    pub fn new(file: PathBuf) -> JournalSettings {
        JournalSettings { file, max_bytes: 16 << 20, keep: 4, keep_free_bytes: 64 << 20 }
    }
}

/// State of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHealth {
    /// Number of lines written.
    pub lines: u64,
    /// Number of lines lost.
    pub lost: u64,
    /// Why lines are being lost now; empty: none are.
    pub trouble: String,
}

/// The name of an older part.
fn part(file: &Path, number: u32) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}
