//! Packings that are put off: while memory pressure is high, and until the moves of earlier ones are paid for.

use numapilot_host::Pid;

use super::Packer;
use super::units::Allowed;
use super::units::Unit;
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
            _ => "",
        }
    }

    /// Whether every unit that is placed keeps those of its nodes that it may use, and every other one stays free: no memory has to leave them.
    fn only_widens(&self, found: &[Found], packing: &Packing) -> bool {
        found.iter().zip(&packing.nodes).all(|((unit, _, demand, _), nodes)| match self.held.contains_key(unit) {
            true => demand.bound.is_subset(*nodes),
            false => *nodes == demand.allowed,
        })
    }
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
    use crate::packer::place::Held;
    use crate::packer::place::Placed;
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
            let demand = Demand { bound: NodeSet(bound), allowed: NodeSet(0b11), ..Demand::default() };
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
