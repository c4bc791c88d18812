//! The CPUs and nodes that the cpuset of a cgroup (version 2) leaves its processes. `Documentation/admin-guide/cgroup-v2.rst`, "Cpuset".

use std::path::Path;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::TaskStatus;
use numapilot_host::cgroups;
use numapilot_machine::CpuId;
use numapilot_machine::NodeId;
use numapilot_machine::parse_cpu_list;

use crate::affinity::CpuMask;

/// What a cgroup's cpuset leaves its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpuset {
    /// `cpuset.cpus` as it is written there; empty: all of its parent's.
    pub cpus: String,
    /// Text of `cpuset.mems`; empty if it inherits its parent's.
    pub mems: String,
    /// Whether its administrator has set its CPUs apart (`cpuset.cpus.partition`: `root` or `isolated`). Another value of `cpuset.cpus` would change what
    /// others may use, or make the partition invalid.
    pub is_partition: bool,
    /// CPUs that its tasks may run on (`cpuset.cpus.effective`).
    pub effective_cpus: CpuMask,
    /// Nodes whose memory its tasks may use, ascending (`cpuset.mems.effective`).
    pub effective_mems: Vec<NodeId>,
}

/// A cgroup's cpuset; `None`: it has none of its own (the controller is not enabled there, or it is the root).
#[must_use]
pub fn cpuset(folder: &Path) -> Option<Cpuset> {
    let texts = cgroups::cpuset(folder)?;
    let effective_cpus = parse_cpu_list(&texts.effective_cpus).ok()?.into_iter().map(CpuId).collect();
    let effective_mems = nodes(&texts.effective_mems)?;
    let cgroups::CpusetTexts { cpus, mems, is_partition, .. } = texts;
    Some(Cpuset { cpus, mems, is_partition, effective_cpus, effective_mems })
}

fn nodes(list: &str) -> Option<Vec<NodeId>> {
    let nodes = parse_cpu_list(list).ok()?;
    Some(nodes.into_iter().filter_map(|node| u16::try_from(node).ok().map(NodeId)).collect())
}

/// The cpuset that binds a cgroup's processes: its own, or that of the nearest cgroup above that has one; `None`: none has, so all is allowed.
#[must_use]
pub fn nearest_cpuset(folder: &Path) -> Option<Cpuset> {
    cgroups::with_outer(folder).find_map(cpuset)
}

/// Nodes that a process may have memory on (`Mems_allowed_list`), ascending; `None`: it is gone.
#[must_use]
pub fn allowed_nodes(root: &Path, pid: Pid) -> Option<Vec<NodeId>> {
    let mut text = Vec::new();
    nodes(TaskStatus::read(&Root::new(root), pid, &mut text)?.allowed_nodes()?)
}

#[cfg(test)]
mod tests {
    //! A made tree.

    use std::fs;

    use super::*;

    #[test]
    fn what_a_cgroup_leaves_its_processes_is_read() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        put("proc/7/status", "Name:\tx\nMems_allowed_list:\t0-1,3\n");
        let folder = root.path().join("jobs/a");
        put("jobs/a/cgroup.procs", "9\n7\n");
        assert_eq!(cpuset(&folder), None);
        for (name, text) in [("cpus", ""), ("mems", "0-1"), ("cpus.effective", "0-3"), ("mems.effective", "0-1")] {
            put(&format!("jobs/a/cpuset.{name}"), &format!("{text}\n"));
        }
        let found = cpuset(&folder).unwrap();
        assert_eq!((found.cpus.as_str(), found.mems.as_str(), found.effective_cpus.cpus().len()), ("", "0-1", 4));
        assert_eq!((&found.effective_mems[..], found.is_partition), (&[NodeId(0), NodeId(1)][..], false));
        put("jobs/a/inner/cgroup.procs", "");
        assert_eq!(nearest_cpuset(&folder.join("inner")), Some(found), "its parent's binds it");
        put("jobs/cgroup.procs", "");
        assert_eq!(nearest_cpuset(folder.parent().unwrap()), None);
        put("jobs/a/cpuset.mems.effective", "many\n");
        assert_eq!(cpuset(&folder), None);
        assert_eq!(allowed_nodes(root.path(), Pid(7)).unwrap(), [NodeId(0), NodeId(1), NodeId(3)]);
    }
}
