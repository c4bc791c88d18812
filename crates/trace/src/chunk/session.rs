//! Metadata that the recorder writes at the start and at the end of a recording.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::{Engine, RecordedBy};
use crate::ids::TimeNs;
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

    /// When a recording ended whose last record may be long before its end: of processes that ran before and after it (an idle server), and an imported one,
    /// whose last event may be no record here. `None`: a started program's own end is its last record.
    #[must_use]
    pub fn end_time(&self, end: &SessionEnd) -> Option<TimeNs> {
        if self.config.contains_key("attached") {
            return Some(self.clock().time(end.end_order));
        }
        // Stamps of imported recordings are nanoseconds.
        (self.engine == Engine::Import).then(|| TimeNs(end.end_order.saturating_sub(self.start_order)))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle server that was recorded for five seconds, and had its last page fault after two: "1.88 s of program time", where `record` said 5.
    #[test]
    fn processes_that_run_on_are_recorded_up_to_the_recorders_end() {
        let (start_order, clock_origin_cycles, clock_khz) = (7_000, 7_000, 2_000_000);
        let started = SessionStart {
            engine: Engine::Fault.into(),
            start_order,
            clock_origin_cycles,
            clock_khz,
            ..SessionStart::default()
        };
        let mut attached = started.clone();
        attached.config.insert("attached".to_owned(), serde_json::json!([70]));
        let imported = SessionStart { engine: Engine::Import.into(), ..started.clone() };
        let end = SessionEnd { end_order: 17_000, ..SessionEnd::default() };
        let times = [&attached, &imported, &started].map(|start| start.end_time(&end).map(|time| time.0));
        assert_eq!(times, [Some(5_000), Some(10_000), None]);
    }
}
