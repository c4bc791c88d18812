//! The lab's folder of downloads and snapshots: one per user, shared by all checkouts and by tests that run at once.
//!
//! Every entry is complete: one process at a time (a file lock each) makes it under another name and renames it.
//! `NUMAPILOT_LAB_CACHE` moves it; deleting it is always safe while nothing runs.

use std::env;
use std::fs;
use std::fs::File;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::SystemTime;

use crate::error::AtPath;
use crate::error::LabError;

/// A snapshot that was not restored for this long is deleted when a new one is made.
const KEEP_SNAPSHOTS: Duration = Duration::from_secs(14 * 24 * 3600);

/// The lab's folder in the user's cache: downloads, kernels and snapshots.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The user's: `$NUMAPILOT_LAB_CACHE`, else `numapilot/lab` in `$XDG_CACHE_HOME` or `~/.cache`.
    pub(crate) fn of_user() -> Result<Self, LabError> {
        let from = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let root = from("NUMAPILOT_LAB_CACHE")
            .or_else(|| from("XDG_CACHE_HOME").map(|c| c.join("numapilot/lab")))
            .or_else(|| from("HOME").map(|h| h.join(".cache/numapilot/lab")))
            .unwrap_or_else(|| env::temp_dir().join("numapilot-lab"));
        fs::create_dir_all(&root)
            .at(&root, "cannot make the lab's folder; set NUMAPILOT_LAB_CACHE to a writable folder")?;
        let root = root.canonicalize().at(&root, "cannot resolve the lab's folder")?;
        Ok(Self { root })
    }

    /// Path of the folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Holds the named lock until the answer is dropped (or the process dies).
    pub(crate) fn lock(&self, name: &str) -> Result<File, LabError> {
        let path = self.root.join(format!("{name}.lock"));
        let file =
            File::options().create(true).truncate(false).write(true).open(&path).at(&path, "cannot open a lock")?;
        file.lock().at(&path, "cannot lock")?;
        Ok(file)
    }

    /// The file or folder `name`, made by `make` (at the path it is given) if it is not there yet.
    pub(crate) fn once(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> Result<(), LabError>,
    ) -> Result<PathBuf, LabError> {
        let path = self.root.join(name);
        if path.exists() {
            return Ok(path);
        }
        let _lock = self.lock(name)?;
        if path.exists() {
            return Ok(path);
        }
        let unfinished = self.root.join(format!("{name}.new"));
        remove(&unfinished)?;
        make(&unfinished)?;
        fs::rename(&unfinished, &path).at(&path, "cannot put in place")?;
        Ok(path)
    }

    /// Marks a snapshot as used now.
    pub(crate) fn touch(&self, path: &Path) {
        // Only the order of deletion depends on it: a failure is of no consequence.
        let _ = File::options().append(true).open(path).and_then(|f| f.set_modified(SystemTime::now()));
    }

    /// Deletes snapshots that were not used for two weeks.
    pub(crate) fn forget_old_snapshots(&self) {
        let Ok(entries) = fs::read_dir(&self.root) else { return };
        for entry in entries.flatten() {
            let is_snapshot = entry.file_name().to_string_lossy().starts_with("snapshot-");
            let age = entry.metadata().ok().and_then(|m| m.modified().ok()).and_then(|m| m.elapsed().ok());
            if is_snapshot && age.is_some_and(|a| a > KEEP_SNAPSHOTS) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Deletes a file or folder that may not be there.
pub(crate) fn remove(path: &Path) -> Result<(), LabError> {
    match fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(m) if m.is_dir() => fs::remove_dir_all(path).at(path, "cannot delete"),
        Ok(_) => fs::remove_file(path).at(path, "cannot delete"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering;
    use std::thread;

    use super::*;

    #[test]
    fn a_thing_is_made_once_by_whoever_comes_first_and_again_after_a_failure() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache { root: folder.path().to_path_buf() };
        let failed = cache.once("thing", |path| {
            fs::write(path, "half").expect("writes");
            Err(LabError::Topology("a failure".into()))
        });
        assert!(failed.is_err());
        assert!(!folder.path().join("thing").exists(), "a half-made thing was put in place");
        let made = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let path = cache.once("thing", |path| {
                        made.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(20));
                        fs::write(path, "whole").at(path, "writing")
                    });
                    assert_eq!(fs::read_to_string(path.expect("made")).expect("there"), "whole");
                });
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }
}
