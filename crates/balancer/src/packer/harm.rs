//! Judges placements: a unit's speed after it was placed is compared with that before, in windows of a step each. A placement that made it slower is undone:
//! its threads may run where they might before it (on the nodes of the placement before, if that was kept), its pages go back to where they were, and it is
//! left alone for a time.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_kernel::affinity;
use numapilot_kernel::origins::Origins;
use numapilot_kernel::task;
use numapilot_machine::NodeSet;
use numapilot_text::units::counted;
use numapilot_text::units::time_ns;

use super::Packer;
use super::capacity::distances;
use super::place;
use super::place::Held;
use super::place::Placed;
use super::trial;
use super::trial::IDLE_SHARE;
use super::trial::Trial;
use super::units::Unit;
use crate::comparison;
use crate::control_port::ControlPort;
use crate::decision::harm_windows::Judgement;
use crate::event::Event;
use crate::execution::progress::Progress;
use crate::step_progress::StepProgress;
use crate::system::speed_meter::SpeedMeter;
use crate::system::speed_meter::Work;

/// Threads whose instructions are counted, at most, of all processes: each takes a descriptor.
const COUNTED_MAX: usize = 1 << 11;
/// Runs of pages whose previous nodes are remembered, at most, of all processes: 24 MiB.
const ORIGINS_MAX: usize = 1 << 20;

impl Packer {
    /// Ends a window of every unit, `elapsed` after the last one, and judges those whose windows are complete.
    pub(super) fn judge(
        &mut self,
        units: &BTreeMap<Unit, Vec<Pid>>,
        elapsed: Duration,
        control_port: &mut dyn ControlPort,
    ) {
        self.forget(units);
        let mut room = self.room_to_count();
        let (max_harm, may_measure) = (self.options.tunables.max_harm, self.measuring.used);
        for (unit, pids) in units {
            let work = self.work_of(pids, &mut room);
            // Units that are left out of packings are looked at for nothing else.
            if !work.ran_on.is_empty() && !self.look_at_memory(pids, control_port) {
                return;
            }
            let far = self.far(pids, &work);
            let cpus: f64 = pids.iter().filter_map(|pid| self.watched.get(pid)).map(|one| one.cpus).sum();
            let is_unfinished = self.held.get(unit).is_some_and(|held| held.is_unfinished);
            let trial = self.trials.entry(unit.clone()).or_insert_with(|| Trial::new(max_harm, may_measure));
            // While the rest of its memory is elsewhere, it is neither as it was nor as it is to be.
            let measure = trial.measure(&work, far, elapsed).filter(|_| !is_unfinished);
            if is_unfinished || cpus < IDLE_SHARE {
                trial.windows.skip_window();
            }
            let end = trial.windows.window(measure, cpus * elapsed.as_nanos() as f64);
            self.regression_guard.spent(end.harm_ns);
            if let Some(judgement) = end.judgement {
                self.judged((unit, pids), &judgement, control_port);
                room = self.room_to_count();
            }
        }
    }

    /// Whether a unit is not packed for now: it is not known how fast it is without that, or its last placement was undone. Its processors and memory count as
    /// used by others meanwhile.
    pub(super) fn is_left_out(&self, unit: &Unit) -> bool {
        if self.options.dry_run || self.held.contains_key(unit) {
            return false;
        }
        match self.trials.get(unit) {
            Some(trial) => trial.windows.must_wait() || self.is_resting(unit),
            // It was not looked at yet.
            None => self.measuring.used,
        }
    }

    /// A unit was placed by this decision: if that has changed anything, it is compared from now on with how fast the unit was before.
    pub(super) fn put_on_trial(&mut self, unit: &Unit, decision: u64, placed: &Placed) {
        if let Some(trial) = self.trials.get_mut(unit).filter(|_| placed.is_change()) {
            trial.placed(decision, placed.moving_ns() as f64);
        }
    }

    /// Windows begin anew: what units have done while pages moved, their own or those of others, belongs to none.
    pub(super) fn begin_windows(&mut self) {
        let met = self.watched.iter().filter(|(_, one)| one.speed.has_looked());
        let pids: Vec<Pid> = met.map(|(pid, _)| *pid).collect();
        let mut room = self.room_to_count();
        self.work_of(&pids, &mut room);
        self.windows_since = Instant::now();
    }

    /// How many more threads may have their instructions counted.
    fn room_to_count(&self) -> usize {
        let counted: usize = self.watched.values().map(|one| one.speed.counted()).sum();
        COUNTED_MAX.saturating_sub(counted)
    }

    /// How many runs of pages may be remembered beside those that are.
    pub(super) fn room_for_origins(&self) -> usize {
        let known: usize = self.watched.values().map(|one| one.origins.len()).sum();
        if self.measuring.used { ORIGINS_MAX.saturating_sub(known) } else { 0 }
    }

    /// Forgets what is known of processes that belong to no unit now, of those that have become other programs, and of units that are no more.
    fn forget(&mut self, units: &BTreeMap<Unit, Vec<Pid>>) {
        let pids: BTreeSet<Pid> = units.values().flatten().copied().collect();
        for (pid, one) in &mut self.watched {
            if std::mem::take(&mut one.is_another) {
                self.trials.remove(&Unit::Process(*pid));
            }
            if !pids.contains(pid) {
                (one.speed, one.origins) = (SpeedMeter::default(), Origins::default());
            }
        }
        let watched = &self.watched;
        // One that uses too little of the processors for a while is no other unit after that.
        self.trials.retain(|unit, _| {
            units.contains_key(unit)
                || match unit {
                    Unit::Process(pid) => watched.contains_key(pid),
                    Unit::Cgroup(folder) => folder.exists(),
                }
        });
    }

    /// What the threads of these processes have done since the last look. `room`: how many more threads may have their instructions counted.
    fn work_of(&mut self, pids: &[Pid], room: &mut usize) -> Work {
        let mut work = Work::default();
        for pid in pids {
            let Some(one) = self.watched.get_mut(pid) else { continue };
            let before = one.speed.counted();
            work.add(one.speed.look(&Root::default(), *pid, &self.machine, *room));
            *room = room.saturating_sub(one.speed.counted().saturating_sub(before));
        }
        work
    }

    /// How much longer these processes take because of where their memory is, by estimation; 1 where their instructions tell.
    fn far(&self, pids: &[Pid], work: &Work) -> f64 {
        if work.ran_on.is_empty() {
            return 1.0;
        }
        let mut bytes = vec![0_u64; self.machine.nodes().len()];
        let watched = pids.iter().filter_map(|pid| self.watched.get(pid));
        for (node, part) in watched.flat_map(|one| &one.numa.last().parts) {
            if let Some(at) = self.machine.node_index(*node) {
                bytes[at] += part;
            }
        }
        trial::far(&work.ran_on, &bytes, &distances(&self.machine), self.settings.memory_share)
    }

    /// Records a judgement about a unit, and undoes the unit's placement if that made it slower.
    fn judged(&mut self, (unit, pids): (&Unit, &[Pid]), judgement: &Judgement, control_port: &mut dyn ControlPort) {
        let (interval, observation) = (self.interval(), self.counters.observations);
        let Some(trial) = self.trials.get_mut(unit) else { return };
        let measure = format!("{}, of {unit}", trial.measure_name());
        let (batch, rest) = trial.judged(judgement.undo, observation);
        let decision = batch.decisions.last().copied().unwrap_or(self.counters.decisions);
        let mut comparison = comparison::of(judgement, batch.decisions, measure, interval);
        if judgement.undo {
            comparison.because = self.undo_words(pids, rest);
        }
        control_port.record(Event::Comparison(comparison));
        if judgement.is_gain() {
            self.regression_guard.refund(batch.moving_ns);
        }
        self.counters.undone += u64::from(judgement.undo);
        self.counters.kept += u64::from(!judgement.undo);
        if judgement.undo {
            return self.undo(unit, pids, decision, control_port);
        }
        if let Some(held) = self.held.get_mut(unit) {
            held.kept = Some(held.nodes);
        }
        for pid in pids {
            if let Some(one) = self.watched.get_mut(pid) {
                one.origins = Origins::default();
            }
        }
    }

    /// What is done about a placement that made these processes slower.
    fn undo_words(&self, pids: &[Pid], rest: u64) -> String {
        let watched = pids.iter().filter_map(|pid| self.watched.get(pid));
        let left = match watched.map(|one| one.origins.forgotten()).sum::<u64>() {
            0 => String::new(),
            pages => {
                let pages = counted(pages, "page does", "pages do");
                format!("; {pages} not move back, because there were too many to remember where they were")
            }
        };
        let time = time_ns(u64::try_from(self.interval().as_nanos()).unwrap_or(u64::MAX).saturating_mul(rest));
        format!(
            "slower than --max-harm allows: threads may run where they might before, pages move back, and nothing is done to it for {rest} \
             observations, about {time}{left}"
        )
    }

    /// Undoes the placement of a unit. It has the nodes again of its placement before, if that was kept: it was compared with how fast it was there. Else it
    /// may run where it might before it was placed at all. Its pages go back also while memory pressure is high, or the account for moving is empty.
    fn undo(&mut self, unit: &Unit, pids: &[Pid], decision: u64, control_port: &mut dyn ControlPort) {
        let mut placed = match self.held.get(unit).and_then(|held| held.kept) {
            Some(nodes) => self.bind_back(unit, pids, nodes, control_port),
            None => Placed { threads: self.release_unit(unit, control_port), ..Placed::default() },
        };
        placed.is_undo = true;
        let mut progress = StepProgress::of_undoing(control_port, &mut self.waiting);
        for pid in pids {
            if let Some(one) = self.watched.get_mut(pid) {
                place::back(one, self.options.moves_bound, &mut self.mover, &mut progress, &mut placed);
            }
        }
        self.settle(decision, placed, control_port);
        // What they have done while their pages moved belongs to no window.
        let mut room = self.room_to_count();
        self.work_of(pids, &mut room);
    }

    /// Lets a unit run on these nodes again; what has its placement from it runs free. Its pages stay where they are.
    fn bind_back(&mut self, unit: &Unit, pids: &[Pid], nodes: NodeSet, control_port: &mut dyn ControlPort) -> Placed {
        let mut placed = Placed::default();
        if let Unit::Process(pid) = unit {
            self.release_children(Some(*pid));
            for heir in self.heirs(*pid) {
                placed.threads += self.release_unit(&heir, control_port);
            }
        }
        let Some(mut held) = self.held.remove(unit) else { return placed };
        (held.nodes, held.is_unfinished) = (nodes, false);
        let online = affinity::online();
        let mut progress = StepProgress::of_undoing(control_port, &mut self.waiting);
        let is_bound = match unit {
            Unit::Cgroup(folder) => held.by_cpuset(folder, &self.machine, &mut progress, &mut placed),
            Unit::Process(_) => false,
        };
        for pid in pids.iter().filter(|_| !is_bound) {
            held.by_affinity(*pid, &self.machine, online.as_ref(), progress.undo_log(), &mut placed);
        }
        if placed.is_refused {
            held.release(progress.undo_log());
        } else {
            self.held.insert(unit.clone(), held);
        }
        placed
    }

    /// Whether a unit is left on the nodes that it has, because a placement of it was undone.
    pub(super) fn is_resting(&self, unit: &Unit) -> bool {
        self.trials.get(unit).is_some_and(|trial| trial.rests(self.counters.observations))
    }

    /// Restores where a unit may run, and those units that have its placement from it. Returns the number of threads that were bound.
    fn release_unit(&mut self, unit: &Unit, control_port: &mut dyn ControlPort) -> u64 {
        let (mut released, mut threads) = (vec![unit.clone()], 0);
        let mut at = 0;
        while let Some(one) = released.get(at).cloned() {
            at += 1;
            if let Unit::Process(pid) = &one {
                self.release_children(Some(*pid));
                released.extend(self.heirs(*pid));
            }
            let Some(mut held) = self.held.remove(&one) else { continue };
            if let Unit::Process(pid) = &one
                && held.is_heir()
            {
                held.release_child(*pid);
            }
            threads += held.bound_threads();
            held.release(control_port).into_iter().for_each(|setting| control_port.record(Event::Setting(setting)));
        }
        threads
    }

    /// Children of a placed process that are units themselves and have its placement from it.
    fn heirs(&self, pid: Pid) -> Vec<Unit> {
        let Some(nodes) = self.held.get(&Unit::Process(pid)).map(|held| held.nodes) else { return Vec::new() };
        let is_heir = |(unit, held): &(&Unit, &Held)| {
            let is_child = matches!(unit, Unit::Process(child) if task::parent_of(*child) == Some(pid));
            held.is_heir() && held.nodes == nodes && is_child
        };
        self.held.iter().filter(is_heir).map(|(unit, _)| unit.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    //! Judgements made up, of this process and of a shell with a child.

    use numapilot_host::Group;
    use numapilot_host::Tid;
    use numapilot_host::VirtAddr;
    use numapilot_kernel::migrate::Migration;
    use numapilot_machine::Machine;
    use numapilot_machine::NodeId;

    use super::*;
    use crate::balancing_loop::Options;
    use crate::balancing_loop::Who;
    use crate::control_port::tests::Desk;
    use crate::event::PageOutcomes;
    use crate::event::Verdict;
    use crate::execution::binding;
    use crate::packer::tests::Shell;
    use crate::packer::units::Watched;
    use crate::system::undo_log::ThreadId;

    /// A packer that manages these processes, and has a trial of the first one.
    fn of(pids: &[Pid]) -> (Packer, Unit) {
        let who = Who::Group(Group::Processes(pids.to_vec()));
        let mut packer =
            Packer::new(Machine::live().unwrap(), Options { who, dry_run: true, ..Options::default() }).unwrap();
        // A machine of one node is packed in dry runs alone.
        packer.options.dry_run = false;
        packer.watched.extend(pids.iter().map(|pid| (*pid, Watched::new(*pid).unwrap())));
        let unit = Unit::Process(pids[0]);
        packer.trials.insert(unit.clone(), Trial::new(0.01, true));
        (packer, unit)
    }

    fn judgement(change_percent: f64) -> Judgement {
        let after = 2.0 + change_percent / 50.0;
        let undo = change_percent < 0.0;
        Judgement { before: (2.0, 2), after: (after, 6), change_percent, plus_minus_percent: 1.0, undo }
    }

    /// Whatever a placement did to a process, it stayed until the end.
    #[test]
    fn a_placement_that_made_a_process_slower_is_undone_and_the_process_rests() {
        let all = affinity::of_thread(Tid::first_of(Pid::own())).unwrap();
        if all.cpus().len() < 2 {
            return numapilot_not_run::not_run!(TwoCpus, "one CPU leaves nothing to bind");
        }
        let mut shell = Shell::start();
        let (pid, mut desk) = (shell.pid(), Desk::default());
        let (mut packer, unit) = of(&[pid]);
        let id = ThreadId { pid, tid: Tid::first_of(pid), start_ticks: task::stat(pid).unwrap().start_ticks };
        let first = all.cpus().into_iter().take(1).collect();
        let mut held = Held::default();
        held.bind(binding::planned(id, None, &first, None, &mut Vec::new()).unwrap(), &mut desk);
        let child = shell.start_child();
        packer.held.insert(unit.clone(), held);
        // The child comes to be a unit itself; one that was known before would have been left free.
        let heir = Unit::Process(child);
        let units = BTreeMap::from([(heir.clone(), vec![child])]);
        packer.trials.insert(heir.clone(), Trial::new(0.01, true));
        packer.adopt(&units);
        assert!(!packer.held.contains_key(&heir));
        packer.trials.remove(&heir);
        packer.adopt(&units);
        assert!(packer.held.contains_key(&heir));
        packer.counters.observations = 7;
        packer.put_on_trial(&unit, 3, &Placed { threads: 1, ..Placed::default() });
        // There is no room for this one.
        packer.watched.get_mut(&pid).unwrap().origins.moved(VirtAddr(0x1000), NodeId(0));
        packer.judged((&unit, &[pid]), &judgement(-20.0), &mut desk);
        let now = [pid, child].map(|pid| affinity::of_thread(Tid::first_of(pid)).unwrap());
        assert_eq!(now, [all.clone(), all]);
        let [Event::Comparison(compared), Event::Action(action)] = &desk.events[..] else {
            panic!("{:?}", desk.events)
        };
        assert!(compared.verdict == Verdict::Undone && compared.decisions == [3], "{compared:?}");
        assert!(compared.measure.ends_with(&format!("of {unit}")), "{compared:?}");
        assert!(compared.because.contains("300 observations, about 5 min 00 s; 1 page does not"), "{compared:?}");
        assert!(action.undo && action.decision == 3 && action.threads_moved == 1, "{action:?}");
        assert_eq!((packer.counters.undone, packer.counters.kept, packer.counters.threads_moved), (1, 0, 0));
        assert!(packer.held.is_empty() && packer.is_left_out(&unit));
        packer.counters.observations = 7 + 300;
        assert!(!packer.is_left_out(&unit));
    }

    /// Undone as the first one is, it left a process without CPUs of its own, and with its memory on the nodes that it had had.
    #[test]
    fn a_process_gets_back_the_placement_before_if_that_was_kept() {
        let all = affinity::of_thread(Tid::first_of(Pid::own())).unwrap();
        if all.cpus().len() < 2 {
            return numapilot_not_run::not_run!(TwoCpus, "one CPU leaves nothing to bind");
        }
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let (pid, mut desk) = (Pid::of_child(&child), Desk::default());
        let (mut packer, unit) = of(&[pid]);
        let mut held = Held::default();
        held.nodes = NodeSet::all(64);
        packer.held.insert(unit.clone(), held);
        packer.put_on_trial(&unit, 2, &Placed { threads: 1, ..Placed::default() });
        packer.judged((&unit, &[pid]), &judgement(20.0), &mut desk);
        let id = ThreadId { pid, tid: Tid::first_of(pid), start_ticks: task::stat(pid).unwrap().start_ticks };
        let first = all.cpus().into_iter().take(1).collect();
        let held = packer.held.get_mut(&unit).unwrap();
        held.nodes = NodeSet(0b1);
        held.bind(binding::planned(id, None, &first, None, &mut Vec::new()).unwrap(), &mut desk);
        packer.put_on_trial(&unit, 3, &Placed { threads: 1, ..Placed::default() });
        packer.judged((&unit, &[pid]), &judgement(-20.0), &mut desk);
        let now = affinity::of_thread(Tid::first_of(pid)).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((now, packer.held[&unit].nodes), (all, NodeSet::all(64)));
        assert!(packer.is_resting(&unit) && !packer.is_left_out(&unit), "it stays on the nodes that it has");
        let Some(Event::Action(action)) = desk.events.last() else { panic!("{:?}", desk.events) };
        assert!(action.undo && action.decision == 3 && action.threads_moved == 1, "{action:?}");
    }

    #[test]
    fn a_placement_that_pays_stays_and_costs_nothing() {
        let (pid, mut desk) = (Pid::own(), Desk::default());
        let (mut packer, unit) = of(&[pid]);
        packer.held.insert(unit.clone(), Held::default());
        packer.put_on_trial(&unit, 2, &Placed::default());
        assert!(!packer.trials[&unit].is_judging(), "nothing was done");
        let pages = PageOutcomes { moved: 1, ..PageOutcomes::default() };
        let moved = vec![Migration { pages, moving: Duration::from_millis(300), ..Migration::default() }];
        packer.put_on_trial(&unit, 3, &Placed { moved, ..Placed::default() });
        assert!(packer.trials[&unit].is_judging());
        let origins = &mut packer.watched.get_mut(&pid).unwrap().origins;
        origins.limit(1);
        origins.moved(VirtAddr(0x1000), NodeId(0));
        assert_eq!(packer.room_for_origins(), if packer.measuring.used { ORIGINS_MAX - 1 } else { 0 });
        let before = packer.regression_guard.account_ns();
        packer.judged((&unit, &[pid]), &judgement(20.0), &mut desk);
        assert!((packer.regression_guard.account_ns() - before - 3e8).abs() < 1.0);
        assert!(packer.held.contains_key(&unit) && packer.watched[&pid].origins.is_empty());
        assert_eq!((packer.counters.kept, packer.counters.undone), (1, 0));
        let [Event::Comparison(compared)] = &desk.events[..] else { panic!("{:?}", desk.events) };
        assert!(compared.verdict == Verdict::Kept && compared.because.is_empty(), "{compared:?}");
    }

    /// A step that takes long is followed by the next one at once: what was done in the milliseconds between them was a measure like any other.
    #[test]
    fn a_window_is_no_shorter_than_half_an_interval() {
        let ((mut packer, unit), mut desk) = (of(&[Pid::own()]), Desk::default());
        packer.options.tunables.interval = Duration::from_secs(60);
        packer.watched.clear();
        packer.begin_windows();
        packer.pack(&mut desk);
        assert!(packer.trials.contains_key(&unit), "no window has ended, so nothing was forgotten");
        packer.windows_since -= Duration::from_secs(31);
        packer.pack(&mut desk);
        assert!(packer.trials.is_empty());
    }

    /// The first packing came before anything was known of how fast the processes were without it.
    #[test]
    fn a_unit_is_measured_before_it_is_packed() {
        let (pid, mut desk, elapsed) = (Pid::own(), Desk::default(), Duration::from_millis(40));
        let (mut packer, unit) = of(&[pid]);
        packer.trials.clear();
        let is_measured = packer.measuring.used;
        assert_eq!(packer.is_left_out(&unit), is_measured, "it was not looked at yet");
        let units = BTreeMap::from([(unit.clone(), vec![pid])]);
        let mut left_out = Vec::new();
        for _ in 0..3 {
            let begun = std::time::Instant::now();
            while begun.elapsed() < elapsed {}
            packer.judge(&units, elapsed, &mut desk);
            left_out.push(packer.is_left_out(&unit));
        }
        assert_eq!(left_out, [is_measured, is_measured, false], "the first look has nothing to compare with");
        packer.watched.get_mut(&pid).unwrap().is_another = true;
        packer.judge(&units, elapsed, &mut desk);
        assert_eq!(packer.is_left_out(&unit), is_measured, "another program is measured, too");
        packer.judge(&BTreeMap::new(), elapsed, &mut desk);
        assert!(packer.trials.contains_key(&unit) && desk.events.is_empty(), "it may be busy again");
        packer.watched.clear();
        packer.judge(&BTreeMap::new(), elapsed, &mut desk);
        assert!(packer.trials.is_empty());
    }
}
