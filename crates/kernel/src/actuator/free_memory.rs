//! How much memory a node can provide without reclaiming memory in use: free memory and what can be dropped at once (file cache, reclaimable slabs), less
//! the kernel's reserves. The kernel's own estimate for the whole system is MemAvailable (`si_mem_available` in `mm/show_mem.c`); this is the same per node,
//! with the node's part of its reserve (`calculate_totalreserve_pages` in `mm/page_alloc.c`).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::FileError;
use numapilot_host::Root;
use numapilot_host::meminfo::amounts;
use numapilot_machine::NodeId;

use crate::error::KernelError;

/// A node's memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// Memory that the node has (MemTotal).
    pub total_bytes: u64,
    /// Free memory (MemFree).
    pub free_bytes: u64,
    /// Cached file pages on the reclaim lists.
    pub file_bytes: u64,
    /// Slabs and other memory of the kernel that can be given back.
    pub slab_bytes: u64,
    /// What the kernel does not go below without reclaiming (sum of the zones' low watermarks).
    pub low_bytes: u64,
    /// What is not for programs: of each zone the high watermark, and what is kept there from those who could take memory of a higher zone.
    pub reserve_bytes: u64,
}

impl NodeMemory {
    /// What could be given out, estimated as `si_mem_available` does: half of the cache, at most as much as the low watermark, is taken to be needed.
    #[must_use]
    pub fn available_bytes(&self) -> u64 {
        let usable = |bytes: u64| bytes - (bytes / 2).min(self.low_bytes);
        (self.free_bytes + usable(self.file_bytes) + usable(self.slab_bytes)).saturating_sub(self.reserve_bytes)
    }
}

/// How long watermarks hold: they change with settings, and reading them is slow (`/proc/zoneinfo` is long).
const WATERMARKS_FOR: Duration = Duration::from_secs(60);

/// The file that has a node's memory, relative to the root: of a kernel without nodes all memory counts as node 0.
#[must_use]
pub fn file_of_node(root: &Root, node: NodeId) -> String {
    let file = format!("sys/devices/system/node/node{node}/meminfo");
    let is_without_nodes = node == NodeId(0) && !root.has(&file) && !root.has("sys/devices/system/node/online");
    if is_without_nodes { "proc/meminfo".to_owned() } else { file }
}

/// Reads nodes' memory again and again.
#[derive(Clone, Debug)]
pub struct NodeFreeMemory {
    root: Root,
    kept: BTreeMap<NodeId, Kept>,
    read_at: Option<Instant>,
}

impl Default for NodeFreeMemory {
    fn default() -> NodeFreeMemory {
        NodeFreeMemory::under(Path::new("/"))
    }
}

impl NodeFreeMemory {
    /// The free memory of the system whose files are under `root`.
    #[must_use]
    pub fn under(root: &Path) -> NodeFreeMemory {
        NodeFreeMemory { root: Root::new(root), kept: BTreeMap::new(), read_at: None }
    }

    /// Reads a node's memory now.
    ///
    /// # Errors
    /// The system has no such node, or its files cannot be read.
    pub fn of_node(&mut self, node: NodeId) -> Result<NodeMemory, KernelError> {
        if self.read_at.is_none_or(|then| then.elapsed() >= WATERMARKS_FOR) {
            // Where it cannot be read, nothing is known to be kept back.
            self.kept = kept_back(&self.root.text("proc/zoneinfo").unwrap_or_default());
            self.read_at = Some(Instant::now());
        }
        let mut text = Vec::new();
        let read = self.root.read(&file_of_node(&self.root, node), &mut text);
        let text = read.map_err(|FileError { path, source }| KernelError::File { path, source })?;
        let Kept { low_pages, reserve_pages } = self.kept.get(&node).copied().unwrap_or_default();
        let bytes = |pages: u64| pages.saturating_mul(super::page_bytes());
        Ok(NodeMemory { low_bytes: bytes(low_pages), reserve_bytes: bytes(reserve_pages), ..meminfo(text) })
    }
}

/// The text of `/sys/devices/system/node/nodeN/meminfo` (`Node 0 MemFree: 123 kB`).
fn meminfo(text: &[u8]) -> NodeMemory {
    let mut memory = NodeMemory::default();
    for (name, bytes) in amounts(text) {
        match name {
            b"MemTotal" => memory.total_bytes = bytes,
            b"MemFree" => memory.free_bytes = bytes,
            b"Active(file)" | b"Inactive(file)" => memory.file_bytes += bytes,
            // The first has the second in it; kernels before 4.20 have the second alone.
            b"KReclaimable" | b"SReclaimable" => memory.slab_bytes = memory.slab_bytes.max(bytes),
            _ => {}
        }
    }
    memory
}

/// What a node's zones keep back, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Kept {
    low_pages: u64,
    reserve_pages: u64,
}

/// A zone of `/proc/zoneinfo`, in pages.
#[derive(Clone, Copy, Debug, Default)]
struct Zone {
    node: NodeId,
    low: u64,
    high: u64,
    /// That the kernel's allocator has; `None`: not told.
    managed: Option<u64>,
    /// Kept from those who could take memory of a higher zone: the largest of the amounts.
    protection: u64,
}

impl Zone {
    /// Takes in a line: `min`, `low`, `high`, `managed` with a number, `protection: (0, 3019, 24090)`. The per-CPU lists further down have other words.
    fn line(&mut self, line: &str) {
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(value)) = (words.next(), words.next()) else { return };
        if name == "protection:" {
            let amounts = line.split(|character: char| !character.is_ascii_digit());
            self.protection = amounts.filter_map(|amount| amount.parse().ok()).max().unwrap_or(0);
            return;
        }
        let Ok(pages) = value.parse::<u64>() else { return };
        match name {
            "low" => self.low = pages,
            "high" => self.high = pages,
            "managed" => self.managed = Some(pages),
            _ => {}
        }
    }
}

/// What nodes keep back, by the text of `/proc/zoneinfo`.
fn kept_back(text: &str) -> BTreeMap<NodeId, Kept> {
    let mut zones: Vec<Zone> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Node ") {
            let node = rest.split(',').next().and_then(|number| number.trim().parse().ok()).map(NodeId);
            zones.extend(node.map(|node| Zone { node, ..Zone::default() }));
        } else if let Some(zone) = zones.last_mut() {
            zone.line(line);
        }
    }
    let mut nodes: BTreeMap<NodeId, Kept> = BTreeMap::new();
    for Zone { node, low, high, managed, protection } in zones {
        let kept = nodes.entry(node).or_default();
        kept.low_pages = kept.low_pages.saturating_add(low);
        let reserve = protection.saturating_add(high).min(managed.unwrap_or(u64::MAX));
        kept.reserve_pages = kept.reserve_pages.saturating_add(reserve);
    }
    nodes
}

#[cfg(test)]
mod tests {
    //! Text as Linux 6.12 writes it.

    use std::fs;

    use super::*;

    #[test]
    fn the_figures_are_read_and_added_up_as_the_kernel_does() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/devices/system/node/node1");
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        let text = "Node 1 MemTotal:         516032 kB\nNode 1 MemFree:          100000 kB\nNode 1 Active(file):      20000 kB\n\
                    Node 1 Inactive(file):    30000 kB\nNode 1 KReclaimable:       1000 kB\nNode 1 Slab:               2000 kB\n\
                    Node 1 SReclaimable:        900 kB\nNode 1 HugePages_Total:     0\n";
        fs::write(folder.join("meminfo"), text).unwrap();
        let zones = "Node 0, zone      DMA\n  pages free     3840\n        min      21\n        low      26\n        high     31\n\
                     Node 1, zone    DMA32\n  pages free     1\n        low      100\n        high     120\n        managed  1000\n\
                     \x20       protection: (0, 0, 5000, 5000)\n  pagesets\n    cpu: 0\n              high:  378\n\
                     Node 1, zone   Normal\n        low      150\n        high     180\n        managed  90000\n\
                     \x20       protection: (0, 0, 0, 0)\n";
        fs::write(root.path().join("proc/zoneinfo"), zones).unwrap();
        let mut free_memory = NodeFreeMemory::under(root.path());
        let found = free_memory.of_node(NodeId(1)).unwrap();
        let page = super::super::page_bytes();
        assert_eq!(found.low_bytes, 250 * page);
        assert_eq!(found.reserve_bytes, (1000 + 180) * page, "of a zone no more than it has");
        assert_eq!((found.free_bytes, found.file_bytes, found.slab_bytes), (100_000 << 10, 50_000 << 10, 1000 << 10));
        let (low, reserve) = (found.low_bytes, found.reserve_bytes);
        let slab = (1000 << 10) - low.min(500 << 10);
        assert_eq!(found.available_bytes(), (100_000 << 10) - reserve + (50_000 << 10) - low + slab);
        assert!(matches!(free_memory.of_node(NodeId(7)), Err(KernelError::File { .. })));
    }

    /// It had no memory: `advise` said that no program fits.
    #[test]
    fn of_a_kernel_without_nodes_the_first_has_all_memory() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        let text =
            "MemTotal:        1000 kB\nMemFree:          400 kB\nActive(file):     100 kB\nSReclaimable:      50 kB\n";
        fs::write(root.path().join("proc/meminfo"), text).unwrap();
        let mut free_memory = NodeFreeMemory::under(root.path());
        let found = free_memory.of_node(NodeId(0)).unwrap();
        assert_eq!((found.total_bytes, found.available_bytes()), (1000 << 10, 550 << 10));
        assert!(free_memory.of_node(NodeId(1)).is_err(), "there is no other");
        fs::create_dir_all(root.path().join("sys/devices/system/node")).unwrap();
        fs::write(root.path().join("sys/devices/system/node/online"), "2\n").unwrap();
        assert!(free_memory.of_node(NodeId(0)).is_err(), "a node that is offline");
    }

    #[test]
    fn a_full_node_has_nothing_to_give() {
        let full = NodeMemory { free_bytes: 10, reserve_bytes: 100, ..NodeMemory::default() };
        assert_eq!(full.available_bytes(), 0);
    }
}
