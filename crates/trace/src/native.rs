//! What the recorded program takes as it is built without call-outs: measured beside the recording, kept in `meta.json`.

use serde::{Deserialize, Serialize};

/// The runs of one program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Native {
    /// Path of the file that ran.
    pub program: String,
    /// The processors' name; empty where it is not known.
    #[serde(default)]
    pub cpu_model: String,
    /// In the order in which they were made.
    pub runs: Vec<NativeRun>,
}

/// One run to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NativeRun {
    /// Processor time in user mode, of the program and the children that it waited for, ns.
    pub user_ns: u64,
    /// The same in the kernel.
    pub system_ns: u64,
    /// Real time, ns.
    pub wall_ns: u64,
    /// Core clock right after the run, MHz.
    pub clock_mhz: f64,
}
