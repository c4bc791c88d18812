//! The C API of joined traces: open, iterate objects, threads and flows, filter, count, export. `include/numapilot.h` is made from these sources;
//! `docs/c-api.md` has complete programs.
//!
//! What every function keeps: it never panics across the border and never aborts; it returns 0 or a code and leaves a message for its thread; handles
//! are numbers, not pointers, so that a closed or made-up one is an error and no crash; readers run in parallel; nothing is locked, so that a fork
//! at any moment leaves the child with working handles.

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
