//! Errors in the description of a machine or a load: each message names the place and the remedy.

use numapilot_machine::NodeId;
use thiserror::Error;

/// Errors of solving the traffic model.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TrafficError {
    /// The peak memory bandwidth of a node is unknown.
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
    /// The machine has several nodes, and the links between them are unknown.
    #[error(
        "machine {machine}: the links between its nodes are not known (the kernel does not show them); describe the machine in a model file with [[links]] \
         (docs/machine-model.md)"
    )]
    NoLinks {
        /// The machine's name.
        machine: String,
    },
    /// The idle latency of a pair of nodes is unknown.
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
    /// The service times of a line at the memory controller, the links and the node's ports exceed the access's idle latency.
    #[error(
        "machine {machine}: the idle latency from node {from} to node {to} is given as {idle_ns:.1} ns, but the memory controller, the links and the \
         ports of its CPUs alone need {service_ns:.1} ns for the access at their bandwidths; \
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
        /// Sum of the service times on the access's path, in nanoseconds.
        service_ns: f64,
    },
    /// A class of the load is invalid.
    #[error("class {class} of the load: {what}; {remedy}")]
    Class {
        /// Position of the item in the load.
        class: usize,
        /// What is wrong, as a clause of the message.
        what: String,
        /// What the user can do about it, as a clause of the message.
        remedy: String,
    },
    /// Background traffic of the load is invalid.
    #[error("background traffic {index} of the load: {what}; {remedy}")]
    Background {
        /// Position of the item in the load.
        index: usize,
        /// What is wrong, as a clause of the message.
        what: String,
        /// What the user can do about it, as a clause of the message.
        remedy: String,
    },
    /// The work does not fit the load.
    #[error("work: {what}; {remedy}")]
    Work {
        /// What is wrong, as a clause of the message.
        what: String,
        /// What the user can do about it, as a clause of the message.
        remedy: String,
    },
}
