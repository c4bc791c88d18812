//! What can go wrong with a simulation.

use std::path::PathBuf;

/// Errors of reading a program and of running it.
#[derive(Debug, thiserror::Error)]
pub enum SimulatorError {
    /// The system refused to read a file.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// File.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A synthetic description is wrong.
    #[error("{file}:{line}: {why}")]
    Description {
        /// File, or what stands for it.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong, and what to do.
        why: String,
    },
    /// A trace cannot be simulated.
    #[error("{}: {why}", trace.display())]
    Trace {
        /// The trace.
        trace: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// A trace cannot be opened.
    #[error(transparent)]
    Flows(#[from] numapilot_flows::FlowError),
    /// A table of a trace cannot be read.
    #[error(transparent)]
    Table(#[from] numapilot_trace::tables::TableError),
    /// The traffic model cannot answer.
    #[error(transparent)]
    Traffic(#[from] numapilot_traffic::TrafficError),
    /// No placement can be found.
    #[error(transparent)]
    Placement(#[from] numapilot_placement::PlacementError),
    /// A program contradicts itself.
    #[error("program `{program}`: {why}")]
    Program {
        /// Its name.
        program: String,
        /// What does not hold.
        why: String,
    },
    /// The machine cannot run it.
    #[error("machine `{machine}`: {why}")]
    Machine {
        /// Its name.
        machine: String,
        /// What is missing, and what to do.
        why: String,
    },
    /// No node has room for a page.
    #[error(
        "region `{region}` does not fit: at {at_ns:.0} ns all {bytes} bytes of machine `{machine}` are taken; take a larger machine"
    )]
    OutOfMemory {
        /// Region that was touched.
        region: String,
        /// Simulated time.
        at_ns: f64,
        /// Memory of the machine.
        bytes: u64,
        /// Its name.
        machine: String,
    },
    /// Every thread waits for another.
    #[error("program `{program}`: at {at_ns:.0} ns nobody can go on; {waiting}")]
    Deadlock {
        /// Its name.
        program: String,
        /// Simulated time.
        at_ns: f64,
        /// Who waits for what.
        waiting: String,
    },
    /// Options contradict themselves.
    #[error("option {option}: {why}")]
    Option {
        /// Which.
        option: &'static str,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The caller's progress function said stop.
    #[error("stopped at {at_ns:.0} ns of simulated time")]
    Stopped {
        /// Simulated time.
        at_ns: f64,
    },
}
