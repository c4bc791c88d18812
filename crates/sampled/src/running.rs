//! Which task ran on a CPU at a time, from its context switches: AUX traces of whole CPUs name no task, and are read when others run already.

use std::collections::VecDeque;

use numapilot_host::Pid;
use numapilot_host::Tid;

/// Switches that are kept: seconds of a busy CPU, and more than the age of an AUX area that fills at any rate worth recording.
const SWITCHES_MAX: usize = 1 << 14;

/// The last switches of one CPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningTasks {
    /// When, and the task (process id, thread id) that ran from then on; `None`: unknown, or none that is recorded. In order of time.
    switches: VecDeque<(u64, Option<(Pid, Tid)>)>,
}

impl RunningTasks {
    /// A task was switched to, or away from (`is_out`).
    pub fn switch(&mut self, time: u64, task: (Pid, Tid), is_out: bool) {
        if self.switches.len() == SWITCHES_MAX {
            self.switches.pop_front();
        }
        let at = self.switches.partition_point(|(of, _)| *of <= time);
        // Both at the same time: the other task's beginning stands.
        let is_old = is_out && at > 0 && self.switches[at - 1].0 == time && self.switches[at - 1].1 != Some(task);
        if !is_old {
            self.switches.insert(at, (time, (!is_out).then_some(task)));
        }
    }

    /// The task that ran at a time; `None`: not known, or not any more.
    pub fn at(&self, time: u64) -> Option<(Pid, Tid)> {
        let after = self.switches.partition_point(|(of, _)| *of <= time);
        self.switches.get(after.checked_sub(1)?)?.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: (Pid, Tid) = (Pid(7), Tid(7));
    const SECOND: (Pid, Tid) = (Pid(9), Tid(10));

    #[test]
    fn the_past_stays_known_after_later_switches() {
        let mut running = RunningTasks::default();
        running.switch(100, FIRST, false);
        running.switch(200, FIRST, true);
        running.switch(200, SECOND, false);
        running.switch(300, SECOND, true);
        let at = [99, 100, 199, 200, 299, 300, 1000].map(|time| running.at(time));
        assert_eq!(at, [None, Some(FIRST), Some(FIRST), Some(SECOND), Some(SECOND), None, None]);
        // A record of another buffer comes late.
        running.switch(400, FIRST, false);
        running.switch(350, SECOND, false);
        assert_eq!([340, 360, 410].map(|time| running.at(time)), [None, Some(SECOND), Some(FIRST)]);
        running.switch(400, SECOND, true);
        assert_eq!(running.at(410), Some(FIRST));
    }

    #[test]
    fn what_is_forgotten_is_unknown() {
        let mut running = RunningTasks::default();
        let count = SWITCHES_MAX as u64 + 10;
        (0..count).for_each(|time| running.switch(time, FIRST, false));
        assert_eq!((running.at(9), running.at(10), running.at(count)), (None, Some(FIRST), Some(FIRST)));
        assert_eq!(running.switches.len(), SWITCHES_MAX);
    }
}
