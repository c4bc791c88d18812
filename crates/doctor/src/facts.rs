//! Facts that decide which engines work on a machine, as plain data: collected by [`super::probe`], or captured on another machine and kept as JSON.

use numapilot_perf_events::facts::{Answer, EventFacts};
use serde::{Deserialize, Serialize};

/// How far QEMU's user mode with our plugin goes here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmulatorFact {
    /// In words, if it works: which QEMU.
    pub version: Option<String>,
    /// What is missing, where it cannot be used.
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
}

/// Everything about a machine that the diagnosis depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The machine, the kernel, and which events it opens.
    #[serde(flatten)]
    pub events: EventFacts,
    /// Shared memory that a recorded program maps.
    pub memfd: Answer,
    /// Compilers that `numapilot cc`, `c++` and `fc` would call.
    pub compilers: Vec<String>,
    /// User-mode emulator for engine `emulate`.
    pub emulator: EmulatorFact,
}
