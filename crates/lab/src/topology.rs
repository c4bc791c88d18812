//! The guest's machine: memory nodes, their CPUs, their distances, and the firmware's table of latencies and bandwidths (HMAT).
//! Pure: from a description to QEMU's arguments.

use crate::arch::Arch;
use crate::error::LabError;

/// The distance of a node from itself, by ACPI's definition (SLIT).
const LOCAL: u8 = 10;
/// Latency that the HMAT states per unit of distance; bandwidth falls as distance grows. Only what firmware says: the guest's memory is all alike.
const HMAT_NS_PER_DISTANCE: u32 = 10;
const HMAT_LOCAL_MIB_PER_S: u32 = 20_480;
/// Node-to-node distances of a four-socket Opteron 6200 server, as `numactl --hardware` prints them on such machines: two nodes a socket,
/// links to some of the others only.
const OPTERON: [[u8; 8]; 8] = [
    [10, 16, 16, 22, 16, 22, 16, 22],
    [16, 10, 22, 16, 22, 16, 22, 16],
    [16, 22, 10, 16, 16, 22, 16, 22],
    [22, 16, 16, 10, 22, 16, 22, 16],
    [16, 22, 16, 22, 10, 16, 16, 22],
    [22, 16, 22, 16, 16, 10, 22, 16],
    [16, 22, 16, 22, 16, 22, 10, 16],
    [22, 16, 22, 16, 22, 16, 16, 10],
];

/// A machine with nodes `0..n`; CPUs are numbered by node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    cpus: Vec<u32>,
    memory_mib: Vec<u32>,
    distances: Vec<Vec<u8>>,
    hmat: bool,
}

impl Topology {
    /// `nodes` nodes of two CPUs and 512 MiB each, every other one at distance 20.
    pub fn symmetric(nodes: usize) -> Self {
        let row = |i| (0..nodes).map(|j| if i == j { LOCAL } else { 20 }).collect();
        Self::with_distances((0..nodes).map(row).collect())
    }

    /// The first `nodes` (up to eight) nodes of a four-socket Opteron, where some nodes are one link away and some two: 10, 16, 22.
    pub fn opteron(nodes: usize) -> Self {
        Self::with_distances(OPTERON.iter().take(nodes).map(|row| row[..nodes.min(8)].to_vec()).collect())
    }

    /// Nodes of two CPUs and 512 MiB each with the given distances (row: from, column: to), which are checked when the lab starts.
    pub fn with_distances(distances: Vec<Vec<u8>>) -> Self {
        let nodes = distances.len();
        Self { cpus: vec![2; nodes], memory_mib: vec![512; nodes], distances, hmat: false }
    }

    /// Reads distances as text: a row a line, numbers separated by blanks, `#` starts a comment.
    ///
    /// # Errors
    /// Names the line that is no row of numbers from 0 to 255.
    pub fn parse_distances(text: &str) -> Result<Vec<Vec<u8>>, LabError> {
        let mut rows = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let words = line.split('#').next().unwrap_or("").split_whitespace();
            let row: Result<Vec<u8>, _> = words.map(str::parse).collect();
            let row = row.map_err(|e| LabError::Topology(format!("line {} of the distances: {e}", index + 1)))?;
            if !row.is_empty() {
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// CPUs of each node that has any.
    #[must_use]
    pub fn cpus_per_node(mut self, cpus: u32) -> Self {
        for slot in self.cpus.iter_mut().filter(|c| **c > 0) {
            *slot = cpus;
        }
        self
    }

    /// Memory of each node, MiB.
    #[must_use]
    pub fn memory_per_node_mib(mut self, mib: u32) -> Self {
        self.memory_mib.fill(mib);
        self
    }

    /// Adds a node without CPUs, as CXL memory is: nearer (24) to one node, in turn, than to the others (34).
    #[must_use]
    pub fn memory_only_node(mut self) -> Self {
        let with_cpus = self.cpus.iter().filter(|&&c| c > 0).count().max(1);
        let without = self.cpus.len() - with_cpus.min(self.cpus.len());
        let near = without % with_cpus;
        for (node, row) in self.distances.iter_mut().enumerate() {
            row.push(if node == near { 24 } else { 34 });
        }
        let mut row: Vec<u8> = self.distances.iter().filter_map(|r| r.last().copied()).collect();
        row.push(LOCAL);
        self.distances.push(row);
        self.memory_mib.push(self.memory_mib.last().copied().unwrap_or(512));
        self.cpus.push(0);
        self
    }

    /// Whether the firmware has latencies and bandwidths (an ACPI HMAT table), derived from the distances.
    #[must_use]
    pub fn hmat(mut self, on: bool) -> Self {
        self.hmat = on;
        self
    }

    /// Number of nodes, with and without CPUs.
    pub fn nodes(&self) -> usize {
        self.cpus.len()
    }

    /// Memory of a node, MiB; 0 of one that there is not.
    pub fn memory_mib(&self, node: usize) -> u64 {
        self.memory_mib.get(node).copied().map_or(0, u64::from)
    }

    /// Number of all CPUs.
    pub fn cpus(&self) -> u32 {
        self.cpus.iter().sum()
    }

    /// First and last CPU of a node; none of a node that has none.
    pub fn cpus_of(&self, node: usize) -> Option<(u32, u32)> {
        let first: u32 = self.cpus.iter().take(node).sum();
        let count = *self.cpus.get(node)?;
        (count > 0).then(|| (first, first + count - 1))
    }

    /// The distances, row: from, column: to.
    pub fn distances(&self) -> &[Vec<u8>] {
        &self.distances
    }

    /// Guest-physical memory: first address, address after the last, node. QEMU's q35 lays nodes one after another, and leaves a hole below 4 GiB where
    /// memory does not fit into 2.75 GiB: what is above 2 GiB is behind 4 GiB then (`hw/i386/pc_q35.c`).
    pub(crate) fn memory_ranges(&self) -> Vec<(u64, u64, usize)> {
        const MIB: u64 = 1 << 20;
        const HIGH: u64 = 4 << 30;
        let all: u64 = self.memory_mib.iter().map(|&m| u64::from(m) * MIB).sum();
        let low = if all >= 0xb000_0000 { 2 << 30 } else { all };
        let mut ranges = Vec::new();
        let mut at = 0;
        for (node, &mib) in self.memory_mib.iter().enumerate() {
            let end = at + u64::from(mib) * MIB;
            if at < low {
                ranges.push((at, end.min(low), node));
            }
            if end > low {
                ranges.push((HIGH + at.max(low) - low, HIGH + end - low, node));
            }
            at = end;
        }
        ranges
    }

    /// The topology in words: `4 nodes, 8 CPUs, 2048 MiB`.
    pub fn summary(&self) -> String {
        let without = self.cpus.iter().filter(|&&c| c == 0).count();
        let memory: u32 = self.memory_mib.iter().sum();
        let only = if without == 0 { String::new() } else { format!(" ({without} of memory only)") };
        format!(
            "{} nodes{only}, {} CPUs, {memory} MiB{}",
            self.nodes(),
            self.cpus(),
            if self.hmat { ", HMAT" } else { "" }
        )
    }

    fn check(&self) -> Result<(), LabError> {
        let no = |what: String| Err(LabError::Topology(what));
        let nodes = self.nodes();
        if !(1..=64).contains(&nodes) {
            return no(format!("{nodes} nodes; QEMU supports 1 to 64"));
        }
        if self.cpus[0] == 0 || self.cpus() > 255 {
            return no(format!(
                "{} CPUs, {} of them on node 0; node 0 needs at least 1, and all nodes together have at most 255",
                self.cpus(),
                self.cpus[0]
            ));
        }
        if let Some(mib) = self.memory_mib.iter().find(|m| **m < 64) {
            return no(format!("{mib} MiB on a node; the kernel needs at least 64"));
        }
        for (from, row) in self.distances.iter().enumerate() {
            if row.len() != nodes {
                return no(format!("{} distances from node {from}, but there are {nodes} nodes", row.len()));
            }
            for (to, &distance) in row.iter().enumerate() {
                let valid = if from == to { distance == LOCAL } else { distance > LOCAL && distance < 255 };
                if !valid {
                    return no(format!(
                        "distance {distance} from node {from} to node {to}; give 10 within a node, and 11 to 254 between nodes"
                    ));
                }
            }
        }
        Ok(())
    }

    /// QEMU's arguments for it.
    ///
    /// # Errors
    /// Rejects a topology that QEMU or the kernel does not support.
    pub(crate) fn arguments(&self, arch: Arch) -> Result<Vec<String>, LabError> {
        self.check()?;
        let machine = arch.machine(self.hmat)?;
        let mut words: Vec<String> = Vec::new();
        let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
        option("-M", machine.to_owned());
        option("-m", format!("{}M", self.memory_mib.iter().sum::<u32>()));
        let with_cpus = self.cpus.iter().filter(|&&c| c > 0).count();
        let per_socket = self.cpus[0];
        option("-smp", format!("{},sockets={with_cpus},cores={per_socket},threads=1", self.cpus()));
        for (node, mib) in self.memory_mib.iter().enumerate() {
            option("-object", format!("memory-backend-ram,id=m{node},size={mib}M"));
            let cpus = self.cpus_of(node).map(|(first, last)| format!(",cpus={first}-{last}")).unwrap_or_default();
            let initiator = if self.hmat { format!(",initiator={}", self.initiator(node)) } else { String::new() };
            option("-numa", format!("node,nodeid={node}{cpus},memdev=m{node}{initiator}"));
        }
        for (from, row) in self.distances.iter().enumerate() {
            for (to, distance) in row.iter().enumerate().filter(|(to, _)| *to != from) {
                option("-numa", format!("dist,src={from},dst={to},val={distance}"));
            }
        }
        if self.hmat {
            words.extend(self.hmat_arguments());
        }
        Ok(words)
    }

    /// The node whose CPUs reach this node's memory best.
    fn initiator(&self, node: usize) -> usize {
        (0..self.nodes()).filter(|&i| self.cpus[i] > 0).min_by_key(|&i| self.distances[i][node]).unwrap_or(0)
    }

    fn hmat_arguments(&self) -> Vec<String> {
        let mut words = Vec::new();
        for from in (0..self.nodes()).filter(|&i| self.cpus[i] > 0) {
            for to in 0..self.nodes() {
                let distance = u32::from(self.distances[from][to]);
                let latency = distance * HMAT_NS_PER_DISTANCE;
                let bandwidth = HMAT_LOCAL_MIB_PER_S * u32::from(LOCAL) / distance;
                let pair = format!("hmat-lb,initiator={from},target={to},hierarchy=memory");
                words.extend(["-numa".into(), format!("{pair},data-type=access-latency,latency={latency}")]);
                words.extend(["-numa".into(), format!("{pair},data-type=access-bandwidth,bandwidth={bandwidth}M")]);
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symmetric_machine_in_qemus_words() {
        let words = Topology::symmetric(2).arguments(Arch::X86_64).expect("a machine").join(" ");
        assert_eq!(
            words,
            "-M q35 -m 1024M -smp 4,sockets=2,cores=2,threads=1 \
             -object memory-backend-ram,id=m0,size=512M -numa node,nodeid=0,cpus=0-1,memdev=m0 \
             -object memory-backend-ram,id=m1,size=512M -numa node,nodeid=1,cpus=2-3,memdev=m1 \
             -numa dist,src=0,dst=1,val=20 -numa dist,src=1,dst=0,val=20"
        );
    }

    #[test]
    fn memory_beyond_the_hole_is_behind_4_gib() {
        let gib = 1 << 30;
        let two = Topology::symmetric(2).memory_per_node_mib(1024);
        assert_eq!(two.memory_ranges(), [(0, gib, 0), (gib, 2 * gib, 1)]);
        let three = Topology::symmetric(2).memory_per_node_mib(1536);
        let half = gib / 2;
        assert_eq!(three.memory_ranges(), [(0, 3 * half, 0), (3 * half, 4 * half, 1), (4 * gib, 5 * gib, 1)]);
        let eight = Topology::symmetric(4).memory_per_node_mib(2048);
        assert_eq!(eight.memory_ranges()[1..3], [(4 * gib, 6 * gib, 1), (6 * gib, 8 * gib, 2)]);
    }

    #[test]
    fn a_node_of_memory_only_has_a_nearest_initiator() {
        let topology = Topology::opteron(4).memory_only_node().memory_only_node().hmat(true);
        assert_eq!(topology.distances()[4], [24, 34, 34, 34, 10, 34]);
        assert_eq!(topology.distances()[5], [34, 24, 34, 34, 34, 10]);
        assert_eq!((topology.nodes(), topology.cpus(), topology.cpus_of(4)), (6, 8, None));
        let words = topology.arguments(Arch::X86_64).expect("a machine").join(" ");
        assert!(words.contains("-numa node,nodeid=5,memdev=m5,initiator=1"), "{words}");
        assert!(
            words.contains("initiator=1,target=5,hierarchy=memory,data-type=access-latency,latency=240"),
            "{words}"
        );
        assert!(!words.contains("hmat-lb,initiator=4"), "a node without CPUs starts no access: {words}");
    }

    #[test]
    fn distances_are_read_and_checked() {
        let rows = Topology::parse_distances("# two\n10 21\n\n31 10 # asymmetric\n").expect("numbers");
        assert_eq!(rows, [[10, 21], [31, 10]]);
        assert!(Topology::with_distances(rows).arguments(Arch::X86_64).is_ok());
        let wrong = |text: &str| {
            Topology::parse_distances(text)
                .and_then(|d| Topology::with_distances(d).arguments(Arch::X86_64))
                .map_err(|e| e.to_string())
        };
        for (text, part) in [
            ("10 300\n20 10", "line 1"),
            ("10 20\n20", "1 distances from node 1"),
            ("10 9\n9 10", "distance 9 from node 0 to node 1"),
            ("20", "distance 20 from node 0 to node 0"),
            ("", "0 nodes"),
        ] {
            let message = wrong(text).expect_err("no machine");
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn the_opterons_distances_are_symmetric() {
        for (i, row) in OPTERON.iter().enumerate() {
            for (j, &distance) in row.iter().enumerate() {
                assert_eq!(distance, OPTERON[j][i]);
            }
        }
    }
}
