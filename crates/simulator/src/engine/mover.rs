//! Executes a policy's actions: one after the other, each taking the mover's time, memory bandwidth, and time of the program's threads.

use std::collections::VecDeque;

use numapilot_host::PageNumber;
use numapilot_machine::NodeIndex;
use numapilot_placement::{Action, Outcome, Refusal};
use numapilot_traffic::Background;

use crate::costs::Costs;
use crate::engine::demand::Demand;
use crate::engine::place::Placer;
use crate::engine::runner::{Runners, Status};
use crate::pages::{PageTable, Unit};
use crate::program::{PAGE_BYTES, Program};
use crate::report::{Moves, PolicyCost};

/// Executes the policy's actions on pages: queued ones, and those that are in progress.
#[derive(Debug, Default)]
pub(crate) struct Mover {
    queue: VecDeque<Action>,
    outcomes: Vec<Outcome>,
    /// Mover time of the orders that are begun and not done yet, ns.
    owed_ns: f64,
    /// What is copied in that time, in bytes.
    owed_copies: Vec<Background>,
    /// Pages moved since the last TLB shootdown, per process.
    since_shootdown: Vec<u32>,
}

/// What the mover did in the time that it was given.
#[derive(Debug, Default)]
pub(crate) struct Worked {
    /// Mover time, of all movers together, ns.
    ns: f64,
    /// Bytes copied, by (source, target).
    copied: Vec<Background>,
    movers: f64,
}

impl Worked {
    /// The part of the work that is done once this much time has passed.
    fn part_within(&self, elapsed_ns: f64) -> f64 {
        let time_ns = elapsed_ns * self.movers;
        if self.ns > time_ns { time_ns / self.ns } else { 1.0 }
    }

    /// Mover time within this much time, ns.
    pub(crate) fn ns_within(&self, elapsed_ns: f64) -> f64 {
        self.ns * self.part_within(elapsed_ns)
    }

    /// The traffic of its copies, over an epoch of this length.
    pub(crate) fn traffic(&self, elapsed_ns: f64) -> Vec<Background> {
        let per_s = self.part_within(elapsed_ns) * 1e9 / elapsed_ns;
        let rate = |moved: &Background| Background { bytes_per_s: moved.bytes_per_s * per_s, ..*moved };
        self.copied.iter().map(rate).collect()
    }
}

/// The state of the simulation that actions may change.
pub(crate) struct MoveContext<'a> {
    pub(crate) program: &'a Program,
    pub(crate) pages: &'a mut PageTable,
    pub(crate) runners: &'a mut Runners,
    pub(crate) placer: &'a mut Placer,
    pub(crate) costs: &'a Costs,
    /// Accesses of the epoch before, and its length.
    pub(crate) demand: &'a Demand,
    pub(crate) demand_ns: f64,
    /// CPUs of each node.
    pub(crate) cpus_of: &'a [Vec<usize>],
    pub(crate) moves: &'a mut Moves,
    pub(crate) cost: &'a mut PolicyCost,
}

impl Mover {
    pub(crate) fn new(processes: usize) -> Mover {
        Mover { since_shootdown: vec![0; processes], ..Mover::default() }
    }

    /// Queues actions; those of the last decision are done by then.
    pub(crate) fn order(&mut self, actions: Vec<Action>) {
        self.queue.extend(actions);
    }

    /// Whether all actions are executed and their cost is accounted for.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.owed_ns <= 0.0
    }

    /// Outcomes of the actions since the last call.
    pub(crate) fn take_outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    /// Works for `given_ns`.
    pub(crate) fn work(&mut self, given_ns: f64, context: &mut MoveContext<'_>) -> Worked {
        let movers = f64::from(context.costs.movers);
        let mut worked = Worked { movers, ..Worked::default() };
        loop {
            self.pay((given_ns * movers - worked.ns).max(0.0), &mut worked);
            if self.owed_ns > 0.0 {
                break;
            }
            let Some(action) = self.queue.pop_front() else {
                break;
            };
            let before = context.cost.total_ns();
            let mut copied = Vec::new();
            let result = self.carry_out(&action, context, &mut copied);
            let result = result.map(|mover_ns| {
                (self.owed_ns, self.owed_copies) = (mover_ns, copied);
                context.cost.mover_ns += mover_ns;
                mover_ns + context.cost.total_ns() - before
            });
            context.moves.count(&action, result.err());
            self.outcomes.push(Outcome { action, result });
        }
        worked
    }

    /// Spends up to `most_ns` on what is owed, and copies as large a part of its bytes.
    fn pay(&mut self, most_ns: f64, worked: &mut Worked) {
        if self.owed_ns <= most_ns {
            worked.ns += std::mem::take(&mut self.owed_ns);
            self.owed_copies.drain(..).for_each(|moved| add(&mut worked.copied, moved));
            return;
        }
        let part = most_ns / self.owed_ns;
        self.owed_ns -= most_ns;
        worked.ns += most_ns;
        for moved in &mut self.owed_copies {
            add(&mut worked.copied, Background { bytes_per_s: moved.bytes_per_s * part, ..*moved });
            moved.bytes_per_s *= 1.0 - part;
        }
    }

    /// The epoch for which it worked ended after `elapsed_ns`: what did not fit into that is still owed. Pages that were moved for it are where they are, a
    /// moment too early; their time and traffic fall to the epochs that follow, before any other order is begun.
    pub(crate) fn carry_over(&mut self, worked: Worked, elapsed_ns: f64) {
        let rest = 1.0 - worked.part_within(elapsed_ns);
        if rest > 0.0 {
            self.owed_ns += worked.ns * rest;
            for moved in worked.copied {
                add(&mut self.owed_copies, Background { bytes_per_s: moved.bytes_per_s * rest, ..moved });
            }
        }
    }

    /// Does it; nanoseconds of the mover.
    fn carry_out(
        &mut self,
        action: &Action,
        context: &mut MoveContext<'_>,
        copied: &mut Vec<Background>,
    ) -> Result<f64, Refusal> {
        match action {
            Action::Allocate { process, allocation } => {
                if context.placer.allocate(*process, allocation) {
                    Ok(0.0)
                } else {
                    Err(Refusal::Unsupported)
                }
            }
            Action::Migrate { page, to } => {
                let unit = context.pages.resolve(*page)?;
                let from = context.pages.migrate(unit, *to)?;
                Ok(self.copy(unit, page.process, from, &[*to], context, copied))
            }
            Action::Replicate { page, nodes } => {
                let unit = context.pages.resolve(*page)?;
                let (home, had) =
                    (context.pages.home(unit.region, unit.first).unwrap_or_default(), context.pages.copies(unit));
                context.pages.replicate(unit, nodes)?;
                let new: Vec<NodeIndex> = nodes.iter().copied().filter(|&n| n != home && had >> n.0 & 1 == 0).collect();
                context.moves.copies_made += new.len() as u64;
                Ok(self.copy(unit, page.process, home, &new, context, copied))
            }
            Action::Split { page } => {
                let unit = context.pages.resolve(*page)?;
                if !context.pages.split(unit) {
                    return Err(Refusal::AlreadyThere);
                }
                shoot_down(page.process, context);
                Ok(context.costs.split_ns)
            }
            Action::MoveThread { thread, to } => move_thread(*thread as usize, *to, context),
            Action::Unmap { process, first, pages } => unmap(*process, *first, *pages, context),
        }
    }

    /// Accounts for copying a page to each of `targets`: bandwidth, stalls of threads that access it meanwhile, shootdowns.
    fn copy(
        &mut self,
        unit: Unit,
        process: u32,
        from: NodeIndex,
        targets: &[NodeIndex],
        context: &mut MoveContext<'_>,
        copied: &mut Vec<Background>,
    ) -> f64 {
        let each_ns = if unit.pages == 1 { context.costs.move_small_ns } else { context.costs.move_large_ns };
        let bytes = (unit.pages * PAGE_BYTES) as f64;
        for &target in targets {
            add(copied, Background { source: from.0, target: target.0, bytes_per_s: bytes });
            context.moves.bytes += unit.pages * PAGE_BYTES;
        }
        let window_ns = each_ns * targets.len().max(1) as f64;
        stall(unit, window_ns, context);
        let since = &mut self.since_shootdown[process as usize];
        *since += 1;
        if *since >= context.costs.pages_per_shootdown {
            *since = 0;
            shoot_down(process, context);
        }
        window_ns
    }
}

/// Adds bytes to those between the same two nodes.
fn add(sums: &mut Vec<Background>, more: Background) {
    match sums.iter_mut().find(|sum| (sum.source, sum.target) == (more.source, more.target)) {
        Some(sum) => sum.bytes_per_s += more.bytes_per_s,
        None => sums.push(more),
    }
}

/// Threads that want a page while it is moved wait for the rest of the move. With accesses as a Poisson process of rate r, the mean wait
/// in a window of w is w - (1 - exp(-r w)) / r.
fn stall(unit: Unit, window_ns: f64, context: &mut MoveContext<'_>) {
    if context.demand_ns <= 0.0 {
        return;
    }
    for per in context.demand.of_unit(unit, context.pages) {
        let rate = (per.reads + per.writes) / context.demand_ns;
        let runner = &mut context.runners.all[per.thread as usize];
        // Who has ended since accesses nothing more.
        if rate > 0.0 && !matches!(runner.status, Status::Done(_)) {
            let wait = window_ns - (1.0 - (-rate * window_ns).exp()) / rate;
            runner.debt_ns += wait;
            context.cost.stalls_ns += wait;
        }
    }
}

/// Every CPU that runs the process is interrupted.
fn shoot_down(process: u32, context: &mut MoveContext<'_>) {
    context.moves.shootdowns += 1;
    for (thread, runner) in context.runners.all.iter_mut().enumerate() {
        if runner.status == Status::Working && context.program.threads[thread].process == process {
            runner.debt_ns += context.costs.shootdown_ns;
            context.cost.shootdowns_ns += context.costs.shootdown_ns;
        }
    }
}

/// To the CPU of the node that has the fewest threads.
fn move_thread(thread: usize, to: NodeIndex, context: &mut MoveContext<'_>) -> Result<f64, Refusal> {
    let runner = context.runners.all.get(thread).filter(|runner| !matches!(runner.status, Status::Done(_)));
    if runner.ok_or(Refusal::Gone)?.node == to {
        return Err(Refusal::AlreadyThere);
    }
    let cpus = context.cpus_of.get(to.0).ok_or(Refusal::Unsupported)?;
    let cpu =
        cpus.iter().copied().min_by_key(|&cpu| (context.runners.alive_on(cpu), cpu)).ok_or(Refusal::Unsupported)?;
    let runner = &mut context.runners.all[thread];
    (runner.cpu, runner.node) = (cpu, to);
    runner.debt_ns += context.costs.move_thread_ns;
    context.cost.stalls_ns += context.costs.move_thread_ns;
    Ok(0.0)
}

/// The scan runs in a working thread of the process, each in turn.
fn unmap(process: u32, first: PageNumber, pages: u64, context: &mut MoveContext<'_>) -> Result<f64, Refusal> {
    let now_ns = context.runners.now_ns as u64;
    // The kernel's scan passes over memory with a policy of the program's own (`vma_policy_mof`).
    let (table, placer) = (&mut *context.pages, &*context.placer);
    let count = table.unmap(process, first, pages, now_ns, &|region, page| placer.is_bound(region, page));
    if count == 0 {
        return Err(Refusal::Gone);
    }
    context.moves.unmapped_pages += count;
    let stolen = count as f64 * context.costs.unmap_ns;
    let of_process = |(thread, runner): (usize, &crate::engine::runner::Runner)| {
        (context.program.threads[thread].process == process && runner.status == Status::Working).then_some(thread)
    };
    let working: Vec<usize> = context.runners.all.iter().enumerate().filter_map(of_process).collect();
    if let Some(&thread) = working.get(context.moves.scans as usize % working.len().max(1)) {
        context.runners.all[thread].debt_ns += stolen;
        context.cost.scanning_ns += stolen;
    }
    context.moves.scans += 1;
    shoot_down(process, context);
    Ok(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was begun for an epoch that ended early was forgotten: its time never passed, and all of its bytes were traffic of the time that did.
    #[test]
    fn time_and_bytes_are_conserved_wherever_epochs_end() {
        let all = Background { source: 0, target: 1, bytes_per_s: 4096.0 * 256.0 };
        let mut mover = Mover { owed_ns: 1e6, owed_copies: vec![all], ..Mover::new(1) };
        let (mut ns, mut bytes) = (0.0, 0.0);
        for epoch in 0..60 {
            let mut worked = Worked { movers: 2.0, ..Worked::default() };
            mover.pay(2.0 * 300_000.0, &mut worked);
            let elapsed_ns = 25_000.0 * f64::from(epoch % 3);
            let now_ns = worked.ns_within(elapsed_ns);
            assert!(now_ns <= 2.0 * elapsed_ns * (1.0 + 1e-12), "{now_ns} ns of work in {elapsed_ns} ns");
            ns += now_ns;
            if elapsed_ns > 0.0 {
                bytes +=
                    worked.traffic(elapsed_ns).iter().map(|moved| moved.bytes_per_s * elapsed_ns / 1e9).sum::<f64>();
            }
            mover.carry_over(worked, elapsed_ns);
            assert!(epoch > 15 || !mover.is_idle(), "a millisecond of work is done after {epoch} epochs");
        }
        assert!(
            (ns / 1e6 - 1.0).abs() < 1e-9 && (bytes / all.bytes_per_s - 1.0).abs() < 1e-9,
            "{ns} ns, {bytes} bytes"
        );
        assert!(mover.is_idle());
    }
}
