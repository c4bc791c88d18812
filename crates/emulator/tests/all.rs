//! Integration tests of the plugin, in one program.
//!
//! Each file is a module. `tools/test` runs each in a process of its own; `tidy.rs` of the command line finds one that has no line here.

mod decode;
/// The plugin itself is built for x86-64 alone.
#[cfg(target_arch = "x86_64")]
mod parts;
