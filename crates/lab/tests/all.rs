//! Integration tests of the lab, in one program.
//!
//! Each file is a module. `tools/test` runs each in a process of its own; `tidy.rs` of the command line finds one that has no line here.

mod common;

mod arm;
mod lab;
mod sampling;
mod truth;
