//! The join gives every access its object, its thread, its call stack and its home node. Thread Event Flows and Object
//! Event Flows are two orders of the same rows.
//!
//! [`Trace`] is a joined trace in memory. The definitions of everything computed from it are in `docs/metrics.md`.

mod access;
pub mod cores;
mod cursor;
mod dependences;
mod encoder;
mod ends;
mod error;
mod filter;
mod finalise;
mod instrumentation;
mod join;
mod losses;
mod model;
mod named;
mod open;
mod own_allocators;
mod rows;
mod shared_memory;
mod sizes;
mod symbolise;
mod thread_names;
mod ties;
mod trace;
mod unknown_python;
mod unresolved;

pub use access::{AccessRef, Accesses, level_from_number};
pub use cursor::Cursor;
pub use dependences::{Deed, Dependences, Life, Order, Piece, Waited};
pub use ends::Ends;
pub use error::{FlowError, StreamError};
pub use filter::Filter;
pub use finalise::{Progress, Summary, finalise, finalise_stream, finalise_with};
pub use instrumentation::{Instrumentation, Module, Part};
pub use model::{
    CountersAt, Frame, Location, LocationId, Object, ObjectKind, Placement, PlacementCause, Process, Site, SiteId,
    Thread, Wait,
};
pub use named::{NameError, Named};
pub use numapilot_trace::meta::Evidence;
pub use own_allocators::{NamelessProgram, OwnAllocator};
pub use sizes::{HeapPeak, SiteSize};
pub use trace::{Losses, Tables, Trace};
