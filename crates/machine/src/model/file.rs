//! The shape of a model file, as serde reads it. `docs/machine-model.md` documents it for people.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use crate::hardware::{CacheKind, Coherence, Routing};

/// The format that this reader knows.
pub const FORMAT: u32 = 1;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    pub format: Spanned<u32>,
    pub name: Spanned<String>,
    pub cpu: String,
    pub description: Option<String>,
    pub clock_mhz: Spanned<RawFigure>,
    pub coherence: Option<Spanned<RawCoherence>>,
    #[serde(default)]
    pub routing: Routing,
    pub sources: BTreeMap<String, String>,
    pub nodes: Vec<Spanned<RawNodes>>,
    #[serde(default)]
    pub caches: Vec<Spanned<RawCache>>,
    #[serde(default)]
    pub routers: Vec<Spanned<RawRouter>>,
    #[serde(default)]
    pub links: Vec<Spanned<RawLinks>>,
    #[serde(default)]
    pub routes: Vec<Spanned<RawRoute>>,
    pub idle_latency: Vec<Spanned<RawLatency>>,
    #[serde(default)]
    pub distances: Vec<Spanned<RawDistance>>,
    #[serde(default)]
    pub traffic: RawTraffic,
    #[serde(default)]
    pub core: RawCore,
}

/// How far one core overlaps memory accesses.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawCore {
    pub window_instructions: Option<Spanned<RawFigure>>,
    pub outstanding_misses: Option<Spanned<RawFigure>>,
}

/// Figures of the traffic model.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTraffic {
    pub controller_efficiency: Option<Spanned<RawFigure>>,
    pub write_turnaround: Option<Spanned<RawFigure>>,
    pub crowding: Option<Spanned<RawFigure>>,
    pub message_bytes: Option<Spanned<RawFigure>>,
    pub answer_bytes: Option<Spanned<RawFigure>>,
    pub completion_bytes: Option<Spanned<RawFigure>>,
    pub release_bytes: Option<Spanned<RawFigure>>,
    pub link_efficiency: Option<Spanned<RawFigure>>,
    pub stream_outstanding: Option<Spanned<RawFigure>>,
    pub stride_outstanding: Option<Spanned<RawFigure>>,
    pub stride_outstanding_loaded: Option<Spanned<RawFigure>>,
    pub queueing_delay: Option<Spanned<RawFigure>>,
}

/// A number with its source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFigure {
    pub value: f64,
    pub source: String,
    #[serde(default)]
    pub estimate: bool,
    /// Least and most that it may be.
    pub range: Option<(f64, f64)>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawCoherence {
    pub value: Coherence,
    pub source: String,
    #[serde(default)]
    pub estimate: bool,
}

/// A `[[nodes]]` table: one or several equal nodes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawNodes {
    pub ids: Vec<u16>,
    pub sockets: Option<Vec<u32>>,
    pub cpus: Option<Vec<String>>,
    pub threads_per_core: Option<u32>,
    pub source: String,
    #[serde(default)]
    pub estimate: bool,
    pub memory_gib: Option<Spanned<RawFigure>>,
    pub memory_bandwidth_gb_per_s: Option<Spanned<RawFigure>>,
    pub cpus_read_gb_per_s: Option<Spanned<RawFigure>>,
    pub cpus_write_gb_per_s: Option<Spanned<RawFigure>>,
    pub memory_kind: Option<String>,
}

/// Which CPUs share one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedBy {
    Core,
    Node,
    Socket,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawCache {
    pub level: u8,
    pub kind: CacheKind,
    pub size_kib: Spanned<RawFigure>,
    pub line_bytes: Option<Spanned<RawFigure>>,
    pub ways: Option<Spanned<RawFigure>>,
    pub latency_cycles: Option<Spanned<RawFigure>>,
    pub shared_by: Option<SharedBy>,
    pub shared_by_cores: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRouter {
    pub name: String,
    pub socket: Option<u32>,
}

/// A node's number or a router's name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum RawEnd {
    Node(u16),
    Router(String),
}

/// A `[[links]]` table: one or several equal links.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLinks {
    pub pairs: Vec<(RawEnd, RawEnd)>,
    #[serde(default)]
    pub both_ways: bool,
    pub kind: String,
    pub bandwidth_gb_per_s: Spanned<RawFigure>,
    pub latency_ns: Option<Spanned<RawFigure>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRoute {
    pub paths: Vec<Vec<RawEnd>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLatency {
    pub hops: Option<usize>,
    pub from: Option<Vec<u16>>,
    pub to: Option<Vec<u16>>,
    pub ns: Spanned<RawFigure>,
    /// Least and most that it may be as a multiple of the latency of a node to itself: where that ratio is known better than the nanoseconds.
    pub over_local: Option<Spanned<(f64, f64)>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawDistance {
    pub hops: Option<usize>,
    pub from: Option<Vec<u16>>,
    pub to: Option<Vec<u16>>,
    pub value: Spanned<RawFigure>,
}
