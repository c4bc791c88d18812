//! Kernel files under a root prefix: `/` on the running system, a tree of files in tests.

use std::fs::File;
use std::io;
use std::io::Read;
use std::path::Path;
use std::path::PathBuf;

use thiserror::Error;

/// A file of the kernel's is not there, or cannot be read.
#[derive(Debug, Error)]
#[error("{}: {source}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The system call's error.
    pub source: io::Error,
}

/// Maximum size of a file in bytes. The kernel's files are much smaller, but files in a captured tree may not be.
const READ_MAX: u64 = 64 << 20;
/// Bytes for which there is room at first: most files of a process or thread have fewer.
const READ_FIRST: usize = 2048;
/// Folders with more entries than this are not the kernel's.
const ENTRIES_MAX: usize = 1 << 22;

/// A root prefix for kernel files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Root {
        Root(PathBuf::from("/"))
    }
}

impl Root {
    /// Makes a root for which all files are read below `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Root {
        Root(path.into())
    }

    /// Path of the prefix.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Whether the root is that of the running system.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Reads a file (`relative` to the root) into `buffer`, which is emptied before.
    ///
    /// # Errors
    /// The file does not exist, or cannot be read.
    pub fn read<'a>(&self, relative: &str, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], FileError> {
        buffer.clear();
        // An empty buffer grows from 32 bytes, with a system call each time.
        buffer.reserve(READ_FIRST);
        let path = self.0.join(relative);
        let read = File::open(&path).and_then(|file| file.take(READ_MAX).read_to_end(buffer));
        match read {
            Ok(_) => Ok(buffer),
            Err(source) => Err(FileError { path, source }),
        }
    }

    /// Reads a short text file, trimmed; `None`: it does not exist or cannot be read.
    #[must_use]
    pub fn text(&self, relative: &str) -> Option<String> {
        let mut buffer = Vec::new();
        let bytes = self.read(relative, &mut buffer).ok()?;
        Some(String::from_utf8_lossy(bytes).trim().to_owned())
    }

    /// Reads a file that holds a number; `None`: it does not exist, cannot be read, or holds no number.
    #[must_use]
    pub fn number(&self, relative: &str) -> Option<u64> {
        self.text(relative)?.parse().ok()
    }

    /// Whether a file or folder exists.
    #[must_use]
    pub fn has(&self, relative: &str) -> bool {
        self.0.join(relative).exists()
    }

    /// Names in a folder, sorted; empty if the folder does not exist.
    #[must_use]
    pub fn names(&self, relative: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.0.join(relative)) else { return Vec::new() };
        let names = entries.take(ENTRIES_MAX).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

/// Whether an error means that the process has ended (its folder does not exist, or reading fails with "no such process").
#[must_use]
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT))
}

/// The leading decimal number of some bytes; `None` where there is none or it is too large.
#[must_use]
pub fn number(bytes: &[u8]) -> Option<u64> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&bytes[..digits]).ok()?.parse().ok()
}
