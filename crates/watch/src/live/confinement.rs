//! Restrictions by a container, a cpuset or an affinity: sysfs shows the whole machine, of which this process may use only a part. The figures are those of the
//! whole machine, which a note states.

use numapilot_machine::Machine;
use numapilot_machine::parse_cpu_list;

use numapilot_host::Mounts;
use numapilot_host::Root;
use numapilot_host::TaskStatus;

/// What this process may use, as a sentence; `None`: everything, or not known.
pub fn words(root: &Root, machine: &Machine) -> Option<String> {
    let mut text = Vec::new();
    let status = TaskStatus::read_own(root, &mut text)?;
    let (cpus_text, nodes_text) = (status.allowed_cpus()?, status.allowed_nodes()?);
    let (cpus, nodes) = (parse_cpu_list(cpus_text).ok()?, parse_cpu_list(nodes_text).ok()?);
    let mut online = machine.cpus().iter().filter(|cpu| cpu.online).map(|cpu| cpu.id.0);
    let mut with_memory = machine.nodes().iter().filter(|node| node.has_memory()).map(|node| u32::from(node.id.0));
    let mut parts = Vec::new();
    if online.any(|cpu| !cpus.contains(&cpu)) {
        parts.push(format!("CPU{} {cpus_text}", if cpus.len() == 1 { "" } else { "s" }));
    }
    if with_memory.any(|node| !nodes.contains(&node)) {
        parts.push(format!("memory of node{} {nodes_text}", if nodes.len() == 1 { "" } else { "s" }));
    }
    let what = parts.join(" and ");
    (!parts.is_empty()).then(|| {
        format!("This process may use {what} only (cpuset or affinity); the figures are of the whole machine.")
    })
}

/// Why it is not known how busy the CPUs of nodes are; `None`: `/proc/stat` is the kernel's. A container's (lxcfs) has CPUs that are numbered anew, so they are
/// those of no node.
pub fn made_up_cpu_times(mounts: &Mounts) -> Option<String> {
    mounts
        .has_made_up_cpu_times()
        .then(|| "in this container /proc/stat is made up (by lxcfs), with CPUs that are numbered anew".to_owned())
}

/// Why it is not known how many CPUs of nodes are online; `None`: the list of them is the kernel's. By a container's ([`Mounts::has_made_up_cpus`])
/// nodes seem to have few, or none.
pub fn made_up_cpus(mounts: &Mounts) -> Option<String> {
    mounts.has_made_up_cpus().then(|| {
        "in this container the list of CPUs that are online (/sys/devices/system/cpu/online) is made up (by lxcfs)"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn what_is_not_its_own_is_said() {
        let tree = Tree::symmetric(2, 4, 4096);
        let of = |cpus: &str, nodes: &str| {
            tree.put("proc/self/status", &format!("Name:\tx\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{nodes}"));
            words(&tree.root(), &tree.machine())
        };
        assert_eq!(of("0-7", "0-1"), None);
        assert_eq!(of("0-255", "0-63"), None, "kernels name what could be there");
        assert!(of("2", "0-1").is_some_and(|text| text.contains("CPU 2 only")));
        assert!(of("4-7", "1").is_some_and(|text| text.contains("CPUs 4-7 and memory of node 1 only")));
        tree.remove("proc/self");
        assert_eq!(words(&tree.root(), &tree.machine()), None);
    }
}
