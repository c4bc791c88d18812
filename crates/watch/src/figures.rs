//! What is shown of an interval, whatever the source: the seven metrics, nodes, links and processes. Pure data; a figure that is not known says why.

use std::sync::Arc;

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
    /// All, in the order in which they are shown.
    pub const ALL: [Metric; 7] = [
        Metric::LocalShare,
        Metric::Latency,
        Metric::ControllerImbalance,
        Metric::LinkUsage,
        Metric::LinkImbalance,
        Metric::L3Mpki,
        Metric::Ipc,
    ];

    /// Its name in JSON and CSV.
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

    /// Its name for people.
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

    /// A value with its unit.
    #[must_use]
    pub fn format(self, value: f64) -> String {
        match self {
            Metric::Latency => format!("{value:.0} cycles"),
            Metric::L3Mpki => format!("{value:.2}"),
            Metric::Ipc => format!("{value:.2}"),
            _ => format!("{:.1} %", value * 100.0),
        }
    }
}

/// A figure, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// It is known.
    Value {
        /// The figure; shares between 0 and 1.
        value: f64,
        /// Who says so.
        source: String,
        /// It stands for what could not be counted: by samples, or by something that goes along with it.
        is_estimate: bool,
    },
    /// It is not, because of this.
    Missing(String),
}

impl Default for MetricValue {
    fn default() -> MetricValue {
        MetricValue::Missing(String::new())
    }
}

impl MetricValue {
    /// A counted (or simulated) figure; `None` becomes `missing`.
    #[must_use]
    pub fn of(value: Option<f64>, source: &str, missing: &str) -> MetricValue {
        match value.filter(|value| value.is_finite()) {
            Some(value) => MetricValue::Value { value, source: source.to_owned(), is_estimate: false },
            None => MetricValue::Missing(missing.to_owned()),
        }
    }

    /// An estimate.
    #[must_use]
    pub fn estimate(value: f64, source: &str) -> MetricValue {
        MetricValue::Value { value, source: source.to_owned(), is_estimate: true }
    }

    /// The figure, where known.
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        if let MetricValue::Value { value, .. } = self { Some(*value) } else { None }
    }

    /// The first that is known; else the first, for its reason.
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

    /// As JSON: value, source and kind, or why not.
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

/// The seven.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NumaMetrics([MetricValue; 7]);

impl NumaMetrics {
    /// One of them.
    #[must_use]
    pub fn get(&self, metric: Metric) -> &MetricValue {
        &self.0[metric as usize]
    }

    /// Sets one.
    pub fn set(&mut self, metric: Metric, told: MetricValue) {
        self.0[metric as usize] = told;
    }
}

/// Pages that a node's memory gave out since boot: `/sys/devices/system/node/node*/numastat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumaStat(pub [u64; 6]);

impl NumaStat {
    /// The kernel's names, in order.
    pub const NAMES: [&'static str; 6] =
        ["numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node"];

    /// What came since.
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
    /// Its number.
    pub node: NodeId,
    /// CPUs online.
    pub cpus: usize,
    /// Of them busy, on average.
    pub busy_cpus: Option<f64>,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Of it free at the end.
    pub free_bytes: u64,
    /// Allocations since boot.
    pub numastat: NumaStat,
    /// Allocations in the interval.
    pub numastat_delta: NumaStat,
    /// Local access ratio of its CPUs.
    pub local_share: MetricValue,
    /// Last-level misses per 1,000 instructions of its CPUs.
    pub l3_mpki: MetricValue,
    /// Instructions per cycle of its CPUs.
    pub ipc: MetricValue,
    /// Bytes per second that its controllers served.
    pub controller_bytes_per_s: MetricValue,
    /// Share of the time in which they were busy.
    pub controller_load: Option<f64>,
    /// What samples say of its CPUs' accesses; `None`: nothing is sampled.
    pub sampled: Option<SampledNode>,
}

/// One directed link in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkFigures {
    /// Ends, as people write them.
    pub name: String,
    /// Utilisation.
    pub load: f64,
}

/// Where an object or a mapping is accessed, or lies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AreaFigures {
    /// What it is called.
    pub name: String,
    /// Share of the process's memory accesses; `None`: nobody tells.
    pub share: Option<f64>,
    /// Of these, local ones.
    pub local_share: Option<f64>,
    /// Bytes, where it is not told on which nodes they are.
    pub bytes: u64,
    /// Bytes by node, in the order of the interval's nodes; empty where not known.
    pub bytes_by_node: Vec<u64>,
}

/// A process's memory as one source tells of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryView {
    /// What is listed, and who says so, in a few words.
    pub title: String,
    /// The areas, in the order of being shown.
    pub areas: Vec<AreaFigures>,
    /// What the reader must know, in whole sentences: limits, and why better sources say nothing.
    pub notes: Vec<String>,
}

/// What samples say of the accesses (or page faults) of a node's CPUs: estimates, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampledNode {
    /// To the node's own memory.
    pub local_per_s: f64,
    /// To other nodes' memory.
    pub remote_per_s: f64,
    /// To memory of which nobody said where it is.
    pub unknown_per_s: f64,
    /// Mean latency in core cycles; `None`: not measured.
    pub latency_cycles: Option<f64>,
}

/// The samples of an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    /// What was sampled, by whom.
    pub source: String,
    /// How many there were.
    pub samples: u64,
    /// How many more found no room.
    pub lost: u64,
}

/// One thread in an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadFigures {
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Node on which it was found.
    pub node: Option<NodeId>,
    /// CPU on which it was found.
    pub cpu: Option<u32>,
    /// CPUs' worth of time that it used.
    pub cpus: f64,
}

/// One process in an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessFigures {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: Arc<str>,
    /// Threads.
    pub threads: u32,
    /// CPUs' worth of time that it used.
    pub cpus: f64,
    /// Resident memory, bytes.
    pub resident_bytes: u64,
    /// Node of the CPU on which its main thread was found, or on which most of it runs.
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
    /// Bytes by node, in the order of the interval's nodes; empty where not looked at.
    pub bytes_by_node: Vec<u64>,
}

/// An event's count in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct EventFigures {
    /// Name, as perf writes it.
    pub name: &'static str,
    /// Count, scaled up where it did not count all the time; or why there is none. Nanoseconds of clocks.
    pub count: MetricValue,
    /// Share of the time in which it counted.
    pub running: f64,
}

/// Everything of one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// Begin, ns since watching began.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// Not measured: the simulated machine's name and what is replayed.
    pub simulated: Option<String>,
    /// Of the whole that is watched.
    pub metrics: NumaMetrics,
    /// Every node.
    pub nodes: Vec<NodeFigures>,
    /// Every directed link whose load is known.
    pub links: Vec<LinkFigures>,
    /// Processes, where they are watched.
    pub processes: Vec<ProcessFigures>,
    /// Events, where they are counted.
    pub events: Vec<EventFigures>,
    /// Samples, where any are taken.
    pub sampled: Option<Sampled>,
    /// Counters of the kernel's memory management: name, since boot, in the interval.
    pub kernel: Vec<(&'static str, u64, u64)>,
    /// What the reader must know, in whole sentences.
    pub notes: Vec<String>,
}

impl Interval {
    /// Its length.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.to_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }
}

/// Standard deviation over mean by the population definition, the one shown; `None` where nothing is loaded.
#[must_use]
pub fn imbalance(loads: &[f64]) -> Option<f64> {
    Imbalance::of(loads).map(|imbalance| imbalance.population)
}
