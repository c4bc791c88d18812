//! Carries out a policy's orders: one after the other, each taking the mover's time, memory bandwidth, and time of the program's threads.

use std::collections::VecDeque;

use numapilot_placement::{Action, Outcome, Refusal};
use numapilot_traffic::Background;

use crate::costs::Costs;
use crate::engine::demand::Demand;
use crate::engine::place::Placer;
use crate::engine::runner::{Runners, Status};
use crate::pages::{PageTable, Unit};
use crate::program::{PAGE_BYTES, Program};
use crate::report::{Moves, PolicyCost};

/// Orders under way.
#[derive(Debug, Default)]
pub(crate) struct Mover {
    queue: VecDeque<Action>,
    outcomes: Vec<Outcome>,
    /// Mover time of the order in hand that is not spent yet, ns.
    owed_ns: f64,
    /// Pages moved since the last TLB shootdown, per process.
    since_shootdown: Vec<u32>,
}

/// What an order may touch.
pub(crate) struct Bench<'a> {
    pub(crate) program: &'a Program,
    pub(crate) pages: &'a mut PageTable,
    pub(crate) runners: &'a mut Runners,
    pub(crate) placer: &'a mut Placer,
    pub(crate) costs: &'a Costs,
    /// Accesses of the epoch before, and its length.
    pub(crate) demand: &'a Demand,
    pub(crate) demand_ns: f64,
    /// For each node, its CPUs.
    pub(crate) cpus_of: &'a [Vec<usize>],
    pub(crate) moves: &'a mut Moves,
    pub(crate) cost: &'a mut PolicyCost,
}

impl Mover {
    pub(crate) fn new(processes: usize) -> Mover {
        Mover { since_shootdown: vec![0; processes], ..Mover::default() }
    }

    /// Takes orders; those of the last decision are done by then.
    pub(crate) fn order(&mut self, actions: Vec<Action>) {
        self.queue.extend(actions);
    }

    /// Whether all orders are carried out and paid for.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.owed_ns <= 0.0
    }

    /// What came of the orders since the last call.
    pub(crate) fn take_outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    /// Works for `given_ns`. Returns bytes copied, by (source, target), and the time that it worked.
    pub(crate) fn work(&mut self, given_ns: f64, bench: &mut Bench<'_>) -> (Vec<Background>, f64) {
        let budget = given_ns * f64::from(bench.costs.movers);
        let mut left = budget;
        let mut copied: Vec<Background> = Vec::new();
        loop {
            let paid = self.owed_ns.min(left);
            self.owed_ns -= paid;
            left -= paid;
            if self.owed_ns > 0.0 {
                break;
            }
            let Some(action) = self.queue.pop_front() else {
                break;
            };
            let before = bench.cost.total_ns();
            let result = self.carry_out(&action, bench, &mut copied);
            let result = result.map(|mover_ns| {
                self.owed_ns = mover_ns;
                bench.cost.mover_ns += mover_ns;
                mover_ns + bench.cost.total_ns() - before
            });
            bench.moves.count(&action, result.err());
            self.outcomes.push(Outcome { action, result });
        }
        (copied, budget - left)
    }

    /// Does it; nanoseconds of the mover.
    fn carry_out(
        &mut self,
        action: &Action,
        bench: &mut Bench<'_>,
        copied: &mut Vec<Background>,
    ) -> Result<f64, Refusal> {
        match action {
            Action::Allocate { process, allocation } => {
                if bench.placer.allocate(*process, allocation) {
                    Ok(0.0)
                } else {
                    Err(Refusal::Unsupported)
                }
            }
            Action::Migrate { page, to } => {
                let unit = bench.pages.resolve(*page)?;
                let from = bench.pages.migrate(unit, *to)?;
                Ok(self.copy(unit, page.process, from, &[*to], bench, copied))
            }
            Action::Replicate { page, nodes } => {
                let unit = bench.pages.resolve(*page)?;
                let (home, had) = (bench.pages.home(unit.region, unit.first).unwrap_or(0), bench.pages.copies(unit));
                bench.pages.replicate(unit, nodes)?;
                let new: Vec<usize> = nodes.iter().copied().filter(|&n| n != home && had >> n & 1 == 0).collect();
                bench.moves.copies_made += new.len() as u64;
                Ok(self.copy(unit, page.process, home, &new, bench, copied))
            }
            Action::Split { page } => {
                let unit = bench.pages.resolve(*page)?;
                if !bench.pages.split(unit) {
                    return Err(Refusal::AlreadyThere);
                }
                shoot_down(page.process, bench);
                Ok(bench.costs.split_ns)
            }
            Action::MoveThread { thread, to } => move_thread(*thread as usize, *to, bench),
            Action::Unmap { process, first, pages } => unmap(*process, *first, *pages, bench),
        }
    }

    /// Books the copying of a page to each of `targets`: bandwidth, stalls of those who want it meanwhile, shootdowns.
    fn copy(
        &mut self,
        unit: Unit,
        process: u32,
        from: usize,
        targets: &[usize],
        bench: &mut Bench<'_>,
        copied: &mut Vec<Background>,
    ) -> f64 {
        let each_ns = if unit.pages == 1 { bench.costs.move_small_ns } else { bench.costs.move_large_ns };
        let bytes = (unit.pages * PAGE_BYTES) as f64;
        for &target in targets {
            match copied.iter_mut().find(|moved| (moved.source, moved.target) == (from, target)) {
                Some(moved) => moved.bytes_per_s += bytes,
                None => copied.push(Background { source: from, target, bytes_per_s: bytes }),
            }
            bench.moves.bytes += unit.pages * PAGE_BYTES;
        }
        let window_ns = each_ns * targets.len().max(1) as f64;
        stall(unit, window_ns, bench);
        let since = &mut self.since_shootdown[process as usize];
        *since += 1;
        if *since >= bench.costs.pages_per_shootdown {
            *since = 0;
            shoot_down(process, bench);
        }
        window_ns
    }
}

/// Threads that want a page while it is moved wait for the rest of the move. With accesses as a Poisson process of rate r, the mean wait
/// in a window of w is w - (1 - exp(-r w)) / r.
fn stall(unit: Unit, window_ns: f64, bench: &mut Bench<'_>) {
    if bench.demand_ns <= 0.0 {
        return;
    }
    for per in bench.demand.of_unit(unit, bench.pages) {
        let rate = (per.reads + per.writes) / bench.demand_ns;
        if rate > 0.0 {
            let wait = window_ns - (1.0 - (-rate * window_ns).exp()) / rate;
            bench.runners.all[per.thread as usize].debt_ns += wait;
            bench.cost.stalls_ns += wait;
        }
    }
}

/// Every CPU that runs the process is interrupted.
fn shoot_down(process: u32, bench: &mut Bench<'_>) {
    bench.moves.shootdowns += 1;
    for (thread, runner) in bench.runners.all.iter_mut().enumerate() {
        if runner.status == Status::Working && bench.program.threads[thread].process == process {
            runner.debt_ns += bench.costs.shootdown_ns;
            bench.cost.shootdowns_ns += bench.costs.shootdown_ns;
        }
    }
}

/// To the CPU of the node that has the fewest threads.
fn move_thread(thread: usize, to: usize, bench: &mut Bench<'_>) -> Result<f64, Refusal> {
    let runner = bench.runners.all.get(thread).filter(|runner| !matches!(runner.status, Status::Done(_)));
    if runner.ok_or(Refusal::Gone)?.node == to {
        return Err(Refusal::AlreadyThere);
    }
    let cpus = bench.cpus_of.get(to).ok_or(Refusal::Unsupported)?;
    let cpu = cpus.iter().copied().min_by_key(|&cpu| (bench.runners.alive_on(cpu), cpu)).ok_or(Refusal::Unsupported)?;
    let runner = &mut bench.runners.all[thread];
    (runner.cpu, runner.node) = (cpu, to);
    runner.debt_ns += bench.costs.move_thread_ns;
    bench.cost.stalls_ns += bench.costs.move_thread_ns;
    Ok(0.0)
}

/// The scan runs in a working thread of the process, each in turn.
fn unmap(process: u32, first: u64, pages: u64, bench: &mut Bench<'_>) -> Result<f64, Refusal> {
    let now_ns = bench.runners.now_ns as u64;
    let count = bench.pages.unmap(process, first, pages, now_ns);
    if count == 0 {
        return Err(Refusal::Gone);
    }
    bench.moves.unmapped_pages += count;
    let stolen = count as f64 * bench.costs.unmap_ns;
    let of_process = |(thread, runner): (usize, &crate::engine::runner::Runner)| {
        (bench.program.threads[thread].process == process && runner.status == Status::Working).then_some(thread)
    };
    let working: Vec<usize> = bench.runners.all.iter().enumerate().filter_map(of_process).collect();
    if let Some(&thread) = working.get(bench.moves.scans as usize % working.len().max(1)) {
        bench.runners.all[thread].debt_ns += stolen;
        bench.cost.scanning_ns += stolen;
    }
    bench.moves.scans += 1;
    shoot_down(process, bench);
    Ok(0.0)
}
