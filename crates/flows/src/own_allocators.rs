//! Which recorded binaries carry an allocator that the tracker cannot stand before, so that its blocks are missing. It is stored in `meta.json` under
//! `own_allocators`, because the binaries may be gone when the trace is read.

use std::collections::{BTreeMap, BTreeSet};

use numapilot_symbols::own_allocator;
use numapilot_trace::engine::Engine;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::join::Joined;

/// Key in `meta.json`.
pub(crate) const KEY: &str = "own_allocators";
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

/// Those of which blocks are missing: engine `emulate` records them, and recordings without the tracker have no heap blocks at all.
pub(crate) fn found(joined: &Joined, engine: Option<Engine>) -> Vec<OwnAllocator> {
    let has_tracker = joined.binaries.iter().any(|binary| binary.path.ends_with(TRACKER));
    if !has_tracker || matches!(engine, Some(Engine::Emulate)) {
        return Vec::new();
    }
    let programs: BTreeSet<&str> = joined.processes.iter().map(|process| &*process.exe).collect();
    let mut found: BTreeMap<&str, Option<String>> = BTreeMap::new();
    for binary in joined.binaries.iter().filter(|binary| binary.path.starts_with('/')) {
        let is_program = programs.contains(&*binary.path);
        let look = || own_allocator(&binary.path, &binary.build_id, is_program).ok().flatten();
        found.entry(&binary.path).or_insert_with(look);
    }
    let named = found
        .into_iter()
        .filter_map(|(path, function)| Some(OwnAllocator { path: path.to_owned(), function: function? }));
    named.collect()
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
    }
}
