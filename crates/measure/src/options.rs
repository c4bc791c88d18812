//! The options of a measurement.

use std::collections::BTreeSet;
use std::time::Duration;

use numapilot_machine::{CpuId, NodeId};
use serde::{Deserialize, Serialize};

use crate::kernels::{Isa, Kernel};

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Latency of every pair, by random and strided chase.
    Latency,
    /// Latency against array size.
    Caches,
    /// Bandwidth of every pair.
    Bandwidth,
    /// Latency under load of every pair.
    Loaded,
    /// Hand-off of a line between CPUs.
    Handoff,
}

impl Part {
    /// All, in the order in which they are measured.
    pub const ALL: [Part; 5] = [Part::Latency, Part::Caches, Part::Bandwidth, Part::Loaded, Part::Handoff];

    /// Name of the part, as `--only` takes it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Part::Latency => "latency",
            Part::Caches => "caches",
            Part::Bandwidth => "bandwidth",
            Part::Loaded => "loaded",
            Part::Handoff => "handoff",
        }
    }
}

/// Kind of pages of the measured memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pages {
    /// The smallest pages, as most programs have them.
    #[default]
    Base,
    /// Transparent huge pages, as far as the kernel gives them.
    Large,
    /// Reserved huge pages (hugetlbfs).
    Huge,
}

/// Order in which a random chase visits memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Every line of the array at random.
    #[default]
    Random,
    /// Pages at random, each finished before the next: few page walks, but more for prefetchers to guess.
    Page,
}

/// All options of a measurement. The default is that of `--quick`.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Kinds of measurements to make.
    pub parts: BTreeSet<Part>,
    /// Every kernel, pair and size in place of a sample of them.
    pub full: bool,
    /// Time to stay within; `None`: 10 s, or as long as it takes with `full`.
    pub budget: Option<Duration>,
    /// Nodes whose CPUs measure; all where empty.
    pub cpu_nodes: BTreeSet<NodeId>,
    /// Nodes whose memory is measured; all where empty.
    pub memory_nodes: BTreeSet<NodeId>,
    /// CPUs that may be used; all where empty.
    pub cpus: BTreeSet<CpuId>,
    /// Kind of pages of the measured memory.
    pub pages: Pages,
    /// Order of the random chase.
    pub order: Order,
    /// Stride of the strided chase, bytes.
    pub stride_bytes: usize,
    /// Bytes of the memory that chases go through and of each array of the bandwidth kernels; `None`: four times the last-level cache.
    pub size_bytes: Option<usize>,
    /// Variant of the kernels; `None`: the widest that works.
    pub isa: Option<Isa>,
    /// Bandwidth kernel of the neighbours while loaded latency is measured.
    pub load_kernel: Kernel,
    /// Weights of a weighted allocation beside the even one; empty: none.
    pub weights: Vec<(NodeId, u32)>,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            parts: Part::ALL.into_iter().collect(),
            full: false,
            budget: None,
            cpu_nodes: BTreeSet::new(),
            memory_nodes: BTreeSet::new(),
            cpus: BTreeSet::new(),
            pages: Pages::Base,
            order: Order::Random,
            stride_bytes: 128,
            size_bytes: None,
            isa: None,
            load_kernel: Kernel::Read,
            weights: Vec::new(),
            seed: 1,
        }
    }
}
