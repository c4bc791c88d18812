//! Integration tests of the decoders, in one program.
//!
//! Each file is a module. `tools/test` runs each in a process of its own; `tidy.rs` of the command line finds one that has no line here.

mod damage;
mod dumped;
mod mutations;
mod pmu;
mod recordings;
mod round_trip;
mod streams;
