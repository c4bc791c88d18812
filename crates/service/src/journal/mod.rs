//! The journal on disk: JSON lines ([`numapilot_balancer::event`]), rotated by size, written by a thread of its own.
//!
//! Nothing that happens to the disk reaches the loop. What cannot be kept is counted, told in the journal once it works again, and shown in the status. A
//! kill at any instant leaves at most one torn line, which readers pass over and the next writer seals.

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

/// Where a journal goes, and how much of it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// The file. Older parts are beside it: `FILE.1` (the newest of them), `FILE.2`, ...
    pub file: PathBuf,
    /// A file of this size becomes an older part.
    pub max_bytes: u64,
    /// Older parts kept.
    pub keep: u32,
    /// The journal stops before the file system has less than this free.
    pub keep_free_bytes: u64,
}

impl JournalSettings {
    /// Four older parts of 16 MiB each, and 64 MiB left free.
    #[must_use]
    pub fn new(file: PathBuf) -> JournalSettings {
        JournalSettings { file, max_bytes: 16 << 20, keep: 4, keep_free_bytes: 64 << 20 }
    }
}

/// How a journal fares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHealth {
    /// Lines written.
    pub lines: u64,
    /// Lines that could not be kept.
    pub lost: u64,
    /// Why lines are being lost now; empty: they are not.
    pub trouble: String,
}

/// The name of an older part.
fn part(file: &Path, number: u32) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}
