//! [`MemorySystem`]: a machine in the model's terms: stations, the path of every access, fixed latencies.

use numapilot_machine::{LinkId, Machine, NodeId};

use crate::error::TrafficError;
use crate::service::Service;
use crate::ways::Way;

/// By how much the services on a way may exceed its idle latency before that is an error: rounding of published figures.
const LATENCY_TOLERANCE: f64 = 0.01;

/// Kind of a station.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Station {
    /// Memory controller of a node, by index and number.
    Controller { node: usize, id: NodeId },
    /// A directed link of the interconnect.
    Link { id: LinkId, bandwidth_bytes_per_s: f64 },
    /// What all CPUs of a node together read from memory at most.
    ReadPort { id: NodeId, bandwidth_bytes_per_s: f64 },
    /// What they write to it at most.
    WritePort { id: NodeId, bandwidth_bytes_per_s: f64 },
}

/// The memory system of a machine: what a [`crate::Solver`] needs to answer any [`crate::Load`]. Immutable; make it once per machine.
#[derive(Clone, Debug)]
pub struct MemorySystem {
    nodes: usize,
    clock_mhz: Option<f64>,
    stations: Vec<Station>,
    /// `[from * nodes + to]`.
    ways: Vec<Option<Way>>,
    broadcasts: bool,
    queues: f64,
    /// Stations below this one are controllers.
    first_link: usize,
    crowding: f64,
}

impl MemorySystem {
    /// The memory system of `machine`. Fails where the machine lacks what the model needs: memory bandwidths, links (of several nodes) with their bandwidths,
    /// idle latencies; or where these contradict each other.
    pub fn new(machine: &Machine) -> Result<Self, TrafficError> {
        let service = Service::new(machine)?;
        let nodes = machine.nodes();
        if machine.links().is_empty() && nodes.len() > 1 {
            return Err(TrafficError::NoLinks { machine: machine.name().to_owned() });
        }
        let mut ways = Vec::with_capacity(nodes.len() * nodes.len());
        for from in 0..nodes.len() {
            for to in 0..nodes.len() {
                let mut way = Way::new(machine, &service, from, to);
                if let Some(way) = way.as_mut().filter(|_| nodes[from].has_cpus()) {
                    way.fixed_ns = Some(fixed_ns(machine, way, nodes[from].id, nodes[to].id)?);
                }
                ways.push(way);
            }
        }
        let controllers = nodes.iter().enumerate().filter(|(_, n)| n.has_memory());
        let controllers = controllers.map(|(node, n)| Station::Controller { node, id: n.id });
        let links = machine.links().iter();
        let links = links.zip(&service.link_bytes_per_s);
        let links = links.map(|(l, &bandwidth_bytes_per_s)| Station::Link { id: l.id, bandwidth_bytes_per_s });
        let ports = nodes.iter().flat_map(|node| {
            let id = node.id;
            let read = node.cpus_read_bytes_per_s;
            let read = read.map(|bandwidth_bytes_per_s| Station::ReadPort { id, bandwidth_bytes_per_s });
            let write = node.cpus_write_bytes_per_s;
            let write = write.map(|bandwidth_bytes_per_s| Station::WritePort { id, bandwidth_bytes_per_s });
            [read, write].into_iter().flatten()
        });
        Ok(Self {
            nodes: nodes.len(),
            clock_mhz: machine.clock_mhz(),
            stations: controllers.chain(links).chain(ports).collect(),
            ways,
            broadcasts: machine.broadcasts_probes() == Some(true),
            queues: 1.0,
            first_link: service.first_link,
            crowding: machine.traffic().crowding.unwrap_or(0.0),
        })
    }

    /// The same with queues in which accesses wait so many times as long as the model says *at the same load*: a number above 0. The load follows from the
    /// latencies, so that no station serves more than it can: those that wait at a full one wait as long as it takes, by whatever factor. Queues of solutions
    /// ([`crate::StationLoad::queue`]) stay the model's.
    #[must_use]
    pub fn with_queues(self, queues: f64) -> Self {
        Self { queues, ..self }
    }

    /// How many nodes the machine has; loads and solutions index them from 0.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// How many stations there are: controllers, then directed links, then the ports of nodes whose CPUs have a limit of their own.
    pub fn stations(&self) -> usize {
        self.stations.len()
    }

    /// Core clock in MHz, where it is known.
    pub fn clock_mhz(&self) -> Option<f64> {
        self.clock_mhz
    }

    /// Indexes of the nodes with memory, in the order of their controllers.
    pub(crate) fn controllers(&self) -> impl Iterator<Item = usize> {
        self.stations.iter().filter_map(|station| match station {
            Station::Controller { node, .. } => Some(*node),
            Station::Link { .. } | Station::ReadPort { .. } | Station::WritePort { .. } => None,
        })
    }

    pub(crate) fn kinds(&self) -> &[Station] {
        &self.stations
    }

    pub(crate) fn way(&self, from: usize, to: usize) -> Option<&Way> {
        self.ways[from * self.nodes + to].as_ref()
    }

    pub(crate) fn broadcasts(&self) -> bool {
        self.broadcasts
    }

    /// Whether accesses wait for others at controllers before these have queues.
    pub(crate) fn crowds(&self) -> bool {
        self.crowding > 0.0
    }

    /// What an access that sees this stretch at a station waits there beside the queue, over its service. A stretch of y is what a queue makes of others that
    /// take 1 - 1 / y of the station's time, and a single access sees none. On its way the iteration passes points where a class sees less than an idle
    /// station: nobody gains there.
    pub(crate) fn crowd(&self, station: usize, stretch: f64) -> f64 {
        if station < self.first_link { self.crowding * (1.0 - 1.0 / stretch).max(0.0) } else { 0.0 }
    }

    /// Derivative of [`MemorySystem::crowd`] by the stretch, at a solution (there, no stretch is below 1 by more than rounding; at 1, others can only be more).
    pub(crate) fn crowd_slope(&self, station: usize, stretch: f64) -> f64 {
        if station < self.first_link { self.crowding / (stretch * stretch) } else { 0.0 }
    }

    /// Wait in queues over what the model says at the same load.
    pub(crate) fn queues(&self) -> f64 {
        self.queues
    }
}

/// Idle latency less the services on the way.
fn fixed_ns(machine: &Machine, way: &Way, from: NodeId, to: NodeId) -> Result<f64, TrafficError> {
    let machine_name = || machine.name().to_owned();
    let Some(idle_ns) = machine.idle_latency_ns(from, to) else {
        return Err(TrafficError::NoLatency { machine: machine_name(), from, to });
    };
    let service_ns = way.service_ns();
    if service_ns > idle_ns * (1.0 + LATENCY_TOLERANCE) {
        return Err(TrafficError::ServiceExceedsLatency { machine: machine_name(), from, to, idle_ns, service_ns });
    }
    Ok((idle_ns - service_ns).max(0.0))
}
