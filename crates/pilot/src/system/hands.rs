//! Carrying a policy's orders out on the kernel, and saying of each what came of it.

use std::collections::BTreeMap;

use numapilot_kernel::KernelError;
use numapilot_kernel::actuator::MoveOptions;
use numapilot_kernel::actuator::Mover;
use numapilot_kernel::actuator::PageFate;
use numapilot_kernel::actuator::Tally;
use numapilot_kernel::actuator::Wish;
use numapilot_kernel::affinity;
use numapilot_kernel::affinity::CpuMask;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_placement::Action;
use numapilot_placement::Outcome;
use numapilot_placement::PageSize;
use numapilot_placement::Refusal;

use super::targets::Looked;
use super::targets::Targets;
use crate::event::PageOutcomes;

/// Small pages of a large one.
const LARGE_PAGES: u64 = 512;

/// What came of a batch of orders.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Of each order, in their order.
    pub outcomes: Vec<Outcome>,
    /// Pages of 4 KiB that were moved: process, page, from (node index, where known), to.
    pub moved: Vec<(u32, u64, Option<u8>, usize)>,
    /// Pages of orders, counted by fate.
    pub pages: PageOutcomes,
    /// Copied from node to node.
    pub moved_bytes: u64,
    /// Nanoseconds in the calls that move.
    pub took_ns: u64,
    /// Threads that were moved.
    pub threads_moved: u64,
    /// Threads that could not be.
    pub threads_refused: u64,
    /// What the system refused, in words.
    pub troubles: Vec<String>,
}

/// Moves pages and threads.
#[derive(Debug)]
pub struct Hands {
    mover: Mover,
    ids: Vec<NodeId>,
    cpus: Vec<CpuMask>,
}

/// A page order on its way: which order, where its wishes begin, and how many they are.
struct Part {
    order: usize,
    first: usize,
    count: usize,
}

impl Hands {
    /// On this machine.
    #[must_use]
    pub fn new(machine: &Machine, options: MoveOptions) -> Hands {
        Hands {
            mover: Mover::new(options),
            ids: machine.nodes().iter().map(|node| node.id).collect(),
            cpus: machine.nodes().iter().map(|node| node.cpus.iter().copied().collect()).collect(),
        }
    }

    /// Carries orders out. Orders of one process's pages are gathered, so that they make few calls.
    pub fn carry_out(&mut self, orders: Vec<Action>, targets: &mut Targets, goes_on: &mut dyn FnMut() -> bool) -> Done {
        let mut done = Done::default();
        let mut results: Vec<Result<f64, Refusal>> = vec![Err(Refusal::Unsupported); orders.len()];
        let mut by_process: BTreeMap<u32, (Vec<Wish>, Vec<Part>)> = BTreeMap::new();
        for (order, action) in orders.iter().enumerate() {
            match action {
                Action::Migrate { page, to } => {
                    let (wishes, parts) = by_process.entry(page.process).or_default();
                    let count = if page.size == PageSize::Large { LARGE_PAGES } else { 1 };
                    parts.push(Part { order, first: wishes.len(), count: count as usize });
                    let to = self.ids[*to];
                    wishes.extend((page.page..page.page + count).map(|page| Wish { to, address: page * 4096 }));
                }
                Action::MoveThread { thread, to } => {
                    results[order] = self.move_thread(*thread, *to, targets, &mut done);
                }
                // A stock kernel offers no way to do these to another process.
                Action::Allocate { .. } | Action::Replicate { .. } | Action::Split { .. } | Action::Unmap { .. } => {}
            }
        }
        for (process, (wishes, parts)) in by_process {
            self.move_pages(process, &wishes, &parts, targets, (&mut done, &mut results), goes_on);
        }
        done.outcomes = orders.into_iter().zip(results).map(|(action, result)| Outcome { action, result }).collect();
        done
    }

    fn move_pages(
        &mut self,
        number: u32,
        wishes: &[Wish],
        parts: &[Part],
        targets: &mut Targets,
        (done, results): (&mut Done, &mut [Result<f64, Refusal>]),
        goes_on: &mut dyn FnMut() -> bool,
    ) {
        let Some(looked) = targets.all.values_mut().find(|looked| looked.number() == number) else {
            parts.iter().for_each(|part| results[part.order] = Err(Refusal::Gone));
            done.pages.gone += parts.len() as u64;
            return;
        };
        let huge = looked.huge.clone();
        let moved = match self.mover.run(Some(&looked.process), wishes, &huge, &mut |_| goes_on()) {
            Ok(moved) => moved,
            Err(error) => {
                let refusal =
                    if matches!(error, KernelError::Gone { .. }) { Refusal::Gone } else { Refusal::Unsupported };
                parts.iter().for_each(|part| results[part.order] = Err(refusal));
                done.pages.refused += parts.len() as u64;
                done.troubles.push(error.to_string());
                return;
            }
        };
        let page_ns = moved.moving_ns as f64 / moved.tally.moved.max(1) as f64;
        for part in parts {
            let fates = &moved.fates[part.first..part.first + part.count];
            let tally = Tally::of(fates);
            results[part.order] = result_of(&tally, fates[0], page_ns);
            *count_of(&mut done.pages, &results[part.order], fates[0]) += 1;
        }
        self.note(looked, wishes, &moved.fates, done);
        done.took_ns += moved.moving_ns;
    }

    /// Keeps what is known of homes true.
    fn note(&self, looked: &mut Looked, wishes: &[Wish], fates: &[PageFate], done: &mut Done) {
        for (wish, fate) in wishes.iter().zip(fates) {
            let page = wish.address / 4096;
            let Some(to) = self.ids.iter().position(|id| *id == wish.to) else { continue };
            match fate {
                PageFate::Moved => {
                    done.moved.push((looked.number(), page, looked.homes.of(page), to));
                    looked.homes.set(page, page + 1, to as u8);
                    looked.moved_bytes += 4096;
                    done.moved_bytes += 4096;
                }
                PageFate::AlreadyThere => looked.homes.set(page, page + 1, to as u8),
                PageFate::Gone => looked.homes.clear(page, page + 1),
                _ => {}
            }
        }
    }

    /// Threads go only where they might run before we came.
    fn move_thread(&self, number: u32, to: usize, targets: &mut Targets, done: &mut Done) -> Result<f64, Refusal> {
        let mut threads = targets.all.values_mut().flat_map(|looked| looked.threads.iter_mut());
        let Some((tid, thread)) = threads.find(|(_, thread)| thread.number == number) else {
            done.threads_refused += 1;
            return Err(Refusal::Gone);
        };
        let begun = std::time::Instant::now();
        let result = move_to(*tid, &self.cpus[to], &mut thread.mask_before);
        match result {
            Ok(true) => {
                thread.node = to;
                done.threads_moved += 1;
                Ok(begun.elapsed().as_nanos() as f64)
            }
            Ok(false) => {
                done.threads_refused += 1;
                Err(Refusal::Unsupported)
            }
            Err(error) => {
                done.threads_refused += 1;
                let gone = matches!(error, KernelError::Gone { .. });
                if !gone {
                    done.troubles.push(format!("thread {tid}: {error}"));
                }
                Err(if gone { Refusal::Gone } else { Refusal::Unsupported })
            }
        }
    }

    /// Lets every thread run where it might before. Returns how many.
    pub fn release_threads(&self, targets: &mut Targets) -> u64 {
        let mut released = 0;
        for looked in targets.all.values_mut() {
            for (tid, thread) in &mut looked.threads {
                if let Some(mask) = thread.mask_before.take() {
                    released += u64::from(affinity::set_thread(*tid, &mask).is_ok());
                }
            }
        }
        released
    }
}

/// False where the thread may not run on that node.
fn move_to(tid: u32, cpus: &CpuMask, before: &mut Option<CpuMask>) -> Result<bool, KernelError> {
    let own = match before {
        Some(mask) => mask.clone(),
        None => affinity::of_thread(tid)?,
    };
    let allowed = own.and(cpus);
    if allowed.is_empty() {
        return Ok(false);
    }
    affinity::set_thread(tid, &allowed)?;
    before.get_or_insert(own);
    Ok(true)
}

/// An order's result: its pages' fates, the first one's where they differ and none moved.
fn result_of(tally: &Tally, first: PageFate, page_ns: f64) -> Result<f64, Refusal> {
    if tally.moved > 0 {
        return Ok(page_ns * tally.moved as f64);
    }
    Err(match first {
        PageFate::AlreadyThere => Refusal::AlreadyThere,
        PageFate::NoRoom => Refusal::NoRoom,
        PageFate::Busy | PageFate::NotTried => Refusal::Busy,
        PageFate::Gone => Refusal::Gone,
        PageFate::Moved | PageFate::Shared | PageFate::Unmovable | PageFate::Other(_) => Refusal::Unsupported,
    })
}

fn count_of<'a>(pages: &'a mut PageOutcomes, result: &Result<f64, Refusal>, first: PageFate) -> &'a mut u64 {
    match (result, first) {
        (Ok(_), _) => &mut pages.moved,
        (_, PageFate::AlreadyThere) => &mut pages.already_there,
        (_, PageFate::Gone) => &mut pages.gone,
        (_, PageFate::Busy) => &mut pages.busy,
        (_, PageFate::NoRoom) => &mut pages.no_room,
        (_, PageFate::NotTried) => &mut pages.not_tried,
        (_, PageFate::Shared) => &mut pages.refused,
        (_, PageFate::Moved | PageFate::Unmovable | PageFate::Other(_)) => &mut pages.other,
    }
}

#[cfg(test)]
mod tests {
    //! Orders about processes and threads that are there, and that are not.

    use numapilot_placement::PageKey;

    use super::*;

    #[test]
    fn every_order_has_an_outcome() {
        let machine = Machine::live().unwrap();
        let mut targets = Targets::default();
        targets.add(std::process::id()).unwrap();
        targets.look(&machine);
        let number = targets.all[&std::process::id()].number();
        let mut hands = Hands::new(&machine, MoveOptions::default());
        let page = |process| PageKey { process, page: 16, size: PageSize::Small };
        let orders = vec![
            Action::Migrate { page: page(number), to: 0 },
            Action::Migrate { page: page(number + 1), to: 0 },
            Action::MoveThread { thread: 4711, to: 0 },
            Action::Split { page: page(number) },
        ];
        let done = hands.carry_out(orders.clone(), &mut targets, &mut || true);
        assert_eq!(done.outcomes.iter().map(|outcome| outcome.action.clone()).collect::<Vec<_>>(), orders);
        assert_eq!(done.outcomes[1].result, Err(Refusal::Gone));
        assert_eq!(done.outcomes[2].result, Err(Refusal::Gone));
        assert_eq!(done.outcomes[3].result, Err(Refusal::Unsupported));
        assert!(done.outcomes[0].result.is_err() && done.moved.is_empty());
        assert_eq!(done.pages.total(), 2);
    }
}
