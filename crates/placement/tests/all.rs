//! Integration tests of the policies, in one program.
//!
//! Each file is a module. `tools/test` runs each in a process of its own; `tidy.rs` of the command line finds one that has no line here.

mod closed_loop;
mod copies;
mod harm;
mod optimum;
mod properties;
mod servers;
mod tiers;
