//! Packings that are put off: while memory pressure is high, until the moves of earlier ones are paid for, and until those units are judged that would move
//! again.

use numapilot_host::Pid;
use numapilot_text::units::bytes as size;
use numapilot_text::units::time_ns;

use super::Packer;
use super::trial::IDLE_SHARE;
use super::units::Allowed;
use super::units::Unit;
use crate::control_port::ControlPort;
use crate::decision::packing::Demand;
use crate::decision::packing::Packing;

/// A unit with its processes, and what it asks for and may use.
type Found = (Unit, Vec<Pid>, Demand, Allowed);

impl Packer {
    /// Why a packing may not be carried out now; empty: it may. It is carried out whole, and then paid for before the next one: one that is half done has
    /// threads on other nodes than their memory. One that only widens does not wait for that: programs that have grown would, on too few processors.
    pub(super) fn put_off(&self, found: &[Found], packing: &Packing) -> &'static str {
        match self.regression_guard.may_change() {
            _ if self.options.dry_run => "",
            _ if self.pressure.is_high() => "memory pressure is high",
            Err(why) if !self.only_widens(found, packing) => why,
            _ if self.moves_what_is_judged(found, packing) => "what has moved is being compared with how it was before",
            _ => "",
        }
    }

    /// Tells that a packing of so many bytes is put off, for this reason: in the status, and in the journal at once and then more and more seldom.
    pub(super) fn tell_put_off(&mut self, bytes: u64, why: &str, control_port: &mut dyn ControlPort) {
        let is_spent = self.regression_guard.may_change() == Err(why);
        let why = if is_spent { format!("{why}: {}", self.to_make_up()) } else { why.to_owned() };
        if self.reminder.is_due(self.counters.observations) {
            self.record_decision(self.says.clone(), bytes, why.clone(), control_port);
        }
        self.says.push_str(&format!("; put off, because {why}; {} are to move", size(bytes)));
    }

    /// How much more time than it might moving has taken, and when that is made up for.
    fn to_make_up(&self) -> String {
        let short_ns = (-self.regression_guard.account_ns()).max(0.0);
        let cpus: f64 = self.watched.values().map(|one| one.cpus).sum();
        let share = self.options.tunables.max_harm * cpus;
        let when = if share > 0.0 {
            let left = nanoseconds(short_ns / share);
            format!("made up for in about {left} at the present use of {cpus:.1} processors")
        } else {
            "not made up for while no process runs, or with a max-harm of 0".to_owned()
        };
        format!("moving has taken {} more than it might, {when}", nanoseconds(short_ns))
    }

    /// How long moving so many bytes takes at the rate that is set, as the end of a sentence; empty: none is set.
    pub(super) fn rate_words(&self, bytes: u64) -> String {
        match self.options.tunables.bytes_per_s {
            Some(rate) if bytes > 0 => {
                let took_ns = bytes as f64 / rate.max(1) as f64 * 1e9;
                format!("; moving {} takes about {} at the rate that is set", size(bytes), nanoseconds(took_ns))
            }
            _ => String::new(),
        }
    }

    /// Whether a unit has to leave nodes on which it was placed, and that placement is being judged: not while the unit is idle, which may last for ever.
    fn moves_what_is_judged(&self, found: &[Found], packing: &Packing) -> bool {
        found.iter().zip(&packing.nodes).any(|((unit, _, demand, _), nodes)| {
            let is_judged = self.trials.get(unit).is_some_and(|trial| trial.is_judging());
            is_judged && demand.cpus >= IDLE_SHARE && self.held.contains_key(unit) && !demand.bound.is_subset(*nodes)
        })
    }

    /// Whether every unit that is placed keeps those of its nodes that it may use, and every other one stays free: no memory has to leave them.
    fn only_widens(&self, found: &[Found], packing: &Packing) -> bool {
        found.iter().zip(&packing.nodes).all(|((unit, _, demand, _), nodes)| match self.held.contains_key(unit) {
            true => demand.bound.is_subset(*nodes),
            false => *nodes == demand.allowed,
        })
    }
}

/// A time, rounded down.
fn nanoseconds(time_of_ns: f64) -> String {
    time_ns(time_of_ns as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use numapilot_host::Group;
    use numapilot_host::Root;
    use numapilot_host::Tid;
    use numapilot_kernel::affinity;
    use numapilot_kernel::migrate::Migration;
    use numapilot_machine::Machine;
    use numapilot_machine::NodeSet;

    use super::*;
    use crate::balancing_loop::Options;
    use crate::balancing_loop::Who;
    use crate::control_port::tests::Desk;
    use crate::event::Event;
    use crate::packer::place::Held;
    use crate::packer::place::Placed;
    use crate::packer::trial::Trial;
    use crate::packer::units::Watched;
    use crate::system::pressure::MemoryPressure;

    /// A packer under no pressure, two units that it found (one that is placed on the first of two nodes, and one that is not), and their packing.
    fn of_two(nodes: [u64; 2]) -> (Packer, Vec<Found>, Packing) {
        let who = Who::Group(Group::Processes(vec![Pid::own()]));
        let mut packer =
            Packer::new(Machine::live().unwrap(), Options { who, dry_run: true, ..Options::default() }).unwrap();
        // A kernel that counts no pressure.
        packer.pressure = MemoryPressure::new(Root::new("/nowhere"), 0.1);
        let found = [(7, 0b01), (8, 0)].map(|(pid, bound)| {
            let cpus = affinity::of_thread(Tid::first_of(Pid::own())).unwrap();
            let demand = Demand { cpus: 1.0, bound: NodeSet(bound), allowed: NodeSet(0b11), ..Demand::default() };
            (Unit::Process(Pid(pid)), vec![Pid(pid)], demand, Allowed { cpus, mems: Vec::new() })
        });
        let mut held = Held::default();
        held.nodes = NodeSet(0b01);
        packer.held.insert(found[0].0.clone(), held);
        (packer, found.into(), Packing { nodes: nodes.map(NodeSet).to_vec(), is_change: true, ..Packing::default() })
    }

    /// However long moving took, the next packing came with the next step.
    #[test]
    fn a_packing_is_paid_for_before_the_next_one() {
        let (mut packer, found, packing) = of_two([0b10, 0b01]);
        let moved = vec![Migration { moving: Duration::from_secs(3), ..Migration::default() }];
        packer.settle(1, Placed { moved, ..Placed::default() }, &mut Desk::default());
        assert_eq!(packer.put_off(&found, &packing), "", "a dry run moves nothing");
        packer.options.dry_run = false;
        assert!(packer.put_off(&found, &packing).contains("max-harm"));
        // A second of the three was granted in advance; a hundredth of the time that programs run makes up for the others.
        packer.regression_guard.window(None, 199e9);
        assert!(packer.put_off(&found, &packing).contains("max-harm"));
        packer.regression_guard.window(None, 2e9);
        assert_eq!(packer.put_off(&found, &packing), "");
        packer.pressure = crate::system::pressure::tests::high();
        assert_eq!(packer.put_off(&found, &packing), "memory pressure is high");
    }

    /// A packing that waited for hours was told of in the status alone, and not for how long it would wait.
    #[test]
    fn what_waits_is_told_of_with_how_much_it_is_and_how_long_it_takes() {
        let (mut packer, found, packing) = of_two([0b10, 0b01]);
        packer.options.dry_run = false;
        packer.regression_guard.spent(3e9);
        let mut busy = Watched::new(Pid::own()).unwrap();
        busy.cpus = 2.0;
        packer.watched.insert(Pid::own(), busy);
        let (why, mut desk) = (packer.put_off(&found, &packing), Desk::default());
        for _ in 0..3 {
            packer.counters.observations += 1;
            packer.says = "two units".to_owned();
            packer.tell_put_off(5 << 20, why, &mut desk);
        }
        let wait = "moving has taken 2.00 s more than it might, made up for in about 1 min 40 s at the present use of 2.0 processors";
        let says = packer.says.clone();
        assert!(says.starts_with("two units; put off, because ") && says.contains(wait), "{says}");
        assert!(says.ends_with(" MiB are to move"), "{says}");
        let [Event::Decision(told), Event::Decision(_)] = &desk.events[..] else { panic!("{:?}", desk.events) };
        assert!(told.held_back.ends_with(wait) && told.bytes == 5 << 20 && told.because == "two units", "{told:?}");
        packer.watched.clear();
        assert!(packer.to_make_up().contains("while no process runs"));
        assert_eq!(packer.rate_words(1 << 30), "");
        packer.options.tunables.bytes_per_s = Some(1 << 20);
        assert!(packer.rate_words(1 << 30).ends_with("takes about 17 min 04 s at the rate that is set"));
    }

    /// A process that was moved again before the first move was judged could not be said to have become slower by either.
    #[test]
    fn what_is_being_judged_is_not_moved_again() {
        for (nodes, may) in [([0b10, 0b11], false), ([0b11, 0b10], true), ([0b01, 0b10], true)] {
            let (mut packer, found, packing) = of_two(nodes);
            packer.options.dry_run = false;
            let mut trial = Trial::new(0.01, true);
            trial.placed(1, 0.0);
            packer.trials.insert(found[0].0.clone(), trial);
            assert_eq!(packer.put_off(&found, &packing).is_empty(), may, "{nodes:?}");
        }
        let (mut packer, mut found, packing) = of_two([0b10, 0b11]);
        packer.options.dry_run = false;
        let mut trial = Trial::new(0.01, true);
        trial.placed(1, 0.0);
        packer.trials.insert(found[0].0.clone(), trial);
        found[0].2.cpus = 0.0;
        assert_eq!(packer.put_off(&found, &packing), "", "nobody waits for one that is idle");
    }

    /// A program that had grown since it was placed stayed on too few nodes until what was moved before was paid for.
    #[test]
    fn more_nodes_are_given_before_what_was_moved_is_paid_for() {
        for (nodes, may) in [([0b11, 0b11], true), ([0b10, 0b11], false), ([0b11, 0b10], false), ([0b01, 0b10], false)]
        {
            let (mut packer, found, packing) = of_two(nodes);
            packer.options.dry_run = false;
            packer.regression_guard.spent(2e9);
            assert_eq!(packer.put_off(&found, &packing).is_empty(), may, "{nodes:?}");
        }
    }
}
