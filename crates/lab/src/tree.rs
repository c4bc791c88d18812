//! The guest's file tree. A guest of the host's architecture sees the host's; another sees a small Debian, unpacked once into the cache, and in it those
//! folders of the host that a command may need.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::arch::Arch;
use crate::cache::Cache;
use crate::error::AtPath;
use crate::error::LabError;
use crate::packages::Archive;

/// A shell and its usual programs, numactl, and the libraries of C, C++ and Rust programs; what they depend on comes with them.
const PACKAGES: &[&str] = &[
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "libatomic1",
    "libc-bin",
    "libc6",
    "libgcc-s1",
    "libgomp1",
    "libnuma1",
    "libstdc++6",
    "libzstd1",
    "numactl",
    "procps",
    "sed",
    "util-linux",
    "zlib1g",
];
/// Bytes of the downloads, for the message.
const DOWNLOAD: &str = "17 MB";
/// What Debian's scripts would make: nothing of the packages runs here.
const MADE: &[(&str, &str)] =
    &[("etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"), ("etc/group", "root:x:0:\n"), ("etc/hostname", "lab\n")];
/// This project, and what is built in it.
const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The guest's root on the host.
pub(crate) fn root(cache: &Cache, arch: Arch) -> Result<PathBuf, LabError> {
    if arch.is_hosts() {
        return Ok(PathBuf::from("/"));
    }
    cache.once(&arch.cached("root-1"), |path| {
        let _lock = cache.lock("apt")?;
        let root = cache.root().display();
        crate::say(&format!("downloading a Debian for {arch} ({DOWNLOAD}) into {root}, once"));
        Archive::open(cache, arch.debian())?.unpack_with_dependencies(PACKAGES, path)?;
        for (name, text) in MADE {
            let path = path.join(name);
            fs::write(&path, text).at(&path, "cannot write")?;
        }
        Ok(())
    })
}

/// Folders of the host that a guest with the tree `root` has at the same paths: the project, this program's folder and the command's, where builds and
/// temporary files go, and `more`. Sorted, so that a folder comes before those in it. None that the tree itself fills, such as `/usr/bin`.
pub(crate) fn seen(root: &Path, command: &Command, more: &[PathBuf]) -> Vec<PathBuf> {
    if root == Path::new("/") {
        return Vec::new();
    }
    let mut wanted = vec![PathBuf::from(PROJECT), env::temp_dir()];
    wanted.extend(env::var_os("CARGO_TARGET_DIR").map(PathBuf::from));
    let program = Path::new(command.get_program()).to_path_buf();
    wanted.extend([env::current_exe().ok(), Some(program)].into_iter().flatten().filter_map(folder_of));
    wanted.extend_from_slice(more);
    let mut folders: Vec<PathBuf> = wanted.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
    folders.retain(|folder| folder.is_dir() && !is_filled(root, folder));
    folders.sort();
    folders.dedup();
    folders
}

/// The folder of a program that is named by its path.
fn folder_of(program: PathBuf) -> Option<PathBuf> {
    program.parent().filter(|folder| *folder != Path::new("")).map(Path::to_path_buf)
}

/// Whether the tree has files of its own in this folder.
fn is_filled(root: &Path, folder: &Path) -> bool {
    let inside: PathBuf = folder.iter().filter(|part| *part != OsStr::new("/")).collect();
    fs::read_dir(root.join(inside)).is_ok_and(|mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_own_tree_needs_no_folders() {
        assert!(seen(Path::new("/"), &Command::new("/usr/bin/true"), &[]).is_empty());
    }

    #[test]
    fn a_tree_of_its_own_gets_the_project_and_the_programs_folder_but_not_the_systems() {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(root.path().join("usr/bin")).expect("made");
        fs::write(root.path().join("usr/bin/true"), "").expect("written");
        fs::create_dir(root.path().join("tmp")).expect("made");
        let elsewhere = tempfile::tempdir().expect("a folder");
        let elsewhere = elsewhere.path().canonicalize().expect("there");
        let program = Command::new(elsewhere.join("program"));
        let folders = seen(root.path(), &program, &[PathBuf::from("/usr/bin"), PathBuf::from("/no/such/folder")]);
        let project = Path::new(PROJECT).canonicalize().expect("there");
        let temporary = env::temp_dir().canonicalize().expect("there");
        for wanted in [&project, &temporary, &elsewhere] {
            assert!(folders.contains(wanted), "{} is not in {folders:?}", wanted.display());
        }
        assert!(
            folders.iter().all(|folder| !["/", "/usr/bin", "/no/such/folder"].contains(&&*folder.to_string_lossy()))
        );
        assert!(folders.is_sorted());
    }
}
