//! The processor time of each process of a recording, as the kernel accounts for it: with it a reader can tell a program that hardly accesses memory
//! from one whose accesses were not seen.
//!
//! Read from `/proc/PID/stat` (man proc_pid_stat) every now and then, and once more when a child has ended and before it is reaped. What a grandchild uses
//! after the last reading is missing, so the times are lower bounds.

use std::collections::HashMap;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::TaskStat;
use numapilot_host::ticks_per_s;
use serde_json::Value;
use serde_json::json;

/// User and system time of one process, in ticks of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    user: u64,
    system: u64,
    /// When the process started: distinguishes processes with the same id.
    start: u64,
}

/// Processor times by process.
#[derive(Debug, Default)]
pub struct ProcessorTimes {
    latest: HashMap<(Pid, u64), Ticks>,
}

impl ProcessorTimes {
    /// Looks at a process; one that is gone keeps what was seen last.
    pub fn look(&mut self, pid: Pid) {
        let mut text = Vec::new();
        if let Some(ticks) = TaskStat::read(&Root::default(), pid, &mut text).map(|stat| Ticks::of(&stat)) {
            self.latest.insert((pid, ticks.start), ticks);
        }
    }

    /// For the trace: process ids with user and system time in nanoseconds.
    pub fn to_json(&self) -> Value {
        let per_s = ticks_per_s();
        let ns = |ticks: u64| ticks.saturating_mul(1_000_000_000) / per_s;
        let mut rows: Vec<_> = self.latest.iter().collect();
        rows.sort_by_key(|(key, _)| **key);
        rows.into_iter()
            .map(|((pid, _), ticks)| json!({ "pid": pid, "user_ns": ns(ticks.user), "system_ns": ns(ticks.system) }))
            .collect()
    }
}

impl Ticks {
    fn of(stat: &TaskStat<'_>) -> Ticks {
        Ticks { user: stat.user_ticks, system: stat.system_ticks, start: stat.start_ticks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_gone_keeps_its_time() {
        let mut times = ProcessorTimes::default();
        times.look(Pid::own());
        times.look(Pid(i32::MAX.cast_unsigned()));
        let rows = times.to_json();
        assert_eq!(rows.as_array().map(Vec::len), Some(1));
        assert!(rows[0]["user_ns"].is_u64());
    }
}
