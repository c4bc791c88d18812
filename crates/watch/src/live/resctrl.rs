//! Memory-bandwidth monitoring by resctrl (`Documentation/arch/x86/resctrl.rst`): bytes that the CPUs of each L3 cache read from memory, in total and from
//! their own node. Portable across Intel and AMD. It counts by *requester*, so it shows locality, not the load of controllers.
//!
//! The files of the root are those of the default group alone: tasks that container runtimes, libvirt or an administrator put into control groups of their own
//! (one folder each) are counted there. The machine is the sum of all of them. Monitoring groups (`mon_groups`) are within their control group's counts.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use numapilot_machine::Machine;
use numapilot_machine::NodeId;

use crate::figures::MetricValue;
use numapilot_host::Root;
use numapilot_host::cpuinfo;

const MOUNT: &str = "sys/fs/resctrl";
/// Folders in the mount point that are no control groups.
const NO_GROUPS: [&str; 3] = ["info", "mon_data", "mon_groups"];
/// Label of figures from this source.
const SOURCE: &str = "resctrl (mbm_local_bytes, mbm_total_bytes)";

/// The monitoring domain of one L3 cache.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Domain {
    /// Name of its folder in each group's `mon_data`.
    name: String,
    /// The node of all CPUs that share the cache; `None`: they belong to several (sub-NUMA clustering), or to none.
    node: Option<NodeId>,
}

/// The domains of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resctrl {
    domains: Vec<Domain>,
    /// Why there are no domains.
    because: String,
}

/// Bytes since a group was made, local and all, by domain; `None` where the hardware says "Unavailable", or "Unassigned" (it has fewer counters than groups),
/// or counts no local ones.
type Counts = Vec<Option<(u64, u64)>>;

/// Counts of each control group, by its folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResctrlReading(BTreeMap<String, Counts>);

impl Resctrl {
    /// Finds the domains.
    #[must_use]
    pub fn find(root: &Root, machine: &Machine) -> Resctrl {
        let data = format!("{MOUNT}/mon_data");
        let names = root.names(&data).into_iter().filter(|name| name.starts_with("mon_L3_"));
        let domains: Vec<Domain> = names
            .filter(|name| root.has(&format!("{data}/{name}/mbm_total_bytes")))
            .map(|name| {
                let id = name["mon_L3_".len()..].parse().ok();
                Domain { node: id.and_then(|id| node_of_cache(root, machine, id)), name }
            })
            .collect();
        let because = if !domains.is_empty() {
            String::new()
        } else if cpuinfo::read(root).contains("cqm_mbm_local") {
            "resctrl is not mounted (`mount -t resctrl resctrl /sys/fs/resctrl`, as root)".to_owned()
        } else {
            "this processor offers no memory-bandwidth monitoring (resctrl)".to_owned()
        };
        Resctrl { domains, because }
    }

    /// Reads all domains of all control groups that there are now; the hardware has room for a few.
    #[must_use]
    pub fn read(&self, root: &Root) -> ResctrlReading {
        if self.domains.is_empty() {
            return ResctrlReading::default();
        }
        let is_group = |name: &String| !NO_GROUPS.contains(&name.as_str());
        let named = root.names(MOUNT).into_iter().filter(is_group).map(|name| format!("{MOUNT}/{name}"));
        let groups = std::iter::once(MOUNT.to_owned()).chain(named);
        let of_group = |group: String| {
            let of = |domain: &Domain| {
                let folder = format!("{group}/mon_data/{}", domain.name);
                let local = root.number(&format!("{folder}/mbm_local_bytes"))?;
                Some((local, root.number(&format!("{folder}/mbm_total_bytes"))?))
            };
            let has_data = root.has(&format!("{group}/mon_data"));
            has_data.then(|| (group.clone(), self.domains.iter().map(of).collect()))
        };
        ResctrlReading(groups.filter_map(of_group).collect())
    }

    /// Local access ratio between two readings, of all CPUs or of those of a node: an estimate where a group came, went or could not be read meanwhile.
    #[must_use]
    pub fn local_share(&self, before: &ResctrlReading, now: &ResctrlReading, node: Option<NodeId>) -> MetricValue {
        if !self.because.is_empty() {
            return MetricValue::Missing(self.because.clone());
        }
        if node.is_some() && !self.domains.iter().any(|domain| domain.node == node) {
            return MetricValue::Missing("resctrl counts by L3 cache, and no cache is this node's alone".to_owned());
        }
        let (mut local, mut all, mut is_whole, mut is_counted) = (0, 0, before.0.keys().eq(now.0.keys()), false);
        for (group, now) in &now.0 {
            let Some(before) = before.0.get(group) else { continue };
            for ((domain, before), now) in self.domains.iter().zip(before).zip(now) {
                if node.is_some() && domain.node != node {
                    continue;
                }
                let (Some(before), Some(now)) = (before, now) else {
                    is_whole = false;
                    continue;
                };
                is_counted = true;
                local += now.0.saturating_sub(before.0);
                all += now.1.saturating_sub(before.1);
            }
        }
        // The two counts are read one after the other, so of nearly all that is local there may be more than there is of all.
        let share = (local as f64 / all as f64).min(1.0);
        match (all > 0, is_whole) {
            (true, true) => MetricValue::of(Some(share), SOURCE, ""),
            (true, false) => MetricValue::estimate(share, SOURCE),
            (false, _) if !is_counted => MetricValue::Missing(
                "resctrl has no counts of local traffic here, or none for now (\"Unavailable\", \"Unassigned\")"
                    .to_owned(),
            ),
            (false, _) => MetricValue::Missing("resctrl saw no memory traffic in the interval".to_owned()),
        }
    }
}

/// Node of all the CPUs that share the L3 cache with this id, if it is one.
fn node_of_cache(root: &Root, machine: &Machine, id: u64) -> Option<NodeId> {
    let of_cache = machine.cpus().iter().filter(|cpu| {
        cpu.online && root.number(&format!("sys/devices/system/cpu/cpu{}/cache/index3/id", cpu.id)) == Some(id)
    });
    let nodes: BTreeSet<Option<NodeId>> = of_cache.map(|cpu| cpu.node).collect();
    if nodes.len() == 1 { nodes.into_iter().next().flatten() } else { None }
}

#[cfg(test)]
mod tests {
    //! A made-up tree with two domains, and machines without.

    use super::*;
    use crate::fixture::Tree;

    fn put_in(tree: &Tree, group: &str, domain: u32, local: &str, all: &str) {
        tree.put(&format!("{MOUNT}/{group}mon_data/mon_L3_0{domain}/mbm_local_bytes"), local);
        tree.put(&format!("{MOUNT}/{group}mon_data/mon_L3_0{domain}/mbm_total_bytes"), all);
    }

    fn put(tree: &Tree, domain: u32, local: &str, all: &str) {
        put_in(tree, "", domain, local, all);
    }

    #[test]
    fn locality_is_told_by_node_and_in_all() {
        let tree = Tree::symmetric(2, 1, 4096);
        tree.put("sys/devices/system/cpu/cpu0/cache/index3/id", "0");
        tree.put("sys/devices/system/cpu/cpu1/cache/index3/id", "1");
        put(&tree, 0, "1000", "1000");
        put(&tree, 1, "500", "900");
        let (root, machine) = (tree.root(), tree.machine());
        let resctrl = Resctrl::find(&root, &machine);
        let before = resctrl.read(&root);
        put(&tree, 0, "1300", "1400");
        put(&tree, 1, "600", "1500");
        let now = resctrl.read(&root);
        let share = |node: Option<u16>| resctrl.local_share(&before, &now, node.map(NodeId)).value();
        assert_eq!((share(None), share(Some(0)), share(Some(1))), (Some(0.4), Some(0.75), Some(100.0 / 600.0)));
        put(&tree, 0, "1401", "1400");
        assert_eq!(resctrl.local_share(&before, &resctrl.read(&root), Some(NodeId(0))).value(), Some(1.0));
        put(&tree, 0, "1300", "1400");
        put(&tree, 1, "Unavailable", "Unavailable");
        assert_eq!(resctrl.local_share(&before, &resctrl.read(&root), None).value(), Some(0.75));
    }

    #[test]
    fn the_machine_is_the_sum_of_its_control_groups() {
        let tree = Tree::symmetric(1, 1, 4096);
        put(&tree, 0, "0", "0");
        put_in(&tree, "guaranteed/", 0, "0", "0");
        // Within the counts of their control groups; and a folder that is no group.
        put_in(&tree, "mon_groups/one/", 0, "0", "0");
        put_in(&tree, "guaranteed/mon_groups/two/", 0, "0", "0");
        tree.put(&format!("{MOUNT}/info/L3_MON/num_rmids"), "256");
        let root = tree.root();
        let resctrl = Resctrl::find(&root, &tree.machine());
        let before = resctrl.read(&root);
        put(&tree, 0, "97", "100");
        put_in(&tree, "guaranteed/", 0, "60", "100");
        put_in(&tree, "mon_groups/one/", 0, "90", "90");
        put_in(&tree, "guaranteed/mon_groups/two/", 0, "5", "50");
        assert_eq!(
            resctrl.local_share(&before, &resctrl.read(&root), None),
            MetricValue::of(Some(0.785), SOURCE, ""),
            "97 of 100 and 60 of 100"
        );
        // A group that came meanwhile: what it did before is not known.
        put_in(&tree, "burstable/", 0, "7", "1000");
        assert_eq!(resctrl.local_share(&before, &resctrl.read(&root), None), MetricValue::estimate(0.785, SOURCE));
    }

    /// It was said to have seen no memory traffic.
    #[test]
    fn what_the_hardware_does_not_count_is_not_taken_for_no_traffic() {
        let tree = Tree::symmetric(1, 1, 4096);
        put(&tree, 0, "Unassigned", "Unassigned");
        let root = tree.root();
        let resctrl = Resctrl::find(&root, &tree.machine());
        let why = |reading: &ResctrlReading| match resctrl.local_share(reading, reading, None) {
            MetricValue::Missing(why) => why,
            value => panic!("{value:?}"),
        };
        assert!(why(&resctrl.read(&root)).contains("no counts of local traffic"));
        put(&tree, 0, "5", "7");
        assert!(why(&resctrl.read(&root)).contains("saw no memory traffic"));
        tree.remove(&format!("{MOUNT}/mon_data/mon_L3_00/mbm_local_bytes"));
        assert!(why(&resctrl.read(&root)).contains("no counts of local traffic"));
    }

    #[test]
    fn a_cache_of_two_nodes_is_neither_ones() {
        let tree = Tree::symmetric(2, 1, 4096);
        for cpu in [0, 1] {
            tree.put(&format!("sys/devices/system/cpu/cpu{cpu}/cache/index3/id"), "0");
        }
        put(&tree, 0, "0", "0");
        let root = tree.root();
        let resctrl = Resctrl::find(&root, &tree.machine());
        let before = resctrl.read(&root);
        put(&tree, 0, "1", "2");
        let now = resctrl.read(&root);
        assert_eq!(resctrl.local_share(&before, &now, None).value(), Some(0.5));
        for node in [0, 1] {
            assert_eq!(resctrl.local_share(&before, &now, Some(NodeId(node))).value(), None);
        }
    }

    #[test]
    fn its_absence_has_a_reason() {
        let tree = Tree::symmetric(1, 1, 4096);
        let why = |tree: &Tree| {
            let resctrl = Resctrl::find(&tree.root(), &tree.machine());
            let empty = ResctrlReading::default();
            match resctrl.local_share(&empty, &empty, None) {
                MetricValue::Missing(why) => why,
                MetricValue::Value { .. } => panic!("a value of nothing"),
            }
        };
        assert!(why(&tree).contains("offers no"));
        tree.put("proc/cpuinfo", "flags : fpu cqm_mbm_total cqm_mbm_local");
        assert!(why(&tree).contains("mount -t resctrl"));
    }
}
