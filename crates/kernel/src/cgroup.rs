//! The cgroup (version 2) of a process, and the CPUs and nodes that its cpuset allows. `Documentation/admin-guide/cgroup-v2.rst`, "Cpuset".

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::TaskStatus;
use numapilot_machine::NodeId;
use numapilot_machine::parse_cpu_list;

use crate::affinity::CpuMask;

/// Where version 2 is mounted: alone, or beside version 1.
const MOUNTS: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];

/// The folder of a process's cgroup; `None`: the process is gone, or there is no hierarchy of version 2.
#[must_use]
pub fn of_process(root: &Path, pid: Pid) -> Option<PathBuf> {
    let mount = MOUNTS.iter().map(|mount| root.join(mount)).find(|mount| mount.join("cgroup.controllers").exists())?;
    let text = fs::read_to_string(root.join(format!("proc/{pid}/cgroup"))).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // A process outside of this namespace's root has a path that leads out of it.
    (!path.starts_with("..")).then(|| mount.join(path))
}

/// Processes of a cgroup, ascending; empty where it is gone.
#[must_use]
pub fn members(folder: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let mut pids: Vec<Pid> = text.lines().filter_map(|line| line.parse().ok()).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

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
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
    let (cpus, mems) = (read("cpuset.cpus")?, read("cpuset.mems")?);
    let is_partition = read("cpuset.cpus.partition").is_some_and(|kind| !kind.is_empty() && kind != "member");
    let numbers = |name: &str| parse_cpu_list(&read(name)?).ok();
    let effective_cpus = numbers("cpuset.cpus.effective")?.into_iter().map(numapilot_machine::CpuId).collect();
    let effective_mems = numbers("cpuset.mems.effective")?;
    let effective_mems = effective_mems.into_iter().filter_map(|node| u16::try_from(node).ok().map(NodeId)).collect();
    Some(Cpuset { cpus, mems, is_partition, effective_cpus, effective_mems })
}

/// The cpuset that binds a cgroup's processes: its own, or that of the nearest cgroup above that has one; `None`: none has, so all is allowed.
#[must_use]
pub fn nearest_cpuset(folder: &Path) -> Option<Cpuset> {
    folder.ancestors().take_while(|folder| folder.join("cgroup.procs").exists()).find_map(cpuset)
}

/// Whether there are cgroups within this one.
#[must_use]
pub fn has_children(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
}

/// Nodes that a process may have memory on (`Mems_allowed_list`), ascending; `None`: it is gone.
#[must_use]
pub fn allowed_nodes(root: &Path, pid: Pid) -> Option<Vec<NodeId>> {
    let mut text = Vec::new();
    let list = TaskStatus::read(&Root::new(root), pid, &mut text)?.allowed_nodes()?;
    let nodes = parse_cpu_list(list).ok()?;
    Some(nodes.into_iter().filter_map(|node| u16::try_from(node).ok().map(NodeId)).collect())
}

#[cfg(test)]
mod tests {
    //! A made tree.

    use super::*;

    #[test]
    fn a_processes_cgroup_and_what_it_leaves_are_read() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        put("proc/7/cgroup", "0::/jobs/a\n");
        put("proc/8/cgroup", "0::/../out\n");
        put("proc/7/status", "Name:\tx\nMems_allowed_list:\t0-1,3\n");
        assert_eq!(of_process(root.path(), Pid(7)), None, "no hierarchy");
        put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n");
        let folder = of_process(root.path(), Pid(7)).unwrap();
        assert_eq!(folder, root.path().join("sys/fs/cgroup/jobs/a"));
        assert_eq!((of_process(root.path(), Pid(8)), of_process(root.path(), Pid(9))), (None, None));
        put("sys/fs/cgroup/jobs/a/cgroup.procs", "9\n7\n9\n");
        assert_eq!((members(&folder), cpuset(&folder)), (vec![Pid(7), Pid(9)], None));
        for (name, text) in [("cpus", ""), ("mems", "0-1"), ("cpus.effective", "0-3"), ("mems.effective", "0-1")] {
            put(&format!("sys/fs/cgroup/jobs/a/cpuset.{name}"), &format!("{text}\n"));
        }
        let found = cpuset(&folder).unwrap();
        assert_eq!((found.cpus.as_str(), found.mems.as_str(), found.effective_cpus.cpus().len()), ("", "0-1", 4));
        assert_eq!(found.effective_mems, [NodeId(0), NodeId(1)]);
        for (kind, is_partition) in [("member", false), ("root", true), ("isolated", true), ("root invalid (x)", true)]
        {
            put("sys/fs/cgroup/jobs/a/cpuset.cpus.partition", &format!("{kind}\n"));
            assert_eq!(cpuset(&folder).unwrap().is_partition, is_partition, "{kind}");
        }
        put("sys/fs/cgroup/jobs/a/cpuset.cpus.partition", "member\n");
        put("sys/fs/cgroup/jobs/a/inner/cgroup.procs", "");
        assert_eq!(nearest_cpuset(&folder.join("inner")), Some(found), "its parent's binds it");
        put("sys/fs/cgroup/jobs/cgroup.procs", "");
        assert_eq!(nearest_cpuset(folder.parent().unwrap()), None);
        fs::remove_dir_all(folder.join("inner")).unwrap();
        assert!(!has_children(&folder) && has_children(folder.parent().unwrap()));
        assert_eq!(allowed_nodes(root.path(), Pid(7)).unwrap(), [NodeId(0), NodeId(1), NodeId(3)]);
    }
}
