//! [`Machine`]: checked parts, the tables derived from them, and the queries on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::check;
use crate::error::Problem;
use crate::hardware::{
    Cache, CacheKind, Coherence, CoreFigures, Cpu, Endpoint, Figure, Link, MachineSource, Node, Router, Routing,
    TrafficFigures,
};
use crate::ids::{CpuId, LinkId, NodeId};
use crate::node_index::NodeIndex;
use crate::parts::MachineParts;
use crate::route::{Edge, Graph};

/// Default idle latency of a local load: the middle of the range of servers of the last ten years.
const GUESSED_LOCAL_LATENCY_NS: f64 = 100.0;

/// A NUMA machine: the live one, or one from a model file. Immutable, and consistent by construction: ids are unique, every CPU is in
/// at most one node, links join things that exist, and where there are links, every node reaches every other.
///
/// It serialises to its plain parts (JSON in a trace) and is checked again when it is read back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "MachineParts", into = "MachineParts")]
pub struct Machine {
    parts: MachineParts,
    node_index: BTreeMap<NodeId, NodeIndex>,
    cpu_index: BTreeMap<CpuId, usize>,
    /// Per CPU (by index), the position of its L3 among the L3 caches.
    l3_of_cpu: Vec<Option<usize>>,
    /// `[from * nodes + to]`: all equal paths; empty on the diagonal and where links are unknown. Machines that differ only in figures have them in common:
    /// 64 nodes have tens of thousands of paths.
    routes: Arc<[Vec<Vec<LinkId>>]>,
}

impl TryFrom<MachineParts> for Machine {
    type Error = Problem;

    /// Checks the parts and derives the tables.
    fn try_from(parts: MachineParts) -> Result<Self, Problem> {
        check::parts(&parts)?;
        let node_index: BTreeMap<_, _> = parts.nodes.iter().enumerate().map(|(i, n)| (n.id, NodeIndex(i))).collect();
        let cpu_index: BTreeMap<_, _> = parts.cpus.iter().enumerate().map(|(i, c)| (c.id, i)).collect();
        let mut l3_of_cpu = vec![None; parts.cpus.len()];
        for (position, cache) in parts.caches.iter().filter(|c| is_l3(c)).enumerate() {
            for cpu in &cache.cpus {
                l3_of_cpu[cpu_index[cpu]] = Some(position);
            }
        }
        let routes = routes(&parts, &node_index).into();
        let machine = Self { parts, node_index, cpu_index, l3_of_cpu, routes };
        machine.check_connected()?;
        Ok(machine)
    }
}

impl From<Machine> for MachineParts {
    fn from(machine: Machine) -> Self {
        machine.parts
    }
}

fn is_l3(cache: &Cache) -> bool {
    cache.level == 3 && cache.kind != CacheKind::Instruction
}

/// Derives the paths of every pair, and puts the explicit ones over them.
fn routes(parts: &MachineParts, node_index: &BTreeMap<NodeId, NodeIndex>) -> Vec<Vec<Vec<LinkId>>> {
    let count = parts.nodes.len();
    let mut routes = vec![Vec::new(); count * count];
    if parts.links.is_empty() {
        return routes;
    }
    let vertex = |end: Endpoint| match end {
        Endpoint::Node(node) => node_index[&node].0,
        Endpoint::Router(router) => count + usize::from(router.0),
    };
    let edge = |l: &Link| Edge { from: vertex(l.from), to: vertex(l.to), bandwidth: l.bandwidth_bytes_per_s };
    let graph = Graph::new(count + parts.routers.len(), parts.links.iter().map(edge).collect());
    for from in 0..count {
        for to in (0..count).filter(|&to| to != from) {
            routes[from * count + to] = match parts.routing {
                Routing::Shortest => graph.shortest(from, to),
                Routing::Widest => graph.widest(from, to),
            };
        }
    }
    for route in &parts.routes {
        routes[node_index[&route.from].0 * count + node_index[&route.to].0] = route.paths.clone();
    }
    routes
}

impl Machine {
    /// The same machine with idle latencies, and bandwidths in bytes per second of memories and links, filled in where they are unknown (without links: one
    /// from each node to each other): for models of a live system without these values. The caller must report the assumption.
    pub fn filled_in(
        &self,
        latency_ns: impl Fn(NodeId, NodeId) -> f64,
        memory_bytes_per_s: f64,
        link_bytes_per_s: f64,
    ) -> Result<Self, Problem> {
        let mut parts = self.parts.clone();
        let pairs = |nodes: &[Node]| nodes.iter().flat_map(|a| nodes.iter().map(|b| (a.id, b.id))).collect::<Vec<_>>();
        for (row, from) in parts.idle_latency_ns.iter_mut().zip(&self.parts.nodes) {
            for (known, to) in row.iter_mut().zip(&self.parts.nodes) {
                if from.has_cpus() && to.has_memory() {
                    known.get_or_insert_with(|| latency_ns(from.id, to.id));
                }
            }
        }
        for node in parts.nodes.iter_mut().filter(|node| node.has_memory()) {
            node.memory_bandwidth_bytes_per_s.get_or_insert(memory_bytes_per_s);
        }
        if parts.links.is_empty() {
            let apart = pairs(&self.parts.nodes).into_iter().filter(|(from, to)| from != to);
            let link = |(number, (from, to)): (usize, (NodeId, NodeId))| Link {
                id: LinkId(number as u16),
                from: Endpoint::Node(from),
                to: Endpoint::Node(to),
                bandwidth_bytes_per_s: link_bytes_per_s,
                latency_ns: None,
                kind: "assumed".to_owned(),
            };
            parts.links = apart.enumerate().map(link).collect();
        }
        Self::try_from(parts)
    }

    /// This machine with the latencies, bandwidths and links of a model that has the same nodes.
    pub fn with_figures_of(&self, model: &Self) -> Result<Self, Problem> {
        let mut parts = self.parts.clone();
        parts.idle_latency_ns.clone_from(&model.parts.idle_latency_ns);
        for (node, figures) in parts.nodes.iter_mut().zip(&model.parts.nodes) {
            node.memory_bandwidth_bytes_per_s = figures.memory_bandwidth_bytes_per_s;
            node.cpus_read_bytes_per_s = figures.cpus_read_bytes_per_s;
            node.cpus_write_bytes_per_s = figures.cpus_write_bytes_per_s;
        }
        parts.links.clone_from(&model.parts.links);
        parts.routers.clone_from(&model.parts.routers);
        parts.routing = model.parts.routing;
        parts.routes.clone_from(&model.parts.routes);
        parts.traffic = model.parts.traffic;
        parts.core = model.parts.core;
        parts.unknowns.clone_from(&model.parts.unknowns);
        parts.coherence = model.parts.coherence;
        Self::try_from(parts)
    }

    /// This machine with the bandwidths that `of` gives for its nodes' memory, in bytes per second.
    ///
    /// # Errors
    /// A bandwidth is one that no machine has.
    pub fn with_memory_bandwidths(&self, of: impl Fn(&Node) -> Option<f64>) -> Result<Self, Problem> {
        let mut parts = self.parts.clone();
        for node in &mut parts.nodes {
            node.memory_bandwidth_bytes_per_s = of(node);
        }
        self.with_figures_in(parts)
    }

    /// This machine with other figures in `parts`: the same nodes, CPUs, caches and links, joined as they are.
    pub(crate) fn with_figures_in(&self, parts: MachineParts) -> Result<Self, Problem> {
        // Bandwidths choose the paths only where the widest are wanted.
        if parts.routing != Routing::Shortest {
            return Self::try_from(parts);
        }
        check::parts(&parts)?;
        let Self { node_index, cpu_index, l3_of_cpu, routes, .. } = self;
        Ok(Self {
            parts,
            node_index: node_index.clone(),
            cpu_index: cpu_index.clone(),
            l3_of_cpu: l3_of_cpu.clone(),
            routes: Arc::clone(routes),
        })
    }

    /// Where links are known, every node must reach every other: a request goes one way and its answer the other.
    fn check_connected(&self) -> Result<(), Problem> {
        if self.parts.links.is_empty() {
            return Ok(());
        }
        for from in self.nodes() {
            for to in self.nodes().iter().filter(|to| to.id != from.id) {
                if self.routes(from.id, to.id).is_empty() {
                    return Err(Problem::new(
                        "links",
                        format!("no route leads from node {} to node {}", from.id, to.id),
                        format!(
                            "add the missing [[links]], so that node {} reaches node {} directly or over other nodes or routers",
                            from.id, to.id
                        ),
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The machine's description and origin.
impl Machine {
    /// Short name: a model's, or `live`.
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// Origin of the description.
    pub fn source(&self) -> &MachineSource {
        &self.parts.source
    }

    /// Model name of the processors, if the kernel shows one.
    pub fn cpu_model(&self) -> Option<&str> {
        self.parts.cpu_model.as_deref()
    }

    /// The machine in one sentence.
    pub fn description(&self) -> Option<&str> {
        self.parts.description.as_deref()
    }

    /// Core clock in MHz: nominal for models; on a live system the one CPU 0 had when it was read.
    pub fn clock_mhz(&self) -> Option<f64> {
        self.parts.clock_mhz
    }

    /// How coherence is kept, where known.
    pub fn coherence(&self) -> Option<Coherence> {
        self.parts.coherence
    }

    /// Whether every miss sends probes to all nodes; `None` where unknown.
    pub fn broadcasts_probes(&self) -> Option<bool> {
        self.parts.coherence.map(|c| c == Coherence::Broadcast)
    }

    /// How far its cores overlap memory accesses.
    pub fn core(&self) -> &CoreFigures {
        &self.parts.core
    }

    /// Parameters of the description for the traffic model.
    pub fn traffic(&self) -> &TrafficFigures {
        &self.parts.traffic
    }

    pub(crate) fn parts(&self) -> &MachineParts {
        &self.parts
    }

    /// Every figure of the description with its source, in the order of the file.
    pub fn figures(&self) -> &[Figure] {
        &self.parts.figures
    }

    /// What could not be read or is implausible, in whole sentences.
    pub fn notes(&self) -> &[String] {
        &self.parts.notes
    }
}

/// Nodes, CPUs and caches.
impl Machine {
    /// All nodes by ascending number.
    pub fn nodes(&self) -> &[Node] {
        &self.parts.nodes
    }

    /// The node with this number.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.node_index(id).map(|i| &self.parts.nodes[i])
    }

    /// Position of a node in [`Machine::nodes`].
    pub fn node_index(&self, id: NodeId) -> Option<NodeIndex> {
        self.node_index.get(&id).copied()
    }

    /// All CPUs, online or not, by ascending number.
    pub fn cpus(&self) -> &[Cpu] {
        &self.parts.cpus
    }

    /// The CPU with this number.
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        self.cpu_index.get(&id).map(|&i| &self.parts.cpus[i])
    }

    /// The node that a CPU is in.
    pub fn node_of_cpu(&self, id: CpuId) -> Option<NodeId> {
        self.cpu(id)?.node
    }

    /// Whether threads can run on a node now: one of its CPUs is online.
    pub fn has_online_cpus(&self, node: &Node) -> bool {
        node.cpus.iter().any(|id| self.cpu(*id).is_some_and(|cpu| cpu.online))
    }

    /// Nodes on which threads can run now, with or without memory, by ascending number: those over which threads and processes are spread.
    pub fn cpu_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes().iter().filter(|node| self.has_online_cpus(node))
    }

    /// Nodes that have CPUs on which threads can run now and memory, by ascending number: those that can hold what their own threads access.
    pub fn cpu_and_memory_nodes(&self) -> impl Iterator<Item = &Node> {
        self.cpu_nodes().filter(|node| node.has_memory())
    }

    /// Number of CPUs online.
    pub fn online_cpu_count(&self) -> usize {
        self.cpus().iter().filter(|c| c.online).count()
    }

    /// Number of distinct cores among the CPUs online; CPUs of unknown core count as one each.
    pub fn online_core_count(&self) -> usize {
        self.cpus().iter().filter(|cpu| self.is_first_of_core(cpu)).count()
    }

    /// Number of distinct cores among these CPUs, as far as they are online. All hardware threads of a core have to be among them, or none.
    pub fn online_cores_of(&self, cpus: &[CpuId]) -> usize {
        cpus.iter().filter_map(|id| self.cpu(*id)).filter(|cpu| self.is_first_of_core(cpu)).count()
    }

    /// Whether this CPU is online, and the first that is of its core: each core has one such CPU.
    fn is_first_of_core(&self, cpu: &Cpu) -> bool {
        let is_online = |id: &&CpuId| self.cpu(**id).is_some_and(|cpu| cpu.online);
        cpu.online && cpu.siblings.iter().find(is_online).is_none_or(|first| *first == cpu.id)
    }

    /// Numbers of the packages, ascending.
    pub fn sockets(&self) -> Vec<crate::SocketId> {
        let mut sockets: Vec<_> = self.cpus().iter().filter_map(|c| c.socket).collect();
        sockets.extend(self.nodes().iter().filter_map(|n| n.socket));
        sockets.sort_unstable();
        sockets.dedup();
        sockets
    }

    /// Installed memory of all nodes in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.nodes().iter().map(|n| n.memory_bytes).fold(0, u64::saturating_add)
    }

    /// Every cache, by level, kind and first CPU.
    pub fn caches(&self) -> &[Cache] {
        &self.parts.caches
    }

    /// The data (or unified) cache of a level that a CPU uses.
    pub fn data_cache(&self, cpu: CpuId, level: u8) -> Option<&Cache> {
        self.caches().iter().find(|c| c.level == level && c.kind != CacheKind::Instruction && c.cpus.contains(&cpu))
    }

    /// The L3 caches: [`Machine::l3_index`] counts in this order.
    pub fn l3_caches(&self) -> Vec<&Cache> {
        self.caches().iter().filter(|c| is_l3(c)).collect()
    }

    /// Index of the L3 cache of a CPU; `None` where it has none or it is not known.
    pub fn l3_index(&self, cpu: CpuId) -> Option<usize> {
        self.l3_of_cpu[*self.cpu_index.get(&cpu)?]
    }
}

/// Distances, latencies, links and routes.
impl Machine {
    fn pair(&self, from: NodeId, to: NodeId) -> Option<(NodeIndex, NodeIndex)> {
        Some((self.node_index(from)?, self.node_index(to)?))
    }

    /// ACPI distance (10 is local); `None` where the system does not say.
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<u32> {
        let (from, to) = self.pair(from, to)?;
        self.parts.distances[from][to]
    }

    /// Latency in nanoseconds of a dependent random load from a CPU of `from` to memory of `to` with the machine otherwise idle. `None` where
    /// unknown, and where `from` has no CPUs or `to` no memory.
    pub fn idle_latency_ns(&self, from: NodeId, to: NodeId) -> Option<f64> {
        let (from, to) = self.pair(from, to)?;
        self.parts.idle_latency_ns[from][to]
    }

    /// The same in core cycles; needs the clock too.
    pub fn idle_latency_cycles(&self, from: NodeId, to: NodeId) -> Option<f64> {
        Some(self.idle_latency_ns(from, to)? * self.clock_mhz()? / 1000.0)
    }

    /// Idle latency in nanoseconds where known, else the local one (100 ns where that is unknown too) times distance over 10 (20 between nodes of unknown
    /// distance): for ordering nodes, and for simulating on a live machine, whose firmware tells local latencies at most. Never shown as a figure.
    pub fn idle_latency_or_guess_ns(&self, from: NodeId, to: NodeId) -> f64 {
        let distance = || f64::from(self.distance(from, to).unwrap_or(if from == to { 10 } else { 20 }));
        let local = || self.idle_latency_ns(from, from).unwrap_or(GUESSED_LOCAL_LATENCY_NS);
        self.idle_latency_ns(from, to).unwrap_or_else(|| local() * distance() / 10.0)
    }

    /// Points of the interconnect that are no nodes.
    pub fn routers(&self) -> &[Router] {
        &self.parts.routers
    }

    /// All directed links; empty where they are unknown (live systems).
    pub fn links(&self) -> &[Link] {
        &self.parts.links
    }

    /// The link with this id.
    pub fn link(&self, id: LinkId) -> Option<&Link> {
        self.parts.links.get(usize::from(id.0))
    }

    /// How routes were derived where the model gives none.
    pub fn routing(&self) -> Routing {
        self.parts.routing
    }

    /// All equal paths from one node to another, each a chain of links. Empty from a node to itself and where links are unknown.
    /// At most 16 are kept per pair. Traffic is taken to split evenly between them.
    pub fn routes(&self, from: NodeId, to: NodeId) -> &[Vec<LinkId>] {
        match self.pair(from, to) {
            Some((from, to)) => &self.routes[from.0 * self.parts.nodes.len() + to.0],
            None => &[],
        }
    }

    /// The first of [`Machine::routes`]: the one that takes the links listed first.
    pub fn route(&self, from: NodeId, to: NodeId) -> &[LinkId] {
        self.routes(from, to).first().map_or(&[], Vec::as_slice)
    }

    /// How many links the way from one node to another has; 0 to itself, `None` where links are unknown.
    pub fn hops(&self, from: NodeId, to: NodeId) -> Option<usize> {
        match self.routes(from, to).first() {
            Some(path) => Some(path.len()),
            None if from == to && self.node_index(from).is_some() => Some(0),
            None => None,
        }
    }
}
