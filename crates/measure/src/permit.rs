//! What this process may use of the machine: CPUs and memory nodes that its cpuset and affinity allow, and how much memory. A container sees the whole
//! machine in sysfs; its limits are in /proc/self. Read under a root prefix, so that all of it is tested on trees of files.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use numapilot_host::{Root, TaskStatus, cgroups};
use numapilot_machine::{CpuId, NodeId, parse_cpu_list};

/// The CPUs and memory that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    /// CPUs that threads of this process may run on.
    pub cpus: BTreeSet<CpuId>,
    /// Nodes that its memory may come from.
    pub memory_nodes: BTreeSet<NodeId>,
    /// Number of CPUs whose whole time its control group gives it, at least 1: with more at work, the kernel stops them all for a part of each period. `None`
    /// without a limit.
    pub cpus_at_once: Option<usize>,
    /// Bytes that its control groups leave; `None` without a limit.
    pub memory_bytes: Option<u64>,
    /// Large pages that the kernel gives on request.
    pub large_pages: bool,
    /// Bytes of a large page.
    pub large_page_bytes: u64,
    /// Bytes of free reserved huge pages of that size, by node; empty where the kernel does not show them.
    pub huge_free_bytes: BTreeMap<NodeId, u64>,
}

impl Permit {
    /// Reads what this process may use now.
    #[must_use]
    pub fn of_this_process() -> Permit {
        Permit::under(Path::new("/"))
    }

    /// The same from files under `root`. A missing file means no limit.
    #[must_use]
    pub fn under(root: &Path) -> Permit {
        let root = &Root::new(root);
        let mut text = Vec::new();
        let status = TaskStatus::read_own(root, &mut text).unwrap_or_default();
        let list = |text: Option<&str>| parse_cpu_list(text?).ok();
        let all = || (0..=u32::from(u16::MAX)).collect();
        let hint = root.text("sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let bytes = root.number("sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
        let large_page_bytes = bytes.filter(|bytes: &u64| bytes.is_power_of_two()).unwrap_or(2 << 20);
        Permit {
            cpus: list(status.allowed_cpus()).unwrap_or_else(all).into_iter().map(CpuId).collect(),
            memory_nodes: list(status.allowed_nodes())
                .unwrap_or_else(all)
                .into_iter()
                .filter_map(|node| Some(NodeId(u16::try_from(node).ok()?)))
                .collect(),
            cpus_at_once: cpus_at_once(root),
            memory_bytes: cgroups::memory_left(root),
            large_pages: hint.contains("[madvise]") || hint.contains("[always]"),
            large_page_bytes,
            huge_free_bytes: huge_free_bytes(root, large_page_bytes),
        }
    }
}

/// Free reserved huge pages by node. A file is missing where the kernel has no such pages.
fn huge_free_bytes(root: &Root, page_bytes: u64) -> BTreeMap<NodeId, u64> {
    const NODES: &str = "sys/devices/system/node";
    let of_node = |name: String| {
        let node = name.strip_prefix("node")?.parse().ok()?;
        let file = format!("{NODES}/{name}/hugepages/hugepages-{}kB/free_hugepages", page_bytes >> 10);
        Some((NodeId(node), root.number(&file)? * page_bytes))
    };
    root.names(NODES).into_iter().filter_map(of_node).collect()
}

/// The CPUs whose time the tightest control group above this process allows (`--cpus` of containers, CPUQuota of systemd), in whole ones.
fn cpus_at_once(root: &Root) -> Option<usize> {
    let (version_2, version_1) = cgroups::of_own(root, "cpu");
    let text = |folder: &PathBuf, file: &str| root.text(folder.join(file).to_str()?);
    let of_version_2 = version_2.iter().filter_map(|folder| {
        let line = text(folder, "cpu.max")?;
        let (quota, period) = line.split_once(' ')?;
        quota_over(quota, period)
    });
    let of_version_1 = version_1
        .iter()
        .filter_map(|folder| quota_over(&text(folder, "cpu.cfs_quota_us")?, &text(folder, "cpu.cfs_period_us")?));
    of_version_2.chain(of_version_1).min_by(f64::total_cmp).map(|cpus| cpus.max(1.0) as usize)
}

/// Microseconds of CPU time over those of the period in which they may be used. Without a limit, the quota is no number (`max`) or below 0.
fn quota_over(quota: &str, period: &str) -> Option<f64> {
    let number = |text: &str| text.trim().parse::<u32>().ok().map(f64::from).filter(|number| *number > 0.0);
    Some(number(quota)? / number(period)?)
}

#[cfg(test)]
mod tests {
    //! Files as containers have them, written here.

    use std::fs;

    use super::*;

    fn put(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    #[test]
    fn a_container_is_held_to_its_cpuset_and_its_tightest_group() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        put(root, "proc/self/status", "Name:\tx\nCpus_allowed:\tc\nCpus_allowed_list:\t2-3\nMems_allowed_list:\t1\n");
        put(root, "proc/self/cgroup", "0::/kubepods/pod1\n");
        put(root, "sys/fs/cgroup/kubepods/pod1/memory.max", "max\n");
        put(root, "sys/fs/cgroup/kubepods/memory.max", "1000000\n");
        put(root, "sys/fs/cgroup/kubepods/memory.current", "400000\n");
        put(root, "sys/fs/cgroup/kubepods/pod1/cpu.max", "250000 100000\n");
        put(root, "sys/fs/cgroup/kubepods/cpu.max", "max 100000\n");
        put(root, "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        put(root, "sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "3\n");
        let permit = Permit::under(root);
        assert_eq!(permit.huge_free_bytes, BTreeMap::from([(NodeId(1), 6 << 20)]));
        assert_eq!(permit.cpus, BTreeSet::from([CpuId(2), CpuId(3)]));
        assert_eq!(permit.memory_nodes, BTreeSet::from([NodeId(1)]));
        assert_eq!((permit.memory_bytes, permit.cpus_at_once), (Some(600_000), Some(2)));
        assert!(permit.large_pages);
        assert_eq!(permit.large_page_bytes, 2 << 20);
    }

    #[test]
    fn memory_above_which_a_group_is_slowed_down_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        put(root, "proc/self/cgroup", "0::/a/b\n");
        put(root, "sys/fs/cgroup/a/memory.high", "700000\n");
        put(root, "sys/fs/cgroup/a/memory.current", "400000\n");
        put(root, "sys/fs/cgroup/a/b/memory.max", "1000000\n");
        put(root, "sys/fs/cgroup/a/b/memory.high", "max\n");
        put(root, "sys/fs/cgroup/a/b/memory.current", "400000\n");
        assert_eq!(Permit::under(root).memory_bytes, Some(300_000));
    }

    #[test]
    fn the_older_groups_count_too_and_their_no_limit_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        put(root, "proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/docker/a\n0::/\n");
        put(root, "sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", "2000\n");
        put(root, "sys/fs/cgroup/memory/docker/a/memory.usage_in_bytes", "2500\n");
        put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!((Permit::under(root).memory_bytes, Permit::under(root).cpus_at_once), (Some(0), None));
        put(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
        put(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
        assert_eq!(Permit::under(root).cpus_at_once, None);
        put(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
        assert_eq!(Permit::under(root).cpus_at_once, Some(1));
    }

    #[test]
    fn files_in_memory_that_the_kernel_can_drop_are_free() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        put(root, "proc/self/cgroup", "0::/a\n");
        put(root, "sys/fs/cgroup/a/memory.max", "1000000\n");
        put(root, "sys/fs/cgroup/a/memory.current", "990000\n");
        put(root, "sys/fs/cgroup/a/memory.stat", "anon 90000\nfile 900000\ninactive_file 800000\nactive_file 100000\n");
        assert_eq!(Permit::under(root).memory_bytes, Some(810_000));
        put(root, "sys/fs/cgroup/a/memory.stat", "inactive_file_x 5\ninactive_file many\n");
        assert_eq!(Permit::under(root).memory_bytes, Some(10_000));
    }

    #[test]
    fn what_is_not_told_is_not_limited() {
        let folder = tempfile::tempdir().expect("a folder");
        let permit = Permit::under(folder.path());
        assert!(permit.cpus.contains(&CpuId(1023)) && permit.memory_nodes.contains(&NodeId(255)));
        assert_eq!((permit.memory_bytes, permit.cpus_at_once, permit.large_pages), (None, None, false));
    }
}
