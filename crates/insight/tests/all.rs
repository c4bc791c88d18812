//! Integration tests of metrics, prices and patterns, in one program.
//!
//! Each file is a module. `tools/test` runs each in a process of its own; `tidy.rs` of the command line finds one that has no line here.

mod analysis;
mod asleep;
mod calibration;
mod cube;
mod heap;
mod intervals;
mod patterns;
mod prices;
mod sampled;
