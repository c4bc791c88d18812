//! Placement policies: pure, deterministic functions from statistics to actions.
//!
//! A policy sees an [`Observation`] and answers with [`Action`]s. It knows nothing of kernels, files or simulators, so that the same code
//! drives the simulated machine and a real one. The *environment* that runs the policy reports the outcome of each
//! action in the next observation's [`Outcome`]s. [`policy_by_name`] makes one; `docs/policies.md` says what each does and how to write
//! another.
//!
//! Nodes are dense indexes into [`numapilot_machine::Machine::nodes`] everywhere in this crate.

mod action;
mod carrefour;
mod cold;
mod damon;
mod error;
mod fixed;
#[cfg(test)]
mod fixtures;
mod kernel_balancing;
mod kernel_tiering;
mod kernel_tiers;
mod metrics;
mod move_price;
mod nodes;
mod observation;
mod optimum;
mod options;
mod page;
mod page_use;
mod pilot;
mod policy;
mod registry;
mod replication;
mod scan_limits;
mod scan_process;
mod tiering;

pub use action::{Action, Allocation, Outcome, Refusal};
pub use error::PlacementError;
pub use metrics::{Deviation, Traffic};
pub use observation::{
    HintFault, HomeRun, NodeCounters, Observation, PageKey, PageSize, ReadOnlyRange, Sample, ThreadState,
};
pub use optimum::{
    Change, Demand, Optimum, OptimumOptions, PageGroup, PageHome, Phase, PhaseOptimum, Placement, ThreadGroup, Work,
    optimum, run_time_s, usual_placements,
};
pub use options::OptionInfo;
pub use policy::{Policy, PolicyRequirements};
pub use registry::{PolicyInfo, policies, policy_by_name};
