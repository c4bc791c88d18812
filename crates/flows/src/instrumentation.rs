//! Which parts of the recorded programs were instrumented, and the CPU time of their processes. They are stored in `meta.json` under `instrumentation`,
//! because the binaries may be gone when the trace is read.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use numapilot_symbols::Coverage;
use numapilot_trace::record::Counters;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::join::Joined;

/// Key in `meta.json`.
pub(crate) const KEY: &str = "instrumentation";
/// Key of the CPU times that the recorder measured.
const TIMES: &str = "processor_time";
/// Libraries of the system and of compilers. Users do not rebuild them, and their block copies are counted where instrumented code calls them.
const RUNTIME: &[&str] = &[
    "ld",
    "ld-linux",
    "libc",
    "libm",
    "libmvec",
    "libpthread",
    "libdl",
    "librt",
    "libgcc_s",
    "libstdc++",
    "libgomp",
    "libomp",
    "libgfortran",
    "libquadmath",
    "libatomic",
    "libnuma",
    "libresolv",
    "libutil",
    "libanl",
    "libnumapilot-track",
    "libnumapilot-plan",
];

/// The instrumentation of a recording by engine `instrument`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Instrumentation {
    /// Binaries that were loaded, the programs first, then by size.
    pub modules: Vec<Module>,
    /// Number of process images that contain call-outs.
    pub processes: u64,
    /// Accesses of these processes, counted by their call-outs.
    pub accesses: u64,
    /// Lower bound on their CPU time in user mode, ns; `None` if it is not known.
    pub user_ns: Option<u64>,
}

/// Instrumentation of one binary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Module {
    /// Path of the binary.
    pub path: String,
    /// Whether it is a program; otherwise a library.
    pub is_program: bool,
    /// Whether it is a library of the system or of a compiler.
    pub is_runtime: bool,
    /// Whether the call-outs are linked into it.
    pub has_archive: bool,
    /// Bytes of code; 0 if not known.
    pub code_bytes: u64,
    /// Of these, bytes of instrumented code.
    pub instrumented_bytes: u64,
    /// The largest parts that are not instrumented.
    pub left_out: Vec<Part>,
    /// Why the binary could not be examined; empty if it was.
    pub unknown: String,
}

/// A compile unit or function that is not instrumented.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// Name of the compile unit or function.
    pub name: String,
    /// Bytes of code.
    pub bytes: u64,
}

impl Module {
    /// File name of the binary, without its folder.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Whether a process that loaded it contains call-outs. A binary that cannot be examined (a temporary program that was removed after its run) is believed
    /// to have them where the process made accesses: only call-outs count these.
    fn has_call_outs(&self, has_accesses: bool) -> bool {
        self.has_archive || (has_accesses && !self.unknown.is_empty())
    }

    /// Share of its code that is instrumented, 0 to 1; `None` if not known.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        (self.code_bytes > 0).then(|| self.instrumented_bytes as f64 / self.code_bytes as f64)
    }
}

impl Instrumentation {
    /// Binaries that the user can instrument: all except those of the system and of compilers.
    pub fn own_modules(&self) -> impl Iterator<Item = &Module> {
        self.modules.iter().filter(|module| !module.is_runtime)
    }

    /// Reads it from the additional fields `more` of `meta.json`; `None` for other engines and older recordings.
    #[must_use]
    pub fn read(more: &serde_json::Map<String, Value>) -> Option<Instrumentation> {
        serde_json::from_value(more.get(KEY)?.clone()).ok()
    }

    /// Examines the binaries that the join found. `more`: the additional fields of the session's end.
    pub(crate) fn of(joined: &Joined, more: &serde_json::Map<String, Value>) -> Instrumentation {
        let programs: BTreeSet<&str> = joined.processes.iter().map(|process| &*process.exe).collect();
        let mut modules: BTreeMap<&str, Module> = BTreeMap::new();
        for binary in joined.binaries.iter().filter(|binary| binary.path.starts_with('/')) {
            let is_program = programs.contains(&*binary.path);
            modules.entry(&binary.path).or_insert_with(|| look(&binary.path, &binary.build_id, is_program));
        }
        let mut last: HashMap<u32, &Counters> = HashMap::new();
        for at in &joined.counters {
            last.insert(at.thread.0, &at.totals);
        }
        let has_accesses = |thread: u32| last.get(&thread).is_some_and(|totals| totals.accesses > 0);
        let seen = joined.threads.iter().filter(|thread| has_accesses(thread.index.0));
        let seen: BTreeSet<u32> = seen.map(|thread| thread.process.0).collect();
        let loaded = joined.modules.rows().filter(|row| {
            modules.get(&*row.path).is_some_and(|module| module.has_call_outs(seen.contains(&row.process)))
        });
        let images: BTreeSet<u32> = loaded.map(|row| row.process).collect();
        let theirs = joined.threads.iter().filter(|thread| images.contains(&thread.process.0));
        let accesses = theirs.filter_map(|thread| last.get(&thread.index.0)).map(|totals| totals.accesses).sum();
        let pids: BTreeSet<u64> = joined
            .processes
            .iter()
            .filter(|process| images.contains(&process.index.0))
            .map(|process| u64::from(process.pid.0))
            .collect();
        let user_ns = user_ns(more, &pids);
        let mut modules: Vec<Module> = modules.into_values().collect();
        modules.sort_by_key(|module| (!module.is_program, std::cmp::Reverse(module.code_bytes)));
        Instrumentation { modules, processes: images.len() as u64, accesses, user_ns }
    }
}

/// CPU time in user mode of these processes, ns; `None` if it was not measured for one of them.
fn user_ns(more: &serde_json::Map<String, Value>, pids: &BTreeSet<u64>) -> Option<u64> {
    let rows = more.get(TIMES)?.as_array()?;
    let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
    for row in rows {
        let number = |key: &str| row.get(key).and_then(Value::as_u64);
        *sums.entry(number("pid")?).or_default() += number("user_ns")?;
    }
    pids.iter().map(|pid| sums.get(pid).copied()).sum()
}

fn look(path: &str, build_id: &[u8], is_program: bool) -> Module {
    let module = Module { path: path.to_owned(), is_program, is_runtime: is_runtime(path), ..Module::default() };
    match Coverage::read(path, build_id) {
        Err(why) => Module { unknown: why.to_string(), ..module },
        Ok(found) => Module {
            has_archive: found.has_archive,
            code_bytes: found.code_bytes,
            instrumented_bytes: found.instrumented_bytes,
            left_out: found.left_out.into_iter().map(|(name, bytes)| Part { name, bytes }).collect(),
            ..module
        },
    }
}

/// Whether the file's name, up to its version, is in [`RUNTIME`]: `libm.so.6`, `libc-2.31.so`, `ld-linux-x86-64.so.2`.
fn is_runtime(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.split(".so").next().unwrap_or(name);
    let is_version = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let stem = stem.rsplit_once('-').filter(|(_, end)| is_version(end)).map_or(stem, |(stem, _)| stem);
    name.contains(".so") && (RUNTIME.contains(&stem) || stem.starts_with("ld-linux"))
}

#[cfg(test)]
mod tests {
    //! Names of libraries, and times by process.

    use serde_json::json;

    use super::*;

    #[test]
    fn the_systems_libraries_are_told_from_the_programs() {
        for path in [
            "/lib/libc.so.6",
            "/lib/libc-2.31.so",
            "/lib/ld-2.31.so",
            "/lib64/ld-linux-x86-64.so.2",
            "/usr/lib/libstdc++.so.6.0.30",
        ] {
            assert!(is_runtime(path), "{path}");
        }
        for path in ["/usr/bin/libc", "/lib/libz.so.1", "/lib/libcblas.so.3", "/home/u/p"] {
            assert!(!is_runtime(path), "{path}");
        }
    }

    #[test]
    fn accesses_speak_for_a_binary_that_is_gone() {
        let examined = Module::default();
        let gone = Module { unknown: "no such binary file".to_owned(), ..Module::default() };
        let linked = Module { has_archive: true, ..Module::default() };
        assert!(gone.has_call_outs(true) && !gone.has_call_outs(false));
        assert!(!examined.has_call_outs(true) && linked.has_call_outs(false));
    }

    #[test]
    fn a_time_that_is_not_known_is_none_and_not_zero() {
        let rows = json!([{ "pid": 1, "user_ns": 5, "system_ns": 0 }, { "pid": 2, "user_ns": 7, "system_ns": 0 }]);
        let more = serde_json::Map::from_iter([(TIMES.to_owned(), rows)]);
        assert_eq!(user_ns(&more, &BTreeSet::from([1, 2])), Some(12));
        assert_eq!(user_ns(&more, &BTreeSet::from([2])), Some(7));
        assert_eq!(user_ns(&more, &BTreeSet::from([1, 3])), None);
        assert_eq!(user_ns(&serde_json::Map::new(), &BTreeSet::from([1])), None);
    }
}
