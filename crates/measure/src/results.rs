//! What was measured, as plain data with units in the names: one type for text, JSON and pictures, and what a machine model is made of.

use std::fmt;

use numapilot_machine::{CpuId, NodeId};
use serde::{Deserialize, Serialize};

use crate::disturbance::Disturbance;
use crate::error::MeasureError;
use crate::kernels::{Isa, Kernel};
use crate::levels::Level;
use crate::options::Pages;
use crate::proof::Proof;
use crate::states::State;
use crate::stats::{Better, Spread};

/// Version of the JSON: rises when a field changes its meaning or goes.
pub const VERSION: u32 = 1;

/// Placement of a measurement's memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// All of it on one node.
    Node(NodeId),
    /// Page by page in turn, with this many pages of each node; all ones is plain interleaving.
    Weighted(Vec<(NodeId, u32)>),
}

impl Target {
    /// Evenly over these nodes.
    #[must_use]
    pub fn interleaved(nodes: impl IntoIterator<Item = NodeId>) -> Target {
        Target::Weighted(nodes.into_iter().map(|node| (node, 1)).collect())
    }

    /// The node that page `index` belongs on.
    #[must_use]
    pub fn node_of_page(&self, index: u64) -> NodeId {
        match self {
            Target::Node(node) => *node,
            Target::Weighted(weights) => {
                let all: u64 = weights.iter().map(|(_, weight)| u64::from(*weight)).sum();
                let mut left = index % all.max(1);
                for (node, weight) in weights {
                    match left.checked_sub(u64::from(*weight)) {
                        Some(rest) => left = rest,
                        None => return *node,
                    }
                }
                weights.first().map_or(NodeId(0), |(node, _)| *node)
            }
        }
    }

    /// The node, where all of the memory is on one.
    #[must_use]
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Target::Node(node) => Some(*node),
            Target::Weighted(_) => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Node(node) => write!(f, "node {node}"),
            Target::Weighted(weights) if weights.iter().all(|(_, weight)| *weight == 1) => f.write_str("interleaved"),
            Target::Weighted(weights) => {
                let words: Vec<String> = weights.iter().map(|(node, weight)| format!("{node}:{weight}")).collect();
                write!(f, "weighted {}", words.join(","))
            }
        }
    }
}

/// How a chase goes through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Walk {
    /// Every line of the array at random.
    Random,
    /// Pages at random, each finished before the next.
    RandomInPages,
    /// From high addresses to low ones by this many bytes, as lmbench's `lat_mem_rd`: what prefetchers hide, it does not see.
    Strided(usize),
}

/// A number, how sure it is, and what disturbed it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The number with its spread, in the unit of the field that holds it.
    #[serde(flatten)]
    pub spread: Spread,
    /// Disturbances during the measurement.
    pub disturbance: Disturbance,
}

impl Figure {
    /// Summarises the values of all repetitions.
    ///
    /// # Errors
    /// There are none, or one is not a finite number above 0.
    pub(crate) fn of(values: &[f64], better: Better, disturbance: Disturbance) -> Result<Figure, MeasureError> {
        Ok(Figure { spread: Spread::of(values, better).ok_or(MeasureError::NoFigure)?, disturbance })
    }

    /// The figure that stands for all repetitions: the best confirmed one.
    #[must_use]
    pub fn best(&self) -> f64 {
        self.spread.best
    }
}

/// Latency of one pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyCell {
    /// Node of the CPU.
    pub from: NodeId,
    /// CPU that ran the chase.
    pub cpu: CpuId,
    /// Placement of the memory.
    pub target: Target,
    /// Order in which the chase visits memory.
    pub walk: Walk,
    /// Bytes of the array.
    pub bytes: u64,
    /// Loads that were timed, in all repetitions.
    pub loads: u64,
    /// Latency in nanoseconds per load.
    pub ns: Figure,
}

/// How many misses a core keeps outstanding: a random chase beside several of them on one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overlap {
    /// Node of the CPU and of the memory.
    pub from: NodeId,
    /// CPU that ran the chases.
    pub cpu: CpuId,
    /// Chains that went side by side.
    pub chains: usize,
    /// Nanoseconds per load, of all chains.
    pub ns: Figure,
    /// Loads outstanding on average: the latency of one chain alone over these nanoseconds (Little's law).
    pub outstanding: f64,
    /// Least and most that follow from the 95 % intervals of both.
    pub range: (f64, f64),
}

impl Overlap {
    /// Computes the overlap from the same core's latency with one chain.
    pub(crate) fn of(alone: &LatencyCell, chains: usize, ns: Figure) -> Overlap {
        let ratio = |latency: f64, each: f64| (latency / each.max(1e-3)).max(1.0);
        let (one, all) = (&alone.ns.spread, &ns.spread);
        let outstanding = ratio(one.best, all.best);
        let ends = [ratio(one.low, all.high), ratio(one.high, all.low), outstanding];
        let (low, high) = ends.iter().fold((f64::MAX, 0.0_f64), |(low, high), end| (low.min(*end), high.max(*end)));
        Overlap { from: alone.from, cpu: alone.cpu, chains, ns, outstanding, range: (low, high) }
    }
}

/// One size of a staircase.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StairPoint {
    /// Bytes of the array.
    pub bytes: u64,
    /// Latency in nanoseconds per load.
    pub ns: Figure,
}

/// Latency against array size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Staircase {
    /// Node of the CPU and of the memory.
    pub from: NodeId,
    /// CPU that ran the chases.
    pub cpu: CpuId,
    /// Placement of the memory.
    pub target: Target,
    /// Order in which the chase visits memory.
    pub walk: Walk,
    /// One point per working-set size, ascending.
    pub points: Vec<StairPoint>,
    /// Steps found in them.
    pub levels: Vec<Level>,
}

/// Bandwidth of one pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BandwidthCell {
    /// Node of the CPUs.
    pub from: NodeId,
    /// Number of CPUs that ran the kernel.
    pub cpus: usize,
    /// Placement of the memory.
    pub target: Target,
    /// The bandwidth kernel.
    pub kernel: Kernel,
    /// Bytes of all arrays that the kernel uses, all CPUs together.
    pub bytes: u64,
    /// Bytes per second as STREAM counts: what the program reads and writes.
    pub bytes_per_s: Figure,
    /// What passes the controllers, if caches read lines before they write them: calculated from the above.
    pub traffic_bytes_per_s: f64,
}

/// The figures of a latency under load at one level of load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// What was asked of each neighbour, as a share of what it does without a pause; 0: none ran.
    pub asked_share: f64,
    /// Bytes per second that all neighbours and the chase moved.
    pub bytes_per_s: f64,
    /// Nanoseconds per load of the chase.
    pub ns: Figure,
}

/// Latency under load of one pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Node of the CPUs.
    pub from: NodeId,
    /// CPU of the chase.
    pub cpu: CpuId,
    /// Number of neighbour CPUs that made the load.
    pub neighbours: usize,
    /// The bandwidth kernel of the neighbours.
    pub kernel: Kernel,
    /// Placement of the memory of chase and neighbours.
    pub target: Target,
    /// One point per load, ascending.
    pub points: Vec<CurvePoint>,
}

/// How two CPUs are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// Hardware threads of one core.
    SameCore,
    /// Cores that share the last-level cache.
    SameCache,
    /// Cores of one node.
    SameNode,
    /// Nodes of one package.
    SamePackage,
    /// Cores of different packages.
    Apart,
}

impl Relation {
    /// The relation in words, for reports.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Relation::SameCore => "threads of one core",
            Relation::SameCache => "cores of one last-level cache",
            Relation::SameNode => "cores of one node",
            Relation::SamePackage => "nodes of one package",
            Relation::Apart => "different packages",
        }
    }
}

/// Hand-off of one cache line between two CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handoff {
    /// First CPU.
    pub a: CpuId,
    /// Second CPU.
    pub b: CpuId,
    /// The smallest part of the machine that holds both.
    pub relation: Relation,
    /// Nanoseconds one way: half of a round trip.
    pub ns: Figure,
}

/// The machine and software of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Model name of the processors, where the kernel shows one.
    pub cpu_model: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Core clock while measuring, by a loop of known cycles, MHz.
    pub clock_mhz: f64,
    /// The instruction set of the kernels.
    pub isa: Option<Isa>,
    /// Bytes of the greatest sum of last-level caches of a node.
    pub cache_bytes: u64,
}

/// The state of the machine in which the measurements of one node's CPUs on one memory were made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairState {
    /// Node of the CPUs.
    pub from: NodeId,
    /// Placement of the memory.
    pub target: Target,
    /// CPUs that read together before and after each measurement.
    pub cpus: usize,
    /// What they read in the most frequent state; `None` where never two probes beside one measurement agreed.
    pub state: Option<State>,
    /// The lowest and the highest that they read beside any measurement, bytes per second.
    pub range: (f64, f64),
    /// Number of measurements.
    pub cells: usize,
    /// Attempts that were left out, because they were made in another state, or while it changed.
    pub left_out: usize,
    /// Measurements, in words, that were never made in the state: their figures are of other states.
    pub of_other_states: Vec<String>,
}

impl PairState {
    /// Whether figures of several states stand side by side.
    #[must_use]
    pub fn is_mixed(&self) -> bool {
        !self.of_other_states.is_empty()
    }

    /// What the CPUs read in the least and in the best state that was seen, over what they read in this one.
    #[must_use]
    pub fn factors(&self) -> Option<(f64, f64)> {
        let state = self.state?;
        Some((self.range.0 / state.bytes_per_s, self.range.1 / state.bytes_per_s))
    }

    /// What a reader of the figures has to know of it, in a sentence; nothing on a machine that did not change.
    pub(crate) fn note(&self) -> Option<String> {
        if self.left_out == 0 && !self.is_mixed() {
            return None;
        }
        let (from, to, cpus) = (self.from, &self.target, self.cpus);
        let of = |bytes_per_s: f64| format!("{:.1} GB/s", bytes_per_s / 1e9);
        let (low, high) = (of(self.range.0), of(self.range.1));
        let begin =
            format!("The machine changed meanwhile: {cpus} CPUs of node {from} read {low} to {high} from {to}.");
        let plural = |count: usize| if count == 1 { "measurement" } else { "measurements" };
        let left_out = format!("{} {} of other states left out", self.left_out, plural(self.left_out));
        let Some(state) = self.state.filter(|_| self.is_mixed()) else {
            let state = self.state.map(|state| format!(" are of the state of {}", of(state.bytes_per_s)));
            return Some(match state {
                Some(state) => format!("{begin} The figures{state}; {left_out}."),
                None => format!("{begin} No state lasted for one measurement: the model's limits are estimates."),
            });
        };
        let count = self.of_other_states.len();
        Some(format!(
            "{begin} {} of {} {} are of the state of {}; not so: {}. The model's limits are estimates with a range over all states.",
            self.cells - count,
            self.cells,
            plural(self.cells),
            of(state.bytes_per_s),
            self.of_other_states.join("; ")
        ))
    }
}

/// All results of `numapilot measure`: what `--json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Name of the format: `numapilot-measure`.
    pub format: String,
    /// Version of the format: [`VERSION`].
    pub version: u32,
    /// The machine on which the measurements ran.
    pub host: Host,
    /// Kind of pages that was requested.
    pub pages: Pages,
    /// Share of the measured memory in large pages, where the kernel shows it.
    pub large_share: Option<f64>,
    /// Idle latencies.
    pub latency: Vec<LatencyCell>,
    /// Misses that a core keeps outstanding; `None` where they were not measured.
    #[serde(default)]
    pub overlap: Option<Overlap>,
    /// Latency against working-set size.
    pub caches: Vec<Staircase>,
    /// Bandwidths of the kernels.
    pub bandwidth: Vec<BandwidthCell>,
    /// Loaded latencies.
    pub loaded: Vec<Curve>,
    /// Latencies of cache-line hand-offs between CPUs.
    pub handoff: Vec<Handoff>,
    /// In which state of the machine the figures of each pair were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<PairState>,
    /// How memory was shown to be where it was asked for, target by target.
    pub placements: Vec<(Target, Proof)>,
    /// What was not measured, and why.
    pub left_out: Vec<String>,
    /// What limits the figures, in whole sentences.
    pub notes: Vec<String>,
    /// Seconds that it took.
    pub seconds: f64,
}

impl Results {
    /// The best random-chase latency of a pair, nanoseconds.
    #[must_use]
    pub fn idle_latency(&self, from: NodeId, to: NodeId) -> Option<&LatencyCell> {
        self.latency
            .iter()
            .find(|cell| cell.from == from && cell.target.node() == Some(to) && !matches!(cell.walk, Walk::Strided(_)))
    }

    /// In which state of the machine a pair was measured; `None` where nothing told.
    #[must_use]
    pub fn state_of(&self, from: NodeId, to: NodeId) -> Option<&PairState> {
        self.states.iter().find(|state| state.from == from && state.target.node() == Some(to))
    }

    /// The bandwidth of a pair with all CPUs that were asked to work together; `None` where it was not measured.
    #[must_use]
    pub fn bandwidth_of(&self, from: NodeId, to: NodeId, kernel: Kernel) -> Option<&BandwidthCell> {
        let cells = self.bandwidth.iter();
        cells
            .filter(|cell| cell.from == from && cell.target.node() == Some(to) && cell.kernel == kernel)
            .max_by_key(|cell| cell.cpus)
    }
}

#[cfg(test)]
mod tests {
    //! Pages of weighted targets.

    use super::*;

    #[test]
    fn pages_go_round_by_their_weights() {
        let target = Target::Weighted(vec![(NodeId(0), 3), (NodeId(2), 1)]);
        let nodes: Vec<u16> = (0..8).map(|page| target.node_of_page(page).0).collect();
        assert_eq!(nodes, [0, 0, 0, 2, 0, 0, 0, 2]);
        assert_eq!(target.to_string(), "weighted 0:3,2:1");
        assert_eq!(Target::interleaved([NodeId(0), NodeId(1)]).to_string(), "interleaved");
        assert_eq!(Target::Node(NodeId(7)).node_of_page(5), NodeId(7));
    }
}
