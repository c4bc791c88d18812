//! Pages that several processes map: they are moved where all of these processes are managed, may have them on the node, and together use them there more than
//! anywhere else (of several such nodes, on the first). Orders come from what one process was seen to use.

use std::collections::BTreeMap;

use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_machine::NodeIndex;
use numapilot_placement::Action as Order;
use numapilot_placement::PageKey;
use numapilot_placement::PageSize;

use super::forbidden::POLICIES_EVERY;
use super::forbidden::addresses;
use super::forbidden::permission;
use crate::evidence::table::PageTable;
use crate::execution::migration_executor::Done;
use crate::execution::migration_executor::MigrationExecutor;
use crate::execution::progress::Progress;
use crate::execution::sharers::KernelMemory;
use crate::execution::sharers::MappedMemory;
use crate::execution::sharers::Sharers;
use crate::execution::sharers::Sharing;
use crate::system::targets::Targets;

/// What decides about a shared page.
pub(super) struct SharedPlaces<'a> {
    /// Uses of pages by all managed processes.
    table: &'a PageTable,
    /// The machine's nodes.
    ids: Vec<NodeId>,
    /// Whether pages move whose node the program has chosen.
    moves_bound: bool,
    /// Whether the orders undo others: pages go back wherever they are used.
    is_undo: bool,
}

impl SharedPlaces<'_> {
    /// On this machine, with these uses.
    pub fn of<'a>(table: &'a PageTable, machine: &Machine, moves_bound: bool, is_undo: bool) -> SharedPlaces<'a> {
        SharedPlaces { table, ids: machine.nodes().iter().map(|node| node.id).collect(), moves_bound, is_undo }
    }

    /// Carries out orders, and again those whose pages were refused because several processes map them, where they may be moved all the same.
    pub fn carry_out(
        &self,
        (executor, targets): (&mut MigrationExecutor, &mut Targets),
        orders: Vec<Order>,
        progress: &mut dyn Progress,
    ) -> Done {
        let mut done = executor.carry_out(orders, targets, progress);
        // Most decisions order no such page: then nobody has to be asked who maps it.
        if !done.not_permitted.is_empty() {
            self.move_shared((executor, targets), &mut KernelMemory::open(), &mut done, progress);
        }
        done
    }

    /// Carries out those of the orders in `done` again whose pages may be moved although several processes map them.
    fn move_shared(
        &self,
        (executor, targets): (&mut MigrationExecutor, &mut Targets),
        memory: &mut dyn MappedMemory,
        done: &mut Done,
        progress: &mut dyn Progress,
    ) {
        if !progress.goes_on() {
            return;
        }
        let mut sharers = Sharers::new(memory, targets.all.keys().copied().collect());
        let (mut positions, mut mappers_of) = (Vec::new(), BTreeMap::new());
        for position in std::mem::take(&mut done.not_permitted) {
            let Order::Migrate { page, to } = done.outcomes[position].action else { continue };
            let Some(pid) = targets.by_number(page.process).map(|managed| managed.target.pid) else { continue };
            if page.size != PageSize::Small {
                done.shared.unknown += 1;
                continue;
            }
            match sharers.of(pid, page.page) {
                Sharing::Unknown => done.shared.unknown += 1,
                Sharing::Foreign => done.shared.foreign += 1,
                Sharing::Managed(mappers) if !self.may_be_at(targets, &mappers, page, to) => done.shared.forbidden += 1,
                Sharing::Managed(mappers) if !self.is_place_of_all(targets, &mappers, page, to) => {
                    done.shared.wanted_elsewhere += 1;
                }
                Sharing::Managed(mappers) => {
                    positions.push(position);
                    mappers_of.insert((page.process, page.page), mappers);
                }
            }
        }
        if positions.is_empty() {
            return;
        }
        let orders = positions.iter().map(|position| done.outcomes[*position].action.clone()).collect();
        let again = executor.carry_out_shared(orders, targets, progress);
        note_homes(targets, &mappers_of, &again);
        done.take_in(&positions, again);
    }

    /// Whether a page may be on a node as far as each of the processes is concerned that map it.
    fn may_be_at(&self, targets: &mut Targets, mappers: &[Pid], page: PageKey, to: NodeIndex) -> bool {
        mappers.iter().all(|pid| {
            let Some(managed) = targets.all.get_mut(pid) else { return false };
            managed.numa.of(*pid, POLICIES_EVERY);
            permission(managed, addresses(&page), self.ids[to], self.moves_bound).is_ok()
        })
    }

    /// Whether all these processes together use a page from this node most, or it goes back there.
    fn is_place_of_all(&self, targets: &Targets, mappers: &[Pid], page: PageKey, to: NodeIndex) -> bool {
        if self.is_undo {
            return true;
        }
        let mut used: BTreeMap<NodeIndex, u32> = BTreeMap::new();
        for managed in mappers.iter().filter_map(|pid| targets.all.get(pid)) {
            let known = self.table.known(managed.page_id(page.page)).unwrap_or_default();
            known.users.iter().for_each(|(node, count)| *used.entry(*node).or_default() += u32::from(*count));
        }
        most_used(&used) == Some(to)
    }
}

/// The node that uses a page most; of several, the first.
fn most_used(used: &BTreeMap<NodeIndex, u32>) -> Option<NodeIndex> {
    used.iter().max_by_key(|(node, count)| (**count, std::cmp::Reverse(**node))).map(|(node, _)| *node)
}

/// All processes that map a page that has moved find it there.
fn note_homes(targets: &mut Targets, mappers_of: &BTreeMap<(u32, PageNumber), Vec<Pid>>, done: &Done) {
    for (number, page, _, to) in &done.moved {
        for pid in mappers_of.get(&(*number, *page)).into_iter().flatten() {
            if let Some(managed) = targets.all.get_mut(pid) {
                managed.homes.set(*page, *page + 1, *to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! This process, with memory that it may share with others.

    use numapilot_kernel::actuator::MoveOptions;
    use numapilot_kernel::actuator::PageOutcomes;
    use numapilot_placement::Outcome;
    use numapilot_placement::Refusal;

    use super::*;
    use crate::execution::progress::tests::Until;
    use crate::page_groups::SharedPages;

    /// Every page is mapped so often; `None`: that cannot be told.
    struct Mapped(Option<u64>);

    impl MappedMemory for Mapped {
        fn frame(&mut self, _: Pid, page: PageNumber) -> Option<u64> {
            Some(page.0)
        }

        fn mapped(&mut self, _: u64) -> Option<u64> {
            self.0
        }
    }

    /// What becomes of an order for a page of this process to node 0 that was refused. `used`: how often it was used from nodes 0 and 1.
    fn after(mapped: Option<u64>, used: [usize; 2], is_undo: bool) -> Done {
        let machine = Machine::live().unwrap();
        let mut targets = Targets::default();
        targets.add(Pid::own()).unwrap();
        targets.look(&machine);
        let managed = &targets.all[&Pid::own()];
        let memory = std::hint::black_box(vec![7_u8; 1 << 16]);
        let page = PageKey {
            process: managed.number(),
            page: PageNumber::of(memory.as_ptr() as u64) + 2,
            size: PageSize::Small,
        };
        let mut table = PageTable::new(2, 1000);
        for (node, times) in used.into_iter().enumerate() {
            (0..times).for_each(|_| _ = table.saw(managed.page_id(page.page), NodeIndex(node), NodeIndex(1)));
        }
        let action = Order::Migrate { page, to: NodeIndex(0) };
        let mut done = Done {
            outcomes: vec![Outcome { action, result: Err(Refusal::Unsupported) }],
            stayed: vec![(page.process, page.page)],
            not_permitted: vec![0],
            pages: PageOutcomes { not_permitted: 1, ..PageOutcomes::default() },
            ..Done::default()
        };
        let mut executor = MigrationExecutor::new(&machine, MoveOptions::default());
        let places = SharedPlaces::of(&table, &machine, true, is_undo);
        places.move_shared((&mut executor, &mut targets), &mut Mapped(mapped), &mut done, &mut Until::ever());
        assert_eq!(done.pages.total(), 1);
        done
    }

    #[test]
    fn a_page_stays_that_others_map_or_that_is_used_more_elsewhere() {
        let told = |foreign, wanted_elsewhere, unknown| SharedPages {
            foreign,
            wanted_elsewhere,
            unknown,
            ..SharedPages::default()
        };
        for (mapped, used, is_undo, shared) in [
            (Some(2), [5, 0], false, told(1, 0, 0)),
            (Some(2), [5, 0], true, told(1, 0, 0)),
            (None, [5, 0], false, told(0, 0, 1)),
            (Some(1), [5, 6], false, told(0, 1, 0)),
            (Some(1), [0, 0], false, told(0, 1, 0)),
        ] {
            let done = after(mapped, used, is_undo);
            assert_eq!((done.shared, done.pages.not_permitted), (shared, 1), "{mapped:?} {used:?} {is_undo}");
            assert_eq!(done.stayed.len(), 1);
        }
    }

    #[test]
    fn a_page_that_managed_processes_alone_map_is_tried_where_it_is_used_most_and_when_it_goes_back() {
        if numapilot_kernel::memory::policy(None).is_err() {
            return;
        }
        for (used, is_undo) in [([5, 4], false), ([0, 9], true)] {
            let done = after(Some(1), used, is_undo);
            assert_eq!((done.shared, done.pages.not_permitted), (SharedPages::default(), 0), "{done:?}");
            assert_ne!(done.outcomes[0].result, Err(Refusal::Unsupported), "{done:?}");
        }
    }

    #[test]
    fn the_node_that_all_use_most_is_the_first_of_those_that_are_used_as_much() {
        let used = |counts: [u32; 3]| (0..3).map(NodeIndex).zip(counts).collect::<BTreeMap<NodeIndex, u32>>();
        assert_eq!(most_used(&used([1, 3, 2])), Some(NodeIndex(1)));
        assert_eq!(most_used(&used([1, 3, 3])), Some(NodeIndex(1)));
        assert_eq!(most_used(&BTreeMap::new()), None);
    }
}
