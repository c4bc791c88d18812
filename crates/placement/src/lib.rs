//! Placement policies: pure, deterministic functions from statistics to actions.
//!
//! A policy sees an [`Observation`] and answers with [`Action`]s. It knows nothing of kernels, files or simulators, so that the same code
//! drives the simulated machine and a real one. Whoever runs it (the *environment*) says exactly what happened to each
//! action in the next observation's [`Outcome`]s.
//!
//! Nodes are dense indexes into [`numapilot_machine::Machine::nodes`] everywhere in this crate.

mod action;
mod observation;
mod policy;

pub use action::{Action, Allocation, Outcome, Refusal};
pub use observation::{HintFault, NodeCounters, Observation, PageKey, PageSize, Sample, ThreadState};
pub use policy::{Policy, Wishes};
