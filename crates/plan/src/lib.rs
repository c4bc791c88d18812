//! Plans: rules that place a program's objects and threads on the nodes of a NUMA machine.
//!
//! Owns the plan's types ([`Plan`]), its file format (`docs/plan-format.md`: [`Plan::parse`], [`Plan::to_toml`]) and its fit with a machine
//! ([`Plan::fit`]). Nothing here runs programs or reads system state. `numapilot run --plan` and `record --plan` apply plans.

mod error;
mod fit;
mod glob;
mod plan;
mod policy;
mod read;
mod table;
mod write;

pub use error::PlanError;
pub use fit::{Fit, Fitted};
pub use glob::glob_matches;
pub use plan::{Frame, Layout, ObjectMatch, ObjectRule, Placing, Plan, ProcessRule, ThreadRule};
pub use policy::{HandOver, NodeSet, Policy};
pub use table::RANGES_MAX;

/// Version of the file format that this crate reads and writes.
pub const VERSION: u32 = 1;

/// Most rules of one kind (objects, threads or processes) in a plan.
pub const MAX_RULES: usize = 256;
