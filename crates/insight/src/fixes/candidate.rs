//! A fix before it is priced, as detectors and `whatif` propose it.

use std::collections::BTreeMap;

use numapilot_flows::SiteId;
use numapilot_machine::{Machine, Node, NodeId, NodeIndex};
use numapilot_trace::ids::{ProcessIndex, ThreadIndex};

use super::bandwidth;
use super::costs::{COPY_BYTES_PER_S, MOVE_SMALL_NS, PAGE_BYTES};
use super::kind::{Effect, Fix, FixKind};
use crate::facts::SiteFacts;
use crate::scene::Scene;

/// Share of a controller's load that the fix must move: sites are added until they make up this share.
const MOST_OF_A_CONTROLLER: f64 = 0.8;
/// Share of a site's accesses that slow memory must serve for memory of nodes with CPUs to be proposed.
const MOSTLY: f64 = 0.5;

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

    /// Interleaving with weights that leave all controllers equally loaded, for their bandwidths where these differ, where they are not even anyway.
    pub fn weighted(scene: &Scene<'_>, facts: &SiteFacts) -> Option<FixCandidate> {
        let (mut others, mut own) = (vec![0.0; scene.machine.nodes().len()], 0.0);
        for (cell, count) in &scene.usage.cells {
            let Some(home) = cell.home.index() else { continue };
            if cell.group == facts.site.0 {
                own += count;
            } else {
                others[home] += count;
            }
        }
        let open = bandwidth::memory_nodes(scene.machine);
        let others: Vec<f64> = open.iter().map(|&node| others[node]).collect();
        let weights = bandwidth::leveling(&others, own, bandwidth::shares(scene.machine).as_deref())?;
        let weights = bandwidth::named(scene.machine, &weights);
        Some(FixCandidate::of(FixKind::WeightedInterleave(weights), facts))
    }

    /// Spreads the heaviest sites on a node: evenly, and by the bandwidths of the nodes' memory where these differ. What is on slow memory can also go to nodes
    /// with CPUs.
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
        let (mut groups, mut moved): (Vec<&SiteFacts>, f64) = (Vec::new(), 0.0);
        for (facts, weight) in on.into_iter().filter(|(_, weight)| *weight > 0.0) {
            if moved >= MOST_OF_A_CONTROLLER * whole {
                break;
            }
            moved += weight;
            groups.push(facts);
        }
        if groups.is_empty() {
            return Vec::new();
        }
        let mut kinds = vec![FixKind::Interleave];
        kinds.extend(by_bandwidth(scene.machine));
        if scene.machine.is_slow_memory(&scene.machine.nodes()[node]) {
            kinds.push(FixKind::NearTier);
        }
        kinds.into_iter().map(|kind| FixCandidate::of_groups(kind, &groups)).collect()
    }

    /// Spreads a site's objects by the bandwidths of the nodes' memory; `None` where these are not known, or about the same.
    pub fn by_bandwidth(scene: &Scene<'_>, facts: &SiteFacts) -> Option<FixCandidate> {
        by_bandwidth(scene.machine).map(|kind| FixCandidate::of(kind, facts))
    }

    /// Fixes that reduce the interconnect traffic of the site with most time at stake.
    pub fn shorten(scene: &Scene<'_>) -> Vec<FixCandidate> {
        let Some(facts) = scene.sites.first() else { return Vec::new() };
        let mut candidates =
            vec![FixCandidate::of(FixKind::FirstTouchByUsers, facts), FixCandidate::of(FixKind::Interleave, facts)];
        if facts.write_samples == 0 {
            candidates.push(FixCandidate::of(FixKind::Replicate, facts));
        }
        let (nodes, on) = (scene.machine.nodes(), NodeIndex::all(facts.on.len()).zip(&facts.on));
        let slow: f64 =
            on.filter(|(node, _)| scene.machine.is_slow_memory(&nodes[*node])).map(|(_, on)| on.weight).sum();
        if slow > MOSTLY * facts.on.iter().map(|on| on.weight).sum::<f64>() {
            candidates.push(FixCandidate::of(FixKind::NearTier, facts));
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

    /// What it puts on one node, on those with CPUs together, or on several in proportion to weights does not fit there: bytes that are live at one moment, and
    /// how many there is memory for. `None` if they fit, even if nothing else is there.
    pub fn too_large_for(&self, machine: &Machine) -> Option<(u64, u64)> {
        let with_cpus: Vec<u64> = machine.cpu_and_memory_nodes().map(|node| node.memory_bytes).collect();
        let room = match &self.kind {
            FixKind::AllocateOnNode(node) => machine.node(*node)?.memory_bytes,
            FixKind::NearTier => with_cpus.into_iter().fold(0, u64::saturating_add),
            FixKind::Replicate => with_cpus.into_iter().min()?,
            FixKind::WeightedInterleave(weights) => bandwidth::room(machine, weights)?,
            _ => return None,
        };
        (self.live_bytes > room).then_some((self.live_bytes, room))
    }

    /// Whether some memory may be what both place.
    fn overlaps(&self, other: &FixCandidate) -> bool {
        self.sites.is_empty() || other.sites.is_empty() || self.sites.iter().any(|site| other.sites.contains(site))
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
        let spreads_over_all = matches!(self.kind, FixKind::Interleave | FixKind::InterleaveAll);
        let without_cpus = if spreads_over_all {
            scene.machine.memory_without_cpus().map(|node| node.id).collect()
        } else {
            Vec::new()
        };
        let Effect { gain, work_gain, uncertainty } = effect;
        let (kind, sites) = (self.kind.clone(), self.sites.clone());
        Fix { kind, sites, without_cpus, threads, processes, gain, work_gain, uncertainty, more_bytes }
    }

    /// Further memory that it takes, bytes: every instance is copied, but no more than are live at one moment have copies then.
    pub fn more_bytes(&self, machine: &Machine) -> u64 {
        if self.kind == FixKind::Replicate { copies_of(self.live_bytes, machine) } else { 0 }
    }
}

/// Interleaving with weights by bandwidth; `None` where all nodes' memory has about the same, or that of one is not known.
fn by_bandwidth(machine: &Machine) -> Option<FixKind> {
    let shares = bandwidth::shares(machine)?;
    Some(FixKind::WeightedInterleave(bandwidth::named(machine, &bandwidth::whole(&shares))))
}

/// What several fixes of different memory together put on one node, or on those with CPUs, does not fit there: these nodes, the most bytes that the fixes put
/// there, and the memory that there is. `None` if they fit, or if some are of the same memory.
pub(crate) fn too_large_together(candidates: &[FixCandidate], machine: &Machine) -> Option<(Vec<NodeId>, u64, u64)> {
    let of_memory: Vec<&FixCandidate> = candidates.iter().filter(|candidate| candidate.is_of_memory()).collect();
    let has_overlap = |at: usize| of_memory[..at].iter().any(|other| other.overlaps(of_memory[at]));
    if of_memory.len() < 2 || (0..of_memory.len()).any(has_overlap) {
        return None;
    }
    let (mut on, mut near): (BTreeMap<NodeId, u64>, u64) = (BTreeMap::new(), 0);
    let mut add = |node: NodeId, bytes: u64| {
        let sum = on.entry(node).or_default();
        *sum = sum.saturating_add(bytes);
    };
    for candidate in of_memory {
        match &candidate.kind {
            FixKind::AllocateOnNode(node) => add(*node, candidate.live_bytes),
            FixKind::WeightedInterleave(weights) => {
                let sum: f64 = weights.iter().map(|(_, weight)| f64::from(*weight)).sum();
                for (node, weight) in weights {
                    add(*node, (candidate.live_bytes as f64 * f64::from(*weight) / sum) as u64);
                }
            }
            FixKind::NearTier => near = near.saturating_add(candidate.live_bytes),
            _ => {}
        }
    }
    for (id, bytes) in &on {
        let room = machine.node(*id).map_or(u64::MAX, |node| node.memory_bytes);
        if *bytes > room {
            return Some((vec![*id], *bytes, room));
        }
    }
    let with_cpus: Vec<&Node> = machine.cpu_and_memory_nodes().collect();
    let of_one = |node: &&Node| on.get(&node.id).copied().unwrap_or(0);
    let bytes = with_cpus.iter().map(of_one).fold(near, u64::saturating_add);
    let room = with_cpus.iter().map(|node| node.memory_bytes).fold(0, u64::saturating_add);
    (near > 0 && bytes > room).then(|| (with_cpus.iter().map(|node| node.id).collect(), bytes, room))
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
            // A fifth, and four fifths of which there is half as much.
            (FixKind::WeightedInterleave(vec![(first, 1), (NodeId(2), 4)]), machine.nodes()[2].memory_bytes / 4 * 5),
        ] {
            assert_eq!(lacks(kind.clone(), room), None, "{kind:?}");
            assert_eq!(lacks(kind.clone(), room + 1), Some((room + 1, room)), "{kind:?}");
        }
        assert_eq!(lacks(FixKind::Interleave, u64::MAX), None, "it was in this machine's memory before");
    }

    /// Each of two tables fits in the memory of nodes with CPUs, and a plan was written that put both there.
    #[test]
    fn fixes_that_fit_alone_may_not_fit_together() {
        let machine = Machine::load("xeon-2s-cxl").expect("a model");
        let gib = |gib: u64| gib << 30;
        let of = |kind: FixKind, site: u32, live_bytes: u64| {
            FixCandidate::of(kind, &SiteFacts { site: SiteId(site), live_bytes, ..SiteFacts::default() })
        };
        let both = |kinds: [FixKind; 2], bytes: u64, other: u32| {
            let [first, second] = kinds;
            too_large_together(&[of(first, 0, bytes), of(second, other, bytes)], &machine)
        };
        let near = || [FixKind::NearTier, FixKind::NearTier];
        assert_eq!(both(near(), gib(256), 1), None);
        assert_eq!(both(near(), gib(300), 1), Some((vec![NodeId(0), NodeId(1)], gib(600), gib(512))));
        assert_eq!(both(near(), gib(300), 0), None, "the same memory");
        let on_one =
            [FixKind::AllocateOnNode(NodeId(2)), FixKind::WeightedInterleave(vec![(NodeId(0), 1), (NodeId(2), 1)])];
        assert_eq!(both(on_one, gib(100), 1), Some((vec![NodeId(2)], gib(150), gib(128))));
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
