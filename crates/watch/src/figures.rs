//! The contents of an interval, independent of the source: the NUMA metrics, nodes, links and processes. Pure data; a value that is not known holds the reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_machine::CpuId;
use numapilot_machine::NodeId;
use numapilot_traffic::Imbalance;
use serde_json::Value;
use serde_json::json;

/// The seven metrics of a memory system's health (Dashti et al., ASPLOS 2013, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Share of memory accesses answered by the accessing CPU's own node.
    LocalShare,
    /// Mean cycles of a memory access.
    Latency,
    /// Standard deviation of requests over the controllers, over their mean (population definition).
    ControllerImbalance,
    /// Mean bandwidth utilisation of the links.
    LinkUsage,
    /// Standard deviation of the links' utilisation over its mean (population definition).
    LinkImbalance,
    /// Last-level cache misses per 1,000 instructions.
    L3Mpki,
    /// Instructions per cycle.
    Ipc,
}

impl Metric {
    /// All metrics, in the order in which they are shown.
    pub const ALL: [Metric; 7] = [
        Metric::LocalShare,
        Metric::Latency,
        Metric::ControllerImbalance,
        Metric::LinkUsage,
        Metric::LinkImbalance,
        Metric::L3Mpki,
        Metric::Ipc,
    ];

    /// Name in JSON and CSV.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Metric::LocalShare => "local_access_ratio",
            Metric::Latency => "memory_latency_cycles",
            Metric::ControllerImbalance => "controller_imbalance",
            Metric::LinkUsage => "interconnect_usage",
            Metric::LinkImbalance => "interconnect_imbalance",
            Metric::L3Mpki => "l3_mpki",
            Metric::Ipc => "ipc",
        }
    }

    /// Name in text output.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Metric::LocalShare => "local access ratio",
            Metric::Latency => "memory latency",
            Metric::ControllerImbalance => "controller imbalance",
            Metric::LinkUsage => "interconnect usage",
            Metric::LinkImbalance => "interconnect imbalance",
            Metric::L3Mpki => "L3 misses per 1,000 instr.",
            Metric::Ipc => "instructions per cycle",
        }
    }

    /// Formats a value with its unit.
    #[must_use]
    pub fn format(self, value: f64) -> String {
        match self {
            Metric::Latency => format!("{value:.0} cycles"),
            Metric::L3Mpki => format!("{value:.2}"),
            Metric::Ipc => format!("{value:.2}"),
            Metric::LocalShare => numapilot_text::units::part_percent(value),
            _ => numapilot_text::units::percent(value),
        }
    }
}

/// A value, or the reason why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// The value is known.
    Value {
        /// The value; shares are between 0 and 1.
        value: f64,
        /// Source of the value.
        source: String,
        /// Whether it is an estimate, from samples or from a related count.
        is_estimate: bool,
    },
    /// The value is not known; the text is the reason.
    Missing(String),
}

impl Default for MetricValue {
    fn default() -> MetricValue {
        MetricValue::Missing(String::new())
    }
}

impl MetricValue {
    /// Makes a counted (or simulated) value; `None` becomes [`MetricValue::Missing`] with the reason `missing`.
    #[must_use]
    pub fn of(value: Option<f64>, source: &str, missing: &str) -> MetricValue {
        match value.filter(|value| value.is_finite()) {
            Some(value) => MetricValue::Value { value, source: source.to_owned(), is_estimate: false },
            None => MetricValue::Missing(missing.to_owned()),
        }
    }

    /// Makes an estimated value.
    #[must_use]
    pub fn estimate(value: f64, source: &str) -> MetricValue {
        MetricValue::Value { value, source: source.to_owned(), is_estimate: true }
    }

    /// The same value, as an estimate if `is_estimate`: where counts that it is computed from had to be scaled.
    #[must_use]
    pub fn estimated_if(self, is_estimate: bool) -> MetricValue {
        match self {
            MetricValue::Value { value, source, .. } if is_estimate => MetricValue::estimate(value, &source),
            told => told,
        }
    }

    /// The value, if known.
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        if let MetricValue::Value { value, .. } = self { Some(*value) } else { None }
    }

    /// Returns `self` if it is known, otherwise `other` if that is known, otherwise `self` for its reason.
    #[must_use]
    pub fn or(self, other: impl FnOnce() -> MetricValue) -> MetricValue {
        match self {
            MetricValue::Missing(why) => match other() {
                MetricValue::Missing(more) if why.is_empty() => MetricValue::Missing(more),
                MetricValue::Missing(more) if more.is_empty() || why.contains(&more) => MetricValue::Missing(why),
                MetricValue::Missing(more) => MetricValue::Missing(format!("{why}; {more}")),
                known => known,
            },
            known => known,
        }
    }

    /// The value as JSON: with source and kind, or the reason.
    #[must_use]
    pub fn json(&self) -> Value {
        match self {
            MetricValue::Value { value, source, is_estimate } => {
                json!({"value": value, "source": source, "estimate": is_estimate})
            }
            MetricValue::Missing(why) => json!({"value": null, "because": why}),
        }
    }
}

/// The seven metrics, by [`Metric`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NumaMetrics([MetricValue; 7]);

impl NumaMetrics {
    /// Returns one metric.
    #[must_use]
    pub fn get(&self, metric: Metric) -> &MetricValue {
        &self.0[metric as usize]
    }

    /// Sets one metric.
    pub fn set(&mut self, metric: Metric, told: MetricValue) {
        self.0[metric as usize] = told;
    }
}

/// Pages allocated on a node since boot: `/sys/devices/system/node/node*/numastat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumaStat(pub [u64; 6]);

impl NumaStat {
    /// The kernel's names of the counters, in order.
    pub const NAMES: [&'static str; 6] =
        ["numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node"];

    /// Difference to an earlier reading.
    #[must_use]
    pub fn since(self, before: NumaStat) -> NumaStat {
        let mut out = self;
        out.0.iter_mut().zip(before.0).for_each(|(now, before)| *now = now.saturating_sub(before));
        out
    }
}

/// One node in an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFigures {
    /// The kernel's number of the node.
    pub node: NodeId,
    /// Number of online CPUs.
    pub cpus: usize,
    /// Number of busy CPUs, on average over the interval.
    pub busy_cpus: Option<f64>,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Free memory at the end of the interval, in bytes; `None`: not known.
    pub free_bytes: Option<u64>,
    /// The kernel's tier of its memory (`memory_tierN`): the lower, the faster; `None`: not known.
    pub tier: Option<u32>,
    /// Allocation counters since boot.
    pub numastat: NumaStat,
    /// Allocation counters in the interval.
    pub numastat_delta: NumaStat,
    /// Local access ratio of its CPUs.
    pub local_share: MetricValue,
    /// Last-level misses per 1,000 instructions of its CPUs.
    pub l3_mpki: MetricValue,
    /// Instructions per cycle of its CPUs.
    pub ipc: MetricValue,
    /// Traffic of its memory controllers in bytes per second.
    pub controller_bytes_per_s: MetricValue,
    /// Utilisation of its memory controllers, 0 to 1.
    pub controller_load: Option<f64>,
    /// Sampled accesses of its CPUs; `None`: nothing is sampled.
    pub sampled: Option<SampledNode>,
}

/// One directed link in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkFigures {
    /// Name of the link, by its ends.
    pub name: String,
    /// Utilisation, 0 to 1.
    pub load: f64,
}

/// Accesses and location of an object or a mapping.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AreaFigures {
    /// Name of the area.
    pub name: String,
    /// Share of the process's memory accesses, 0 to 1; `None`: not known.
    pub share: Option<f64>,
    /// Local access ratio of these, 0 to 1.
    pub local_share: Option<f64>,
    /// Size in bytes, if the nodes of its memory are not known.
    pub bytes: u64,
    /// Bytes by node, in the order of the interval's nodes; empty if not known.
    pub bytes_by_node: Vec<u64>,
}

/// A process's memory according to one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryView {
    /// Title: content and source, in a few words.
    pub title: String,
    /// The areas, in the order in which they are shown.
    pub areas: Vec<AreaFigures>,
    /// Notes for the reader, in whole sentences: limits, and why better sources are not available.
    pub notes: Vec<String>,
}

/// Sampled accesses (or page faults) of a node's CPUs: estimates, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampledNode {
    /// Accesses to the node's own memory per second.
    pub local_per_s: f64,
    /// Accesses to other nodes' memory per second.
    pub remote_per_s: f64,
    /// Accesses to memory whose node is not known, per second.
    pub unknown_per_s: f64,
    /// Mean latency in core cycles; `None`: not measured.
    pub latency_cycles: Option<f64>,
}

/// The samples of an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    /// What was sampled, and by which source.
    pub source: String,
    /// Number of samples.
    pub samples: u64,
    /// Number of samples lost because a ring was full.
    pub lost: u64,
}

/// One thread in an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadFigures {
    /// Thread id.
    pub tid: Tid,
    /// Name of the thread (`comm`).
    pub name: String,
    /// Node on which it last ran.
    pub node: Option<NodeId>,
    /// CPU on which it last ran.
    pub cpu: Option<CpuId>,
    /// Processor time in the interval, in CPUs.
    pub cpus: f64,
}

/// One process in an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessFigures {
    /// Process id.
    pub pid: Pid,
    /// Name of the process (`comm`).
    pub name: Arc<str>,
    /// Number of threads.
    pub threads: u32,
    /// Processor time in the interval, in CPUs.
    pub cpus: f64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Node on which its main thread last ran, or on which most of its threads run.
    pub node: Option<NodeId>,
    /// Page faults per second.
    pub faults_per_s: f64,
    /// Local access ratio.
    pub local_share: MetricValue,
    /// Memory accesses per second.
    pub accesses_per_s: Option<f64>,
    /// Instructions per cycle.
    pub ipc: MetricValue,
    /// Last-level misses per 1,000 instructions.
    pub l3_mpki: MetricValue,
    /// Bytes by node, in the order of the interval's nodes; empty if not read.
    pub bytes_by_node: Vec<u64>,
}

/// An event's count in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct EventFigures {
    /// Name of the event, as in perf.
    pub name: &'static str,
    /// Count, scaled up if the event did not count all the time, or the reason why there is none. Clocks are in nanoseconds.
    pub count: MetricValue,
    /// Share of the time in which it counted, 0 to 1.
    pub running: f64,
}

/// All data of one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// Begin, in nanoseconds since the start of watching.
    pub from_ns: u64,
    /// End, in nanoseconds since the start of watching.
    pub to_ns: u64,
    /// For a replay: what is replayed on which simulated machine; `None`: measured.
    pub simulated: Option<String>,
    /// Metrics of everything that is watched.
    pub metrics: NumaMetrics,
    /// One entry per node.
    pub nodes: Vec<NodeFigures>,
    /// Why it is not known how busy the nodes' CPUs are; `None`: no reason is known, or none is needed.
    pub no_busy_cpus: Option<String>,
    /// Why the numbers of the nodes' CPUs are not those of the machine; `None`: they are.
    pub no_cpus: Option<String>,
    /// Every directed link whose utilisation is known.
    pub links: Vec<LinkFigures>,
    /// Processes, if they are watched.
    pub processes: Vec<ProcessFigures>,
    /// Events, if they are counted.
    pub events: Vec<EventFigures>,
    /// Samples, if any are taken.
    pub sampled: Option<Sampled>,
    /// Counters of the kernel's memory management: name, value since boot, value in the interval.
    pub kernel: Vec<(&'static str, u64, u64)>,
    /// Notes for the reader, in whole sentences.
    pub notes: Vec<String>,
}

impl Interval {
    /// Length in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.to_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }

    /// The tiers of memory with their nodes, the fastest first; empty where the kernel has one tier, or shows none.
    #[must_use]
    pub fn tiers(&self) -> Vec<(u32, Vec<&NodeFigures>)> {
        let mut tiers: BTreeMap<u32, Vec<&NodeFigures>> = BTreeMap::new();
        for node in &self.nodes {
            node.tier.into_iter().for_each(|tier| tiers.entry(tier).or_default().push(node));
        }
        if tiers.len() > 1 { tiers.into_iter().collect() } else { Vec::new() }
    }

    /// Whether allocations are counted by node. A kernel without NUMA has no numastat, and one with `vm.numa_stat` at 0 shows zeros.
    #[must_use]
    pub fn has_numastat(&self) -> bool {
        self.simulated.is_none() && self.nodes.iter().any(|node| node.numastat != NumaStat::default())
    }
}

/// Standard deviation over mean (population definition); `None` if all loads are 0.
#[must_use]
pub fn imbalance(loads: &[f64]) -> Option<f64> {
    Imbalance::of(loads).map(|imbalance| imbalance.population)
}
