//! Memory nodes that come online and go offline while the machine runs, as those of CXL devices do.

use numapilot_host::Root;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_machine::format_cpu_list;
use numapilot_machine::parse_cpu_list;

/// Numbers of the nodes that are online at one moment, ascending; none: this kernel shows no nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnlineNodes(Vec<u32>);

impl OnlineNodes {
    /// Reads them (`Documentation/ABI/stable/sysfs-devices-node`).
    #[must_use]
    pub fn read(root: &Root) -> OnlineNodes {
        let text = root.text("sys/devices/system/node/online").unwrap_or_default();
        OnlineNodes(parse_cpu_list(&text).unwrap_or_default())
    }

    /// Whether a node is offline: the kernel shows nodes, and this is none of them.
    #[must_use]
    pub fn lacks(&self, node: NodeId) -> bool {
        !self.0.is_empty() && !self.0.contains(&u32::from(node.0))
    }

    /// The nodes that have come online since `machine` was read, as a list (`4-5`); empty: none have.
    #[must_use]
    pub fn came_since(&self, machine: &Machine) -> String {
        let is_known = |id: &u32| machine.nodes().iter().any(|node| u32::from(node.id.0) == *id);
        format_cpu_list(self.0.iter().copied().filter(|id| !is_known(id)))
    }

    /// The nodes that have gone offline since `machine` was read, as a list; empty: none have.
    #[must_use]
    pub fn went_since(&self, machine: &Machine) -> String {
        let gone = machine.nodes().iter().map(|node| node.id).filter(|node| self.lacks(*node));
        format_cpu_list(gone.map(|node| u32::from(node.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_came_and_went_since_the_machine_was_read_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let machine = Machine::load("xeon-2s").unwrap();
        let listed = || {
            let online = OnlineNodes::read(&root);
            (online.came_since(&machine), online.went_since(&machine))
        };
        let lists = |came: &str, went: &str| (came.to_owned(), went.to_owned());
        assert_eq!(listed(), lists("", ""), "a kernel without nodes");
        std::fs::create_dir_all(folder.path().join("sys/devices/system/node")).unwrap();
        for (online, came, went) in [("0-1", "", ""), ("0", "", "1"), ("0-1,4-5", "4-5", ""), ("1,8", "8", "0")] {
            std::fs::write(folder.path().join("sys/devices/system/node/online"), format!("{online}\n")).unwrap();
            assert_eq!(listed(), lists(came, went), "{online}");
        }
    }
}
