//! What decides which engines work on a machine, as plain data: gathered by [`super::probe`], or captured elsewhere and kept as JSON.

use numapilot_perf_events::facts::{Answer, EventFacts};
use serde::{Deserialize, Serialize};

/// How far QEMU's user mode with our plugin goes here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmulatorFact {
    /// In words, if it works: which QEMU.
    pub version: Option<String>,
    /// Else what is missing.
    pub reason: String,
    /// And what to do about it.
    pub remedy: String,
}

/// Everything that a diagnosis is made of.
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
    /// User-mode emulation.
    pub emulator: EmulatorFact,
}
