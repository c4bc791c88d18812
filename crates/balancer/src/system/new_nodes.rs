//! Memory nodes that came online after the start, as those of CXL devices do: the machine is read once, and all tables have its nodes.

use numapilot_host::Root;
use numapilot_kernel::online_nodes::OnlineNodes;
use numapilot_machine::Machine;

/// What nodes came online since `machine` was read, and what that means, as a clause; `None`: none did.
#[must_use]
pub fn told(root: &Root, machine: &Machine) -> Option<String> {
    let new = OnlineNodes::read(root).came_since(machine);
    (!new.is_empty()).then(|| {
        format!("nodes {new} came online after the start: nothing is moved to or from their memory until numapilot is started again")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_came_after_the_start_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let machine = Machine::load("xeon-2s").unwrap();
        assert_eq!(told(&root, &machine), None, "a kernel without nodes");
        std::fs::create_dir_all(folder.path().join("sys/devices/system/node")).unwrap();
        let with = |online: &str| {
            std::fs::write(folder.path().join("sys/devices/system/node/online"), format!("{online}\n")).unwrap();
            told(&root, &machine)
        };
        assert_eq!((with("0-1"), with("0")), (None, None));
        assert!(with("0-1,4-5").is_some_and(|what| what.starts_with("nodes 4-5 came online")));
    }
}
