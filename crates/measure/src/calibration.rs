//! A calibrated model: what the fit gives, and what a model file is written from.

use std::collections::BTreeMap;

use numapilot_machine::{Machine, NodeId};
use serde::{Deserialize, Serialize};

/// A bandwidth and how it is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Bandwidth in bytes per second.
    pub bytes_per_s: f64,
    /// Whether the limit itself was not seen, so that this is an estimate from below it.
    pub estimate: bool,
    /// Where that is so: the least and the most that it may be, bytes per second. Predictions draw it from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64)>,
    /// Method by which it was found, in words.
    pub source: String,
}

/// How well the model reproduces a measured curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairFit {
    /// Node of the CPUs.
    pub from: NodeId,
    /// Node of the memory.
    pub to: NodeId,
    /// Root of the mean squared relative error of latency over the points.
    pub error: f64,
    /// Greatest relative error of latency over the points.
    pub worst: f64,
    /// Bytes per second, nanoseconds measured, nanoseconds of the model.
    pub points: Vec<(f64, f64, f64)>,
}

/// How far measured queueing delays are from the model's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueingDelay {
    /// Least queueing delay over the model's.
    pub low: f64,
    /// Greatest queueing delay over the model's.
    pub high: f64,
    /// Number of curves that rose enough to tell. Without any, the range is that of the model on another machine.
    pub curves: usize,
}

/// Nanoseconds of each pair, with the words that say where they are from.
pub type Latencies = BTreeMap<(NodeId, NodeId), (f64, String)>;

/// The parameters of a machine model beyond the machine's topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Idle latencies, nanoseconds, with their words.
    pub latency_ns: Latencies,
    /// Read bandwidth of each node's controller.
    pub controllers: BTreeMap<NodeId, Limit>,
    /// Bandwidth of each directed link, headers included.
    pub links: BTreeMap<(NodeId, NodeId), Limit>,
    /// What all CPUs of a node together read at most, of nodes where that shows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub read_ports: BTreeMap<NodeId, Limit>,
    /// Accesses that a thread of STREAM keeps outstanding.
    pub stream_outstanding: Option<f64>,
    /// Additional time of a written line over a read one, as a share of the latter.
    pub write_turnaround: Option<f64>,
    /// Wait beside queues where others keep a controller busy all the time, over a line's service; `None` where no latency under load rose.
    #[serde(default)]
    pub crowding: Option<f64>,
    /// How well all of it fits.
    pub fits: Vec<PairFit>,
    /// How far queueing delays are from the model's; `None` where no latency under load was measured.
    pub queueing_delay: Option<QueueingDelay>,
}

/// Nodes that a model file describes: those with CPUs online or memory.
pub fn shown_nodes(machine: &Machine) -> impl Iterator<Item = &numapilot_machine::Node> {
    machine.nodes().iter().filter(|node| node.has_memory() || has_online_cpus(machine, node.id))
}

pub fn has_online_cpus(machine: &Machine, node: NodeId) -> bool {
    machine.node(node).is_some_and(|node| node.cpus.iter().any(|cpu| machine.cpu(*cpu).is_some_and(|cpu| cpu.online)))
}
