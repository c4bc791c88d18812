//! Metadata that the recorder writes at the start and at the end of a recording.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::RecordedBy;
use crate::wire::Clock;

/// Written before the program starts. Unknown fields are kept in `more`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionStart {
    /// Version of the tool that records.
    pub tool_version: String,
    /// The engine that records.
    pub engine: RecordedBy,
    /// The recorded program and its arguments.
    pub command: Vec<String>,
    /// Working directory of the program.
    pub directory: String,
    /// Start of the recording: nanoseconds since 1970, UTC.
    pub start_unix_ns: u64,
    /// The same moment on CLOCK_MONOTONIC.
    pub start_monotonic_ns: u64,
    /// The same moment as an order stamp.
    pub start_order: u64,
    /// Frequency of order stamps, kHz; 0: unknown.
    pub order_khz: u32,
    /// Frequency of clock stamps, kHz.
    pub clock_khz: u32,
    /// Clock stamp at time 0.
    pub clock_origin_cycles: u64,
    /// Whether the machine (and so clock and home nodes) is simulated.
    pub simulated: bool,
    /// The machine model in its JSON form.
    pub machine: Value,
    /// Settings of the recording, as given to the runtime.
    pub config: Map<String, Value>,
    /// Facts about the host (kernel, CPU, memory).
    pub host: Map<String, Value>,
    /// Fields that this build does not know.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl SessionStart {
    /// The conversion from clock stamps to time.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock { khz: self.clock_khz, origin_cycles: self.clock_origin_cycles }
    }
}

/// Written after the last record. Its absence means that the recorder was killed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionEnd {
    /// End of the recording on CLOCK_MONOTONIC, nanoseconds.
    pub end_monotonic_ns: u64,
    /// The same moment as an order stamp.
    pub end_order: u64,
    /// Exit status of the program as from waitpid; `None`: not known.
    pub wait_status: Option<i32>,
    /// Records lost because a thread found no slot.
    pub lost_no_slot: u64,
    /// Records lost because a ring stayed full.
    pub lost_full: u64,
    /// Records not written because recording had stopped.
    pub lost_stopped: u64,
    /// Call stacks that are incomplete because unwinding failed.
    pub failed_unwinds: u64,
    /// Why recording stopped before the program ended ("disk full"), if it did.
    pub stopped_early: Option<String>,
    /// Fields that this build does not know.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}
