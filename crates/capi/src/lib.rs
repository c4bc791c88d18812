//! The C API of joined traces: open, iterate objects, threads and flows, filter, count, export. `include/numapilot.h` is generated from these
//! sources; `docs/c-api.md` has complete programs.
//!
//! Rules for every function: it never panics across the C boundary and never aborts. It returns 0 or a code, and stores a message for its thread.
//! Handles are numbers instead of pointers, so that a closed or invalid one gives an error instead of a crash. Readers run in parallel. There are no
//! locks, so that the handles work in the child of a fork at any moment.

mod arrow;
mod code;
mod ffi;
mod filter;
mod flow;
mod handles;
mod rows;
mod statistics;
mod text;
mod trace;

pub use arrow::*;
pub use code::*;
pub use ffi::*;
pub use filter::*;
pub use flow::*;
pub use rows::*;
pub use statistics::*;
pub use trace::*;
