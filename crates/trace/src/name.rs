//! Names of traces: `NAME.numatrace`. Outputs always have this extension; it may be omitted when a trace is opened.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::chunk::RAW_FOLDER;
use crate::meta::META_FILE;

/// Extension of every trace's folder, without the dot.
pub const EXTENSION: &str = "numatrace";

/// The folder to which an output of this name is written: `run` gives `run.numatrace`.
#[must_use]
pub fn output_folder(name: &Path) -> PathBuf {
    if has_extension(name) { name.to_path_buf() } else { with_extension(name) }
}

/// The trace that `name` denotes: the folder itself if it holds a trace, else `NAME.numatrace` if that does, else `name` unchanged, which the caller then
/// fails to open.
#[must_use]
pub fn find(name: &Path) -> PathBuf {
    if is_trace(name) || has_extension(name) {
        return name.to_path_buf();
    }
    let longer = with_extension(name);
    if is_trace(&longer) { longer } else { name.to_path_buf() }
}

/// Whether a folder holds a trace, complete or not.
#[must_use]
pub fn is_trace(folder: &Path) -> bool {
    folder.join(META_FILE).is_file() || folder.join(RAW_FOLDER).is_dir()
}

/// The trace's short name: the name of its folder without the extension.
#[must_use]
pub fn stem(folder: &Path) -> String {
    let name = if has_extension(folder) { folder.file_stem() } else { folder.file_name() };
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn has_extension(name: &Path) -> bool {
    name.extension().is_some_and(|extension| extension == EXTENSION)
}

fn with_extension(name: &Path) -> PathBuf {
    // `.` and `..` have no name to which an extension could be added.
    let Some(file_name) = name.file_name() else { return name.to_path_buf() };
    let mut longer = OsString::from(file_name);
    longer.push(".");
    longer.push(EXTENSION);
    name.with_file_name(longer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_gets_the_ending_that_it_lacks() {
        for (given, folder) in [
            ("run", "run.numatrace"),
            ("run.numatrace", "run.numatrace"),
            ("a/run/", "a/run.numatrace"),
            ("v1.2", "v1.2.numatrace"),
            ("/tmp/run.numatrace/", "/tmp/run.numatrace/"),
            ("..", ".."),
        ] {
            assert_eq!(output_folder(Path::new(given)), Path::new(folder), "{given}");
        }
    }

    #[test]
    fn a_trace_is_found_with_and_without_its_ending() {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = folder.path().join("run.numatrace");
        std::fs::create_dir_all(trace.join(RAW_FOLDER)).expect("made");
        assert_eq!(find(&folder.path().join("run")), trace);
        assert_eq!(find(&trace), trace);
        // A folder of the same name that is no trace does not hide it; one that is a trace is meant itself.
        std::fs::create_dir(folder.path().join("run")).expect("made");
        assert_eq!(find(&folder.path().join("run")), trace);
        std::fs::write(folder.path().join("run").join(META_FILE), "{}").expect("written");
        assert_eq!(find(&folder.path().join("run")), folder.path().join("run"));
        assert_eq!(find(&folder.path().join("other")), folder.path().join("other"));
    }
}
