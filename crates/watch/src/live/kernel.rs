//! Counters of every kernel, by node: allocations (`numastat`), memory (`meminfo`), processor time (`/proc/stat`), hinting faults and migrations
//! (`/proc/vmstat`); and the tiers of memory (`Documentation/ABI/testing/sysfs-kernel-mm-memory-tiers`). A reading is one moment; two readings make an
//! interval.

use std::collections::BTreeMap;

use numapilot_kernel::actuator::free_memory::file_of_node;
use numapilot_kernel::cpu_time;
use numapilot_kernel::online_nodes::OnlineNodes;
use numapilot_machine::CpuId;
use numapilot_machine::Machine;
use numapilot_machine::format_cpu_list;
use numapilot_machine::parse_cpu_list;

use crate::figures::MetricValue;
use crate::figures::NodeFigures;
use crate::figures::NumaStat;
use numapilot_host::Root;
use numapilot_host::meminfo;
use numapilot_host::number;

/// NUMA counters of `/proc/vmstat`, in the order in which they are shown.
pub const VM_COUNTERS: [&str; 15] = [
    "numa_pte_updates",
    "numa_hint_faults",
    "numa_hint_faults_local",
    "numa_pages_migrated",
    "pgmigrate_success",
    "pgmigrate_fail",
    "thp_migration_success",
    "thp_migration_fail",
    // Between tiers of memory: up by the kernel's NUMA balancing, down where a node has too little free.
    "pgpromote_success",
    "pgpromote_candidate",
    // Those that the limit on the rate of promotions does not count (Linux 6.17).
    "pgpromote_candidate_nrl",
    "pgdemote_kswapd",
    "pgdemote_direct",
    "pgdemote_khugepaged",
    // By `memory.reclaim` and other reclaim on request, which were counted as direct before (Linux 6.16).
    "pgdemote_proactive",
];

/// Where the kernel shows its tiers of memory, a folder `memory_tierN` for each (Linux 6.1).
const TIERS: &str = "sys/devices/virtual/memory_tiering";

/// The kernel's counters at a moment, nodes in the machine's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelReading {
    online_nodes: OnlineNodes,
    /// Tier of memory by number of the node; without those that are in none.
    tiers: BTreeMap<u32, u32>,
    numastat: Vec<NumaStat>,
    /// Total and free memory in bytes, by node; without free memory: it is not known.
    memory: Vec<(u64, Option<u64>)>,
    /// Busy and all clock ticks by CPU.
    ticks: BTreeMap<CpuId, (u64, u64)>,
    /// As in [`VM_COUNTERS`]; `None`: this kernel has no such counter.
    vm: [Option<u64>; VM_COUNTERS.len()],
    /// `kernel.numa_balancing`: daemons and administrators change it while the machine is watched. `None`: the kernel has no NUMA balancing.
    balancing: Option<u64>,
}

impl KernelReading {
    /// Reads all counters; missing ones are 0 or `None`.
    #[must_use]
    pub fn read(root: &Root, machine: &Machine, buffer: &mut Vec<u8>) -> KernelReading {
        let mut reading =
            KernelReading { balancing: root.number("proc/sys/kernel/numa_balancing"), ..KernelReading::default() };
        reading.online_nodes = OnlineNodes::read(root);
        for name in root.names(TIERS) {
            let Some(tier) = name.strip_prefix("memory_tier").and_then(|number| number.parse::<u32>().ok()) else {
                continue;
            };
            let text = root.text(&format!("{TIERS}/{name}/nodelist")).unwrap_or_default();
            reading.tiers.extend(parse_cpu_list(&text).unwrap_or_default().into_iter().map(|node| (node, tier)));
        }
        for node in machine.nodes() {
            let is_offline = reading.online_nodes.lacks(node.id);
            let file = format!("sys/devices/system/node/node{}/numastat", node.id);
            let text = root.read(&file, buffer).unwrap_or_default();
            reading.numastat.push(numastat(text));
            reading.memory.push(match amounts_in(root, &file_of_node(root, node.id), buffer) {
                (Some(total), free) => (total, free),
                // What it had when the machine was read is gone.
                _ if is_offline => (0, Some(0)),
                _ => (node.memory_bytes, None),
            });
        }
        let text = root.read("proc/stat", buffer).unwrap_or_default();
        // Time taken by a hypervisor is not available capacity.
        let ticks = cpu_time::parse(text).map(|time| (time.cpu, (time.busy_ticks + time.stolen_ticks, time.all_ticks)));
        reading.ticks = ticks.collect();
        let text = root.read("proc/vmstat", buffer).unwrap_or_default();
        for line in text.split(|&byte| byte == b'\n') {
            let Some(blank) = line.iter().position(|&byte| byte == b' ') else { continue };
            if let Some(index) = VM_COUNTERS.iter().position(|name| name.as_bytes() == &line[..blank]) {
                reading.vm[index] = number(&line[blank + 1..]);
            }
        }
        reading
    }

    /// Forgets the CPUs' times: how busy they are is not known.
    pub fn forget_cpu_times(&mut self) {
        self.ticks.clear();
    }

    /// Figures of the nodes between an earlier reading and this one.
    #[must_use]
    pub fn nodes_since(&self, before: &KernelReading, machine: &Machine) -> Vec<NodeFigures> {
        let of = |(index, node): (usize, &numapilot_machine::Node)| {
            // Those that are online now have a line: CPUs go and come while the machine is watched.
            let is_online = |cpu: &&CpuId| match self.ticks.is_empty() {
                true => machine.cpu(**cpu).is_some_and(|cpu| cpu.online),
                false => self.ticks.contains_key(*cpu),
            };
            let cpus = node.cpus.iter().filter(is_online).count();
            let (mut busy, mut elapsed) = (0, 0);
            for cpu in &node.cpus {
                // One that came online or went offline meanwhile would add, or take away, the time since the machine's start.
                let Some((now, then)) = self.ticks.get(cpu).zip(before.ticks.get(cpu)) else { continue };
                let ran = now.0.saturating_sub(then.0);
                busy += ran;
                // The time of waiting for devices may go back (`Documentation/filesystems/proc.rst`, `iowait`), and the sum with it.
                elapsed += now.1.saturating_sub(then.1).max(ran);
            }
            let share = (elapsed > 0).then(|| busy as f64 / elapsed as f64);
            let counts = self.numastat[index];
            // Of a node that came back meanwhile nothing was read then: its counts are those since the machine's start.
            let then = match before.online_nodes.lacks(node.id) {
                true => counts,
                false => before.numastat.get(index).copied().unwrap_or_default(),
            };
            NodeFigures {
                node: node.id,
                cpus,
                busy_cpus: share.map(|share| share * cpus as f64),
                memory_bytes: self.memory[index].0,
                free_bytes: self.memory[index].1,
                tier: self.tiers.get(&u32::from(node.id.0)).copied(),
                numastat: counts,
                numastat_delta: counts.since(then),
                ..NodeFigures::default()
            }
        };
        machine.nodes().iter().enumerate().map(of).collect()
    }

    /// That CPUs have come online whose node was not known when the machine was read, as a sentence; `None`: none has.
    #[must_use]
    pub fn new_cpus(&self, machine: &Machine) -> Option<String> {
        let is_new = |cpu: &&CpuId| machine.cpu(**cpu).is_none_or(|cpu| !cpu.online && cpu.node.is_none());
        let cpus = format_cpu_list(self.ticks.keys().filter(is_new).map(|cpu| cpu.0));
        (!cpus.is_empty())
            .then(|| format!("CPUs that came online since the start are missing in the figures of nodes: {cpus}."))
    }

    /// That CPUs have gone offline since the machine was read, as a sentence; `None`: none has. Events on such a CPU end with that, and count nothing when it
    /// comes back (`__perf_event_exit_context` in `kernel/events/core.c`).
    #[must_use]
    pub fn gone_cpus(&self, machine: &Machine) -> Option<String> {
        let is_gone = |cpu: &CpuId| !self.ticks.is_empty() && !self.ticks.contains_key(cpu);
        let online = machine.cpus().iter().filter(|cpu| cpu.online).map(|cpu| cpu.id);
        let cpus = format_cpu_list(online.filter(is_gone).map(|cpu| cpu.0));
        (!cpus.is_empty())
            .then(|| format!("Events are no longer counted on CPUs that went offline since the start: {cpus}."))
    }

    /// That nodes have come online or gone offline since the machine was read, as sentences: memory of CXL devices does while the machine runs.
    #[must_use]
    pub fn changed_nodes(&self, machine: &Machine) -> Vec<String> {
        let sentence = |nodes: String, what: &str| (!nodes.is_empty()).then(|| format!("{what}: {nodes}."));
        let new = self.online_nodes.came_since(machine);
        let new = sentence(new, "Nodes that came online since the start are missing in the figures");
        let gone = self.online_nodes.went_since(machine);
        let gone = sentence(gone, "Nodes that went offline since the start have no memory in the figures");
        new.into_iter().chain(gone).collect()
    }

    /// What has changed of the machine since it was read: CPUs and nodes that came online or went offline, as sentences.
    #[must_use]
    pub fn changes(&self, machine: &Machine) -> Vec<String> {
        self.new_cpus(machine).into_iter().chain(self.changed_nodes(machine)).collect()
    }

    /// The counters that this kernel has: name, since boot, since `before`.
    #[must_use]
    pub fn vm_since(&self, before: &KernelReading) -> Vec<(&'static str, u64, u64)> {
        let named = VM_COUNTERS.iter().zip(self.vm.iter().zip(before.vm));
        named
            .filter_map(|(name, (now, before))| {
                Some((*name, (*now)?, now.unwrap_or(0).saturating_sub(before.unwrap_or(0))))
            })
            .collect()
    }

    /// Share of NUMA hinting faults on pages of the faulting CPU's node: an estimate of the local access ratio. Without bit 0 of `kernel.numa_balancing` the
    /// kernel takes such faults on slow memory only, to promote its pages (`change_pte_range` in `mm/mprotect.c`): the figure is missing if that was so at
    /// either end of the interval.
    #[must_use]
    pub fn hinted_local_share(&self, before: &KernelReading) -> MetricValue {
        let of_tiers = before.balancing.filter(|mode| is_of_tiers(*mode));
        let balancing = self.balancing.filter(|mode| is_of_tiers(*mode)).or(of_tiers).or(self.balancing);
        let since = |index: usize| Some(self.vm[index]?.saturating_sub(before.vm[index].unwrap_or(0)));
        match (since(1), since(2), balancing) {
            (_, _, Some(mode)) if is_of_tiers(mode) => MetricValue::Missing(format!(
                "the kernel's NUMA balancing only promotes pages between tiers of memory, and takes no hinting faults on fast memory (turn the rest on with \
                 `sysctl kernel.numa_balancing={}`)",
                mode | 1
            )),
            (Some(all), Some(local), _) if all > 0 => {
                // The kernel adds up its CPUs' counts one after the other, so of faults that are nearly all local there may be more than there are of all.
                let share = (local as f64 / all as f64).min(1.0);
                MetricValue::estimate(share, "kernel: NUMA hinting faults (one per page and scan)")
            }
            (_, _, Some(0)) => MetricValue::Missing(
                "the kernel's NUMA balancing is off (turn it on with `sysctl kernel.numa_balancing=1`)".into(),
            ),
            (_, _, None) => MetricValue::Missing("this kernel has no NUMA balancing".into()),
            _ => MetricValue::Missing("NUMA balancing took no hinting faults in the interval".into()),
        }
    }
}

/// Whether a mode of `kernel.numa_balancing` promotes pages between tiers of memory and does nothing else.
pub(super) fn is_of_tiers(mode: u64) -> bool {
    mode != 0 && mode & 1 == 0
}

/// Total and free memory in bytes by one of the kernel's files; `None`: it does not say.
fn amounts_in(root: &Root, file: &str, buffer: &mut Vec<u8>) -> (Option<u64>, Option<u64>) {
    let text = root.read(file, buffer).unwrap_or_default();
    (meminfo::bytes_of(text, "MemTotal"), meminfo::bytes_of(text, "MemFree"))
}

fn numastat(text: &[u8]) -> NumaStat {
    let mut out = NumaStat::default();
    for line in text.split(|&byte| byte == b'\n') {
        let Some(blank) = line.iter().position(|&byte| byte == b' ') else { continue };
        if let Some(index) = NumaStat::NAMES.iter().position(|name| name.as_bytes() == &line[..blank]) {
            out.0[index] = number(&line[blank + 1..]).unwrap_or(0);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    //! Two moments of a machine of testdata/sysfs.

    use super::*;
    use crate::fixture::Tree;

    fn fill(tree: &Tree, step: u64) {
        for node in 0..2 {
            let counts = [100 + step * 10, step, 2 * step, 7, 90 + step * 9, 10 + step];
            let text: String =
                NumaStat::NAMES.iter().zip(counts).map(|(name, count)| format!("{name} {count}\n")).collect();
            tree.put(&format!("sys/devices/system/node/node{node}/numastat"), &text);
        }
        let cpu = |cpu: u64| {
            format!("cpu{cpu} {} 0 0 {} 0 0 0 0 0 0\n", step * 25 * (cpu + 1), 1000 + step * (100 - 25 * (cpu + 1)))
        };
        tree.put("proc/stat", &format!("cpu  1 2 3 4\n{}intr 5\n", (0..4).map(cpu).collect::<String>()));
        let vm = format!(
            "nr_free_pages 5\nnuma_hint_faults {}\nnuma_hint_faults_local {}\npgmigrate_success 4\n",
            100 * step,
            75 * step
        );
        tree.put("proc/vmstat", &vm);
    }

    #[test]
    fn what_came_between_two_moments_is_told_by_node() {
        let tree = Tree::symmetric(2, 2, 4096);
        let (root, machine, mut buffer) = (tree.root(), tree.machine(), Vec::new());
        fill(&tree, 1);
        let before = KernelReading::read(&root, &machine, &mut buffer);
        fill(&tree, 3);
        let after = KernelReading::read(&root, &machine, &mut buffer);
        let nodes = after.nodes_since(&before, &machine);
        assert_eq!(nodes[1].numastat, NumaStat([130, 3, 6, 7, 117, 13]));
        assert_eq!(nodes[1].numastat_delta, NumaStat([20, 2, 4, 0, 18, 2]));
        assert_eq!((nodes[0].memory_bytes, nodes[0].free_bytes), (4096 * 1024, Some(2048 * 1024)));
        // Of a file that told nothing, what was free at the start was shown as free now.
        tree.put("sys/devices/system/node/node1/meminfo", "");
        let unread = &KernelReading::read(&root, &machine, &mut buffer).nodes_since(&after, &machine)[1];
        assert_eq!((unread.memory_bytes, unread.free_bytes), (4096 * 1024, None));
        // CPUs 0 and 1 a quarter and half busy, CPUs 2 and 3 three quarters and wholly.
        assert_eq!((nodes[0].busy_cpus, nodes[1].busy_cpus), (Some(0.75), Some(1.75)));
        assert_eq!(after.vm_since(&before)[0], ("numa_hint_faults", 300, 200));
        assert_eq!(after.hinted_local_share(&before).value(), Some(0.75));
        assert_eq!(after.hinted_local_share(&after).value(), None);
    }

    /// It was read once, at the start: an exporter that runs for weeks took faults on slow memory alone for those on all memory, or none of all.
    #[test]
    fn what_hinting_faults_are_of_is_what_the_kernel_is_set_to_now() {
        let tree = Tree::symmetric(2, 2, 4096);
        let (root, machine, mut buffer) = (tree.root(), tree.machine(), Vec::new());
        let mut read = |step: u64, mode: u64| {
            fill(&tree, step);
            tree.put("proc/sys/kernel/numa_balancing", &mode.to_string());
            KernelReading::read(&root, &machine, &mut buffer)
        };
        // Of slow memory alone they say nothing of the whole.
        for (then, now, share) in
            [(0, 1, Some(0.75)), (1, 1, Some(0.75)), (3, 3, Some(0.75)), (2, 2, None), (1, 2, None), (2, 1, None)]
        {
            let (before, after) = (read(1, then), read(3, now));
            assert_eq!(after.hinted_local_share(&before).value(), share, "from {then} to {now}");
        }
    }

    /// Memory that had gone was shown as it was at the start, and memory that had come not at all, without a word.
    #[test]
    fn nodes_that_come_and_go_are_told_and_what_has_gone_is_no_memory() {
        let tree = Tree::symmetric(3, 1, 4096);
        let (root, machine, mut buffer) = (tree.root(), tree.machine(), Vec::new());
        let reading = KernelReading::read(&root, &machine, &mut buffer);
        assert!(reading.changed_nodes(&machine).is_empty() && reading.memory[2] == (4096 * 1024, Some(2048 * 1024)));
        tree.remove("sys/devices/system/node/node2");
        tree.put("sys/devices/system/node/online", "0-1,4-5");
        let now = KernelReading::read(&root, &machine, &mut buffer);
        assert_eq!((now.memory[1], now.memory[2]), ((4096 * 1024, Some(2048 * 1024)), (0, Some(0))));
        let told = now.changed_nodes(&machine);
        assert!(told.len() == 2 && told[0].ends_with("missing in the figures: 4-5."), "{told:?}");
        assert!(told[1].ends_with("no memory in the figures: 2."), "{told:?}");
    }

    #[test]
    fn tiers_of_memory_and_moves_between_them_are_the_kernels() {
        let tree = Tree::symmetric(3, 1, 4096);
        let (root, machine, mut buffer) = (tree.root(), tree.machine(), Vec::new());
        let mut read = |demoted: u64| {
            tree.put("proc/vmstat", &format!("pgpromote_success 7\npgdemote_kswapd {demoted}"));
            KernelReading::read(&root, &machine, &mut buffer)
        };
        let tiers = |reading: &KernelReading| -> Vec<Option<u32>> {
            reading.nodes_since(reading, &machine).iter().map(|node| node.tier).collect()
        };
        let before = read(5);
        assert_eq!(tiers(&before), [None; 3], "before Linux 6.1");
        tree.put("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0-1");
        tree.put("sys/devices/virtual/memory_tiering/memory_tier22/nodelist", "2");
        tree.put("sys/devices/virtual/memory_tiering/uevent", "");
        let after = read(12);
        assert_eq!(tiers(&after), [4, 4, 22].map(Some));
        assert_eq!(after.vm_since(&before), [("pgpromote_success", 7, 0), ("pgdemote_kswapd", 12, 7)]);
    }

    /// Newer kernels count some promotions and demotions apart: they were in no figure.
    #[test]
    fn moves_between_tiers_that_newer_kernels_count_apart_are_told() {
        let tree = Tree::symmetric(2, 1, 4096);
        let counts = [("pgpromote_candidate_nrl", 9), ("pgdemote_khugepaged", 2), ("pgdemote_proactive", 4)];
        let lines: String = counts.iter().map(|(name, count)| format!("{name} {count}\n")).collect();
        tree.put("proc/vmstat", &lines);
        let reading = KernelReading::read(&tree.root(), &tree.machine(), &mut Vec::new());
        assert_eq!(reading.vm_since(&KernelReading::default()), counts.map(|(name, count)| (name, count, count)));
    }

    #[test]
    fn cpus_that_come_and_go_add_no_time_of_the_past() {
        let tree = Tree::symmetric(1, 3, 4096);
        let (root, machine, mut buffer) = (tree.root(), tree.machine(), Vec::new());
        let mut read = |lines: &str| {
            tree.put("proc/stat", lines);
            KernelReading::read(&root, &machine, &mut buffer)
        };
        // CPU 0 is busy for a quarter of the time; CPU 1 goes, CPU 2, which was busy all its life, comes.
        let before = read("cpu0 1000 0 0 1000 0 0 0 0 0 0\ncpu1 0 0 0 9000 0 0 0 0 0 0");
        let after = read("cpu0 1025 0 0 1075 0 0 0 0 0 0\ncpu2 90000 0 0 0 0 0 0 0 0 0");
        let node = &after.nodes_since(&before, &machine)[0];
        assert_eq!((node.cpus, node.busy_cpus), (2, Some(0.5)), "CPU 1 is offline, and neither counted nor busy");
        assert_eq!(before.nodes_since(&KernelReading::default(), &machine)[0].busy_cpus, None);
        assert_eq!(after.new_cpus(&machine), None, "it was online before");
        let note =
            read("cpu0 1 0 0 1 0 0 0 0 0 0\ncpu3 1 0 0 1 0 0 0 0 0 0\ncpu4 1 0 0 1 0 0 0 0 0 0").new_cpus(&machine);
        assert!(note.is_some_and(|note| note.ends_with(": 3-4.")));
    }

    /// It counted as offline, and was missing in its node's figures, until the next start.
    #[test]
    fn a_cpu_that_was_offline_at_the_start_is_its_nodes_once_it_is_online() {
        let tree = Tree::symmetric(1, 3, 4096);
        tree.put("sys/devices/system/cpu/online", "0-1");
        let (root, machine, mut buffer) = (tree.root(), tree.machine(), Vec::new());
        assert_eq!(machine.online_cpu_count(), 2);
        let mut read = |idle: u64, cpus: u32| {
            let line = |cpu: u32| format!("cpu{cpu} {} 0 0 {idle} 0 0 0 0 0 0\n", 3 * idle);
            tree.put("proc/stat", &(0..cpus).map(line).collect::<String>());
            KernelReading::read(&root, &machine, &mut buffer)
        };
        let (first, came, last) = (read(10, 2), read(20, 3), read(30, 3));
        let told = [(&first, &came), (&came, &last)].map(|(before, now)| {
            let node = &now.nodes_since(before, &machine)[0];
            (node.cpus, node.busy_cpus)
        });
        assert_eq!(told, [(3, Some(2.25)); 2]);
        assert_eq!(last.new_cpus(&machine), None);
    }

    /// All that had been allocated there since the machine's start counted as of the interval in which it came back.
    #[test]
    fn a_node_that_comes_back_allocated_nothing_meanwhile() {
        let tree = Tree::symmetric(2, 1, 4096);
        let (root, machine, mut buffer) = (tree.root(), tree.machine(), Vec::new());
        let mut read = |online: &str, hits: u64| {
            tree.put("sys/devices/system/node/online", online);
            tree.put("sys/devices/system/node/node1/numastat", &format!("numa_hit {hits}\n"));
            KernelReading::read(&root, &machine, &mut buffer)
        };
        let (gone, back, later) = (read("0", 0), read("0-1", 500), read("0-1", 507));
        let hits = [(&gone, &back), (&back, &later)]
            .map(|(before, now)| now.nodes_since(before, &machine)[1].numastat_delta.0[0]);
        assert_eq!(hits, [0, 7]);
    }

    #[test]
    fn counts_that_go_back_or_are_read_apart_make_no_share_above_1() {
        let tree = Tree::symmetric(1, 1, 4096);
        let (root, machine, mut buffer) = (tree.root(), tree.machine(), Vec::new());
        let mut read = |waiting: u64, busy: u64, (all, local): (u64, u64)| {
            tree.put("proc/stat", &format!("cpu0 {busy} 0 0 1000 {waiting} 0 0 0"));
            tree.put("proc/vmstat", &format!("numa_hint_faults {all}\nnuma_hint_faults_local {local}"));
            KernelReading::read(&root, &machine, &mut buffer)
        };
        let before = read(500, 100, (50, 50));
        let after = read(450, 160, (60, 61));
        assert_eq!(after.nodes_since(&before, &machine)[0].busy_cpus, Some(1.0), "60 ticks, while the sum grew by 10");
        assert_eq!(after.hinted_local_share(&before).value(), Some(1.0));
    }

    #[test]
    fn a_kernel_without_any_of_it_is_no_error() {
        let tree = Tree::empty();
        tree.put("sys/devices/system/cpu/present", "0-1");
        tree.put("sys/devices/system/cpu/online", "0-1");
        tree.put("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 400 kB");
        let reading = KernelReading::read(&tree.root(), &tree.machine(), &mut Vec::new());
        let nodes = reading.nodes_since(&reading, &tree.machine());
        assert_eq!((nodes.len(), nodes[0].memory_bytes, nodes[0].busy_cpus), (1, 1_024_000, None));
        assert!(
            matches!(reading.hinted_local_share(&reading), MetricValue::Missing(why) if why.contains("no NUMA balancing"))
        );
    }

    /// It stayed what it was when the machine was read: an exporter told the same for weeks.
    #[test]
    fn free_memory_of_a_kernel_without_nodes_is_that_of_now() {
        let tree = Tree::empty();
        for file in ["present", "online"] {
            tree.put(&format!("sys/devices/system/cpu/{file}"), "0-1");
        }
        let put = |free: u64| tree.put("proc/meminfo", &format!("MemTotal: 1000 kB\nMemFree: {free} kB"));
        put(400);
        let machine = tree.machine();
        put(100);
        let reading = KernelReading::read(&tree.root(), &machine, &mut Vec::new());
        assert_eq!(reading.memory, [(1_024_000, Some(102_400))]);
    }
}
