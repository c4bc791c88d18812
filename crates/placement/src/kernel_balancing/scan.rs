//! Scanning: when a task unmaps the next piece of its process's memory, and how fast it does so.

use super::{KernelBalancing, Task};
use crate::action::Action;
use crate::observation::Observation;
use crate::scan_limits::{RUN_PER_SCAN, TWO_TICKS_NS};

/// Steps in which the period is adapted (`NUMA_PERIOD_SLOTS`).
const PERIOD_SLOTS: i64 = 10;
/// From this many tenths of private or local faults on, scanning slows down (`NUMA_PERIOD_THRESHOLD`).
const PERIOD_THRESHOLD: i64 = 7;

impl KernelBalancing {
    fn resident(&self, task: &Task) -> u64 {
        self.processes.get(&task.process).map_or(0, |p| p.resident)
    }

    /// Shortest scan period of the task in milliseconds (the kernel's `task_scan_min`).
    pub(super) fn period_min_ms(&self, task: &Task) -> u64 {
        self.limits.shortest_ms(self.resident(task))
    }

    /// Longest scan period of the task in milliseconds (the kernel's `task_scan_max`).
    pub(super) fn period_max_ms(&self, task: &Task) -> u64 {
        let longest = self.limits.period_max_ms / self.limits.windows(self.resident(task));
        longest.max(self.stretched(task, longest)).max(self.period_min_ms(task))
    }

    /// First period of a task (`task_scan_start`).
    pub(super) fn period_start_ms(&self, task: &Task) -> u64 {
        let shortest = self.period_min_ms(task);
        shortest.max(self.stretched(task, shortest))
    }

    /// A period, longer the more tasks share and the more of the memory is shared; as it is outside groups.
    fn stretched(&self, task: &Task, period_ms: u64) -> u64 {
        let Some(group) = task.group.and_then(|id| self.groups.get(&id)) else { return period_ms };
        let [shared, private] = group.faults.by_kind();
        let stretched = u128::from(period_ms) * u128::from(group.tasks) * u128::from(shared + 1);
        (stretched / u128::from(private + shared + 1)) as u64
    }

    /// Slows scanning down where faults are private or local, speeds it up where they are neither (`update_task_scan_period`). `kinds` are the
    /// shared and private faults of the last pass.
    pub(super) fn adapt_period(&mut self, thread: u32, kinds: [i64; 2], now_ns: u64) {
        let Some(task) = self.tasks.get(&thread) else { return };
        let (min_ms, max_ms) = (self.period_min_ms(task), self.period_max_ms(task));
        let [shared, private] = kinds;
        let [remote, local, failed] = task.locality;
        let process = task.process;
        let Some(task) = self.tasks.get_mut(&thread) else { return };
        if local + shared == 0 || failed > 0 {
            // Idle, of no interest, or moving faster than memory allows. The kernel does not clear the counts here: one failed move slows a task for good.
            task.period_ms = (task.period_ms * 2).min(task.period_max_ms);
            if let Some(process) = self.processes.get_mut(&process) {
                process.next_scan_ns = now_ns + task.period_ms * 1_000_000;
            }
            return;
        }
        let slot = (task.period_ms as i64 + PERIOD_SLOTS - 1) / PERIOD_SLOTS;
        let local_slots = local * PERIOD_SLOTS / (local + remote).max(1);
        let private_slots = private * PERIOD_SLOTS / (private + shared).max(1);
        let slots = if private_slots >= PERIOD_THRESHOLD {
            (private_slots - PERIOD_THRESHOLD).max(1)
        } else if local_slots >= PERIOD_THRESHOLD {
            (local_slots - PERIOD_THRESHOLD).max(1)
        } else {
            local_slots.max(private_slots) - PERIOD_THRESHOLD
        };
        let period = task.period_ms as i64 + slots * slot;
        task.period_ms = period.clamp(min_ms as i64, max_ms as i64) as u64;
        task.locality = [0; 3];
    }

    /// Lets the tasks whose time has come scan (`task_tick_numa`, `task_numa_work`). Returns how many pages were unmapped.
    pub(super) fn scan(&mut self, seen: &Observation, actions: &mut Vec<Action>) -> u64 {
        let mut unmapped = 0;
        for thread in self.tasks.keys().copied().collect::<Vec<_>>() {
            while let Some(process) = self.tick(thread, seen.now_ns) {
                let pages = self.unmap_next(process, seen, actions);
                unmapped += pages;
                if let Some(task) = self.tasks.get_mut(&thread) {
                    task.stamp_ns += RUN_PER_SCAN * pages * self.limits.ns_per_page;
                }
            }
        }
        unmapped
    }

    /// Advances a task's clock by one period if it is due. The process to scan, if that falls to this task.
    fn tick(&mut self, thread: u32, now_ns: u64) -> Option<u32> {
        loop {
            let task = self.tasks.get(&thread)?;
            let period_ns = task.period_ms.max(1) * 1_000_000;
            if task.runtime_ns <= task.stamp_ns + period_ns {
                return None;
            }
            let first_ms = (task.stamp_ns == 0).then(|| self.period_start_ms(task));
            let process_number = task.process;
            let task = self.tasks.get_mut(&thread)?;
            task.stamp_ns += period_ns;
            task.period_ms = first_ms.unwrap_or(task.period_ms);
            let process = self.processes.get_mut(&process_number)?;
            if process.begins_scan(now_ns, task.period_ms) {
                task.stamp_ns += TWO_TICKS_NS;
                return Some(process_number);
            }
        }
    }

    /// Unmaps the next piece of a process's memory; at its end, the pass is complete.
    fn unmap_next(&mut self, number: u32, seen: &Observation, actions: &mut Vec<Action>) -> u64 {
        let piece = self.limits.piece_pages();
        let Some(process) = self.processes.get_mut(&number) else { return 0 };
        let areas = || {
            seen.mapped
                .iter()
                .filter(|(p, _, pages)| *p == number && *pages > 0)
                .map(|(_, first, pages)| (*first, *first + *pages))
        };
        if !areas().any(|(_, end)| end > process.offset) {
            process.end_pass();
        }
        let mut left = piece;
        for (first, end) in areas() {
            let start = first.max(process.offset);
            if start >= end {
                continue;
            }
            let pages = left.min(end - start);
            actions.push(Action::Unmap { process: number, first: start, pages });
            left -= pages;
            process.offset = start + pages;
            if left == 0 {
                return piece;
            }
        }
        process.end_pass();
        piece - left
    }
}
