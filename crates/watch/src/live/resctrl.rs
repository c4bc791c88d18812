//! Memory-bandwidth monitoring by resctrl (`Documentation/arch/x86/resctrl.rst`): bytes that the CPUs of each L3 cache read from memory, in total and from
//! their own node. Portable across Intel and AMD. It counts by *requester*, so it shows locality, not the load of controllers.

use numapilot_machine::CpuId;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;

use crate::figures::MetricValue;
use numapilot_host::Root;

const DATA: &str = "sys/fs/resctrl/mon_data";
/// Label of figures from this source.
const SOURCE: &str = "resctrl (mbm_local_bytes, mbm_total_bytes)";

/// The monitoring domain of one L3 cache.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Domain {
    folder: String,
    node: Option<NodeId>,
}

/// The domains of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resctrl {
    domains: Vec<Domain>,
    /// Why there are no domains.
    because: String,
}

/// Bytes since mounting: local and all, by domain; `None` where the hardware says "Unavailable".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResctrlReading(Vec<Option<(u64, u64)>>);

impl Resctrl {
    /// Finds the domains.
    #[must_use]
    pub fn find(root: &Root, machine: &Machine) -> Resctrl {
        let names = root.names(DATA).into_iter().filter(|name| name.starts_with("mon_L3_"));
        let domains: Vec<Domain> = names
            .filter(|name| root.has(&format!("{DATA}/{name}/mbm_total_bytes")))
            .map(|name| {
                let id = name["mon_L3_".len()..].parse().ok();
                Domain { node: id.and_then(|id| node_of_cache(root, machine, id)), folder: format!("{DATA}/{name}") }
            })
            .collect();
        let because = if !domains.is_empty() {
            String::new()
        } else if root.text("proc/cpuinfo").is_some_and(|text| text.contains("cqm_mbm_local")) {
            "resctrl is not mounted (`mount -t resctrl resctrl /sys/fs/resctrl`, as root)".to_owned()
        } else {
            "this processor offers no memory-bandwidth monitoring (resctrl)".to_owned()
        };
        Resctrl { domains, because }
    }

    /// Reads all domains.
    #[must_use]
    pub fn read(&self, root: &Root) -> ResctrlReading {
        let of = |domain: &Domain| {
            let local = root.number(&format!("{}/mbm_local_bytes", domain.folder))?;
            Some((local, root.number(&format!("{}/mbm_total_bytes", domain.folder))?))
        };
        ResctrlReading(self.domains.iter().map(of).collect())
    }

    /// Local access ratio between two readings, of all CPUs or of those of a node.
    #[must_use]
    pub fn local_share(&self, before: &ResctrlReading, now: &ResctrlReading, node: Option<NodeId>) -> MetricValue {
        if !self.because.is_empty() {
            return MetricValue::Missing(self.because.clone());
        }
        let (mut local, mut all) = (0, 0);
        for ((domain, before), now) in self.domains.iter().zip(&before.0).zip(&now.0) {
            let (Some(before), Some(now)) = (before, now) else { continue };
            if node.is_none() || domain.node == node {
                local += now.0.saturating_sub(before.0);
                all += now.1.saturating_sub(before.1);
            }
        }
        let share = (all > 0).then(|| local as f64 / all as f64);
        MetricValue::of(share, SOURCE, "resctrl saw no memory traffic in the interval")
    }
}

/// Node of the CPUs that share the L3 cache with this id.
fn node_of_cache(root: &Root, machine: &Machine, id: u64) -> Option<NodeId> {
    let of = |cpu: CpuId| root.number(&format!("sys/devices/system/cpu/cpu{cpu}/cache/index3/id"));
    machine.cpus().iter().find(|cpu| cpu.online && of(cpu.id) == Some(id)).and_then(|cpu| cpu.node)
}

#[cfg(test)]
mod tests {
    //! A made-up tree with two domains, and machines without.

    use super::*;
    use crate::fixture::Tree;

    fn put(tree: &Tree, domain: u32, local: &str, all: &str) {
        tree.put(&format!("{DATA}/mon_L3_0{domain}/mbm_local_bytes"), local);
        tree.put(&format!("{DATA}/mon_L3_0{domain}/mbm_total_bytes"), all);
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
        put(&tree, 1, "Unavailable", "Unavailable");
        assert_eq!(resctrl.local_share(&before, &resctrl.read(&root), None).value(), Some(0.75));
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
