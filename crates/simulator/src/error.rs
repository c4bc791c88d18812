//! Errors of reading a program and of simulating it.

use std::path::PathBuf;

/// Errors of reading a program and of running it.
#[derive(Debug, thiserror::Error)]
pub enum SimulatorError {
    /// The system refused to read a file.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A synthetic description is wrong.
    #[error("{file}:{line}: {why}")]
    Description {
        /// Path of the file, or a name for text that is not from a file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong, and what to do.
        why: String,
    },
    /// A trace cannot be simulated.
    #[error("{}: {why}", trace.display())]
    Trace {
        /// Folder of the trace.
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
    /// The parts of a program are inconsistent.
    #[error("program `{program}`: {why}")]
    Program {
        /// Name of the program.
        program: String,
        /// The rule that it breaks.
        why: String,
    },
    /// The machine cannot run the program.
    #[error("machine `{machine}`: {why}")]
    Machine {
        /// Name of the machine.
        machine: String,
        /// What is missing, and what to do.
        why: String,
    },
    /// No node has free memory for a page.
    #[error(
        "region `{region}` does not fit: at {at_ns:.0} ns all {bytes} bytes of machine `{machine}` are in use; choose a machine with more memory"
    )]
    OutOfMemory {
        /// Region of the page.
        region: String,
        /// Simulated time in nanoseconds.
        at_ns: f64,
        /// Memory of the machine.
        bytes: u64,
        /// Name of the machine.
        machine: String,
    },
    /// Every thread waits for another: a deadlock.
    #[error("program `{program}`: deadlock at {at_ns:.0} ns, every thread waits for another; {waiting}")]
    Deadlock {
        /// Name of the program.
        program: String,
        /// Simulated time in nanoseconds.
        at_ns: f64,
        /// The threads that wait, and the event that each waits for.
        waiting: String,
    },
    /// An option is out of range, or contradicts another.
    #[error("option {option}: {why}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The caller's progress function stopped the simulation.
    #[error("stopped at {at_ns:.0} ns of simulated time")]
    Stopped {
        /// Simulated time in nanoseconds.
        at_ns: f64,
    },
}
