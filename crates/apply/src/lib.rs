//! Plans applied to programs: the plan is compiled for the binaries at hand, shared with the planner library in the program, and what the library
//! did is read back.
//!
//! The compiled plan's layout is `crates/runtime/c/plan_wire.h`. Placing itself happens in the program (`crates/runtime/c/plan_*.c`). A process can also
//! be given a policy and CPUs before its program runs ([`apply_here`]).
//!
//! This crate touches the system: it needs Linux with memfd (3.17).

mod code;
mod compile;
mod error;
mod image;
mod layout;
mod outcome;
mod policy;
mod run;

pub use compile::{Purpose, compile};
pub use error::ApplyError;
pub use image::PlanImage;
pub use outcome::{Outcome, PlaceOutcome, RuleOutcome};
pub use policy::{Current, MemoryPolicy, ProcessPolicy, apply_here};
pub use run::{Applied, ApplyOptions, check, run};
