//! `numapilot maps`: a process's memory by object and node, from `numa_maps` (pages by node, policy), `smaps` (sizes, transparent huge pages, swap), and
//! the CPUs of its threads (what lies far from them).
//!
//! The two files are read one after the other, not at one moment: a mapping that is made or removed in between has no size, or no pages. The pages by node are
//! those of `numa_maps`, exactly.

mod again;
mod area;
mod csv;
mod json;
mod last_seen;
mod numastat;
mod object;
mod text;
mod tree;

pub use area::Area;
pub use area::HugeFile;
pub use area::Kind;
pub use csv::csv;
pub use csv::csv_heading;
pub use json::json;
pub use last_seen::LastSeen;
pub use numastat::NUMASTAT_KINDS;
pub use object::Key;
pub use object::Object;
pub use text::TextOptions;
pub use text::text;
pub use tree::total_by_node;
pub use tree::tree_text;

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use numapilot_kernel::KernelError;
use numapilot_kernel::maps;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;

use crate::error::WatchError;
use crate::places::Places;
use numapilot_host::Pid;
use numapilot_host::Root;

/// A process's memory at one moment.
#[derive(Clone, Debug, Default)]
pub struct MemoryMap {
    /// Process id.
    pub pid: Pid,
    /// The process's title, or its name (`comm`).
    pub name: String,
    /// All mappings, by address.
    pub areas: Vec<Area>,
    /// Nodes that hold pages of the process, ascending.
    pub nodes: Vec<NodeId>,
    /// Share of its threads' processor time by node.
    pub runs_on: Vec<(NodeId, f64)>,
    /// Number of its threads.
    pub threads: usize,
    /// Nodes whose memory is far from its threads.
    pub far_nodes: Vec<NodeId>,
    /// Notes for the reader, in whole sentences.
    pub notes: Vec<String>,
}

/// Reads processes' memory. It keeps buffers, and the threads' previous readings, between calls.
#[derive(Debug, Default)]
pub struct Reader {
    places: BTreeMap<Pid, Places>,
    numa_maps: Vec<u8>,
    smaps: Vec<u8>,
}

impl Reader {
    /// Reads a process's memory.
    ///
    /// # Errors
    /// The process has ended ([`KernelError::Gone`]) or may not be inspected, or the kernel has no numa_maps.
    pub fn read(&mut self, root: &Root, machine: &Machine, pid: Pid) -> Result<MemoryMap, WatchError> {
        let name = self.name(root, pid)?;
        match maps::read_under(root.path(), pid, "numa_maps", &mut self.numa_maps) {
            Err(KernelError::NoFile { .. }) => return Err(WatchError::NoNumaMaps { pid }),
            other => other?,
        }
        let mut notes = Vec::new();
        if let Err(error) = maps::read_under(root.path(), pid, "smaps", &mut self.smaps) {
            self.smaps.clear();
            notes.push(format!("Sizes, transparent huge pages and swap are unknown: {error}."));
        }
        let places = self.places.entry(pid).or_default();
        places.look(root, machine, pid)?;
        let areas = area::join(&self.numa_maps, &self.smaps);
        if areas.is_empty() {
            notes.push("The process has no memory of its own: it is a kernel thread, or is ending.".to_owned());
        }
        notes.extend(again::note(&self.smaps));
        let mut nodes: Vec<NodeId> = areas.iter().flat_map(|area| area.pages.iter().map(|(node, _)| *node)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        Ok(MemoryMap {
            pid,
            name,
            areas,
            nodes,
            runs_on: places.shares().collect(),
            threads: places.threads(),
            far_nodes: places.far_nodes(machine),
            notes,
        })
    }

    /// Forgets the previous readings of all but these processes.
    pub fn keep(&mut self, pids: &BTreeSet<Pid>) {
        self.places.retain(|pid, _| pids.contains(pid));
    }

    fn name(&mut self, root: &Root, pid: Pid) -> Result<String, WatchError> {
        match root.read(&format!("proc/{pid}/comm"), &mut self.smaps) {
            Ok(_) => Ok(numapilot_host::title(root, pid, &mut self.smaps)),
            Err(error) if numapilot_host::is_gone(&error.source) => Err(KernelError::Gone { pid }.into()),
            Err(error) => Err(error.into()),
        }
    }
}

impl MemoryMap {
    /// Whether memory of this node is far from its threads.
    #[must_use]
    pub fn is_far(&self, node: NodeId) -> bool {
        self.far_nodes.contains(&node)
    }

    /// Bytes by node, in the order of [`MemoryMap::nodes`].
    #[must_use]
    pub fn bytes_by_node(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| self.areas.iter().map(|area| area.bytes_on(*node)).sum()).collect()
    }

    /// Bytes far from its threads.
    #[must_use]
    pub fn far_bytes(&self) -> u64 {
        self.areas.iter().map(|area| area.far_bytes(&self.far_nodes)).sum()
    }

    /// The mappings as objects: those of one file, kind and policy together, ordered by `key`. `apart`: every mapping is an object.
    #[must_use]
    pub fn objects(&self, key: Key, apart: bool) -> Vec<Object> {
        object::objects(&self.areas, &self.far_nodes, key, apart)
    }
}

#[cfg(test)]
mod tests;
