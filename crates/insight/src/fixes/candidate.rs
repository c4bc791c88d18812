//! A fix before it is priced, as detectors and `whatif` propose it.

use numapilot_flows::SiteId;
use numapilot_machine::{Machine, NodeId, NodeIndex};
use numapilot_trace::ids::{ProcessIndex, ThreadIndex};

use super::costs::{COPY_BYTES_PER_S, MOVE_SMALL_NS, PAGE_BYTES};
use super::kind::{Effect, Fix, FixKind};
use crate::facts::SiteFacts;
use crate::scene::Scene;

/// Share of a controller's load that the fix must move: sites are added until they make up this share.
const MOST_OF_A_CONTROLLER: f64 = 0.8;
/// Least relative difference of an interleaving weight from an even one for which weights are proposed.
const UNEVEN: f64 = 0.1;
/// Largest weight; weights are whole numbers.
const WEIGHT_MAX: f64 = 10.0;

/// A kind of fix, and the objects, threads or processes that it concerns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FixCandidate {
    pub kind: FixKind,
    sites: Vec<SiteId>,
    bytes: u64,
    live_bytes: u64,
    instances: u64,
    hand_overs: u64,
    /// Threads or processes with the node of each; empty: where the recording says that they belong.
    seats: Vec<(u32, NodeIndex)>,
}

impl FixCandidate {
    /// A fix of one site's objects.
    pub fn of(kind: FixKind, facts: &SiteFacts) -> FixCandidate {
        FixCandidate::of_groups(kind, &[facts])
    }

    /// A fix of the objects of all these groups together.
    pub fn of_groups(kind: FixKind, groups: &[&SiteFacts]) -> FixCandidate {
        let sum = |of: fn(&SiteFacts) -> u64| groups.iter().map(|facts| of(facts)).sum();
        FixCandidate {
            kind,
            sites: groups.iter().map(|facts| facts.site).collect(),
            bytes: sum(|facts| facts.bytes),
            live_bytes: sum(|facts| facts.live_bytes),
            instances: sum(|facts| facts.instances),
            hand_overs: sum(|facts| facts.stretches.max(facts.instances)),
            seats: Vec::new(),
        }
    }

    /// A fix of all memory; `groups` supply its sizes and counts.
    pub fn of_all_groups(kind: FixKind, groups: &[&SiteFacts]) -> FixCandidate {
        FixCandidate { sites: Vec::new(), ..FixCandidate::of_groups(kind, groups) }
    }

    fn plain(kind: FixKind) -> FixCandidate {
        FixCandidate {
            kind,
            sites: Vec::new(),
            bytes: 0,
            live_bytes: 0,
            instances: 0,
            hand_overs: 0,
            seats: Vec::new(),
        }
    }

    /// Pins the threads that the scheduler moved.
    pub fn of_threads() -> FixCandidate {
        FixCandidate::plain(FixKind::PinThreads)
    }

    /// Pins all processes.
    pub fn of_processes() -> FixCandidate {
        FixCandidate::plain(FixKind::PinProcesses)
    }

    /// The same fix for these threads or processes, each on a node.
    pub fn with_seats(self, seats: Vec<(u32, NodeIndex)>) -> FixCandidate {
        FixCandidate { seats, ..self }
    }

    /// The node of a thread or process; `recorded` is the node that follows from the recording.
    pub fn seat(&self, of: u32, recorded: Option<NodeIndex>) -> Option<NodeIndex> {
        if self.seats.is_empty() {
            return recorded;
        }
        self.seats.iter().find(|(known, _)| *known == of).map(|(_, node)| *node)
    }

    /// Interleaves all memory.
    pub fn of_all() -> FixCandidate {
        FixCandidate::plain(FixKind::InterleaveAll)
    }

    /// Interleaving with weights that leave all controllers equally loaded, where these are not even anyway.
    pub fn weighted(scene: &Scene<'_>, facts: &SiteFacts) -> Option<FixCandidate> {
        let nodes = scene.machine.nodes();
        let (mut others, mut own) = (vec![0.0; nodes.len()], 0.0);
        for (cell, count) in &scene.usage.cells {
            let Some(home) = cell.home.index() else { continue };
            if cell.group == facts.site.0 {
                own += count;
            } else {
                others[home] += count;
            }
        }
        let open: Vec<NodeIndex> = NodeIndex::all(nodes.len()).filter(|&node| nodes[node].has_memory()).collect();
        let mean = (open.iter().map(|&node| others[node]).sum::<f64>() + own) / open.len() as f64;
        let room: Vec<f64> = open.iter().map(|&node| (mean - others[node]).max(0.0)).collect();
        let sum: f64 = room.iter().sum();
        let even = 1.0 / open.len() as f64;
        if sum <= 0.0 || room.iter().all(|room| (room / sum - even).abs() < UNEVEN * even) {
            return None;
        }
        let most = room.iter().copied().fold(0.0, f64::max);
        let weight = |room: f64| (WEIGHT_MAX * room / most).round() as u32;
        let weights: Vec<(NodeId, u32)> =
            open.iter().zip(&room).map(|(&node, room)| (nodes[node].id, weight(*room))).collect();
        let weights = weights.into_iter().filter(|(_, weight)| *weight > 0).collect();
        Some(FixCandidate::of(FixKind::WeightedInterleave(weights), facts))
    }

    /// Spreads the heaviest sites on a node.
    pub fn relieve(scene: &Scene<'_>, node: NodeIndex) -> Vec<FixCandidate> {
        let mut on: Vec<(&SiteFacts, f64)> = Vec::new();
        for facts in &scene.sites {
            let all: f64 = facts.on.iter().map(|on| on.weight).sum();
            on.push((facts, facts.all.weight * facts.on[node].weight / all.max(1.0)));
        }
        on.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.site.cmp(&b.0.site)));
        let whole: f64 = (scene.usage.cells.iter())
            .filter(|(cell, _)| cell.home.index() == Some(node))
            .map(|(_, count)| count)
            .sum();
        let mut candidate = FixCandidate::plain(FixKind::Interleave);
        let mut moved = 0.0;
        for (facts, weight) in on.into_iter().filter(|(_, weight)| *weight > 0.0) {
            if moved >= MOST_OF_A_CONTROLLER * whole {
                break;
            }
            moved += weight;
            candidate.sites.push(facts.site);
        }
        if candidate.sites.is_empty() { Vec::new() } else { vec![candidate] }
    }

    /// Fixes that reduce the interconnect traffic of the site with most time at stake.
    pub fn shorten(scene: &Scene<'_>) -> Vec<FixCandidate> {
        let Some(facts) = scene.sites.first() else { return Vec::new() };
        let mut candidates =
            vec![FixCandidate::of(FixKind::FirstTouchByUsers, facts), FixCandidate::of(FixKind::Interleave, facts)];
        if facts.write_samples == 0 {
            candidates.push(FixCandidate::of(FixKind::Replicate, facts));
        }
        candidates
    }

    /// Whether it places memory, as opposed to threads or processes.
    pub fn is_of_memory(&self) -> bool {
        !matches!(self.kind, FixKind::PinThreads | FixKind::PinProcesses)
    }

    /// Largest number of bytes of its objects that are live at one moment.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// What it puts on one node, or on those with CPUs together, does not fit there: bytes that are live at one moment, and all memory that there is. `None` if
    /// it fits, even if nothing else is there.
    pub fn too_large_for(&self, machine: &Machine) -> Option<(u64, u64)> {
        let with_cpus: Vec<u64> = machine.cpu_and_memory_nodes().map(|node| node.memory_bytes).collect();
        let room = match &self.kind {
            FixKind::AllocateOnNode(node) => machine.node(*node)?.memory_bytes,
            FixKind::NearTier => with_cpus.into_iter().fold(0, u64::saturating_add),
            FixKind::Replicate => with_cpus.into_iter().min()?,
            _ => return None,
        };
        (self.live_bytes > room).then_some((self.live_bytes, room))
    }

    /// Whether it changes anything for a group.
    pub fn is_about(&self, group: u32) -> bool {
        self.sites.is_empty() || self.sites.contains(&SiteId(group))
    }

    /// Run time that the fix itself takes, ns.
    pub fn cost_ns(&self, machine: &Machine) -> f64 {
        let bandwidths = machine.nodes().iter().filter_map(|node| node.memory_bandwidth_bytes_per_s);
        let slowest = bandwidths.fold(f64::INFINITY, f64::min);
        match self.kind {
            FixKind::Replicate => {
                // All copies are read from one place.
                let bytes_per_s = if slowest.is_finite() { slowest / 2.0 } else { COPY_BYTES_PER_S };
                copies_of(self.bytes, machine) as f64 / bytes_per_s * 1e9
            }
            FixKind::MigrateAtHandOver => {
                // Each instance's takers move it by themselves; as many at a time as there are nodes on which threads run.
                let takers = machine.cpu_nodes().count().max(1);
                let at_once = (self.instances.max(1) as f64).min(takers as f64);
                self.moves_ns() / at_once
            }
            _ => 0.0,
        }
    }

    /// Time that the fix itself takes, ns: the sum over all threads that carry it out.
    pub fn cost_of_all_ns(&self, machine: &Machine) -> f64 {
        match self.kind {
            FixKind::MigrateAtHandOver => self.moves_ns(),
            _ => self.cost_ns(machine),
        }
    }

    /// Time of all its moves at hand-over, one after the other, ns.
    fn moves_ns(&self) -> f64 {
        let pages = (self.bytes as f64 / self.instances.max(1) as f64 / PAGE_BYTES).ceil();
        self.hand_overs as f64 * pages * MOVE_SMALL_NS
    }

    /// The fix with its predicted gain.
    pub fn fix(&self, scene: &Scene<'_>, effect: Effect) -> Fix {
        let id = |index: NodeIndex| scene.machine.nodes()[index].id;
        let threads = match self.kind {
            FixKind::PinThreads => (scene.seats.of_moved.iter().enumerate())
                .filter_map(|(thread, seat)| seat.map(|seat| (ThreadIndex(thread as u32), id(seat))))
                .collect(),
            _ => Vec::new(),
        };
        let processes = match self.kind {
            FixKind::PinProcesses => {
                scene.processes.seat.iter().map(|(process, seat)| (ProcessIndex(*process), id(*seat))).collect()
            }
            _ => Vec::new(),
        };
        let more_bytes = self.more_bytes(scene.machine);
        let Effect { gain, work_gain, uncertainty } = effect;
        let (kind, sites) = (self.kind.clone(), self.sites.clone());
        Fix { kind, sites, threads, processes, gain, work_gain, uncertainty, more_bytes }
    }

    /// Further memory that it takes, bytes: every instance is copied, but no more than are live at one moment have copies then.
    pub fn more_bytes(&self, machine: &Machine) -> u64 {
        if self.kind == FixKind::Replicate { copies_of(self.live_bytes, machine) } else { 0 }
    }
}

/// Bytes of the copies of `bytes` bytes on all other nodes that have CPUs and memory.
fn copies_of(bytes: u64, machine: &Machine) -> u64 {
    bytes.saturating_mul(copies(machine) as u64)
}

/// Copies of a replicated page beside the original: one on each other node that has memory and CPUs that are online.
pub(crate) fn copies(machine: &Machine) -> usize {
    machine.cpu_and_memory_nodes().count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_fits_where_there_is_as_much() {
        let machine = Machine::load("xeon-2s-cxl").expect("a model");
        let near: Vec<u64> =
            machine.nodes().iter().filter(|node| node.has_cpus()).map(|node| node.memory_bytes).collect();
        let lacks = |kind: FixKind, live_bytes: u64| {
            FixCandidate::of(kind, &SiteFacts { live_bytes, ..SiteFacts::default() }).too_large_for(&machine)
        };
        let first = machine.nodes()[0].id;
        for (kind, room) in [
            (FixKind::AllocateOnNode(first), near[0]),
            (FixKind::NearTier, near.iter().sum()),
            (FixKind::Replicate, near.iter().copied().min().expect("a node")),
        ] {
            assert_eq!(lacks(kind.clone(), room), None, "{kind:?}");
            assert_eq!(lacks(kind.clone(), room + 1), Some((room + 1, room)), "{kind:?}");
        }
        assert_eq!(lacks(FixKind::Interleave, u64::MAX), None, "it was in this machine's memory before");
    }

    #[test]
    fn a_node_without_cpus_gets_no_copy() {
        let copies = |name: &str| copies(&Machine::load(name).expect("a model"));
        assert_eq!((copies("xeon-2s-cxl"), copies("xeon-2s"), copies("opteron-8385")), (1, 1, 3));
    }

    /// As after `echo 0 > /sys/devices/system/cpu/cpuN/online` for all CPUs of a node.
    #[test]
    fn a_node_whose_cpus_are_all_offline_is_as_one_without_cpus() {
        let folder = numapilot_host::testing::tree("offline-cpus");
        let put = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).expect("written");
        let machine = || Machine::from_sysfs(folder.path()).expect("a machine");
        let near = |machine: &Machine| {
            let facts = SiteFacts { live_bytes: u64::MAX, ..SiteFacts::default() };
            FixCandidate::of(FixKind::NearTier, &facts).too_large_for(machine).expect("too large").1
        };
        let whole = machine();
        assert_eq!((copies(&whole), near(&whole)), (1, whole.memory_bytes()));
        put("sys/devices/system/cpu/online", "0-2");
        put("sys/devices/system/node/node1/cpulist", "");
        let half = machine();
        assert_eq!((copies(&half), near(&half)), (0, half.nodes()[0].memory_bytes));
    }

    #[test]
    fn memory_that_is_handed_over_is_moved_by_nodes_with_cpus_alone() {
        let machine = Machine::load("xeon-2s-cxl").expect("a model");
        let facts = SiteFacts { bytes: 8 << 12, instances: 8, stretches: 24, ..SiteFacts::default() };
        // One page each, 24 times, two at a time: the third node has no CPUs.
        let cost_ns = FixCandidate::of(FixKind::MigrateAtHandOver, &facts).cost_ns(&machine);
        assert!((cost_ns - 12.0 * MOVE_SMALL_NS).abs() < 1e-6, "{cost_ns}");
    }
}
