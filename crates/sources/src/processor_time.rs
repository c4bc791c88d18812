//! The processor time of each process of a recording, as the kernel accounts for it: with it a reader can tell a program that hardly accesses memory
//! from one whose accesses were not seen.
//!
//! Read from `/proc/PID/stat` (man proc_pid_stat) every now and then, and once more when a child has ended and before it is reaped. What a grandchild uses
//! after the last reading is missing, so the times are lower bounds.

use std::collections::HashMap;
use std::fs;

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
    latest: HashMap<(i32, u64), Ticks>,
}

impl ProcessorTimes {
    /// Looks at a process; one that is gone keeps what was seen last.
    pub fn look(&mut self, pid: i32) {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if let Some(ticks) = parse(&text) {
            self.latest.insert((pid, ticks.start), ticks);
        }
    }

    /// For the trace: process ids with user and system time in nanoseconds.
    pub fn to_json(&self) -> Value {
        // SAFETY: sysconf has no conditions.
        let hertz = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|hertz| *hertz > 0);
        let Some(hertz) = hertz else { return Value::Null };
        let ns = |ticks: u64| ticks.saturating_mul(1_000_000_000) / hertz;
        let mut rows: Vec<_> = self.latest.iter().collect();
        rows.sort_by_key(|(key, _)| **key);
        rows.into_iter()
            .map(|((pid, _), ticks)| json!({ "pid": pid, "user_ns": ns(ticks.user), "system_ns": ns(ticks.system) }))
            .collect()
    }
}

/// Fields 14, 15 and 22. The second is a name in brackets, which may hold blanks and brackets itself.
fn parse(text: &str) -> Option<Ticks> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse().ok();
    Some(Ticks { user: field(14)?, system: field(15)?, start: field(22)? })
}

#[cfg(test)]
mod tests {
    //! Lines as the kernel writes them.

    use super::*;

    #[test]
    fn names_with_brackets_are_passed_over() {
        let line = "7 (a) b (c) R 1 7 7 0 -1 4194304 95 0 0 0 12 34 0 0 20 0 1 0 5678 9 1";
        assert_eq!(parse(line), Some(Ticks { user: 12, system: 34, start: 5678 }));
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_process_that_is_gone_keeps_its_time() {
        let mut times = ProcessorTimes::default();
        times.look(std::process::id().cast_signed());
        times.look(i32::MAX);
        let rows = times.to_json();
        assert_eq!(rows.as_array().map(Vec::len), Some(1));
        assert!(rows[0]["user_ns"].is_u64());
    }
}
