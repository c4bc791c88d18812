//! Scanning: when a task unmaps the next piece of its process's slow memory (`task_tick_numa`, `task_numa_work`). Memory of the top tier is passed over
//! (`change_pte_range`: "Skip scanning top tier node if normal numa balancing is disabled").

use std::collections::BTreeMap;

use crate::action::Action;
use crate::kernel_tiers::KernelTiers;
use crate::observation::{HomeRun, Observation};
use crate::scan_limits::{RUN_PER_SCAN, ScanLimits, TWO_TICKS_NS};
use crate::scan_process::ScannedProcess;

/// A scan passes over this many times the memory that it may unmap, at most (`task_numa_work`: `virtpages = pages * 8`).
const PASSED_OVER: u64 = 8;

/// State of a task, as in the kernel's `task_struct`.
#[derive(Clone, Debug)]
struct Task {
    process: u32,
    runtime_ns: u64,
    stamp_ns: u64,
    period_ms: u64,
    /// The pass of the process in which its period was last adapted.
    adapted: u64,
}

/// Everything that scans.
#[derive(Clone, Debug)]
pub(super) struct Scanner {
    limits: ScanLimits,
    processes: BTreeMap<u32, ScannedProcess>,
    tasks: BTreeMap<u32, Task>,
}

impl Scanner {
    pub fn new(limits: ScanLimits) -> Self {
        Self { limits, processes: BTreeMap::new(), tasks: BTreeMap::new() }
    }

    /// Takes in who lives and for how long it ran, and how much memory each process has.
    pub fn update(&mut self, seen: &Observation) {
        let start_ns = seen.now_ns.saturating_sub(seen.elapsed_ns);
        for thread in &seen.threads {
            let is_first = !self.processes.contains_key(&thread.process);
            let process = self
                .processes
                .entry(thread.process)
                .or_insert_with(|| ScannedProcess::new(start_ns, self.limits.delay_ms));
            let task = self.tasks.entry(thread.thread).or_insert_with(|| Task {
                process: thread.process,
                runtime_ns: 0,
                stamp_ns: if is_first { 0 } else { TWO_TICKS_NS },
                period_ms: self.limits.delay_ms,
                adapted: process.passes,
            });
            let busy_ns = if thread.busy_ns.is_finite() { thread.busy_ns.max(0.0) } else { 0.0 };
            task.runtime_ns += busy_ns as u64;
        }
        let alive = |thread: &u32| seen.threads.iter().any(|state| state.thread == *thread);
        self.tasks.retain(|thread, _| alive(thread));
        let tasks = &self.tasks;
        self.processes.retain(|number, _| tasks.values().any(|task| task.process == *number));
        for (number, process) in &mut self.processes {
            process.resident = seen.homes.iter().filter(|run| run.process == *number).map(|run| run.pages).sum();
        }
    }

    /// A page was promoted at a task's fault. The fault counts as remote and private, so once in every pass the scan period doubles
    /// (`update_task_scan_period`: neither local nor shared faults).
    pub fn promoted(&mut self, thread: u32, now_ns: u64) {
        let Some(task) = self.tasks.get_mut(&thread) else { return };
        let Some(process) = self.processes.get_mut(&task.process) else { return };
        if std::mem::replace(&mut task.adapted, process.passes) == process.passes {
            return;
        }
        let longest_ms = self.limits.period_max_ms / self.limits.windows(process.resident);
        let longest_ms = longest_ms.max(self.limits.shortest_ms(process.resident));
        task.period_ms = (task.period_ms * 2).min(longest_ms);
        process.next_scan_ns = now_ns + task.period_ms * 1_000_000;
    }

    /// Lets the tasks whose time has come scan. Returns how many pages they unmap.
    pub fn scan(&mut self, seen: &Observation, tiers: &KernelTiers, actions: &mut Vec<Action>) -> u64 {
        let mut unmapped = 0;
        for thread in self.tasks.keys().copied().collect::<Vec<_>>() {
            while let Some(process) = self.tick(thread, seen.now_ns) {
                let pages = self.unmap_next(process, &seen.homes, tiers, actions);
                unmapped += pages;
                if let Some(task) = self.tasks.get_mut(&thread) {
                    task.stamp_ns += RUN_PER_SCAN * pages * self.limits.ns_per_page;
                }
            }
        }
        unmapped
    }

    /// Shortest and longest present scan period of any task, milliseconds.
    pub fn periods_ms(&self) -> (u64, u64) {
        let periods = || self.tasks.values().map(|task| task.period_ms);
        (periods().min().unwrap_or(0), periods().max().unwrap_or(0))
    }

    /// Advances a task's clock by one period if it is due. The process to scan, if that falls to this task.
    fn tick(&mut self, thread: u32, now_ns: u64) -> Option<u32> {
        loop {
            let task = self.tasks.get_mut(&thread)?;
            let process = self.processes.get_mut(&task.process)?;
            let period_ns = task.period_ms.max(1) * 1_000_000;
            if task.runtime_ns <= task.stamp_ns + period_ns {
                return None;
            }
            if task.stamp_ns == 0 {
                task.period_ms = self.limits.shortest_ms(process.resident);
            }
            task.stamp_ns += period_ns;
            if process.begins_scan(now_ns, task.period_ms) {
                task.stamp_ns += TWO_TICKS_NS;
                return Some(task.process);
            }
        }
    }

    /// Unmaps the slow pages in the next piece of a process's memory; at its end, the pass is complete.
    fn unmap_next(&mut self, number: u32, homes: &[HomeRun], tiers: &KernelTiers, actions: &mut Vec<Action>) -> u64 {
        let Some(process) = self.processes.get_mut(&number) else { return 0 };
        let runs = || homes.iter().filter(|run| run.process == number);
        if !runs().any(|run| run.first + run.pages > process.offset) {
            process.end_pass();
        }
        let piece = self.limits.piece_pages();
        let (mut left, mut left_over, mut unmapped) = (piece, PASSED_OVER * piece, 0);
        for run in runs() {
            let (start, end) = (run.first.max(process.offset), run.first + run.pages);
            if start >= end {
                continue;
            }
            let is_slow = tiers.is_slow(run.node);
            let pages = (end - start).min(left_over).min(if is_slow { left } else { u64::MAX });
            if is_slow {
                actions.push(Action::Unmap { process: number, first: start, pages });
                unmapped += pages;
                left -= pages;
            }
            left_over -= pages;
            process.offset = start + pages;
            if left == 0 || left_over == 0 {
                return unmapped;
            }
        }
        process.end_pass();
        unmapped
    }
}
