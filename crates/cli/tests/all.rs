//! The command's integration tests, in one program: one to link, where there were sixty. `tools/test` runs each file of it in a process of its own; of
//! one file alone: `cargo test -p numapilot --test all FILE::`.
//!
//! A new file of tests has its line here (`tidy.rs` finds one without). What changes its whole process (limits, the folder, variables, what signals do)
//! or must be alone in it is a program of its own: a `[[test]]` in `Cargo.toml`.

mod common;

// The command line, the machine and the documents.
mod bad_input;
mod demo;
mod docs;
mod doctor;
mod experiments;
mod inherited_signals;
mod machine_files;
mod measure;
mod packages;
mod runner;
mod selftest;
mod servers;
mod speed_guard;
mod surface;
mod wrapper;
mod zoo;

// Recording: engines, programs of every kind, where it ends.
mod affinity;
#[cfg(target_arch = "x86_64")]
mod after_optimisation;
mod agreement;
mod allocation_wrappers;
mod attribution;
mod children;
mod classes;
mod daemons;
mod emulate;
mod fault;
mod file_capabilities;
mod first_thread;
mod generated_code;
mod growing_stack;
mod homes;
mod import;
mod java;
mod killing;
mod native;
mod overlap;
mod own_allocators;
mod pool_blocks;
mod process_tree;
mod published;
mod python_lines;

// What is made of recordings.
mod compare;
mod exports;
mod few_threads;
mod heap;
mod html;
mod predict;
mod prices;
mod synthetic;
mod traces;

// Placement and the running machine.
mod balance_service;
mod plan;
mod plan_measured;
mod service;
mod top;
mod top_memory;
mod watch;

// Real kernels with several nodes.
mod lab_balance;
mod lab_copies;
mod lab_cpus;
mod lab_emulated_pmu;
mod lab_fault;
mod lab_homes;
mod lab_kill;
mod lab_move;
mod lab_overlap;
mod lab_pack;
mod lab_rights;
mod lab_soak;
mod lab_topo;
mod lab_watch;
mod plan_lab;
