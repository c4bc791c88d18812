//! Errors of measuring, each with its remedy.

use std::io;

use numapilot_machine::{CpuId, MachineError, NodeId};
use numapilot_traffic::TrafficError;
use thiserror::Error;

/// Errors of planning and of measuring.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// The options contradict each other or this machine.
    #[error("{what}; {remedy}")]
    Options {
        /// What is wrong, as a clause of the message.
        what: String,
        /// What the user can do about it, as a clause of the message.
        remedy: String,
    },
    /// Memory could not be allocated.
    #[error(
        "cannot allocate {bytes} bytes of memory for {purpose}: {error}; choose a smaller size (--size) or free memory"
    )]
    Memory {
        /// Size of the allocation.
        bytes: usize,
        /// What the memory is for.
        purpose: String,
        /// The system's error.
        error: io::Error,
    },
    /// The kernel refused to bind memory to nodes.
    #[error(
        "cannot bind memory to {nodes} ({call}: {error}); if this is a container, its seccomp profile may forbid it: allow {call}, or add CAP_SYS_NICE"
    )]
    Bind {
        /// The nodes, in words.
        nodes: String,
        /// System call.
        call: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// Memory was bound to a node, but the kernel allocated it on another.
    #[error(
        "{strays} of {pages} pages requested on {wanted} are not there ({found}), so a measurement would not be of {wanted}; \
         free memory on {wanted} and run it again"
    )]
    Misplaced {
        /// Pages on other nodes, or not in memory.
        strays: u64,
        /// Pages that were requested.
        pages: u64,
        /// The requested nodes, in words.
        wanted: String,
        /// Their home nodes by the kernel, in words.
        found: String,
    },
    /// The kernel does not say where pages are.
    #[error(
        "cannot verify that the memory is on {wanted} ({why}), so nothing is measured; allow move_pages (container: seccomp profile or CAP_SYS_NICE)"
    )]
    Unproved {
        /// The requested nodes, in words.
        wanted: String,
        /// The kernel's answer.
        why: String,
    },
    /// A thread could not be put on its CPU.
    #[error(
        "cannot run a thread on CPU {cpu} ({error}); the CPU may have gone offline or left this process's cpuset since the start"
    )]
    Pin {
        /// The CPU.
        cpu: CpuId,
        /// The system's error.
        error: io::Error,
    },
    /// A thread could not be started.
    #[error(
        "cannot start a thread ({error}); the limit on processes may be reached: raise it (`ulimit -u`; pids.max of the cgroup; --pids-limit of a container)"
    )]
    Thread {
        /// The system's error.
        error: io::Error,
    },
    /// A bandwidth kernel computed a wrong value.
    #[error(
        "{kernel} ({isa}) computed {found} instead of {expected}: its time is invalid. The memory or the processor of this machine may be faulty"
    )]
    WrongResult {
        /// Name of the bandwidth kernel.
        kernel: &'static str,
        /// Instruction set.
        isa: &'static str,
        /// The computed value.
        found: f64,
        /// The correct value.
        expected: f64,
    },
    /// The two threads of a hand-off exchanged nothing within the time limit.
    #[error(
        "CPUs {a} and {b} exchanged no cache line within {seconds} s: one of them gets no processor time; run it again when the machine is quieter"
    )]
    Silent {
        /// First CPU.
        a: CpuId,
        /// Second CPU.
        b: CpuId,
        /// Time limit in seconds.
        seconds: u64,
    },
    /// Every repetition has an implausible time.
    #[error("no repetition gave a plausible time; the clock may be unsteady: run it again when the machine is quieter")]
    NoFigure,
    /// A model needs figures that were not measured.
    #[error("a machine model needs {what}, which was not measured; {remedy}")]
    ModelNeeds {
        /// What is missing.
        what: String,
        /// What the user can do about it, as a clause of the message.
        remedy: String,
    },
    /// A pair of nodes is not in the results.
    #[error(
        "no latency was measured from node {from} to node {to}, and a machine model needs every pair; measure all nodes (leave --nodes and --cpu-nodes out)"
    )]
    PairMissing {
        /// Node of the CPUs.
        from: NodeId,
        /// Node of the memory.
        to: NodeId,
    },
    /// The machine could not be read, or the resulting model is invalid.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The traffic model refused the machine that was made.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
}
