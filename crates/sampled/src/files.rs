//! Which file a process has mapped. The kernel names it by its path as the process sees it: in another mount namespace, or below another root directory, the
//! file of that path here may be another one.

use std::fs::{self, File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use foldhash::HashMap;
use numapilot_perf::Mapping;
use object::Object;
use object::read::ReadCache;

/// What is known of a mapped file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MappedFile {
    /// It is the file at its path here, as far as anybody can tell.
    Here,
    /// It has this build id.
    Built(Vec<u8>),
    /// It is another file than the one at its path here, and has no build id.
    Other,
}

/// A mount namespace and a root directory, as the links in /proc name them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct View {
    mounts: PathBuf,
    root: PathBuf,
}

/// The files of processes of this machine.
#[derive(Debug)]
pub(crate) struct Files {
    root: PathBuf,
    own: Option<View>,
    known: HashMap<(View, PathBuf, u64), MappedFile>,
}

impl Files {
    /// The files of processes that `/proc` under `root` lists.
    pub fn new(root: &Path) -> Files {
        Files { root: root.to_owned(), own: view(&root.join("proc/self")), known: HashMap::default() }
    }

    /// The file of a mapping. `inode`: where it is known; 0 else.
    pub fn look(&mut self, mapping: &Mapping<'_>, path: &str, inode: u64) -> MappedFile {
        let process = self.root.join(format!("proc/{}", mapping.pid));
        let seen = view(&process);
        if seen.is_some() && seen == self.own {
            return MappedFile::Here;
        }
        // The process has ended, or may not be inspected.
        let Some(seen) = seen else { return by_inode(path, inode) };
        let key = (seen, PathBuf::from(path), inode);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let found = open(&process, mapping, path).map_or_else(|| by_inode(path, inode), |file| identify(file, path));
        self.known.insert(key, found.clone());
        found
    }
}

fn view(process: &Path) -> Option<View> {
    let mounts = fs::read_link(process.join("ns/mnt")).ok()?;
    Some(View { mounts, root: fs::read_link(process.join("root")).ok()? })
}

/// Opens the file of a mapping, by the kernel's link to the very file, or by its path in the process's root directory.
fn open(process: &Path, mapping: &Mapping<'_>, path: &str) -> Option<(File, Metadata)> {
    let end = mapping.addr.saturating_add(mapping.len);
    let link = process.join(format!("map_files/{:x}-{end:x}", mapping.addr));
    let named = process.join("root").join(path.trim_start_matches('/'));
    // What lies there may have become anything by now: a pipe must not keep the recorder waiting.
    let open = |path: &Path| OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok();
    let file = open(&link).or_else(|| open(&named))?;
    let found = file.metadata().ok().filter(Metadata::is_file)?;
    Some((file, found))
}

fn identify((file, found): (File, Metadata), path: &str) -> MappedFile {
    let cache = ReadCache::new(file);
    let binary = object::File::parse(&cache).ok();
    let build_id = binary.as_ref().and_then(|binary| binary.build_id().ok().flatten());
    if let Some(build_id) = build_id.filter(|id| !id.is_empty()) {
        return MappedFile::Built(build_id.to_vec());
    }
    let is_it = |here: &Metadata| (here.dev(), here.ino()) == (found.dev(), found.ino());
    if fs::metadata(path).is_ok_and(|here| is_it(&here)) { MappedFile::Here } else { MappedFile::Other }
}

/// Devices say nothing here: file systems such as btrfs and overlayfs have one for mappings and another for files.
fn by_inode(path: &str, inode: u64) -> MappedFile {
    let is_it = inode == 0 || fs::metadata(path).is_ok_and(|here| here.ino() == inode);
    if is_it { MappedFile::Here } else { MappedFile::Other }
}

#[cfg(test)]
pub(crate) mod tests {
    use numapilot_host::Pid;

    use super::*;

    #[test]
    fn a_process_that_cannot_be_inspected_is_judged_by_the_inode() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("library");
        fs::write(&file, "library").unwrap();
        let inode = fs::metadata(&file).unwrap().ino();
        let mut files = Files::new(root.path());
        let mapping = Mapping { pid: Pid(7), ..Mapping::default() };
        let seen = [0, inode, inode + 1].map(|inode| files.look(&mapping, file.to_str().unwrap(), inode));
        assert_eq!(seen, [MappedFile::Here, MappedFile::Here, MappedFile::Other]);
    }

    /// The least that is a binary with a build id: a header, and a segment that is the note.
    pub(crate) fn binary(build_id: [u8; 4]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        let halves = |bytes: &mut Vec<u8>, all: &[u16]| all.iter().for_each(|half| bytes.extend(half.to_le_bytes()));
        let words = |bytes: &mut Vec<u8>, all: &[u32]| all.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        let longs = |bytes: &mut Vec<u8>, all: &[u64]| all.iter().for_each(|long| bytes.extend(long.to_le_bytes()));
        halves(&mut bytes, &[3, 62]);
        words(&mut bytes, &[1]);
        longs(&mut bytes, &[0, 64, 0]);
        words(&mut bytes, &[0]);
        halves(&mut bytes, &[64, 56, 1, 64, 0, 0]);
        words(&mut bytes, &[4, 4]);
        longs(&mut bytes, &[120, 120, 0, 20, 20, 4]);
        words(&mut bytes, &[4, 4, 3]);
        bytes.extend(b"GNU\0");
        bytes.extend(build_id);
        bytes
    }

    #[test]
    fn a_file_of_another_mount_namespace_is_known_by_its_build_id() {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("proc/7");
        fs::create_dir_all(process.join("ns")).unwrap();
        let container = root.path().join("container");
        fs::create_dir_all(container.join("lib")).unwrap();
        std::os::unix::fs::symlink("mnt:[2]", process.join("ns/mnt")).unwrap();
        std::os::unix::fs::symlink(&container, process.join("root")).unwrap();
        fs::write(container.join("lib/x.so"), binary([1, 2, 3, 4])).unwrap();
        let mapping = Mapping { pid: Pid(7), ..Mapping::default() };
        let found = Files::new(root.path()).look(&mapping, "/lib/x.so", 5);
        assert_eq!(found, MappedFile::Built(vec![1, 2, 3, 4]));
        // The kernel's own link shows a file that has been replaced since.
        fs::create_dir(process.join("map_files")).unwrap();
        fs::write(process.join("map_files/1000-3000"), binary([5, 6, 7, 8])).unwrap();
        let mapping = Mapping { addr: 0x1000, len: 0x2000, ..mapping };
        let found = Files::new(root.path()).look(&mapping, "/lib/x.so", 5);
        assert_eq!(found, MappedFile::Built(vec![5, 6, 7, 8]));
    }
}
