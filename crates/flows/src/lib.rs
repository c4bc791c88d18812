//! The join: every access gets its object, its thread, its call stack and its home node. Thread Event Flows and Object
//! Event Flows are two orders of the same rows.
//!
//! [`Trace`] is a joined trace in memory. The definitions of everything computed from it are in `docs/metrics.md`.

mod access;
mod filter;
mod model;
mod trace;

pub use access::{AccessRef, Accesses, level_from_number};
pub use filter::Filter;
pub use model::{CountersAt, Frame, Location, LocationId, Object, ObjectKind, Process, Site, SiteId, Thread};
pub use trace::{Losses, Tables, Trace};
