//! Whether a Python interpreter ran of which the tracker knows nothing but its own functions, so that what programs allocate has these for sites, and no lines
//! of Python (docs/guides/languages.md).

use crate::join::{Joined, SiteKey};
use crate::model::{Location, Object, ObjectKind, Process};

/// Blocks that an interpreter has allocated once it runs a program: it makes more than 1,000 until then, and some 50 if it is asked for its version.
const BLOCKS_MIN: usize = 500;
/// Names of interpreters, before their versions.
const NAMES: [&str; 2] = ["python", "pypy"];

/// The note on such an interpreter; `None`: none ran, or none with the tracker in it.
pub(crate) fn note(joined: &Joined) -> Option<String> {
    if joined.binaries.iter().any(|binary| &*binary.path == Location::PYTHON) {
        return None;
    }
    let is_told = |process: &&Process| {
        let fewest = if is_without_lock(process) { 1 } else { BLOCKS_MIN };
        is_interpreter(process) && has_blocks(joined, process, fewest)
    };
    let process = joined.processes.iter().find(is_told)?;
    if is_without_lock(process) {
        return Some(format!(
            "what {} allocates has no lines of Python, and most of it is not recorded as objects: a build without the global lock has an allocator of its own \
             (mimalloc), whose calls are compiled into its functions; lines are known of CPython 3.9 to 3.14 with the lock",
            process.command()
        ));
    }
    Some(format!(
        "what {} allocates has the interpreter's functions and no lines of Python: these are known of CPython 3.9 to 3.14 with its global lock",
        process.command()
    ))
}

fn is_interpreter(process: &Process) -> bool {
    let version = NAMES.iter().find_map(|name| process.command().strip_prefix(name));
    version.is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || ".td".contains(c)))
}

/// Whether it is a build without the global lock: `python3.13t`, `python3.14td`.
fn is_without_lock(process: &Process) -> bool {
    is_interpreter(process) && process.command().trim_end_matches('d').ends_with('t')
}

fn has_blocks(joined: &Joined, process: &Process, fewest: usize) -> bool {
    let is_block = |object: &&Object| {
        let site = joined.sites.get(object.site.0 as usize);
        object.process == process.index && matches!(site, Some(SiteKey::Allocation(ObjectKind::Heap, _)))
    };
    joined.objects.iter().filter(is_block).nth(fewest - 1).is_some()
}

#[cfg(test)]
mod tests {
    use numapilot_symbols::CodeSpan;
    use numapilot_trace::ids::{ProcessIndex, StackId};

    use super::*;
    use crate::join::Binary;
    use crate::model::SiteId;

    fn joined(exe: &str, blocks: usize) -> Joined {
        let (shell, python) = (ProcessIndex(0), ProcessIndex(1));
        let process = |index, exe: &str| Process { index, exe: exe.into(), ..Process::default() };
        let block = Object { site: SiteId(1), process: python, ..Object::default() };
        let mapping = Object { process: python, ..Object::default() };
        let others = vec![Object { process: shell, ..block.clone() }; BLOCKS_MIN];
        Joined {
            processes: vec![process(shell, "/bin/dash"), process(python, exe)],
            sites: vec![
                SiteKey::Named(ObjectKind::Allocator, "allocator"),
                SiteKey::Allocation(ObjectKind::Heap, StackId(7)),
            ],
            objects: [others, vec![mapping; BLOCKS_MIN], vec![block; blocks]].concat(),
            ..Joined::default()
        }
    }

    #[test]
    fn an_interpreter_without_lines_is_named() {
        let told = note(&joined("/opt/bin/python3.15", BLOCKS_MIN));
        assert!(told.is_some_and(|note| note.starts_with("what python3.15 allocates") && note.contains("3.9 to 3.14")));
        assert_eq!(note(&joined("/usr/bin/python3.15", BLOCKS_MIN - 1)), None, "it says its version");
        for (exe, is_told) in [("/usr/bin/pypy3", true), ("/usr/bin/python3.13t", true), ("/usr/bin/pythonize", false)]
        {
            assert_eq!(note(&joined(exe, BLOCKS_MIN)).is_some(), is_told, "{exe}");
        }
        for exe in ["/usr/bin/python3.13t", "/opt/bin/python3.14td"] {
            let told = note(&joined(exe, 1)).unwrap_or_default();
            assert!(told.contains("most of it is not recorded") && told.contains("mimalloc"), "{exe}: {told}");
        }
        assert_eq!(note(&joined("/usr/bin/python3.13t", 0)), None, "nothing of malloc: without the tracker");
        let (path, span) = (Location::PYTHON.into(), CodeSpan::ALL);
        let known = Binary { path, build_id: Vec::new(), generated_by: None, span };
        assert_eq!(note(&Joined { binaries: vec![known], ..joined("/usr/bin/python3", BLOCKS_MIN) }), None);
    }
}
