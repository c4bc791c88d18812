//! The files in which a kernel would show a machine: the counterpart of [`super::read`], for programs that run on a simulated machine and look for its
//! nodes and CPUs themselves. Formats: `Documentation/ABI/stable/sysfs-devices-node`, `Documentation/admin-guide/cputopology.rst`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use crate::cpulist::{format_cpu_list, format_cpu_mask};
use crate::hardware::{Cache, CacheKind, Cpu, Node};
use crate::ids::{CpuId, NodeId, SocketId};
use crate::machine::Machine;

const CPU: &str = "sys/devices/system/cpu";
const NODE: &str = "sys/devices/system/node";

/// One entry of [`Machine::kernel_files`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelFile {
    /// A file with this text.
    Text(String),
    /// A symbolic link to this target, relative to its own folder.
    Link(String),
}

/// Entries by their path below the root.
type Files = BTreeMap<String, KernelFile>;

impl Machine {
    /// The files below `/sys/devices/system/{node,cpu}`, `/sys/bus/{node,cpu}/devices` and `/proc/cpuinfo` as a kernel of this machine would show them, by
    /// path without the first slash. What the machine does not say has no file. `cpuinfo` is appended to each processor in `/proc/cpuinfo`: lines that end
    /// in a line feed, or nothing.
    #[must_use]
    pub fn kernel_files(&self, cpuinfo: &str) -> BTreeMap<String, KernelFile> {
        let mut files = Files::new();
        let online: Vec<&Cpu> = self.cpus().iter().filter(|cpu| cpu.online).collect();
        lists(self, &online, &mut files);
        for cpu in self.cpus() {
            links(cpu, &mut files);
        }
        let packages = packages(self, &online);
        let caches = caches_by_cpu(self);
        for cpu in &online {
            topology(self, cpu, &packages, &mut files);
            for (index, cache) in caches.get(&cpu.id).into_iter().flatten().enumerate() {
                one_cache(self, cache, &format!("{CPU}/cpu{}/cache/index{index}", cpu.id), &mut files);
            }
        }
        for node in self.nodes() {
            one_node(self, node, &mut files);
        }
        files.insert("proc/cpuinfo".to_owned(), KernelFile::Text(processors(self, &online, &packages, cpuinfo)));
        files
    }

    /// ACPI distance between two nodes as the firmware of this machine would state it: as described, else in proportion to idle latencies (local is 10),
    /// else 20, which firmware states where it does not know.
    #[must_use]
    pub fn stated_distance(&self, from: NodeId, to: NodeId) -> u32 {
        if from == to {
            return 10;
        }
        let ratio = || Some(self.idle_latency_ns(from, to)? / self.idle_latency_ns(from, from)?);
        let derived = || ratio().map(|ratio| (ratio * 10.0).round().clamp(11.0, 254.0) as u32);
        self.distance(from, to).or_else(derived).unwrap_or(20)
    }
}

fn text(files: &mut Files, path: String, value: impl std::fmt::Display) {
    files.insert(path, KernelFile::Text(format!("{value}\n")));
}

fn ids<'a>(cpus: impl IntoIterator<Item = &'a CpuId>) -> Vec<u32> {
    cpus.into_iter().map(|cpu| cpu.0).collect()
}

/// The lists of all CPUs and nodes.
fn lists(machine: &Machine, online: &[&Cpu], files: &mut Files) {
    let all = ids(machine.cpus().iter().map(|cpu| &cpu.id));
    let on = ids(online.iter().map(|cpu| &cpu.id));
    let off = machine.cpus().iter().filter(|cpu| !cpu.online).map(|cpu| cpu.id.0);
    text(files, format!("{CPU}/offline"), format_cpu_list(off));
    text(files, format!("{CPU}/isolated"), "");
    text(files, format!("{CPU}/kernel_max"), crate::MAX_CPUS - 1);
    text(files, format!("{CPU}/online"), format_cpu_list(on));
    for name in ["possible", "present"] {
        text(files, format!("{CPU}/{name}"), format_cpu_list(all.iter().copied()));
    }
    let nodes = |keep: fn(&Node) -> bool| {
        format_cpu_list(machine.nodes().iter().filter(|node| keep(node)).map(|node| node.id.0.into()))
    };
    for name in ["online", "possible"] {
        text(files, format!("{NODE}/{name}"), nodes(|_| true));
    }
    text(files, format!("{NODE}/has_cpu"), nodes(Node::has_cpus));
    for name in ["has_memory", "has_normal_memory"] {
        text(files, format!("{NODE}/{name}"), nodes(Node::has_memory));
    }
}

/// A CPU's links to and from its node and from the bus; whether it is online.
fn links(cpu: &Cpu, files: &mut Files) {
    let id = cpu.id;
    // The boot CPU cannot go offline, and has no such file.
    if id.0 != 0 {
        text(files, format!("{CPU}/cpu{id}/online"), u8::from(cpu.online));
    }
    let mut link = |path: String, target: String| files.insert(path, KernelFile::Link(target));
    link(format!("sys/bus/cpu/devices/cpu{id}"), format!("../../../devices/system/cpu/cpu{id}"));
    if let Some(node) = cpu.node {
        link(format!("{CPU}/cpu{id}/node{node}"), format!("../../node/node{node}"));
        link(format!("{NODE}/node{node}/cpu{id}"), format!("../../cpu/cpu{id}"));
    }
}

/// Number of the highest CPU, which gives masks their width.
fn last_cpu(machine: &Machine) -> u32 {
    machine.cpus().last().map_or(0, |cpu| cpu.id.0)
}

/// A set of CPUs as list and as mask.
fn set(machine: &Machine, cpus: &[u32], (list, mask): (String, String), files: &mut Files) {
    text(files, list, format_cpu_list(cpus.iter().copied()));
    text(files, mask, format_cpu_mask(cpus, last_cpu(machine)));
}

/// What all CPUs of a socket have in common.
struct Package {
    /// The CPUs that are online, as list and as mask.
    list: String,
    mask: String,
    threads: usize,
    cores: usize,
}

fn packages(machine: &Machine, online: &[&Cpu]) -> HashMap<SocketId, Package> {
    let mut members: HashMap<SocketId, Vec<&Cpu>> = HashMap::new();
    for cpu in online {
        if let Some(socket) = cpu.socket {
            members.entry(socket).or_default().push(cpu);
        }
    }
    let package = |cpus: Vec<&Cpu>| {
        let numbers = ids(cpus.iter().map(|cpu| &cpu.id));
        Package {
            mask: format_cpu_mask(&numbers, last_cpu(machine)),
            cores: cpus.iter().filter(|cpu| first_online(machine, cpu) == cpu.id).count(),
            threads: cpus.len(),
            list: format_cpu_list(numbers),
        }
    };
    members.into_iter().map(|(socket, cpus)| (socket, package(cpus))).collect()
}

/// Each CPU's caches, in the machine's order.
fn caches_by_cpu(machine: &Machine) -> HashMap<CpuId, Vec<&Cache>> {
    let mut found: HashMap<CpuId, Vec<&Cache>> = HashMap::new();
    for cache in machine.caches() {
        for cpu in &cache.cpus {
            found.entry(*cpu).or_default().push(cache);
        }
    }
    found
}

fn topology(machine: &Machine, cpu: &Cpu, packages: &HashMap<SocketId, Package>, files: &mut Files) {
    let folder = format!("{CPU}/cpu{}/topology", cpu.id);
    let is_on = |id: &&CpuId| machine.cpu(**id).is_some_and(|cpu| cpu.online);
    if let Some(core) = cpu.core {
        text(files, format!("{folder}/core_id"), core.0);
    }
    if cpu.core.is_some() || cpu.siblings.len() > 1 {
        let siblings = ids(cpu.siblings.iter().filter(is_on));
        for name in ["thread_siblings", "core_cpus"] {
            set(machine, &siblings, (format!("{folder}/{name}_list"), format!("{folder}/{name}")), files);
        }
    }
    let Some(socket) = cpu.socket else { return };
    text(files, format!("{folder}/physical_package_id"), socket.0);
    text(files, format!("{folder}/die_id"), 0);
    let Some(package) = packages.get(&socket) else { return };
    for name in ["core_siblings", "package_cpus", "die_cpus"] {
        text(files, format!("{folder}/{name}_list"), &package.list);
        text(files, format!("{folder}/{name}"), &package.mask);
    }
}

fn one_cache(machine: &Machine, cache: &Cache, folder: &str, files: &mut Files) {
    let kind = match cache.kind {
        CacheKind::Data => "Data",
        CacheKind::Instruction => "Instruction",
        CacheKind::Unified => "Unified",
    };
    text(files, format!("{folder}/level"), cache.level);
    text(files, format!("{folder}/type"), kind);
    text(files, format!("{folder}/size"), format_args!("{}K", cache.size_bytes >> 10));
    if let Some(line) = cache.line_bytes {
        text(files, format!("{folder}/coherency_line_size"), line);
    }
    if let Some(ways) = cache.ways {
        text(files, format!("{folder}/ways_of_associativity"), ways);
    }
    if let (Some(line), Some(ways)) = (cache.line_bytes, cache.ways) {
        let sets = cache.size_bytes / (u64::from(line) * u64::from(ways)).max(1);
        text(files, format!("{folder}/number_of_sets"), sets);
        text(files, format!("{folder}/physical_line_partition"), 1);
    }
    let shared = ids(&cache.cpus);
    set(machine, &shared, (format!("{folder}/shared_cpu_list"), format!("{folder}/shared_cpu_map")), files);
}

fn one_node(machine: &Machine, node: &Node, files: &mut Files) {
    let id = node.id;
    let folder = format!("{NODE}/node{id}");
    files.insert(
        format!("sys/bus/node/devices/node{id}"),
        KernelFile::Link(format!("../../../devices/system/node/node{id}")),
    );
    let online = ids(node.cpus.iter().filter(|cpu| machine.cpu(**cpu).is_some_and(|cpu| cpu.online)));
    set(machine, &online, (format!("{folder}/cpulist"), format!("{folder}/cpumap")), files);
    let distances: Vec<String> =
        machine.nodes().iter().map(|to| machine.stated_distance(id, to.id).to_string()).collect();
    text(files, format!("{folder}/distance"), distances.join(" "));
    let (total, free) = (node.memory_bytes >> 10, node.free_bytes.unwrap_or(node.memory_bytes) >> 10);
    let mut meminfo = String::new();
    for (name, kib) in [("MemTotal:", total), ("MemFree:", free), ("MemUsed:", total.saturating_sub(free))] {
        let _ = writeln!(meminfo, "Node {id} {name:<15} {kib:>8} kB");
    }
    for name in ["HugePages_Total:", "HugePages_Free:", "HugePages_Surp:"] {
        let _ = writeln!(meminfo, "Node {id} {name:<15} {:>5}", 0);
    }
    files.insert(format!("{folder}/meminfo"), KernelFile::Text(meminfo));
}

/// `/proc/cpuinfo` in the layout of x86.
fn processors(machine: &Machine, online: &[&Cpu], packages: &HashMap<SocketId, Package>, more: &str) -> String {
    let mut out = String::new();
    for cpu in online {
        let _ = writeln!(out, "processor\t: {}", cpu.id);
        if let Some(model) = machine.cpu_model() {
            let _ = writeln!(out, "model name\t: {model}");
        }
        if let Some(mhz) = machine.clock_mhz() {
            let _ = writeln!(out, "cpu MHz\t\t: {mhz:.3}");
        }
        if let Some((socket, package)) = cpu.socket.and_then(|socket| Some((socket, packages.get(&socket)?))) {
            let _ = write!(out, "physical id\t: {socket}\nsiblings\t: {}\n", package.threads);
            if let Some(core) = cpu.core {
                let _ = write!(out, "core id\t\t: {core}\ncpu cores\t: {}\n", package.cores);
            }
        }
        out.push_str(more);
        out.push('\n');
    }
    out
}

/// The first hardware thread that is online of a CPU's core.
fn first_online(machine: &Machine, cpu: &Cpu) -> CpuId {
    let is_on = |id: &&CpuId| machine.cpu(**id).is_some_and(|cpu| cpu.online);
    cpu.siblings.iter().find(is_on).copied().unwrap_or(cpu.id)
}

#[cfg(test)]
mod unit_tests {
    use std::collections::HashSet;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use numapilot_host::testing::in_memory;

    use super::*;
    use crate::builtin_names;

    /// Files with the same text are names of one file: most have the text of another, and each file in memory takes a page.
    fn written(machine: &Machine, root: &Path) {
        let (mut folders, mut first_with) = (HashSet::new(), HashMap::<String, PathBuf>::new());
        for (path, file) in machine.kernel_files("flags\t\t: fpu\n") {
            let path = root.join(path);
            let folder = path.parent().unwrap();
            if folders.insert(folder.to_owned()) {
                fs::create_dir_all(folder).unwrap();
            }
            match file {
                KernelFile::Text(text) => match first_with.get(&text) {
                    Some(first) if fs::hard_link(first, &path).is_ok() => {}
                    _ => {
                        fs::write(&path, &text).unwrap();
                        first_with.insert(text, path);
                    }
                },
                KernelFile::Link(target) => symlink(target, path).unwrap(),
            }
        }
    }

    /// What both the kernel's files and a model can say.
    fn comparable(machine: &Machine) -> String {
        let mut out = String::new();
        for node in machine.nodes() {
            let row: Vec<u32> = machine.nodes().iter().map(|to| machine.stated_distance(node.id, to.id)).collect();
            let _ =
                writeln!(out, "node {} {:?} {:?} {} {row:?}", node.id, node.socket, node.cpus, node.memory_bytes >> 10);
        }
        for cpu in machine.cpus() {
            let _ = writeln!(out, "cpu {} {:?} {:?} {:?}", cpu.id, cpu.node, cpu.socket, cpu.siblings);
        }
        for cache in machine.caches() {
            let Cache { level, kind, size_bytes, line_bytes, ways, cpus, .. } = cache;
            let _ = writeln!(out, "cache {level} {kind:?} {} {line_bytes:?} {ways:?} {cpus:?}", size_bytes >> 10);
        }
        out
    }

    #[test]
    fn every_model_is_read_back_from_the_files_of_its_kernel() {
        for name in builtin_names() {
            let machine = Machine::load(name).unwrap();
            let root = in_memory();
            written(&machine, root.path());
            let read = Machine::from_sysfs(root.path()).unwrap();
            assert_eq!(comparable(&read), comparable(&machine), "{name}");
        }
    }

    /// Each CPU's lists were found by a walk over all CPUs.
    #[test]
    fn a_socket_lists_its_cpus_that_are_online_once_for_all() {
        let machine = Machine::load("opteron-8385").unwrap();
        let files = machine.kernel_files("");
        let of = |cpu: &Cpu, name: &str| match &files[&format!("{CPU}/cpu{}/topology/{name}", cpu.id)] {
            KernelFile::Text(text) => text.clone(),
            KernelFile::Link(_) => unreachable!("a file"),
        };
        for cpu in machine.cpus() {
            let same: Vec<u32> =
                machine.cpus().iter().filter(|other| other.socket == cpu.socket).map(|other| other.id.0).collect();
            for name in ["core_siblings", "package_cpus", "die_cpus"] {
                assert_eq!(of(cpu, &format!("{name}_list")), format!("{}\n", format_cpu_list(same.iter().copied())));
                assert_eq!(of(cpu, name), format!("{}\n", format_cpu_mask(&same, last_cpu(&machine))));
            }
        }
        let online: Vec<&Cpu> = machine.cpus().iter().filter(|cpu| cpu.id.0 != 1).collect();
        let package = &packages(&machine, &online)[&machine.cpus()[1].socket.unwrap()];
        assert!(package.threads > 0 && !package.list.contains('1'), "{}", package.list);
    }

    #[test]
    fn links_lead_to_what_they_name() {
        let machine = Machine::load("opteron-8385").unwrap();
        let root = in_memory();
        written(&machine, root.path());
        for path in [
            "sys/bus/cpu/devices/cpu5/topology/core_id",
            "sys/bus/node/devices/node3/distance",
            "sys/devices/system/node/node1/cpu4/online",
        ] {
            assert!(root.path().join(path).is_file(), "{path}");
        }
    }
}
