//! Integration tests of wire format and chunks, in one program.
//!
//! Each file is a module. `tools/test` runs each in a process of its own; `tidy.rs` of the command line finds one that has no line here.

mod common;

mod chunks;
mod wire_layout;
mod wire_records;
