//! The statistics of a run: whole-run sums, the series, traffic by label, results of each thread. Turned into a [`Report`] at the end.

use std::collections::BTreeMap;

use numapilot_machine::NodeIndex;

use crate::engine::runner::{Epoch, Runners, Status};
use crate::engine::ways::Ways;
use crate::ledger::{Entry, Ledger, Scale};
use crate::pages::PageTable;
use crate::program::Program;
use crate::report::{Convergence, LabelReport, Moves, Point, PolicyCost, ThreadReport, Traffic};

/// Share of the run, at its end, that "after" covers.
const AFTER_SHARE: f64 = 0.25;

/// Sums of one thread.
#[derive(Clone, Debug, Default)]
struct ThreadSums {
    busy_ns: f64,
    lost_ns: f64,
    accesses: f64,
    instructions: f64,
}

/// The present interval of the series.
#[derive(Clone, Debug, Default)]
struct Interval {
    ledger: Ledger,
    /// Totals at its start.
    moves: Moves,
    stolen_ns: f64,
    /// Totals at its end.
    moves_end: Moves,
    stolen_end_ns: f64,
}

/// Statistics of a run.
#[derive(Debug)]
pub(crate) struct RunStats {
    pub(crate) scale: Scale,
    pub(crate) moves: Moves,
    pub(crate) cost: PolicyCost,
    pub(crate) convergence: Convergence,
    pub(crate) total: Ledger,
    pub(crate) accesses: f64,
    before: Option<Ledger>,
    series_ns: f64,
    intervals: Vec<Interval>,
    threads: Vec<ThreadSums>,
    /// By label: accesses by accessing and answering node, flat; and writes.
    labels: Vec<(Vec<f64>, f64)>,
    /// Accesses not yet attributed to labels, by (mix, node). Flushed before pages change their homes.
    pending: BTreeMap<(u32, NodeIndex), f64>,
}

impl RunStats {
    pub(crate) fn new(program: &Program, scale: Scale, series_ns: f64) -> RunStats {
        let nodes = scale.controllers.len();
        RunStats {
            scale,
            moves: Moves::default(),
            cost: PolicyCost::default(),
            convergence: Convergence::default(),
            total: Ledger::at(0.0),
            accesses: 0.0,
            before: None,
            series_ns,
            intervals: vec![Interval::default()],
            threads: vec![ThreadSums::default(); program.threads.len()],
            labels: vec![(vec![0.0; nodes * nodes], 0.0); program.labels.len()],
            pending: BTreeMap::new(),
        }
    }

    /// End of the interval of the series that holds this time.
    pub(crate) fn interval_end(&self) -> f64 {
        self.intervals.len() as f64 * self.series_ns
    }

    /// The entry of an epoch for the ledgers.
    pub(crate) fn entry(
        epoch: &Epoch,
        utilisation: &[f64],
        program: &Program,
        pages: &PageTable,
        ways: &mut Ways,
        runners: &Runners,
    ) -> Entry {
        let nodes = pages.free_bytes().len();
        let mut entry = Entry {
            reads: vec![vec![0.0; nodes]; nodes],
            writes: vec![vec![0.0; nodes]; nodes],
            utilisation: utilisation.to_vec(),
            busy_ns: epoch.ready_ns.iter().sum(),
            ..Entry::default()
        };
        for spent in &epoch.spent {
            let node = runners.all[spent.thread as usize].node;
            entry.instructions += spent.instructions;
            if spent.accesses <= 0.0 {
                continue;
            }
            entry.latency_ns += spent.accesses * ways.access_ns(program, pages, spent.behaviour, node);
            let shares = ways.shares(program, pages, program.behaviours[spent.behaviour as usize].mix, node);
            for to in 0..nodes {
                entry.reads[node][to] += spent.accesses * shares.reads[to];
                entry.writes[node][to] += spent.accesses * shares.writes[to];
            }
        }
        entry
    }

    /// Adds an epoch, before anything moves.
    pub(crate) fn record(&mut self, epoch: &Epoch, entry: &Entry, program: &Program, runners: &Runners) {
        self.total.record(entry, epoch.end_ns);
        if let Some(interval) = self.intervals.last_mut() {
            interval.ledger.record(entry, epoch.end_ns);
        }
        for (sums, (ready, lost)) in self.threads.iter_mut().zip(epoch.ready_ns.iter().zip(&epoch.lost_ns)) {
            sums.busy_ns += ready;
            sums.lost_ns += lost;
        }
        for spent in &epoch.spent {
            let thread = &mut self.threads[spent.thread as usize];
            thread.accesses += spent.accesses;
            thread.instructions += spent.instructions;
            self.accesses += spent.accesses;
            let node = runners.all[spent.thread as usize].node;
            let mix = program.behaviours[spent.behaviour as usize].mix;
            *self.pending.entry((mix, node)).or_default() += spent.accesses;
        }
    }

    /// Attributes pending traffic to labels; call it before pages change their home nodes.
    pub(crate) fn flush(&mut self, program: &Program, pages: &PageTable) {
        let nodes = pages.free_bytes().len();
        for ((mix, from), accesses) in std::mem::take(&mut self.pending) {
            for part in &program.mixes[mix as usize].parts {
                let slice = program.slices[part.slice as usize];
                let (matrix, writes) = &mut self.labels[slice.label as usize];
                *writes += accesses * part.writes;
                let each = accesses / slice.pages as f64;
                let counts = pages.counts(part.slice);
                for (to, &count) in counts.by_home.iter().enumerate().filter(|&(_, &count)| count > 0) {
                    matrix[from.0 * nodes + to] += each * count as f64 * (part.reads + part.writes);
                }
                for (&(mask, home), &count) in &counts.copied {
                    let near = pages.nearest_copy(mask, from, home);
                    matrix[from.0 * nodes + near.0] += each * count as f64 * part.reads;
                    matrix[from.0 * nodes + home.0] += each * count as f64 * part.writes;
                }
            }
        }
    }

    /// Closes the interval of the series if this time is its end.
    pub(crate) fn turn(&mut self, now_ns: f64) {
        if now_ns < self.interval_end() {
            return;
        }
        self.close_interval();
        let (moves, stolen_ns) = (self.moves.clone(), self.cost.total_ns());
        self.intervals.push(Interval { ledger: Ledger::at(now_ns), moves, stolen_ns, ..Interval::default() });
    }

    fn close_interval(&mut self) {
        let (moves, stolen_ns) = (self.moves.clone(), self.cost.total_ns());
        if let Some(interval) = self.intervals.last_mut() {
            (interval.moves_end, interval.stolen_end_ns) = (moves, stolen_ns);
        }
    }

    /// Something is about to be moved: what was before ends here.
    pub(crate) fn first_move(&mut self) {
        if self.before.is_none() {
            self.before = Some(self.total.clone());
        }
    }

    /// Ends the statistics: (total, before, after, series).
    pub(crate) fn traffic(&mut self) -> (Traffic, Option<Traffic>, Option<Traffic>, Vec<Point>) {
        self.close_interval();
        let moved = self.moves.pages() + self.moves.replicated + self.moves.threads + self.moves.split > 0;
        let from_ns = self.total.to_ns * (1.0 - AFTER_SHARE);
        let mut after = Ledger::at(self.total.to_ns);
        for interval in self.intervals.iter().filter(|interval| interval.ledger.to_ns > from_ns) {
            after.from_ns = after.from_ns.min(interval.ledger.from_ns);
            after.append(&interval.ledger);
        }
        let scale = &self.scale;
        let point = |interval: &Interval| Point {
            from_ns: interval.ledger.from_ns,
            to_ns: interval.ledger.to_ns,
            metrics: interval.ledger.metrics(scale),
            served: interval.ledger.served(),
            controllers: interval.ledger.controllers(scale),
            links: interval.ledger.links(scale),
            pages_moved: interval.moves_end.pages() - interval.moves.pages(),
            copies_made: interval.moves_end.copies_made - interval.moves.copies_made,
            threads_moved: interval.moves_end.threads - interval.moves.threads,
            stolen_ns: interval.stolen_end_ns - interval.stolen_ns,
        };
        let series = self.intervals.iter().filter(|interval| interval.ledger.elapsed_ns() > 0.0).map(point).collect();
        let before = self.before.as_ref().filter(|_| moved).map(|ledger| ledger.traffic(scale));
        (self.total.traffic(scale), before, moved.then(|| after.traffic(scale)), series)
    }

    /// Results of every thread, in the program's order.
    pub(crate) fn thread_reports(&self, program: &Program, runners: &Runners) -> Vec<ThreadReport> {
        let report = |(thread, sums): (usize, &ThreadSums)| ThreadReport {
            name: program.threads[thread].name.clone(),
            process: program.threads[thread].process,
            node: runners.all[thread].node,
            end_ns: if let Status::Done(at) = runners.all[thread].status { Some(at) } else { None },
            busy_ns: sums.busy_ns,
            lost_ns: sums.lost_ns,
            accesses: sums.accesses,
            instructions: sums.instructions,
        };
        self.threads.iter().enumerate().map(report).collect()
    }

    /// Every label that was accessed, those with most accesses first.
    pub(crate) fn label_reports(&self, program: &Program) -> Vec<LabelReport> {
        let nodes = self.scale.controllers.len();
        let mut labels: Vec<LabelReport> = Vec::new();
        for (name, (matrix, writes)) in program.labels.iter().zip(&self.labels) {
            if matrix.iter().sum::<f64>() > 0.0 {
                let accesses = matrix.chunks(nodes.max(1)).map(<[f64]>::to_vec).collect();
                labels.push(LabelReport { name: name.clone(), accesses, writes: *writes });
            }
        }
        let sum = |label: &LabelReport| label.accesses.iter().flatten().sum::<f64>();
        labels.sort_by(|a, b| sum(b).total_cmp(&sum(a)).then_with(|| a.name.cmp(&b.name)));
        labels
    }
}
