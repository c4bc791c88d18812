//! The model of the memory system: given the accesses by accessing node and home node, it predicts the latency of an access,
//! the utilisation of each controller and each directed link, and the speed of each class of threads.
//!
//! A closed queueing network, solved by approximate mean value analysis. Customers are threads' outstanding misses; stations
//! are memory controllers, directed links and, where they are known, the limits of a node's own CPUs on what they read and write together; the rest of an
//! access's path is a fixed latency. `docs/traffic-model.md` has the equations and how they were checked.
//!
//! Everything here is a pure function. Nodes are *dense indexes* into [`numapilot_machine::Machine::nodes`], not the kernel's
//! numbers: the model lives in arrays.

mod accelerate;
mod adjoint;
mod answer;
mod ensemble;
mod error;
mod load;
mod metrics;
mod network;
mod own_error;
mod phase;
mod probes;
mod run_time;
mod service;
mod solution;
mod solver;
mod state;
mod system;
mod ways;

pub use ensemble::{latin_hypercube, unknowns};
pub use error::TrafficError;
pub use load::{Background, Class, Load};
pub use metrics::{Imbalance, Metrics, metrics};
pub use own_error::{QUEUEING_DELAY, queueing_delay_range};
pub use phase::{Core, PhaseTime, Work, phase_time_s};
pub use run_time::{FinishTimes, finish_times_s};
pub use service::{DEFAULT_CONTROLLER_EFFICIENCY, DEFAULT_MESSAGE_BYTES, DEFAULT_WRITE_TURNAROUND, LINE_BYTES};
pub use solution::{Solution, StationLoad, worse_residual};
pub use solver::Solver;
pub use system::MemorySystem;
