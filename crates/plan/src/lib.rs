//! Plans: rules that say which objects and threads of a program go where on a NUMA machine.
//!
//! Owns the plan's types ([`Plan`]), its file format (`docs/plan-format.md`: [`Plan::parse`], [`Plan::to_toml`]) and its fit with a machine
//! ([`Plan::fit`]). Pure: nothing here runs programs or asks the system. `numapilot run --plan` and `record --plan` apply plans.

mod error;
mod fit;
mod glob;
mod plan;
mod policy;
mod read;
mod size;
mod table;
mod write;

pub use error::PlanError;
pub use fit::{Fit, Fitted};
pub use glob::glob_matches;
pub use plan::{Frame, Layout, ObjectMatch, ObjectRule, Placing, Plan, ProcessRule, ThreadRule};
pub use policy::{HandOver, NodeSet, Policy};

/// Version of the file format that this crate reads and writes.
pub const VERSION: u32 = 1;

/// Rules of one kind that a plan may hold.
pub const MAX_RULES: usize = 256;
