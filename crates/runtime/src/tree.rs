//! Trees of small files that recorded programs read, kept beside the unpacked binaries.
//!
//! A machine with a thousand CPUs has tens of thousands of files. They are read and compared once: then a stamp beside the tree says which files they were,
//! by what the kernel changes whenever it changes a file, and in which boot (after a crash files may lack what was written to them).

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

use numapilot_random::{fnv1a, fnv1a_more};

use crate::private_home;

/// One entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeEntry {
    /// A file with this text.
    Text(String),
    /// A symbolic link to this target.
    Link(String),
}

/// A tree: entries by their path below its root, parents implied.
pub type Tree = [(String, TreeEntry)];

/// File name of a tree's stamp, beside the tree.
const STAMP: &str = "stamp";
/// Names the boot of the kernel.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Writes a tree below `dir`, in a directory named by its content, unless it is there already. Its absolute path.
///
/// Several processes may do so at once: the tree appears whole, by renaming, and one that has been changed since is replaced.
///
/// # Errors
/// Those of [`crate::unpack`].
pub fn unpack_tree(dir: &Path, tree: &Tree) -> io::Result<PathBuf> {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let home = private_home(dir, &format!("{:016x}", content_hash(tree)))?;
    let path = home.join("tree");
    // Taken before the files are read: what changes meanwhile does not fit it.
    let stamp = stamp_of(&path, tree);
    if stamp.is_some() && fs::read_to_string(home.join(STAMP)).ok() == stamp {
        return Ok(path);
    }
    if holds(&path, tree) {
        keep(&home, stamp);
        return Ok(path);
    }
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let temporary = home.join(format!(".tree.{}.{serial}", process::id()));
    // Left over from a killed process whose number came around again.
    match fs::remove_dir_all(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let result = write(&temporary, tree).and_then(|()| put_in_place(&temporary, &path, tree));
    // Best effort, and gone where it was renamed: the error to report is the first one.
    let _ = fs::remove_dir_all(&temporary);
    result?;
    keep(&home, stamp_of(&path, tree));
    Ok(path)
}

/// What the tree's files are now: the boot, and a hash over their numbers, sizes and times of change. `None`: one is missing, or the boot is not known.
fn stamp_of(root: &Path, tree: &Tree) -> Option<String> {
    let boot = fs::read_to_string(BOOT).ok()?;
    let mut hash = PartsHash::new();
    for (path, _) in tree {
        let found = fs::symlink_metadata(root.join(path)).ok()?;
        for number in [found.dev(), found.ino(), found.size(), found.ctime() as u64, found.ctime_nsec() as u64] {
            hash.take(&number.to_le_bytes());
        }
    }
    Some(format!("{} {:016x}\n", boot.trim_end(), hash.0))
}

/// Notes that these files have the tree's contents. Best effort: without a stamp they are compared the next time.
fn keep(home: &Path, stamp: Option<String>) {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let Some(stamp) = stamp else { return };
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let temporary = home.join(format!(".{STAMP}.{}.{serial}", process::id()));
    let written = fs::write(&temporary, stamp).and_then(|()| fs::rename(&temporary, home.join(STAMP)));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
}

/// A hash of parts, with a zero behind each.
struct PartsHash(u64);

impl PartsHash {
    fn new() -> PartsHash {
        PartsHash(fnv1a(b""))
    }

    fn take(&mut self, part: &[u8]) {
        self.0 = fnv1a_more(fnv1a_more(self.0, part), &[0]);
    }
}

/// A hash of all names and contents of a tree.
fn content_hash(tree: &Tree) -> u64 {
    let mut hash = PartsHash::new();
    for (path, entry) in tree {
        hash.take(path.as_bytes());
        match entry {
            TreeEntry::Text(text) => hash.take(text.as_bytes()),
            TreeEntry::Link(target) => hash.take(target.as_bytes()),
        }
    }
    hash.0
}

fn holds(root: &Path, tree: &Tree) -> bool {
    tree.iter().all(|(path, entry)| match entry {
        TreeEntry::Text(text) => fs::read(root.join(path)).is_ok_and(|found| found == text.as_bytes()),
        TreeEntry::Link(target) => {
            fs::read_link(root.join(path)).is_ok_and(|found| found.as_os_str().as_bytes() == target.as_bytes())
        }
    })
}

fn write(root: &Path, tree: &Tree) -> io::Result<()> {
    let mut made = HashSet::new();
    for (path, entry) in tree {
        let path = root.join(path);
        let parent = path.parent().unwrap_or(root);
        if made.insert(parent.to_owned()) {
            fs::create_dir_all(parent)?;
        }
        match entry {
            TreeEntry::Text(text) => fs::write(&path, text)?,
            TreeEntry::Link(target) => symlink(target, &path)?,
        }
    }
    Ok(())
}

fn put_in_place(temporary: &Path, path: &Path, tree: &Tree) -> io::Result<()> {
    // Another process may have been faster; whatever else is there is moved out of the way.
    for _ in 0..2 {
        match fs::rename(temporary, path) {
            Err(_) if holds(path, tree) => return Ok(()),
            Err(error) if !path.exists() => return Err(error),
            Err(_) => {
                let aside = temporary.with_extension("old");
                fs::rename(path, &aside)?;
                fs::remove_dir_all(&aside)?;
            }
            Ok(()) => return Ok(()),
        }
    }
    fs::rename(temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Vec<(String, TreeEntry)> {
        vec![
            ("sys/a/text".to_owned(), TreeEntry::Text("1\n".to_owned())),
            ("sys/b/link".to_owned(), TreeEntry::Link("../a".to_owned())),
        ]
    }

    #[test]
    fn a_tree_is_written_once_and_mended_where_it_was_changed() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache");
        let path = unpack_tree(&cache, &tree()).unwrap();
        assert_eq!(fs::read_to_string(path.join("sys/b/link/text")).unwrap(), "1\n");
        let written = fs::metadata(path.join("sys/a/text")).unwrap().modified().unwrap();
        assert_eq!(unpack_tree(&cache, &tree()).unwrap(), path);
        assert_eq!(fs::metadata(path.join("sys/a/text")).unwrap().modified().unwrap(), written);
        fs::remove_file(path.join("sys/b/link")).unwrap();
        assert_eq!(unpack_tree(&cache, &tree()).unwrap(), path);
        assert!(path.join("sys/b/link").is_symlink());
        let mut left: Vec<_> =
            fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [STAMP, "tree"], "nothing else is left beside it");
    }

    /// Tens of thousands of files were read at each recording.
    #[test]
    fn a_tree_with_a_stamp_is_not_read_again_and_a_changed_one_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = unpack_tree(dir.path(), &tree()).unwrap();
        let (text, stamp) = (path.join("sys/a/text"), path.parent().unwrap().join(STAMP));
        // In place, with as many bytes: what a stamp of another boot, or none, would not tell either.
        for spoil in [None, Some("another boot 0123456789abcdef\n"), Some("")] {
            std::thread::sleep(std::time::Duration::from_millis(20)); // the kernel's clock of file times ticks
            fs::write(&text, "2\n").unwrap();
            spoil.into_iter().for_each(|spoil| fs::write(&stamp, spoil).unwrap());
            unpack_tree(dir.path(), &tree()).unwrap();
            assert_eq!(fs::read_to_string(&text).unwrap(), "1\n", "{spoil:?}");
        }
        // A stamp that fits is believed.
        fs::write(&text, "3\n").unwrap();
        if let Some(fitting) = stamp_of(&path, &tree()) {
            fs::write(&stamp, fitting).unwrap();
            unpack_tree(dir.path(), &tree()).unwrap();
            assert_eq!(fs::read_to_string(&text).unwrap(), "3\n");
        }
    }

    /// A changed hash would leave every user's trees behind, and write them again.
    #[test]
    fn a_tree_keeps_its_name_from_release_to_release() {
        assert_eq!(content_hash(&[]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(content_hash(&tree()), 0xef90_a24a_0564_47ac);
    }

    #[test]
    fn many_at_once_agree() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache");
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| unpack_tree(&cache, &tree()).unwrap())).collect();
            let paths: Vec<PathBuf> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            assert!(paths.iter().all(|path| *path == paths[0] && holds(path, &tree())));
        });
    }
}
