//! Which recorded binaries carry an allocator that the tracker cannot stand before, so that its blocks are missing, and which program may carry one that
//! nobody can find, because it has no symbols. It is stored in `meta.json` under `own_allocators` and `nameless_program`, because the binaries may be gone
//! when the trace is read.

use std::collections::{BTreeMap, BTreeSet};

use numapilot_symbols::{has_symbols, own_allocator};
use numapilot_trace::engine::Engine;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::join::Joined;
use crate::model::{ObjectKind, Site};
use crate::symbolise::Names;

/// Key in `meta.json`.
pub(crate) const KEY: &str = "own_allocators";
/// Key of a nameless program in `meta.json`.
pub(crate) const NAMELESS_KEY: &str = "nameless_program";
/// File name of the tracker.
const TRACKER: &str = "libnumapilot-track.so";

/// A binary with an allocator of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnAllocator {
    /// Path of the binary.
    pub path: String,
    /// A function of the allocator.
    pub function: String,
}

impl OwnAllocator {
    /// Reads them from the additional fields `more` of `meta.json`; empty if there are none, and in older recordings.
    #[must_use]
    pub fn read(more: &serde_json::Map<String, Value>) -> Vec<OwnAllocator> {
        more.get(KEY).and_then(|found| serde_json::from_value(found.clone()).ok()).unwrap_or_default()
    }

    /// File name of the binary, without its folder.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// A program without symbols, to whose own mappings most accesses go: whether it carries an allocator, and where its blocks are, cannot be found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamelessProgram {
    /// Path of the program.
    pub path: String,
}

impl NamelessProgram {
    /// Reads it from the additional fields `more` of `meta.json`; `None` if there is none, and in older recordings.
    #[must_use]
    pub fn read(more: &serde_json::Map<String, Value>) -> Option<NamelessProgram> {
        more.get(NAMELESS_KEY).and_then(|found| serde_json::from_value(found.clone()).ok())
    }

    /// Its file name, without the folder.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

fn has_tracker(joined: &Joined) -> bool {
    joined.binaries.iter().any(|binary| binary.path.ends_with(TRACKER))
}

/// The program, if more than half of all accesses, `weight`, are to memory that code without a name in it has mapped.
pub(crate) fn nameless(joined: &Joined, names: &Names, weight: u64) -> Option<NamelessProgram> {
    if !has_tracker(joined) {
        return None;
    }
    let programs: BTreeSet<&str> = joined.processes.iter().map(|process| &*process.exe).collect();
    let mut mapped: BTreeMap<&str, u64> = BTreeMap::new();
    for (&key, &accesses) in names.site_of_key.iter().zip(&joined.site_accesses) {
        let Some(site) = names.sites.get(key.0 as usize) else { continue };
        if site.kind == ObjectKind::Anonymous && programs.contains(&*site.module) && is_unnamed(site) {
            *mapped.entry(&site.module).or_default() += accesses;
        }
    }
    let (path, _) = mapped.into_iter().find(|&(_, accesses)| accesses > weight / 2)?;
    let binary = joined.binaries.iter().find(|binary| &*binary.path == path)?;
    let is_stripped = has_symbols(path, &binary.build_id) == Ok(false);
    is_stripped.then(|| NamelessProgram { path: path.to_owned() })
}

/// Whether the function that allocates has no name but its place in the binary: `app+0x1234`.
fn is_unnamed(site: &Site) -> bool {
    let base = site.function.rsplit_once("+0x").map(|(base, _)| base);
    base.is_some_and(|base| !base.is_empty() && site.module.ends_with(base))
}

/// Those of which blocks are missing: engine `emulate` records them, and recordings without the tracker have no heap blocks at all.
pub(crate) fn found(joined: &Joined, engine: Option<Engine>) -> Vec<OwnAllocator> {
    if !has_tracker(joined) || matches!(engine, Some(Engine::Emulate)) {
        return Vec::new();
    }
    let programs: BTreeSet<&str> = joined.processes.iter().map(|process| &*process.exe).collect();
    let mut found: BTreeMap<&str, Option<String>> = BTreeMap::new();
    for binary in joined.binaries.iter().filter(|binary| binary.path.starts_with('/')) {
        let is_program = programs.contains(&*binary.path);
        let is_used = |function: &String| !(function.starts_with("mi_") && is_python(&binary.path));
        let look = || own_allocator(&binary.path, &binary.build_id, is_program).ok().flatten().filter(is_used);
        found.entry(&binary.path).or_insert_with(look);
    }
    let named = found
        .into_iter()
        .filter_map(|(path, function)| Some(OwnAllocator { path: path.to_owned(), function: function? }));
    named.collect()
}

/// Whether a binary is a Python interpreter. From 3.13 on it carries mimalloc, which builds with the global lock do not use; in those without, its calls are
/// compiled into the interpreter's functions, so that `emulate` cannot follow them either (`unknown_python` tells of these).
fn is_python(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let version = name.strip_prefix("libpython3.").or_else(|| name.strip_prefix("python3."));
    version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    //! What is read back.

    use super::*;

    #[test]
    fn they_are_read_as_they_were_written() {
        let own = OwnAllocator { path: "/usr/bin/redis-server".to_owned(), function: "je_malloc".to_owned() };
        let more = serde_json::Map::from_iter([(KEY.to_owned(), serde_json::json!([own]))]);
        assert_eq!(OwnAllocator::read(&more), std::slice::from_ref(&own));
        assert_eq!(own.name(), "redis-server");
        assert!(OwnAllocator::read(&serde_json::Map::new()).is_empty());
        let program = NamelessProgram { path: "/opt/app/server".to_owned() };
        let more = serde_json::Map::from_iter([(NAMELESS_KEY.to_owned(), serde_json::json!(program))]);
        assert_eq!(NamelessProgram::read(&more), Some(program));
        assert_eq!(NamelessProgram::read(&serde_json::Map::new()), None);
    }

    /// Each recording of Python 3.13 said that blocks were missing, and of builds without the lock that `emulate` records them.
    #[test]
    fn the_allocator_that_python_carries_is_none_that_emulate_follows() {
        for path in ["/usr/lib/libpython3.13.so.1.0", "/usr/bin/python3.14", "/bin/python3.13d", "/bin/python3.14t"] {
            assert!(is_python(path), "{path}");
        }
        for path in ["/usr/bin/redis-server", "python", "/usr/lib/python3.config", "/usr/bin/pythonize"] {
            assert!(!is_python(path), "{path}");
        }
    }

    #[test]
    fn a_function_without_a_name_has_its_place_for_one() {
        let site = |function: &str| Site { function: function.into(), module: "/opt/app".into(), ..Site::default() };
        assert!(is_unnamed(&site("app+0x1234")));
        for named in ["", "grow", "other.so+0x12", "+0x12"] {
            assert!(!is_unnamed(&site(named)), "{named}");
        }
    }
}
