//! Steps a program through the traffic model in epochs: page table, threads, synchronisation, migrations that cost bandwidth and time, a
//! sampler, and a policy in the loop. Deterministic for a seed. Every result is *simulated* and labelled so.
//!
//! `docs/simulator.md` says what is modelled, with which equations, and the known errors.
//!
//! ```no_run
//! use numapilot_simulator::{Options, Simulation, synthetic};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let machine = numapilot_machine::Machine::load("opteron-8385")?;
//! let program = synthetic::load("workloads/synthetic/hot-controller.toml".as_ref())?;
//! let mut policy = numapilot_placement::policy_by_name("interleave", &machine, 1)?;
//! let report = Simulation::new(&program, &machine, Options::default())?.run(policy.as_mut(), &mut |_| true)?;
//! assert!(report.simulated);
//! # Ok(())
//! # }
//! ```

pub mod arrange;
mod costs;
mod engine;
mod error;
mod ledger;
mod memory;
mod notes;
mod options;
mod pages;
pub mod program;
mod random;
pub mod recorded;
mod report;
mod seats;
mod simulation;
pub mod synthetic;
pub mod whatif;

pub use costs::Costs;
pub use engine::{AGREEMENT, Progress};
pub use error::SimulatorError;
pub use memory::{IdleMemory, Memory, QueueingMemory};
pub use options::{Layout, MemoryModel, Options};
pub use report::{Convergence, Homes, LabelReport, Moves, Point, PolicyCost, Refused, Report, ThreadReport, Traffic};
pub use simulation::Simulation;
