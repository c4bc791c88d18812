//! What can go wrong in measuring, each with what to do about it.

use std::io;

use numapilot_machine::{CpuId, MachineError, NodeId};
use numapilot_traffic::TrafficError;
use thiserror::Error;

/// Why something could not be planned or measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// The options ask for what cannot be.
    #[error("{what}; {remedy}")]
    Options {
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// Memory could not be had.
    #[error("no {bytes} bytes of memory for {purpose}: {error}; choose a smaller size (--size) or free memory")]
    Memory {
        /// How much was asked for.
        bytes: usize,
        /// What for.
        purpose: String,
        /// The system's answer.
        error: io::Error,
    },
    /// The kernel refused to bind memory to nodes.
    #[error(
        "memory cannot be bound to {nodes} ({call}: {error}); if this is a container, its seccomp profile may forbid it: allow {call}, or add CAP_SYS_NICE"
    )]
    Bind {
        /// The nodes, in words.
        nodes: String,
        /// System call.
        call: &'static str,
        /// The system's answer.
        error: io::Error,
    },
    /// Memory was bound to a node and is elsewhere.
    #[error(
        "{strays} of {pages} pages asked for on {wanted} are elsewhere ({found}), so a timing of them would be of another node; \
         free memory there and run it again"
    )]
    Misplaced {
        /// Pages elsewhere, or nowhere.
        strays: u64,
        /// Pages asked.
        pages: u64,
        /// Where they should be.
        wanted: String,
        /// Where the kernel says that they are.
        found: String,
    },
    /// The kernel does not say where pages are.
    #[error(
        "that the memory is on {wanted} cannot be shown ({why}), so nothing is timed; allow move_pages (container: seccomp profile or CAP_SYS_NICE)"
    )]
    Unproved {
        /// Where they should be.
        wanted: String,
        /// The kernel's answer.
        why: String,
    },
    /// A thread could not be put on its CPU.
    #[error(
        "no thread can run on CPU {cpu} ({error}); it may have gone offline or left this process's cpuset since the start"
    )]
    Pin {
        /// CPU.
        cpu: CpuId,
        /// The system's answer.
        error: io::Error,
    },
    /// A kernel computed something else than it should have.
    #[error(
        "{kernel} ({isa}) gave {found} where {expected} is right: its time means nothing. Is this machine's memory or processor faulty?"
    )]
    WrongResult {
        /// Kernel.
        kernel: &'static str,
        /// Instruction set.
        isa: &'static str,
        /// What came out.
        found: f64,
        /// What should have.
        expected: f64,
    },
    /// The two threads of a hand-off lost each other.
    #[error("CPUs {a} and {b} exchanged no cache line within {seconds} s: one of them is not given any time")]
    Silent {
        /// First CPU.
        a: CpuId,
        /// Second CPU.
        b: CpuId,
        /// Patience.
        seconds: u64,
    },
    /// No repetition is worth believing.
    #[error("no repetition gave a plausible time; the clock may be unsteady: run it again when the machine is quieter")]
    NoFigure,
    /// A model needs figures that were not measured.
    #[error("a machine model needs {what}, which was not measured; {remedy}")]
    ModelNeeds {
        /// What is missing.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// A pair of nodes is not in the results.
    #[error(
        "no latency was measured from node {from} to node {to}, and a machine model needs every pair; measure all nodes (leave --nodes and --cpu-nodes out)"
    )]
    PairMissing {
        /// CPU node.
        from: NodeId,
        /// Memory node.
        to: NodeId,
    },
    /// The machine could not be read, or the model that was made is none.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The traffic model refused the machine that was made.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
}
