//! A machine as plain, serialisable data: the form that readers pass to [`crate::Machine`] for checking, and that a trace
//! stores. Matrices are indexed by position in `nodes`, not by node number.

use serde::{Deserialize, Serialize};

use crate::hardware::{
    Cache, Coherence, CoreFigures, Cpu, Figure, Link, MachineSource, Node, Router, Routing, TrafficFigures,
};
use crate::ids::{LinkId, NodeId};
use crate::unknown::Unknown;

/// Everything that a description can say; derived tables are not in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineParts {
    pub name: String,
    pub source: MachineSource,
    pub cpu_model: Option<String>,
    pub description: Option<String>,
    pub clock_mhz: Option<f64>,
    pub coherence: Option<Coherence>,
    pub nodes: Vec<Node>,
    pub cpus: Vec<Cpu>,
    pub caches: Vec<Cache>,
    pub routers: Vec<Router>,
    pub links: Vec<Link>,
    pub routing: Routing,
    /// Paths given explicitly; all other pairs are routed by `routing`.
    pub routes: Vec<RouteParts>,
    /// ACPI distances `[from][to]`; 10 is local.
    pub distances: Vec<Vec<Option<u32>>>,
    /// Idle latency in nanoseconds of a dependent random load, `[from][to]`.
    pub idle_latency_ns: Vec<Vec<Option<f64>>>,
    /// Not in the machines of older traces.
    #[serde(default)]
    pub traffic: TrafficFigures,
    /// Not in the machines of older traces.
    #[serde(default, skip_serializing_if = "CoreFigures::is_empty")]
    pub core: CoreFigures,
    pub figures: Vec<Figure>,
    /// Not in the machines of older traces.
    #[serde(default)]
    pub unknowns: Vec<Unknown>,
    /// What could not be read, or was read and looks odd, in whole sentences.
    pub notes: Vec<String>,
}

/// The paths of one pair of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteParts {
    pub from: NodeId,
    pub to: NodeId,
    pub paths: Vec<Vec<LinkId>>,
}
