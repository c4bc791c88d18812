//! Orders that are put off because of memory pressure: all of them while that of the whole system is high, and those about pages of processes whose cgroup has
//! too much. The policy gets them back as refused for now. What moves back to where it was is not put off.

use std::collections::BTreeSet;

use numapilot_placement::Action as Order;

use super::Balancer;
use super::forbidden::process_of;
use crate::control_port::ControlPort;
use crate::event;
use crate::event::Event;

impl Balancer {
    /// Reads the pressure.
    pub(super) fn look_at_pressure(&mut self, control_port: &mut dyn ControlPort) {
        let changes = self.pressure.look();
        self.pressure_changed(changes, control_port);
    }

    /// Splits orders into those that may be carried out now, and those about pages of processes whose cgroups have high pressure. A dry run reports all. While
    /// the whole system's is high, no order is carried out, so the cgroups are not asked: each may be another file, which the kernel sums up when it is read.
    pub(super) fn split_pressed(
        &mut self,
        orders: Vec<Order>,
        control_port: &mut dyn ControlPort,
    ) -> (Vec<Order>, Vec<Order>) {
        if self.options.dry_run || self.pressure.is_high() {
            return (orders, Vec::new());
        }
        let (mut changes, mut pressed) = (Vec::new(), BTreeSet::new());
        for number in orders.iter().filter_map(process_of).collect::<BTreeSet<u32>>() {
            if let Some(managed) = self.targets.by_number(number)
                && self.pressure.is_high_for(managed.target.pid, &mut changes)
            {
                pressed.insert(number);
            }
        }
        self.pressure_changed(changes, control_port);
        orders.into_iter().partition(|order| process_of(order).is_none_or(|number| !pressed.contains(&number)))
    }

    fn pressure_changed(&mut self, changes: Vec<event::Pressure>, control_port: &mut dyn ControlPort) {
        // What was put off is decided on again with the evidence that there is.
        if changes.iter().any(|change| !change.is_high) {
            self.gate.request_decision();
        }
        changes.into_iter().for_each(|change| control_port.record(Event::Pressure(change)));
    }
}

/// Why the orders of a decision are not carried out; empty: they are. `pressure`: that of the system, or of the cgroups of all processes that they are about;
/// `may_change`: what is left of the time that moving may cost.
pub(super) fn held_back(
    is_dry_run: bool,
    is_undoing: bool,
    pressure: &'static str,
    may_change: Result<(), &'static str>,
) -> &'static str {
    match may_change {
        _ if is_dry_run => "dry run",
        _ if is_undoing => "the last changes are being undone",
        _ if !pressure.is_empty() => pressure,
        Err(why) => why,
        Ok(()) => "",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use numapilot_host::Group;
    use numapilot_host::PageNumber;
    use numapilot_host::Pid;
    use numapilot_host::Root;
    use numapilot_machine::Machine;
    use numapilot_machine::NodeIndex;
    use numapilot_placement::PageKey;
    use numapilot_placement::PageSize;

    use super::*;
    use crate::balancing_loop::Options;
    use crate::balancing_loop::Who;
    use crate::control_port::tests::Desk;
    use crate::system::pressure::MemoryPressure;

    #[test]
    fn pressure_holds_orders_back_unless_nothing_is_carried_out_anyway() {
        let (used_up, high) = (Err("used up"), "memory pressure is high");
        assert_eq!(held_back(true, true, high, used_up), "dry run");
        assert_eq!(held_back(false, true, high, used_up), "the last changes are being undone");
        assert_eq!(held_back(false, false, high, used_up), high);
        assert_eq!(held_back(false, false, high, Ok(())), high);
        assert_eq!(held_back(false, false, "", used_up), "used up");
        assert_eq!(held_back(false, false, "", Ok(())), "");
    }

    /// A loop of no process, under the pressure that is in the files below a folder.
    fn under(root: &Path) -> Balancer {
        let machine = crate::evidence::estimate::completed(&Machine::live().unwrap()).unwrap().0;
        let policy = numapilot_placement::policy_by_name("first-touch", &machine, 1).unwrap();
        let who = Who::Group(Group::Processes(vec![Pid::own()]));
        let options = Options { who, dry_run: true, probes: false, samples: false, ..Options::default() };
        // Without events: this process does not watch itself.
        let mut balancer = Balancer::new(machine, policy, options, &[]).unwrap();
        balancer.pressure = MemoryPressure::new(Root::new(root), 0.1);
        balancer
    }

    /// Writes a file below a folder.
    fn put(root: &Path, path: &str, text: &str) {
        let file = root.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    fn waiting(percent: &str) -> String {
        format!("some avg10={percent} avg60=0.00 avg300=0.00 total=1\n")
    }

    /// Every cgroup with pages to move was asked, although none of them would move.
    #[test]
    fn cgroups_are_not_asked_while_the_whole_system_has_too_much() {
        let (folder, own) = (tempfile::tempdir().unwrap(), Pid::own());
        let root = folder.path();
        put(root, "proc/pressure/memory", &waiting("30.00"));
        put(root, "sys/fs/cgroup/cgroup.controllers", "memory\n");
        put(root, "sys/fs/cgroup/tight/memory.pressure", &waiting("60.00"));
        put(root, &format!("proc/{own}/cgroup"), "0::/tight\n");
        let mut balancer = under(root);
        balancer.options.dry_run = false;
        balancer.targets.add(own).unwrap();
        let page =
            PageKey { process: balancer.targets.all[&own].number(), page: PageNumber(16), size: PageSize::Small };
        let orders = vec![Order::Migrate { page, to: NodeIndex(0) }];
        let mut desk = Desk::default();
        assert_eq!(balancer.split_pressed(orders.clone(), &mut desk), (orders.clone(), Vec::new()));
        assert!(balancer.pressure.is_high() && !balancer.pressure.is_known_high_for(own) && desk.events.is_empty());
        put(root, "proc/pressure/memory", &waiting("1.00"));
        balancer.look_at_pressure(&mut desk);
        assert_eq!(balancer.split_pressed(orders.clone(), &mut desk), (Vec::new(), orders));
        assert_eq!((desk.events.len(), balancer.pressure.is_known_high_for(own)), (2, true), "an end and a beginning");
    }

    /// Under pressure that was made up.
    #[test]
    fn high_pressure_is_told_once_and_shown_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let waits = |percent: &str| put(folder.path(), "proc/pressure/memory", &waiting(percent));
        waits("0.00");
        let (mut balancer, mut desk) = (under(folder.path()), Desk::default());
        for percent in ["30.00", "40.00", "1.00"] {
            waits(percent);
            balancer.look_at_pressure(&mut desk);
            balancer.publish(&mut desk);
            let status = desk.status.take().unwrap();
            assert_eq!(status.is_put_off, percent != "1.00", "{percent}");
            assert_eq!(status.pressure[0].resource, "memory");
        }
        let of_pressure = |event: &Event| match event {
            Event::Pressure(change) => Some(change.is_high),
            _ => None,
        };
        let told: Vec<bool> = desk.events.iter().filter_map(of_pressure).collect();
        assert_eq!(told, [true, false]);
    }
}
