//! What can be wrong with a machine or a load: each message names the place and the remedy.

use numapilot_machine::NodeId;
use thiserror::Error;

/// Why the model cannot answer.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TrafficError {
    /// A node with memory whose peak bandwidth nobody told.
    #[error(
        "machine {machine}: the memory bandwidth of node {node} is not known; describe the machine in a model file with \
         memory_bandwidth_gb_per_s for each node (docs/machine-model.md)"
    )]
    NoBandwidth {
        /// The machine's name.
        machine: String,
        /// The node.
        node: NodeId,
    },
    /// Several nodes, and nobody told what joins them.
    #[error(
        "machine {machine}: the links between its nodes are not known (no system tells them); describe the machine in a model file with [[links]] \
         (docs/machine-model.md)"
    )]
    NoLinks {
        /// The machine's name.
        machine: String,
    },
    /// A pair of nodes whose idle latency nobody told.
    #[error(
        "machine {machine}: the idle latency from node {from} to node {to} is not known; describe the machine in a model file with [[idle_latency]] \
         for this pair (docs/machine-model.md)"
    )]
    NoLatency {
        /// The machine's name.
        machine: String,
        /// Node of the CPUs.
        from: NodeId,
        /// Node of the memory.
        to: NodeId,
    },
    /// Moving a line over the links and out of memory alone takes longer than the whole access is said to take.
    #[error(
        "machine {machine}: an access from node {from} to node {to} is said to take {idle_ns:.1} ns idle, but its controller and links alone \
         are busy with it for {service_ns:.1} ns at their bandwidth; \
         correct the [[idle_latency]], the bandwidths, or [traffic] in the model file (docs/traffic-model.md)"
    )]
    ServiceExceedsLatency {
        /// The machine's name.
        machine: String,
        /// Node of the CPUs.
        from: NodeId,
        /// Node of the memory.
        to: NodeId,
        /// Idle latency in nanoseconds.
        idle_ns: f64,
        /// Service times on the way in nanoseconds.
        service_ns: f64,
    },
    /// A class that cannot be.
    #[error("class {class} of the load: {what}; {remedy}")]
    Class {
        /// Its position in the load.
        class: usize,
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// Background traffic that cannot be.
    #[error("background traffic {index} of the load: {what}; {remedy}")]
    Background {
        /// Its position in the load.
        index: usize,
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// Work that does not fit the load.
    #[error("work: {what}; {remedy}")]
    Work {
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
}
