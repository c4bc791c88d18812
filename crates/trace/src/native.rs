//! Run times of the recorded program built without call-outs: measured beside the recording, and kept in `meta.json`.

use serde::{Deserialize, Serialize};

/// The runs of one program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Native {
    /// Path of the executable that ran.
    pub program: String,
    /// CPU model name; empty if it is not known.
    #[serde(default)]
    pub cpu_model: String,
    /// The runs, in the order in which they were made.
    pub runs: Vec<NativeRun>,
}

/// One run to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NativeRun {
    /// CPU time in user mode, of the program and the children that it waited for, ns.
    pub user_ns: u64,
    /// CPU time in the kernel, of the same processes, ns.
    pub system_ns: u64,
    /// Elapsed (wall-clock) time, ns.
    pub wall_ns: u64,
    /// Core clock right after the run, MHz.
    pub clock_mhz: f64,
    /// Share of the CPUs' time during the run that others took: other programs, or a hypervisor. `None`: not known, as for runs that are too short for the
    /// kernel's ticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_share: Option<f64>,
}
