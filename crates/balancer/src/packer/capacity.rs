//! The capacity of the nodes and its use: processors from `/proc/stat`, memory as the actuator's reserve counts it.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::time::Instant;

use numapilot_kernel::KernelError;
use numapilot_kernel::actuator::free_memory;
use numapilot_kernel::cpu_time;
use numapilot_machine::CpuId;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;

use crate::decision::packing::Demand;
use crate::decision::packing::MachineCapacity;
use crate::decision::packing::NodeCapacity;
use crate::system::node_memory::after;

/// Distance that is assumed where the firmware gives none.
const FAR: u32 = 20;

/// Reads the nodes' capacity repeatedly.
#[derive(Debug)]
pub struct Looker {
    root: PathBuf,
    memory: free_memory::NodeFreeMemory,
    /// Each node's memory at the last call.
    memory_before: BTreeMap<NodeId, free_memory::NodeMemory>,
    unread: BTreeMap<NodeId, String>,
    before: BTreeMap<CpuId, u64>,
    at: Instant,
}

impl Looker {
    /// Starts reading this system.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read.
    pub fn new() -> Result<Looker, KernelError> {
        Looker::under(Path::new("/"))
    }

    fn under(root: &Path) -> Result<Looker, KernelError> {
        let before = ticks(root)?;
        Ok(Looker {
            root: root.to_owned(),
            memory: free_memory::NodeFreeMemory::under(root),
            memory_before: BTreeMap::new(),
            unread: BTreeMap::new(),
            before,
            at: Instant::now(),
        })
    }

    /// Capacity of the nodes with the use by processes other than `demands`, on average since the last call.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read.
    pub fn capacity(&mut self, machine: &Machine, demands: &[Demand]) -> Result<MachineCapacity, KernelError> {
        let now = ticks(&self.root)?;
        let seconds = self.at.elapsed().as_secs_f64().max(1e-3);
        let busy: Vec<f64> = machine.nodes().iter().map(|node| self.busy(&node.cpus, &now) / seconds).collect();
        (self.before, self.at) = (now, Instant::now());
        // Which process uses which node's processors is not known: the use that is not the demands' is spread as the machine's whole use is.
        let all: f64 = busy.iter().sum();
        let theirs: f64 = demands.iter().map(|demand| demand.cpus).sum();
        let left = if all > 0.0 { ((all - theirs) / all).max(0.0) } else { 0.0 };
        self.read_memory(machine);
        let nodes = machine.nodes().iter().zip(&busy).enumerate().map(|(at, (node, busy))| {
            let memory = self.memory_before.get(&node.id).copied().unwrap_or_default();
            let used = memory.total_bytes.saturating_sub(memory.available_bytes());
            let packed: u64 = demands.iter().filter_map(|demand| demand.memory_bytes.get(at)).sum();
            // The kernel lists those that are online now; the description is of the start.
            let cpus = node.cpus.iter().filter(|cpu| self.before.contains_key(*cpu)).count() as f64;
            NodeCapacity {
                cpus,
                // Ticks are rounded, so the use is limited to the node's processors.
                cpus_taken: (busy * left).min(cpus),
                memory_bytes: memory.total_bytes,
                memory_taken: used.saturating_sub(packed),
            }
        });
        let nodes = nodes.collect();
        Ok(MachineCapacity { nodes, distance: distances(machine) })
    }

    /// Nodes whose memory could not be read at the last call of [`Looker::capacity`], each with what was taken for it, as a clause.
    #[must_use]
    pub fn unread(&self) -> &BTreeMap<NodeId, String> {
        &self.unread
    }

    fn read_memory(&mut self, machine: &Machine) {
        self.unread.clear();
        for node in machine.nodes() {
            let before = self.memory_before.get(&node.id).copied().unwrap_or_default();
            let (now, trouble) = after(self.memory.of_node(node.id), node, before);
            self.memory_before.insert(node.id, now);
            self.unread.extend(trouble.map(|what| (node.id, what)));
        }
    }

    /// Busy time of these CPUs in seconds.
    fn busy(&self, cpus: &[CpuId], now: &BTreeMap<CpuId, u64>) -> f64 {
        let ran = |cpu: &CpuId| Some(now.get(cpu)?.saturating_sub(*self.before.get(cpu)?));
        cpus.iter().filter_map(ran).sum::<u64>() as f64 / cpu_time::ticks_per_s()
    }
}

fn ticks(root: &Path) -> Result<BTreeMap<CpuId, u64>, KernelError> {
    Ok(cpu_time::all(root)?.into_iter().map(|time| (time.cpu, time.busy_ticks)).collect())
}

/// Distances between the nodes, by node index; [`FAR`] where the firmware gives none.
pub(super) fn distances(machine: &Machine) -> Vec<Vec<u32>> {
    let ids: Vec<NodeId> = machine.nodes().iter().map(|node| node.id).collect();
    let distance = |from: NodeId, to: NodeId| {
        let told = machine.distance(from, to);
        told.unwrap_or(if from == to { 10 } else { FAR })
    };
    ids.iter().map(|from| ids.iter().map(|to| distance(*from, *to)).collect()).collect()
}

#[cfg(test)]
mod tests {
    //! This machine, at work.

    use super::*;

    /// Processes were packed onto nodes for processors that had gone offline since the start.
    #[test]
    fn processors_that_go_offline_are_no_capacity() {
        let root = tempfile::tempdir().unwrap();
        let lists = |cpus: &[u32]| {
            let lines: String = cpus.iter().map(|cpu| format!("cpu{cpu} 1 0 1 9 0 0 0 0 0 0\n")).collect();
            std::fs::create_dir_all(root.path().join("proc")).unwrap();
            std::fs::write(root.path().join("proc/stat"), format!("cpu 1 0 1 9 0 0 0 0 0 0\n{lines}")).unwrap();
        };
        // Four nodes of four processors.
        let machine = Machine::load("opteron-8385").unwrap();
        lists(&(0..16).collect::<Vec<_>>());
        let mut looker = Looker::under(root.path()).unwrap();
        lists(&[0, 1, 2, 3, 4, 8, 9]);
        let cpus: Vec<f64> = looker.capacity(&machine, &[]).unwrap().nodes.iter().map(|node| node.cpus).collect();
        assert_eq!(cpus, [4.0, 1.0, 2.0, 0.0]);
    }

    /// A node whose file could not be read had no memory: processes on it were packed onto others.
    #[test]
    fn memory_that_cannot_be_read_is_not_gone() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/stat"), "cpu 1 0 1 9 0 0 0 0 0 0\ncpu0 1 0 1 9 0 0 0 0 0 0\n").unwrap();
        let machine = Machine::load("opteron-8385").unwrap();
        let folder = |node: u32| root.path().join(format!("sys/devices/system/node/node{node}"));
        for node in 0..2 {
            std::fs::create_dir_all(folder(node)).unwrap();
            let text = format!("Node {node} MemTotal: 1000 kB\nNode {node} MemFree: 400 kB\n");
            std::fs::write(folder(node).join("meminfo"), text).unwrap();
        }
        // A folder in the place of a file: reading it fails, also for root.
        std::fs::create_dir_all(folder(2).join("meminfo")).unwrap();
        let mut looker = Looker::under(root.path()).unwrap();
        let mut memory = || {
            let nodes = looker.capacity(&machine, &[]).unwrap().nodes;
            let of: Vec<(u64, u64)> = nodes.iter().map(|node| (node.memory_bytes, node.memory_taken)).collect();
            (of, looker.unread().keys().copied().collect::<Vec<_>>())
        };
        let (known, full) = ((1000 << 10, 600 << 10), machine.nodes()[2].memory_bytes);
        assert!(full > 0);
        // The last node is offline.
        assert_eq!(memory(), (vec![known, known, (full, full), (0, 0)], vec![NodeId(2)]));
        std::fs::remove_file(folder(1).join("meminfo")).unwrap();
        std::fs::create_dir_all(folder(1).join("meminfo")).unwrap();
        assert_eq!(memory(), (vec![known, known, (full, full), (0, 0)], vec![NodeId(1), NodeId(2)]), "as before");
    }

    #[test]
    fn nodes_have_processors_and_memory_and_work_is_seen() {
        let machine = Machine::live().unwrap();
        let mut looker = Looker::new().unwrap();
        let begun = Instant::now();
        let mut capacity = MachineCapacity::default();
        // However little of the processor this test gets, the machine is busy meanwhile.
        while capacity.nodes.iter().map(|node| node.cpus_taken).sum::<f64>() < 0.2 && begun.elapsed().as_secs() < 60 {
            let spin = Instant::now();
            while spin.elapsed().as_millis() < 200 {}
            capacity = looker.capacity(&machine, &[]).unwrap();
        }
        assert_eq!((capacity.nodes.len(), capacity.distance[0][0]), (machine.nodes().len(), 10));
        let node = &capacity.nodes[0];
        assert!(node.cpus >= 1.0 && node.cpus_taken >= 0.0 && node.memory_taken < node.memory_bytes, "{node:?}");
        // Whoever uses all of it leaves nothing taken by others.
        let demand = Demand { cpus: 1e6, memory_bytes: vec![u64::MAX / 2; capacity.nodes.len()], ..Demand::default() };
        let capacity = looker.capacity(&machine, &[demand]).unwrap();
        assert!(capacity.nodes.iter().all(|node| node.cpus_taken == 0.0 && node.memory_taken == 0));
    }
}
