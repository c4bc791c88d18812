//! What the samples say of a change: sums by row and answering node, part by part, and the lines that windows are made of.

use numapilot_machine::NodeIndex;

use super::shrink::Threads;
use crate::usage::{PARTS, Usage};

/// Sums of a change, laid out for the windows.
pub(super) struct Sums {
    /// `[(part * rows + row) * 2 * nodes + to]`: reads by answering node, then writes.
    pub to: Vec<f64>,
    /// `[part * rows + row]`: sum over the accesses that memory answers of the squares of their shares by node.
    pub own: Vec<f64>,
    /// By row: accesses that a cache answers.
    pub gone: Vec<f64>,
    pub rows: usize,
    /// Twice the number of nodes.
    pub width: usize,
}

/// A row under a change.
pub(super) struct Line {
    pub row: u32,
    pub thread: usize,
    pub from: NodeIndex,
    /// The row's share of its thread's accesses in the window, and the share of these that memory answers.
    pub part: f64,
    pub left: f64,
    /// Shares of reads by answering node, then of writes.
    pub shares: Vec<f64>,
    /// Whether it stands for accesses without a known home, which no change moves.
    pub is_unknown: bool,
}

/// The samples of a change without one part of them.
pub(super) struct Rest {
    rows: Vec<Vec<f64>>,
    threads: Threads,
}

impl Sums {
    fn part(&self, part: usize, row: usize) -> &[f64] {
        let at = (part * self.rows + row) * self.width;
        &self.to[at..at + self.width]
    }

    /// By row: reads by answering node, then writes.
    pub fn all(&self) -> Vec<Vec<f64>> {
        let of = |row: usize| {
            let mut all = vec![0.0; self.width];
            for part in 0..PARTS {
                all.iter_mut().zip(self.part(part, row)).for_each(|(sum, count)| *sum += count);
            }
            all
        };
        (0..self.rows).map(of).collect()
    }

    /// By row: the sum over its accesses of the squares of their shares.
    pub fn own_of_all(&self) -> Vec<f64> {
        (0..self.rows).map(|row| (0..PARTS).map(|part| self.own[part * self.rows + row]).sum::<f64>()).collect()
    }

    /// The same without one part of the samples.
    fn own_without(&self, part: usize) -> Vec<f64> {
        let all = self.own_of_all();
        let of_part = &self.own[part * self.rows..(part + 1) * self.rows];
        all.iter().zip(of_part).map(|(all, own)| (all - own).max(0.0)).collect()
    }

    /// The same as [`Sums::all`] without one part of the samples.
    fn without(&self, part: usize, all: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let of = |(row, all): (usize, &Vec<f64>)| {
            all.iter().zip(self.part(part, row)).map(|(sum, count)| (sum - count).max(0.0)).collect()
        };
        all.iter().enumerate().map(of).collect()
    }
}

impl Rest {
    /// `all`: [`Sums::all`] of these sums.
    pub fn of(part: usize, usage: &Usage, sums: &Sums, all: &[Vec<f64>]) -> Rest {
        let rows = sums.without(part, all);
        let threads = Threads::of(usage, &rows, &sums.own_without(part));
        Rest { rows, threads }
    }

    /// Shares of a line's reads by answering node, then of its writes.
    pub fn shares(&self, line: &Line) -> Vec<f64> {
        self.threads.shares(line.thread, &self.rows[line.row as usize])
    }
}
