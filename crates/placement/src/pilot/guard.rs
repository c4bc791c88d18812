//! Bounded harm: after a batch of moves the program's own progress decides whether they stay.
//!
//! Progress is instructions retired per nanosecond of running. Windows are compared only while the program does the same kind of work
//! (accesses per instruction): a new phase says nothing about the moves.

use std::collections::{BTreeSet, VecDeque};

use numapilot_machine::NodeIndex;

use crate::action::{Action, Outcome};
use crate::observation::{Observation, PageKey};

/// Windows before a batch that are its yardstick.
const BEFORE: usize = 3;
/// Windows after it that are looked at; the one in which the pages were copied is left out.
const AFTER: usize = 2;
/// Same kind of work: accesses per instruction differ by less than this share.
const SAME_WORK: f64 = 0.15;
/// A batch of fewer pages is not judged, unless threads moved with it.
const BATCH_MIN: usize = 64;
/// Pages of one batch that can be taken back.
const BATCH_MAX: usize = 1 << 18;

#[derive(Clone, Copy, Debug)]
struct Window {
    progress: f64,
    accesses_per_instruction: f64,
}

/// The regression check of the last batch of moves.
#[derive(Clone, Debug, Default)]
pub(super) struct Guard {
    windows: VecDeque<Window>,
    before: Option<Window>,
    since: usize,
    /// The actions that undo it.
    batch: Vec<Action>,
    /// Prices are multiplied by this: a batch that had to be undone raises the price of the next one.
    pub caution: f64,
}

impl Guard {
    pub fn new() -> Guard {
        Guard { caution: 1.0, ..Guard::default() }
    }

    /// Records an interval, and returns the actions that undo the last batch if it did harm: progress fell by more than `harm` (a share).
    pub fn watch(&mut self, seen: &Observation, harm: f64) -> Vec<Action> {
        let sum = |of: fn(&crate::observation::ThreadState) -> f64| seen.threads.iter().map(of).sum::<f64>();
        let (instructions, busy_ns) = (sum(|thread| thread.instructions), sum(|thread| thread.busy_ns));
        if instructions <= 0.0 || busy_ns <= 0.0 {
            return Vec::new();
        }
        let accesses = sum(|thread| thread.memory_accesses);
        self.windows
            .push_back(Window { progress: instructions / busy_ns, accesses_per_instruction: accesses / instructions });
        if self.windows.len() > BEFORE.max(AFTER) {
            self.windows.pop_front();
        }
        if self.batch.is_empty() {
            self.caution = (self.caution * 0.97).max(1.0);
            return Vec::new();
        }
        self.since += 1;
        if self.since <= AFTER {
            return Vec::new();
        }
        let batch = first_of_each(std::mem::take(&mut self.batch));
        let Some(before) = self.before.take() else { return Vec::new() };
        let after = mean(self.windows.iter().rev().take(AFTER));
        let same = (after.accesses_per_instruction / before.accesses_per_instruction - 1.0).abs() < SAME_WORK;
        if !same || after.progress >= before.progress * (1.0 - harm) {
            return Vec::new();
        }
        self.caution = (self.caution * 4.0).min(1e6);
        batch
    }

    /// Records the executed moves, as the actions that undo them.
    pub fn moved(&mut self, undo: Vec<Action>) {
        let threads = undo.iter().any(|order| matches!(order, Action::MoveThread { .. }));
        // Without a window from before them they cannot be judged.
        if self.windows.is_empty() || (undo.len() < BATCH_MIN && !threads) {
            return;
        }
        if self.batch.is_empty() {
            self.before = Some(mean(self.windows.iter()));
        }
        // While pages are still being copied, progress says what the copying costs, not what it brings.
        self.since = 0;
        self.batch.extend(undo);
        self.batch.truncate(BATCH_MAX);
    }

    /// The moves among outcomes that were carried out.
    pub fn carried_out(outcomes: &[Outcome]) -> impl Iterator<Item = (PageKey, NodeIndex)> + '_ {
        outcomes.iter().filter(|outcome| outcome.result.is_ok()).filter_map(|outcome| match &outcome.action {
            Action::Migrate { page, to } => Some((*page, *to)),
            _ => None,
        })
    }
}

/// The actions that undo a batch, without those of the later moves of what moved several times: it goes back to where it was first.
fn first_of_each(mut batch: Vec<Action>) -> Vec<Action> {
    let (mut pages, mut threads) = (BTreeSet::new(), BTreeSet::new());
    let is_first = |action: &Action| match action {
        Action::Migrate { page, .. } => pages.insert(*page),
        Action::MoveThread { thread, .. } => threads.insert(*thread),
        _ => true,
    };
    batch.retain(is_first);
    batch
}

fn mean<'w>(windows: impl Iterator<Item = &'w Window>) -> Window {
    let (mut sum, mut count) = (Window { progress: 0.0, accesses_per_instruction: 0.0 }, 0.0f64);
    for window in windows {
        sum.progress += window.progress;
        sum.accesses_per_instruction += window.accesses_per_instruction;
        count += 1.0;
    }
    Window {
        progress: sum.progress / count.max(1.0),
        accesses_per_instruction: sum.accesses_per_instruction / count.max(1.0),
    }
}

#[cfg(test)]
mod tests {
    use numapilot_host::PageNumber;
    use numapilot_machine::NodeSet;

    use super::*;
    use crate::observation::{PageSize, ThreadState};

    fn interval(progress: f64, accesses: f64) -> Observation {
        let thread = ThreadState {
            thread: 0,
            process: 0,
            node: NodeIndex(0),
            allowed: NodeSet::all(4),
            busy_ns: 1e6,
            instructions: progress * 1e6,
            memory_accesses: accesses * progress * 1e6,
        };
        Observation { threads: vec![thread], ..Observation::default() }
    }

    fn after_moves(progress: &[f64], accesses: f64) -> Vec<Action> {
        let mut guard = Guard::new();
        for _ in 0..4 {
            assert!(guard.watch(&interval(1.0, 0.01), 0.02).is_empty());
        }
        let undo =
            |page| Action::Migrate { page: PageKey { process: 0, page, size: PageSize::Small }, to: NodeIndex(3) };
        guard.moved(PageNumber(0).run(100).map(undo).collect());
        progress.iter().flat_map(|progress| guard.watch(&interval(*progress, accesses), 0.02)).collect()
    }

    #[test]
    fn moves_that_slow_the_program_down_are_taken_back_and_others_stay() {
        let undone = after_moves(&[0.5, 0.9, 0.9, 0.9], 0.01);
        assert_eq!(undone.len(), 100);
        assert!(matches!(undone[7], Action::Migrate { page: PageKey { page: PageNumber(7), .. }, to: NodeIndex(3) }));
        assert!(
            after_moves(&[0.5, 1.3, 1.3, 1.3], 0.01).is_empty(),
            "the interval of the copying is not held against them"
        );
        assert!(after_moves(&[0.5, 0.9, 0.9, 0.9], 0.05).is_empty(), "other work is no evidence");
    }

    /// A page that moved twice in one batch went back to where it was between, and so did a thread.
    #[test]
    fn what_moved_twice_goes_back_to_where_it_was_first() {
        let mut guard = Guard::new();
        guard.watch(&interval(1.0, 0.01), 0.02);
        let key = |page| PageKey { process: 0, page: PageNumber(page), size: PageSize::Small };
        let to = |page, node| Action::Migrate { page: key(page), to: NodeIndex(node) };
        let thread = |node| Action::MoveThread { thread: 3, to: NodeIndex(node) };
        guard.moved((0..64).map(|page| to(page, 0)).chain([thread(0)]).collect());
        guard.moved((10..80).map(|page| to(page, 1)).chain([thread(1)]).collect());
        let undone: Vec<Action> = (0..3).flat_map(|_| guard.watch(&interval(0.5, 0.01), 0.02)).collect();
        let first = (0..64).map(|page| to(page, 0)).chain([thread(0)]).chain((64..80).map(|page| to(page, 1)));
        assert_eq!(undone, first.collect::<Vec<_>>());
    }

    /// Moves from before the first interval in which the program ran kept all later ones from being judged.
    #[test]
    fn moves_before_the_first_window_keep_no_others_from_being_judged() {
        let mut guard = Guard::new();
        let batch = |to: usize| {
            let undo =
                |page| Action::Migrate { page: PageKey { process: 0, page, size: PageSize::Small }, to: NodeIndex(to) };
            PageNumber(0).run(100).map(undo).collect::<Vec<Action>>()
        };
        guard.moved(batch(1));
        for _ in 0..3 {
            assert!(guard.watch(&interval(1.0, 0.01), 0.02).is_empty());
        }
        guard.moved(batch(2));
        let undone: Vec<Action> = (0..3).flat_map(|_| guard.watch(&interval(0.5, 0.01), 0.02)).collect();
        assert_eq!(undone, batch(2));
    }
}
