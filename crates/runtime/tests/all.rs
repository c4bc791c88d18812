//! Integration tests of what runs inside of programs, in one program.
//!
//! Each file is a module. `tools/test` runs each in a process of its own; `tidy.rs` of the command line finds one that has no line here.

mod support;
mod sim {
    pub mod lab;
}
mod vtime {
    pub mod bench;
}

mod addresses;
mod alloc;
mod arm;
mod homes;
mod java;
mod lifecycle;
mod order;
mod plan;
mod plan_rules;
mod pools;
mod race;
mod robust;
mod sim_model;
mod stacks;
mod unpack;
mod vtime_paths;
mod vtime_threads;
