//! The processor time of each process of a recording, as the kernel accounts for it: with it a reader can tell a program that hardly accesses memory
//! from one whose accesses were not seen.
//!
//! Read from `/proc/PID/stat` (man proc_pid_stat) every now and then, and once more when a child has ended and before it is reaped. What a grandchild uses
//! after the last reading is missing, so the times are lower bounds.
//!
//! A process may execute another program, so each program's time is kept as well: with it a reader can tell a recording of a program from one of what started
//! it.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::TaskStat;
use numapilot_host::ticks_per_s;
use serde_json::Value;
use serde_json::json;

use crate::children::children;

/// Most processes that are looked at.
const PROCESSES_MAX: usize = 4096;
/// Processor time in all, seconds, from which on it is told which program used most of it: a program may be looked at twice a second only.
const TOLD_FROM_S: f64 = 0.5;

/// User and system time of one process, in ticks of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    user: u64,
    system: u64,
    /// When the process started: distinguishes processes with the same id.
    start: u64,
}

/// The file that a process executes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Executable {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Executable {
    /// `None`: the process has ended, or is not to be looked into.
    fn of(pid: Pid) -> Option<Executable> {
        let link = Root::default().path().join(format!("proc/{pid}/exe"));
        let path = fs::read_link(&link).ok()?;
        let file = fs::metadata(&link).ok()?;
        Some(Executable { path, device: file.dev(), inode: file.ino() })
    }

    /// Whether its path leads to it here: in another mount namespace it may lead to another file.
    fn is_here(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == (self.device, self.inode))
    }
}

/// Processor times by process, and by program.
#[derive(Debug, Default)]
pub struct ProcessorTimes {
    latest: HashMap<(Pid, u64), Ticks>,
    /// What each process was seen to execute last.
    executed: HashMap<(Pid, u64), Executable>,
    /// Ticks that each program was seen to use, in all processes.
    programs: HashMap<Executable, u64>,
}

impl ProcessorTimes {
    /// Looks at a process; one that is gone keeps what was seen last.
    pub fn look(&mut self, pid: Pid) {
        let mut text = Vec::new();
        let stat = TaskStat::read(&Root::default(), pid, &mut text);
        let Some(ticks) = stat.map(|stat| Ticks::of(&stat)) else { return };
        let key = (pid, ticks.start);
        let before = self.latest.insert(key, ticks).map_or(0, Ticks::all);
        if let Some(program) = Executable::of(pid) {
            self.executed.insert(key, program);
        }
        // A process that has ended shows no program: it was the one that was seen there last.
        if let Some(program) = self.executed.get(&key) {
            *self.programs.entry(program.clone()).or_default() += ticks.all().saturating_sub(before);
        }
    }

    /// Looks at these processes, and at all below them.
    pub fn look_below(&mut self, mut left: Vec<Pid>) {
        let mut seen = 0;
        while let Some(pid) = left.pop().filter(|_| seen < PROCESSES_MAX) {
            self.look(pid);
            left.extend(children(&pid.to_string()).unwrap_or_default());
            seen += 1;
        }
    }

    /// The program that was seen to use most processor time, and its share, 0 to 1, of what was seen, or of `ended_s` where that is more: the seconds that
    /// processes which have ended used in all. Short ones may have gone unseen. `None`: too little was seen to tell, or the program's file is not to be found
    /// by its path.
    #[must_use]
    pub fn busiest(&self, ended_s: f64) -> Option<(&Path, f64)> {
        let (program, &own) = self.programs.iter().max_by_key(|&(program, &ticks)| (ticks, program))?;
        let seen: u64 = self.latest.values().copied().map(Ticks::all).sum();
        let per_s = ticks_per_s() as f64;
        let is_enough = seen as f64 >= TOLD_FROM_S * per_s;
        let share = own as f64 / (seen as f64).max(ended_s * per_s);
        (is_enough && program.is_here()).then_some((program.path.as_path(), share))
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

    fn all(self) -> u64 {
        self.user.saturating_add(self.system)
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

    #[test]
    fn the_program_that_used_most_is_told_with_its_share() {
        let own = Executable::of(Pid::own()).expect("this program");
        let other = Executable { path: "/nowhere/else".into(), ..own.clone() };
        let times = |mine: u64, others: u64| {
            let ticks = |user| Ticks { user, system: 0, start: 7 };
            ProcessorTimes {
                latest: HashMap::from([((Pid(1), 7), ticks(mine)), ((Pid(2), 7), ticks(others))]),
                programs: HashMap::from([(own.clone(), mine), (other.clone(), others)]),
                ..ProcessorTimes::default()
            }
        };
        let second = ticks_per_s();
        assert_eq!(times(3 * second, second).busiest(0.0), Some((own.path.as_path(), 0.75)));
        let among_short_ones = times(3 * second, second);
        assert_eq!(among_short_ones.busiest(12.0), Some((own.path.as_path(), 0.25)), "which had the rest");
        assert_eq!(times(second, 3 * second).busiest(0.0), None, "its path leads to no such file here");
        assert_eq!(times(second / 4, 0).busiest(0.0), None, "too little to tell");
        assert_eq!(ProcessorTimes::default().busiest(0.0), None);
    }

    #[test]
    fn processes_and_their_children_are_looked_at_with_their_programs() {
        let own = Executable::of(Pid::own()).expect("this program");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        let pid = Pid::of_child(&child);
        let mut times = ProcessorTimes::default();
        times.look_below(vec![Pid::own()]);
        let is_listed = Root::default().has("proc/thread-self/children");
        let found = times.executed.iter().any(|((of, _), program)| *of == pid && *program != own);
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert_eq!(found, is_listed);
        assert!(times.executed.iter().any(|((of, _), program)| *of == Pid::own() && *program == own));
    }
}
