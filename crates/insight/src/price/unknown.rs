//! Accesses without a known home. No change is known to move their pages, so they go on to where the thread's others went as recorded, whatever becomes of
//! these, be they few or many: no gain covers them, as findings say where there are many.

use super::shrink::Threads;
use super::sums::{Line, Rest, Sums};
use crate::usage::Usage;

/// The accesses of a recording whose homes are known, as recorded, and how many others there are.
pub(super) struct Unknown {
    pub sums: Sums,
    /// By row: reads by answering node, then writes.
    pub rows: Vec<Vec<f64>>,
    pub threads: Threads,
    /// `[window * threads + thread]`: share of its accesses without a known home, 0 to 1.
    share: Vec<f64>,
    /// Number of threads.
    count: usize,
}

impl Unknown {
    /// `recorded`: the sums of the program as it was recorded. `None` where all homes are known.
    pub fn of(usage: &Usage, recorded: impl FnOnce() -> Sums) -> Option<Unknown> {
        let mut all = vec![0.0; usage.windows.count * usage.threads];
        let mut share = all.clone();
        for (cell, count) in &usage.cells {
            let row = &usage.rows[cell.row as usize];
            let at = usize::from(row.window) * usage.threads + row.thread as usize;
            all[at] += *count;
            share[at] += if cell.home.index().is_none() { *count } else { 0.0 };
        }
        if share.iter().all(|unknown| *unknown <= 0.0) {
            return None;
        }
        share.iter_mut().zip(&all).filter(|(_, all)| **all > 0.0).for_each(|(share, all)| *share /= *all);
        let sums = recorded();
        let rows = sums.all();
        let threads = Threads::of(usage, &rows, &sums.own_of_all());
        Some(Unknown { sums, rows, threads, share, count: usage.threads })
    }

    /// Adds the lines of a window as `recorded` to those under a change, each thread's by its share of accesses without a known home.
    pub fn add(&self, window: usize, lines: &mut Vec<Line>, recorded: Vec<Line>) {
        let share = |thread: usize| self.share[window * self.count + thread];
        lines.iter_mut().for_each(|line| line.part *= 1.0 - share(line.thread));
        for line in recorded {
            let part = line.part * share(line.thread);
            if part > 0.0 {
                lines.push(Line { part, is_unknown: true, ..line });
            }
        }
    }

    /// What is left of it without one part of the samples.
    pub fn without(&self, part: usize, usage: &Usage) -> Rest {
        Rest::of(part, usage, &self.sums, &self.rows)
    }
}
