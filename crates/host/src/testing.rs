//! Machines of `testdata/sysfs` and PMUs of `testdata/pmu` for tests: each is one text file with a line `path:content` for each line of each file, as
//! `grep -r ''` prints them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Component;
use std::path::Path;
use std::path::PathBuf;

use tempfile::TempDir;

/// A folder of `testdata`.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

/// Names of all trees of `testdata/sysfs`, sorted.
///
/// # Panics
/// The folder cannot be read.
#[must_use]
pub fn names() -> Vec<String> {
    let files =
        fs::read_dir(folder("sysfs")).expect("testdata/sysfs").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> =
        files.filter_map(|file| file.into_string().ok()?.strip_suffix(".tree").map(str::to_owned)).collect();
    names.sort();
    names
}

/// A temporary folder for many small files, removed on drop: in memory where there is a place for that, because a slow disk takes milliseconds for each.
///
/// # Panics
/// No folder can be made.
#[must_use]
pub fn in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}

/// Unpacks the tree `name` into a folder that is removed on drop.
///
/// # Panics
/// There is no such tree, or it cannot be unpacked.
#[must_use]
pub fn tree(name: &str) -> TempDir {
    unpacked("sysfs", name)
}

/// Unpacks the PMUs `name` of `testdata/pmu` into a folder that is removed on drop.
///
/// # Panics
/// There is no such tree, or it cannot be unpacked.
#[must_use]
pub fn pmu_tree(name: &str) -> TempDir {
    unpacked("pmu", name)
}

fn unpacked(group: &str, name: &str) -> TempDir {
    let file = folder(group).join(format!("{name}.tree"));
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let target = in_memory();
    unpack(&text, target.path()).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
    target
}

/// Writes the files of a tree below `target`.
///
/// # Errors
/// A line has no path or one that leads out of the folder, or a file cannot be written; with the line's number where it is one.
pub fn unpack(text: &str, target: &Path) -> Result<(), String> {
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#')) {
        let (path, content) = line.split_once(':').ok_or(format!("line {number}: no `path:content`"))?;
        let stays = Path::new(path).components().all(|component| matches!(component, Component::Normal(_)));
        if path.is_empty() || !stays {
            return Err(format!("line {number}: {path:?} is not a path below the root"));
        }
        let file = files.entry(path).or_default();
        file.push_str(content);
        file.push('\n');
    }
    for (path, content) in files {
        let file = target.join(path);
        let written = fs::create_dir_all(file.parent().unwrap_or(target)).and_then(|()| fs::write(&file, content));
        written.map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_unpacked_line_by_line() {
        let target = tempfile::tempdir().unwrap();
        unpack("# made up\nproc/cpuinfo:model name\t: A: B\nproc/cpuinfo:\nsys/x:0-3\n", target.path()).unwrap();
        assert_eq!(fs::read_to_string(target.path().join("proc/cpuinfo")).unwrap(), "model name\t: A: B\n\n");
        assert_eq!(fs::read_to_string(target.path().join("sys/x")).unwrap(), "0-3\n");
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        let target = tempfile::tempdir().unwrap();
        for line in ["no colon", ":x", "/etc/passwd:x", "a/../../b:x", "./a:x"] {
            assert!(unpack(line, target.path()).is_err(), "{line}");
        }
        assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
    }

    #[test]
    fn every_tree_can_be_unpacked() {
        assert!(names().len() >= 9);
        names().iter().for_each(|name| assert!(tree(name).path().join("proc/cpuinfo").exists(), "{name}"));
        let files = fs::read_dir(folder("pmu")).unwrap().map(|entry| entry.unwrap().path());
        let pmus: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|end| end == "tree")).collect();
        assert!(pmus.len() >= 8);
        for file in pmus {
            let tree = pmu_tree(file.file_stem().unwrap().to_str().unwrap());
            assert!(tree.path().join("sys/bus/event_source/devices/software/type").exists(), "{}", file.display());
        }
    }
}
