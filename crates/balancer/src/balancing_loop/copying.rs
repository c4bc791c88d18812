//! The loop's handling of file copies: collects evidence, carries out orders, and undoes copies of a batch that slowed the targets down.

use std::collections::BTreeSet;

use numapilot_host::Pid;
use numapilot_machine::NodeIndex;
use numapilot_placement::Action as Order;

use super::Balancer;
use crate::control_port::ControlPort;
use crate::event;
use crate::event::Event;
use crate::evidence::observe::Use;
use crate::execution::copies::Copied;

impl Balancer {
    /// Returns observed uses of files that processes only read; empty where no observation is due.
    pub(super) fn file_uses(&mut self, control_port: &mut dyn ControlPort) -> Vec<Use> {
        let Some(copies) = &mut self.copies else { return Vec::new() };
        let can_act = !self.options.dry_run && !self.is_paused;
        let (uses, events, troubles) = copies.look(&mut self.targets, &mut self.query, can_act);
        events.into_iter().for_each(|event| control_port.record(Event::Copies(event)));
        troubles.into_iter().for_each(|trouble| self.trouble(trouble, control_port));
        self.run_stats.saw_files(uses.len() as u64);
        for used in &uses {
            if let Some(owner) = self.targets.by_number(used.process) {
                self.table.saw(owner.page_id(used.page), used.from, used.home);
            }
        }
        uses
    }

    /// Records the processes' last answers at the end of the run: processes that were asked to copy may have done so and ended.
    pub(super) fn record_last_answers(&mut self, control_port: &mut dyn ControlPort) {
        let Some(copies) = &mut self.copies else { return };
        let events = copies.last_answers(&self.targets);
        events.into_iter().for_each(|event| control_port.record(Event::Copies(event)));
    }

    /// Maps a use of a page of a copied file to the page that policies know.
    pub(super) fn as_file_use(&self, pid: Pid, used: Use) -> Use {
        let owner = self.copies.as_ref().and_then(|copies| copies.page(pid, used.page));
        let owner = owner.and_then(|(pid, page)| Some((self.targets.all.get(&pid)?.number(), page)));
        match owner {
            Some((process, page)) => Use { process, page, is_large: false, is_read_only: true, ..used },
            None => used,
        }
    }

    /// Splits orders into those about copies and all others.
    pub(super) fn about_copies(&self, orders: Vec<Order>) -> (Vec<Order>, Vec<Order>) {
        match &self.copies {
            Some(copies) => orders.into_iter().partition(|order| copies.is_about_copies(order, &self.targets)),
            None => (Vec::new(), orders),
        }
    }

    /// Carries out orders about copies. Returns the number of files whose copies changed.
    pub(super) fn copy(&mut self, decision: u64, orders: Vec<Order>, control_port: &mut dyn ControlPort) -> usize {
        let Some(copies) = self.copies.as_mut().filter(|_| !orders.is_empty()) else { return 0 };
        let mut done = copies.carry_out(decision, orders, &self.targets, &mut self.memory);
        let pages = |wants: &dyn Fn(&numapilot_placement::Outcome) -> bool| {
            done.outcomes.iter().filter(|outcome| wants(outcome)).count() as u64
        };
        let moved = pages(&|outcome| outcome.result.is_ok());
        let no_room = pages(&|outcome| outcome.result == Err(numapilot_placement::Refusal::NoRoom));
        let other = done.outcomes.len() as u64 - moved - no_room;
        self.outcomes.append(&mut done.outcomes);
        if !done.before.is_empty() {
            self.is_judged_with(decision);
            self.regression_guard.changed(done.took_ns as f64);
            remember_first(&mut self.undo_copies, &done.before);
        }
        let pages = event::PageOutcomes { moved, no_room, not_tried: other, ..event::PageOutcomes::default() };
        let files = done.before.len();
        self.record_copied(decision, false, pages, done, control_port);
        files
    }

    /// Undoes the copies of the batch.
    pub(super) fn take_copies_back(&mut self, decision: u64, control_port: &mut dyn ControlPort) {
        let before = std::mem::take(&mut self.undo_copies);
        let Some(copies) = self.copies.as_mut().filter(|_| !before.is_empty()) else { return };
        let done = copies.take_back(decision, &before, &self.targets);
        self.regression_guard.spent(done.took_ns as f64);
        self.record_copied(decision, true, event::PageOutcomes::default(), done, control_port);
    }

    fn record_copied(
        &mut self,
        decision: u64,
        undo: bool,
        pages: event::PageOutcomes,
        done: Copied,
        control_port: &mut dyn ControlPort,
    ) {
        let took_ns = done.took_ns;
        done.events.into_iter().for_each(|event| control_port.record(Event::Copies(event)));
        done.troubles.into_iter().for_each(|trouble| self.trouble(trouble, control_port));
        control_port.record(Event::Action(event::Action {
            decision,
            undo,
            pages,
            took_ns,
            ..event::Action::default()
        }));
    }
}

/// Adds the copies that files had before a further change of a batch. One that was changed several times goes back to what it had first.
fn remember_first(known: &mut Vec<(u64, BTreeSet<NodeIndex>)>, more: &[(u64, BTreeSet<NodeIndex>)]) {
    for (file, copies) in more {
        if known.iter().all(|(other, _)| other != file) {
            known.push((*file, copies.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that got copies twice kept the first ones when both changes were undone; and without probes, when nothing is ever undone, the list grew.
    #[test]
    fn a_file_that_was_changed_twice_goes_back_to_what_it_had_first() {
        let copies = |nodes: &[usize]| nodes.iter().copied().map(NodeIndex).collect::<BTreeSet<NodeIndex>>();
        let mut known = Vec::new();
        remember_first(&mut known, &[(7, copies(&[]))]);
        remember_first(&mut known, &[(7, copies(&[0, 1])), (8, copies(&[2, 3]))]);
        assert_eq!(known, [(7, copies(&[])), (8, copies(&[2, 3]))]);
    }
}
