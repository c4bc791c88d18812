//! Executes a policy's actions: one after the other, each taking the mover's time, memory bandwidth, and time of the program's threads.

use std::collections::VecDeque;

use numapilot_host::PageNumber;
use numapilot_machine::NodeIndex;
use numapilot_placement::{Action, Outcome, PageSize, Refusal};
use numapilot_traffic::Background;

use crate::costs::Costs;
use crate::engine::demand::Demand;
use crate::engine::place::Placer;
use crate::engine::runner::{Runners, Status};
use crate::pages::{PageTable, Unit};
use crate::program::{PAGE_BYTES, Program};
use crate::report::{Moves, PolicyCost};

/// Orders of which the copying is looked at ahead of time: that of an epoch is taken to be like theirs where it has more. More than one mover comes to in the
/// longest epoch (10 ms of small pages, by default), so that an epoch in which all can be done ends when it is.
const FORESEEN: usize = 4096;
/// What is left of an order below this counts as done, ns: rounding of sums of times.
const DONE_NS: f64 = 1e-3;

/// Executes the policy's actions on pages: queued ones, and the one that is in progress.
#[derive(Debug, Default)]
pub(crate) struct Mover {
    queue: VecDeque<Action>,
    outcomes: Vec<Outcome>,
    /// Mover time of the order that is begun and not done yet, ns.
    owed_ns: f64,
    /// What is copied in that time, in bytes.
    owed_copies: Vec<Background>,
    /// Pages moved since the last TLB shootdown, per process.
    since_shootdown: Vec<u32>,
}

/// What the mover is about to do, as far as its queue and the page table say. Nothing of it is done yet.
#[derive(Debug, Default)]
pub(crate) struct Foreseen {
    /// Mover time, of all movers together, ns.
    ns: f64,
    /// Bytes copied in it, by (source, target).
    copied: Vec<Background>,
    movers: f64,
    /// Whether that is all that is ordered.
    is_all: bool,
}

impl Foreseen {
    /// Nanoseconds until all that is ordered is done; infinite where there is nothing to do, or more than was looked at.
    pub(crate) fn done_ns(&self) -> f64 {
        if self.is_all && self.ns > 0.0 { self.ns / self.movers } else { f64::INFINITY }
    }

    /// The traffic of its copies, over an epoch of this length.
    pub(crate) fn traffic(&self, elapsed_ns: f64) -> Vec<Background> {
        let busy_ns = if self.is_all { self.ns.max(elapsed_ns * self.movers) } else { self.ns };
        let per_s = self.movers * 1e9 / busy_ns;
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

    /// What it is about to do.
    pub(crate) fn foresee(&self, pages: &PageTable, costs: &Costs) -> Foreseen {
        let mut ahead = Foreseen {
            ns: self.owed_ns,
            copied: self.owed_copies.clone(),
            movers: f64::from(costs.movers),
            is_all: self.queue.len() <= FORESEEN,
        };
        for action in self.queue.iter().take(FORESEEN) {
            ahead.ns += foreseen_ns(action, pages, costs, &mut ahead.copied);
        }
        ahead
    }

    /// Works for `given_ns`, which have passed. A page changes its home when its order is begun; none is begun before its time has come. Returns the mover
    /// time that it took, of all movers together, ns.
    pub(crate) fn work(&mut self, given_ns: f64, context: &mut MoveContext<'_>) -> f64 {
        let most_ns = given_ns * f64::from(context.costs.movers);
        let mut worked_ns = 0.0;
        loop {
            worked_ns += self.pay((most_ns - worked_ns).max(0.0));
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
        worked_ns
    }

    /// Spends up to `most_ns` on what is owed, which copies as large a part of its bytes. Returns how much it spent.
    fn pay(&mut self, most_ns: f64) -> f64 {
        if self.owed_ns <= most_ns + DONE_NS {
            self.owed_copies.clear();
            return std::mem::take(&mut self.owed_ns);
        }
        let left = 1.0 - most_ns / self.owed_ns;
        self.owed_ns -= most_ns;
        self.owed_copies.iter_mut().for_each(|moved| moved.bytes_per_s *= left);
        most_ns
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
            Action::ClearAccessed { process, first, pages } => clear_accessed(*process, *first, *pages, context),
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

/// Mover time of an order, ns, and the bytes that it copies, by where its page is now and where there is room.
fn foreseen_ns(action: &Action, pages: &PageTable, costs: &Costs, copied: &mut Vec<Background>) -> f64 {
    let (page, targets) = match action {
        Action::Migrate { page, to } => (*page, std::slice::from_ref(to)),
        Action::Replicate { page, nodes } => (*page, nodes.as_slice()),
        Action::Split { page } if page.size == PageSize::Large => return costs.split_ns,
        Action::ClearAccessed { process, first, pages: count } => {
            let Some((region, at)) = pages.find(*process, *first) else { return 0.0 };
            return count.div_ceil(pages.unit(region, at).pages) as f64 * costs.clear_accessed_ns;
        }
        _ => return 0.0,
    };
    // As small pages they may be part of a large one that is about to be split.
    let Some((region, at)) = pages.find(page.process, page.page) else { return 0.0 };
    let Some(home) = pages.home(region, at) else { return 0.0 };
    let had = pages.copies(pages.unit(region, at));
    let (bytes, free) = (page.size.bytes(), pages.free_bytes());
    let is_new = |node: &&NodeIndex| {
        **node != home && free.get(node.0).is_some_and(|free| *free >= bytes) && had >> node.0 & 1 == 0
    };
    let each_ns = if page.size == PageSize::Small { costs.move_small_ns } else { costs.move_large_ns };
    let mut ns = 0.0;
    for target in targets.iter().filter(is_new) {
        add(copied, Background { source: home.0, target: target.0, bytes_per_s: bytes as f64 });
        ns += each_ns;
    }
    ns
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

/// Takes the mover's time alone: nobody waits for an accessed bit, and no TLB is flushed.
fn clear_accessed(process: u32, first: PageNumber, pages: u64, context: &mut MoveContext<'_>) -> Result<f64, Refusal> {
    let count = context.pages.clear_accessed(process, first, pages);
    if count == 0 {
        return Err(Refusal::Gone);
    }
    context.moves.cleared_pages += count;
    Ok(count as f64 * context.costs.clear_accessed_ns)
}

#[cfg(test)]
mod tests {
    use numapilot_machine::Machine;
    use numapilot_placement::{Allocation, PageKey};

    use super::*;
    use crate::program::{Builder, Origin, Region};

    const PAGES: u64 = 256;

    /// A process with pages of 4 KiB, and nobody who uses them.
    fn program() -> Program {
        let mut builder = Builder::new("pages", Origin::Synthetic { file: "test".into() });
        let process = builder.process("p");
        let first_page = PageNumber(1024);
        builder.region(Region { name: "r".into(), process, first_page, pages: PAGES, page_size: PageSize::Small });
        builder.program_mut().clone()
    }

    /// The mover worked for the longest epoch that may come, so that pages were at their new home up to 10 ms before it had come to them.
    #[test]
    fn no_page_moves_before_its_time_and_time_and_bytes_are_conserved_wherever_epochs_end() {
        let (program, machine) = (program(), Machine::load("opteron-8385").expect("a built-in model"));
        let mut pages = PageTable::new(&program, &machine);
        let mut runners = Runners::new(&program, &[], false, None);
        let mut placer = Placer::new(&program, &machine, &Allocation::FirstTouch, 1);
        let (costs, demand) = (Costs { movers: 2, ..Costs::default() }, Demand::default());
        let (mut moves, mut cost, mut mover) = (Moves::default(), PolicyCost::default(), Mover::new(1));
        (0..PAGES).for_each(|page| assert!(pages.place(pages.unit(0, page), NodeIndex(0)).is_some()));
        let key = |page| PageKey { process: 0, page: PageNumber(1024 + page), size: PageSize::Small };
        mover.order((0..PAGES).map(|page| Action::Migrate { page: key(page), to: NodeIndex(1) }).collect());
        let (mut passed_ns, mut worked_ns, mut bytes) = (0.0, 0.0, 0.0);
        for epoch in 0..60 {
            let elapsed_ns = 25_000.0 * f64::from(epoch % 3);
            let ahead = mover.foresee(&pages, &costs);
            if elapsed_ns > 0.0 {
                bytes +=
                    ahead.traffic(elapsed_ns).iter().map(|moved| moved.bytes_per_s * elapsed_ns / 1e9).sum::<f64>();
            }
            passed_ns += elapsed_ns;
            worked_ns += mover.work(
                elapsed_ns,
                &mut MoveContext {
                    program: &program,
                    pages: &mut pages,
                    runners: &mut runners,
                    placer: &mut placer,
                    costs: &costs,
                    demand: &demand,
                    demand_ns: 0.0,
                    cpus_of: &[],
                    moves: &mut moves,
                    cost: &mut cost,
                },
            );
            let there = (0..PAGES).filter(|page| pages.home(0, *page) == Some(NodeIndex(1))).count() as f64;
            // All that are done, and the one that is begun.
            let begun = (2.0 * passed_ns / costs.move_small_ns + 1.0).min(PAGES as f64);
            assert!((begun - there).abs() <= 1.0 && there <= begun, "{there} pages moved within {passed_ns} ns");
            assert!(worked_ns <= 2.0 * passed_ns + 1.0, "{worked_ns} ns of work in {passed_ns} ns");
        }
        let all_ns = costs.move_small_ns * PAGES as f64;
        assert!((worked_ns / all_ns - 1.0).abs() < 1e-9, "{worked_ns} ns of work, not {all_ns}");
        assert!((bytes / (4096 * PAGES) as f64 - 1.0).abs() < 1e-9, "{bytes} bytes of traffic");
        assert!(mover.is_idle() && mover.foresee(&pages, &costs).done_ns().is_infinite());
    }

    /// Where there is more to do than is looked at, the copying of an epoch is like that of what is: at the mover's pace, however long it lasts.
    #[test]
    fn traffic_that_is_foreseen_goes_at_the_movers_pace() {
        let copied = vec![Background { source: 0, target: 1, bytes_per_s: 4096.0 * 512.0 }];
        let mut ahead = Foreseen { ns: 512.0 * 3_900.0, copied, movers: 1.0, is_all: false };
        let rate = |ahead: &Foreseen, ns: f64| ahead.traffic(ns).iter().map(|moved| moved.bytes_per_s).sum::<f64>();
        for elapsed_ns in [1e5, 1e7] {
            assert!((rate(&ahead, elapsed_ns) / (4096.0 / 3_900e-9) - 1.0).abs() < 1e-9, "in {elapsed_ns} ns");
        }
        ahead.is_all = true;
        assert!((rate(&ahead, 1e7) / (4096.0 * 512.0 / 0.01) - 1.0).abs() < 1e-9, "all of it, and no more");
        assert!((ahead.done_ns() - 512.0 * 3_900.0).abs() < 1e-6);
    }
}
