//! The options of Carrefour, and how its three published forms differ.

use crate::error::PlacementError;
use crate::metrics::Deviation;
use crate::nodes::NodeFacts;
use crate::options::{OptionInfo, Options};

/// Peak bandwidth of all memory of the machine for which the gates were published: four nodes of 12.8 GB/s (Opteron 8385, two channels of
/// DDR2-800 each).
const PUBLISHED_PEAK_BYTES_PER_S: f64 = 51.2e9;
/// Gate of Carrefour (ASPLOS 2013): accesses per microsecond, whole machine.
const PUBLISHED_GATE_PER_US: f64 = 50.0;
/// Gate of Carrefour-LP (USENIX ATC 2014): accesses per microsecond and node, on four nodes.
const PUBLISHED_LARGE_GATE_PER_US: f64 = 15.0 * 4.0;

/// Every option, with the defaults of `carrefour`: the algorithm as published.
pub(crate) const OPTIONS: &[OptionInfo] = &[
    OptionInfo::new("period-ms", "1000", "milliseconds between decisions"),
    OptionInfo::new(
        "gate",
        "auto",
        "idle below this many memory accesses per microsecond; auto: the published share of the memory's peak bandwidth (50 of 800; -lp: 60)",
    ),
    OptionInfo::new("local-ratio", "80", "collocate pages below this local access ratio, percent"),
    OptionInfo::new("imbalance", "35", "interleave pages from this controller imbalance on, percent"),
    OptionInfo::new("deviation", "sample", "standard deviation in the controller imbalance: sample or population"),
    OptionInfo::new("reads", "95", "replicate pages from this share of reads on, percent"),
    OptionInfo::new("reads-of", "process", "reads of the process (from samples) or of the machine (from counters)"),
    OptionInfo::new(
        "used-memory",
        "auto",
        "replicate pages up to this share of used memory, percent; auto: 100 / nodes, so that every node can hold all pages",
    ),
    OptionInfo::new("replicate", "on", "whether pages may be replicated"),
    OptionInfo::new("interleave", "on", "whether pages may be interleaved"),
    OptionInfo::new(
        "collocate",
        "local-ratio",
        "when a page with one user moves to that user's node: local-ratio (below this gate), either (also above the interleaving gate), never",
    ),
    OptionInfo::new(
        "min-samples",
        "1",
        "samples that a page needs to be collocated; one is enough while pages are interleaved",
    ),
    OptionInfo::new("min-replications", "0", "least number of pages to replicate in one period; with fewer, none is"),
    OptionInfo::new("max-collapses", "0", "a page that collapsed this often is not replicated again; 0: no limit"),
    OptionInfo::new(
        "draw",
        "falling",
        "target of an interleaved page: falling (weight 1 - load share of each node) or linear (as coded)",
    ),
    OptionInfo::new(
        "table-pages",
        "0",
        "pages that the table of one period holds, a third at the cheap sampling rate; 0: no bound",
    ),
    OptionInfo::new(
        "samples",
        "ibs",
        "memory samples per second and CPU; ibs: as many as instruction-based sampling would give",
    ),
    OptionInfo::new("ibs-cycles", "65528", "cycles between samples of instructions"),
    OptionInfo::new(
        "ibs-cycles-cheap",
        "262112",
        "the same while fewer than 10 pages per period are moved or the traffic is below the gate",
    ),
    OptionInfo::new("large", "off", "2 MiB pages: off (left alone), on (like any page), split (Carrefour-LP)"),
];

/// What differs in `carrefour-as-coded`: the released code, where it departs from the text.
pub(crate) const AS_CODED: &[(&str, &str)] = &[
    ("reads-of", "machine"),
    ("used-memory", "25"),
    ("collocate", "either"),
    ("min-samples", "2"),
    ("min-replications", "500"),
    ("max-collapses", "5"),
    ("draw", "linear"),
    ("table-pages", "30000"),
];

/// What differs in `carrefour-lp`: the form for large pages, which replicates nothing.
pub(crate) const LARGE_PAGES: &[(&str, &str)] = &[("replicate", "off"), ("large", "split"), ("collocate", "either")];

/// How the target of an interleaved page is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draw {
    /// Every node with a weight that falls as its share of the load rises.
    Falling,
    /// Leave with a probability of the own share, then draw by 100 minus share, in whole percent.
    Linear,
}

/// The treatment of 2 MiB pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Large {
    /// Large pages are left alone.
    Ignore,
    /// Large pages are treated like small ones.
    Move,
    /// Large pages are split as Carrefour-LP does.
    Split,
}

/// When pages with one user are collocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collocate {
    /// While the local access ratio is low.
    LocalRatio,
    /// While it is low, or controllers are imbalanced.
    Either,
    /// Pages are never collocated.
    Never,
}

/// The options' values.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub period_ns: u64,
    pub gate_per_us: f64,
    /// Source of the gate's value, for logs.
    pub gate_source: &'static str,
    pub local_ratio_percent: f64,
    pub imbalance_percent: f64,
    pub deviation: Deviation,
    pub reads_percent: f64,
    pub reads_of_process: bool,
    pub used_memory_percent: f64,
    pub replicate: bool,
    pub interleave: bool,
    pub collocate: Collocate,
    pub min_samples: u32,
    pub min_replications: usize,
    pub max_collapses: u32,
    pub draw: Draw,
    pub table_pages: usize,
    /// Samples per second and CPU, where fixed.
    pub fixed_samples: Option<f64>,
    pub ibs_cycles: f64,
    pub ibs_cycles_cheap: f64,
    pub large: Large,
}

impl Settings {
    /// Reads the options for a machine.
    pub fn read(options: &Options, facts: &NodeFacts) -> Result<Self, PlacementError> {
        let large = match options.choice("large", &["off", "on", "split"])? {
            "off" => Large::Ignore,
            "on" => Large::Move,
            _ => Large::Split,
        };
        let (gate_per_us, gate_source) = gate(options, facts, large)?;
        let used_memory_percent = match options.text("used-memory") {
            "auto" => 100.0 / facts.with_memory.len() as f64,
            _ => options.number("used-memory", 0.0, 100.0)?,
        };
        let fixed_samples = match options.text("samples") {
            "ibs" => None,
            _ => Some(options.number("samples", 0.0, 1e7)?),
        };
        Ok(Self {
            period_ns: options.whole("period-ms", 1, 3_600_000)? * 1_000_000,
            gate_per_us,
            gate_source,
            local_ratio_percent: options.number("local-ratio", 0.0, 101.0)?,
            imbalance_percent: options.number("imbalance", 0.0, 1000.0)?,
            deviation: match options.choice("deviation", &["sample", "population"])? {
                "sample" => Deviation::Sample,
                _ => Deviation::Population,
            },
            reads_percent: options.number("reads", 0.0, 101.0)?,
            reads_of_process: options.choice("reads-of", &["process", "machine"])? == "process",
            used_memory_percent,
            replicate: options.flag("replicate")?,
            interleave: options.flag("interleave")?,
            collocate: match options.choice("collocate", &["local-ratio", "either", "never"])? {
                "local-ratio" => Collocate::LocalRatio,
                "either" => Collocate::Either,
                _ => Collocate::Never,
            },
            min_samples: options.whole("min-samples", 1, 1_000_000)? as u32,
            min_replications: options.whole("min-replications", 0, 1_000_000_000)? as usize,
            max_collapses: options.whole("max-collapses", 0, 1_000_000)? as u32,
            draw: match options.choice("draw", &["falling", "linear"])? {
                "falling" => Draw::Falling,
                _ => Draw::Linear,
            },
            table_pages: options.whole("table-pages", 0, 1_000_000_000)? as usize,
            fixed_samples,
            ibs_cycles: options.number("ibs-cycles", 1.0, 1e12)?,
            ibs_cycles_cheap: options.number("ibs-cycles-cheap", 1.0, 1e12)?,
            large,
        })
    }
}

/// The gate in accesses per microsecond of the whole machine, and where it came from.
fn gate(options: &Options, facts: &NodeFacts, large: Large) -> Result<(f64, &'static str), PlacementError> {
    if options.text("gate") != "auto" {
        return Ok((options.number("gate", 0.0, 1e9)?, "as set"));
    }
    let published = if large == Large::Split { PUBLISHED_LARGE_GATE_PER_US } else { PUBLISHED_GATE_PER_US };
    Ok(match facts.peak_bandwidth() {
        Some(peak) => (published * peak / PUBLISHED_PEAK_BYTES_PER_S, "scaled with peak bandwidth"),
        None => (published, "as published: this machine's peak bandwidth is unknown"),
    })
}
