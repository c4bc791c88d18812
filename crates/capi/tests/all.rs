//! Integration tests of the C API, in one program.
//!
//! Each file is a module. `tools/test` runs each in a process of its own; `tidy.rs` of the command line finds one that has no line here.

mod common;

mod c_library;
mod header;
mod recording;
mod scripts;
