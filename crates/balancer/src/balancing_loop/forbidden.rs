//! Orders that are not carried out because something above the loop decides: the process's cpuset forbids the node, or the program has set a memory policy for
//! the page, or it is a hugetlb page. The policy gets the refusal as the order's outcome; users are told once.

use std::collections::BTreeSet;
use std::time::Duration;

use numapilot_host::VirtAddr;
use numapilot_kernel::actuator::NodeRefusal;
use numapilot_machine::NodeId;
use numapilot_placement::Action as Order;
use numapilot_placement::Outcome;
use numapilot_placement::PageKey;
use numapilot_placement::Refusal;

use super::Balancer;
use crate::control_port::ControlPort;
use crate::system::targets::ManagedProcess;

/// Least age of a reading of a process's memory policies that is read anew before its pages move.
pub(super) const POLICIES_EVERY: Duration = Duration::from_secs(5);

impl Balancer {
    /// Removes orders for pages to forbidden nodes, and for pages whose node the program has chosen. The policies are read for this, if the last reading is too
    /// old; the nodes are read every few seconds ([`ManagedProcess::look_at_nodes`]).
    pub(super) fn without_forbidden(&mut self, orders: Vec<Order>, control_port: &mut dyn ControlPort) -> Vec<Order> {
        let (kept, refused) = self.split_forbidden(orders, control_port);
        let outcome = |action| Outcome { action, result: Err(Refusal::Unsupported) };
        self.outcomes.extend(refused.into_iter().map(outcome));
        kept
    }

    /// Splits orders, those of a policy or those that undo them, into the permitted and the others, of which users are told.
    pub(super) fn split_forbidden(
        &mut self,
        orders: Vec<Order>,
        control_port: &mut dyn ControlPort,
    ) -> (Vec<Order>, Vec<Order>) {
        let moved: BTreeSet<u32> = orders.iter().filter_map(process_of).collect();
        let mut troubles = Vec::new();
        for managed in self.targets.all.values_mut().filter(|managed| moved.contains(&managed.number())) {
            managed.numa.of(managed.target.pid, POLICIES_EVERY);
            if !self.options.moves_bound {
                troubles.extend(managed.numa.news(managed.target.pid, &managed.target.name));
                troubles.extend(managed.numa.why_unread(managed.target.pid));
            }
        }
        let ids: Vec<NodeId> = self.machine.nodes().iter().map(|node| node.id).collect();
        let split = orders.into_iter().partition(|order| {
            let Order::Migrate { page, to } = order else { return true };
            let Some(managed) = self.targets.by_number(page.process) else { return true };
            let may = permission(managed, addresses(page), ids[*to], self.options.moves_bound);
            troubles.extend(may.as_ref().err().cloned().flatten());
            may.is_ok()
        });
        troubles.sort_unstable();
        troubles.dedup();
        troubles.into_iter().for_each(|trouble| self.trouble(trouble, control_port));
        split
    }
}

/// The process whose page an order moves, by the number that policies use.
pub(super) fn process_of(order: &Order) -> Option<u32> {
    if let Order::Migrate { page, .. } = order { Some(page.process) } else { None }
}

/// Start and end of what an order moves. The large page of an address may begin before the mapping that has large pages, and end behind it: it may then be
/// small pages, of several mappings.
pub(super) fn addresses(page: &PageKey) -> (VirtAddr, VirtAddr) {
    (VirtAddr::of_page(page.page), VirtAddr(page.page.address() + page.size.bytes()))
}

/// Whether what is at these addresses may be moved to a node. The error is what is to be told, if that is not told for the whole process.
pub(super) fn permission(
    managed: &ManagedProcess,
    (start, end): (VirtAddr, VirtAddr),
    to: NodeId,
    moves_bound: bool,
) -> Result<(), Option<String>> {
    if managed.is_forbidden(to) {
        return Err(Some(NodeRefusal::Forbidden.error(managed.target.pid, to).to_string()));
    }
    if managed.numa.last().has_hugetlb(start, end) {
        let (pid, name) = (managed.target.pid, &managed.target.name);
        let why = "each would move as a whole, and a page of 1 GiB stops its users for too long";
        return Err(Some(format!("process {pid} ({name}): its hugetlb pages stay in place: {why}")));
    }
    let stays = !moves_bound && (managed.numa.is_unread() || managed.numa.last().has_chosen(start, end));
    if stays { Err(None) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    //! This process, with a cpuset made up and a policy of its own.

    use numapilot_host::PageNumber;
    use numapilot_host::Pid;
    use numapilot_kernel::numa_memory::NumaMemory;
    use numapilot_placement::PageSize;

    use super::*;
    use crate::system::targets::Targets;

    /// The addresses of a small page.
    fn small(address: u64) -> (VirtAddr, VirtAddr) {
        addresses(&PageKey { process: 0, page: PageNumber::of(address), size: PageSize::Small })
    }

    #[test]
    fn a_node_that_the_cpuset_forbids_is_refused_with_the_reason_until_it_allows_it() {
        let pid = Pid::own();
        let mut targets = Targets::default();
        targets.add(pid).unwrap();
        let managed = targets.all.get_mut(&pid).unwrap();
        assert_eq!(
            permission(managed, small(0x1000), NodeId(3), false),
            Ok(()),
            "nothing is known yet: the kernel decides"
        );
        managed.allowed_nodes = Some(vec![NodeId(0), NodeId(1)]);
        let why = permission(managed, small(0x1000), NodeId(3), false).unwrap_err().unwrap();
        assert!(why.contains(&format!("process {pid}")) && why.contains("node 3") && why.contains("cpuset"), "{why}");
        assert_eq!(permission(managed, small(0x1000), NodeId(1), false), Ok(()));
        // The cpuset of this process, as it is now.
        managed.look_at_nodes();
        if let Some(first) = managed.allowed_nodes.as_ref().and_then(|allowed| allowed.first().copied()) {
            assert_eq!(permission(managed, small(0x1000), first, false), Ok(()));
        }
    }

    /// Samples of the processor showed their uses, and each counted as 4 KiB of the rate.
    #[test]
    fn hugetlb_pages_stay_whatever_is_asked() {
        let pid = Pid::own();
        let mut targets = Targets::default();
        targets.add(pid).unwrap();
        let managed = targets.all.get_mut(&pid).unwrap();
        let text = b"7f0040000000 default huge anon=1 dirty=1 N1=1 kernelpagesize_kB=1048576\n";
        let maps = b"7f0040000000-7f0080000000 rw-p 00000000 00:0f 42 /anon_hugepage (deleted)\n";
        managed.numa = NumaMemory::of_texts(text, maps).into();
        for moves_bound in [false, true] {
            let why = permission(managed, small(0x7f00_4000_3000), NodeId(0), moves_bound).unwrap_err().unwrap();
            assert!(why.contains("hugetlb"), "{why}");
            assert_eq!(permission(managed, small(0x7f00_8000_0000), NodeId(0), moves_bound), Ok(()));
        }
    }

    #[test]
    fn pages_whose_node_the_program_has_chosen_stay() {
        let pid = Pid::own();
        let mut targets = Targets::default();
        targets.add(pid).unwrap();
        let managed = targets.all.get_mut(&pid).unwrap();
        let text = b"7f0000010000 bind:0 anon=3 N0=3 kernelpagesize_kB=4\n";
        let maps = b"7f0000010000-7f0000020000 rw-p 00000000 00:00 0\n";
        managed.numa = NumaMemory::of_texts(text, maps).into();
        assert_eq!(permission(managed, small(0x7f00_0001_2000), NodeId(1), false), Err(None));
        assert_eq!(permission(managed, small(0x7f00_0001_2000), NodeId(1), true), Ok(()), "with --bound-memory");
        assert_eq!(permission(managed, small(0x7f00_0002_0000), NodeId(1), false), Ok(()));
        assert_eq!(managed.numa.chosen_bytes(), 3 * 4096);
        // Its first page was looked at alone: what a program had bound beside memory with large pages went with that.
        let large = PageKey { process: 0, page: PageNumber::of(0x7f00_0000_0000), size: PageSize::Large };
        assert_eq!(permission(managed, addresses(&large), NodeId(1), false), Err(None));
        assert_eq!(permission(managed, small(0x7f00_0000_0000), NodeId(1), false), Ok(()));
    }
}
