//! Functions that the program generated while it ran (a just-in-time compiler's), as the recorder found them at the end of the recording: what its
//! runtime wrote for `perf` is gone, or says something else, when the trace is read.

use serde::{Deserialize, Serialize};

use crate::ids::Pid;

/// Functions of one process; a process with many has several of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GeneratedCode {
    /// The process, by the number that its records have.
    pub pid: Pid,
    /// The file that the functions come from.
    pub source: String,
    /// Source files, to which the lines refer.
    pub files: Vec<String>,
    /// In the order in which they were generated.
    pub functions: Vec<GeneratedFunction>,
}

/// One function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GeneratedFunction {
    /// Address of its first instruction.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
    /// Its name, as the runtime wrote it.
    pub name: String,
    /// Address, index in `files`, and line, in ascending order of the addresses; each holds up to the next one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<(u64, u32, u32)>,
    /// Order stamp of the moment from which on it was there; `None`: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
}

impl GeneratedCode {
    /// The same process and files, with no function yet.
    pub(super) fn clone_without_functions(&self) -> GeneratedCode {
        GeneratedCode { pid: self.pid, source: self.source.clone(), files: self.files.clone(), functions: Vec::new() }
    }
}
