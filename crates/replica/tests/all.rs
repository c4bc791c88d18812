//! Integration tests of per-node copies, in one program.
//!
//! Each file is a module. `tools/test` runs each in a process of its own; `tidy.rs` of the command line finds one that has no line here.

mod common;

mod c_library;
mod lab;
mod mappings;
mod replicated;
