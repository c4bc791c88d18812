//! Integration tests of the engines, in one program.
//!
//! Each file is a module. `tools/test` runs each in a process of its own; `tidy.rs` of the command line finds one that has no line here.

mod support;

mod ending;
mod killing;
mod recording;
mod started;
